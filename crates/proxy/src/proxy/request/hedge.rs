//! Hop 8 twice at a time: an attempt that takes too long goes on beside another ([`hedging`](crate::exchange::hedging)).

use telemetry::cause::Cause;
use wire::head::ResponseHead;

use crate::exchange::Wait;
use crate::exchange::queued_request::QueuedRequest;
use crate::keys::{ExchangeKey, StreamKey};
use crate::listen::clients::Part;
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::time::Time;

impl Proxy {
    /// The attempt of an exchange took too long. Returns whether it goes on nevertheless: beside another one, or alone where
    /// no other one may begin.
    #[cold]
    pub(in crate::proxy) fn hedges(&mut self, key: ExchangeKey, now: Time) -> bool {
        let Some(exchange) = self.exchanges.get(key).filter(|exchange| exchange.may_hedge()) else {
            return false;
        };
        let Some(upstream) = exchange.upstream() else { return false };
        // Of two, this one ends.
        let is_second = exchange.hedge().is_some_and(|hedge| self.exchanges.get(hedge).is_some());
        let connection = self.connections.get(upstream.connection);
        // What no endpoint has yet goes to another one instead.
        let is_sent =
            connection.is_some_and(|connection| QueuedRequest::is_sent(connection, upstream.slot));
        if is_second || !is_sent {
            return false;
        }
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.deadlines.clear(Wait::Try);
            let (_, first) = exchange.deadlines.first();
            self.cx.timers.arm(exchange.timer, first);
        }
        if self.paces_hedge(key, upstream, now) {
            self.begin_hedge(key, upstream, now);
        }
        true
    }

    fn begin_hedge(&mut self, key: ExchangeKey, upstream: StreamKey, now: Time) {
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        let Some(mut request) = QueuedRequest::take_sent(connection, upstream.slot) else { return };
        let Some(stamps) = self.exchanges.get(key).map(|exchange| exchange.record.stamps) else {
            return;
        };
        self.note_failed_attempt(key, upstream, (Cause::TryTimeout, None), now);
        self.count_retry(key, &mut request, Cause::TryTimeout);
        if let Some(cluster) = self.exchanges.cluster_label(key) {
            self.cx.emitter.hedge_begun(cluster);
        }
        let timer = self.cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        exchange.end_stall(&mut self.exchanges.stalls);
        let attempt = exchange.part_with_attempt(key, upstream, (timer, stamps), now);
        self.listen.clients.add(attempt.client, Part::Exchange);
        let (_, first) = attempt.deadlines.first();
        let hedge = self.exchanges.table.insert(attempt);
        self.exchanges.hedges += 1;
        self.cx.timers.set_owner(timer, TimerOwner::Exchange(hedge).into());
        self.cx.timers.arm(timer, first);
        self.connections.join(upstream, hedge);
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.own_retries.get_or_insert_default().hedge = Some(hedge);
        }
        self.exchanges.note_attempt(key, request, &mut self.cx);
    }

    /// A response came for an attempt of which there may be two. Returns the exchange that it is for; none if it is dropped,
    /// since the rule's `retry` repeats such a response and the later attempt goes on.
    #[cold]
    pub(in crate::proxy) fn choose_attempt(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        is_end: bool,
        now: Time,
    ) -> Option<ExchangeKey> {
        let exchange = self.exchanges.get_mut(key)?;
        let Some(first) = exchange.hedge_of() else {
            if exchange.hedge().is_some() && !exchange.asks_to_repeat(head, is_end) {
                exchange.end_hedge(&mut self.cx);
                if let Some(cluster) = self.exchanges.cluster_label(key) {
                    self.cx.emitter.hedge_won(cluster);
                }
            }
            return Some(key);
        };
        let waiting = self.exchanges.get(first).filter(|it| it.hedge() == Some(key));
        if waiting.is_none_or(|it| it.asks_to_repeat(head, is_end)) {
            self.abort(key, Cause::ResponseRetried, now);
            return None;
        }
        self.return_to_hedge(first, key, now);
        Some(first)
    }

    /// An exchange goes on with its earlier attempt, and with that alone.
    pub(in crate::proxy) fn return_to_hedge(
        &mut self,
        key: ExchangeKey,
        hedge: ExchangeKey,
        now: Time,
    ) {
        self.drop_upstream(key, None, now);
        let Some(mut other) = self.exchanges.table.remove(hedge) else { return };
        self.exchanges.hedges -= 1;
        self.cx.timers.remove(other.timer);
        self.listen.clients.remove(other.client, Part::Exchange);
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        let Some(upstream) = other.upstream() else { return };
        exchange.take_attempt_of(&mut other, upstream);
        let (timer, (_, first)) = (exchange.timer, exchange.deadlines.first());
        self.cx.timers.arm(timer, first);
        self.connections.join(upstream, key);
        drop(other);
        if self.cx.has_former_snapshots() {
            self.cx.retire_former();
        }
    }
}
