//! `resolvers` to [`Resolvers`].

use std::net::{IpAddr, SocketAddr};

use crate::file;
use crate::findings::{Findings, Problem};
use crate::snapshot::Resolvers;
use crate::text::tree::Site;

/// Servers that are asked one after the other: a name that none of them knows takes as long as all of them.
const SERVERS_MAX: usize = 8;

/// Where a DNS server listens, if nothing else is said (RFC 1035, section 4.2).
const DNS_PORT: u16 = 53;

pub(super) fn build(
    file: &file::Resolvers,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Resolvers {
    let sites = site.key("servers");
    let mut servers = Vec::with_capacity(file.servers.len());
    for (text, site) in file.servers.iter().zip(sites.items()) {
        match server(text) {
            Ok(server) if servers.contains(&server) => {
                site.error(findings, Problem::new("each server may occur once", "remove one"));
            }
            Ok(server) => servers.push(server),
            Err(problem) => site.error(findings, problem),
        }
    }
    if servers.len() > SERVERS_MAX {
        let rule = format!("at most {SERVERS_MAX} servers are asked");
        sites.error(findings, Problem::new(rule, "name those that are near"));
    }
    Resolvers {
        servers: servers.into(),
        timeout: file.timeout.map(Into::into),
        initial_fetch_timeout: file.initial_fetch_timeout.0,
        on_demand_timeout: file.on_demand_timeout.0,
    }
}

fn server(text: &str) -> Result<SocketAddr, Problem> {
    let alone = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
    let address = alone.or_else(|_| text.parse::<SocketAddr>()).map_err(|_| {
        let rule = "a DNS server is an IP address, with a port if that is not 53";
        Problem::new(rule, "write 10.0.0.2 or 127.0.0.1:5353, for instance")
    })?;
    if address.ip().is_unspecified() || address.ip().is_multicast() || address.port() == 0 {
        let rule = "no server can be reached there";
        return Err(Problem::new(rule, "write the address of one DNS server"));
    }
    Ok(address)
}
