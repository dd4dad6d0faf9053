//! How attempts at endpoints go: the one place where an attempt's end is counted for its endpoint, once.
//!
//! ```text
//!  Began ─► Answering, AnsweringCall ─► Counted
//!     └────────── (failed, or 5xx) ───────┘
//! ```

use std::time::Duration;

use config::adaptive::{Adaptive, Sample};
use config::balance::Balancer;
use config::outlier::AttemptResult;
use config::retry::AskedRetries;
use telemetry::cause::Cause;
use wire::grpc::{GrpcVariant, Status, is_grpc};
use wire::head::{Known, ResponseHead};

use crate::connection::Connection;
use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::fault::{Side, consequence};
use crate::exchange::stage::Stage;
use crate::ops::Op;
use crate::tools::time::Time;
use crate::upstream::pool::{FAILED_MIN, Pools};

/// What of an attempt is still to be counted for its endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Nothing, or it was.
    #[default]
    Counted,
    /// It began then.
    Began(Time),
    /// A response with this status is on its way.
    Answering(u16),
    /// A response to a call of gRPC is, whose own status is behind it.
    AnsweringCall,
}

/// A connection that had been idle, and was closed, shows that within this time of an attempt.
const RACE_MAX: Duration = Duration::from_secs(1);

/// A client that was waited for longer than this, and for most of the attempt, may be the reason for which the endpoint gave up. Less
/// is usual between two pieces of a body.
const CLIENT_WAIT_MIN: Duration = Duration::from_millis(250);

impl Exchange {
    /// Its attempt begins. How long that takes is measured where the balancer wants to know, from the end of the request: a
    /// client that sends slowly does not make an endpoint look slow.
    #[inline]
    pub(crate) fn on_attempt(&mut self, pools: &Pools, now: Time) {
        if self.is_measured() {
            self.measured_from = Some(now);
        }
        // What checks find out counts by itself.
        if pools.counts_results && self.check().is_none() {
            self.attempt = Attempt::Began(now);
        }
    }

    /// The client has sent all of its request: the time that it took is not the endpoint's.
    pub(crate) fn on_request_whole(&mut self, now: Time) {
        if self.measured_from.is_some() {
            self.measured_from = Some(now);
        }
    }

    /// The head of the final response is there.
    #[inline]
    pub(crate) fn on_answered(
        &mut self,
        head: &ResponseHead<'_>,
        pools: &mut Pools,
        cx: &mut Cx,
        now: Time,
    ) {
        if let Some(began) = self.measured_from.take() {
            // A response may come before its request has ended.
            if self.request.is_complete {
                self.end_measure(now - began, pools, now);
            }
            self.observe(now - began, now, cx);
        }
        if self.attempt != Attempt::Counted {
            self.begin_answer(head, cx);
        }
    }

    // Apart, so that what every response asks is short.
    #[inline(never)]
    fn begin_answer(&mut self, head: &ResponseHead<'_>, cx: &mut Cx) {
        self.attempt = Attempt::Answering(head.status());
        let is_call = self.call.as_ref().is_some_and(|call| match &call.web {
            Some(web) => !web.is_foreign,
            None => head.field(Known::ContentType).and_then(is_grpc) == Some(GrpcVariant::Grpc),
        });
        if head.status() >= 500 {
            self.end_answer(cx);
        } else if is_call && head.status() == 200 {
            self.attempt = Attempt::AnsweringCall;
        }
    }

    /// The connection carries bytes of another protocol from here on: the attempt succeeded.
    pub(crate) fn on_tunnel(&mut self, cx: &mut Cx) {
        if self.attempt != Attempt::Counted {
            self.attempt = Attempt::Answering(200);
            self.end_answer(cx);
        }
    }

    /// The response is over, or its client does not wait for the rest of it.
    #[inline]
    pub(crate) fn on_answer_over(&mut self, cx: &mut Cx) {
        if self.attempt != Attempt::Counted {
            self.end_answer(cx);
        }
    }

    #[inline(never)]
    fn end_answer(&mut self, cx: &mut Cx) {
        let status = match std::mem::take(&mut self.attempt) {
            Attempt::Counted | Attempt::Began(_) => return,
            Attempt::Answering(status) => status,
            Attempt::AnsweringCall => {
                let Some(call) = &self.call else { return };
                let known = call.status.and_then(|code| Status::ALL.get(usize::from(code)));
                let status = known.copied().unwrap_or(Status::Unknown);
                if status == Status::DeadlineExceeded && call.timeout.is_some() {
                    // A client may set itself any deadline.
                    return;
                }
                http_status(status)
            }
        };
        self.count(AttemptResult::Response(status), cx);
    }

    /// The attempt is over, and its response goes to no one: the request is sent again in its place. `grpc_status` is that
    /// of a call, if that is why.
    pub(crate) fn on_retried(
        &mut self,
        (status, grpc_status): (u16, Option<u32>),
        pools: &mut Pools,
        cx: &mut Cx,
        now: Time,
    ) {
        if let Some(began) = self.measure_failure(pools, now) {
            self.observe(now - began, now, cx);
        }
        if std::mem::take(&mut self.attempt) != Attempt::Counted {
            let of_call = grpc_status.and_then(|code| Status::ALL.get(usize::try_from(code).ok()?));
            let status = of_call.map_or(status, |status| http_status(*status));
            self.count(AttemptResult::Response(status), cx);
        }
    }

    /// The attempt failed for this reason: no response came, or it broke off.
    pub(crate) fn on_failure(
        &mut self,
        cause: Cause,
        connection: Option<&Connection>,
        pools: &mut Pools,
        cx: &mut Cx,
        now: Time,
    ) {
        if !self.blames_endpoint(cause, connection, now) {
            return;
        }
        let began = self.measure_failure(pools, now);
        // A failure that comes at once says nothing of how long a response takes.
        if let Some(began) = began.filter(|_| is_for_time(cause)) {
            self.observe(now - began, now, cx);
        }
        if std::mem::take(&mut self.attempt) != Attempt::Counted {
            let status = consequence(cause).status.unwrap_or(502);
            self.count(AttemptResult::NoResponse(status), cx);
        }
    }

    /// Returns when the attempt began, if it was measured.
    fn measure_failure(&mut self, pools: &mut Pools, now: Time) -> Option<Time> {
        let began = self.measured_from.take()?;
        if self.request.is_complete {
            self.end_measure((now - began).max(FAILED_MIN), pools, now);
        }
        Some(began)
    }

    /// The controller of the cluster's concurrency hears how long the attempt took, if there is one.
    fn observe(&self, length: Duration, now: Time, cx: &mut Cx) {
        if let Some(adaptive) = self.controller() {
            adaptive.observe(Sample { length, ended: now.as_nanos() }, || cx.random.next());
        }
    }

    /// Whether the balancer or the controller of the cluster's concurrency wants to know how long attempts take.
    fn is_measured(&self) -> bool {
        let is_compared = self.counted_at.is_some() && self.latency_decay().is_some();
        is_compared || (self.holds_request && self.controller().is_some())
    }

    fn controller(&self) -> Option<&Adaptive> {
        self.cluster()?.adaptive_of(self.priority())
    }

    fn end_measure(&self, length: Duration, pools: &mut Pools, now: Time) {
        if let (Some(at), Some(decay)) = (self.counted_at, self.latency_decay()) {
            pools.on_measured(at.endpoint, length, decay, now);
        }
    }

    fn count(&self, result: AttemptResult, cx: &mut Cx) {
        let place = self.route.as_ref().and_then(|route| route.endpoint);
        let Some((cluster, place)) = self.cluster().zip(place) else { return };
        let Some((policy, endpoint)) = cluster.outlier.as_ref().zip(cluster.endpoints.get(place))
        else {
            return;
        };
        let Some(health) = endpoint.health.get() else { return };
        if let Some(kind) = policy.count(health, result) {
            let (cluster, endpoint) = (cluster.id, endpoint.id);
            cx.ops.push_back(Op::OutlierFound { cluster, endpoint, kind });
        }
    }

    /// How long measured responses count, where the balancer compares these.
    fn latency_decay(&self) -> Option<Duration> {
        match self.cluster()?.balancer {
            Balancer::PeakEwma { decay } => Some(decay),
            _ => None,
        }
    }

    /// Whether the endpoint is to blame for the end of the attempt on this connection. It is not where it said that it goes
    /// away, or closed a connection that had been idle; nor for time that its client, a queue or another endpoint took.
    fn blames_endpoint(&self, cause: Cause, connection: Option<&Connection>, now: Time) -> bool {
        let since = match self.attempt {
            Attempt::Began(since) => Some(now - since),
            _ => None,
        };
        match cause {
            Cause::UpstreamGoingAway | Cause::ResponseBodyTooLarge => false,
            // A client may set itself any time for an attempt, too.
            Cause::TryTimeout
                if self.asked_retries().is_some_and(AskedRetries::has_try_timeout) =>
            {
                false
            }
            _ if self.has_waited_for_client(now) => false,
            Cause::UpstreamClosed => {
                let may_be_race = |connection: &Connection| {
                    connection.multiplex().is_none() && connection.requests > 1
                };
                let is_early = since.is_none_or(|since| since <= RACE_MAX);
                let is_attempting = matches!(self.stage(), Stage::Attempting { .. });
                !(is_attempting && is_early && connection.is_some_and(may_be_race))
            }
            // The rule's own, most of which the attempt had.
            Cause::RequestTimeout => {
                let whole = self.forward().and_then(|forward| forward.timeout);
                let is_of_client = self.call.as_ref().is_some_and(|call| call.timeout.is_some());
                let had_most = |(since, whole): (Duration, Duration)| since >= whole * 9 / 10;
                !is_of_client && since.zip(whole).is_some_and(had_most) && self.waits_for_response()
            }
            _ => consequence(cause).side == Side::Upstream,
        }
    }

    /// Whether an endpoint may have given up because the client did not send its request: that would be the client's way to have an
    /// endpoint ejected for others. Once a response has begun, nothing tells which of the two was waited for.
    fn has_waited_for_client(&self, now: Time) -> bool {
        if self.request.is_complete {
            return false;
        }
        let stamps = &self.record.stamps;
        match self.stage() {
            Stage::Responding { .. } => true,
            // Behind an interim response it is not measured who is waited for.
            _ if stamps.first_byte.is_set() => now >= stamps.first_byte + CLIENT_WAIT_MIN,
            _ => {
                let waited = stamps.waited_for_body(now);
                waited >= CLIENT_WAIT_MIN && waited >= (now - stamps.write_began) / 2
            }
        }
    }

    /// Whether the request is a head alone, so that its client has no part in what takes long.
    fn waits_for_response(&self) -> bool {
        self.request.is_complete && self.progress.request_bytes == 0
    }
}

/// Whether an attempt failed for the time that it took.
const fn is_for_time(cause: Cause) -> bool {
    matches!(cause, Cause::RequestTimeout | Cause::ResponseHeadTimeout | Cause::TryTimeout)
}

/// The status of HTTP that a status of gRPC counts as, as in Envoy.
const fn http_status(status: Status) -> u16 {
    match status {
        Status::Ok => 200,
        Status::Cancelled => 499,
        Status::InvalidArgument | Status::FailedPrecondition | Status::OutOfRange => 400,
        Status::Unauthenticated => 401,
        Status::PermissionDenied => 403,
        Status::NotFound => 404,
        Status::AlreadyExists | Status::Aborted => 409,
        Status::ResourceExhausted => 429,
        Status::Unknown | Status::Internal | Status::DataLoss => 500,
        Status::Unimplemented => 501,
        Status::Unavailable => 503,
        Status::DeadlineExceeded => 504,
    }
}
