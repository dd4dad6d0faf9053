//! Counted from the events of upstream connections and from exchanges that have a cluster.

use std::sync::OnceLock;
use std::time::Duration;

use super::CauseTotals;
use super::endpoint::ReasonCounters;
use super::grpc::GrpcCalls;
use super::status::{CLASSES, class_place};
use crate::cause::Cause;
use crate::cell::{CauseCounters, CauseSet, Counter};
use crate::events::{
    ChoiceKind, ClusterGauges, CopyFinished, ExchangeFinished, Fault, MirrorDrop, RetryDenial,
    UpstreamClosed, UpstreamConnectFailed, UpstreamConnected, UpstreamRetried, UpstreamRetryDenied,
};
use crate::histogram::{Histogram, HistogramTotals};
use crate::totals::ClusterTotals;

pub(crate) static CONNECT_CAUSES: CauseSet<5> = CauseSet::new(&[
    Cause::ConnectFailed,
    Cause::ConnectTimeout,
    Cause::OutOfDescriptors,
    Cause::UpstreamTlsFailed,
]);
/// The causes after which `proxy` makes another attempt: `proxy::fault` allows it, or a rule's `retry` asks for it; a test of `proxy` compares.
pub(crate) static RETRY_CAUSES: CauseSet<RETRY_CAUSES_LEN> = CauseSet::new(&[
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
pub(crate) const RETRY_CAUSES_LEN: usize = 16;

/// The classes of exchanges without a response of the upstream, and of those with 5xx.
const CLASS_NONE: usize = 0;
const CLASS_5XX: usize = 5;

/// One cluster on one worker. Exists once the worker had an event of that cluster.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ClusterBlock {
    pub(crate) classes: [Counter; CLASSES.len()],
    /// Those with 5xx, and those without a response that have a cause: what is relayed has no response, nor
    /// has a call that asks for none.
    pub(crate) failed: Counter,
    pub(crate) attempts: Counter,
    pub(crate) opened: Counter,
    pub(crate) closed: Counter,
    /// Those that left the worker, less those that came.
    pub(crate) away: Counter,
    pub(crate) pauses: Counter,
    pub(crate) idle: Counter,
    pub(crate) pending: Counter,
    pub(crate) connect_failures: CauseCounters<5>,
    pub(crate) connect_reasons: ReasonCounters,
    pub(crate) retries: CauseCounters<RETRY_CAUSES_LEN>,
    pub(crate) retries_denied: [Counter; RetryDenial::ALL.len()],
    pub(crate) hedges: Counter,
    pub(crate) hedges_won: Counter,
    pub(crate) choices: [Counter; ChoiceKind::ALL.len()],
    /// Once there was a copy for it.
    pub(crate) mirrors: OnceLock<Box<MirrorCounters>>,
    pub(crate) grpc_calls: GrpcCalls,
    pub(crate) connect: Histogram,
    pub(crate) exchange: Histogram,
    pub(crate) first_byte: Histogram,
}

/// Copies of requests for one cluster on one worker.
#[derive(Debug, Default)]
pub(crate) struct MirrorCounters {
    pub(crate) sent: [Counter; CLASSES.len()],
    pub(crate) dropped: [Counter; MirrorDrop::ALL.len()],
}

/// Memory is counted for clusters by the thousand: this is what a cluster that has traffic costs
/// on each worker.
const _: () = assert!(size_of::<ClusterBlock>() <= 3712);

impl ClusterBlock {
    pub(crate) fn exchange_finished(&self, event: &ExchangeFinished<'_>) {
        let class = if event.is_reply { 0 } else { class_place(event.status) };
        if let Some(counter) = self.classes.get(class) {
            counter.increment();
        }
        let is_of_cluster = matches!(event.fault, Fault::Proxy | Fault::Upstream);
        if class == CLASS_5XX || class == CLASS_NONE && is_of_cluster {
            self.failed.increment();
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

    pub(crate) fn endpoint_chosen(&self, kind: ChoiceKind) {
        if let Some(counter) = self.choices.get(kind as usize) {
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
        totals.exchanges_failed_total += self.failed.value();
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
    pub(crate) causes: CauseTotals,
    pub(crate) lifetime: Histogram,
}

impl UpstreamEnds {
    pub(crate) fn closed(&self, event: &UpstreamClosed) {
        if let Some(cause) = event.cause {
            self.causes.increment(cause);
        }
        self.lifetime.record(event.lifetime);
    }
}
