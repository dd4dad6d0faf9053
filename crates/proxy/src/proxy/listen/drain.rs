//! A listener, or all of them, ends: connections finish what they are at.

use telemetry::cause::Cause;

use crate::connection::{Connection, Downstream};
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

impl Proxy {
    /// Whether nothing is left to wait for, once a drain began.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.listen.has_drained(&self.cx)
    }

    /// Exchanges that were cut off because a drain took too long, or the process ends at once.
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

    /// Everything ends now, whatever it is at: the process does.
    pub fn end_now(&mut self, now: Time) {
        self.end_all(&Detail::of(&"the process was stopped at once"), now);
        self.settle(now);
    }

    /// The drain timeout is over: everything ends now.
    pub(in crate::proxy) fn end_drain(&mut self, now: Time) {
        self.end_all(&self.drain_bound(), now);
    }

    fn end_all(&mut self, why: &Detail, now: Time) {
        self.cx.drain_deadline = Some(Time::NEVER);
        self.end_downstreams(why, now, |_| true);
        self.end_upstreams(why, now);
    }

    /// What bounds a drain.
    pub(in crate::proxy) fn drain_bound(&self) -> Detail {
        Detail::of_bound("limits.drain_timeout", self.cx.snapshot.limits.drain_timeout)
    }

    /// Closes what is left of a drain once no client can ask for anything any more.
    pub(crate) fn end_if_drained(&mut self, now: Time) {
        if self.listen.has_drained(&self.cx) {
            self.close_upstreams(now);
        }
    }

    /// No client is left.
    pub(in crate::proxy) fn close_upstreams(&mut self, now: Time) {
        if self.cx.has_part_of_group {
            // Some of these connections may be of clients that are about to be here, or elsewhere.
            return;
        }
        self.end_upstreams(&Detail::of(&"the drain is over: no client is left"), now);
    }

    /// Upstream connections close, and copies of requests, which none waits for, end with them.
    fn end_upstreams(&mut self, why: &Detail, now: Time) {
        let copies =
            self.exchanges.table.iter().filter(|(_, exchange)| exchange.detached.is_some());
        let copies: Vec<_> = copies.map(|(key, _)| key).collect();
        for copy in copies {
            self.exchanges.note_detail(copy, || why.clone());
            self.abort(copy, Cause::DrainTimeout, now);
        }
        self.upstream.close_upstreams(now, &mut self.connections, &mut self.cx);
    }

    /// Ends connections that have no time left.
    pub(in crate::proxy) fn end_downstreams(
        &mut self,
        why: &Detail,
        now: Time,
        concerns: impl Fn(&Downstream) -> bool,
    ) {
        let is_concerned = |connection: &Connection| connection.downstream().is_some_and(&concerns);
        let all = self.connections.table.iter().filter(|(_, connection)| is_concerned(connection));
        let all: Vec<_> = all.map(|(key, _)| key).collect();
        for key in all {
            let Some(connection) = self.connections.get(key) else { continue };
            let streams =
                connection.multiplex().map(|all| all.streams.exchanges()).unwrap_or_default();
            for exchange in connection.exchange().into_iter().chain(streams) {
                self.listen.cut_off += 1;
                self.exchanges.note_detail(exchange, || why.clone());
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
