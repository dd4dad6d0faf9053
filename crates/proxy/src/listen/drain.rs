//! The end of a worker, or of a listener: who is told, who may finish, and until when.

use std::time::Duration;

use telemetry::cause::Cause;

use crate::connection::codec::Opening;
use crate::connection::codec::http2::Multiplex;
use crate::connection::connections::Connections;
use crate::connection::{Connection, Downstream};
use crate::cx::Cx;
use crate::listen::Listen;
use crate::listen::listeners::{ListenerKey, Lost};
use crate::proxy::Proxy;
use crate::tools::pinned::Pinned;
use crate::tools::time::Time;

/// How long a kept connection may stay silent once a drain began. Its client may be about to ask,
/// and is answered with `connection: close` then; a silent one shall not hold up the drain.
pub(crate) const DRAIN_IDLE: Duration = Duration::from_secs(5);

impl Connections {
    /// Connections of a drain that are silent end soon.
    fn hasten_idle(&mut self, now: Time, concerns: impl Fn(&Downstream) -> bool, cx: &mut Cx) {
        let deadline = now + DRAIN_IDLE;
        let mut multiplexed = Vec::new();
        for (key, connection) in self.table.iter() {
            let Some(downstream) = connection.downstream() else { continue };
            if !concerns(downstream) {
                continue;
            }
            if connection.multiplex().is_some() {
                multiplexed.push(key);
            } else if downstream.exchange.is_none()
                && deadline < cx.timers.deadline(connection.timer)
            {
                cx.timers.arm(connection.timer, deadline);
            }
        }
        for key in multiplexed {
            self.begin_goaway(key, now, cx);
        }
    }
}

impl Listen {
    /// Whether connections of this downstream end with their exchange.
    pub(crate) fn is_draining(&self, downstream: &Downstream, cx: &Cx) -> bool {
        cx.drain_deadline.is_some() || self.listeners.get(downstream.listener).is_draining()
    }
}

impl Listen {
    /// Lets the connections of a listener end within the drain timeout.
    pub(crate) fn drain_listener(
        &mut self,
        listener: ListenerKey,
        snapshot: &Pinned,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        self.draining_listeners.push((listener, now + snapshot.limits.drain_timeout));
        connections.hasten_idle(now, |downstream| downstream.listener == listener, cx);
    }

    /// Gives connections that met what is lost to the listener that still has it.
    pub(crate) fn move_to_draining(&mut self, lost: &Lost, connections: &mut Connections) {
        let is_concerned = |connection: &Connection| {
            // What such a connection is going to meet is not decided yet.
            let is_new = matches!(
                connection.opening(),
                Some(Opening::ProxyHeader | Opening::Detect | Opening::Hello)
            ) && connection.tls.is_none();
            let downstream = connection.downstream().filter(|_| !is_new);
            downstream.is_some_and(|downstream| {
                downstream.listener == lost.from && lost.concerns(downstream.chain)
            })
        };
        let concerned = connections.table.iter().filter(|(_, connection)| is_concerned(connection));
        let keys: Vec<_> = concerned.map(|(key, _)| key).collect();
        for key in &keys {
            let connection = connections.get_mut(*key);
            if let Some(downstream) = connection.and_then(Connection::downstream_mut) {
                downstream.listener = lost.to;
            }
        }
        self.listeners.on_moved(lost.from, lost.to, keys.len());
    }
}

impl Listen {
    /// Whether nothing is left to wait for, once a drain began.
    pub(crate) fn has_drained(&self, cx: &Cx) -> bool {
        cx.drain_deadline.is_some() && self.listeners.open == 0
    }
}

impl Proxy {
    /// Whether nothing is left to wait for, once a drain began.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.listen.has_drained(&self.cx)
    }

    /// Exchanges that were cut off because a drain took too long.
    #[must_use]
    pub const fn cut_off(&self) -> u32 {
        self.listen.cut_off
    }

    /// Takes no new work: kept connections end with their next response, or when none is asked for
    /// within five seconds, and everything ends when the drain timeout does. The worker stops
    /// accepting.
    pub fn drain(&mut self, now: Time) {
        if self.cx.drain_deadline.is_some() {
            return;
        }
        self.cx.drain_deadline = Some(now + self.cx.snapshot.limits.drain_timeout);
        self.connections.hasten_idle(now, |_| true, &mut self.cx);
        self.end_if_drained(now);
        self.settle(now);
    }

    /// The drain timeout is over: everything ends now.
    pub(crate) fn end_drain(&mut self, now: Time) {
        self.cx.drain_deadline = Some(Time::NEVER);
        self.end_downstreams(now, |_| true);
        self.upstream.close_upstreams(now, &mut self.connections, &mut self.cx);
    }

    /// Closes what is left of a drain once no client can ask for anything any more.
    pub(crate) fn end_if_drained(&mut self, now: Time) {
        if self.listen.has_drained(&self.cx) {
            self.upstream.close_upstreams(now, &mut self.connections, &mut self.cx);
        }
    }

    /// Connections whose drain took too long.
    pub(crate) fn end_downstreams(&mut self, now: Time, concerns: impl Fn(&Downstream) -> bool) {
        let is_concerned = |connection: &Connection| connection.downstream().is_some_and(&concerns);
        let all = self.connections.table.iter().filter(|(_, connection)| is_concerned(connection));
        let all: Vec<_> = all.map(|(key, _)| key).collect();
        for key in all {
            let Some(connection) = self.connections.get(key) else { continue };
            let streams = connection.multiplex().map(Multiplex::exchanges).unwrap_or_default();
            for exchange in connection.exchange().into_iter().chain(streams) {
                self.listen.cut_off += 1;
                self.abort(exchange, Cause::DrainTimeout, now);
            }
            if self.connections.get(key).is_some()
                && !self.connections.hasten_lingering(key, &mut self.cx)
            {
                self.close_downstream(key, None, now);
            }
        }
    }
}
