//! Endpoints, as the text or a file of their own lists them, or names that stand for them.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::defaults;
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::resource::assignment::dns::{
    self, DnsFamily, DnsMode, DnsName, EndpointAddress, HostPort,
};
use crate::resource::assignment::locality::build as localities;
use crate::resource::cluster::file::{Endpoint as FileEndpoint, EndpointsDns, WeightedEndpoint};
use crate::resource::cluster::subsets::Metadata;
use crate::resource::{Assignment, Endpoint, WEIGHTS_MAX};
use crate::snapshot::{Address, EndpointsFrom, ListedEndpoint, Traits};
use crate::text::tree::Site;

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
        Assignment { endpoints: endpoints.collect(), ..Assignment::default() }
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
    let mut lines: Map<Cow<'_, EndpointAddress>, u32> = Map::default();
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
        if let Some(line) = lines.insert(canonical(address), at.at().line) {
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
    check_priorities(entries, site, findings);
    check_weights(&listed, site, findings);
    if !listed.is_empty() && listed.iter().all(|endpoint| endpoint.weight() == 0) {
        let rule =
            "every request for this cluster gets 503: all of its endpoints have a weight of 0";
        site.warning(findings, Problem::new(rule, "give one of them a weight of 1"));
    }
    List { entries: listed }
}

fn traits(file: &WeightedEndpoint, site: &Site<'_>, findings: &mut Findings<'_>) -> Traits {
    let metadata = (!file.metadata.is_empty()).then(|| Arc::new(file.metadata.clone()));
    for (key, value) in &file.metadata {
        if has_control(key) || has_control(value) {
            let rule = "metadata contains no control characters";
            let hint = "remove the line break or the control character";
            site.key("metadata").key(key).error(findings, Problem::new(rule, hint));
        }
    }
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
    let name = match file.mode {
        DnsMode::Srv => name_of_records(&file.dns).map(|host| (host, None)),
        DnsMode::Strict | DnsMode::Logical if dns::is_of_records(&file.dns) => {
            Err(Problem::new("this is a name of SRV records", "add `mode: srv`"))
        }
        DnsMode::Strict | DnsMode::Logical => {
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

fn name_of_records(text: &str) -> Result<Arc<str>, Problem> {
    if let Some(problem) = dns::url_of_records(text) {
        return Err(problem);
    }
    match text.rsplit_once(':') {
        Some((host, _)) => {
            let hint = format!("write {host}");
            Err(Problem::new("in mode `srv`, the records contain the port", hint))
        }
        None => dns::host_name(text),
    }
}

/// The same address as the kernel connects to: IPv4 addresses that are mapped into IPv6 are those of IPv4.
fn canonical(address: &EndpointAddress) -> Cow<'_, EndpointAddress> {
    match address.address() {
        Some(Address::Tcp(SocketAddr::V6(v6))) if v6.ip().to_ipv4_mapped().is_some() => {
            let address = SocketAddr::new(v6.ip().to_canonical(), v6.port());
            Cow::Owned(EndpointAddress::Address(Address::Tcp(address)))
        }
        _ => Cow::Borrowed(address),
    }
}

/// Port 0 names no endpoint, and neither do addresses that are of no machine or of several.
fn check_reachable(address: &Address) -> Result<(), Problem> {
    let Address::Tcp(address) = address else { return Ok(()) };
    let port = address.port();
    if port == 0 {
        return Err(Problem::new("nothing can be reached at port 0", "write the endpoint's port"));
    }
    match address.ip().to_canonical() {
        ip if ip.is_unspecified() => {
            let rule = "this is every address of a machine, to listen on, and no endpoint";
            let own = if ip.is_ipv4() { "127.0.0.1" } else { "[::1]" };
            let hint = format!("write {own}:{port} for this machine, or the endpoint's address");
            Err(Problem::new(rule, hint))
        }
        ip if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) => {
            let rule = "nothing accepts TCP connections at a multicast or broadcast address";
            Err(Problem::new(rule, "write the endpoint's own address"))
        }
        _ => Ok(()),
    }
}

/// Requests go from one priority to the next: none in between is left out.
fn check_priorities(entries: &[FileEndpoint], site: &Site<'_>, findings: &mut Findings<'_>) {
    let is_cut = |site: Site<'_>| site.is_cut("priority");
    if entries.len() < site.node().items().len() || site.items().any(is_cut) {
        // What is missing may be in an entry that is refused.
        return;
    }
    let mut first: Map<u8, usize> = Map::default();
    for (entry, place) in entries.iter().zip(0..) {
        first.entry(entry.priority()).or_insert(place);
    }
    let Some(missing) = (0..=u8::MAX).find(|it| !first.contains_key(it)) else { return };
    let beyond = first.iter().filter(|(priority, _)| **priority > missing);
    let Some((priority, place)) = beyond.min_by_key(|(priority, _)| **priority) else { return };
    let rule = format!("priority {missing} has no endpoints, and {priority} has some");
    let hint = format!("write {missing}, or add endpoints of priority {missing}");
    if let Some(site) = site.items().nth(*place) {
        site.key("priority").error(findings, Problem::new(rule, hint));
    }
}

/// Weights are summed up. Answers of DNS, which bring more of them, have their own rule.
fn check_weights(listed: &[ListedEndpoint], site: &Site<'_>, findings: &mut Findings<'_>) {
    let sum: u64 = listed.iter().map(|endpoint| u64::from(endpoint.weight())).sum();
    if sum > WEIGHTS_MAX {
        let rule = format!("the weights of a cluster come to at most {WEIGHTS_MAX}");
        site.error(findings, Problem::new(rule, "write smaller weights in the same proportions"));
    }
}

/// Whether a text could begin another line of a log, or hide in it.
pub(crate) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// What is wrong with TLS to a socket of the file system.
pub(crate) fn unix_needs_name() -> Problem {
    let rule = "a unix socket has no host name, so the name in its certificate must be configured";
    let hint = "add `server_name: api.example.com`, or `names` to send no server name";
    Problem::new(rule, hint)
}
