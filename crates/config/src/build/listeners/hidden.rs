//! Chains that others hide. Of several chains the one that fits best by an early criterion is chosen, and there is no way back: a
//! connection that does not match it by a later one meets none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::chains::{ConnectionFacts, Criterion, ListenerChains};
use crate::cidr::Cidr;
use crate::findings::{Findings, Problem};
use crate::hosts::Host;
use crate::snapshot::{ChainMatch, Detected};
use crate::text::tree::Site;

/// Chains of a listener that are compared with each other: of more there would be too many pairs.
const CHAINS_MAX: usize = 64;

/// Where a connection may come from, or go to, that a chain does not name.
const ELSEWHERE: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)),
    IpAddr::V4(Ipv4Addr::new(10, 255, 255, 254)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 255, 254)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)),
];

/// A connection that may come.
#[derive(Clone, Debug)]
struct Sample {
    port: u16,
    destination: IpAddr,
    server_name: Option<String>,
    protocol: Option<Detected>,
    alpn: Option<Box<[u8]>>,
    source: IpAddr,
}

/// Warns of chains that others hide. `site` is that of the chains.
pub(super) fn warn<F>(chains: &ListenerChains<F>, site: &Site<'_>, findings: &mut Findings<'_>) {
    if chains.len() > CHAINS_MAX {
        return;
    }
    for (hidden, site) in chains.iter().zip(site.items()) {
        let found = chains.iter().find_map(|other| {
            let (early, late) = hides(&other.matches, &hidden.matches, chains)?;
            Some((&other.name, key(early), key(late)))
        });
        if let Some((other, early, late)) = found {
            let rule = format!(
                "connections that chain {other} names by `{early}` and not by `{late}` match no chain, although this one is for them, too"
            );
            let hint = format!(
                "give this chain `{early}` as well, or add a chain with the `{early}` of {other} alone"
            );
            site.key("match").warning(findings, Problem::new(rule, hint));
        }
    }
}

/// The criterion by which a chain is before another, and the one that it then does not match by, for some connection that the
/// other is for and that meets none.
fn hides<F>(
    other: &ChainMatch,
    hidden: &ChainMatch,
    chains: &ListenerChains<F>,
) -> Option<(Criterion, Criterion)> {
    let later = Criterion::ALL.into_iter().skip(1);
    later.filter(|late| asks(other, *late)).find_map(|late| {
        let sample = sample(other, hidden, late)?;
        let alpn: Vec<&[u8]> = sample.alpn.iter().map(|name| &**name).collect();
        let facts = ConnectionFacts {
            source: Some(sample.source),
            destination: Some(SocketAddr::new(sample.destination, sample.port)),
            protocol: sample.protocol,
            server_name: sample.server_name.as_deref(),
            alpn: &alpn,
        };
        let fit = |matches, criterion: Criterion| criterion.fit(matches, &facts);
        let is_for_it = Criterion::ALL.into_iter().all(|it| fit(hidden, it).is_some());
        let is_before = |it: &Criterion| fit(other, *it) > fit(hidden, *it);
        let early = Criterion::ALL.into_iter().take_while(|it| *it != late).find(is_before)?;
        let is_hidden = is_for_it && fit(other, late).is_none() && chains.choose(&facts).is_none();
        is_hidden.then_some((early, late))
    })
}

/// A connection that matches both where that can be, but one of them alone by this criterion.
fn sample(other: &ChainMatch, hidden: &ChainMatch, late: Criterion) -> Option<Sample> {
    let is_late = |criterion| criterion == late;
    let port = match (other.destination_ports.first(), hidden.destination_ports.first()) {
        (Some(port), _) | (None, Some(port)) => port.get(),
        (None, None) => 1,
    };
    let name = |hosts: &[Host]| {
        hosts.first().and_then(|host| match host {
            Host::Exact(name) => Some(name.to_string()),
            Host::Suffix(suffix) => Some(format!("x.{suffix}")),
            Host::Prefix(_) | Host::Any => None,
        })
    };
    let (names, names_hidden) = (name(&other.server_names), name(&hidden.server_names));
    let server_name = match is_late(Criterion::ServerName) {
        true => names_hidden,
        false => names.or(names_hidden),
    };
    let alpn = match is_late(Criterion::Alpn) {
        true => hidden.alpn.iter().find(|name| !other.alpn.contains(name)).cloned(),
        false => other.alpn.first().or_else(|| hidden.alpn.first()).cloned(),
    };
    let is_tls = server_name.is_some() || alpn.is_some();
    let protocol = match is_late(Criterion::Protocol) {
        true => {
            let all = [Detected::Tls, Detected::Http1, Detected::Http2, Detected::Other];
            let mut all = all.into_iter().filter(|it| !is_tls || *it == Detected::Tls);
            let is_free = |it: &Detected| {
                !other.protocols.contains(it)
                    && (hidden.protocols.is_empty() || hidden.protocols.contains(it))
            };
            Some(all.find(is_free)?)
        }
        false => {
            let asked = other.protocols.first().or_else(|| hidden.protocols.first());
            asked.copied().or_else(|| is_tls.then_some(Detected::Tls))
        }
    };
    let destination =
        address(&other.destinations, &hidden.destinations, is_late(Criterion::Destination))?;
    let source = address(&other.sources, &hidden.sources, is_late(Criterion::Source))?;
    Some(Sample { port, destination, server_name, protocol, alpn, source })
}

/// An address in ranges of both, or in those of the hidden chain alone.
fn address(other: &[Cidr], hidden: &[Cidr], is_late: bool) -> Option<IpAddr> {
    let in_other = |ip: &IpAddr| other.iter().any(|range| range.contains(*ip));
    let in_hidden = |ip: &IpAddr| hidden.is_empty() || hidden.iter().any(|it| it.contains(*ip));
    let named = other.iter().chain(hidden).map(Cidr::network);
    let mut all = named.chain(ELSEWHERE);
    all.find(|ip| {
        in_hidden(ip) && (in_other(ip) || is_late || other.is_empty()) && !(is_late && in_other(ip))
    })
}

fn asks(matches: &ChainMatch, criterion: Criterion) -> bool {
    match criterion {
        Criterion::Port => !matches.destination_ports.is_empty(),
        Criterion::Destination => !matches.destinations.is_empty(),
        Criterion::ServerName => !matches.server_names.is_empty(),
        Criterion::Protocol => !matches.protocols.is_empty(),
        Criterion::Alpn => !matches.alpn.is_empty(),
        Criterion::Source => !matches.sources.is_empty(),
    }
}

const fn key(criterion: Criterion) -> &'static str {
    match criterion {
        Criterion::Port => "destination_ports",
        Criterion::Destination => "destinations",
        Criterion::ServerName => "server_names",
        Criterion::Protocol => "protocols",
        Criterion::Alpn => "alpn",
        Criterion::Source => "sources",
    }
}
