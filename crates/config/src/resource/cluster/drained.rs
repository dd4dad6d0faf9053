//! Endpoints that operators drain, whatever their sources and checks say of them.
//!
//! The admin interface drains an endpoint and takes it back. A drained endpoint gets no new requests, as one with weight 0 or
//! one that its source says is draining. It is known by its cluster's name and its address, so that a reload, an
//! answer of DNS or a cluster that is delivered again changes nothing about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::address::Address;

/// Endpoints that are drained at a time, in the process.
pub const DRAINED_MAX: usize = 4_096;

/// An endpoint is drained, or taken back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainChange {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// Which of its endpoints.
    pub endpoint: Address,
    /// Whether it gets no new requests from now on.
    pub is_drained: bool,
}

/// The endpoints that are drained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained(BTreeMap<Arc<str>, BTreeSet<Address>>);

impl Drained {
    /// Those of a cluster, if any are.
    #[must_use]
    pub fn of(&self, cluster: &str) -> Option<&BTreeSet<Address>> {
        self.0.get(cluster)
    }

    /// How many are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, with the names of their clusters.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Address)> {
        self.0.iter().flat_map(|(cluster, all)| all.iter().map(move |one| (cluster, one)))
    }

    /// Notes a change. Returns whether it is one; more than [`DRAINED_MAX`] are not noted.
    pub fn apply(&mut self, change: &DrainChange) -> bool {
        if change.is_drained {
            self.len() < DRAINED_MAX
                && self
                    .0
                    .entry(Arc::clone(&change.cluster))
                    .or_default()
                    .insert(change.endpoint.clone())
        } else {
            let Some(of_cluster) = self.0.get_mut(&change.cluster) else { return false };
            let was_drained = of_cluster.remove(&change.endpoint);
            if of_cluster.is_empty() {
                self.0.remove(&change.cluster);
            }
            was_drained
        }
    }
}
