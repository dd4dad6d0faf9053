//! Endpoints, as the text or a file of their own lists them, to an [`Assignment`].

use super::tls;
use crate::defaults;
use crate::file::cluster::Endpoint as FileEndpoint;
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::resource::{Assignment, Endpoint};
use crate::snapshot::Address;
use crate::tree::Site;

/// Endpoints of one cluster. `site` is that of the list. `allows_unix`: sockets of the file system are nothing
/// that is wrong with their cluster.
pub(crate) fn lower(
    entries: &[FileEndpoint],
    allows_unix: bool,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Assignment {
    if entries.is_empty() && site.node().items().is_empty() {
        let problem = Problem::new("every request for this cluster gets 503", "add an endpoint");
        site.warning(findings, problem);
    }
    let mut lines: Map<&Address, u32> = Map::default();
    let mut endpoints = Vec::with_capacity(entries.len());
    for (entry, site) in entries.iter().zip(site.items()) {
        let address = entry.address();
        let inner = site.key("address");
        // The place of an address alone is itself, where a report should point.
        let at = if matches!(entry, FileEndpoint::Address(_)) { &site } else { &inner };
        if let Err(problem) = check_reachable(address) {
            at.error(findings, problem);
            continue;
        }
        if entry.is_unix() && !allows_unix {
            at.error(findings, tls::unix_needs_name());
            continue;
        }
        if let Some(line) = lines.insert(address, at.at().line) {
            let rule = "each endpoint of a cluster has its own address";
            let hint = format!("line {line} has it already; use a weight to give it more requests");
            at.error(findings, Problem::new(rule, hint));
            continue;
        }
        let weight = match entry {
            FileEndpoint::Address(_) => defaults::WEIGHT.get(),
            FileEndpoint::Weighted(weighted) => weighted.weight,
        };
        endpoints.push(Endpoint { address: address.clone(), weight });
    }
    if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.weight == 0) {
        let rule =
            "every request for this cluster gets 503: all of its endpoints have a weight of 0";
        site.warning(findings, Problem::new(rule, "give one of them a weight of 1"));
    }
    Assignment { endpoints }
}

/// Port 0 names no endpoint.
fn check_reachable(address: &Address) -> Result<(), Problem> {
    match address {
        Address::Tcp(address) if address.port() == 0 => {
            Err(Problem::new("nothing can be reached at port 0", "write the endpoint's port"))
        }
        Address::Tcp(_) | Address::Unix(_) => Ok(()),
    }
}
