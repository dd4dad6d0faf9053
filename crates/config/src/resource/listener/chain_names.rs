//! Which chains of a listener a host name belongs to, for requests that come over a connection of
//! another one.
//!
//! A TLS client chooses a chain by the name in its hello, and may then send requests for any host:
//! browsers send requests for all names of a certificate over one HTTP/2 connection. What matters is
//! not that the chains differ, but that they would treat the request differently, so each chain has
//! a policy number here; equal numbers mean equal routes, filters and demands on clients.

use crate::hosts::{Host, HostTable};
use crate::map::Map;
use crate::resource::listener::{Listener, ListenerChain};
use crate::snapshot::id::RouteTableId;

/// The chains of a listener by server name. Only listeners have one where it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainNames {
    /// Server name ⇒ place in `groups`.
    names: HostTable<u32>,
    /// Places of chains that have a server name in common, in the order of the file.
    groups: Vec<Vec<u32>>,
    /// Places of chains that match any server name.
    nameless: Vec<u32>,
    /// The policy of each chain, by place.
    policies: Vec<u32>,
    /// The policy of connections that no chain matches, if there is one for TLS.
    default: Option<u32>,
    /// Whether a chain asks for addresses, so that some chains are out of reach for some connections.
    asks_addresses: bool,
}

impl ChainNames {
    /// The index of these chains; `None` if no request can belong to another chain than its
    /// connection's, or if that makes no difference.
    pub(crate) fn new<F>(listener: &Listener<F>) -> Option<Box<Self>> {
        let chains = &listener.chains;
        if chains.iter().all(|chain| chain.matches.server_names.is_empty()) {
            return None;
        }
        let mut seen = Policies { first: Vec::new(), by_tables: Map::default() };
        let policies: Vec<u32> = chains.iter().map(|chain| seen.number(&chain.listener)).collect();
        let takes_tls =
            listener.has_default && (listener.tls.is_some() || listener.relay.is_some());
        let default = takes_tls.then(|| seen.number(listener));
        if seen.first.len() < 2 {
            return None;
        }
        let mut this = Self {
            names: HostTable::default(),
            groups: Vec::new(),
            nameless: Vec::new(),
            policies,
            default,
            asks_addresses: chains.iter().any(|chain| {
                !chain.matches.destinations.is_empty()
                    || !chain.matches.destination_ports.is_empty()
            }),
        };
        for (chain, place) in chains.iter().zip(0u32..) {
            if chain.matches.server_names.is_empty() {
                this.nameless.push(place);
            }
            for name in &chain.matches.server_names {
                this.insert(name, place);
            }
        }
        Some(Box::new(this))
    }

    fn insert(&mut self, name: &Host, place: u32) {
        let next = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        match self.names.insert(name, next) {
            Ok(()) => self.groups.push(vec![place]),
            Err(group) => {
                if let Some(group) = self.groups.get_mut(group as usize) {
                    group.push(place);
                }
            }
        }
    }

    /// The places of the chains that have this server name, and those of chains with patterns that
    /// it matches: the closest first, those for any name last. `is_named` says whether a group has
    /// the name or a pattern for it.
    pub fn groups<'s>(&'s self, name: Option<&'s [u8]>) -> impl Iterator<Item = Group<'s>> {
        let found = name.into_iter().flat_map(|name| self.names.find_all(name));
        let named = found.filter_map(|group| self.groups.get(group as usize));
        named
            .map(|places| Group { places, is_named: true })
            .chain([Group { places: &self.nameless, is_named: false }])
    }

    /// The policy of the chain at this place, or of connections without a chain. `None` if TLS
    /// is not served there.
    #[must_use]
    pub fn policy(&self, place: Option<usize>) -> Option<u32> {
        match place {
            Some(place) => self.policies.get(place).copied(),
            None => self.default,
        }
    }

    /// Whether a chain asks for addresses.
    #[must_use]
    pub const fn asks_addresses(&self) -> bool {
        self.asks_addresses
    }
}

/// Chains that match a server name equally well.
#[derive(Clone, Copy, Debug)]
pub struct Group<'s> {
    /// Their places, in the order of the file.
    pub places: &'s [u32],
    /// Whether they name it, rather than match any.
    pub is_named: bool,
}

impl<'s> Group<'s> {
    /// The chains with their places.
    pub fn chains<F>(
        self,
        chains: &'s [ListenerChain<F>],
    ) -> impl Iterator<Item = (usize, &'s ListenerChain<F>)> {
        let places = self.places.iter().map(|place| *place as usize);
        places.filter_map(|place| Some((place, chains.get(place)?)))
    }
}

/// The policies that were met so far.
struct Policies<'l, F> {
    /// The first listener of each.
    first: Vec<&'l Listener<F>>,
    /// Their numbers by their route tables, which most differ in.
    by_tables: Map<&'l [RouteTableId], Vec<u32>>,
}

impl<'l, F> Policies<'l, F> {
    fn number(&mut self, listener: &'l Listener<F>) -> u32 {
        let alike = self.by_tables.entry(&listener.route_tables).or_default();
        let is_same = |number: &&u32| {
            self.first.get(**number as usize).is_some_and(|first| is_same_policy(first, listener))
        };
        if let Some(number) = alike.iter().find(is_same) {
            return *number;
        }
        let number = u32::try_from(self.first.len()).unwrap_or(u32::MAX);
        alike.push(number);
        self.first.push(listener);
        number
    }
}

/// Whether a request is treated alike on connections of both, which have the same route tables:
/// same filters, same demands on the client's certificate, and TLS that ends here or does not.
fn is_same_policy<F>(a: &Listener<F>, b: &Listener<F>) -> bool {
    let client =
        |listener: &'_ Listener<F>| listener.tls.as_ref().map(|tls| tls.source.client.clone());
    a.filter_sources == b.filter_sources && a.hosts == b.hosts && client(a) == client(b)
}
