//! Where another process, whose connections this one takes up, is configured otherwise.

use std::collections::BTreeSet;

/// Names of what this process is configured to do otherwise than the one that connections come from, in a way
/// that they would have been agreed on otherwise here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differing {
    /// Listeners.
    pub listeners: BTreeSet<String>,
    /// Chains, as `listener/chain`.
    pub chains: BTreeSet<String>,
    /// Clusters.
    pub clusters: BTreeSet<String>,
}
