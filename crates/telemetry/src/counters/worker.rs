//! Levels of workers, and counts of their access log records.

use crate::cell::Counter;
use crate::events::WorkerGauges;

/// Levels of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerLevels {
    pub(crate) turns: Counter,
    pub(crate) events: Counter,
    pub(crate) busy: Counter,
    pub(crate) buffers_leased: Counter,
    pub(crate) buffers_reused: Counter,
    pub(crate) buffers_allocated: Counter,
    pub(crate) buffer_bytes: Counter,
    pub(crate) connections_downstream: Counter,
    pub(crate) connections_upstream: Counter,
    pub(crate) idle_upstream: Counter,
    pub(crate) pending: Counter,
}

impl WorkerLevels {
    pub(crate) fn set(&self, gauges: &WorkerGauges) {
        self.turns.set(gauges.turns);
        self.events.set(gauges.events);
        self.buffers_leased.set(gauges.buffers_leased);
        self.buffers_reused.set(gauges.buffers_reused_total);
        self.buffers_allocated.set(gauges.buffers_allocated_total);
        self.buffer_bytes.set(gauges.buffer_bytes);
        self.connections_downstream.set(gauges.connections_downstream);
        self.connections_upstream.set(gauges.connections_upstream);
        self.idle_upstream.set(gauges.idle_upstream);
        self.pending.set(gauges.pending);
    }

    pub(crate) fn set_busy(&self, busy: u64) {
        self.busy.set(busy);
    }

    /// How long it has been at work, ns.
    pub(crate) fn busy(&self) -> u64 {
        self.busy.value()
    }

    /// About how many bytes it holds for its load.
    pub(crate) fn bytes_held(&self) -> u64 {
        let connections = self.connections_downstream.value() + self.connections_upstream.value();
        self.buffer_bytes.value() + connections * CONNECTION_BYTES
    }
}

/// Bytes that a connection holds beside buffers, roughly: its own state and an exchange or two.
pub(crate) const CONNECTION_BYTES: u64 = 1024;

/// Records that a worker handed on or had to drop.
#[derive(Debug, Default)]
pub(crate) struct LogRecordCounters {
    pub(crate) logged: Counter,
    pub(crate) log_dropped: Counter,
    pub(crate) slow_dropped: Counter,
    pub(crate) connections_unlogged: Counter,
}
