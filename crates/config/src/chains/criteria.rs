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
    /// The protocols that a TLS client offers.
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
    /// The protocols that a TLS client offers.
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

    /// Those behind ALPN, the only criterion of which a connection has several values that are equally good.
    pub const BEHIND_ALPN: [Self; 4] =
        [Self::DirectSource, Self::SourceType, Self::Source, Self::SourcePort];

    /// Its place among [`Criterion::BEHIND_ALPN`].
    pub(super) fn place_behind_alpn(self) -> Option<usize> {
        Self::BEHIND_ALPN.iter().position(|criterion| *criterion == self)
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
            Self::Alpn => fit_any(&asked.alpn, |asked| facts.alpn.contains(&&**asked)),
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
    holding.map(|range| fit_of_prefix(range.prefix_len())).max()
}

/// How well an address fits a range that it is in.
pub(super) const fn fit_of_prefix(prefix_len: u8) -> u32 {
    prefix_len as u32 + 1
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
