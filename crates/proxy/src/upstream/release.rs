//! What becomes of an upstream connection whose exchange is over, and of one that nothing wants any
//! more: into its pool, out of it, or closed.

use config::snapshot::EndpointId;
use telemetry::cause::Cause;
use telemetry::events::UpstreamClosed;
use wire::h2::ErrorCode;

use crate::connection::check_target::CheckTarget;
use crate::connection::connections::Connections;
use crate::connection::{Connection, UpstreamState};
use crate::cx::Cx;
use crate::keys::{ConnKey, PoolId, label};
use crate::ops::Op;
use crate::tools::time::Time;
use crate::upstream::Upstreams;
use crate::upstream::age::has_served;
use crate::upstream::pool::Pool;

impl Upstreams {
    /// Puts an upstream connection into its pool if it has a free slot and is not there, and takes
    /// it out if it has none. Gives the pool whose exchanges may have the slot.
    pub(crate) fn offer(
        &mut self,
        key: ConnKey,
        connections: &mut Connections,
        cx: &mut Cx,
    ) -> Option<PoolId> {
        let connection = connections.get(key)?;
        let upstream = connection.upstream()?;
        let multiplex = connection.multiplex()?;
        let UpstreamState::Shared { links, .. } = upstream.state else { return None };
        if upstream.is_withheld {
            return None;
        }
        let endpoint = upstream.endpoint;
        if multiplex.is_exhausted() {
            self.retire(key, connections, cx);
            return None;
        }
        let is_of_requests = upstream.checked_port.is_none();
        if is_of_requests && self.pools.is_stream_budget_used(endpoint, connection.requests) {
            if links.is_some() {
                self.pools.on_stream_budget_used(endpoint);
            }
            self.retire(key, connections, cx);
            return None;
        }
        let cluster = cx.snapshot.cluster(upstream.cluster);
        if is_of_requests && cluster.is_some_and(|cluster| has_served(connection, cluster)) {
            self.retire(key, connections, cx);
            return None;
        }
        let is_unused = multiplex.streams.is_empty() && !connection.is_connecting();
        let (endpoint_key, was_used) = (upstream.endpoint_key(), connection.requests > 0);
        // What is being placed counts twice until it is.
        if is_of_requests
            && is_unused
            && was_used
            && !cx.has_part_of_group
            && let Some(cluster) = cluster
            && self.pools.is_over(Pool::new(cluster, endpoint_key.pool.priority), endpoint)
        {
            self.retire(key, connections, cx);
            return None;
        }
        let has_slot = multiplex.free_slots() > 0
            && !multiplex.is_gone
            && (links.is_some() || !connections.is_of_former(key, cx));
        if let Some(target) = upstream.checks() {
            let is_kept = self.keep_for_checks(key, target, has_slot, connections, cx);
            if !is_kept && is_unused {
                self.retire(key, connections, cx);
            }
            return None;
        }
        let ids = upstream.endpoint_key();
        match (has_slot, links) {
            (true, None) if self.pools.put_idle(key, ids, connections) => Some(ids.pool),
            (true, None) => {
                self.retire(key, connections, cx);
                None
            }
            (false, Some(_)) => {
                self.withdraw(key, connections);
                None
            }
            (true, Some(_)) => Some(ids.pool),
            (false, None) => {
                // It was in no pool when its configuration went: nothing else ends it.
                if is_unused && connections.is_of_former(key, cx) {
                    self.retire(key, connections, cx);
                }
                None
            }
        }
    }

    /// Keeps a connection for the next health check, if it has room for one. Returns whether it is kept.
    pub(crate) fn keep_for_checks(
        &mut self,
        key: ConnKey,
        target: CheckTarget,
        has_room: bool,
        connections: &Connections,
        cx: &Cx,
    ) -> bool {
        let upstream = connections.get(key).and_then(Connection::upstream);
        let cluster = upstream.and_then(|upstream| cx.snapshot.cluster(upstream.cluster));
        let endpoint = cluster.and_then(|it| it.endpoints.get(it.place_of(target.endpoint)?));
        match endpoint.filter(|_| has_room && cx.drain_deadline.is_none()) {
            Some(endpoint) => self.pools.keep_for_checks(key, target, endpoint.address.clone()),
            None => {
                self.pools.forget_kept(key, target);
                false
            }
        }
    }

    /// Takes an upstream connection out of its pool.
    pub(crate) fn withdraw(&mut self, key: ConnKey, connections: &mut Connections) {
        let Some(upstream) = connections.get(key).and_then(Connection::upstream) else {
            return;
        };
        if let Some(target) = upstream.checks() {
            return self.pools.forget_kept(key, target);
        }
        if matches!(upstream.state, UpstreamState::Shared { links: Some(_), .. }) {
            self.pools.remove_idle(key, connections);
            self.pools.set_links(key, None, connections);
        }
    }

    /// The group of an upstream connection is about to leave: it takes no more exchanges.
    pub(crate) fn set_aside(&mut self, key: ConnKey, connections: &mut Connections) {
        self.withdraw(key, connections);
        self.own.forget(key);
        if let Some(upstream) = connections.get_mut(key).and_then(Connection::upstream_mut) {
            upstream.is_withheld = true;
        }
    }

    /// An upstream connection takes no more exchanges, and ends with those it has.
    pub(crate) fn retire(&mut self, key: ConnKey, connections: &mut Connections, cx: &mut Cx) {
        self.withdraw(key, connections);
        if let Some(multiplex) = connections.multiplex_mut(key) {
            multiplex.go_away(ErrorCode::NO_ERROR);
            connections.queue_send(key, cx);
        }
    }

    /// Closes an upstream connection, established or not, idle or not. An exchange that waits for one
    /// may have another in its place.
    pub(crate) fn close_upstream(
        &mut self,
        key: ConnKey,
        cause: Option<Cause>,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let is_established =
            connections.get(key).is_some_and(|connection| !connection.is_connecting());
        self.close(key, cause, is_established, now, connections, cx);
    }

    /// The same of one that counts as established, or does not, whatever its state is.
    pub(super) fn close(
        &mut self,
        key: ConnKey,
        cause: Option<Cause>,
        is_established: bool,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let Some(upstream) = connections.get(key).and_then(Connection::upstream) else { return };
        let (ids, is_for_checks) = (upstream.endpoint_key(), upstream.checked_port.is_some());
        let pool = ids.pool;
        self.pools.remove_idle(key, connections);
        let would_end_early = connections.would_end_early(key);
        if !would_end_early {
            connections.send_close_notify(key, cx);
        }
        let Some(connection) = connections.remove_connection(key, cx) else {
            return;
        };
        if cx.emitter.is_debug() {
            cx.debug_closed(key, &connection, cause, now);
        }
        if is_established {
            cx.emitter.upstream_closed(&UpstreamClosed {
                cluster: label(pool.cluster.0),
                cause,
                lifetime: now.nanos_since(connection.opened),
                requests: connection.requests,
            });
        }
        self.pools.on_closed(ids, is_for_checks);
        cx.ops.push_back(if would_end_early { Op::Reset(key) } else { Op::Close(key) });
        self.note_room(pool, cx);
    }

    /// Ends the connections of an endpoint that are in a pool, or not there yet, or of clients that are set apart.
    pub(crate) fn dismiss_idle(
        &mut self,
        endpoint: EndpointId,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        while let Some(key) = self.pools.newest_idle(endpoint) {
            self.dismiss(key, now, connections, cx);
        }
        for key in self.unheard.take(endpoint, connections) {
            self.dismiss(key, now, connections, cx);
        }
        // These are in no pool.
        for key in self.own.connections_to(endpoint, connections) {
            self.own.forget(key);
            self.dismiss(key, now, connections, cx);
        }
    }

    /// Ends an upstream connection that is in a pool, with the exchanges that it has.
    pub(crate) fn dismiss(
        &mut self,
        key: ConnKey,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        if connections.get(key).is_some_and(Connection::is_busy) {
            self.retire(key, connections, cx);
        } else {
            self.close_upstream(key, None, now, connections, cx);
        }
    }

    pub(crate) fn close_upstreams(
        &mut self,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let all =
            connections.table.iter().filter(|(_, connection)| connection.upstream().is_some());
        let all: Vec<_> = all.map(|(key, _)| key).collect();
        for key in all {
            self.close_upstream(key, None, now, connections, cx);
        }
    }
}
