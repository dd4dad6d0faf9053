//! The one map of this crate.
//!
//! Its seed is fixed: keys come from the configuration, never from a peer, so a
//! peer can look things up but cannot fill a bucket. A fixed seed makes runs repeatable.

use foldhash::fast::FixedState;

/// A hash map with a fixed seed.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
