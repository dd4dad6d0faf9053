//! Counted from the events of exchanges.

use super::{BOUNDS_COARSE, BOUNDS_FINE, Family, MetricType, total};
use crate::cell::Counter;
use crate::counters::grpc::GrpcCalls;
use crate::counters::status::{CLASSES, STATUSES};
use crate::events::{HeaderDrop, Stages};

/// The family of exchanges by rule.
pub(crate) const ROUTE_EXCHANGES: &str = "strait_route_exchanges_total";

/// The family of exchanges of rules with several clusters, by cluster.
pub(crate) const WEIGHTED_EXCHANGES: &str = "strait_route_weighted_exchanges_total";

/// To the upstream.
pub(super) const UP: &str = "up";

/// To the client.
pub(super) const DOWN: &str = "down";

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_exchanges_started_total",
        kind: MetricType::Counter,
        help: "Requests whose head was received.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.exchanges.started));
            }
        },
    },
    Family {
        name: "strait_downstream_headers_dropped_total",
        kind: MetricType::Counter,
        help: "Header fields and trailers of requests that were removed because an upstream could mistake them \
               for fields of a proxy: `forwarded` are `x-forwarded-*` of clients, `underscore` are those that \
               `http.headers_with_underscores` removes.",
        labels: &["listener", "reason"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                for (place, reason) in HeaderDrop::NAMES.iter().enumerate() {
                    let counters =
                        blocks.iter().filter_map(|b| b.exchanges.headers_dropped.get(place));
                    out.number(&[listener, reason], counters.map(Counter::value).sum());
                }
            }
        },
    },
    Family {
        name: "strait_exchanges_finished_total",
        kind: MetricType::Counter,
        help: "Exchanges that ended, with or without a response.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.exchanges.finished));
            }
        },
    },
    Family {
        name: "strait_exchanges_active",
        kind: MetricType::Gauge,
        help: "Active exchanges, from the head of the request to the end, including tunnels.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let finished = total(blocks, |block| &block.exchanges.finished);
                let started = total(blocks, |block| &block.exchanges.started);
                out.level(&[listener], started, finished);
            }
        },
    },
    Family {
        name: "strait_exchange_responses_total",
        kind: MetricType::Counter,
        help: "Exchanges by the status sent to the client. A code that is not registered with IANA counts as \
               `other` of its class, an exchange without response as `none`. `other` of each class exists from \
               the start, a code from its first response.",
        labels: &["listener", "class", "code"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                for (place, status) in STATUSES.iter().enumerate() {
                    let count =
                        blocks.iter().map(|block| block.exchanges.statuses.value(place)).sum();
                    if count > 0 || place < CLASSES.len() {
                        out.number(&[listener, status.class, status.code], count);
                    }
                }
            }
        },
    },
    Family {
        name: "strait_exchange_replies_total",
        kind: MetricType::Counter,
        help: "Exchanges whose response Strait generated.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.exchanges.replies));
            }
        },
    },
    Family {
        name: "strait_exchange_causes_total",
        kind: MetricType::Counter,
        help: "Exchanges that failed, by cause.",
        labels: &["cause"],
        samples: |view, out| view.each_cause(out, |block| &block.exchanges.causes),
    },
    Family {
        name: "strait_exchange_request_body_bytes_total",
        kind: MetricType::Counter,
        help: "Body bytes received from clients, without tunnels; counted when the exchange ends.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.exchanges.request_bytes));
            }
        },
    },
    Family {
        name: "strait_exchange_response_body_bytes_total",
        kind: MetricType::Counter,
        help: "Body bytes sent to clients, without tunnels; counted when the exchange ends.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.exchanges.response_bytes));
            }
        },
    },
    Family {
        name: "strait_grpc_calls_total",
        kind: MetricType::Counter,
        help: "gRPC calls by status, including replies that Strait generated; `none` are calls that ended \
               without a status. `OK` exists from the start, the others from their first call.",
        labels: &["listener", "status"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let calls = || blocks.iter().map(|block| &block.exchanges.grpc_calls);
                GrpcCalls::each(calls, |name, count| out.number(&[listener, name], count));
            }
        },
    },
    Family {
        name: "strait_grpc_messages_total",
        kind: MetricType::Counter,
        help: "gRPC messages to the upstream (`up`) and to the client (`down`); counted when the call ends.",
        labels: &["listener", "direction"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let up = total(blocks, |block| &block.exchanges.grpc_messages_up);
                let down = total(blocks, |block| &block.exchanges.grpc_messages_down);
                out.number(&[listener, UP], up);
                out.number(&[listener, DOWN], down);
            }
        },
    },
    Family {
        name: "strait_exchange_stage_seconds",
        kind: MetricType::Histogram,
        help: "Duration of the stages of exchanges, without tunnels. An exchange counts for the stages that it \
               had. `total` is from the first byte of the head to the last byte of the response.",
        labels: &["stage"],
        samples: |view, out| {
            for (place, stage) in Stages::NAMES.iter().enumerate() {
                let times = view.times_of(|block| block.exchanges.stages.get(place));
                out.histogram(&[stage], &BOUNDS_FINE, &times);
            }
        },
    },
    Family {
        name: "strait_tunnels_started_total",
        kind: MetricType::Counter,
        help: "Exchanges that became a tunnel.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.exchanges.tunnels_started));
            }
        },
    },
    Family {
        name: "strait_tunnels_finished_total",
        kind: MetricType::Counter,
        help: "Tunnels that ended.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                out.number(&[listener], total(blocks, |block| &block.exchanges.tunnels_finished));
            }
        },
    },
    Family {
        name: "strait_tunnels_active",
        kind: MetricType::Gauge,
        help: "Tunnels open now.",
        labels: &["listener"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let finished = total(blocks, |block| &block.exchanges.tunnels_finished);
                let started = total(blocks, |block| &block.exchanges.tunnels_started);
                out.level(&[listener], started, finished);
            }
        },
    },
    Family {
        name: "strait_tunnel_bytes_total",
        kind: MetricType::Counter,
        help: "Bytes in tunnels, to the upstream (`up`) and to the client (`down`); counted when the tunnel \
               ends.",
        labels: &["listener", "direction"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let up = total(blocks, |block| &block.exchanges.tunnel_bytes_up);
                let down = total(blocks, |block| &block.exchanges.tunnel_bytes_down);
                out.number(&[listener, UP], up);
                out.number(&[listener, DOWN], down);
            }
        },
    },
    Family {
        name: "strait_tunnel_seconds",
        kind: MetricType::Histogram,
        help: "Time from the first byte of the head to the end of exchanges that became a tunnel.",
        labels: &[],
        samples: |view, out| {
            out.histogram(&[], &BOUNDS_COARSE, &view.times(|block| &block.exchanges.tunnels));
        },
    },
    Family {
        name: ROUTE_EXCHANGES,
        kind: MetricType::Counter,
        help: "Exchanges that matched this rule, counted when they end. `rule` is the rule's name, or what it \
               matches if it has none; of several rules of a table for which that is the same text, the later \
               ones have ` (2)`, ` (3)` and so on behind it. If there are more than 1,000 rules, those that \
               never matched are omitted. A rule keeps its count when a reload changes its position. An \
               exchange that began before a reload and ends after it counts for the rule that it matched.",
        labels: &["route", "rule"],
        samples: |view, out| {
            for it in view.rules.iter().filter(|it| it.cluster.is_none()) {
                out.number(&[it.route, it.rule], it.count);
            }
        },
    },
    Family {
        name: WEIGHTED_EXCHANGES,
        kind: MetricType::Counter,
        help: "Exchanges of rules with several clusters by weight (`clusters`), by the cluster that was \
               chosen, counted when they end. `rule` is as for `strait_route_exchanges_total`.",
        labels: &["route", "rule", "cluster"],
        samples: |view, out| {
            for it in &view.rules {
                if let Some(cluster) = it.cluster {
                    out.number(&[it.route, it.rule, cluster], it.count);
                }
            }
        },
    },
];
