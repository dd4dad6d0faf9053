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
        help: "Exchanges routed to the cluster, by class of the status that the upstream sent; `none` if there \
               was no response, or Strait replied itself.",
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
        name: "strait_upstream_exchanges_failed_total",
        kind: MetricType::Counter,
        help: "Of `strait_upstream_exchanges_total`, exchanges that failed: those of the class `5xx`, and those of \
               the class `none` that ended with a cause that is not the client's. Connections that were relayed to \
               their end are not among them, nor those of clients that left.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.failed));
            }
        },
    },
    Family {
        name: "strait_upstream_grpc_calls_total",
        kind: MetricType::Counter,
        help: "gRPC calls routed to the cluster, by status, including replies that Strait generated; `none` are \
               calls that ended without a status. `OK` exists from the start, the others from their first call.",
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
        help: "Attempts of exchanges, both first attempts and retries.",
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
        help: "Attempts repeated on another connection, by the cause that ended the previous attempt.",
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
        help: "Retries that `retry` of a rule allows and that were not made: `budget`, because `retry_budget` \
               of the cluster was used up; `attempts`, because `attempts_max` was reached; `body`, because the \
               request's body was longer than `body_max`; `method`, because an endpoint may have processed the \
               request and its method is not idempotent; `timeout`, because the response requested a \
               pause that exceeds the rule's `timeout`.",
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
        name: "strait_upstream_hedges_total",
        kind: MetricType::Counter,
        help: "Attempts that began beside an earlier one that took too long, where a rule has `hedge`. Each is a \
               retry with the cause `try_timeout`, too.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.hedges));
            }
        },
    },
    Family {
        name: "strait_upstream_hedges_won_total",
        kind: MetricType::Counter,
        help: "Of `strait_upstream_hedges_total`, attempts that responded before the earlier one.",
        labels: &["cluster"],
        samples: |view, out| {
            for (cluster, blocks) in &view.clusters {
                out.number(&[cluster], total(blocks, |block| &block.hedges_won));
            }
        },
    },
    Family {
        name: "strait_upstream_choices_total",
        kind: MetricType::Counter,
        help: "Attempts whose endpoint was not selected by the balancer alone: in the process's own locality \
               (`own_locality`) or in another (`other_locality`), if the cluster has `localities`; in a \
               priority after the first (`failover`); among the degraded endpoints, since the healthy \
               ones are too few (`degraded`); or among all endpoints, including ejected and unhealthy \
               ones (`panic`). Each attempt counts once, as the last of these that applies.",
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
        help: "Copies of requests that `mirror` of a rule sent to the cluster, by class of the response's \
               status; `none` if there was no response, or it was truncated. They are not included in \
               `strait_upstream_exchanges_total`. `2xx` exists from the start, the others from the cluster's \
               first copy.",
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
        help: "Copies of requests that were not sent: `memory`, because copies occupy as much as \
               `limits.mirrored_max` allows; `incomplete`, because the request ended before it was complete; \
               `protocol`, because the cluster has another protocol; `no_cluster`, because the cluster does not \
               exist; `unsent`, because they got no connection. `memory` exists from the start, the others from \
               the cluster's first copy.",
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
        help: "Time from the first byte of the request head to the last byte of the response, without tunnels.",
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
        help: "Time from the last byte of the request sent to the upstream to the first byte of the response, \
               without tunnels; does not include time in which the client sends the request's body. Only with \
               stage times.",
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
        help: "Established upstream connections that ended, for any reason.",
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
        help: "Upstream connections waiting in a pool, as of the last second.",
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
        help: "Upstream connections that could not be established, by cause.",
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
        help: "Upstream connections that could not be established, by [reason](#reasons): the name of the kernel's \
               error, an expired timeout (`timeout`, `tls_timeout`), or the reason why the TLS handshake failed. \
               `ECONNREFUSED` and `timeout` exist from the start, the others from their first failure. \
               `/clusters` has them by endpoint.",
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
        help: "Pauses before Strait connects again to an endpoint, or an original destination, that closed \
               several connections in a row without processing a request (GOAWAY with last stream 0).",
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
        help: "Lifetime of established upstream connections.",
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
        help: "Exchanges whose last attempt was at this endpoint.",
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
        help: "Of these, exchanges that failed because of the endpoint.",
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
               `strait_upstream_connect_failure_reasons_total`.",
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
        help: "Endpoints beyond `metrics.endpoints_max`, which have no metrics of their own.",
        labels: &[],
        samples: |view, out| out.number(&[], view.endpoints_left_out),
    },
];
