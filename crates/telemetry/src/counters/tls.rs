//! Counted from the events of TLS.

use super::endpoint::ReasonCounters;
use crate::cell::Counter;
use crate::events::{SignaturesMade, TlsHandshakeFinished, TlsHandshakeKind};
use crate::histogram::Histogram;

/// Handshakes of one listener on one worker.
#[derive(Debug, Default)]
pub(crate) struct TlsCounters {
    pub(crate) done: [Counter; TlsHandshakeKind::NAMES.len()],
    pub(crate) failed: ReasonCounters,
}

impl TlsCounters {
    pub(crate) fn handshake_finished(&self, event: &TlsHandshakeFinished) {
        match event.failure {
            Some(reason) => self.failed.increment(reason),
            None => {
                if let Some(counter) = self.done.get(event.kind as usize) {
                    counter.increment();
                }
            }
        }
    }
}

/// Handshakes of one worker, whichever the listener.
#[derive(Debug, Default)]
pub(crate) struct TlsTimes {
    pub(crate) handshake: Histogram,
    /// Inline, batched, failed.
    pub(crate) signatures: [Counter; 3],
    pub(crate) batches: [Counter; SignaturesMade::SIZES],
}

impl TlsTimes {
    pub(crate) fn handshake_finished(&self, event: &TlsHandshakeFinished) {
        if event.failure.is_none() {
            self.handshake.record(event.duration);
        }
    }

    pub(crate) fn signatures_made(&self, event: &SignaturesMade) {
        let SignaturesMade { inline, batched, failed, sizes } = event;
        for (counter, count) in self.signatures.iter().zip([inline, batched, failed]) {
            counter.add(*count);
        }
        for (counter, count) in self.batches.iter().zip(sizes) {
            counter.add(*count);
        }
    }
}
