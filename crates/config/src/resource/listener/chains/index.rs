//! The chain for a connection as a look-up.
//!
//! A tree with a level for each criterion that a chain asks about. A node stands for the chains
//! that are left when the criteria before it have been looked at. It leads from each value that one
//! of them names (a port, a range, a name) to those that name it, and from everything else to those
//! that do not ask:
//!
//! ```text
//! port   ┬ 443 ──► name   ┬ a.example ──► [0]
//!        │                └ *.example ──► [2]
//!        └ else ─► source ┬ 10.0.0.0/8 ─► [1]
//!                         └ else ───────► [3]
//! ```
//!
//! The best value that a connection has is the one way down, since there is no way back. Equal sets
//! of chains are one node, so that a chain that names many ports and many names costs their sum and
//! not their product. Where sets differ so much that sharing does not help, the index stops growing
//! ([`ENTRIES_PER_ALTERNATIVE_MAX`]), and chains are compared one by one, as those are of which few
//! are left.

use std::cmp::Reverse;
use std::hash::Hash;
use std::net::IpAddr;

use super::criteria::{ConnectionFacts, Criterion, source_types};
use crate::cidr::Cidr;
use crate::hosts::{Host, HostTable};
use crate::map::Map;
use crate::snapshot::{ChainMatch, Detected, SourceType};

/// Chains that are compared one by one because another look-up would cost as much.
const COMPARED_MAX: usize = 4;

/// Entries of an index for each chain and each alternative that a chain names. One that shares all
/// it can has at most one at each level.
const ENTRIES_PER_ALTERNATIVE_MAX: usize = 16;

/// Place of a node.
type NodeId = u32;

/// Where to begin and the nodes that follow.
#[derive(Debug)]
pub(super) struct ChainIndex {
    nodes: Vec<Node>,
    root: NodeId,
}

/// Chains that are left, as places in the list.
#[derive(Debug)]
enum Node {
    /// They are compared one by one, from this criterion on; the first criteria are equal among them.
    Compared(&'static [Criterion], Box<[u32]>),
    /// The value that a connection has says which are left.
    Split { by: Split, others: Option<NodeId> },
}

/// The values that chains name by one criterion, each with those that name it.
#[derive(Debug)]
enum Split {
    Port(Map<u16, NodeId>),
    Destination(Ranges),
    ServerName(HostTable<NodeId>),
    Protocol(Map<Detected, NodeId>),
    Alpn(Map<Box<[u8]>, NodeId>),
    DirectSource(Ranges),
    SourceType(Map<SourceType, NodeId>),
    Source(Ranges),
    SourcePort(Map<u16, NodeId>),
}

/// Ranges of addresses: one look-up for each length of a prefix.
#[derive(Debug)]
struct Ranges {
    by_range: Map<Cidr, NodeId>,
    /// Lengths that one of them has, the longest first.
    prefix_lens: Box<[u8]>,
}

impl ChainIndex {
    /// The index of chains that ask for this.
    pub(super) fn new(matches: &[&ChainMatch]) -> Self {
        Self::with_bounds(matches, COMPARED_MAX, ENTRIES_PER_ALTERNATIVE_MAX)
    }

    fn with_bounds(matches: &[&ChainMatch], compared_max: usize, entries_max: usize) -> Self {
        let named = |asked: &&ChainMatch| {
            let each = Criterion::ALL.iter().map(|criterion| criterion.alternatives(asked));
            each.sum::<usize>()
        };
        let alternatives = matches.iter().map(named).sum::<usize>() + matches.len();
        let mut builder = Builder {
            matches,
            compared_max,
            entries_left: alternatives.saturating_mul(entries_max),
            nodes: Vec::new(),
            known: Map::default(),
        };
        let all = (0u32..).take(matches.len()).collect();
        let root = builder.node(&Criterion::ALL, all);
        Self { nodes: builder.nodes, root }
    }

    /// The place of the chain for a connection, if one matches. `matches` gives what the chains ask
    /// for, of which the index was made, by their places.
    pub(super) fn find<'c>(
        &self,
        matches: impl Fn(u32) -> Option<&'c ChainMatch>,
        facts: &ConnectionFacts<'_>,
    ) -> Option<u32> {
        let mut node = self.root;
        loop {
            match self.nodes.get(node as usize)? {
                Node::Compared(criteria, places) => {
                    return compare(places, criteria, &matches, facts);
                }
                Node::Split { by, others } => node = by.find(facts).or(*others)?,
            }
        }
    }
}

impl Split {
    /// What the best value of a connection leads to.
    fn find(&self, facts: &ConnectionFacts<'_>) -> Option<NodeId> {
        match self {
            Self::Port(ports) => ports.get(&facts.destination?.port()).copied(),
            Self::Destination(ranges) => ranges.find(facts.destination?.ip()),
            Self::ServerName(names) => names.find(facts.server_name?.as_bytes()),
            Self::Protocol(protocols) => protocols.get(&facts.protocol?).copied(),
            Self::Alpn(names) => facts.alpn.iter().find_map(|name| names.get(*name)).copied(),
            Self::DirectSource(ranges) => ranges.find(facts.direct_source?),
            Self::SourceType(types) => types.get(&facts.source_type()?).copied(),
            Self::Source(ranges) => ranges.find(facts.source?),
            Self::SourcePort(ports) => ports.get(&facts.source_port?).copied(),
        }
    }
}

/// The best of `places` by `criteria`, the last ones: the definition of which chain wins.
fn compare<'c>(
    places: &[u32],
    criteria: &[Criterion],
    matches: &impl Fn(u32) -> Option<&'c ChainMatch>,
    facts: &ConnectionFacts<'_>,
) -> Option<u32> {
    // What is best by each of the criteria that were looked at.
    let mut best = [0; Criterion::ALL.len()];
    let is_left = |place: &&u32, looked_at: &[u32]| {
        matches(**place).is_some_and(|asked| {
            let mut fits = criteria.iter().map(|criterion| criterion.fit(asked, facts));
            looked_at.iter().all(|best| fits.next() == Some(Some(*best)))
        })
    };
    for (level, criterion) in criteria.iter().enumerate() {
        let (looked_at, next) = best.split_at_mut(level);
        let left = places.iter().filter(|place| is_left(place, looked_at));
        let fits = left.filter_map(|place| criterion.fit(matches(*place)?, facts));
        *next.first_mut()? = fits.max()?;
    }
    let looked_at = best.get(..criteria.len())?;
    places.iter().find(|place| is_left(place, looked_at)).copied()
}

impl Ranges {
    fn new(by_range: Map<Cidr, NodeId>) -> Self {
        let mut prefix_lens: Vec<u8> = by_range.keys().map(Cidr::prefix_len).collect();
        prefix_lens.sort_unstable_by_key(|len| Reverse(*len));
        prefix_lens.dedup();
        Self { by_range, prefix_lens: prefix_lens.into() }
    }

    /// What the smallest range with this address leads to.
    fn find(&self, ip: IpAddr) -> Option<NodeId> {
        self.prefix_lens.iter().find_map(|len| {
            let range = Cidr::with(ip, *len)?;
            self.by_range.get(&range).copied()
        })
    }
}

/// Makes nodes, each from the chains that are left at it.
struct Builder<'c> {
    matches: &'c [&'c ChainMatch],
    compared_max: usize,
    entries_left: usize,
    nodes: Vec<Node>,
    /// The nodes that were made, by the number of criteria to come and the chains that are left.
    known: Map<(usize, Box<[u32]>), NodeId>,
}

impl<'c> Builder<'c> {
    /// The node for these chains, of which the criteria before `criteria` have been looked at.
    fn node(&mut self, criteria: &'static [Criterion], mut places: Vec<u32>) -> NodeId {
        let asks = |criterion: &Criterion| {
            self.asked(&places).any(|(_, asked)| criterion.alternatives(asked) > 0)
        };
        let level = criteria.iter().position(asks).unwrap_or(criteria.len());
        let criteria = criteria.get(level..).unwrap_or_default();
        if criteria.is_empty() {
            // All match; the first wins.
            places.truncate(1);
        }
        let key = (criteria.len(), places.into_boxed_slice());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let (_, places) = &key;
        let node = match criteria.split_first() {
            Some((criterion, behind)) if self.affords(*criterion, places) => {
                self.split(*criterion, behind, places)
            }
            _ => Node::Compared(criteria, places.clone()),
        };
        // 2^32 nodes do not fit into memory before.
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(node);
        self.known.insert(key, id);
        id
    }

    /// Whether these chains are worth a look-up and there is room for one, which is then taken.
    fn affords(&mut self, criterion: Criterion, places: &[u32]) -> bool {
        if places.len() <= self.compared_max {
            return false;
        }
        let entries = self.asked(places).map(|(_, asked)| criterion.alternatives(asked).max(1));
        match self.entries_left.checked_sub(entries.sum()) {
            Some(left) => {
                self.entries_left = left;
                true
            }
            None => false,
        }
    }

    fn split(
        &mut self,
        criterion: Criterion,
        behind: &'static [Criterion],
        places: &[u32],
    ) -> Node {
        let others = self.asked(places).filter(|(_, asked)| criterion.alternatives(asked) == 0);
        let others: Vec<u32> = others.map(|(place, _)| place).collect();
        let by = match criterion {
            Criterion::Port => {
                let ports = self.group(behind, places, |asked| &asked.destination_ports);
                Split::Port(ports.map(|(port, node)| (port.get(), node)).collect())
            }
            Criterion::Destination => {
                let ranges = self.group(behind, places, |asked| &asked.destinations);
                Split::Destination(Ranges::new(ranges.collect()))
            }
            Criterion::ServerName => {
                let mut names = HostTable::default();
                for (name, node) in self.group(behind, places, |asked| &asked.server_names) {
                    // `*` is no server name, and each name is there once.
                    if name != Host::Any {
                        let _ = names.insert(&name, node);
                    }
                }
                Split::ServerName(names)
            }
            Criterion::Protocol => {
                Split::Protocol(self.group(behind, places, |asked| &asked.protocols).collect())
            }
            Criterion::Alpn => {
                Split::Alpn(self.group(behind, places, |asked| &asked.alpn).collect())
            }
            Criterion::DirectSource => {
                let ranges = self.group(behind, places, |asked| &asked.direct_sources);
                Split::DirectSource(Ranges::new(ranges.collect()))
            }
            Criterion::SourceType => {
                Split::SourceType(self.group(behind, places, source_types).collect())
            }
            Criterion::Source => {
                let ranges = self.group(behind, places, |asked| &asked.sources);
                Split::Source(Ranges::new(ranges.collect()))
            }
            Criterion::SourcePort => {
                let ports = self.group(behind, places, |asked| &asked.source_ports);
                Split::SourcePort(ports.map(|(port, node)| (port.get(), node)).collect())
            }
        };
        let others = (!others.is_empty()).then(|| self.node(behind, others));
        Node::Split { by, others }
    }

    /// Each value that one of these chains names, with the node for those that name it.
    fn group<T: Hash + Eq + Clone + 'c>(
        &mut self,
        behind: &'static [Criterion],
        places: &[u32],
        named: impl Fn(&'c ChainMatch) -> &'c [T],
    ) -> impl Iterator<Item = (T, NodeId)> {
        let mut groups: Map<&T, Vec<u32>> = Map::default();
        for (place, asked) in self.asked(places) {
            for value in named(asked) {
                let group = groups.entry(value).or_default();
                // It may name one value twice.
                if group.last() != Some(&place) {
                    group.push(place);
                }
            }
        }
        groups.into_iter().map(move |(value, places)| (value.clone(), self.node(behind, places)))
    }

    fn asked(&self, places: &[u32]) -> impl Iterator<Item = (u32, &'c ChainMatch)> {
        let matches = self.matches;
        places.iter().filter_map(move |place| Some((*place, *matches.get(*place as usize)?)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::num::NonZeroU16;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    use super::*;

    /// Which chain wins, as it is defined: criterion after criterion, all chains compared.
    fn compared(chains: &[ChainMatch], facts: &ConnectionFacts<'_>) -> Option<u32> {
        let mut left: Vec<(u32, &ChainMatch)> = (0..).zip(chains).collect();
        for criterion in Criterion::ALL {
            let fits = left.iter().filter_map(|(_, asked)| criterion.fit(asked, facts));
            let best = fits.max()?;
            left.retain(|(_, asked)| criterion.fit(asked, facts) == Some(best));
        }
        left.first().map(|(place, _)| *place)
    }

    fn index(chains: &[ChainMatch], compared_max: usize, entries_max: usize) -> ChainIndex {
        let chains: Vec<&ChainMatch> = chains.iter().collect();
        ChainIndex::with_bounds(&chains, compared_max, entries_max)
    }

    const PORTS: [u16; 3] = [80, 443, 8443];
    const SOURCE_PORTS: [u16; 3] = [1023, 40_000, 40_001];
    const RANGES: [&str; 8] = [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.0/24",
        "10.1.2.3",
        "::/0",
        "2001:db8::/32",
        "2001:db8::1",
    ];
    const ADDRESSES: [&str; 8] = [
        "10.1.2.3",
        "10.1.2.4",
        "10.1.3.3",
        "10.2.2.3",
        "192.0.2.1",
        "127.0.0.1",
        "2001:db8::1",
        "fd00::1",
    ];
    const NAMES: [&str; 6] = ["a.x", "b.a.x", "*.x", "*.a.x", "*.b.a.x", "y"];
    const ASKED_NAMES: [&str; 6] = ["a.x", "b.a.x", "c.a.x", "c.b.a.x", "z.x", "z"];
    const ALPN: [&str; 3] = ["h2", "http/1.1", "mqtt"];
    const PROTOCOLS: [Detected; 4] =
        [Detected::Http1, Detected::Http2, Detected::Tls, Detected::Other];

    /// None of these, or some of them, one of which may stand twice.
    fn some<T: Clone + std::fmt::Debug + 'static>(all: Vec<T>) -> impl Strategy<Value = Vec<T>> {
        let twice = vec(select(all.clone()), 1..3);
        prop_oneof![3 => Just(Vec::new()), 3 => subsequence(all, 1..3), 1 => twice]
    }

    prop_compose! {
        fn chain()(
            ports in some(PORTS.to_vec()),
            destinations in some(RANGES.to_vec()),
            names in some(NAMES.to_vec()),
            protocols in some(PROTOCOLS.to_vec()),
            alpn in some(ALPN.to_vec()),
            (direct_sources, source_type, sources, source_ports) in (
                some(RANGES.to_vec()),
                select(vec![SourceType::Any, SourceType::Local, SourceType::External]),
                some(RANGES.to_vec()),
                some(SOURCE_PORTS.to_vec()),
            ),
        ) -> ChainMatch {
            let ranges = |texts: Vec<&str>| {
                texts.into_iter().map(|text| text.parse().unwrap()).collect()
            };
            let numbers = |ports: Vec<u16>| ports.into_iter().filter_map(NonZeroU16::new).collect();
            ChainMatch {
                server_names: names.into_iter().map(|name| name.parse().unwrap()).collect(),
                alpn: alpn.into_iter().map(|name| name.as_bytes().into()).collect(),
                protocols,
                direct_sources: ranges(direct_sources),
                source_type,
                sources: ranges(sources),
                source_ports: numbers(source_ports),
                destinations: ranges(destinations),
                destination_ports: numbers(ports),
            }
        }
    }

    /// What is known of a connection, each fact as an owner of it.
    type Connection = (
        (Option<IpAddr>, Option<u16>, Option<IpAddr>),
        Option<SocketAddr>,
        Option<Detected>,
        Option<&'static str>,
        Vec<&'static str>,
    );

    fn connection() -> impl Strategy<Value = Connection> {
        let address =
            || select(ADDRESSES.to_vec()).prop_map(|text| text.parse::<IpAddr>().unwrap());
        let destination = (address(), select(vec![80, 443, 1])).prop_map(SocketAddr::from);
        (
            (
                proptest::option::weighted(0.9, address()),
                proptest::option::weighted(0.9, select(SOURCE_PORTS.to_vec())),
                proptest::option::weighted(0.9, address()),
            ),
            proptest::option::weighted(0.9, destination),
            proptest::option::of(select(PROTOCOLS.to_vec())),
            proptest::option::of(select(ASKED_NAMES.to_vec())),
            subsequence(vec!["h2", "http/1.1", "mqtt", "dot"], 0..4).prop_shuffle(),
        )
    }

    proptest! {
        #[test]
        fn the_index_answers_what_comparing_all_chains_answers(
            chains in vec(chain(), 0..40),
            connections in vec(connection(), 1..40),
        ) {
            for (compared_max, entries_max) in [(0, 1 << 20), (0, 1), (COMPARED_MAX, 16)] {
                let index = index(&chains, compared_max, entries_max);
                for (source, destination, protocol, server_name, alpn) in &connections {
                    let alpn: Vec<&[u8]> = alpn.iter().map(|name| name.as_bytes()).collect();
                    let (source, source_port, direct_source) = *source;
                    let facts = ConnectionFacts {
                        source,
                        source_port,
                        direct_source,
                        destination: *destination,
                        protocol: *protocol,
                        server_name: *server_name,
                        alpn: &alpn,
                    };
                    let found = index.find(|place| chains.get(place as usize), &facts);
                    prop_assert_eq!(found, compared(&chains, &facts), "{:?}", facts);
                }
            }
        }
    }

    #[test]
    fn the_first_protocol_that_a_client_offers_and_a_chain_names_decides() {
        let chain = |alpn: &[&str], port: u16| ChainMatch {
            alpn: alpn.iter().map(|name| name.as_bytes().into()).collect(),
            source_ports: NonZeroU16::new(port).into_iter().collect(),
            ..ChainMatch::default()
        };
        let chains = [chain(&["h2"], 5), chain(&["mqtt", "h2"], 6), chain(&["mqtt"], 5)];
        let find = |alpn: &[&[u8]], port| {
            let facts = ConnectionFacts {
                source: None,
                source_port: Some(port),
                direct_source: None,
                destination: None,
                protocol: Some(Detected::Tls),
                server_name: None,
                alpn,
            };
            let found = [0, 1, 2, 3].map(|compared_max| {
                let index = index(&chains, compared_max, 16);
                index.find(|place| chains.get(place as usize), &facts)
            });
            assert!(found.iter().all(|it| *it == compared(&chains, &facts)), "{found:?}");
            found[0]
        };
        assert_eq!(find(&[b"h2", b"mqtt"], 5), Some(0));
        assert_eq!(find(&[b"mqtt", b"h2"], 5), Some(2));
        assert_eq!(find(&[b"dot", b"mqtt", b"h2"], 6), Some(1));
        // There is no way back to those of another protocol that the client offers.
        assert_eq!(find(&[b"h2", b"mqtt"], 7), None);
        assert_eq!(find(&[b"dot"], 5), None);
    }

    /// Chains that each name many ports and many names, of which every two share some.
    fn manifold(chains: u16, named: u16) -> Vec<ChainMatch> {
        let chain = |first: u16| ChainMatch {
            destination_ports: (first..first + named).filter_map(NonZeroU16::new).collect(),
            server_names: (first..first + named)
                .map(|n| format!("{n}.x").parse().unwrap())
                .collect(),
            ..ChainMatch::default()
        };
        (1..=chains).map(chain).collect()
    }

    fn entries(index: &ChainIndex) -> usize {
        let each = index.nodes.iter().map(|node| match node {
            Node::Compared(_, places) => places.len(),
            Node::Split { by, others } => {
                usize::from(others.is_some())
                    + match by {
                        Split::Port(by) => by.len(),
                        Split::Destination(by) | Split::DirectSource(by) | Split::Source(by) => {
                            by.by_range.len()
                        }
                        Split::SourceType(by) => by.len(),
                        Split::SourcePort(by) => by.len(),
                        Split::ServerName(_) => 0,
                        Split::Protocol(by) => by.len(),
                        Split::Alpn(by) => by.len(),
                    }
            }
        });
        each.sum()
    }

    #[test]
    fn what_chains_name_adds_up_and_does_not_multiply() {
        // The same for all: one node at each level.
        let alike = vec![manifold(1, 1000).remove(0); 100];
        assert!(index(&alike, 0, 16).nodes.len() <= 3);
        // Each port has other chains, and with them other names.
        let unlike = manifold(300, 300);
        let index = index(&unlike, COMPARED_MAX, 1);
        let named = 300 * 600 + 300;
        assert!(entries(&index) <= 2 * named, "{} of {named}", entries(&index));
    }
}
