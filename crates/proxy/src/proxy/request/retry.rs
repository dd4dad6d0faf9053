//! Hop 8 again: an attempt failed, or was answered by what the rule's `retry` is for.

use std::time::Duration;

use config::snapshot::EndpointId;
use telemetry::cause::Cause;
use telemetry::events::{RetryDenial, UpstreamRetried, UpstreamRetryDenied};
use wire::h2::ErrorCode;
use wire::head::ResponseHead;

use crate::connection::Connection;
use crate::exchange::fault::{Retry, consequence};
use crate::exchange::hedging::WAITS_OF_ATTEMPT;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::retrying::grpc_status;
use crate::exchange::{Exchange, Wait};
use crate::keys::{ConnKey, ExchangeKey, StreamKey, label};
use crate::proxy::Proxy;
use crate::proxy::receive::elements::Following;
use crate::tools::time::Time;
use crate::upstream::pool::Pool;
use crate::upstream::retry::{ATTEMPTS_MAX, Decision, FailedAttempt, Kept};

impl Proxy {
    /// The attempt on this exchange's connection failed before the head of the final response. Tries again
    /// where that is safe, or its rule asks for it, else fails.
    pub(in crate::proxy) fn fail_attempt(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let Some(upstream) = exchange.upstream() else { return self.fail(key, cause, now) };
        let Some(connection) = self.connections.get(upstream.connection) else { return };
        let Some(attempt) = failed_attempt(exchange, connection, upstream, cause) else {
            return self.fail(key, cause, now);
        };
        match self.pace(key, decision(exchange, &attempt), None, now) {
            Some(pause) => {
                let Some(request) = self.retry(key, upstream, cause, None, now) else { return };
                self.end_upstream(upstream, Some(cause), ErrorCode::CANCEL, now);
                self.try_after(key, request, pause, now);
            }
            None => self.fail(key, cause, now),
        }
    }

    /// An upstream connection ends before its peer has said how many streams it takes: the attempts of those that wait for that have
    /// failed, too.
    pub(in crate::proxy) fn fail_awaiting(&mut self, connection: ConnKey, cause: Cause, now: Time) {
        let upstream = self.connections.get(connection).and_then(Connection::upstream);
        let Some(upstream) = upstream else { return };
        let (endpoint, reason) = (upstream.endpoint, upstream.reason.clone());
        for key in self.exchanges.awaiting(connection, upstream.pool(), &self.upstream) {
            // Those that failed before may have ended it.
            if !self.exchanges.get(key).is_some_and(|exchange| exchange.awaits(connection)) {
                continue;
            }
            if let Some(reason) = &reason {
                self.exchanges.note_detail(key, || *reason.clone());
            }
            self.fail_waiting_attempt(key, endpoint, cause, now);
        }
    }

    /// The attempt of an exchange that waits has failed at this endpoint. Nothing of the request was sent.
    fn fail_waiting_attempt(
        &mut self,
        key: ExchangeKey,
        endpoint: EndpointId,
        cause: Cause,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let place = exchange.cluster().and_then(|cluster| cluster.place_of(endpoint));
        if let Some(route) = &mut exchange.route {
            (route.endpoint, route.chosen, route.awaits) = (place.or(route.endpoint), None, None);
        }
        if place.is_none() {
            // Its cluster has that endpoint no more, which is no attempt that failed.
            let Some(request) = self.take_out_of_queue(key, now) else { return };
            return self.exchanges.note_attempt(key, request, &mut self.cx);
        }
        exchange.progress.attempts = exchange.progress.attempts.saturating_add(1);
        // Nothing of it was sent, however the connection ended.
        let as_cause = match consequence(cause).retry {
            Retry::Never => cause,
            _ => Cause::ConnectFailed,
        };
        let decision = decision(exchange, &FailedAttempt::unsent(exchange, as_cause));
        let Some(pause) = self.pace(key, decision, None, now) else {
            return self.fail(key, cause, now);
        };
        let Some(mut request) = self.take_out_of_queue(key, now) else { return };
        self.note_failure(key, cause, now);
        self.count_retry(key, &mut request, cause);
        self.try_after(key, request, pause, now);
    }

    /// An exchange waits no more for a connection of its cluster.
    fn take_out_of_queue(&mut self, key: ExchangeKey, now: Time) -> Option<QueuedRequest> {
        let request = self.exchanges.take_waiting(key, now)?;
        let exchange = self.exchanges.get_mut(key)?;
        exchange.deadlines.clear(Wait::Connection);
        if let Some(pool) = exchange.pool() {
            let client = exchange.client;
            self.exchanges.give_up_waiting(pool, client, &mut self.upstream.pools);
        }
        Some(request)
    }

    /// Whether the request is sent again in place of this response.
    pub(in crate::proxy) fn retries_response(
        &mut self,
        upstream: StreamKey,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        following: Following,
        now: Time,
    ) -> bool {
        let Following { bytes: behind, is_end } = following;
        let Some(exchange) = self.exchanges.get(key) else { return false };
        let Some(policy) = exchange.retry_policy() else { return false };
        if !exchange.asks_to_repeat(head, is_end) {
            return false;
        }
        let is_call = is_end && exchange.call.is_some();
        let Some(connection) = self.connections.get(upstream.connection) else { return false };
        let cause = Cause::ResponseRetried;
        // What is left of the request goes elsewhere: where it was not sent whole, nothing else may follow.
        let is_sent =
            !upstream.is_alone() || (connection.is_sent() && connection.codec.is_between_sends());
        let decision = match failed_attempt(exchange, connection, upstream, cause) {
            Some(attempt) => attempt.by_policy(policy),
            None => Decision::Denied(RetryDenial::Body),
        };
        let value = policy.reset_header().and_then(|name| head.find(name));
        let asked = value.and_then(|value| policy.asked_pause(value, self.cx.random.next()));
        let answer = Some((head.status(), grpc_status(head).filter(|_| is_call)));
        let Some(pause) = self.pace(key, decision, asked, now) else {
            let Some(hedge) = self.exchanges.hedge_left(key, cause) else { return false };
            self.note_failed_attempt(key, upstream, (cause, answer), now);
            self.return_to_hedge(key, hedge, now);
            return true;
        };
        let Some(request) = self.retry(key, upstream, cause, answer, now) else { return false };
        if is_end && is_sent {
            if upstream.is_alone()
                && let Some(connection) = self.connections.get_mut(upstream.connection)
            {
                connection.note_reusable(head);
            }
            self.release(upstream, behind == 0, now);
        } else {
            self.end_upstream(upstream, Some(cause), ErrorCode::CANCEL, now);
        }
        self.try_after(key, request, pause, now);
        true
    }

    /// How long the pause before the next attempt is, as long as the response `asked` if it did; none if there is no other
    /// attempt. Counts why.
    fn pace(
        &mut self,
        key: ExchangeKey,
        decision: Decision,
        asked: Option<Duration>,
        now: Time,
    ) -> Option<Duration> {
        let exchange = self.exchanges.get_mut(key)?;
        let ends_within = |pause: Duration| now + pause >= exchange.deadlines.get(Wait::Whole);
        let denied = match decision {
            Decision::Fail => return None,
            Decision::Again => return Some(Duration::ZERO),
            Decision::Denied(reason) => reason,
            // The response is worth more than its timeout.
            Decision::AfterPause if asked.is_some_and(ends_within) => RetryDenial::Timeout,
            Decision::AfterPause => {
                let pool = Pool::new(exchange.cluster()?, exchange.priority());
                if self.upstream.pools.takes_retry(pool, exchange.progress.is_retry) {
                    exchange.progress.is_retry = true;
                    let number = exchange.progress.attempts;
                    let policy = exchange.retry_policy()?;
                    let own = policy.pause(number, self.cx.random.next());
                    return Some(asked.unwrap_or(own));
                }
                RetryDenial::Budget
            }
        };
        let cluster = label(exchange.route.as_ref()?.cluster?.0);
        let event = UpstreamRetryDenied { cluster, reason: denied };
        self.cx.emitter.upstream_retry_denied(&event);
        None
    }

    /// Takes the request back from its connection, and notes why: `answer`, if it had one, has its status and that of
    /// a call.
    fn retry(
        &mut self,
        key: ExchangeKey,
        upstream: StreamKey,
        cause: Cause,
        answer: Option<(u16, Option<u32>)>,
        now: Time,
    ) -> Option<QueuedRequest> {
        let connection = self.connections.get_mut(upstream.connection)?;
        let mut request = QueuedRequest::take_back(connection, upstream.slot)?;
        self.note_failed_attempt(key, upstream, (cause, answer), now);
        let exchange = self.exchanges.table.get_mut(key)?;
        exchange.begin_finishing();
        exchange.let_go(
            &mut self.listen.clients,
            &mut self.exchanges.stalls,
            &mut self.upstream.pools,
        );
        for wait in WAITS_OF_ATTEMPT {
            exchange.deadlines.clear(wait);
        }
        self.count_retry(key, &mut request, cause);
        Some(request)
    }

    /// An attempt is over, or another one is worth more: notes why, and counts it for its endpoint. `answer`, if it had one, has
    /// its status and that of a call.
    pub(in crate::proxy) fn note_failed_attempt(
        &mut self,
        key: ExchangeKey,
        upstream: StreamKey,
        (cause, answer): (Cause, Option<(u16, Option<u32>)>),
        now: Time,
    ) {
        self.note_failure(key, cause, now);
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        let (pools, cx) = (&mut self.upstream.pools, &mut self.cx);
        match answer {
            Some(answer) => exchange.on_retried(answer, pools, cx, now),
            None => {
                let connection = self.connections.get(upstream.connection);
                exchange.on_failure(cause, connection, pools, cx, now);
            }
        }
    }

    /// The same for the exchange alone.
    fn note_failure(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        exchange.note_tried();
        let endpoint = exchange.endpoint_text(&self.connections);
        exchange.record.note_failed_attempt(endpoint.as_bytes(), cause);
        exchange.record.stamps.on_retry(now);
        if exchange.record.cause.is_none() {
            // What was said of this attempt is no reason for the end.
            exchange.record.cause_detail = None;
        }
    }

    /// A request is sent once more, for this cause: counts that, and tells the upstream if the rule says so.
    pub(super) fn count_retry(
        &mut self,
        key: ExchangeKey,
        request: &mut QueuedRequest,
        cause: Cause,
    ) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        if exchange.retry_policy().is_some_and(|policy| policy.tells_attempts) {
            request.count_attempt(exchange.progress.attempts.saturating_add(1));
        }
        let is_check = exchange.check().is_some();
        if let Some(cluster) = self.exchanges.cluster_label(key).filter(|_| !is_check) {
            self.cx.emitter.upstream_retried(&UpstreamRetried { cluster, cause });
        }
    }

    /// Whether another attempt may begin beside one that takes too long.
    pub(super) fn paces_hedge(&mut self, key: ExchangeKey, upstream: StreamKey, now: Time) -> bool {
        let Some(exchange) = self.exchanges.get(key) else { return false };
        let Some(connection) = self.connections.get(upstream.connection) else { return false };
        let attempt = failed_attempt(exchange, connection, upstream, Cause::TryTimeout);
        let Some((attempt, policy)) = attempt.zip(exchange.retry_policy()) else { return false };
        self.pace(key, attempt.by_policy(policy), None, now).is_some()
    }

    fn try_after(&mut self, key: ExchangeKey, request: QueuedRequest, pause: Duration, now: Time) {
        if pause.is_zero() {
            self.exchanges.note_attempt(key, request, &mut self.cx);
        } else {
            self.exchanges.pause(key, request, (now, now + pause), &mut self.cx);
        }
    }

    /// A piece of a request's body came: beyond what its rule says, it is not kept to be sent again.
    #[cold]
    pub(crate) fn bound_kept_request(&mut self, key: ExchangeKey, upstream: StreamKey) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let bytes = exchange.progress.request_bytes;
        let is_beyond = match exchange.retry_policy().map(|policy| policy.body_bytes_max) {
            Some(bytes_max) if bytes <= bytes_max => return,
            policy => policy.is_some(),
        };
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        let outbox = match connection.codec.multiplex_mut() {
            None => Some(&mut connection.outbox),
            Some(all) => all.streams.get_mut(upstream.slot).map(|stream| &mut stream.outbox),
        };
        let Some(outbox) = outbox else { return };
        if is_beyond {
            outbox.stop_keeping(&mut self.cx.buffers);
        } else {
            outbox.keep_less(&mut self.cx.buffers);
        }
    }
}

/// What follows a failed attempt of this exchange.
fn decision(exchange: &Exchange, attempt: &FailedAttempt) -> Decision {
    match exchange.check() {
        // A check is not made better than it went. Only the end of an idle connection says nothing.
        Some(_) if !attempt.is_reused && attempt.cause != Cause::UpstreamGoingAway => {
            Decision::Fail
        }
        // A service that goes away from each connection has its next check.
        Some(_) if attempt.number >= ATTEMPTS_MAX => Decision::Fail,
        // The later one goes on.
        None if exchange.hedge_of().is_some() => Decision::Fail,
        _ => attempt.decide(exchange.retry_policy()),
    }
}

/// What is known of an attempt that failed; none if its request is no longer there.
fn failed_attempt(
    exchange: &Exchange,
    connection: &Connection,
    upstream: StreamKey,
    cause: Cause,
) -> Option<FailedAttempt> {
    let kept = Kept::of(connection, upstream.slot)?;
    Some(FailedAttempt {
        kept,
        has_answered: exchange.progress.interim_responses > 0 || connection.codec.is_amid_head(),
        is_reused: connection.requests > 1,
        ..FailedAttempt::unsent(exchange, cause)
    })
}
