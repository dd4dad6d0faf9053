//! The chains of a listener, and which of them a connection meets.
//!
//! The most specific wins, as in Envoy: criteria are gone through in a fixed order
//! ([`Criterion::ALL`]), and of the chains that are left only those that are best by one are
//! compared by the next. There is no way back, so that what wins is found by looking at one
//! criterion after the other: a chain that is best by its destination port wins over one that asks
//! for a range of destinations, and if it does not match in the end, no chain does.
//!
//! The answer is a look-up in a tree, whose cost does not follow the number of chains.

mod criteria;
mod index;

use std::ops::Deref;
use std::sync::Arc;

use wire::detect::{Detected, RpcProtocols};
use wire::rpc::RpcProtocol;

pub use self::criteria::{ConnectionFacts, Criterion, Fit};
use self::index::ChainIndex;
use crate::map::Map;
use crate::protocols::Protocols;
use crate::resource::listener::ListenerChain;
use crate::snapshot::id::ChainId;

/// The chains of a listener: a slice in the order of the file, and look-ups in it.
#[derive(Debug)]
pub struct ListenerChains<F> {
    list: Vec<ListenerChain<F>>,
    /// None if there are no chains.
    lookups: Option<Box<Lookups>>,
}

/// What is looked up, each with the place in the list as its answer.
#[derive(Debug)]
struct Lookups {
    by_id: Map<ChainId, u32>,
    by_name: Map<Arc<str>, u32>,
    by_match: ChainIndex,
    needs_bytes: bool,
    may_relay: bool,
    asks_direct_source: bool,
    /// Those that a chain asks for, in the order of the program's table.
    rpc_protocols: Box<[&'static dyn RpcProtocol]>,
}

impl<F> Default for ListenerChains<F> {
    fn default() -> Self {
        Self { list: Vec::new(), lookups: None }
    }
}

impl<F> Deref for ListenerChains<F> {
    type Target = [ListenerChain<F>];

    fn deref(&self) -> &[ListenerChain<F>] {
        &self.list
    }
}

impl<'c, F> IntoIterator for &'c ListenerChains<F> {
    type Item = &'c ListenerChain<F>;
    type IntoIter = std::slice::Iter<'c, ListenerChain<F>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl<F> ListenerChains<F> {
    /// These chains, whose ids and names are unique. They ask for RPC protocols of this table.
    pub(crate) fn new(list: Vec<ListenerChain<F>>, protocols: &Protocols) -> Self {
        if list.is_empty() {
            return Self::default();
        }
        let places = || list.iter().zip(0u32..);
        let matches: Vec<_> = list.iter().map(|chain| &chain.matches).collect();
        let is_asked = |protocol: &&dyn RpcProtocol| {
            let is_it = |it: &Detected| matches!(it, Detected::Rpc(name) if name.as_str() == protocol.name());
            matches.iter().flat_map(|matches| &matches.protocols).any(is_it)
        };
        let lookups = Lookups {
            by_id: places().map(|(chain, place)| (chain.id, place)).collect(),
            by_name: places().map(|(chain, place)| (Arc::clone(&chain.name), place)).collect(),
            by_match: ChainIndex::new(&matches),
            needs_bytes: list.iter().any(|chain| chain.matches.needs_bytes()),
            may_relay: list.iter().any(|chain| chain.listener.relay.is_some()),
            asks_direct_source: matches.iter().any(|matches| !matches.direct_sources.is_empty()),
            rpc_protocols: protocols.iter().filter(is_asked).collect(),
        };
        Self { list, lookups: Some(Box::new(lookups)) }
    }

    /// The chain that a connection meets, if one matches.
    #[must_use]
    pub fn choose(&self, facts: &ConnectionFacts<'_>) -> Option<&ListenerChain<F>> {
        let matches = |place: u32| self.list.get(place as usize).map(|chain| &chain.matches);
        let place = self.lookups.as_ref()?.by_match.find(matches, facts)?;
        self.list.get(place as usize)
    }

    /// The chain with this id, and its place in the order of the file.
    #[must_use]
    pub fn find(&self, id: ChainId) -> Option<(usize, &ListenerChain<F>)> {
        let place = *self.lookups.as_ref()?.by_id.get(&id)? as usize;
        Some((place, self.list.get(place)?))
    }

    /// The chain of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&ListenerChain<F>> {
        let place = self.lookups.as_ref()?.by_name.get(name)?;
        self.list.get(*place as usize)
    }

    /// Whether the first bytes of a connection have to be looked at before one is chosen.
    #[must_use]
    pub fn needs_bytes(&self) -> bool {
        self.lookups.as_ref().is_some_and(|lookups| lookups.needs_bytes)
    }

    /// The RPC protocols that one of them asks for.
    #[must_use]
    pub fn rpc_protocols(&self) -> RpcProtocols<'_> {
        self.lookups.as_ref().map_or(&[], |lookups| &lookups.rpc_protocols)
    }

    /// Whether one of them asks where connections come from directly.
    #[must_use]
    pub fn asks_direct_source(&self) -> bool {
        self.lookups.as_ref().is_some_and(|lookups| lookups.asks_direct_source)
    }

    /// Whether one of them relays connections.
    #[must_use]
    pub fn may_relay(&self) -> bool {
        self.lookups.as_ref().is_some_and(|lookups| lookups.may_relay)
    }
}
