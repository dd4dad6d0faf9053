//! Counted from the events of upstream connections and from exchanges that have a cluster.

use super::{BOUNDS_COARSE, Family, MetricType, total};
use crate::cell::Counter;
use crate::counters::endpoint::{FROM_THE_START, REASONS};
use crate::counters::grpc::GrpcCalls;
use crate::counters::status::CLASSES;
use crate::counters::upstream::{CONNECT_CAUSES, RETRY_CAUSES};
use crate::events::{ChoiceKind, MirrorDrop, RetryDenial};

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "strait_upstream_exchanges_total",
        kind: MetricType::Counter,
        help: "Exchanges routed to the cluster, by class of the status that the upstream sent; \
               `none` if the proxy replied itself, or there was no answer.",
        labels: &["cluster", "class"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                for (place, class) in CLASSES.iter().enumerate() {
                    let count = blocks
                        .iter()
                        .filter_map(|block| block.classes.get(place))
                        .map(Counter::value)
                        .sum();
                    out.number(&[cluster, class], count);
                }
            }
        },
    },
    Family {
        name: "strait_upstream_grpc_calls_total",
        kind: MetricType::Counter,
        help: "gRPC calls routed to the cluster, by status, including replies that the proxy \
               made; `none` ended without a status. `OK` is there from the start, the others from their first call on.",
        labels: &["cluster", "status"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                let calls = || blocks.iter().map(|block| &block.grpc_calls);
                GrpcCalls::each(calls, |name, count| out.number(&[cluster, name], count));
            }
        },
    },
    Family {
        name: "strait_upstream_attempts_total",
        kind: MetricType::Counter,
        help: "Attempts that exchanges made, the first and its repetitions.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.attempts));
            }
        },
    },
    Family {
        name: "strait_upstream_retries_total",
        kind: MetricType::Counter,
        help: "Attempts repeated on another connection, by what ended the former one.",
        labels: &["cluster", "cause"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                for (place, cause) in RETRY_CAUSES.words().enumerate() {
                    let count = blocks.iter().map(|block| block.retries.value(place)).sum();
                    out.number(&[cluster, cause], count);
                }
            }
        },
    },
    Family {
        name: "strait_upstream_retries_denied_total",
        kind: MetricType::Counter,
        help: "Attempts that `retry` of a rule asked for and that were not made: `budget`, since `retry_budget` of the cluster was used up; \
               `attempts`, since there were `attempts_max`; `body`, since the request's body was longer than `body_max`; `method`, \
               since an endpoint may have acted on the request and its method is not idempotent; `timeout`, since the response asked \
               for a pause that the rule's `timeout` has no room for.",
        labels: &["cluster", "reason"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                for (place, reason) in RetryDenial::ALL.iter().enumerate() {
                    let counters =
                        blocks.iter().filter_map(|block| block.retries_denied.get(place));
                    out.number(&[cluster, reason.as_str()], counters.map(Counter::value).sum());
                }
            }
        },
    },
    Family {
        name: "strait_upstream_choices_total",
        kind: MetricType::Counter,
        help: "Attempts whose endpoint was chosen by more than the balancer: in the process's own locality (`own_locality`) or in another \
               (`other_locality`), where `localities` of the cluster counted; of a priority behind the first (`failover`); or of all \
               endpoints, also those that are ejected or unhealthy (`panic`). Each counts once, as the last of these that holds.",
        labels: &["cluster", "kind"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                for (place, kind) in ChoiceKind::ALL.iter().enumerate() {
                    let counters = blocks.iter().filter_map(|block| block.choices.get(place));
                    out.number(&[cluster, kind.as_str()], counters.map(Counter::value).sum());
                }
            }
        },
    },
    Family {
        name: "strait_upstream_mirrored_total",
        kind: MetricType::Counter,
        help: "Copies of requests that `mirror` of a rule made and the cluster was sent, by class of the response's status; `none` \
               if there was no response, or it broke off. They are no exchanges of `strait_upstream_exchanges_total`. `2xx` is there from the start, the others from the cluster's first copy on.",
        labels: &["cluster", "class"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                let mirrors = || blocks.iter().filter_map(|block| block.mirrors.get());
                if mirrors().next().is_none() {
                    out.number(&[cluster, "2xx"], 0);
                    continue;
                }
                for (place, class) in CLASSES.iter().enumerate() {
                    let counters = mirrors().filter_map(|mirrors| mirrors.sent.get(place));
                    out.number(&[cluster, class], counters.map(Counter::value).sum());
                }
            }
        },
    },
    Family {
        name: "strait_upstream_mirrors_dropped_total",
        kind: MetricType::Counter,
        help: "Copies of requests that were not sent: `memory`, since copies hold as much as `limits.mirrored_max` allows; \
               `incomplete`, since the request ended before it was whole; `protocol`, since \
               the cluster speaks another one; `no_cluster`, since it is not there; `unsent`, since they got no connection. `memory` is there from the start, the others from the cluster's first \
               copy on.",
        labels: &["cluster", "reason"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                let mirrors = || blocks.iter().filter_map(|block| block.mirrors.get());
                if mirrors().next().is_none() {
                    out.number(&[cluster, MirrorDrop::Memory.as_str()], 0);
                    continue;
                }
                for (place, reason) in MirrorDrop::ALL.iter().enumerate() {
                    let counters = mirrors().filter_map(|mirrors| mirrors.dropped.get(place));
                    out.number(&[cluster, reason.as_str()], counters.map(Counter::value).sum());
                }
            }
        },
    },
    Family {
        name: "strait_upstream_exchange_seconds",
        kind: MetricType::Histogram,
        help: "Time from the request head's first byte to the response's last byte, without \
               tunnels.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in view.clusters_with_times() {
                let times = super::times_of(blocks, |block| &block.exchange);
                out.histogram(&[cluster], &BOUNDS_COARSE, &times);
            }
        },
    },
    Family {
        name: "strait_upstream_first_byte_seconds",
        kind: MetricType::Histogram,
        help: "Time from the last byte of the request written to the upstream to the first byte of the response, without \
               tunnels; the client's time for the request's body is no part of it. Only with stage times.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in view.clusters_with_times() {
                let times = super::times_of(blocks, |block| &block.first_byte);
                out.histogram(&[cluster], &BOUNDS_COARSE, &times);
            }
        },
    },
    Family {
        name: "strait_upstream_connections_opened_total",
        kind: MetricType::Counter,
        help: "Upstream connections established.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.opened));
            }
        },
    },
    Family {
        name: "strait_upstream_connections_closed_total",
        kind: MetricType::Counter,
        help: "Established upstream connections that ended, for whatever reason.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.closed));
            }
        },
    },
    Family {
        name: "strait_upstream_connections_active",
        kind: MetricType::Gauge,
        help: "Established upstream connections, in use or idle.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                let closed = total(blocks, |block| &block.closed);
                let opened = total(blocks, |block| &block.opened);
                out.level(&[cluster], opened, closed);
            }
        },
    },
    Family {
        name: "strait_upstream_connections_idle",
        kind: MetricType::Gauge,
        help: "Upstream connections waiting in a pool.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.idle));
            }
        },
    },
    Family {
        name: "strait_upstream_pending",
        kind: MetricType::Gauge,
        help: "Exchanges waiting for an upstream connection.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.pending));
            }
        },
    },
    Family {
        name: "strait_upstream_connect_seconds",
        kind: MetricType::Histogram,
        help: "Time to establish an upstream connection.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in view.clusters_with_times() {
                let times = super::times_of(blocks, |block| &block.connect);
                out.histogram(&[cluster], &BOUNDS_COARSE, &times);
            }
        },
    },
    Family {
        name: "strait_upstream_connect_failures_total",
        kind: MetricType::Counter,
        help: "Upstream connections that could not be established.",
        labels: &["cluster", "cause"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                for (place, cause) in CONNECT_CAUSES.words().enumerate() {
                    let count =
                        blocks.iter().map(|block| block.connect_failures.value(place)).sum();
                    out.number(&[cluster, cause], count);
                }
            }
        },
    },
    Family {
        name: "strait_upstream_connect_failure_reasons_total",
        kind: MetricType::Counter,
        help: "Upstream connections that could not be established, by the name of the kernel's error, the time that \
               was over (`timeout`, `tls_timeout`), or how the handshake of TLS failed; `ECONNREFUSED` and `timeout` are there from the \
               start, the others from their first failure on. `/clusters` has them by endpoint.",
        labels: &["cluster", "reason"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                for (place, reason) in REASONS.iter().enumerate() {
                    let count = blocks.iter().map(|block| block.connect_reasons.value(place)).sum();
                    if count > 0 || FROM_THE_START.contains(reason) {
                        out.number(&[cluster, reason], count);
                    }
                }
            }
        },
    },
    Family {
        name: "strait_upstream_pauses_total",
        kind: MetricType::Counter,
        help: "Pauses before an endpoint, or an original destination, is connected to again, because \
               it closed several connections in a row without processing a request (GOAWAY with a \
               last stream of 0).",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.pauses));
            }
        },
    },
    Family {
        name: "strait_upstream_connections_ended_total",
        kind: MetricType::Counter,
        help: "Upstream connections that were closed abnormally, by cause.",
        labels: &["cause"],
        samples: |view, out| view.each_cause(out, |block| &block.upstream.causes),
    },
    Family {
        name: "strait_upstream_connection_lifetime_seconds",
        kind: MetricType::Histogram,
        help: "Time from established to closed of upstream connections.",
        labels: &[],
        samples: |view, out| {
            out.histogram(&[], &BOUNDS_COARSE, &view.times(|block| &block.upstream.lifetime));
        },
    },
];

/// Of single endpoints, as far as they are reported.
pub(super) static ENDPOINT_FAMILIES: &[Family] = &[
    Family {
        name: "strait_endpoint_exchanges_total",
        kind: MetricType::Counter,
        help: "Exchanges that ended with this endpoint as their last.",
        labels: &["cluster", "endpoint"],
        samples: |view, out| {
            for (cluster, endpoint, totals) in &view.endpoints {
                out.number(&[cluster, endpoint], totals.exchanges_total);
            }
        },
    },
    Family {
        name: "strait_endpoint_exchanges_failed_total",
        kind: MetricType::Counter,
        help: "Of these, such as failed because of the endpoint.",
        labels: &["cluster", "endpoint"],
        samples: |view, out| {
            for (cluster, endpoint, totals) in &view.endpoints {
                out.number(&[cluster, endpoint], totals.exchanges_failed_total);
            }
        },
    },
    Family {
        name: "strait_endpoint_connect_failures_total",
        kind: MetricType::Counter,
        help: "Connections to the endpoint that could not be established, by reason, as in \
               `strait_upstream_connect_failure_reasons_total`, and from the same time on.",
        labels: &["cluster", "endpoint", "reason"],
        samples: |view, out| {
            for (cluster, endpoint, totals) in &view.endpoints {
                let counted = totals.connect_failures.iter().map(|(reason, _)| reason);
                let counted: Vec<_> = counted.collect();
                for reason in FROM_THE_START.iter().filter(|it| !counted.contains(it)) {
                    out.number(&[cluster, endpoint, reason], 0);
                }
                for (reason, count) in &totals.connect_failures {
                    out.number(&[cluster, endpoint, reason], *count);
                }
            }
        },
    },
    Family {
        name: "strait_endpoints_left_out",
        kind: MetricType::Gauge,
        help: "Endpoints without metrics of their own, beyond `metrics.endpoints_max`.",
        labels: &[],
        samples: |view, out| out.number(&[], view.endpoints_left_out),
    },
];
