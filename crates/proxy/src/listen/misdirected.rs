//! Hop 2: whether a request belongs to another chain than its connection.
//!
//! [`ListenerChains::choose`](config::chains::ListenerChains::choose) says which chain a connection meets. One that
//! clients share for several hosts, as browsers do, may bring requests for a host whose own
//! connections meet another.

use config::chains::{ConnectionFacts, Criterion, Fit};
use config::snapshot::{ChainId, ChainMatch, Listener, ListenerChain};

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
    facts: &ConnectionFacts<'_>,
) -> bool {
    let Some(names) = &listener.chain_names else { return false };
    if host.is_empty() {
        // HTTP/1.0 has no more than the connection to say whom it asks.
        return false;
    }
    let chains = &listener.chains;
    let met = met.and_then(|id| chains.find(id)).map(|(place, _)| place);
    let policy = names.policy(met);
    let reach = Reach::of(listener, met, facts);
    for group in names.groups(server_name_of(host)) {
        let in_reach = |(_, chain): &(usize, &ListenerChain<F>)| reach.holds(chain, facts);
        let mut best = None;
        for (place, chain) in group.chains(chains).filter(in_reach) {
            let is_met = met == Some(place);
            // Of those that fit equally well, the first; the connection's own before others.
            let rank = (fits_of(&chain.matches, is_met, facts), is_met);
            if best.is_none_or(|(former, _)| rank > former) {
                best = Some((rank, place));
            }
        }
        match best {
            Some(((fits, _), place)) if fits.iter().all(Option::is_some) => {
                return names.policy(Some(place)) != policy;
            }
            // As for a connection: those that are named leave nothing to the others. A host
            // whose own chains do not match is not served by others.
            Some(_) if group.is_named => return true,
            Some(_) | None => {}
        }
    }
    names.policy(None).is_some_and(|default| Some(default) != policy)
}

/// What chains are compared by that a connection can reach and that a name leads to.
const BEHIND_NAMES: [Criterion; 6] = {
    let [direct, source_type, source, source_port] = Criterion::OF_SOURCE;
    [Criterion::Protocol, Criterion::Alpn, direct, source_type, source, source_port]
};

/// How well a chain fits by each of [`BEHIND_NAMES`]; none from the first on that it does not match by. There is no way back: of
/// several, the greatest is what a connection would come to, even if that does not match in the end.
fn fits_of(
    matches: &ChainMatch,
    is_met: bool,
    facts: &ConnectionFacts<'_>,
) -> [Fit; BEHIND_NAMES.len()] {
    let mut fits = [None; BEHIND_NAMES.len()];
    for (fit, criterion) in fits.iter_mut().zip(BEHIND_NAMES) {
        *fit = match criterion {
            // The client asked for what its own chain wants, whatever was agreed upon.
            Criterion::Alpn if is_met && !matches.alpn.is_empty() => Some(u32::MAX),
            criterion => criterion.fit(matches, facts),
        };
        if fit.is_none() {
            break;
        }
    }
    fits
}

/// What says which chains a connection can reach, whatever its name.
const ADDRESSES: [Criterion; 2] = [Criterion::Port, Criterion::Destination];

/// How well chains that a connection can reach fit where it was going, whatever its name.
struct Reach {
    port: Fit,
    destination: Fit,
}

impl Reach {
    fn of<F>(listener: &Listener<F>, met: Option<usize>, facts: &ConnectionFacts<'_>) -> Self {
        let asks = listener.chain_names.as_ref().is_some_and(|names| names.asks_addresses());
        if !asks {
            return Self { port: Some(0), destination: Some(0) };
        }
        if let Some(chain) = met.and_then(|place| listener.chains.get(place)) {
            // It was among those that fit best.
            let matches = &chain.matches;
            let [port, destination] = ADDRESSES.map(|criterion| criterion.fit(matches, facts));
            return Self { port, destination };
        }
        let all = || listener.chains.iter().map(|chain| &chain.matches);
        let [port, destination] = ADDRESSES;
        let best_port = all().filter_map(|matches| port.fit(matches, facts)).max();
        let left = all().filter(|matches| port.fit(matches, facts) == best_port);
        let best = left.filter_map(|matches| destination.fit(matches, facts)).max();
        Self { port: best_port, destination: best }
    }

    fn holds<F>(&self, chain: &ListenerChain<F>, facts: &ConnectionFacts<'_>) -> bool {
        let asked = [self.port, self.destination];
        let fits = ADDRESSES.map(|criterion| criterion.fit(&chain.matches, facts));
        asked.iter().all(Option::is_some) && fits == asked
    }
}

/// What a client that wants this host asks for: no name if it is an address (RFC 6066, section 3).
fn server_name_of(host: &[u8]) -> Option<&[u8]> {
    let host = host.strip_suffix(b".").unwrap_or(host);
    let text = std::str::from_utf8(host).ok()?;
    let is_address = host.first() == Some(&b'[') || text.parse::<std::net::Ipv4Addr>().is_ok();
    (!is_address && !host.is_empty()).then_some(host)
}
