//! The end of what a downstream sends or takes: FIN, resets, a response that is sent, and what comes behind
//! it on the connection.

use telemetry::cause::Cause;
use wire::h2::ErrorCode;

use crate::agenda::Note;
use crate::connection::bounds::OUTBOX_BYTES_MAX;
use crate::connection::codec::Opening;
use crate::connection::codec::elements::ReadEnd;
use crate::connection::holding_back::has_request_waiting;
use crate::connection::{Connection, Life};
use crate::exchange::Wait;
use crate::exchange::stage::Stage;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::rate::Rate;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

impl Proxy {
    /// The downstream sent FIN.
    pub(in crate::proxy) fn on_downstream_end(&mut self, key: ConnKey, now: Time) {
        match self.connections.get(key).and_then(Connection::opening) {
            Some(Opening::Detect) => self.on_detect_end(key, now),
            // A hello that is not whole names nothing, and nothing can come of it.
            Some(Opening::Hello) => {
                let detail = || {
                    Detail::of(
                        &"the peer closed the connection before the end of the handshake: FIN",
                    )
                };
                self.log_failed(key, Cause::TlsHandshakeFailed, detail, now);
                return self.close_downstream(key, Some(Cause::TlsHandshakeFailed), now);
            }
            Some(Opening::ProxyHeader | Opening::Handshake) | None => {}
        }
        if self.connections.get(key).is_some_and(has_request_waiting) {
            // It came before the end.
            self.consume_left(key, now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (exchange, is_sent) = (connection.exchange(), connection.is_sent());
        let end =
            if connection.is_lingering() { ReadEnd::Between } else { connection.codec.on_eof() };
        match (end, exchange) {
            // A client that takes nothing more on any stream says so; this one is gone.
            (ReadEnd::OfStreams, _) => {
                self.note_client_end(key, "FIN");
                self.end_streams(key, Cause::DownstreamClosed, now);
                self.close_downstream(key, None, now);
            }
            (ReadEnd::OfMessage, Some(exchange)) => self.on_request_end(exchange, &[], now),
            (ReadEnd::AmidMessage, Some(exchange)) => {
                self.note_client_end(key, "FIN before the end of the request");
                self.abort(exchange, Cause::DownstreamClosed, now);
            }
            // It asked and now waits for the rest of the answer; nothing more will be asked.
            (_, Some(exchange)) => {
                if let Some(exchange) = self.exchanges.get_mut(exchange) {
                    exchange.request.is_persistent = false;
                }
                if let Some(downstream) = connection.downstream_mut()
                    && downstream.life == Life::Open
                {
                    downstream.life = Life::CloseWhenSent;
                }
            }
            (_, None) if is_sent => {
                self.close_downstream(key, None, now);
            }
            (_, None) => {
                if let Some(downstream) = connection.downstream_mut() {
                    downstream.life = Life::CloseWhenSent;
                }
            }
        }
    }

    /// The downstream is gone; `how`, for the log, if that is known.
    pub(in crate::proxy) fn on_downstream_broken(&mut self, key: ConnKey, how: &str, now: Time) {
        self.note_client_end(key, how);
        self.break_downstream(key, None, now);
    }

    /// Notes how a client went away, for what it still had under way.
    fn note_client_end(&mut self, key: ConnKey, how: &str) {
        if how.is_empty() {
            return;
        }
        for exchange in self.connections.exchanges_on(key) {
            self.exchanges.note_detail(exchange, || Detail::of(&how));
        }
    }

    /// Nothing more can be heard from the downstream, nor said to it.
    pub(in crate::proxy) fn break_downstream(
        &mut self,
        key: ConnKey,
        cause: Option<Cause>,
        now: Time,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let of_exchange = cause.unwrap_or(Cause::DownstreamClosed);
        match connection.exchange() {
            Some(exchange) => self.abort(exchange, of_exchange, now),
            None => {
                self.end_streams(key, of_exchange, now);
                self.close_downstream(key, cause, now);
            }
        }
    }

    /// The downstream took bytes.
    pub(in crate::proxy) fn on_downstream_sent(&mut self, key: ConnKey, sent: Sent, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_ending = connection.is_ending();
        let Some(exchange_key) = connection.exchange() else {
            if sent.left == 0 {
                self.connections.on_downstream_drained(key, now, &mut self.listen, &mut self.cx);
            }
            return;
        };
        self.on_response_sent(exchange_key, sent, is_ending, now);
    }

    /// The downstream took bytes of a response. `is_ended`: nothing follows them.
    pub(in crate::proxy) fn on_response_sent(
        &mut self,
        exchange_key: ExchangeKey,
        sent: Sent,
        is_ended: bool,
        now: Time,
    ) {
        let Sent { bytes, left, .. } = sent;
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        if left > 0 {
            let former = exchange.deadlines.get(Wait::ResponseWrite);
            if bytes > 0 || !former.is_set() {
                let listener = exchange.listener();
                let timeout = listener.timeouts.response_write;
                let is_conversation = exchange.is_conversation();
                let bytes_min =
                    if is_conversation { 0 } else { listener.http.response_rate_bytes_min };
                let (deadline, is_slow) = Rate { bytes_min, timeout }.extend(former, bytes, now);
                exchange.is_response_slow = is_slow;
                self.exchanges.set_deadline(
                    exchange_key,
                    Wait::ResponseWrite,
                    deadline,
                    &mut self.cx,
                );
                if bytes > 0 && !is_slow {
                    self.exchanges.end_response_stall(exchange_key);
                }
            }
            if left >= OUTBOX_BYTES_MAX {
                self.exchanges.on_response_stalled(exchange_key, now);
            } else {
                self.exchanges.end_response_stall(exchange_key);
            }
            return;
        }
        exchange.deadlines.clear(Wait::ResponseWrite);
        if exchange.stall.is_some() {
            self.exchanges.end_response_stall(exchange_key);
        }
        let exchange = self.exchanges.get_mut(exchange_key).expect("a stall ends no exchange");
        if matches!(exchange.stage(), Stage::Finishing) {
            self.finish(exchange_key, None, now);
        } else if is_ended {
            let downstream = exchange.downstream;
            self.connections.shut_side(downstream, &mut self.cx);
            self.finish_tunnel(exchange_key, now);
        }
    }

    /// Goes on with the connection after its exchange.
    pub(super) fn after_exchange(&mut self, at: StreamKey, now: Time) {
        if !at.is_alone() {
            // A client that has its answer need not send the rest (RFC 9113, section 8.1).
            return self.drop_stream(at, ErrorCode::NO_ERROR, now);
        }
        let key = at.connection;
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_complete = connection.codec.is_read_complete() && !connection.is_lingering();
        let has_more = connection.inbox.is_some() || connection.may_have_spoken();
        let Some(downstream) = connection.downstream_mut() else { return };
        downstream.exchange = None;
        match downstream.life {
            Life::Open if is_complete => {
                self.connections.await_request(key, now, &mut self.listen, &mut self.cx);
            }
            Life::Open => {
                // The rest of a body is on its way; the timer that waits for it is this one.
                let state = self.listen.listeners.get(downstream.listener);
                let deadline = now + state.listener().timeouts.request_body;
                self.cx.timers.arm(connection.timer, deadline);
                self.cx.agenda.push(Note::Resume(at));
            }
            // What is still on its way would make closing a reset.
            Life::CloseWhenSent if !has_more && is_complete => {
                self.close_downstream(key, None, now);
            }
            Life::CloseWhenSent | Life::LingerWhenSent | Life::Lingering | Life::Refused => {
                self.connections.linger(key, now, &mut self.listen, &mut self.cx);
            }
        }
    }
}
