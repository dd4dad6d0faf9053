//! A request is given to an upstream connection: one that was idle, or one that is being established.

use crate::connection::UpstreamState;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::listen::Listen;
use crate::tools::time::Time;
use crate::upstream::pool::Pools;

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

    /// Gives a request to a connection that is being established.
    pub(crate) fn give_spare(
        &mut self,
        key: ExchangeKey,
        (spare, place): (ConnKey, usize),
        request: QueuedRequest,
        now: Time,
        pools: &mut Pools,
        connections: &mut Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let QueuedRequest { outbox, form: Form::Alone { codec, .. } } = request else {
            unreachable!("a spare connection is found for whole requests only");
        };
        let Some(connection) = connections.get_mut(spare) else { return };
        (connection.outbox, connection.codec) = (outbox, codec);
        connection.requests = connection.requests.max(1);
        if let Some(upstream) = connection.upstream_mut()
            && let UpstreamState::Connecting { exchange, .. } = &mut upstream.state
        {
            *exchange = Some(key);
        }
        if let Some(exchange) = self.get_mut(key) {
            exchange.record.stamps.on_connecting(now);
        }
        self.bind(key, StreamKey::alone(spare), place, now, pools, listen, cx);
    }
}
