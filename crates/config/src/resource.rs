//! Resources: what snapshots are linked of, typed and valid in themselves.
//!
//! A resource names others by name and has no ids: those belong to a snapshot, and [`crate::store`]
//! gives them. So a resource may come from the configuration file or from a source of its own, and what
//! is made of it is the same.

use std::sync::Arc;

use crate::address::Address;
use crate::snapshot::Traits;

/// The endpoints of a cluster, apart from the cluster: they may come from elsewhere, and change more
/// often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Each with an address of its own, in the order in which they were given.
    pub(crate) endpoints: Vec<Endpoint>,
}

/// One address of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Where it listens.
    pub(crate) address: Address,
    /// Its share of the requests; 0 for none.
    pub(crate) weight: u16,
    /// The host whose address it is, if that is known.
    pub(crate) host: Option<Arc<str>>,
    /// What else is said of it.
    pub(crate) traits: Traits,
}
