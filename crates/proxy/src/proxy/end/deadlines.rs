//! A deadline of an exchange or a connection passes.

use std::time::Duration;

use config::snapshot::DownstreamTimeouts;
use telemetry::cause::Cause;

use crate::connection::codec::http1::{Http1, Receive};
use crate::connection::codec::{Codec, Opening};
use crate::connection::{ConnectionRole, Life, UpstreamState};
use crate::exchange::Wait;
use crate::exchange::stage::Stage;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

/// How long nothing came on a connection that is taken for one to a host that is gone. A call says itself how long it waits: were any
/// time enough, one client could have a new connection opened for each call of a millisecond.
const SILENCE_MIN: Duration = Duration::from_secs(1);

impl Proxy {
    pub(in crate::proxy) fn on_exchange_deadline(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let (wait, deadline) = exchange.deadlines.first();
        if deadline > now {
            self.cx.timers.arm(exchange.timer, deadline);
            return;
        }
        if wait == Wait::Connection && matches!(exchange.stage(), Stage::Buffering { .. }) {
            return self.look_at_buffered(key, now);
        }
        if wait == Wait::Try && self.hedges(key, now) {
            return;
        }
        let Some(exchange) = self.exchanges.get(key) else { return };
        match wait {
            Wait::Pause => return self.on_pause_over(key, now),
            Wait::Backoff => return self.exchanges.on_backoff_over(key, now, &mut self.cx),
            _ => {}
        }
        let (downstream, upstream) = (exchange.downstream, exchange.upstream());
        let cause = exchange.cause_of(wait);
        let cluster = exchange.cluster();
        let is_held_back = match wait {
            // A peer that does not take its bytes has a deadline of its own.
            Wait::ResponseBody => self.connections.is_held_back(downstream),
            Wait::RequestBody => {
                upstream.is_some_and(|upstream| self.connections.is_held_back(upstream))
            }
            Wait::Whole
            | Wait::Filter
            | Wait::Connection
            | Wait::RequestWrite
            | Wait::ResponseHead
            | Wait::ResponseWrite
            | Wait::TunnelIdle
            | Wait::Try
            | Wait::Backoff
            | Wait::Pause => false,
        };
        if is_held_back {
            let timeout = match wait {
                Wait::ResponseBody => cluster.map(|cluster| cluster.timeouts.response_body),
                _ => Some(exchange.listener().timeouts.request_body),
            };
            if let Some(timeout) = timeout {
                return self.exchanges.push_back_deadline(key, wait, now + timeout, &mut self.cx);
            }
        }
        if let Some(bound) = exchange.bound_of(wait) {
            self.exchanges.note_detail(key, || bound);
        }
        if let Some(upstream) = upstream {
            self.leave_silent(upstream, now);
        }
        match wait {
            Wait::ResponseHead | Wait::RequestWrite | Wait::Try => {
                self.fail_attempt(key, cause, now);
            }
            _ => self.fail(key, cause, now),
        }
    }

    /// A call waited too long: if nothing came on its connection since it was sent, nor for [`SILENCE_MIN`], no other is given to that.
    /// The kernel tells nothing of a host that is gone.
    fn leave_silent(&mut self, upstream: StreamKey, now: Time) {
        let Some(connection) = self.connections.get(upstream.connection) else { return };
        let is_silent = connection.multiplex().is_some_and(|multiplex| {
            let stream = multiplex.streams.get(upstream.slot);
            multiplex.rpc().zip(stream).is_some_and(|(rpc, stream)| {
                let heard_at = rpc.heard_at().unwrap_or(connection.opened);
                rpc.is_silent_since(stream) && now >= heard_at + SILENCE_MIN
            })
        });
        if is_silent {
            self.upstream.retire(upstream.connection, &mut self.connections, &mut self.cx);
        }
    }

    /// A client began with TLS, and did not finish in time.
    fn log_handshake_bound(&mut self, key: ConnKey, now: Time) {
        let Some(timeouts) = self.downstream_timeouts(key) else { return };
        let (option, bound) = ("timeouts.tls_handshake of the listener", timeouts.tls_handshake);
        let detail = || Detail::of_bound(option, bound);
        self.log_failed(key, Cause::TlsHandshakeTimeout, detail, now);
    }

    /// A client began with HTTP/2, and did not go on in time.
    pub(in crate::proxy) fn log_head_bound(&mut self, key: ConnKey, now: Time) {
        let Some(timeouts) = self.downstream_timeouts(key) else { return };
        let (option, bound) = ("timeouts.request_head of the listener", timeouts.request_head);
        let detail = || Detail::of_bound(option, bound);
        self.log_failed(key, Cause::RequestHeadTimeout, detail, now);
    }

    fn downstream_timeouts(&self, key: ConnKey) -> Option<DownstreamTimeouts> {
        let downstream = self.connections.get(key)?.downstream()?;
        Some(self.listen.listeners.get(downstream.listener).listener().timeouts)
    }

    /// An endpoint that refused may be connected to again: the exchange that waits first does.
    fn on_pause_over(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.deadlines.clear(Wait::Pause);
        let (_, first) = exchange.deadlines.first();
        let pool = exchange.cluster().and_then(|_| exchange.pool());
        self.cx.timers.arm(exchange.timer, first);
        if let Some(pool) = pool {
            self.serve_waiting(pool, now);
        }
    }

    pub(in crate::proxy) fn on_connection_deadline(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.multiplex().is_some() && !connection.is_shut {
            return self.on_watch(key, now);
        }
        match &connection.role {
            ConnectionRole::Upstream(upstream) => match upstream.state {
                UpstreamState::Connecting { exchange, .. } => {
                    let fault = self.connect_timeout(key);
                    self.on_connect_failed(key, exchange, fault, now);
                }
                UpstreamState::Idle(_) => {
                    self.close_upstream(key, Some(Cause::IdleTimeout), now);
                }
                UpstreamState::Busy { .. } | UpstreamState::Shared { .. } => {}
            },
            ConnectionRole::Downstream(downstream) if downstream.exchange.is_none() => {
                let life = downstream.life;
                let has_begun = connection.inbox.is_some() && downstream.head_began.is_set();
                let requests = connection.requests;
                if downstream.lingering.is_some() {
                    return match life {
                        Life::Lingering | Life::Refused => self.cx.on_lingered(key),
                        Life::Open | Life::CloseWhenSent | Life::LingerWhenSent => {
                            self.close_downstream(key, None, now);
                        }
                    };
                }
                match (&connection.codec, life) {
                    (Codec::Opening(Opening::Handshake), _) => self
                        .connections
                        .on_handshake_timeout(key, now, &mut self.listen, &mut self.cx),
                    (Codec::Opening(Opening::Detect), _) => self.on_detect_timeout(key, now),
                    (Codec::Opening(Opening::Hello), _) => {
                        self.log_handshake_bound(key, now);
                        self.close_downstream(key, Some(Cause::TlsHandshakeTimeout), now);
                    }
                    (Codec::Http1(Http1 { receive: Receive::Head(_), .. }), Life::Open)
                        if self.connections.has_begun_preface(key) =>
                    {
                        // It waits for frames: text of HTTP/1 would tell it nothing.
                        self.log_head_bound(key, now);
                        self.close_downstream(key, Some(Cause::RequestHeadTimeout), now);
                    }
                    (Codec::Http1(Http1 { receive: Receive::Head(_), .. }), Life::Open)
                        if has_begun =>
                    {
                        let state = self.listen.listeners.get(downstream.listener);
                        let bound = state.listener().timeouts.request_head;
                        let detail =
                            Detail::of_bound("timeouts.request_head of the listener", bound);
                        self.refuse_head(key, Cause::RequestHeadTimeout, detail, now);
                    }
                    (
                        Codec::Http1(Http1 { receive: Receive::Head(_), .. })
                        | Codec::Opening(Opening::ProxyHeader),
                        Life::Open,
                    ) => {
                        // Silence is not answered: there is no request that a reply could be to.
                        let is_first = requests == 0;
                        let cause =
                            if is_first { Cause::RequestHeadTimeout } else { Cause::IdleTimeout };
                        self.close_downstream(key, Some(cause), now);
                    }
                    (Codec::Http1(Http1 { receive: Receive::Discard { .. }, .. }), _) => {
                        self.close_downstream(key, Some(Cause::RequestBodyTimeout), now);
                    }
                    _ => self.close_downstream(key, None, now),
                }
            }
            // The exchange has deadlines of its own.
            ConnectionRole::Downstream(_) => {}
        }
    }
}
