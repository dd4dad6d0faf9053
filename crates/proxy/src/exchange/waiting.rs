//! Exchanges that wait in the queue of a pool for an upstream connection.

use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::stage::Stage;
use crate::exchange::{Exchange, Wait};
use crate::keys::{ExchangeKey, PoolId};
use crate::tools::time::Time;
use crate::upstream::Upstreams;

impl Exchanges {
    /// Makes an exchange wait for a connection.
    pub(crate) fn enqueue(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        now: Time,
        upstream: &mut Upstreams,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        let Some((cluster, pool)) = exchange.cluster().zip(exchange.pool()) else { return };
        let timeout = cluster.timeouts.pending;
        exchange.give_request(&mut upstream.pools);
        exchange.begin_waiting(request);
        upstream.pools.wait(pool, exchange.client, key);
        // Who left the queue in vain goes on waiting, not once more.
        if !exchange.deadlines.is_set(Wait::Connection) {
            exchange.record.stamps.wait_began = now;
            self.set_deadline(key, Wait::Connection, now + timeout, cx);
        }
        upstream.note_crowd(pool);
    }

    pub(crate) fn take_waiting(&mut self, key: ExchangeKey, now: Time) -> Option<QueuedRequest> {
        let exchange = self.get_mut(key)?;
        exchange.record.stamps.wait_ended = now;
        exchange.take_waiting()
    }

    /// A connection failed, and with it an attempt of those that wait to know what it allows: they
    /// have no stream on it, and would have it opened again and again.
    pub(crate) fn count_attempts(&mut self, id: PoolId, upstream: &Upstreams) {
        for key in upstream.pools.queue(id) {
            if let Some(exchange) = self.get_mut(*key)
                && exchange.request.asks_upgrade
                && matches!(exchange.stage(), Stage::Waiting { .. })
            {
                exchange.progress.attempts = exchange.progress.attempts.saturating_add(1);
            }
        }
    }
}

pub(crate) const fn is_waiting(exchange: Option<&Exchange>) -> bool {
    matches!(exchange, Some(exchange) if matches!(exchange.stage(), Stage::Waiting { .. }))
}
