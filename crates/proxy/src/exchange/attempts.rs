//! How attempts at endpoints go: the one place where an attempt's end is counted for its endpoint.

use std::time::Duration;

use config::balance::Balancer;
use config::outlier::AttemptResult;
use telemetry::cause::Cause;
use wire::grpc::Status;

use crate::connection::Connection;
use crate::cx::Cx;
use crate::exchange::fault::{Side, consequence};
use crate::exchange::{Exchange, Stage};
use crate::ops::Op;
use crate::tools::time::Time;
use crate::upstream::pool::{FAILED_MIN, Pools};

/// How an attempt ended, as far as its endpoint is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The head of a final response came, with this status, and goes to the client.
    Answered(u16),
    /// The same, and the request is sent again in its place.
    Retried(u16),
    /// No response came, or it broke off.
    Failed(Cause),
}

impl Exchange {
    /// Its attempt begins. How long that takes is measured where the balancer wants to know: but not where the client still
    /// sends its request, and could make an endpoint look slow.
    #[inline]
    pub(crate) fn on_attempt(&mut self, now: Time) {
        if self.counted_at.is_some() && self.request.is_complete && self.latency_decay().is_some() {
            self.measured_from = Some(now);
        }
    }

    /// Its attempt ended so. A call of gRPC that is being answered has no result before its status.
    #[inline]
    pub(crate) fn on_result(
        &mut self,
        outcome: Outcome,
        pools: &mut Pools,
        cx: &mut Cx,
        now: Time,
    ) {
        if let Some(began) = self.measured_from.take() {
            self.end_measure(began, outcome, pools, now);
        }
        if pools.counts_results {
            self.count_result(outcome, cx);
        }
    }

    /// The response of a call of gRPC ended, with its status.
    pub(crate) fn on_call_result(&self, pools: &Pools, cx: &mut Cx) {
        let Some(call) = self.call.as_ref().filter(|_| pools.counts_results) else { return };
        let status = call.status.and_then(|code| Status::ALL.get(usize::from(code)).copied());
        let status = status.unwrap_or(Status::Unknown);
        // A client may set itself any deadline.
        if status != Status::DeadlineExceeded || call.timeout.is_none() {
            self.count_at_endpoint(AttemptResult::Response(http_status(status)), cx);
        }
    }

    fn end_measure(&self, began: Time, outcome: Outcome, pools: &mut Pools, now: Time) {
        let (Some((_, endpoint)), Some(decay)) = (self.counted_at, self.latency_decay()) else {
            return;
        };
        let length = now - began;
        let has_failed = !matches!(outcome, Outcome::Answered(_));
        let length = if has_failed { length.max(FAILED_MIN) } else { length };
        pools.on_measured(endpoint, length, decay, now);
    }

    #[inline(never)]
    fn count_result(&self, outcome: Outcome, cx: &mut Cx) {
        let result = match outcome {
            Outcome::Answered(_) if self.call.is_some() => return,
            Outcome::Answered(status) | Outcome::Retried(status) => AttemptResult::Response(status),
            Outcome::Failed(cause) => {
                AttemptResult::NoResponse(consequence(cause).status.unwrap_or(502))
            }
        };
        self.count_at_endpoint(result, cx);
    }

    fn count_at_endpoint(&self, result: AttemptResult, cx: &mut Cx) {
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
    /// away, or closed a connection that had been idle; nor for what a client does that takes long to send its request.
    pub(crate) fn blames_endpoint(&self, cause: Cause, connection: Option<&Connection>) -> bool {
        let is_attempting = matches!(self.stage, Stage::Attempting { .. });
        match cause {
            Cause::UpstreamGoingAway => false,
            Cause::UpstreamClosed => {
                !is_attempting || connection.is_none_or(|connection| connection.requests <= 1)
            }
            Cause::RequestTimeout => {
                let is_of_client = self.call.as_ref().is_some_and(|call| call.timeout.is_some());
                is_attempting && self.request.is_complete && !is_of_client
            }
            _ => consequence(cause).side == Side::Upstream,
        }
    }
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
