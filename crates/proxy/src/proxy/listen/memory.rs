//! What one listener's clients hold in buffers stays below its bound.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use config::snapshot::ListenerId;
use telemetry::cause::Cause;

use crate::connection::Connection;
use crate::connection::codec::streams::Stream;
use crate::connection::codec::watches::Watch;
use crate::connection::connections::Connections;
use crate::exchange::Exchange;
use crate::exchange::buffered::before;
use crate::exchange::exchanges::{EXCHANGE_BYTES, Exchanges};
use crate::keys::{ConnKey, ExchangeKey};
use crate::listen::buffered::{LOOK_INTERVAL, LOOKED_AT_ONCE};
use crate::listen::listeners::ListenerKey;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

/// What a connection holds at least that ends for the memory of the process: an exchange that goes well holds less.
const HOLDER_BYTES_MIN: u64 = 16 << 10;

/// A connection that may end.
struct Holder {
    connection: ConnKey,
    listener: ListenerKey,
    bytes: u64,
    waited_for_since: Time,
}

impl Proxy {
    /// Ends connections of listeners whose clients hold too much.
    pub(in crate::proxy) fn bound_buffered(&mut self, now: Time) {
        let due = self.listen.buffered_due(self.exchanges.bytes(), &self.cx);
        if due.is_none_or(|due| due > now) {
            return;
        }
        let parts = 1 + self.connections.table.len() / LOOKED_AT_ONCE;
        self.listen.buffered_look = now + LOOK_INTERVAL * u32::try_from(parts).unwrap_or(u32::MAX);
        self.set_buffers_threshold();
        self.add_up_buffered();
        if self.listen.listeners.is_over_buffered(self.cx.share) {
            self.end_largest_holders(now);
        }
        let most = self.cx.share.of_bytes(self.cx.memory.buffered_bytes_max());
        let held = self.cx.buffers.leased_bytes().saturating_add(self.exchanges.bytes());
        let excess_bytes = held.saturating_sub(most);
        // What comes this fast may come again. Where none holds much, looking again finds no more.
        if excess_bytes > 0 && self.end_holders_of(excess_bytes, now) {
            self.listen.buffered_look = now + LOOK_INTERVAL / 10;
        }
        self.listen.tell_buffered(&mut self.cx);
    }

    /// Looks at what is held before the next look is due, if that has grown by much since the last one. To be called after a few events.
    #[inline]
    pub fn bound_growth(&mut self, now: Time) {
        if self.cx.buffers.is_over_threshold(self.exchanges.bytes()) {
            self.bound_buffered_at_once(now);
        }
    }

    /// What is free then takes memory, too.
    #[cold]
    fn bound_buffered_at_once(&mut self, now: Time) {
        self.listen.buffered_look = now;
        self.set_buffers_threshold();
        self.bound_buffered(now);
        self.cx.buffers.release_free();
        self.set_buffers_threshold();
    }

    /// Has it looked at again once that has grown by much.
    pub(super) fn set_buffers_threshold(&mut self) {
        let most = self.cx.memory.buffered_bytes_max();
        let most = (most < u64::MAX).then(|| self.cx.share.of_bytes(most));
        self.cx.buffers.set_threshold(most, self.exchanges.bytes());
    }

    /// Looks for the gauges alone, while nothing is near a bound.
    pub(in crate::proxy) fn look_at_held(&mut self) {
        if self.listen.buffered_due(self.exchanges.bytes(), &self.cx).is_none() {
            self.add_up_buffered();
            self.listen.tell_buffered(&mut self.cx);
        }
    }

    fn end_largest_holders(&mut self, now: Time) {
        let mut closed: BTreeMap<ListenerId, u32> = BTreeMap::new();
        let is_over = |proxy: &Self, listener| {
            proxy.listen.listeners.buffered_over(listener, proxy.cx.share) > 0
        };
        for holder in self.holders(|listener| is_over(self, listener), 0, now) {
            if is_over(self, holder.listener) {
                *closed.entry(self.listen.listeners.get(holder.listener).id).or_default() += 1;
                self.listen.listeners.remove_buffered(holder.listener, holder.bytes);
                let max = self.listen.listeners.get(holder.listener).listener().buffered_bytes_max;
                let (held, max) = (holder.bytes >> 10, max.unwrap_or_default() >> 10);
                let words = format_args!(
                    "its client held {held} KiB; buffered_max of the listener: {max} KiB"
                );
                let why = Some(Detail::of(&words));
                self.abort_downstream(holder.connection, Cause::BufferedOverflow, why, now);
                self.settle(now);
            }
        }
        for (listener, closed) in closed {
            self.cx.ops.push_back(Op::BufferedOverflow { listener, closed });
        }
    }

    /// Adds up what the connections of each listener hold.
    fn add_up_buffered(&mut self) {
        self.listen.listeners.forget_buffered();
        for (_, connection) in self.connections.table.iter() {
            let Some(downstream) = connection.downstream() else { continue };
            let bytes = held_by(connection, &self.connections, &self.exchanges);
            self.listen.listeners.add_buffered(downstream.listener, bytes);
        }
    }

    /// Closes connections that hold the most in buffers and exchanges until these hold `excess_bytes` less. Returns whether any did.
    pub(super) fn end_holders_of(&mut self, excess_bytes: u64, now: Time) -> bool {
        let (mut left, mut has_ended) = (excess_bytes, false);
        let mib = self.cx.memory.max_bytes >> 20;
        for holder in self.holders(|_| true, EXCHANGE_BYTES, now) {
            if left == 0 || holder.bytes < HOLDER_BYTES_MIN {
                break;
            }
            left = left.saturating_sub(holder.bytes);
            has_ended = true;
            let held = holder.bytes >> 10;
            let words = format_args!("its client held {held} KiB; limits.memory_max: {mib} MiB");
            let why = Some(Detail::of(&words));
            self.abort_downstream(holder.connection, Cause::Overloaded, why, now);
            self.settle(now);
        }
        has_ended
    }

    /// The connections of some listeners that hold anything, in the order in which they end. Each exchange counts so many bytes beside
    /// its buffers.
    fn holders(
        &self,
        concerns: impl Fn(ListenerKey) -> bool,
        exchange_bytes: u64,
        now: Time,
    ) -> Vec<Holder> {
        let downstreams = self.connections.table.iter().filter_map(|(connection, state)| {
            let listener = state.downstream()?.listener;
            let is_concerned = concerns(listener);
            let held = |state| {
                let exchanges = exchanges_of(state).count() as u64;
                let bytes = held_by(state, &self.connections, &self.exchanges);
                bytes + exchanges * exchange_bytes
            };
            let bytes = if is_concerned { held(state) } else { 0 };
            let waited_for_since = self.waited_for_since(state).unwrap_or(now);
            (bytes > 0).then_some(Holder { connection, listener, bytes, waited_for_since })
        });
        let mut holders: Vec<_> = downstreams.collect();
        holders.sort_by_key(|holder| (Reverse(holder.bytes.ilog2()), holder.waited_for_since));
        holders
    }

    /// Since when the client of a connection is waited for, if it is.
    fn waited_for_since(&self, connection: &Connection) -> Option<Time> {
        let downstream = connection.downstream()?;
        let listener = self.listen.listeners.get(downstream.listener).listener();
        let write_timeout = listener.timeouts.response_write;
        let multiplex = connection.multiplex();
        let streams =
            multiplex.into_iter().flat_map(|all| all.streams.iter()).map(|it| it.exchange);
        let exchanges = downstream.exchange.into_iter().chain(streams);
        let exchanges = exchanges.filter_map(|key| self.exchanges.get(key));
        let of_exchanges = exchanges.filter_map(Exchange::waits_for_client_since);
        let of_frames = multiplex.map(|all| all.watches.get(Watch::Write));
        let of_frames = of_frames.and_then(|deadline| before(deadline, write_timeout));
        let of_head = Some(downstream.head_began).filter(|began| began.is_set());
        of_exchanges.chain(of_frames).chain(of_head).min()
    }
}

/// Bytes of the buffers that stand for a downstream connection: its own, those of its exchanges, and
/// those that wait for or came from upstreams on their behalf.
fn held_by(connection: &Connection, connections: &Connections, exchanges: &Exchanges) -> u64 {
    let of_exchanges =
        exchanges_of(connection).filter_map(|key| exchanges.get(key)).map(|exchange| {
            let upstream = exchange.upstream().map_or(0, |at| {
                let upstream = connections.get(at.connection);
                upstream.map_or(0, |upstream| match upstream.multiplex() {
                    None => upstream.buffered_bytes(),
                    Some(all) => all.streams.get(at.slot).map_or(0, Stream::buffered_bytes),
                })
            });
            exchange.buffered_bytes() + upstream
        });
    (connection.buffered_bytes() + of_exchanges.sum::<usize>()) as u64
}

/// The exchanges of a downstream connection.
fn exchanges_of(connection: &Connection) -> impl Iterator<Item = ExchangeKey> {
    let streams = connection.multiplex().into_iter().flat_map(|all| all.streams.iter());
    connection.exchange().into_iter().chain(streams.map(|stream| stream.exchange))
}
