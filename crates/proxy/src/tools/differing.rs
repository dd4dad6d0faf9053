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
    /// Chains that are new here, or match other connections than there; as `listener/chain`.
    pub chains_new: BTreeSet<String>,
    /// Listeners of this process whose name had an address there that is not theirs here.
    pub moved: BTreeSet<String>,
}
