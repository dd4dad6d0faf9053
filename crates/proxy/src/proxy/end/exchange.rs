//! Every way an exchange can end: [`Proxy::finish`] when its response is sent, [`Proxy::fail`] when a reply
//! has to take the response's place, and [`Proxy::abort`] when no client is left to answer.

use std::fmt;

use telemetry::cause::Cause;
use wire::h2::ErrorCode;

use crate::connection::Life;
use crate::connection::codec::streams::Tail;
use crate::exchange::fault::{Side, consequence};
use crate::exchange::stage::{Stage, Suspended};
use crate::exchange::{Deadlines, Exchange, ExchangeKind, Wait};
use crate::keys::{ExchangeKey, StreamKey};
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

impl Proxy {
    // Ends.

    /// The response is sent, or the reply is: the exchange is over.
    pub(super) fn finish(&mut self, key: ExchangeKey, cause: Option<Cause>, now: Time) {
        let Some(downstream) = self.remove_exchange(key, cause, now) else { return };
        self.after_exchange(downstream, now);
    }

    /// [`Self::fail`] of an exchange whose cause alone does not say why.
    pub(in crate::proxy) fn fail_with(
        &mut self,
        key: ExchangeKey,
        cause: Cause,
        why: &impl fmt::Display,
        now: Time,
    ) {
        self.exchanges.note_detail(key, || Detail::of(why));
        self.fail(key, cause, now);
    }

    /// The exchange cannot go on. If no response was begun, a reply says so; else the response
    /// breaks off where it is.
    pub(in crate::proxy) fn fail(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        self.exchanges.take_reason(key, cause, &self.connections);
        self.exchanges.note_configured_reason(key, cause);
        if self.exchanges.hedges > 0
            && let Some(hedge) = self.exchanges.hedge_left(key, cause)
        {
            return self.fail_second(key, hedge, cause, now);
        }
        let has_responded = self.exchanges.get(key).is_some_and(Exchange::has_responded);
        self.blame(key, cause, now);
        self.drop_upstream(key, Some(cause), now);
        if !self.exchanges.takes_reply(key) {
            return self.abort(key, cause, now);
        }
        match consequence(cause).status {
            Some(status) if !has_responded => self.reply_to_fault(key, status, cause, now),
            Some(_) => self.break_off(key, cause, now),
            None => self.abort(key, cause, now),
        }
    }

    /// The later of two attempts failed, or found no connection: the earlier one is left.
    #[cold]
    fn fail_second(&mut self, key: ExchangeKey, hedge: ExchangeKey, cause: Cause, now: Time) {
        if let Some(upstream) = self.exchanges.get(key).and_then(Exchange::upstream) {
            self.note_failed_attempt(key, upstream, (cause, None), now);
        } else if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.record.cause_detail = None;
        }
        self.return_to_hedge(key, hedge, now);
    }

    /// Counts the end of an attempt for its endpoint, if that is what failed.
    fn blame(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        let Some(upstream) = exchange.upstream() else { return };
        let connection = self.connections.get(upstream.connection);
        exchange.on_failure(cause, connection, &mut self.upstream.pools, &mut self.cx, now);
    }

    /// There is no client left to answer, or the response cannot be completed: the exchange and its
    /// connections end here.
    pub(crate) fn abort(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        self.drop_upstream(key, Some(cause), now);
        let Some(downstream) = self.remove_exchange(key, Some(cause), now) else { return };
        if !downstream.is_alone() {
            return self.drop_stream(downstream, code_of(cause), now);
        }
        let downstream = downstream.connection;
        if let Some(connection) = self.connections.get_mut(downstream)
            && let Some(role) = connection.downstream_mut()
        {
            role.exchange = None;
        }
        self.close_downstream(downstream, Some(cause), now);
    }

    /// An exchange without a downstream ends: a check in order, since enough is known of its endpoint.
    pub(in crate::proxy) fn abandon(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let (Some(_), Some(upstream)) = (exchange.check(), exchange.upstream()) else {
            return self.abort(key, Cause::DownstreamClosed, now);
        };
        // What is sent of a handshake, or of the check, goes out before the end.
        if exchange.kind == ExchangeKind::Tcp
            && !self.connections.send_end(upstream, &[], &mut self.cx)
        {
            return;
        }
        self.finish_check(key, upstream, now);
    }

    /// Enough is known of an endpoint, and its connection, or stream, has sent all.
    pub(super) fn finish_check(&mut self, key: ExchangeKey, upstream: StreamKey, now: Time) {
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.begin_finishing();
        }
        self.end_upstream(upstream, None, ErrorCode::CANCEL, now);
        self.finish(key, None, now);
    }

    /// What of the response is queued still goes out; then the connection closes, which tells the
    /// downstream that the rest is missing.
    fn break_off(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let at = exchange.downstream;
        let downstream = at.connection;
        let Some(connection) = self.connections.get_mut(downstream) else { return };
        if let Some(multiplex) = connection.multiplex_mut() {
            let Some(stream) = multiplex.streams.get_mut(at.slot) else { return };
            if stream.outbox.is_empty() {
                return self.abort(key, cause, now);
            }
            stream.tail = Tail::Reset(code_of(cause).0);
        } else if connection.is_sent() || connection.would_end_early() {
            return self.abort(key, cause, now);
        }
        exchange.begin_finishing();
        exchange.record.cause = Some(cause);
        if let Some(role) = connection.downstream_mut()
            && at.is_alone()
        {
            role.life = Life::CloseWhenSent;
        }
        // All that is waited for now is that the downstream takes what there is.
        exchange.deadlines = Deadlines::default();
        let timeout = exchange.listener().timeouts.response_write;
        self.exchanges.set_deadline(key, Wait::ResponseWrite, now + timeout, &mut self.cx);
        self.connections.discard_request(at, &self.cx);
        self.connections.queue_send(downstream, &mut self.cx);
    }

    /// Takes the upstream connection, or the place in a queue, from an exchange.
    pub(in crate::proxy) fn drop_upstream(
        &mut self,
        key: ExchangeKey,
        cause: Option<Cause>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        exchange.on_answer_over(&mut self.cx);
        exchange.let_go(
            &mut self.listen.clients,
            &mut self.exchanges.stalls,
            &mut self.upstream.pools,
        );
        match exchange.take_stage() {
            Stage::Suspended(Suspended { head, .. }) | Stage::Gathering { head, .. } => {
                self.cx.buffers.give_back(head);
            }
            Stage::Buffering { request }
            | Stage::Retrying { request }
            | Stage::Pausing { request, .. } => {
                request.clear(&mut self.cx.buffers);
            }
            Stage::Waiting { request } => {
                request.clear(&mut self.cx.buffers);
                if let Some(pool) = exchange.pool() {
                    let client = exchange.client;
                    self.exchanges.give_up_waiting(pool, client, &mut self.upstream.pools);
                }
            }
            Stage::Attempting { upstream } | Stage::Responding { upstream } => {
                if upstream.is_alone() {
                    self.upstream.leave_upstream(
                        upstream.connection,
                        cause,
                        now,
                        &mut self.connections,
                        &mut self.cx,
                    );
                } else {
                    self.drop_stream(upstream, ErrorCode::CANCEL, now);
                }
            }
            Stage::Finishing => {}
        }
    }
}

/// How a stream that ends for this cause is reset.
const fn code_of(cause: Cause) -> ErrorCode {
    match consequence(cause).side {
        Side::Downstream => ErrorCode::CANCEL,
        Side::Proxy | Side::Upstream => ErrorCode::INTERNAL_ERROR,
    }
}
