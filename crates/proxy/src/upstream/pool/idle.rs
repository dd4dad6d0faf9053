//! The idle connections of endpoints: a stack for each, linked through the connections themselves, and for
//! each cluster a list of the endpoints that may have some.

use config::priority::Priority;
use config::snapshot::{EndpointId, TransportId};

use super::candidates::Look;
use super::{Acquired, Others, Pool, Pools, Sharing, Wanted};
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::connections::Connections;
use crate::connection::destination::destination_of;
use crate::connection::{Connection, Links, UpstreamState};
use crate::keys::{ConnKey, EndpointKey, PoolId};
use crate::tools::time::Time;
use crate::upstream::balance::Among;

impl Pools {
    /// The newest idle connection of an endpoint, which stands at `place`, if it will do. An exchange that
    /// cannot follow its cluster to another transport gets none: pools have those of the newest.
    #[inline]
    pub(super) fn acquire_idle(
        &mut self,
        (endpoint, transport, priority): (EndpointId, TransportId, Priority),
        place: usize,
        sharing: Sharing,
        connections: &mut Connections,
    ) -> Option<Acquired> {
        let newest = self.endpoint(endpoint)?.known_stack(priority)?.newest?;
        let upstream = connections.get(newest)?.upstream()?;
        if upstream.transport != transport {
            return None;
        }
        match sharing {
            Sharing::Personal => None,
            Sharing::InTurn => {
                let UpstreamState::Idle(Links { older, .. }) = upstream.state else { return None };
                self.leave_pool(upstream.pool());
                self.endpoint(endpoint)?.stack(priority).newest = older;
                if let Some(older) = older {
                    link(connections, older, |links| links.newer = None);
                }
                Some(Acquired::Idle(newest, place))
            }
            Sharing::Together => Some(Acquired::Shared(newest, place)),
        }
    }

    /// An idle connection to any endpoint of the group, or one that makes room for one to the endpoint at `place`. Candidates
    /// of which this snapshot of the cluster knows nothing, or whose connections will not do, are passed over, up to a
    /// bound.
    pub(super) fn acquire_of_others(
        &mut self,
        Others { among, priority, place, wanted, may_open }: Others<'_>,
        sharing: Sharing,
        connections: &mut Connections,
    ) -> Option<Acquired> {
        let Among { cluster, group, .. } = among;
        let id = Pool::new(cluster, priority).id();
        let chosen = cluster.endpoints.get(place).map(|endpoint| endpoint.id);
        let mut candidates = std::mem::take(&mut self.pool(id)?.candidates);
        let found = candidates.find(|endpoint| {
            let Some(state) = self.endpoint(endpoint) else { return Look::Empty };
            let stack = state.stack(priority);
            let Some(newest) = stack.newest else {
                stack.is_candidate = false;
                return Look::Empty;
            };
            let Some(of_newest) = cluster.place_of(endpoint) else { return Look::Unfit };
            // One without a weight, of another group, or ejected, gets nothing more; its idle connections may make
            // room.
            let in_turn = cluster
                .endpoints
                .get(of_newest)
                .filter(|it| group.inner(of_newest).is_some() && it.weight > 0 && among.may_be(it));
            let open = stack.open;
            // What only a new connection will do for need not wait for idle ones to grow old.
            let makes_room = match (in_turn, wanted) {
                (None, _) | (Some(_), Wanted::Room) => true,
                (Some(_), _) if sharing == Sharing::Personal => true,
                (Some(found), Wanted::RoomOf(quota)) if quota.has_more(open, found) => true,
                (Some(_), Wanted::RoomOf(_)) => return Look::Unfit,
                (Some(_), Wanted::Any) => false,
            };
            if makes_room && !may_open && Some(endpoint) != chosen {
                return Look::Unfit;
            }
            let acquired = if makes_room {
                is_unused(newest, connections).then_some(Acquired::Replace(newest, place))
            } else {
                let pool = (endpoint, cluster.transport_at(of_newest).id, priority);
                self.acquire_idle(pool, of_newest, sharing, connections)
            };
            acquired.map_or(Look::Unfit, Look::Found)
        });
        if let Some(state) = self.pool(id) {
            state.candidates = candidates;
        }
        if !may_open && matches!(found, Some(Acquired::Replace(..))) {
            self.keep_endpoint(id);
        }
        found
    }

    /// A connection of a cluster that no exchange uses, for a worker that wants one more.
    pub(crate) fn any_unused(
        &mut self,
        pool: Pool<'_>,
        connections: &Connections,
    ) -> Option<ConnKey> {
        if let Some(endpoint) = pool.cluster.original_destination {
            return self.first_unused((endpoint, pool.priority), connections);
        }
        let mut candidates = std::mem::take(&mut self.pool(pool.id())?.candidates);
        let found = candidates.find(|endpoint| {
            let Some(state) = self.endpoint(endpoint) else { return Look::Empty };
            let stack = state.stack(pool.priority);
            match stack.newest {
                None => {
                    stack.is_candidate = false;
                    Look::Empty
                }
                Some(newest) if is_unused(newest, connections) => Look::Found(newest),
                Some(_) => Look::Unfit,
            }
        });
        if let Some(state) = self.pool(pool.id()) {
            state.candidates = candidates;
        }
        found
    }

    /// A connection of a cluster that exchanges share, and that is old enough.
    pub(crate) fn next_shared(
        &mut self,
        pool: Pool<'_>,
        is_old: impl Fn(Time) -> bool,
        connections: &Connections,
    ) -> Option<ConnKey> {
        let mut candidates = std::mem::take(&mut self.pool(pool.id())?.candidates);
        let is_fit = |key: &ConnKey| {
            let connection = connections.get(*key);
            connection.is_some_and(|it| it.multiplex().is_some() && is_old(it.opened))
        };
        let found = candidates.find(|endpoint| {
            let state = self.known_endpoint(endpoint);
            let stack = state.and_then(|state| state.known_stack(pool.priority));
            let newest = stack.and_then(|stack| stack.newest);
            newest.filter(is_fit).map_or(Look::Unfit, Look::Found)
        });
        if let Some(state) = self.pool(pool.id()) {
            state.candidates = candidates;
        }
        found
    }

    /// Puts a connection on top of its endpoint's stack. Says no if the endpoint is gone and its
    /// place is another's.
    pub(crate) fn put_idle(
        &mut self,
        key: ConnKey,
        EndpointKey { pool, endpoint }: EndpointKey,
        connections: &mut Connections,
    ) -> bool {
        let Some(state) = self.endpoint_or_new(endpoint) else { return false };
        let stack = state.stack(pool.priority);
        let is_candidate = stack.is_candidate;
        let older = match destination_of(connections, key) {
            None => stack.newest.replace(key),
            Some(destination) => self.originals.insert((endpoint, pool.priority, destination), key),
        };
        self.set_links(key, Some(Links { newer: None, older }), connections);
        if let Some(older) = older {
            link(connections, older, |links| links.newer = Some(key));
        }
        self.idle += 1;
        if let Some(state) = self.pool(pool) {
            state.idle += 1;
        }
        if !is_candidate {
            self.add_candidate(pool, endpoint);
        }
        true
    }

    /// Adds an endpoint to the candidates of its cluster, unless it is there. Those of an
    /// original-destination cluster are looked up by their addresses.
    fn add_candidate(&mut self, pool: PoolId, id: EndpointId) {
        let Some(endpoint) = self.endpoint(id) else { return };
        let stack = endpoint.stack(pool.priority);
        if stack.is_candidate || stack.newest.is_none() {
            return;
        }
        let states = self.pools.of_mut(pool.priority).get_mut(pool.cluster.0.slot as usize);
        let state = states.and_then(Option::as_mut).filter(|state| state.id == pool);
        let Some(state) = state else { return };
        let endpoints = &mut self.endpoints;
        state.candidates.insert(id, |other| {
            let place = endpoints.get(other.0.slot as usize).and_then(Option::as_ref);
            place.is_some_and(|state| state.id == other)
        });
        if let Some(endpoint) = self.endpoint(id) {
            endpoint.stack(pool.priority).is_candidate = true;
        }
    }

    /// Writes down where in a pool a connection stands, if it does.
    pub(crate) fn set_links(
        &self,
        key: ConnKey,
        place: Option<Links>,
        connections: &mut Connections,
    ) {
        let Some(upstream) = connections.get_mut(key).and_then(Connection::upstream_mut) else {
            return;
        };
        match (&mut upstream.state, place) {
            (UpstreamState::Shared { links, .. }, _) => *links = place,
            (state, Some(links)) => *state = UpstreamState::Idle(links),
            (_, None) => {}
        }
    }

    /// Takes a connection out of its pool, wherever in the stack it stands.
    pub(crate) fn remove_idle(&mut self, key: ConnKey, connections: &mut Connections) {
        let Some(upstream) = connections.get(key).and_then(Connection::upstream) else { return };
        if let Some(target) = upstream.checks() {
            return self.forget_kept(key, target);
        }
        let Some(Links { newer, older }) = upstream.links() else { return };
        let (endpoint, pool) = (upstream.endpoint, upstream.pool());
        self.leave_pool(pool);
        match newer {
            Some(newer) => link(connections, newer, |links| links.older = older),
            None => match destination_of(connections, key) {
                None => {
                    if let Some(state) = self.endpoint(endpoint) {
                        state.stack(pool.priority).newest = older;
                    }
                }
                Some(destination) => {
                    self.set_newest_to((endpoint, pool.priority, destination), older);
                }
            },
        }
        if let Some(older) = older {
            link(connections, older, |links| links.newer = newer);
        }
    }

    /// A connection of this pool is idle no more.
    fn leave_pool(&mut self, pool: PoolId) {
        self.idle -= 1;
        if let Some(state) = self.pool(pool) {
            state.idle -= 1;
        }
    }

    /// An idle connection to an endpoint, still in its pool.
    pub(crate) fn newest_idle(&mut self, endpoint: EndpointId) -> Option<ConnKey> {
        let newest = self.endpoint(endpoint).and_then(|state| state.any_idle());
        let newest = newest.or_else(|| self.first_original(endpoint));
        newest.or_else(|| self.first_kept(endpoint))
    }
}

/// Whether no exchange has a connection that is in a pool, or waits to hear what it takes: a connection that has not said so
/// yet was opened for one that waits. Were it to make room, two that wait for different endpoints would close each other's
/// connections without end, and no time would pass.
pub(super) fn is_unused(key: ConnKey, connections: &Connections) -> bool {
    connections.get(key).is_some_and(|connection| {
        let has_said = |multiplex: &Multiplex| multiplex.has_peer_settings();
        !connection.is_busy() && connection.multiplex().is_none_or(has_said)
    })
}

/// Changes the neighbours of a connection in a pool.
fn link(connections: &mut Connections, key: ConnKey, change: impl FnOnce(&mut Links)) {
    let upstream = connections.get_mut(key).and_then(Connection::upstream_mut);
    if let Some(UpstreamState::Idle(links) | UpstreamState::Shared { links: Some(links), .. }) =
        upstream.map(|upstream| &mut upstream.state)
    {
        change(links);
    }
}
