//! What the admin interface's own pages show of the counters.

use std::time::Duration;

/// What a listener has counted, for the admin's own pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerTotals {
    /// Downstream connections open now.
    pub connections_active: u64,
    /// Downstream connections accepted.
    pub connections_total: u64,
    /// Exchanges running now.
    pub exchanges_active: u64,
    /// Exchanges finished.
    pub exchanges_total: u64,
}

/// What a source has said, for the admin's own pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTotals {
    /// Its name: `file`, `dns`, or that of a source of clusters.
    pub source: &'static str,
    /// What it gave that was accepted, also if it was nothing new.
    pub answers_total: u64,
    /// What it did not give, or what was refused of it, by reason: those that occurred.
    pub failures: Vec<(&'static str, u64)>,
    /// When it last gave something that was accepted, ns since the Unix epoch; 0 for never.
    pub answered_at: u64,
    /// When it last said anything, be it nothing new or something that was refused; ns since the Unix epoch, 0 for never.
    pub heard_at: u64,
    /// How many of its files or names are in which state.
    pub states: Vec<(&'static str, u64)>,
}

/// What a cluster has counted, for the admin's own pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterTotals {
    /// Established connections now.
    pub connections_active: u64,
    /// Of these, idle ones.
    pub connections_idle: u64,
    /// Connections established.
    pub connections_total: u64,
    /// Connections that could not be established.
    pub connect_failures_total: u64,
    /// Exchanges waiting for a connection now.
    pub pending: u64,
    /// Exchanges finished.
    pub exchanges_total: u64,
    /// Of these, with a response of 500 to 599, or with a cause and without a response.
    pub exchanges_failed_total: u64,
    /// Of all, those whose time was taken: no tunnels.
    pub exchanges_timed_total: u64,
    /// Their time, from the first byte of the request to the last of the response.
    pub exchange_time_total: Duration,
    /// Attempts repeated.
    pub retries_total: u64,
}
