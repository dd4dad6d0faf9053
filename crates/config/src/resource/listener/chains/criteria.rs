//! What chains ask of a connection, one criterion at a time.

use std::net::{IpAddr, SocketAddr};

use crate::cidr::Cidr;
use crate::hosts::Host;
use crate::snapshot::{ChainMatch, Detected, SourceType};

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionFacts<'f> {
    /// Where it comes from, unless that is a unix socket.
    pub source: Option<IpAddr>,
    /// The port of that.
    pub source_port: Option<u16>,
    /// Where the connection itself comes from, before a PROXY header named another address.
    pub direct_source: Option<IpAddr>,
    /// Where it was going.
    pub destination: Option<SocketAddr>,
    /// What its first bytes are.
    pub protocol: Option<Detected>,
    /// The name that a TLS client asks for, in lower case.
    pub server_name: Option<&'f str>,
    /// The protocols that a TLS client offers, in its order of preference.
    pub alpn: &'f [&'f [u8]],
}

impl ConnectionFacts<'_> {
    /// Whether a connection from one address to another comes from this machine.
    #[must_use]
    pub fn is_local(source: IpAddr, destination: Option<IpAddr>) -> bool {
        source.is_loopback() || Some(source) == destination
    }

    /// Whether the connection comes from this machine, as in Envoy; `None` if it is not known where an IP connection comes from.
    pub(super) fn source_type(&self) -> Option<SourceType> {
        let destination = self.destination.map(|destination| destination.ip());
        let is_local = match self.source {
            Some(source) => Self::is_local(source, destination),
            None if destination.is_none() => true,
            None => return None,
        };
        Some(if is_local { SourceType::Local } else { SourceType::External })
    }
}

/// How well a chain fits by one criterion: `None` if not at all, 0 if it does not ask.
pub type Fit = Option<u32>;

/// One of the questions by which chains are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criterion {
    /// The port that the connection was going to.
    Port,
    /// The address that it was going to: the longer the range's prefix, the better.
    Destination,
    /// The name that a TLS client asks for: a whole name before a suffix, a long suffix before a
    /// short one.
    ServerName,
    /// What the first bytes are.
    Protocol,
    /// The protocols that a TLS client offers: the earlier in its list, the better.
    Alpn,
    /// Where the connection itself comes from: the longer the range's prefix, the better.
    DirectSource,
    /// Whether it comes from this machine.
    SourceType,
    /// Where the connection comes from: the longer the range's prefix, the better.
    Source,
    /// The port that it comes from.
    SourcePort,
}

impl Criterion {
    /// All of them, in the order in which chains are compared.
    pub const ALL: [Self; 9] = [
        Self::Port,
        Self::Destination,
        Self::ServerName,
        Self::Protocol,
        Self::Alpn,
        Self::DirectSource,
        Self::SourceType,
        Self::Source,
        Self::SourcePort,
    ];

    /// Those that ask where a connection comes from, in the order in which chains are compared.
    pub const OF_SOURCE: [Self; 4] =
        [Self::DirectSource, Self::SourceType, Self::Source, Self::SourcePort];

    /// Whether a TLS connection that met a chain, or none, may meet another for what its client offered, of which only the agreed
    /// protocol is known any more.
    #[must_use]
    pub fn may_be_offered(
        asked: &ChainMatch,
        met: Option<&ChainMatch>,
        facts: &ConnectionFacts<'_>,
    ) -> bool {
        let fits = |it: &Self| *it == Self::Alpn || it.fit(asked, facts).is_some();
        // What fits worse by a criterion before ALPN does not win.
        let before = [Self::Port, Self::Destination, Self::ServerName, Self::Protocol];
        let rank = |asked: &ChainMatch| before.map(|criterion| criterion.fit(asked, facts));
        facts.protocol == Some(Detected::Tls)
            && !asked.alpn.is_empty()
            && Self::ALL.iter().all(fits)
            && met.is_none_or(|met| rank(asked) >= rank(met))
    }

    /// How well a connection fits what a chain asks for by this criterion.
    #[must_use]
    pub fn fit(self, asked: &ChainMatch, facts: &ConnectionFacts<'_>) -> Fit {
        let destination = facts.destination;
        match self {
            Self::Port => {
                let port = destination.map(|destination| destination.port());
                fit_any(&asked.destination_ports, |asked| Some(asked.get()) == port)
            }
            Self::Destination => {
                fit_ranges(&asked.destinations, destination.map(|destination| destination.ip()))
            }
            Self::ServerName => fit_names(&asked.server_names, facts.server_name),
            Self::Protocol => fit_any(&asked.protocols, |asked| Some(*asked) == facts.protocol),
            Self::Alpn => fit_alpn(&asked.alpn, facts.alpn),
            Self::DirectSource => fit_ranges(&asked.direct_sources, facts.direct_source),
            Self::SourceType => {
                fit_any(source_types(asked), |asked| Some(*asked) == facts.source_type())
            }
            Self::Source => fit_ranges(&asked.sources, facts.source),
            Self::SourcePort => {
                fit_any(&asked.source_ports, |asked| Some(asked.get()) == facts.source_port)
            }
        }
    }

    /// How many alternatives a chain names by this criterion; 0 if it does not ask.
    #[must_use]
    pub const fn alternatives(self, asked: &ChainMatch) -> usize {
        match self {
            Self::Port => asked.destination_ports.len(),
            Self::Destination => asked.destinations.len(),
            Self::ServerName => asked.server_names.len(),
            Self::Protocol => asked.protocols.len(),
            Self::Alpn => asked.alpn.len(),
            Self::DirectSource => asked.direct_sources.len(),
            Self::SourceType => source_types(asked).len(),
            Self::Source => asked.sources.len(),
            Self::SourcePort => asked.source_ports.len(),
        }
    }
}

/// The type of source that a chain asks for, if it does.
pub(super) const fn source_types(asked: &ChainMatch) -> &[SourceType] {
    match &asked.source_type {
        SourceType::Any => &[],
        asked => std::slice::from_ref(asked),
    }
}

fn fit_any<T>(asked: &[T], is_met: impl Fn(&T) -> bool) -> Fit {
    if asked.is_empty() { Some(0) } else { asked.iter().any(is_met).then_some(1) }
}

fn fit_ranges(asked: &[Cidr], ip: Option<IpAddr>) -> Fit {
    if asked.is_empty() {
        return Some(0);
    }
    let ip = ip?;
    let holding = asked.iter().filter(|range| range.contains(ip));
    // Even a range of everything asks for more than none does.
    holding.map(|range| u32::from(range.prefix_len()) + 1).max()
}

/// As in Envoy, the first protocol that the client offers and that a chain names decides.
fn fit_alpn(asked: &[Box<[u8]>], offered: &[&[u8]]) -> Fit {
    if asked.is_empty() {
        return Some(0);
    }
    let is_asked = |name: &&[u8]| asked.iter().any(|asked| **asked == **name);
    let place = offered.iter().position(is_asked)?;
    // An offer has at most 64 KiB.
    Some(u32::MAX.saturating_sub(u32::try_from(place).unwrap_or(u32::MAX)).max(1))
}

fn fit_names(asked: &[Host], name: Option<&str>) -> Fit {
    if asked.is_empty() {
        return Some(0);
    }
    let name = name?;
    let fit = |host: &Host| match host {
        Host::Exact(asked) => (**asked == *name).then_some(u32::MAX),
        Host::Suffix(suffix) => {
            let label = name.strip_suffix(&**suffix)?.strip_suffix('.')?;
            // The longer the more specific.
            (!label.is_empty()).then(|| u32::try_from(suffix.len()).unwrap_or(u32::MAX - 1))
        }
        Host::Prefix(_) | Host::Any => None,
    };
    asked.iter().filter_map(fit).max()
}
