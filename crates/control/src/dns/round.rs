//! One round of questions about a name: from the name to its endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;

use config::dns::host_name;
use config::snapshot::{DnsFamily, DnsMode, DnsName, Resolved};
use hickory_proto::rr::rdata::SRV;
use hickory_proto::rr::{RData, RecordType};
use tokio::task::JoinSet;

use super::failure::{Absence, Failure};
use super::message::srv;
use super::stub::Records;
use super::system::{Asking, System};

/// Addresses of a name that are used.
pub(super) const ADDRESSES_MAX: usize = 4096;

/// Targets of SRV records that are asked for: about as many as an answer has room for.
pub(super) const TARGETS_MAX: usize = 1024;

/// Targets that are asked for at a time.
const TARGETS_AT_ONCE: usize = 16;

/// What a round found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// In an order of their own, whatever that of the answer is; in mode `logical` the first of the answer.
    pub(crate) endpoints: Vec<Resolved>,
    /// For how many seconds that holds, if it is known.
    pub(super) ttl: Option<u32>,
    /// Addresses that are not used: too many, or none that a service can have.
    pub(crate) dropped: usize,
    /// Why there are no endpoints, if there are none.
    pub(crate) absence: Option<Absence>,
    /// Why a part of the answer is missing, in place of which former endpoints are used.
    pub(crate) failure: Option<Failure>,
}

/// Addresses of a host.
#[derive(Clone, Debug, Default)]
struct Addresses {
    all: Vec<IpAddr>,
    ttl: Option<u32>,
    dropped: usize,
    absence: Option<Absence>,
    /// Why one family's are not known.
    failure: Option<Failure>,
}

/// Resolves a name. `former` are its endpoints so far, of which those stay whose part of the answer is missing.
pub(super) async fn resolve(
    system: &Arc<System>,
    name: &DnsName,
    former: &[Resolved],
) -> Result<Found, Failure> {
    system.refresh().await;
    match name.port {
        Some(port) => host(system, name, port, former).await,
        None => services(system, name, former).await,
    }
}

async fn host(
    system: &Arc<System>,
    name: &DnsName,
    port: NonZeroU16,
    former: &[Resolved],
) -> Result<Found, Failure> {
    let Addresses { mut all, ttl, mut dropped, absence, failure } =
        addresses(system, &name.host, name.family, former).await?;
    if name.mode == DnsMode::Logical {
        all.truncate(1);
    } else {
        all.sort_unstable();
    }
    dropped += all.len().saturating_sub(ADDRESSES_MAX);
    all.truncate(ADDRESSES_MAX);
    let host: Arc<str> = name.server_name().into();
    let endpoints = all.into_iter().map(|ip| Resolved {
        address: SocketAddr::new(ip, port.get()),
        weight: NonZeroU16::MIN,
        priority: 0,
        host: Arc::clone(&host),
    });
    Ok(Found { endpoints: endpoints.collect(), ttl, dropped, absence, failure })
}

/// The addresses of a host, from this machine or by asking.
async fn addresses(
    system: &System,
    host: &str,
    family: DnsFamily,
    former: &[Resolved],
) -> Result<Addresses, Failure> {
    if let Some(all) = system.addresses(host) {
        return Ok(usable(all, family, None));
    }
    let asking = system.asking()?;
    let mut none = Addresses::default();
    for name in asking.candidates(host) {
        let asked = |kind| asking.servers.look_up(&name, kind);
        let (v4, v6) = tokio::join!(
            async { if family.asks_v4() { asked(RecordType::A).await } else { Ok(nothing()) } },
            async { if family.asks_v6() { asked(RecordType::AAAA).await } else { Ok(nothing()) } },
        );
        let (records, failure) = join(v4, v6, former);
        if !records.data.is_empty() {
            let all = records.data.iter().filter_map(RData::ip_addr).collect();
            return Ok(Addresses { failure, ..usable(all, family, records.ttl) });
        }
        // Another candidate would be another host, whose addresses must not stand in for one that a server
        // failed to look up.
        if let Some(failure) = failure {
            return Err(failure);
        }
        none.ttl = least(none.ttl, records.ttl);
        // One of them that exists says more than others that do not.
        if none.absence != Some(Absence::NoRecords) {
            none.absence = records.absence;
        }
    }
    Ok(none)
}

/// No records, for as long as anything else holds.
fn nothing() -> Records {
    Records { data: Vec::new(), absence: None, ttl: Some(u32::MAX) }
}

/// Both families of a host. Where one failed, its former addresses stay beside those that the other has; there
/// are servers that fail for IPv6 whatever they are asked.
fn join(
    v4: Result<Records, Failure>,
    v6: Result<Records, Failure>,
    former: &[Resolved],
) -> (Records, Option<Failure>) {
    let kept = |is_v4: bool| {
        let of_family = former.iter().filter(move |it| it.address.is_ipv4() == is_v4);
        of_family.map(|it| match it.address.ip() {
            IpAddr::V4(ip) => RData::A(ip.into()),
            IpAddr::V6(ip) => RData::AAAA(ip.into()),
        })
    };
    match (v4, v6) {
        (Ok(mut v4), Ok(v6)) => {
            // How long there is none of one family counts only where there is none of the other.
            v4.ttl = match (v4.data.is_empty(), v6.data.is_empty()) {
                (true, false) => v6.ttl,
                (false, true) => v4.ttl,
                (true, true) | (false, false) => least(v4.ttl, v6.ttl),
            };
            v4.data.extend(v6.data);
            v4.absence = v4.absence.or(v6.absence);
            (v4, None)
        }
        (Ok(found), Err(failure)) | (Err(failure), Ok(found)) if found.data.is_empty() => {
            (found, Some(failure))
        }
        (Ok(mut v4), Err(failure)) => {
            v4.data.extend(kept(false));
            (v4, Some(failure))
        }
        (Err(failure), Ok(mut v6)) => {
            v6.data.splice(0..0, kept(true));
            (v6, Some(failure))
        }
        (Err(failure), Err(_)) => (Records::default(), Some(failure)),
    }
}

fn least(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Those of a family that a service can have, each once.
fn usable(all: Vec<IpAddr>, family: DnsFamily, ttl: Option<u32>) -> Addresses {
    let asked = all.len();
    let mut all = all;
    all.retain(|ip| can_be_of_service(*ip));
    let dropped = asked - all.len();
    let absence = (all.is_empty() && dropped > 0).then_some(Absence::NoneUsable);
    let mut seen = BTreeSet::new();
    // The same machine by an address of either family is one endpoint.
    all.retain(|ip| seen.insert(ip.to_canonical()));
    family.select(&mut all, IpAddr::is_ipv4);
    Addresses { all, ttl, dropped, absence, failure: None }
}

/// Whether a service can have this address: it is one machine's, and it can be reached without knowing the
/// interface.
fn can_be_of_service(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            !ip.is_unspecified()
                && !ip.is_multicast()
                && !ip.is_link_local()
                && ip != Ipv4Addr::BROADCAST
        }
        IpAddr::V6(ip) => {
            ip != Ipv6Addr::UNSPECIFIED && !ip.is_multicast() && !ip.is_unicast_link_local()
        }
    }
}

/// The endpoints that SRV records name, of all priorities.
async fn services(
    system: &Arc<System>,
    name: &DnsName,
    former: &[Resolved],
) -> Result<Found, Failure> {
    let records = service_records(&system.asking()?, &name.host).await?;
    let mut found = Found { ttl: records.ttl, absence: records.absence, ..Found::default() };
    let mut used: Vec<SRV> = Vec::new();
    for record in records.data.iter().filter_map(srv) {
        // A dot alone says that there is no such service (RFC 2782).
        if record.target.is_root() {
            found.absence = Some(Absence::NoService);
        } else if record.port == 0 || host_name(&record.target.to_ascii()).is_err() {
            found.dropped += 1;
            found.absence = Some(Absence::NoneUsable);
        } else {
            used.push(record.clone());
        }
    }
    // Whatever the order of the answer is, the same ones are used.
    let place = |record: &SRV| (record.priority, record.target.to_lowercase(), record.port);
    used.sort_by_cached_key(|record| (place(record), record.weight));
    used.dedup_by_key(|record| place(record));
    found.dropped += used.len().saturating_sub(TARGETS_MAX);
    used.truncate(TARGETS_MAX);
    if used.is_empty() {
        return Ok(found);
    }
    let (targets, failure) = targets(system, name.family, used, former).await;
    for (_, addresses) in &targets {
        found.dropped += addresses.dropped;
        found.ttl = least(found.ttl, addresses.ttl);
    }
    found.failure = failure;
    found.endpoints = in_priorities(&targets);
    if found.endpoints.is_empty() {
        if let Some(failure) = found.failure {
            return Err(failure);
        }
        found.absence = Some(Absence::NoTarget);
        return Ok(found);
    }
    found.absence = None;
    found.dropped += found.endpoints.len().saturating_sub(ADDRESSES_MAX);
    found.endpoints.truncate(ADDRESSES_MAX);
    found.endpoints.sort_unstable_by_key(|endpoint| endpoint.address);
    Ok(found)
}

/// The endpoints of all targets, those of the first priority first. Priorities of which no target has an address do not
/// count. An address is one endpoint, of the first priority that has it, with the weights of all its targets there.
fn in_priorities(targets: &[(SRV, Addresses)]) -> Vec<Resolved> {
    let mut by_priority: BTreeMap<u16, Vec<&(SRV, Addresses)>> = BTreeMap::new();
    for target in targets.iter().filter(|(_, addresses)| !addresses.all.is_empty()) {
        by_priority.entry(target.0.priority).or_default().push(target);
    }
    let (mut endpoints, mut taken) = (Vec::new(), BTreeSet::new());
    // The same machine by an address of either family is one endpoint.
    let machine = |it: &Resolved| (it.address.ip().to_canonical(), it.address.port());
    let mut priority = 0;
    for targets in by_priority.into_values() {
        let mut of_priority = weigh(&targets);
        of_priority.retain(|endpoint| !taken.contains(&machine(endpoint)));
        of_priority.sort_unstable_by(|a, b| {
            (machine(a), a.address, &a.host).cmp(&(machine(b), b.address, &b.host))
        });
        of_priority.dedup_by(|next, first| {
            let is_same = machine(next) == machine(first);
            if is_same {
                first.weight = first.weight.saturating_add(next.weight.get());
            }
            is_same
        });
        if of_priority.is_empty() {
            continue;
        }
        taken.extend(of_priority.iter().map(machine));
        let with_priority = of_priority.into_iter().map(|it| Resolved { priority, ..it });
        endpoints.extend(with_priority);
        priority = priority.saturating_add(1);
    }
    endpoints
}

async fn service_records(asking: &Asking, host: &str) -> Result<Records, Failure> {
    let mut records = Records::default();
    for name in asking.candidates(host) {
        let next = asking.servers.look_up(&name, RecordType::SRV).await?;
        records.ttl = least(records.ttl, next.ttl);
        if !next.data.is_empty() {
            return Ok(next);
        }
        if records.absence != Some(Absence::NoRecords) {
            records.absence = next.absence;
        }
    }
    Ok(records)
}

/// The addresses of targets, and why those of some are not known. These keep their former ones.
async fn targets(
    system: &Arc<System>,
    family: DnsFamily,
    records: Vec<SRV>,
    former: &[Resolved],
) -> (Vec<(SRV, Addresses)>, Option<Failure>) {
    let former: Arc<[Resolved]> = former.into();
    let (mut found, mut failure) = (Vec::new(), None);
    let mut left = records.into_iter();
    let mut asked = JoinSet::new();
    loop {
        while asked.len() < TARGETS_AT_ONCE {
            let Some(record) = left.next() else { break };
            let (system, former) = (Arc::clone(system), Arc::clone(&former));
            asked.spawn(async move {
                let host = record.target.to_ascii().to_ascii_lowercase();
                let plain = host.strip_suffix('.').unwrap_or(&host);
                let of_target = former
                    .iter()
                    .filter(|it| &*it.host == plain && it.address.port() == record.port);
                let of_target: Vec<Resolved> = of_target.cloned().collect();
                let result = addresses(&system, &host, family, &of_target).await;
                (record, of_target, result)
            });
        }
        match asked.join_next().await {
            None => return (found, failure),
            Some(Ok((record, _, Ok(mut addresses)))) => {
                failure = failure.or_else(|| addresses.failure.take());
                found.push((record, addresses));
            }
            Some(Ok((record, former, Err(reason)))) => {
                failure = Some(reason);
                let all = former.iter().map(|it| it.address.ip()).collect();
                found.push((record, Addresses { all, ..Addresses::default() }));
            }
            // It panicked, which was reported.
            Some(Err(_)) => {}
        }
    }
}

/// The endpoints of targets that have addresses. Those of a target share its weight; a weight of 0 is the smallest there is.
fn weigh(targets: &[&(SRV, Addresses)]) -> Vec<Resolved> {
    let parts: Vec<(f64, &SRV, &[IpAddr])> = targets
        .iter()
        .map(|(record, addresses)| {
            let count = u32::try_from(addresses.all.len()).unwrap_or(u32::MAX);
            let weight = f64::from(record.weight.max(1));
            (weight / f64::from(count), record, addresses.all.as_slice())
        })
        .collect();
    let is_whole = parts.iter().all(|(weight, ..)| weight.fract() == 0.0);
    let largest = parts.iter().map(|(weight, ..)| *weight).fold(1.0, f64::max);
    let scale = if is_whole { 1.0 } else { f64::from(u16::MAX) / largest };
    let endpoints = parts.into_iter().flat_map(|(weight, record, addresses)| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 1 to 65,535: weights are, and the largest is scaled to that"
        )]
        let weight = NonZeroU16::new((weight * scale).round() as u16).unwrap_or(NonZeroU16::MIN);
        let host = record.target.to_ascii().to_ascii_lowercase();
        let host: Arc<str> = host.strip_suffix('.').unwrap_or(&host).into();
        addresses.iter().map(move |ip| Resolved {
            address: SocketAddr::new(*ip, record.port),
            weight,
            priority: 0,
            host: Arc::clone(&host),
        })
    });
    endpoints.collect()
}
