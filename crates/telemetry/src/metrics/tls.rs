//! Counted from the events of TLS.

use super::{Family, MetricType};
use crate::cell::Counter;
use crate::counters::endpoint::REASONS;
use crate::events::TlsHandshakeKind;

/// Reasons that are no words of TLS.
const FROM_THE_START: [&str; 3] = ["peer_gone", "tls_timeout", "overflow"];

/// How signatures that handshakes waited for were made.
pub(super) const SIGNATURES: [&str; 3] = ["inline", "batched", "failed"];
/// Sizes of batches.
pub(super) const BATCH_SIZES: [&str; 9] = ["0", "1", "2", "3", "4", "5", "6", "7", "8"];

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_tls_handshakes_total",
        kind: MetricType::Counter,
        help: "TLS handshakes with clients that succeeded: `full`, `resumed`, and resumed with early data (`early`).",
        labels: &["listener", "kind"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                for (place, kind) in TlsHandshakeKind::NAMES.iter().enumerate() {
                    let counters = blocks.iter().filter_map(|b| b.tls.done.get(place));
                    out.number(&[listener, kind], counters.map(Counter::value).sum());
                }
            }
        },
    },
    Family {
        name: "strait_tls_handshakes_failed_total",
        kind: MetricType::Counter,
        help: "TLS handshakes with clients that failed, by [reason](#reasons). `peer_gone`, `tls_timeout` and \
               `overflow` exist from the start, the others from their first failure.",
        labels: &["listener", "reason"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                for (place, name) in REASONS.iter().enumerate() {
                    let count = blocks.iter().map(|block| block.tls.failed.value(place)).sum();
                    if count > 0 || FROM_THE_START.contains(name) {
                        out.number(&[listener, name], count);
                    }
                }
            }
        },
    },
    Family {
        name: "strait_tls_handshake_seconds",
        kind: MetricType::Histogram,
        help: "Duration of successful TLS handshakes with clients, including the time spent waiting for the \
               client.",
        labels: &[],
        samples: |view, out| {
            out.histogram(&[], &super::BOUNDS_FINE, &view.times(|block| &block.tls.handshake));
        },
    },
    Family {
        name: "strait_tls_signatures_total",
        kind: MetricType::Counter,
        help: "Signatures that handshakes waited for (`signing` other than `inline`), by method: one by one \
               (`inline`), `batched`, or `failed` to be made.",
        labels: &["how"],
        samples: |view, out| {
            for (place, how) in SIGNATURES.into_iter().enumerate() {
                let count = view.sum(|block| block.tls.signatures.get(place));
                out.number(&[how], count);
            }
        },
    },
    Family {
        name: "strait_tls_signature_batches_total",
        kind: MetricType::Counter,
        help: "Batches of signatures by size; 1 is a signature that waited and remained alone.",
        labels: &["size"],
        samples: |view, out| {
            for (place, size) in BATCH_SIZES.into_iter().enumerate() {
                let count = view.sum(|block| block.tls.batches.get(place));
                out.number(&[size], count);
            }
        },
    },
];
