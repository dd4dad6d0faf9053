//! Exchanges that wait in the queue of a pool for an upstream connection.

use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::stage::Stage;
use crate::exchange::{Exchange, Wait};
use crate::keys::{ConnKey, ExchangeKey, PoolId};
use crate::listen::clients::ClientPlace;
use crate::tools::time::Time;
use crate::upstream::Upstreams;
use crate::upstream::pool::Pools;

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
        if let Some(route) = &mut exchange.route {
            route.awaits = None;
        }
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

    /// The exchanges that wait to know what this connection of the pool allows.
    pub(crate) fn awaiting(
        &self,
        connection: ConnKey,
        pool: PoolId,
        upstream: &Upstreams,
    ) -> Vec<ExchangeKey> {
        let awaits = |key: &&ExchangeKey| self.get(**key).is_some_and(|it| it.awaits(connection));
        upstream.pools.queue(pool).filter(awaits).copied().collect()
    }

    /// A connection is established that exchanges wait for to know what it allows: they wait as long for that as for a connection
    /// in use.
    pub(crate) fn on_awaited_connected(
        &mut self,
        connection: ConnKey,
        pool: PoolId,
        now: Time,
        upstream: &Upstreams,
        cx: &mut Cx,
    ) {
        for key in self.awaiting(connection, pool, upstream) {
            let Some(exchange) = self.get(key) else { continue };
            let Some(cluster) = exchange.cluster() else { continue };
            let until =
                exchange.deadlines.get(Wait::Connection).min(now + cluster.timeouts.pending);
            self.set_deadline(key, Wait::Connection, until, cx);
        }
    }

    /// An exchange of this client waits no more for a connection of the pool.
    pub(crate) fn give_up_waiting(&self, pool: PoolId, client: ClientPlace, pools: &mut Pools) {
        pools.give_up(pool, client, |key| is_waiting(self.get(key)));
    }
}

impl Exchange {
    /// Whether it waits to know what this connection allows.
    pub(crate) fn awaits(&self, connection: ConnKey) -> bool {
        let awaited = self.route.as_ref().and_then(|route| route.awaits);
        is_waiting(Some(self)) && awaited == Some(connection)
    }
}

pub(crate) const fn is_waiting(exchange: Option<&Exchange>) -> bool {
    matches!(exchange, Some(exchange) if matches!(exchange.stage(), Stage::Waiting { .. }))
}
