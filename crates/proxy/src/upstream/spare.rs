//! Upstream connections that an exchange asked for and then did not need, because its client is gone.
//!
//! Closing them would let a client that cancels what it asks for (HTTP/2, "rapid reset") have the
//! proxy connect and close without end, at the upstream too. So a connection on which nothing was
//! sent stays: one from the pool goes back there, and one that is being established is *spare*. The
//! next request to its endpoint gets it; established before that, it goes to the pool. One that the
//! worker has not begun to connect is forgotten: nothing was done for it yet.

use telemetry::cause::Cause;
use wire::h1::Scan;

use crate::connection::{
    ConnKey, Connection, ExchangeKey, Receive, Role, Send, StreamKey, Upstream, UpstreamState,
};
use crate::exchange::fault::{Side, consequence};
use crate::exchange::{Form, Unbound};
use crate::proxy::Proxy;
use crate::tools::slab::Slab;
use crate::tools::time::Time;

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
    fn insert(&mut self, key: ConnKey, connections: &Slab<Connection>) -> bool {
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
    fn take(
        &mut self,
        connections: &Slab<Connection>,
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

impl Proxy {
    /// The exchange of an upstream connection is over for this cause before the end of its response.
    pub(crate) fn leave_upstream(&mut self, key: ConnKey, cause: Option<Cause>, now: Time) {
        match self.fate_of(key, cause) {
            Fate::Close => self.close_upstream(key, cause, now),
            Fate::Pool => {
                self.strip(key);
                self.put_unused(key, now);
            }
            Fate::Spare => {
                self.strip(key);
                self.become_spare(key, now);
            }
        }
    }

    fn fate_of(&self, key: ConnKey, cause: Option<Cause>) -> Fate {
        let Some(connection) = self.connections.get(key) else { return Fate::Close };
        let Some(upstream) = connection.upstream() else { return Fate::Close };
        let is_upstreams_fault =
            cause.is_none_or(|cause| consequence(cause).side == Side::Upstream);
        let is_unused = connection.outbox.is_untouched()
            && connection.inbox.is_none()
            && matches!(connection.receive, Receive::Head(_))
            && !connection.is_read_closed
            && !connection.is_send_broken;
        let cluster = self.snapshot.cluster(upstream.cluster);
        let is_wanted = cluster.is_some_and(|cluster| cluster.original_destination.is_none())
            && self.drain_deadline.is_none();
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
    fn strip(&mut self, key: ConnKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.outbox.clear(&mut self.buffers);
        connection.send = Send::Idle;
        connection.receive = Receive::Head(Scan::default());
    }

    fn become_spare(&mut self, key: ConnKey, now: Time) {
        if !self.spares.insert(key, &self.connections) {
            return self.close_upstream(key, None, now);
        }
        let upstream = self.connections.get_mut(key).and_then(Connection::upstream_mut);
        let Some(upstream) = upstream else { return };
        if let UpstreamState::Connecting { exchange, .. } = &mut upstream.state {
            *exchange = None;
        }
        let cluster = upstream.cluster;
        self.note_spare(cluster);
    }

    /// A connection that was restored may be spare.
    pub(crate) fn on_spare_restored(&mut self, key: ConnKey) {
        if self.connections.get(key).is_some_and(is_spare) {
            self.spares.insert(key, &self.connections);
        }
    }

    /// A connection that carries no exchange is established, or cannot be.
    pub(crate) fn on_spare_connected(
        &mut self,
        key: ConnKey,
        result: Result<(), Cause>,
        now: Time,
    ) {
        match result {
            Ok(()) => self.put_unused(key, now),
            Err(cause) => self.close_upstream(key, Some(cause), now),
        }
    }

    /// Puts a connection that nothing was sent on into its pool.
    fn put_unused(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        let (timer, is_open) = (connection.timer, !connection.is_read_closed);
        let Some(upstream) = connection.upstream() else { return };
        let ids @ (cluster, endpoint) = (upstream.cluster, upstream.endpoint);
        let known = self.snapshot.cluster(cluster).filter(|_| self.drain_deadline.is_none());
        let idle_timeout = known
            .filter(|known| is_open && known.has_endpoint(endpoint))
            .map(|known| known.timeouts.idle);
        match idle_timeout {
            Some(timeout) if self.pools.put_idle(key, ids, &mut self.connections) => {
                self.timers.arm(timer, now + timeout);
                self.note_room(cluster);
            }
            _ => self.close_upstream(key, None, now),
        }
    }

    /// A spare connection for a request: to `endpoint`, or to any of the exchange's cluster.
    pub(crate) fn find_spare(
        &mut self,
        key: ExchangeKey,
        place: Option<usize>,
        request: &Unbound,
    ) -> Option<(ConnKey, usize)> {
        if self.spares.is_empty() || !matches!(request.form, Form::Whole { is_personal: false, .. })
        {
            return None;
        }
        let exchange = self.exchanges.get(key)?;
        if self.is_raw(key) {
            return None;
        }
        let cluster = exchange.cluster()?;
        let wanted = place.and_then(|place| cluster.endpoints.get(place)).map(|it| it.id);
        let spare = self.spares.take(&self.connections, |upstream| {
            upstream.cluster == cluster.id && wanted.is_none_or(|id| id == upstream.endpoint)
        })?;
        let endpoint = self.connections.get(spare)?.upstream()?.endpoint;
        let place = place.or_else(|| cluster.endpoints.iter().position(|it| it.id == endpoint));
        // An exchange of another configuration may not know the endpoint.
        place.map(|place| (spare, place))
    }

    /// Gives a request to a connection that is being established.
    pub(crate) fn give_spare(
        &mut self,
        key: ExchangeKey,
        (spare, place): (ConnKey, usize),
        request: Unbound,
        now: Time,
    ) {
        let Unbound { outbox, form: Form::Whole { send, .. } } = request else {
            unreachable!("a spare connection is found for whole requests only");
        };
        let Some(connection) = self.connections.get_mut(spare) else { return };
        (connection.outbox, connection.send) = (outbox, send);
        if let Some(upstream) = connection.upstream_mut()
            && let UpstreamState::Connecting { exchange, .. } = &mut upstream.state
        {
            *exchange = Some(key);
        }
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.record.stamps.on_connecting(now);
        }
        self.bind(key, StreamKey::whole(spare), place, now);
    }
}

/// Whether a connection is being established for no exchange.
fn is_spare(connection: &Connection) -> bool {
    matches!(
        &connection.role,
        Role::Upstream(Upstream { state: UpstreamState::Connecting { exchange: None, .. }, .. })
    )
}
