//! How a connection under way becomes spare, or goes to its pool, when its exchange is gone.

use telemetry::cause::Cause;

use crate::connection::connections::Connections;
use crate::connection::{Connection, UpstreamState};
use crate::cx::Cx;
use crate::exchange::fault::{Side, consequence};
use crate::keys::ConnKey;
use crate::tools::time::Time;
use crate::upstream::Upstreams;
use crate::upstream::spare::is_spare;

/// What becomes of a connection whose exchange is gone.
enum Fate {
    Close,
    Pool,
    Spare,
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
        match fate_of(key, cause, connections, cx) {
            Fate::Close => self.close_upstream(key, cause, now, connections, cx),
            Fate::Pool => {
                strip(key, connections, cx);
                self.put_unused(key, now, connections, cx);
            }
            Fate::Spare => {
                strip(key, connections, cx);
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
        let pool = upstream.pool();
        self.note_spare(pool, cx);
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
        let ids = upstream.endpoint_key();
        let pool = ids.pool;
        let known = cx.snapshot.cluster(pool.cluster).filter(|_| cx.drain_deadline.is_none());
        let is_of_requests = upstream.checked_port.is_none();
        let idle_timeout = known
            .filter(|known| is_open && is_of_requests && upstream.is_of(known))
            .map(|known| known.timeouts.idle);
        match idle_timeout {
            Some(timeout) if self.pools.put_idle(key, ids, connections) => {
                cx.timers.arm(timer, now + timeout);
                self.note_room(pool, cx);
            }
            // Of one that was spare, the state does not say yet that it is established.
            _ => self.close(key, None, true, now, connections, cx),
        }
    }
}

fn fate_of(key: ConnKey, cause: Option<Cause>, connections: &Connections, cx: &Cx) -> Fate {
    let Some(connection) = connections.get(key) else { return Fate::Close };
    let Some(upstream) = connection.upstream() else { return Fate::Close };
    let is_upstreams_fault = cause.is_none_or(|cause| consequence(cause).side == Side::Upstream);
    let is_unused = connection.outbox.is_untouched()
        && connection.inbox.is_none()
        && connection.codec.awaits_head()
        && !connection.is_read_closed
        && !connection.is_send_broken;
    let cluster = cx.snapshot.cluster(upstream.cluster);
    let is_wanted = cluster.is_some_and(|cluster| cluster.original_destination.is_none())
        && cx.drain_deadline.is_none();
    if is_upstreams_fault
        || !is_unused
        || !is_wanted
        || upstream.is_personal
        || upstream.checked_port.is_some()
    {
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
fn strip(key: ConnKey, connections: &mut Connections, cx: &mut Cx) {
    let Some(connection) = connections.get_mut(key) else { return };
    connection.outbox.clear(&mut cx.buffers);
    connection.codec.await_head();
}
