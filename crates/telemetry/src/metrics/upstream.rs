//! Counted from the events of upstream connections and from exchanges that have a cluster.

use std::sync::OnceLock;
use std::time::Duration;

use super::endpoint::{FROM_THE_START, REASONS, ReasonCounters};
use super::grpc::GrpcCalls;
use super::status::{CLASSES, class_place};
use super::{BOUNDS_COARSE, CauseTotals, Family, MetricType, total};
use crate::cause::Cause;
use crate::cell::{CauseCounters, CauseSet, Counter};
use crate::events::{
    ClusterGauges, CopyFinished, ExchangeFinished, MirrorDrop, RetryDenial, UpstreamClosed,
    UpstreamConnectFailed, UpstreamConnected, UpstreamRetried, UpstreamRetryDenied,
};
use crate::histogram::{Histogram, HistogramTotals};
use crate::totals::ClusterTotals;

static CONNECT_CAUSES: CauseSet<5> = CauseSet::new(&[
    Cause::ConnectFailed,
    Cause::ConnectTimeout,
    Cause::OutOfDescriptors,
    Cause::UpstreamTlsFailed,
]);
/// The causes after which `proxy` makes another attempt: `proxy::fault` allows it, or a rule's `retry` asks for it; a test of `proxy` compares.
static RETRY_CAUSES: CauseSet<RETRY_CAUSES_LEN> = CauseSet::new(&[
    Cause::Http2PingTimeout,
    Cause::ConnectFailed,
    Cause::ConnectTimeout,
    Cause::UpstreamTlsFailed,
    Cause::UpstreamClosed,
    Cause::StreamRefused,
    Cause::UpstreamGoingAway,
    Cause::StreamReset,
    Cause::ResponseUnasked,
    Cause::ResponseInvalid,
    Cause::ResponseHeadTooLarge,
    Cause::ResponseHeadTimeout,
    Cause::TryTimeout,
    Cause::ResponseRetried,
    Cause::RequestWriteTimeout,
]);

/// The causes, and one place for all others.
const RETRY_CAUSES_LEN: usize = 16;

/// The classes of exchanges that failed: without a response of the upstream, and with 5xx.
const FAILED_CLASSES: [usize; 2] = [0, 5];

/// One cluster on one worker. Exists once the worker had an event of that cluster.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ClusterBlock {
    classes: [Counter; CLASSES.len()],
    attempts: Counter,
    pub(crate) opened: Counter,
    pub(crate) closed: Counter,
    pub(crate) pauses: Counter,
    idle: Counter,
    pending: Counter,
    connect_failures: CauseCounters<5>,
    connect_reasons: ReasonCounters,
    retries: CauseCounters<RETRY_CAUSES_LEN>,
    retries_denied: [Counter; RetryDenial::ALL.len()],
    /// Once there was a copy for it.
    mirrors: OnceLock<Box<MirrorCounters>>,
    grpc_calls: GrpcCalls,
    connect: Histogram,
    exchange: Histogram,
    first_byte: Histogram,
}

/// Copies of requests for one cluster on one worker.
#[derive(Debug, Default)]
struct MirrorCounters {
    sent: [Counter; CLASSES.len()],
    dropped: [Counter; MirrorDrop::ALL.len()],
}

/// Memory is counted for clusters by the thousand: this is what a cluster that has traffic costs
/// on each worker.
const _: () = assert!(size_of::<ClusterBlock>() <= 3584);

impl ClusterBlock {
    pub(crate) fn exchange_finished(&self, event: &ExchangeFinished<'_>) {
        let class = if event.is_reply { 0 } else { class_place(event.status) };
        if let Some(counter) = self.classes.get(class) {
            counter.increment();
        }
        if let Some(call) = event.grpc {
            self.grpc_calls.increment(call);
        }
        self.attempts.add(u64::from(event.attempts));
        if !event.is_tunnel {
            self.exchange.record(event.stages.total);
            // A stage that did not happen is 0 and not a time of zero.
            if event.stages.first_byte != 0 {
                self.first_byte.record(event.stages.first_byte);
            }
        }
    }

    pub(crate) fn connected(&self, event: &UpstreamConnected) {
        self.opened.increment();
        self.connect.record(event.duration);
    }

    pub(crate) fn connect_failed(&self, event: &UpstreamConnectFailed) {
        self.connect_failures.increment(&CONNECT_CAUSES, event.cause);
        self.connect_reasons.increment(event.reason);
    }

    pub(crate) fn retried(&self, event: &UpstreamRetried) {
        self.retries.increment(&RETRY_CAUSES, event.cause);
    }

    pub(crate) fn retry_denied(&self, event: &UpstreamRetryDenied) {
        if let Some(counter) = self.retries_denied.get(event.reason as usize) {
            counter.increment();
        }
    }

    pub(crate) fn copy_finished(&self, event: &CopyFinished) {
        let mirrors = self.mirrors.get_or_init(Box::default);
        if let Some(counter) = mirrors.sent.get(class_place(event.status)) {
            counter.increment();
        }
    }

    pub(crate) fn mirror_dropped(&self, reason: MirrorDrop) {
        let mirrors = self.mirrors.get_or_init(Box::default);
        if let Some(counter) = mirrors.dropped.get(reason as usize) {
            counter.increment();
        }
    }

    /// Adds what the admin's own pages show, all but `connections_active`; gives how many connections were closed here,
    /// of which some may have been opened elsewhere.
    pub(crate) fn add_to(&self, totals: &mut ClusterTotals) -> u64 {
        let closed = self.closed.value();
        totals.connections_idle += self.idle.value();
        totals.connections_total += self.opened.value();
        totals.connect_failures_total += self.connect_failures.sum();
        totals.pending += self.pending.value();
        totals.exchanges_total += self.classes.iter().map(Counter::value).sum::<u64>();
        totals.exchanges_failed_total += FAILED_CLASSES
            .into_iter()
            .filter_map(|place| self.classes.get(place))
            .map(Counter::value)
            .sum::<u64>();
        let mut times = HistogramTotals::default();
        times.add(&self.exchange);
        totals.exchanges_timed_total += times.count();
        totals.exchange_time_total += Duration::from_nanos(times.sum);
        totals.retries_total += self.retries.sum();
        closed
    }

    pub(crate) fn set_gauges(&self, gauges: &ClusterGauges) {
        self.idle.set(gauges.idle);
        self.pending.set(gauges.pending);
    }
}

/// Upstream connections of one worker, whichever the cluster.
#[derive(Debug, Default)]
pub(crate) struct UpstreamEnds {
    causes: CauseTotals,
    lifetime: Histogram,
}

impl UpstreamEnds {
    pub(crate) fn closed(&self, event: &UpstreamClosed) {
        if let Some(cause) = event.cause {
            self.causes.increment(cause);
        }
        self.lifetime.record(event.lifetime);
    }
}

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
               since an endpoint may have acted on the request and its method is not idempotent.",
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
