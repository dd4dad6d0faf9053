//! Levels (gauges) that a worker reports about itself. They are not events: each overwrites the one
//! before, about once a turn.

/// A worker's levels and the totals that it keeps for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerGauges {
    /// Turns of the loop, in total.
    pub turns: u64,
    /// Events that the loop handled, in total.
    pub events: u64,
    /// Buffers leased now.
    pub buffers_leased: u64,
    /// Leases that were served by a buffer used before, in total.
    pub buffers_reused_total: u64,
    /// Leases that needed new memory, in total.
    pub buffers_allocated_total: u64,
    /// Bytes that the slab of buffers holds, leased or not.
    pub buffer_bytes: u64,
    /// Downstream connections open now.
    pub connections_downstream: u64,
    /// Upstream connections open or being established now.
    pub connections_upstream: u64,
    /// Upstream connections idle in pools now.
    pub idle_upstream: u64,
    /// Exchanges waiting for an upstream connection now.
    pub pending: u64,
}

/// A cluster's levels on one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterGauges {
    /// Connections idle in the pools of its endpoints now.
    pub idle: u64,
    /// Exchanges waiting for a connection now.
    pub pending: u64,
}

/// A listener's levels on one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerGauges {
    /// Bytes that its clients hold in buffers, as far as `buffered_max` counts them.
    pub buffered_bytes: u64,
}
