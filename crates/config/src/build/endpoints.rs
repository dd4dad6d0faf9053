//! Endpoints, as the text or a file of their own lists them, or names that stand for them.

use std::sync::Arc;

use super::localities;
use crate::defaults;
use crate::dns::{self, DnsFamily, DnsMode, DnsName, EndpointAddress, HostPort};
use crate::file::cluster::{Endpoint as FileEndpoint, EndpointsDns, WeightedEndpoint};
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::resource::{Assignment, Endpoint};
use crate::snapshot::{Address, EndpointsFrom, ListedEndpoint, Traits};
use crate::subsets::Metadata;
use crate::tree::Site;

/// What a list holds.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<ListedEndpoint>,
}

impl List {
    /// Where its endpoints come from, and those that need no answer.
    pub(crate) fn split(self) -> (EndpointsFrom, Assignment) {
        if self.entries.iter().any(|entry| matches!(entry, ListedEndpoint::Name { .. })) {
            return (EndpointsFrom::Names(self.entries.into()), Assignment::default());
        }
        (EndpointsFrom::Addresses, self.into_assignment())
    }

    /// The addresses in it.
    pub(crate) fn into_assignment(self) -> Assignment {
        let endpoints = self.entries.into_iter().filter_map(|entry| match entry {
            ListedEndpoint::Address { address, weight, host, traits } => {
                Some(Endpoint { address, weight, host, traits })
            }
            ListedEndpoint::Name { .. } => None,
        });
        Assignment { endpoints: endpoints.collect() }
    }
}

/// Whether a socket of the file system with this metadata is nothing wrong.
pub(crate) type AllowsUnix<'a> = &'a dyn Fn(&Metadata) -> bool;

/// Endpoints of one cluster. `site` is that of the list. `allows_unix`: sockets of the file system are nothing
/// that is wrong with their cluster.
pub(crate) fn lower(
    entries: &[FileEndpoint],
    allows_unix: AllowsUnix<'_>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> List {
    if entries.is_empty() && site.node().items().is_empty() {
        let problem = Problem::new("every request for this cluster gets 503", "add an endpoint");
        site.warning(findings, problem);
    }
    let mut lines: Map<&EndpointAddress, u32> = Map::default();
    let mut listed = Vec::with_capacity(entries.len());
    for (entry, site) in entries.iter().zip(site.items()) {
        let address = entry.address();
        let inner = site.key("address");
        // The place of an address alone is itself, where a report should point.
        let at = if matches!(entry, FileEndpoint::Address(_)) { &site } else { &inner };
        if let Some(Err(problem)) = address.address().map(check_reachable) {
            at.error(findings, problem);
            continue;
        }
        if entry.is_unix() && !allows_unix(entry.metadata()) {
            at.error(findings, unix_needs_name());
            continue;
        }
        if let Some(line) = lines.insert(address, at.at().line) {
            let rule = "each endpoint of a cluster has its own address";
            let line = findings.line_name(line);
            let hint = format!("{line} has it already; use a weight to give it more requests");
            at.error(findings, Problem::new(rule, hint));
            continue;
        }
        listed.push(match entry {
            FileEndpoint::Address(_) => {
                listed_endpoint(address, defaults::WEIGHT.get(), None, Traits::default())
            }
            FileEndpoint::Weighted(weighted) => {
                let traits = traits(weighted, &site, findings);
                listed_endpoint(address, weighted.weight, host(weighted, &site, findings), traits)
            }
        });
    }
    if !listed.is_empty() && listed.iter().all(|endpoint| endpoint.weight() == 0) {
        let rule =
            "every request for this cluster gets 503: all of its endpoints have a weight of 0";
        site.warning(findings, Problem::new(rule, "give one of them a weight of 1"));
    }
    List { entries: listed }
}

fn traits(file: &WeightedEndpoint, site: &Site<'_>, findings: &mut Findings<'_>) -> Traits {
    let metadata = (!file.metadata.is_empty()).then(|| Arc::new(file.metadata.clone()));
    let locality = localities::own(file.locality.as_deref(), &site.key("locality"), findings);
    Traits { priority: file.priority, metadata, locality, health: file.health }
}

/// The name of an address; none if there is none, or something is wrong, which is reported.
fn host(file: &WeightedEndpoint, site: &Site<'_>, findings: &mut Findings<'_>) -> Option<Arc<str>> {
    let text = file.host.as_deref()?;
    let name = match file.address {
        EndpointAddress::Address(_) => dns::host_name(text),
        EndpointAddress::Host(_) => {
            let rule = "`address` contains the host name of this endpoint already";
            Err(Problem::new(rule, "remove `host`, or write an address of numbers"))
        }
    };
    name.map_err(|problem| site.key("host").error(findings, problem)).ok()
}

fn listed_endpoint(
    address: &EndpointAddress,
    weight: u16,
    host: Option<Arc<str>>,
    traits: Traits,
) -> ListedEndpoint {
    match address {
        EndpointAddress::Address(address) => {
            ListedEndpoint::Address { address: address.clone(), weight, host, traits }
        }
        EndpointAddress::Host(HostPort { host, port }) => {
            let name = DnsName {
                host: Arc::clone(host),
                port: Some(*port),
                mode: DnsMode::default(),
                family: DnsFamily::default(),
                ttl_min: defaults::DNS_TTL_MIN.0,
                ttl_max: defaults::DNS_TTL_MAX.0,
            };
            ListedEndpoint::Name { name: Arc::new(name), weight, traits }
        }
    }
}

/// Refuses the host names in a list that has to stand by itself.
pub(crate) fn check_addresses(
    entries: &[FileEndpoint],
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    for (entry, site) in entries.iter().zip(site.items()) {
        let EndpointAddress::Host(host) = entry.address() else { continue };
        let rule = "an endpoint file contains addresses only";
        let hint = format!(
            "write `endpoints: [\"{}:{}\"]` in the configuration, or an address here",
            host.host, host.port
        );
        site.error(findings, Problem::new(rule, hint));
    }
}

/// The name that stands for all endpoints of a cluster. `site` is that of `endpoints`.
pub(crate) fn lower_dns(
    file: &EndpointsDns,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> EndpointsFrom {
    if file.ttl_min > file.ttl_max {
        let rule = "`ttl_min` is greater than `ttl_max`";
        let hint = format!("write `ttl_max: {}` or more", file.ttl_min);
        site.key("ttl_min").error(findings, Problem::new(rule, hint));
    }
    let name = match (file.mode, file.dns.rsplit_once(':')) {
        (DnsMode::Srv, Some((host, _))) => {
            let hint = format!("write {host}");
            Err(Problem::new("in mode `srv`, the records contain the port", hint))
        }
        (DnsMode::Srv, None) => dns::host_name(&file.dns).map(|host| (host, None)),
        (DnsMode::Strict | DnsMode::Logical, _) => {
            file.dns.parse::<HostPort>().map(|it| (it.host, Some(it.port)))
        }
    };
    match name {
        Ok((host, port)) => EndpointsFrom::Dns(Arc::new(DnsName {
            host,
            port,
            mode: file.mode,
            family: file.family,
            ttl_min: file.ttl_min.0,
            ttl_max: file.ttl_max.0,
        })),
        Err(problem) => {
            site.key("dns").error(findings, problem);
            EndpointsFrom::default()
        }
    }
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

/// What is wrong with TLS to a socket of the file system.
pub(super) fn unix_needs_name() -> Problem {
    let rule = "a unix socket has no host name, so the name in its certificate must be configured";
    let hint = "add `server_name: api.example.com`, or `names` to send no server name";
    Problem::new(rule, hint)
}
