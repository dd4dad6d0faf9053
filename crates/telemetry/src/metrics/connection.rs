//! Counted from the events of downstream connections.

use super::{Family, MetricType, total};
use crate::cell::Counter;
use crate::counters::connection::REFUSAL_CAUSES;
use crate::events::DetectedProtocol;

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_downstream_connections_opened_total",
        kind: MetricType::Counter,
        help: "Downstream connections accepted.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.connections.opened));
            }
        },
    },
    Family {
        name: "strait_downstream_connections_detected_total",
        kind: MetricType::Counter,
        help: "Downstream connections on listeners that detect the protocol, by the protocol of their first \
               bytes or ALPN. `rpc` is any RPC protocol that a filter chain selects, `other` is no known \
               protocol, and `timeout` means that too few bytes arrived within `timeouts.detect`.",
        labels: &["listener", "protocol"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                for (place, name) in DetectedProtocol::NAMES.iter().enumerate() {
                    let counters = blocks.iter().filter_map(|b| b.connections.detected.get(place));
                    out.number(&[listener, name], counters.map(Counter::value).sum());
                }
            }
        },
    },
    Family {
        name: "strait_downstream_connections_closed_total",
        kind: MetricType::Counter,
        help: "Downstream connections that ended, for any reason.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.connections.closed));
            }
        },
    },
    Family {
        name: "strait_downstream_connections_active",
        kind: MetricType::Gauge,
        help: "Downstream connections open now.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let closed = total(blocks, |block| &block.connections.closed);
                let opened = total(blocks, |block| &block.connections.opened);
                out.level(&[listener], opened, closed);
            }
        },
    },
    Family {
        name: "strait_downstream_buffered_bytes",
        kind: MetricType::Gauge,
        help: "Bytes that clients occupy in buffers, as counted for `buffered_max` of their listener, at the \
               last check of the workers: every ten seconds, and ten times a second once the buffers of a \
               worker are as large as the smallest such limit.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.connections.buffered_bytes));
            }
        },
    },
    Family {
        name: "strait_downstream_connections_refused_total",
        kind: MetricType::Counter,
        help: "Downstream connections closed at accept because a limit was reached, or because \
               `proxy_protocol.from` does not contain their address.",
        labels: &["listener", "cause"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                for (place, cause) in REFUSAL_CAUSES.words().enumerate() {
                    let count =
                        blocks.iter().map(|block| block.connections.refused.value(place)).sum();
                    out.number(&[listener, cause], count);
                }
            }
        },
    },
    Family {
        name: "strait_downstream_connections_ended_total",
        kind: MetricType::Counter,
        help: "Downstream connections that were closed abnormally, by cause.",
        labels: &["cause"],
        samples: |view, out| {
            view.each_cause(out, |block| &block.connections.causes);
        },
    },
    Family {
        name: "strait_downstream_undelivered_bytes_total",
        kind: MetricType::Counter,
        help: "Response bytes that were passed to the kernel and lost with connections that ended for \
               `response_undelivered`: their clients had not acknowledged them.",
        labels: &[],
        samples: |view, out| {
            out.number(&[], view.worker_total(|block| &block.connections.undelivered_bytes));
        },
    },
    Family {
        name: "strait_downstream_connection_lifetime_seconds",
        kind: MetricType::Histogram,
        help: "Time from accept to close of downstream connections.",
        labels: &[],
        samples: |view, out| {
            out.histogram(
                &[],
                &super::BOUNDS_COARSE,
                &view.times(|block| &block.connections.lifetime),
            );
        },
    },
];
