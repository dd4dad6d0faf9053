//! Counted from the events of downstream connections.

use super::CauseTotals;
use crate::cause::Cause;
use crate::cell::{CauseCounters, CauseSet, Counter};
use crate::events::{ConnectionClosed, ConnectionDetected, ConnectionRefused, DetectedProtocol};
use crate::histogram::Histogram;

/// Why a connection can be refused.
pub(crate) static REFUSAL_CAUSES: CauseSet<7> = CauseSet::new(&[
    Cause::AcceptRate,
    Cause::ClientConnectionsOverflow,
    Cause::ConnectionsOverflow,
    Cause::OutOfDescriptors,
    Cause::Overloaded,
    Cause::ProxyProtocolSource,
]);

/// Connections of one listener on one worker.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    pub(crate) opened: Counter,
    pub(crate) closed: Counter,
    /// Those that left the worker, less those that came.
    pub(crate) away: Counter,
    pub(crate) buffered_bytes: Counter,
    pub(crate) refused: CauseCounters<7>,
    pub(crate) detected: [Counter; DetectedProtocol::NAMES.len()],
}

impl ConnectionCounters {
    pub(crate) fn refused(&self, event: &ConnectionRefused) {
        self.refused.increment(&REFUSAL_CAUSES, event.cause);
    }

    pub(crate) fn detected(&self, event: &ConnectionDetected) {
        if let Some(counter) = self.detected.get(event.protocol as usize) {
            counter.increment();
        }
    }
}

/// Connections of one worker, whichever the listener.
#[derive(Debug, Default)]
pub(crate) struct ConnectionEnds {
    pub(crate) causes: CauseTotals,
    pub(crate) undelivered_bytes: Counter,
    pub(crate) lifetime: Histogram,
}

impl ConnectionEnds {
    pub(crate) fn closed(&self, event: &ConnectionClosed) {
        if let Some(cause) = event.cause {
            self.causes.increment(cause);
        }
        if event.undelivered_bytes > 0 {
            self.undelivered_bytes.add(event.undelivered_bytes);
        }
        self.lifetime.record(event.lifetime);
    }
}
