//! The end of what an upstream takes or sends: a request that is sent, FIN, resets, and the return of its
//! connection to the pool.

use std::sync::Arc;

use config::snapshot::Cluster;
use telemetry::cause::Cause;
use wire::h2::ErrorCode;

use crate::connection::codec::elements::ReadEnd;
use crate::connection::transport::Tls;
use crate::connection::{Connection, Links, UpstreamState};
use crate::exchange::Wait;
use crate::exchange::stage::Stage;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::sent::Sent;
use crate::tools::time::Time;
use crate::upstream::age::{has_served, is_aged};
use crate::upstream::pool::Pool;

impl Proxy {
    /// Ends an exchange's side towards its upstream: a connection of its own for this cause, a stream with
    /// this code.
    pub(in crate::proxy) fn end_upstream(
        &mut self,
        upstream: StreamKey,
        cause: Option<Cause>,
        code: ErrorCode,
        now: Time,
    ) {
        if upstream.is_alone() {
            self.close_upstream(upstream.connection, cause, now);
        } else {
            self.drop_stream(upstream, code, now);
        }
    }

    /// The exchange is done with its connection: back to the pool with it, or away.
    pub(in crate::proxy) fn release(&mut self, upstream: StreamKey, is_clean: bool, now: Time) {
        if !upstream.is_alone() {
            // What is left of the request is of no use.
            return self.drop_stream(upstream, ErrorCode::CANCEL, now);
        }
        let key = upstream.connection;
        // Idle, a connection to an endpoint that is gone, or of a former transport, would take room from
        // those to the others. One that outlived these is an exchange's that began on a former snapshot.
        let is_of_former =
            self.cx.has_former_snapshots() && self.connections.is_of_former(key, &self.cx);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_whole = connection.is_sent()
            && connection.codec.is_between_sends()
            && !connection.is_read_closed
            && !connection.is_send_broken;
        let timer = connection.timer;
        connection.outbox.forget(&mut self.cx.buffers);
        // What comes from now on belongs to no exchange; it is read to be noticed.
        connection.codec.await_head();
        let Some(upstream) = connection.upstream() else { return };
        let ids = upstream.endpoint_key();
        let checks = upstream.checks();
        let cluster = self.cx.snapshot.cluster(ids.pool.cluster).map(Arc::clone);
        let is_kept = is_clean && is_whole && upstream.is_reusable && !is_of_former;
        let is_spent = |cluster: &Arc<Cluster>| {
            checks.is_none()
                && self.connections.get(key).is_some_and(|connection| {
                    has_served(connection, cluster) || is_aged(connection, cluster, now)
                })
        };
        let is_kept = is_kept && self.cx.drain_deadline.is_none();
        let Some(cluster) = cluster.filter(|cluster| is_kept && !is_spent(cluster)) else {
            return self.close_upstream(key, None, now);
        };
        let pool = Pool::new(&cluster, ids.pool.priority);
        if checks.is_none() && self.upstream.pools.is_over(pool, ids.endpoint) {
            return self.close_upstream(key, None, now);
        }
        let is_put = match checks {
            Some(target) => {
                let is_kept =
                    self.upstream.keep_for_checks(key, target, true, &self.connections, &self.cx);
                if is_kept
                    && let Some(upstream) =
                        self.connections.get_mut(key).and_then(Connection::upstream_mut)
                {
                    upstream.state = UpstreamState::Idle(Links { newer: None, older: None });
                }
                is_kept
            }
            None => self.upstream.pools.put_idle(key, ids, &mut self.connections),
        };
        if !is_put {
            return self.close_upstream(key, None, now);
        }
        self.cx.timers.arm(timer, now + cluster.timeouts.idle);
        self.upstream.note_room(ids.pool, &mut self.cx);
    }

    // Ends and progress.

    /// The exchange that an upstream connection carries which has ended. Without one, the connection is
    /// closed with its streams.
    fn exchange_of_ended(&mut self, key: ConnKey, now: Time) -> Option<ExchangeKey> {
        let exchange = self.connections.get(key)?.exchange();
        if exchange.is_none() {
            self.end_streams(key, Cause::UpstreamClosed, now);
            self.close_upstream(key, None, now);
        }
        exchange
    }

    /// The upstream sent FIN.
    pub(in crate::proxy) fn on_upstream_end(&mut self, key: ConnKey, now: Time) {
        // A write that failed took the reset's error with it, and what is read then is 0.
        let was_reset = self.connections.get(key).is_some_and(|it| it.is_send_broken);
        self.connections.note_end(key, if was_reset { "ECONNRESET" } else { "FIN" });
        let Some(exchange) = self.exchange_of_ended(key, now) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.codec.on_eof() {
            ReadEnd::OfMessage if !was_reset => {
                self.on_response_end(StreamKey::alone(key), exchange, &[], true, now);
            }
            ReadEnd::OfMessage | ReadEnd::AmidMessage => {
                self.fail(exchange, Cause::ResponseTruncated, now);
            }
            ReadEnd::Between | ReadEnd::OfStreams => {
                self.fail_attempt(exchange, Cause::UpstreamClosed, now);
            }
        }
    }

    /// The upstream reset the connection.
    pub(in crate::proxy) fn on_upstream_broken(&mut self, key: ConnKey, now: Time) {
        let Some(exchange) = self.exchange_of_ended(key, now) else { return };
        let Some(connection) = self.connections.get(key) else { return };
        if connection.codec.is_amid_body() {
            self.fail(exchange, Cause::ResponseTruncated, now);
        } else {
            self.fail_attempt(exchange, Cause::UpstreamClosed, now);
        }
    }

    /// Nothing more can be sent. The response, or the end, is read before anything is decided: an
    /// upstream may answer early and close. The kernel says why once: it is noted for what waits.
    pub(in crate::proxy) fn on_upstream_send_failed(&mut self, key: ConnKey, how: &str, now: Time) {
        self.connections.note_end(key, how);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.is_send_broken = true;
        if connection.is_read_closed {
            self.on_upstream_broken(key, now);
        } else {
            self.cx.ops.push_back(Op::Read(key));
        }
    }

    /// The upstream took bytes.
    pub(in crate::proxy) fn on_upstream_sent(&mut self, key: ConnKey, sent: Sent, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        // These are the handshake's, which is a part of connecting: the request waits behind them.
        if connection.tls.as_deref().is_some_and(Tls::is_handshaking) {
            return;
        }
        let is_ending = connection.is_ending();
        let Some(exchange_key) = connection.exchange() else { return };
        self.on_request_sent(exchange_key, sent, is_ending, now);
    }

    /// The upstream took bytes of a request. `is_ended`: nothing follows them.
    pub(in crate::proxy) fn on_request_sent(
        &mut self,
        exchange_key: ExchangeKey,
        sent: Sent,
        is_ended: bool,
        now: Time,
    ) {
        let Sent { bytes, left, began } = sent;
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        let stamps = &mut exchange.record.stamps;
        if bytes > 0 || left > 0 || !stamps.written.is_set() {
            stamps.on_written(left == 0, began, now);
        }
        if left > 0 {
            if (bytes > 0 || !exchange.deadlines.is_set(Wait::RequestWrite))
                && let Some(timeouts) = exchange.cluster().map(|cluster| cluster.timeouts)
            {
                self.exchanges.set_deadline(
                    exchange_key,
                    Wait::RequestWrite,
                    now + timeouts.request_write,
                    &mut self.cx,
                );
            }
            return;
        }
        exchange.deadlines.clear(Wait::RequestWrite);
        if is_ended
            && exchange.check().is_some()
            && let Some(upstream) = exchange.upstream()
            && self.connections.get(upstream.connection).is_some_and(Connection::is_sent)
        {
            return self.finish_check(exchange_key, upstream, now);
        }
        let is_tunnel = exchange.progress.is_tunnel;
        if is_ended && is_tunnel {
            if let Some(upstream) = exchange.upstream() {
                self.connections.shut_side(upstream, &mut self.cx);
            }
            self.finish_tunnel(exchange_key, now);
        } else if !exchange.request.is_complete {
            // What a client sends into a tunnel waits for the answer that opens it.
            if !exchange.request.asks_upgrade {
                exchange.record.stamps.await_body(now);
            }
        } else if exchange.request.is_one_way {
            if is_ended {
                self.finish_one_way(exchange_key, now);
            }
        } else if matches!(exchange.stage(), Stage::Attempting { .. }) {
            self.exchanges.await_response_head(exchange_key, now, &mut self.cx);
        }
    }

    /// The upstream has a call that it does not answer.
    fn finish_one_way(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        let Some(upstream) = exchange.upstream() else { return };
        exchange.record.status = 200;
        exchange.progress.has_response = true;
        exchange.on_answer_over(&mut self.cx);
        exchange.begin_finishing();
        exchange.let_go(
            &mut self.listen.clients,
            &mut self.exchanges.stalls,
            &mut self.upstream.pools,
        );
        self.drop_stream(upstream, ErrorCode::NO_ERROR, now);
        self.finish(key, None, now);
    }

    /// Ends a tunnel both of whose sides have sent all and received all.
    pub(in crate::proxy) fn finish_tunnel(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let Some(upstream) = exchange.upstream() else { return };
        let sides = [exchange.downstream, upstream];
        let is_quiet = |side: &StreamKey| {
            self.connections.backlog(*side) == 0 && !self.connections.has_open_end(*side)
        };
        if exchange.request.is_complete
            && exchange.progress.is_response_complete
            && sides.iter().all(is_quiet)
        {
            if let Some(exchange) = self.exchanges.get_mut(key) {
                exchange.begin_finishing();
            }
            self.end_upstream(upstream, None, ErrorCode::NO_ERROR, now);
            self.finish(key, None, now);
        }
    }
}
