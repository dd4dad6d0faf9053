//! Ids that stay the same for as long as the named thing exists.
//!
//! A load gives ids on a copy of the registries; only a snapshot without errors puts the copy in
//! the place of the original. A slot whose resource went is free from the *next* load on, so that
//! within one snapshot no slot is both removed and added.

use std::hash::Hash;
use std::sync::Arc;

use crate::map::Map;
use crate::snapshot::{
    Address, ClusterId, ClusterProtocol, Id, ListenSocket, ListenerId, ProxyProtocolVersion,
};

/// Which name has which id.
#[derive(Clone, Debug)]
pub(crate) struct Registry<K> {
    ids: Map<K, (Id, u64)>,
    /// How often each slot was given away before.
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Counts loads: what was not asked for in the current one is gone.
    round: u64,
}

impl<K> Default for Registry<K> {
    fn default() -> Self {
        Self { ids: Map::default(), generations: Vec::new(), free: Vec::new(), round: 0 }
    }
}

impl<K: Hash + Eq + Clone + Ord> Registry<K> {
    /// The id of `key`: the one it had, or a new one.
    pub(crate) fn assign(&mut self, key: K) -> Id {
        if let Some((id, seen)) = self.ids.get_mut(&key) {
            *seen = self.round;
            return *id;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            // A table of 2^32 resources does not fit into memory before.
            u32::try_from(self.generations.len() - 1).unwrap_or(u32::MAX)
        });
        let generation = self.generations.get(slot as usize).copied().unwrap_or_default();
        let id = Id { slot, generation };
        self.ids.insert(key, (id, self.round));
        id
    }

    /// Ends a load: frees the slots of all that was not asked for, and says what that was.
    pub(crate) fn sweep(&mut self) -> Vec<(K, Id)> {
        let round = self.round;
        let mut gone: Vec<(K, Id)> = self
            .ids
            .extract_if(|_, (_, seen)| *seen != round)
            .map(|(key, (id, _))| (key, id))
            .collect();
        gone.sort();
        for (_, id) in &gone {
            if let Some(generation) = self.generations.get_mut(id.slot as usize) {
                *generation = generation.wrapping_add(1);
            }
            self.free.push(id.slot);
        }
        self.round = self.round.wrapping_add(1);
        gone
    }
}

/// The registries of all kinds of resources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    /// A listener with another socket is another listener.
    pub(crate) listeners: Registry<(Arc<str>, Address, ListenSocket)>,
    pub(crate) chains: Registry<(ListenerId, Arc<str>)>,
    pub(crate) route_tables: Registry<Arc<str>>,
    pub(crate) clusters: Registry<Arc<str>>,
    /// An endpoint is its cluster and its address, however it is spoken to.
    pub(crate) endpoints: Registry<(ClusterId, Address)>,
    pub(crate) transports: Registry<(ClusterId, Transport)>,
    /// The last serial of a cluster's TLS.
    cluster_tls: u64,
}

/// How the endpoints of a cluster are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Transport {
    pub(crate) protocol: ClusterProtocol,
    /// The serial of the cluster's TLS, if there is any.
    pub(crate) tls: Option<u64>,
    pub(crate) proxy_protocol: Option<ProxyProtocolVersion>,
}

impl Ids {
    /// A number for how TLS is spoken with a cluster that no other has or had.
    pub(crate) const fn cluster_tls_serial(&mut self) -> u64 {
        self.cluster_tls = self.cluster_tls.wrapping_add(1);
        self.cluster_tls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_with_the_next_generation_but_not_in_the_same_round() {
        let mut registry = Registry::default();
        let a = registry.assign("a");
        let b = registry.assign("b");
        assert_eq!(registry.sweep(), []);
        assert_eq!(registry.assign("b"), b);
        let c = registry.assign("c");
        assert_eq!((c.slot, c.generation), (2, 0));
        assert_eq!(registry.sweep(), [("a", a)]);
        registry.assign("b");
        let a_again = registry.assign("a");
        assert_eq!((a_again.slot, a_again.generation), (a.slot, a.generation + 1));
        assert_eq!(registry.sweep(), [("c", c)]);
    }
}
