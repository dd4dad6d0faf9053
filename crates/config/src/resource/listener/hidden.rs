//! Chains that others hide. Of several chains the one that fits best by an early criterion is chosen, and there is no way back: a
//! connection that does not match it by a later one meets none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;

use crate::cidr::Cidr;
use crate::findings::{Findings, Problem};
use crate::hosts::Host;
use crate::resource::listener::chains::{ConnectionFacts, Criterion, ListenerChains};
use crate::snapshot::{ChainMatch, Detected, Listener, ListenerChain};
use crate::text::tree::Site;

/// Chains of a listener that are compared with each other: of more there would be too many pairs.
const CHAINS_MAX: usize = 64;

/// Ranges and source ports of all chains of a listener to be compared: each range is looked for in all of two chains.
const RANGES_MAX: usize = 1024;

/// By these, an alternative that fits is searched for among all.
const SEARCHED: [Criterion; 4] =
    [Criterion::Destination, Criterion::DirectSource, Criterion::Source, Criterion::SourcePort];

/// Where a connection may come from, or go to, that a chain does not name.
const ELSEWHERE: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)),
    IpAddr::V4(Ipv4Addr::new(10, 255, 255, 254)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 255, 254)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)),
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// A port that a connection may come from, if no chain names one.
const SOURCE_PORT: u16 = 49152;

/// A connection that may come.
#[derive(Clone, Debug)]
struct Sample {
    port: u16,
    destination: IpAddr,
    server_name: Option<String>,
    protocol: Option<Detected>,
    alpn: Vec<Box<[u8]>>,
    direct_source: IpAddr,
    source: IpAddr,
    source_port: u16,
}

/// Warns of chains of a listener that others hide. `site` is that of the chains.
pub(crate) fn warn<F>(listener: &Listener<F>, site: &Site<'_>, findings: &mut Findings<'_>) {
    let chains = &listener.chains;
    let is_proxied = listener.http.proxy_protocol.is_some();
    let ranges = |chain: &ListenerChain<F>| {
        let each = SEARCHED.into_iter().map(|it| it.alternatives(&chain.matches));
        each.sum::<usize>()
    };
    if chains.len() > CHAINS_MAX || chains.iter().map(ranges).sum::<usize>() > RANGES_MAX {
        return;
    }
    for (hidden, site) in chains.iter().zip(site.items()) {
        let found = chains.iter().find_map(|other| {
            let (early, late) = hides(&other.matches, &hidden.matches, chains, is_proxied)?;
            Some((&other.name, early, late))
        });
        if let Some((other, early, late)) = found {
            let is_named = early.alternatives(&hidden.matches) > 0;
            let (early, late) = (key(early), key(late));
            let rule = format!(
                "connections that chain {other} names by `{early}` and not by `{late}` match no chain, although this one is for them, too"
            );
            let another = format!("add a chain with the `{early}` of {other} alone");
            let hint = match is_named {
                true => another,
                false => format!("give this chain `{early}` as well, or {another}"),
            };
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
    is_proxied: bool,
) -> Option<(Criterion, Criterion)> {
    let later = Criterion::ALL.into_iter().skip(1);
    later.filter(|late| late.alternatives(other) > 0).find_map(|late| {
        let sample = sample(other, hidden, late, is_proxied)?;
        let alpn: Vec<&[u8]> = sample.alpn.iter().map(|name| &**name).collect();
        let facts = ConnectionFacts {
            source: Some(sample.source),
            source_port: Some(sample.source_port),
            direct_source: Some(sample.direct_source),
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

/// A connection that matches both where that can be, but one of them alone by this criterion. Only with PROXY headers
/// (`is_proxied`) it comes from two addresses.
fn sample(
    other: &ChainMatch,
    hidden: &ChainMatch,
    late: Criterion,
    is_proxied: bool,
) -> Option<Sample> {
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
    let alpn: Vec<_> = match is_late(Criterion::Alpn) {
        true => hidden.alpn.iter().find(|name| !other.alpn.contains(name)).into_iter().collect(),
        // What comes first decides.
        false => other.alpn.first().into_iter().chain(hidden.alpn.first()).collect(),
    };
    let alpn: Vec<_> = alpn.into_iter().cloned().collect();
    let is_tls = server_name.is_some() || !alpn.is_empty();
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
    let ranges = |of: fn(&ChainMatch) -> &[Cidr], criterion| Asked {
        other: of(other),
        hidden: of(hidden),
        is_late: is_late(criterion),
    };
    let destination = ranges(|it| &it.destinations, Criterion::Destination).address(|_| true)?;
    let direct_sources = ranges(|it| &it.direct_sources, Criterion::DirectSource);
    let sources = ranges(|it| &it.sources, Criterion::Source);
    let is_of_type = |source: IpAddr| {
        let is_local = ConnectionFacts::is_local(source, Some(destination));
        let [of_other, of_hidden] = [other, hidden].map(|asked| asked.source_type.holds(is_local));
        of_hidden && of_other != is_late(Criterion::SourceType)
    };
    let (direct_source, source) = if is_proxied {
        (direct_sources.address(|_| true)?, sources.address(is_of_type)?)
    } else {
        let is_direct = |ip| direct_sources.holds(ip) && is_of_type(ip);
        // Either may name the smaller ranges.
        let source = sources.address(is_direct);
        let source = source
            .or_else(|| direct_sources.address(|ip| sources.holds(ip) && is_of_type(ip)))
            .or_else(|| Some(destination).filter(|ip| sources.holds(*ip) && is_direct(*ip)))?;
        (source, source)
    };
    let source_port = source_port(other, hidden, is_late(Criterion::SourcePort))?;
    Some(Sample {
        port,
        destination,
        server_name,
        protocol,
        alpn,
        direct_source,
        source,
        source_port,
    })
}

/// Ranges that two chains ask for.
struct Asked<'c> {
    other: &'c [Cidr],
    hidden: &'c [Cidr],
    is_late: bool,
}

impl Asked<'_> {
    /// Whether an address is in ranges of both, or of the hidden chain alone where the criterion is the late one.
    fn holds(&self, ip: IpAddr) -> bool {
        let Self { other, hidden, is_late } = *self;
        let in_other = other.iter().any(|range| range.contains(ip));
        let in_hidden = hidden.is_empty() || hidden.iter().any(|it| it.contains(ip));
        in_hidden && (in_other || is_late || other.is_empty()) && !(is_late && in_other)
    }

    /// An address that they hold, and that this is true of.
    fn address(&self, is_fit: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let named = self.other.iter().chain(self.hidden).map(Cidr::network);
        let mut all = named.chain(ELSEWHERE);
        all.find(|ip| self.holds(*ip) && is_fit(*ip))
    }
}

/// A port that both chains name, or the hidden one alone where the criterion is the late one.
fn source_port(other: &ChainMatch, hidden: &ChainMatch, is_late: bool) -> Option<u16> {
    let (other, hidden) = (&other.source_ports, &hidden.source_ports);
    let is_fit = |port: &NonZeroU16| {
        let in_other = other.contains(port);
        let in_hidden = hidden.is_empty() || hidden.contains(port);
        in_hidden && (in_other || is_late || other.is_empty()) && !(is_late && in_other)
    };
    let any = (SOURCE_PORT..=u16::MAX).filter_map(NonZeroU16::new);
    let mut all = other.iter().chain(hidden).copied().chain(any);
    all.find(is_fit).map(NonZeroU16::get)
}

const fn key(criterion: Criterion) -> &'static str {
    match criterion {
        Criterion::Port => "destination_ports",
        Criterion::Destination => "destinations",
        Criterion::ServerName => "server_names",
        Criterion::Protocol => "protocols",
        Criterion::Alpn => "alpn",
        Criterion::DirectSource => "direct_sources",
        Criterion::SourceType => "source_type",
        Criterion::Source => "sources",
        Criterion::SourcePort => "source_ports",
    }
}
