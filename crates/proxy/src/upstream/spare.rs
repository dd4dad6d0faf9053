//! Upstream connections that an exchange asked for and then did not need, because its client is gone.
//!
//! Closing them would let a client that cancels what it asks for (HTTP/2, "rapid reset") have the
//! proxy connect and close without end, at the upstream too. So a connection on which nothing was
//! sent stays: one from the pool goes back there, and one that is being established is *spare*. The
//! next request to its endpoint gets it; established before that, it goes to the pool. One that the
//! worker has not begun to connect is forgotten: nothing was done for it yet.

use telemetry::cause::Cause;

use crate::connection::connections::Connections;
use crate::connection::{
    ConnKey, Connection, ExchangeKey, Role, StreamKey, Upstream, UpstreamState,
};
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::fault::{Side, consequence};
use crate::exchange::{Form, QueuedRequest};
use crate::listen::Listen;
use crate::proxy::Proxy;
use crate::tools::time::Time;
use crate::upstream::Upstreams;

/// Connections of a worker that are being established for no exchange; further ones are closed. As
/// many as a client of HTTP/2 may have streams, and a few more.
const SPARES_MAX: usize = 128;

/// Connections that are being established for no exchange, and maybe some that are not any more.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<ConnKey>);

impl Spares {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers one; returns false if there are too many.
    fn insert(&mut self, key: ConnKey, connections: &Connections) -> bool {
        if self.0.len() >= SPARES_MAX {
            self.0.retain(|key| connections.get(*key).is_some_and(is_spare));
        }
        let has_room = self.0.len() < SPARES_MAX;
        if has_room {
            self.0.push(key);
        }
        has_room
    }

    /// Takes out the oldest that an exchange may use.
    pub(crate) fn take(
        &mut self,
        connections: &Connections,
        is_wanted: impl Fn(&Upstream) -> bool,
    ) -> Option<ConnKey> {
        self.0.retain(|key| connections.get(*key).is_some_and(is_spare));
        let upstream = |key: &ConnKey| connections.get(*key).and_then(Connection::upstream);
        let place = self.0.iter().position(|key| upstream(key).is_some_and(&is_wanted))?;
        Some(self.0.remove(place))
    }
}

/// What becomes of a connection whose exchange is gone.
enum Fate {
    Close,
    Pool,
    Spare,
}

impl Connections {
    fn fate_of(&self, key: ConnKey, cause: Option<Cause>, cx: &Cx) -> Fate {
        let Some(connection) = self.get(key) else { return Fate::Close };
        let Some(upstream) = connection.upstream() else { return Fate::Close };
        let is_upstreams_fault =
            cause.is_none_or(|cause| consequence(cause).side == Side::Upstream);
        let is_unused = connection.outbox.is_untouched()
            && connection.inbox.is_none()
            && connection.codec.awaits_head()
            && !connection.is_read_closed
            && !connection.is_send_broken;
        let cluster = cx.snapshot.cluster(upstream.cluster);
        let is_wanted = cluster.is_some_and(|cluster| cluster.original_destination.is_none())
            && cx.drain_deadline.is_none();
        if is_upstreams_fault || !is_unused || !is_wanted || upstream.is_personal {
            return Fate::Close;
        }
        match upstream.state {
            UpstreamState::Connecting { is_begun: true, .. } => Fate::Spare,
            UpstreamState::Busy { .. } => Fate::Pool,
            UpstreamState::Connecting { .. }
            | UpstreamState::Idle(_)
            | UpstreamState::Shared { .. } => Fate::Close,
        }
    }

    /// Takes the request from a connection that has sent nothing of it.
    fn strip(&mut self, key: ConnKey, cx: &mut Cx) {
        let Some(connection) = self.get_mut(key) else { return };
        connection.outbox.clear(&mut cx.buffers);
        connection.codec.await_head();
    }
}

impl Upstreams {
    /// The exchange of an upstream connection is over for this cause before the end of its response.
    pub(crate) fn leave_upstream(
        &mut self,
        key: ConnKey,
        cause: Option<Cause>,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        match connections.fate_of(key, cause, cx) {
            Fate::Close => self.close_upstream(key, cause, now, connections, cx),
            Fate::Pool => {
                connections.strip(key, cx);
                self.put_unused(key, now, connections, cx);
            }
            Fate::Spare => {
                connections.strip(key, cx);
                self.become_spare(key, now, connections, cx);
            }
        }
    }

    fn become_spare(
        &mut self,
        key: ConnKey,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        if !self.spares.insert(key, connections) {
            return self.close_upstream(key, None, now, connections, cx);
        }
        let upstream = connections.get_mut(key).and_then(Connection::upstream_mut);
        let Some(upstream) = upstream else { return };
        if let UpstreamState::Connecting { exchange, .. } = &mut upstream.state {
            *exchange = None;
        }
        let cluster = upstream.cluster;
        self.note_spare(cluster, cx);
    }

    /// A connection that was restored may be spare.
    pub(crate) fn on_spare_restored(&mut self, key: ConnKey, connections: &Connections) {
        if connections.get(key).is_some_and(is_spare) {
            self.spares.insert(key, connections);
        }
    }

    /// Puts a connection that nothing was sent on into its pool.
    pub(crate) fn put_unused(
        &mut self,
        key: ConnKey,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let Some(connection) = connections.get(key) else { return };
        let (timer, is_open) = (connection.timer, !connection.is_read_closed);
        let Some(upstream) = connection.upstream() else { return };
        let ids @ (cluster, _) = (upstream.cluster, upstream.endpoint);
        let known = cx.snapshot.cluster(cluster).filter(|_| cx.drain_deadline.is_none());
        let idle_timeout =
            known.filter(|known| is_open && upstream.is_of(known)).map(|known| known.timeouts.idle);
        match idle_timeout {
            Some(timeout) if self.pools.put_idle(key, ids, connections) => {
                cx.timers.arm(timer, now + timeout);
                self.note_room(cluster, cx);
            }
            _ => self.close_upstream(key, None, now, connections, cx),
        }
    }
}

impl Exchanges {
    /// Gives a request to a connection that is being established.
    fn give_spare(
        &mut self,
        key: ExchangeKey,
        (spare, place): (ConnKey, usize),
        request: QueuedRequest,
        now: Time,
        connections: &mut Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let QueuedRequest { outbox, form: Form::Alone { codec, .. } } = request else {
            unreachable!("a spare connection is found for whole requests only");
        };
        let Some(connection) = connections.get_mut(spare) else { return };
        (connection.outbox, connection.codec) = (outbox, codec);
        if let Some(upstream) = connection.upstream_mut()
            && let UpstreamState::Connecting { exchange, .. } = &mut upstream.state
        {
            *exchange = Some(key);
        }
        if let Some(exchange) = self.get_mut(key) {
            exchange.record.stamps.on_connecting(now);
        }
        self.bind(key, StreamKey::alone(spare), place, now, listen, cx);
    }
}

impl Proxy {
    /// Gives a request to a spare connection, to `place` or to any endpoint of the exchange's cluster; or
    /// gives it back.
    pub(crate) fn try_spare(
        &mut self,
        key: ExchangeKey,
        place: Option<usize>,
        request: QueuedRequest,
        now: Time,
    ) -> Option<QueuedRequest> {
        let Some(spare) = self.find_spare(key, place, &request) else { return Some(request) };
        let Self { exchanges, connections, listen, cx, .. } = self;
        exchanges.give_spare(key, spare, request, now, connections, listen, cx);
        None
    }

    /// A spare connection for a request: to `endpoint`, or to any of the exchange's cluster.
    fn find_spare(
        &mut self,
        key: ExchangeKey,
        place: Option<usize>,
        request: &QueuedRequest,
    ) -> Option<(ConnKey, usize)> {
        if self.upstream.spares.is_empty()
            || !matches!(request.form, Form::Alone { is_personal: false, .. })
        {
            return None;
        }
        let exchange = self.exchanges.get(key)?;
        if self.exchanges.is_raw(key) {
            return None;
        }
        let cluster = exchange.cluster()?;
        let wanted = place.and_then(|place| cluster.endpoints.get(place)).map(|it| it.id);
        let spare = self.upstream.spares.take(&self.connections, |upstream| {
            upstream.cluster == cluster.id
                && upstream.transport == cluster.transport
                && wanted.is_none_or(|id| id == upstream.endpoint)
        })?;
        let endpoint = self.connections.get(spare)?.upstream()?.endpoint;
        let place = place.or_else(|| cluster.endpoints.iter().position(|it| it.id == endpoint));
        // An exchange of another configuration may not know the endpoint.
        place.map(|place| (spare, place))
    }
}

/// Whether a connection is being established for no exchange.
fn is_spare(connection: &Connection) -> bool {
    matches!(
        &connection.role,
        Role::Upstream(Upstream { state: UpstreamState::Connecting { exchange: None, .. }, .. })
    )
}
