//! An assignment: the endpoints of a cluster, apart from the cluster.
//!
//! They come from the text ([`endpoints`]), from a file of their own ([`files`]), from DNS ([`answers`]), or from another source
//! ([`delivered`]).

pub(crate) mod answers;
pub(crate) mod delivered;
pub mod dns;
pub(crate) mod endpoints;
pub(crate) mod endpoints_from;
pub mod file;
pub(crate) mod files;
pub mod locality;

use std::sync::Arc;

use crate::address::Address;
use crate::resource::assignment::endpoints_from::{LeftOut, Traits};

/// The sum of the weights of a cluster.
pub(crate) const WEIGHTS_MAX: u64 = u32::MAX as u64;

/// The endpoints of a cluster, apart from the cluster: they may come from elsewhere, and change more
/// often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Each with an address of its own, in the order in which they were given.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Addresses of host names that are not among them, because there are too many.
    pub(crate) left_out: Box<[LeftOut]>,
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
