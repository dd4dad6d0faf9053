//! Health checks: exchanges without a downstream that ask one endpoint whether it is well.
//!
//! ```text
//! CheckTask ─► Retrying ─► Attempting ─► Responding ─► gone: Op::Checked
//!                               └──────── (of TCP, connected; or what is expected came) ─► gone
//! ```
//!
//! A check takes the way that requests take: the connections, TLS, PROXY header and mark of its cluster, and its codec. It
//! differs in four ways: it goes to its endpoint whatever is known of that, no bound of the cluster keeps it from there, it
//! is not tried again but where it met the end of an idle connection, and it counts for no request's statistics. It is
//! answered once: where this worker could not find out, by [`CheckResult::Undecided`].
//!
//! It never moves to another worker or process: what it is on is taken along without it.

use config::checks::{ANSWER_BYTES_MAX, CheckResult, FailureWeight};
use config::health::EndpointHealth;
use telemetry::cause::Cause;
use wire::head::ResponseHead;

use crate::agenda::Note;
use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::check_run::CheckRun;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::fault::{Side, consequence};
use crate::keys::ExchangeKey;
use crate::ops::Op;
use crate::tools::detail::Detail;

/// By this field, an endpoint says of itself that it is not healthy. As in Envoy.
const IMMEDIATE_FAILURE: &[u8] = b"x-envoy-immediate-health-check-fail";

/// By this field in the answer to a check, an endpoint says of itself that it is degraded. As in Envoy.
const DEGRADED: &[u8] = b"x-envoy-degraded";

impl CheckRun {
    /// Why it failed, as far as its exchange knows.
    fn reason(&self, exchange: &Exchange, cause: Cause) -> String {
        let (timeout, stamps) = (self.timeout(), &exchange.record.stamps);
        let detail = exchange.record.cause_detail.as_ref().map_or(&[][..], Detail::as_bytes);
        match cause {
            Cause::RequestTimeout if exchange.progress.has_response => {
                format!("the response was not complete after {timeout:?}")
            }
            Cause::RequestTimeout if exchange.progress.attempts == 0 => {
                format!("no stream of a connection was free for {timeout:?}")
            }
            // A connection that was kept has no stamp of its own.
            Cause::RequestTimeout if stamps.connected.is_set() || stamps.written.is_set() => {
                format!("no answer after {timeout:?}")
            }
            Cause::RequestTimeout => format!("no connection after {timeout:?}"),
            _ if detail.is_empty() => cause.as_str().to_owned(),
            _ => format!("{}: {}", cause.as_str(), String::from_utf8_lossy(detail)),
        }
    }

    /// What is learnt of the endpoint, now that the exchange is over.
    fn conclude(&self, exchange: &Exchange, cause: Option<Cause>) -> CheckResult {
        let failed = |reason: String| CheckResult::Failed {
            reason: reason.into(),
            weight: match cause {
                _ if self.has_failed_itself => FailureWeight::Final,
                Some(Cause::RequestTimeout | Cause::ConnectTimeout) => FailureWeight::Late,
                _ => FailureWeight::Usual,
            },
        };
        if self.has_failed_itself {
            return failed(format!(
                "the endpoint reported failure: {}",
                IMMEDIATE_FAILURE.escape_ascii()
            ));
        }
        if let Some(verdict) = &self.verdict {
            return verdict.clone();
        }
        // What was read is enough, where more than that came.
        let is_read = self.received >= ANSWER_BYTES_MAX && exchange.progress.has_response;
        match cause {
            Some(cause) if !is_read && is_own(cause, exchange) => CheckResult::Undecided,
            Some(cause) if !is_read => failed(self.reason(exchange, cause)),
            _ => {
                let Some(check) = self.check() else { return CheckResult::Undecided };
                let grpc_status = exchange.call.as_ref().and_then(|call| call.status);
                match check.probe.judge(exchange.record.status, grpc_status, &self.body) {
                    Ok(()) if self.is_degraded => CheckResult::Degraded,
                    Ok(()) => CheckResult::Passed,
                    Err(reason) => failed(reason),
                }
            }
        }
    }
}

/// Whether a check that ends for this cause says nothing of its endpoint.
fn is_own(cause: Cause, exchange: &Exchange) -> bool {
    let detail = exchange.record.cause_detail.as_ref().map_or(&[][..], Detail::as_bytes);
    match cause {
        // There is no one but the endpoint to wait for.
        Cause::RequestTimeout | Cause::TunnelIdleTimeout | Cause::PendingTimeout => false,
        // This machine has no port left.
        Cause::ConnectFailed => detail == b"EADDRNOTAVAIL",
        _ => consequence(cause).side != Side::Upstream,
    }
}

impl Exchange {
    /// The health check that it is, if it is one.
    #[inline]
    pub(crate) fn check(&self) -> Option<&CheckRun> {
        self.detached.as_ref()?.check.as_deref()
    }

    fn check_mut(&mut self) -> Option<&mut CheckRun> {
        self.detached.as_mut()?.check.as_deref_mut()
    }

    /// Looks whether the endpoint says of itself that it is degraded, if this is a check, or that it is not healthy. It counts
    /// where endpoints have checks to pass.
    #[cold]
    pub(crate) fn note_own_health(&mut self, head: &ResponseHead<'_>, cx: &mut Cx) {
        if let Some(run) = self.check_mut() {
            run.is_degraded = head.contains(DEGRADED);
        }
        let Some(cluster) = self.cluster().filter(|cluster| !cluster.checks.is_empty()) else {
            return;
        };
        if !head.contains(IMMEDIATE_FAILURE) {
            return;
        }
        let id = cluster.id;
        let place = self.route.as_ref().and_then(|route| route.endpoint);
        let found = place.and_then(|place| cluster.endpoints.get(place));
        let is_new = found.and_then(|it| it.health.get()).is_some_and(EndpointHealth::fails_itself);
        let endpoint = found.map(|found| found.id);
        match (self.check_mut(), endpoint) {
            (Some(run), _) => run.has_failed_itself = true,
            (None, Some(endpoint)) if is_new => {
                cx.ops.push_back(Op::FailedItself { cluster: id, endpoint });
            }
            (None, _) => {}
        }
    }
}

impl Exchanges {
    /// What came for an exchange without a downstream is dropped, once a check has looked at it.
    #[cold]
    pub(crate) fn take_detached_data(&mut self, key: ExchangeKey, data: &[u8], cx: &mut Cx) {
        let Some(run) = self.get_mut(key).and_then(Exchange::check_mut) else { return };
        let was_over = run.verdict.is_some() || run.received >= ANSWER_BYTES_MAX;
        if run.take(data) && !was_over {
            cx.agenda.push(Note::Abandon(key));
        }
    }

    /// The connection of a check of TCP stands: that may be all that is asked for.
    #[cold]
    pub(crate) fn on_check_connected(&mut self, key: ExchangeKey, cx: &mut Cx) {
        let Some(run) = self.get_mut(key).and_then(Exchange::check_mut) else { return };
        if run.take(&[]) {
            cx.agenda.push(Note::Abandon(key));
        }
    }
}

/// Reports how a check went. It is in no access log, and no statistics of requests.
#[cold]
pub(crate) fn report_check(exchange: &Exchange, run: &CheckRun, cause: Option<Cause>, cx: &mut Cx) {
    let (number, result) = (run.number, run.conclude(exchange, cause));
    cx.ops.push_back(Op::Checked { number, result });
}
