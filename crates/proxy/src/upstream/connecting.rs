//! Upstream connections that are being established, and what is handed to one that is there.

use telemetry::cause::Cause;
use telemetry::events::UpstreamConnectFailed;

use crate::connection::connections::Connections;
use crate::connection::{Connection, Upstream, UpstreamState};
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::exchange::record::label;
use crate::exchange::stage::Stage;
use crate::keys::{ConnKey, ExchangeKey, PoolId, StreamKey};
use crate::listen::Listen;
use crate::tools::time::Time;
use crate::upstream::Upstreams;
use crate::upstream::pool::Pools;

/// Why a connection cannot be established.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectFault {
    pub(crate) cause: Cause,
    /// A word of the closed set that `telemetry` counts by.
    pub(crate) reason: &'static str,
}

impl Cx {
    /// Counts a connection that cannot be established.
    pub(crate) fn count_connect_failure(
        &mut self,
        upstream: &Upstream,
        fault: ConnectFault,
        now: Time,
    ) {
        self.emitter.upstream_connect_failed(&UpstreamConnectFailed {
            cluster: label(upstream.cluster.0),
            endpoint: label(upstream.endpoint.0),
            reason: fault.reason,
            at: self.wall_clock_zero.saturating_add(now.as_nanos()),
            cause: fault.cause,
        });
    }
}

impl Connections {
    /// Whether the newest snapshot has removed the endpoint, or the cluster, of this upstream connection, or
    /// has endpoints spoken to in another way than on it.
    pub(crate) fn is_of_former(&self, key: ConnKey, cx: &Cx) -> bool {
        let upstream = self.get(key).and_then(Connection::upstream);
        upstream.is_some_and(|upstream| {
            let cluster = cx.snapshot.cluster(upstream.cluster);
            cluster.is_none_or(|cluster| !upstream.is_of(cluster))
        })
    }
}

impl Exchanges {
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

impl Exchanges {
    /// Gives a request to a connection that was idle.
    pub(crate) fn give(
        &mut self,
        key: ExchangeKey,
        upstream: ConnKey,
        place: usize,
        request: QueuedRequest,
        now: Time,
        pools: &mut Pools,
        connections: &mut Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = connections.get_mut(upstream) else { return };
        let Form::Alone { codec, .. } = request.form else {
            unreachable!("streams are given by the connections that have them");
        };
        (connection.outbox, connection.codec) = (request.outbox, codec);
        connection.requests += 1;
        cx.timers.arm(connection.timer, Time::NEVER);
        if let Some(role) = connection.upstream_mut() {
            role.state = UpstreamState::Busy { exchange: key };
            role.is_reusable = false;
        }
        self.bind(key, StreamKey::alone(upstream), place, now, pools, listen, cx);
        connections.queue_send(upstream, cx);
    }
}
