//! Hop 2: which chain of its listener a connection meets.
//!
//! The most specific wins, as in Envoy: criteria are gone through in a fixed order, and of the
//! chains that are left only those that are best by one are compared by the next. There is no way
//! back, so that what wins can be told by looking at one criterion after the other.

use std::net::{IpAddr, SocketAddr};

use config::cidr::Cidr;
use config::hosts::Host;
use config::snapshot::{Chain, ChainId, ChainMatch, Detected, Listener};

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'f> {
    /// Where it comes from, unless that is a unix socket.
    pub source: Option<IpAddr>,
    /// Where it was going.
    pub destination: Option<SocketAddr>,
    /// What its first bytes are.
    pub protocol: Option<Detected>,
    /// The name that a TLS client asks for, in lower case.
    pub server_name: Option<&'f str>,
    /// The protocols that a TLS client offers.
    pub alpn: &'f [&'f [u8]],
}

/// How well a chain fits by one criterion: `None` if not at all, 0 if it does not ask.
type Fit = Option<u32>;

const CRITERIA: [fn(&ChainMatch, &Facts<'_>) -> Fit; 6] =
    [port, destination, server_name, protocol, alpn, source];

/// The chain for a connection, if one matches.
#[must_use]
pub fn choose<F>(chains: &[Chain<F>], facts: &Facts<'_>) -> Option<ChainId> {
    let mut left: Vec<&Chain<F>> = chains.iter().collect();
    for criterion in CRITERIA {
        let best = left.iter().filter_map(|chain| criterion(&chain.matches, facts)).max()?;
        left.retain(|chain| criterion(&chain.matches, facts) == Some(best));
    }
    left.first().map(|chain| chain.id)
}

/// Whether a request for `host` (lower case, no port) belongs to another chain than that of the TLS
/// connection it came over, so that it has to come over a connection of its own (RFC 9110,
/// section 15.5.20): a client that asked for this host by name would have met another chain, which
/// treats requests differently. `met` is the connection's chain; of `facts`, the server name
/// does not count, and ALPN is the protocol that was agreed upon.
#[must_use]
pub fn is_misdirected<F>(
    listener: &Listener<F>,
    met: Option<ChainId>,
    host: &[u8],
    facts: &Facts<'_>,
) -> bool {
    let Some(names) = &listener.chain_names else { return false };
    if host.is_empty() {
        // HTTP/1.0 has no more than the connection to say whom it asks.
        return false;
    }
    let chains = &listener.chains;
    let met = met.and_then(|id| chains.iter().position(|chain| chain.id == id));
    let policy = names.policy(met);
    let reach = Reach::of(listener, met, facts);
    for group in names.groups(server_name_of(host)) {
        let in_reach = |(_, chain): &(usize, &Chain<F>)| reach.holds(chain, facts);
        let mut best = None;
        let mut is_empty = true;
        for (place, chain) in group.chains(chains).filter(in_reach) {
            is_empty = false;
            // The client asked for what its own chain wants, whatever was agreed upon.
            let is_met = met == Some(place);
            let matches = &chain.matches;
            let alpn = if is_met {
                Some(u32::from(!matches.alpn.is_empty()))
            } else {
                alpn(matches, facts)
            };
            let fits = protocol(matches, facts).zip(alpn).zip(source(matches, facts));
            // Of those that fit equally well, the first; the connection's own before others.
            let rank = fits.map(|fits| (fits, is_met));
            if rank.is_some() && best.is_none_or(|(former, _)| rank > former) {
                best = Some((rank, place));
            }
        }
        match best {
            Some((_, place)) => return names.policy(Some(place)) != policy,
            // As for a connection: those that are named leave nothing to the others. A host
            // whose own chains do not match is not served by others.
            None if !is_empty && group.is_named => return true,
            None => {}
        }
    }
    names.policy(None).is_some_and(|default| Some(default) != policy)
}

/// How well chains that a connection can reach fit where it was going, whatever its name.
struct Reach {
    port: Fit,
    destination: Fit,
}

impl Reach {
    fn of<F>(listener: &Listener<F>, met: Option<usize>, facts: &Facts<'_>) -> Self {
        let asks = listener.chain_names.as_ref().is_some_and(|names| names.asks_addresses());
        if !asks {
            return Self { port: Some(0), destination: Some(0) };
        }
        if let Some(chain) = met.and_then(|place| listener.chains.get(place)) {
            // It was among those that fit best.
            let matches = &chain.matches;
            return Self { port: port(matches, facts), destination: destination(matches, facts) };
        }
        let all = || listener.chains.iter().map(|chain| &chain.matches);
        let best_port = all().filter_map(|matches| port(matches, facts)).max();
        let left = all().filter(|matches| port(matches, facts) == best_port);
        let best = left.filter_map(|matches| destination(matches, facts)).max();
        Self { port: best_port, destination: best }
    }

    fn holds<F>(&self, chain: &Chain<F>, facts: &Facts<'_>) -> bool {
        let Self { port: asked_port, destination: asked } = self;
        asked.is_some()
            && asked_port.is_some()
            && port(&chain.matches, facts) == *asked_port
            && destination(&chain.matches, facts) == *asked
    }
}

/// What a client that wants this host asks for: no name if it is an address (RFC 6066, section 3).
fn server_name_of(host: &[u8]) -> Option<&[u8]> {
    let host = host.strip_suffix(b".").unwrap_or(host);
    let text = std::str::from_utf8(host).ok()?;
    let is_address = host.first() == Some(&b'[') || text.parse::<std::net::Ipv4Addr>().is_ok();
    (!is_address && !host.is_empty()).then_some(host)
}

fn port(asked: &ChainMatch, facts: &Facts<'_>) -> Fit {
    let port = facts.destination.map(|destination| destination.port());
    fits(&asked.destination_ports, |asked| Some(asked.get()) == port)
}

fn destination(asked: &ChainMatch, facts: &Facts<'_>) -> Fit {
    in_ranges(&asked.destinations, facts.destination.map(|destination| destination.ip()))
}

fn server_name(asked: &ChainMatch, facts: &Facts<'_>) -> Fit {
    if asked.server_names.is_empty() {
        return Some(0);
    }
    let name = facts.server_name?;
    let fit = |host: &Host| match host {
        Host::Exact(asked) => (**asked == *name).then_some(u32::MAX),
        Host::Suffix(suffix) => {
            let label = name.strip_suffix(&**suffix)?.strip_suffix('.')?;
            // The longer the more specific.
            (!label.is_empty()).then(|| u32::try_from(suffix.len()).unwrap_or(u32::MAX - 1))
        }
        Host::Any => None,
    };
    asked.server_names.iter().filter_map(fit).max()
}

fn protocol(asked: &ChainMatch, facts: &Facts<'_>) -> Fit {
    fits(&asked.protocols, |asked| Some(*asked) == facts.protocol)
}

fn alpn(asked: &ChainMatch, facts: &Facts<'_>) -> Fit {
    fits(&asked.alpn, |asked| facts.alpn.contains(&&**asked))
}

fn source(asked: &ChainMatch, facts: &Facts<'_>) -> Fit {
    in_ranges(&asked.sources, facts.source)
}

fn fits<T>(asked: &[T], is_met: impl Fn(&T) -> bool) -> Fit {
    if asked.is_empty() { Some(0) } else { asked.iter().any(is_met).then_some(1) }
}

fn in_ranges(asked: &[Cidr], ip: Option<IpAddr>) -> Fit {
    if asked.is_empty() {
        return Some(0);
    }
    let ip = ip?;
    let holding = asked.iter().filter(|range| range.contains(ip));
    // Even a range of everything asks for more than none does.
    holding.map(|range| u32::from(range.prefix_len()) + 1).max()
}

#[cfg(test)]
mod tests {
    use config::FilterKinds;

    use super::*;

    /// Chains of these matches, named by their places.
    fn chosen(matches: &[&str], facts: &Facts<'_>) -> Option<usize> {
        let chains = matches.iter().enumerate();
        let chains: String = chains
            .map(|(place, asked)| {
                format!("{{ name: c{place}, match: {{ {asked} }}, cluster: a }},")
            })
            .collect();
        let text = format!(
            "listeners: [{{ name: l, address: 127.0.0.1:1, chains: [{chains}] }}]\n\
             clusters: [{{ name: a, endpoints: [] }}]\n"
        );
        // These chains take TCP, so they have no routes.
        let text = text.replace("cluster: a }", "protocol: tcp, cluster: a }");
        let mut loader = config::Loader::<()>::new(FilterKinds::new()).unwrap();
        let snapshot = loader.load("test.yaml", &text).unwrap();
        let chains = &snapshot.listeners[0].chains;
        let id = choose(chains, facts)?;
        chains.iter().position(|chain| chain.id == id)
    }

    const NOTHING: Facts<'_> =
        Facts { source: None, destination: None, protocol: None, server_name: None, alpn: &[] };

    #[test]
    fn the_most_specific_server_name_wins() {
        let matches = [
            "server_names: ['*.example']",
            "server_names: ['*.shop.example']",
            "server_names: [a.shop.example]",
            "protocols: [tls]",
        ];
        for (name, place) in [
            (Some("a.shop.example"), Some(2)),
            (Some("b.shop.example"), Some(1)),
            (Some("x.b.shop.example"), Some(1)),
            (Some("shop.example"), Some(0)),
            (Some("example"), Some(3)),
            (None, Some(3)),
        ] {
            let facts = Facts { server_name: name, protocol: Some(Detected::Tls), ..NOTHING };
            assert_eq!(chosen(&matches, &facts), place, "{name:?}");
        }
        let facts = Facts { protocol: Some(Detected::Other), ..NOTHING };
        assert_eq!(chosen(&matches, &facts), None);
    }

    #[test]
    fn an_earlier_criterion_outweighs_all_later_ones() {
        let matches = [
            "destination_ports: [443]",
            "destinations: [10.0.0.0/8], server_names: [a.example]",
            "destinations: [10.1.0.0/16]",
            "server_names: [a.example], alpn: [h2], sources: [192.0.2.0/24]",
            "server_names: [a.example], alpn: [h2]",
        ];
        let h2: [&[u8]; 1] = [b"h2"];
        for (destination, source, place) in [
            ("10.1.0.1:443", "192.0.2.1", 0),
            ("10.1.0.1:80", "192.0.2.1", 2),
            ("10.2.0.1:80", "192.0.2.1", 1),
            ("11.0.0.1:80", "192.0.2.1", 3),
            ("11.0.0.1:80", "198.51.100.1", 4),
        ] {
            let facts = Facts {
                source: Some(source.parse().unwrap()),
                destination: Some(destination.parse().unwrap()),
                server_name: Some("a.example"),
                alpn: &h2,
                ..NOTHING
            };
            assert_eq!(chosen(&matches, &facts), Some(place), "{destination} {source}");
        }
    }
}
