//! Counted from the events of exchanges.

use super::CauseTotals;
use super::grpc::GrpcCalls;
use super::status::StatusCounters;
use crate::cause::Cause;
use crate::cell::Counter;
use crate::events::{ExchangeFinished, HeaderDrop, HeadersDropped, Stages};
use crate::histogram::Histogram;

/// Slots of a route table that share a block, so that a table of thousands of which few are used
/// costs little.
pub(crate) const RULES_PER_BLOCK: usize = 32;

/// Exchanges of one listener on one worker.
#[derive(Debug, Default)]
pub(crate) struct ExchangeCounters {
    pub(crate) started: Counter,
    pub(crate) finished: Counter,
    pub(crate) tunnels_started: Counter,
    pub(crate) tunnels_finished: Counter,
    /// Those that left the worker, less those that came.
    pub(crate) away: Counter,
    pub(crate) tunnels_away: Counter,
    pub(crate) statuses: StatusCounters,
    pub(crate) replies: Counter,
    pub(crate) request_bytes: Counter,
    pub(crate) response_bytes: Counter,
    pub(crate) tunnel_bytes_up: Counter,
    pub(crate) tunnel_bytes_down: Counter,
    pub(crate) grpc_calls: GrpcCalls,
    pub(crate) grpc_messages_up: Counter,
    pub(crate) grpc_messages_down: Counter,
    pub(crate) headers_dropped: [Counter; HeaderDrop::NAMES.len()],
}

impl ExchangeCounters {
    pub(crate) fn headers_dropped(&self, event: &HeadersDropped) {
        if let Some(counter) = self.headers_dropped.get(event.reason as usize) {
            counter.add(event.count);
        }
    }

    pub(crate) fn finished(&self, event: &ExchangeFinished<'_>) {
        self.finished.increment();
        self.statuses.increment(event.status);
        if event.is_reply {
            self.replies.increment();
        }
        if let Some(call) = event.grpc {
            self.grpc_calls.increment(call);
            self.grpc_messages_up.add(call.request_messages);
            self.grpc_messages_down.add(call.response_messages);
        }
        if event.is_tunnel {
            self.tunnels_finished.increment();
            self.tunnel_bytes_up.add(event.request_bytes);
            self.tunnel_bytes_down.add(event.response_bytes);
        } else {
            self.request_bytes.add(event.request_bytes);
            self.response_bytes.add(event.response_bytes);
        }
    }
}

/// Exchanges of one worker, whichever the listener.
#[derive(Debug, Default)]
pub(crate) struct ExchangeTimes {
    pub(crate) causes: CauseTotals,
    pub(crate) stages: [Histogram; Stages::NAMES.len()],
    pub(crate) tunnels: Histogram,
}

impl ExchangeTimes {
    // Without the event: what of it is only counted need not be written down for a call.
    pub(crate) fn finished(&self, cause: Option<Cause>, is_tunnel: bool, stages: &Stages) {
        if let Some(cause) = cause {
            self.causes.increment(cause);
        }
        if is_tunnel {
            self.tunnels.record(stages.total);
            return;
        }
        for (histogram, time) in self.stages.iter().zip(stages.values()) {
            // A stage that did not happen is 0 and not a time of zero.
            if time != 0 {
                histogram.record(time);
            }
        }
    }
}

/// Up to [`RULES_PER_BLOCK`] neighbouring slots of one route table on one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RuleBlock {
    pub(crate) requests: [Counter; RULES_PER_BLOCK],
}

impl RuleBlock {
    /// The slots of this block whose rules were taken, and how often; it is the table's `group`-th block.
    pub(crate) fn taken(&self, group: u32) -> impl Iterator<Item = (usize, u64)> {
        let first = usize::try_from(group).unwrap_or(0) * RULES_PER_BLOCK;
        self.requests
            .iter()
            .enumerate()
            .map(move |(slot, counter)| (first + slot, counter.value()))
            .filter(|(_, count)| *count > 0)
    }
}
