//! Counted from the events of exchanges.

use super::{BOUNDS_COARSE, BOUNDS_FINE, Family, MetricType, total};
use crate::cell::Counter;
use crate::counters::grpc::GrpcCalls;
use crate::counters::status::{CLASSES, STATUSES};
use crate::events::{HeaderDrop, Stages};

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_exchanges_started_total",
        kind: MetricType::Counter,
        help: "Requests whose head was read.",
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
        help: "Header fields and trailers of requests that were dropped, since a service could take them for \
               a proxy's: `forwarded` are `x-forwarded-*` of clients, `underscore` are those \
               that `http.headers_with_underscores` names.",
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
        help: "Exchanges that are over, with a response or without.",
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
        help: "Exchanges between their request's head and their end, tunnels included.",
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
        help: "Exchanges by the status sent downstream. A code that is not registered with IANA \
               counts as `other` of its class, one without response as `none`. Of each class, `other` is there from the \
               start, and a code from its first response on.",
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
        help: "Exchanges whose response the proxy made itself.",
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
        help: "Exchanges that failed, by cause: each timeout, each fault.",
        labels: &["cause"],
        samples: |view, out| view.each_cause(out, |block| &block.exchanges.causes),
    },
    Family {
        name: "strait_exchange_request_body_bytes_total",
        kind: MetricType::Counter,
        help: "Body bytes received from downstreams, without tunnels; counted when the exchange \
               ends.",
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
        help: "Body bytes sent to downstreams, without tunnels; counted when the exchange ends.",
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
        help: "gRPC calls by status, including replies that the proxy made; `none` ended without \
               a status. `OK` is there from the start, the others from their first call on.",
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
        help: "gRPC messages, up to the upstream and down from it; counted when the call ends.",
        labels: &["listener", "direction"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let up = total(blocks, |block| &block.exchanges.grpc_messages_up);
                let down = total(blocks, |block| &block.exchanges.grpc_messages_down);
                out.number(&[listener, "up"], up);
                out.number(&[listener, "down"], down);
            }
        },
    },
    Family {
        name: "strait_exchange_stage_seconds",
        kind: MetricType::Histogram,
        help: "Where the time of exchanges went, without tunnels; an exchange counts for the \
               stages that it had. `total` is from the head's first byte to the response's last.",
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
        help: "Bytes that went through tunnels, up to the upstream and down from it; counted when \
               the tunnel ends.",
        labels: &["listener", "direction"],
        samples: |view, out| {
            for (listener, blocks) in &view.listeners {
                let up = total(blocks, |block| &block.exchanges.tunnel_bytes_up);
                let down = total(blocks, |block| &block.exchanges.tunnel_bytes_down);
                out.number(&[listener, "up"], up);
                out.number(&[listener, "down"], down);
            }
        },
    },
    Family {
        name: "strait_tunnel_seconds",
        kind: MetricType::Histogram,
        help: "Time from the head's first byte to the end of exchanges that became a tunnel.",
        labels: &[],
        samples: |view, out| {
            out.histogram(&[], &BOUNDS_COARSE, &view.times(|block| &block.exchanges.tunnels));
        },
    },
    Family {
        name: "strait_route_exchanges_total",
        kind: MetricType::Counter,
        help: "Exchanges that took this rule, counted when they end. `rule` is the rule's place \
               in its route table and its name, or what it matches. With more than 1,000 rules, those never taken are left out. A rule \
               keeps its count when a reload changes its place; an exchange that ends after the \
               reload but began before is counted for the rule that stands where its own stood.",
        labels: &["route", "rule"],
        samples: |view, out| {
            for (route, rule, count) in &view.rules {
                out.number(&[route, rule], *count);
            }
        },
    },
];
