//! Upstream connections by endpoint, and the exchanges that wait for one.
//!
//! What changes at run time stands here, under the stable ids of clusters and endpoints; a cluster
//! without a request yet takes no memory. Idle connections of an endpoint form a stack, linked
//! through the connections themselves: the newest is used first, so that the ones a burst left
//! over grow old and close. They are all of the transport that the newest snapshot has for their cluster: those of a former one
//! leave the pool when that comes, and none enters it. A cluster has a list of the endpoints that may have some, so that where no
//! more may be opened one is found at a cost that does not depend on the number of endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use config::balance::Balancer;
use config::snapshot::{Cluster, ClusterId, Endpoint, EndpointId, Id, TransportId};
use telemetry::cause::Cause;

use self::backoff::{Backoff, Refusing};
use self::candidates::{Candidates, Look};
use self::reserve::{RESERVE_MAX, Reserve};
use self::stream_budget::StreamBudget;
use self::turns::Turns;
use crate::connection::connections::Connections;
use crate::connection::destination::destination_of;
use crate::connection::{Connection, Links, UpstreamState};
use crate::keys::ConnKey;
use crate::listen::clients::{ClientPlace, Clients};
use crate::share::Share;
use crate::tools::peer_address::PeerAddress;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::balance;

mod backoff;
mod candidates;
mod original;
mod queue;
mod reserve;
mod stream_budget;
mod turns;

/// A client has more than its share when it holds more than this part of a cluster's connections.
const SHARE_DIVISOR: u32 = 8;

/// What a worker knows of clusters and endpoints at run time.
#[derive(Debug)]
pub(crate) struct Pools {
    clusters: Vec<Option<ClusterState>>,
    endpoints: Vec<Option<EndpointState>>,
    /// The newest idle connection to each destination of an original-destination cluster, where
    /// there is one: as bounded as those connections are.
    originals: BTreeMap<(EndpointId, SocketAddr), ConnKey>,
    /// The destinations of such clusters that refused.
    refusing: Refusing,
    share: Share,
    /// From when on no cluster has connections reserved, whatever happened so far.
    unreserved_from: Time,
    /// Connections open or being opened.
    pub(crate) open: u32,
    /// Connections in a pool.
    pub(crate) idle: u32,
    /// Exchanges that wait for a connection.
    pub(crate) waiting: u32,
    /// Whether any balancer compares what is under way: while none does, nothing is counted.
    pub(crate) is_counting: bool,
    /// Requests under way at endpoints whose balancer compares them.
    pub(crate) counted: u32,
}

/// What was noted of a cluster since its queue was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Whether a connection may be free, or may be opened.
    pub(crate) has_room: bool,
    /// Connections that are being established and became spare.
    pub(crate) spares: u32,
}

/// A cluster at run time.
#[derive(Debug)]
struct ClusterState {
    id: ClusterId,
    /// Where the balancer stands.
    cursor: u64,
    /// The same of attempts that follow one that failed.
    retry_cursor: u64,
    open: u32,
    idle: u32,
    /// The endpoints that may have idle connections.
    candidates: Candidates,
    /// The exchanges that wait for a connection.
    turns: Turns,
    /// Connections that are kept for others than clients that had more than their share.
    reserve: Reserve,
    /// Whether it is among the clusters that are looked at because exchanges wait.
    is_crowded: bool,
    /// What stands on the agenda for it.
    noted: Noted,
}

impl ClusterState {
    /// Connections that are idle or may be opened.
    const fn free(&self, connections_max: u32) -> u32 {
        connections_max.saturating_sub(self.open) + self.idle
    }
}

/// An endpoint at run time.
#[derive(Debug)]
struct EndpointState {
    id: EndpointId,
    newest: Option<ConnKey>,
    /// Whether it is among the candidates of its cluster.
    is_candidate: bool,
    /// Requests under way, where the balancer compares them.
    requests: u32,
    stream_budget: StreamBudget,
    backoff: Backoff,
}

impl EndpointState {
    fn new(id: EndpointId) -> Self {
        let (stream_budget, backoff) = (StreamBudget::default(), Backoff::default());
        Self { id, newest: None, is_candidate: false, requests: 0, stream_budget, backoff }
    }
}

/// Endpoints that are asked, the one whose turn it is among them, for one that may be connected to.
const OTHERS_MAX: usize = 16;

/// What an exchange gets that asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// This connection, out of the pool.
    Idle(ConnKey, usize),
    /// A stream on this connection, which stays in the pool.
    Shared(ConnKey, usize),
    /// Leave to open one to the endpoint at this place.
    Open(usize),
    /// Leave to open one, in place of this idle one.
    Replace(ConnKey, usize),
    /// A place in the queue.
    Wait,
    /// A place in the queue, although connections are free: they are kept for other clients.
    Reserved,
    /// The same, until an endpoint may be connected to again at this time.
    Pause(Time),
    /// Nothing: the queue is full.
    Overflow,
    /// Nothing, for this reason.
    Nothing(Cause),
}

/// What an exchange asks for that needs a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'c> {
    /// The cluster as the exchange follows it
    /// ([`Exchange::follow_cluster`](crate::exchange::Exchange::follow_cluster)).
    pub(crate) cluster: &'c Cluster,
    /// The cluster as the newest snapshot has it: bounds are of now, not of when an exchange began.
    pub(crate) newest: &'c Cluster,
    /// The endpoint where an attempt failed.
    pub(crate) avoid: Option<EndpointId>,
    /// Where the client's connection was going, for a cluster of original destinations.
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) sharing: Sharing,
    pub(crate) client: ClientPlace,
}

/// How an exchange uses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// It is for this one only, and a new one.
    Personal,
    /// One at a time.
    InTurn,
    /// With others.
    Together,
}

impl Pools {
    pub(crate) fn new(share: Share) -> Self {
        Self {
            clusters: Vec::new(),
            endpoints: Vec::new(),
            originals: BTreeMap::new(),
            refusing: Refusing::default(),
            share,
            unreserved_from: Time::from_nanos(0),
            open: 0,
            idle: 0,
            waiting: 0,
            is_counting: false,
            counted: 0,
        }
    }

    /// Finds a connection for an exchange. What is personal gets a new connection only, and one that is
    /// shared stays where it is. A client that has more than its share gets none that is reserved.
    pub(crate) fn acquire(
        &mut self,
        ask: &Ask<'_>,
        clients: &Clients,
        random: &mut Random,
        now: Time,
        connections: &mut Connections,
    ) -> Acquired {
        if !self.admits(ask.newest, ask.client, clients, now) {
            let has_room = self.has_room_to_wait(ask.newest);
            return if has_room { Acquired::Reserved } else { Acquired::Overflow };
        }
        match ask.cluster.original_destination {
            Some(endpoint) => self.acquire_to(endpoint, ask, random, now, connections),
            None => self.acquire_in_turn(ask, random, now, connections),
        }
    }

    /// An idle connection to the endpoint whose turn it is, else a new one, else an idle one to any
    /// endpoint of the cluster, else a place in the queue.
    fn acquire_in_turn(
        &mut self,
        ask: &Ask<'_>,
        random: &mut Random,
        now: Time,
        connections: &mut Connections,
    ) -> Acquired {
        let Ask { cluster, newest, avoid, sharing, .. } = *ask;
        let share = self.share;
        let Some((place, endpoint)) = self.choose(cluster, avoid, random) else {
            return Acquired::Nothing(Cause::NoEndpoint);
        };
        let Some(state) = self.cluster(cluster.id) else {
            return Acquired::Nothing(Cause::NoEndpoint);
        };
        let has_room = state.open < share.of(newest.connections_max.get());
        let (idle, waiting) = (state.idle, state.turns.waiting());
        let opening = self.place_to_open(cluster, place, now);
        if idle > 0
            && let Some(acquired) =
                self.acquire_idle((endpoint.id, cluster.transport), place, sharing, connections)
        {
            return acquired;
        }
        if has_room {
            return match opening {
                Ok(place) => Acquired::Open(place),
                Err(until) if waiting < share.of(newest.pending_max) => Acquired::Pause(until),
                Err(_) => Acquired::Overflow,
            };
        }
        if idle > 0
            && let Some(acquired) = self.acquire_of_others(cluster, place, sharing, connections)
        {
            return acquired;
        }
        if waiting < share.of(newest.pending_max) { Acquired::Wait } else { Acquired::Overflow }
    }

    /// The endpoint that the cluster's balancer chooses for a request, and its place: another one than
    /// `avoid`, if there is any other. None if the cluster has no endpoints, or is one of a former
    /// configuration whose place is another's by now.
    #[inline]
    fn choose<'c>(
        &mut self,
        cluster: &'c Cluster,
        avoid: Option<EndpointId>,
        random: &mut Random,
    ) -> Option<(usize, &'c Endpoint)> {
        let state = self.cluster_or_new(cluster.id, || random.next())?;
        match cluster.balancer {
            Balancer::RoundRobin => {
                // Were the turn of a retry taken from the others', they would all begin where one failed.
                let cursor =
                    if avoid.is_some() { &mut state.retry_cursor } else { &mut state.cursor };
                balance::pick(cluster, avoid, || {
                    let turn = *cursor;
                    *cursor = cursor.wrapping_add(1);
                    turn
                })
            }
            Balancer::Random => balance::pick(cluster, avoid, || random.next()),
            Balancer::LeastRequest { choices } => {
                self.is_counting = true;
                let requests = |endpoint| self.endpoint(endpoint).map_or(0, |it| it.requests);
                balance::pick_least(cluster, avoid, choices, || random.next(), requests)
            }
        }
    }

    /// A request is under way at an endpoint, whose balancer wants to know.
    pub(crate) fn on_request_begun(&mut self, endpoint: EndpointId) {
        self.counted += 1;
        if let Some(state) = self.endpoint_or_new(endpoint) {
            state.requests += 1;
        }
    }

    /// A request that was under way at an endpoint is answered, or has failed there.
    pub(crate) fn on_request_over(&mut self, endpoint: EndpointId) {
        self.counted -= 1;
        if let Some(state) = self.endpoint(endpoint) {
            state.requests = state.requests.saturating_sub(1);
        }
    }

    /// The newest idle connection of an endpoint, which stands at `place`, if it will do. An exchange that
    /// cannot follow its cluster to another transport gets none: pools have those of the newest.
    #[inline]
    fn acquire_idle(
        &mut self,
        (endpoint, transport): (EndpointId, TransportId),
        place: usize,
        sharing: Sharing,
        connections: &mut Connections,
    ) -> Option<Acquired> {
        let newest = self.endpoint(endpoint)?.newest?;
        let upstream = connections.get(newest)?.upstream()?;
        if upstream.transport != transport {
            return None;
        }
        match sharing {
            Sharing::Personal => None,
            Sharing::InTurn => {
                if !matches!(upstream.state, UpstreamState::Idle(_)) {
                    return None;
                }
                self.remove_idle(newest, connections);
                Some(Acquired::Idle(newest, place))
            }
            Sharing::Together => Some(Acquired::Shared(newest, place)),
        }
    }

    /// An idle connection to any endpoint of the cluster; for an exchange that needs a new one, to the
    /// endpoint at `place`, one that makes room for it. Candidates of which this snapshot of the cluster
    /// knows nothing, or whose connections will not do, are passed over, up to a bound.
    fn acquire_of_others(
        &mut self,
        cluster: &Cluster,
        place: usize,
        sharing: Sharing,
        connections: &mut Connections,
    ) -> Option<Acquired> {
        let mut candidates = std::mem::take(&mut self.cluster(cluster.id)?.candidates);
        let found = candidates.find(|endpoint| {
            let Some(state) = self.endpoint(endpoint) else { return Look::Empty };
            let Some(newest) = state.newest else {
                state.is_candidate = false;
                return Look::Empty;
            };
            let Some(of_newest) = cluster.place_of(endpoint) else { return Look::Unfit };
            // One without a weight gets nothing more; its idle connections may make room.
            let has_turns = cluster.endpoints.get(of_newest).is_some_and(|it| it.weight > 0);
            // What only a new connection will do for need not wait for idle ones to grow old.
            let acquired = if sharing == Sharing::Personal || !has_turns {
                is_unused(newest, connections).then_some(Acquired::Replace(newest, place))
            } else {
                let pool = (endpoint, cluster.transport);
                self.acquire_idle(pool, of_newest, sharing, connections)
            };
            acquired.map_or(Look::Unfit, Look::Found)
        });
        if let Some(state) = self.cluster(cluster.id) {
            state.candidates = candidates;
        }
        found
    }

    /// A connection of this cluster begins to be opened.
    pub(crate) fn on_open(&mut self, cluster: ClusterId) {
        self.open += 1;
        if let Some(state) = self.cluster(cluster) {
            state.open += 1;
        }
    }

    /// A connection of this cluster came from another worker.
    pub(crate) fn on_restored(&mut self, cluster: ClusterId, start: impl FnOnce() -> u64) {
        self.open += 1;
        // The id of a cluster that is gone is beyond every table.
        if cluster.0.slot != u32::MAX
            && let Some(state) = self.cluster_or_new(cluster, start)
        {
            state.open += 1;
        }
    }

    /// A connection of this cluster is gone; it was not idle any more.
    pub(crate) fn on_closed(&mut self, cluster: ClusterId) {
        self.open -= 1;
        if let Some(state) = self.cluster(cluster) {
            state.open -= 1;
        }
    }

    /// Whether a client may have a connection of this cluster, as far as some are kept for others.
    fn admits(
        &mut self,
        cluster: &Cluster,
        client: ClientPlace,
        clients: &Clients,
        now: Time,
    ) -> bool {
        if now >= self.unreserved_from {
            return true;
        }
        let (connections_max, share) = (self.connections_max(cluster), self.share_max(cluster));
        let state = self.cluster(cluster.id).filter(|state| state.reserve.is_some());
        let Some(state) = state else { return true };
        let free = state.free(connections_max);
        if clients.held_by(client) > share && state.reserve.keeps_from(client, free) {
            return false;
        }
        state.reserve.on_needed(free.saturating_sub(1));
        true
    }

    /// A stalled exchange of a client that has more than its share gives way: others have its
    /// connection for a while.
    pub(crate) fn on_gave_way(&mut self, cluster: ClusterId, client: ClientPlace, now: Time) {
        if let Some(state) = self.cluster(cluster) {
            state.reserve.on_gave_way(client, now);
            self.unreserved_from = self.unreserved_from.max(now + RESERVE_MAX);
        }
    }

    /// Ends the time for which connections were reserved, if it is over. Returns whether clients from
    /// which they were kept may have some now.
    pub(crate) fn end_reserve(&mut self, cluster: &Cluster, now: Time) -> bool {
        let connections_max = self.connections_max(cluster);
        let Some(state) = self.cluster(cluster.id) else { return false };
        let free = state.free(connections_max);
        let is_less = state.reserve.end_period(free, now);
        if state.reserve.is_some() {
            self.unreserved_from = self.unreserved_from.max(now + RESERVE_MAX);
        }
        is_less
    }

    /// Connections that this worker may have to a cluster.
    pub(crate) fn connections_max(&self, cluster: &Cluster) -> u32 {
        self.share.of(cluster.connections_max.get())
    }

    /// Connections of a cluster that a client may hold before it has more than its share.
    pub(crate) fn share_max(&self, cluster: &Cluster) -> u32 {
        self.connections_max(cluster) / SHARE_DIVISOR
    }

    /// Connections of a cluster that carry as many exchanges as they can, and how many there may be.
    pub(crate) fn use_of(&self, cluster: &Cluster) -> (u32, u32) {
        let state = self.clusters.get(cluster.id.0.slot as usize).and_then(Option::as_ref);
        let state = state.filter(|state| state.id == cluster.id);
        let in_use = state.map_or(0, |state| state.open.saturating_sub(state.idle));
        (in_use, self.connections_max(cluster))
    }

    /// Puts a connection on top of its endpoint's stack. Says no if the endpoint is gone and its
    /// place is another's.
    pub(crate) fn put_idle(
        &mut self,
        key: ConnKey,
        (cluster, endpoint): (ClusterId, EndpointId),
        connections: &mut Connections,
    ) -> bool {
        let Some(state) = self.endpoint_or_new(endpoint) else { return false };
        let older = match destination_of(connections, key) {
            None => state.newest.replace(key),
            Some(destination) => self.originals.insert((endpoint, destination), key),
        };
        self.set_links(key, Some(Links { newer: None, older }), connections);
        if let Some(older) = older {
            link(connections, older, |links| links.newer = Some(key));
        }
        self.idle += 1;
        if let Some(state) = self.cluster(cluster) {
            state.idle += 1;
        }
        self.add_candidate(cluster, endpoint);
        true
    }

    /// Adds an endpoint to the candidates of its cluster, unless it is there. Those of an
    /// original-destination cluster are looked up by their addresses.
    fn add_candidate(&mut self, cluster: ClusterId, id: EndpointId) {
        let Some(endpoint) = self.endpoint(id) else { return };
        if endpoint.is_candidate || endpoint.newest.is_none() {
            return;
        }
        let clusters = self.clusters.get_mut(cluster.0.slot as usize);
        let state = clusters.and_then(Option::as_mut).filter(|state| state.id == cluster);
        let Some(state) = state else { return };
        let endpoints = &mut self.endpoints;
        state.candidates.insert(id, |other| {
            let place = endpoints.get(other.0.slot as usize).and_then(Option::as_ref);
            place.is_some_and(|state| state.id == other)
        });
        if let Some(endpoint) = self.endpoint(id) {
            endpoint.is_candidate = true;
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
        let Some(Links { newer, older }) = upstream.links() else { return };
        let (cluster, endpoint) = (upstream.cluster, upstream.endpoint);
        self.idle -= 1;
        if let Some(state) = self.cluster(cluster) {
            state.idle -= 1;
        }
        match newer {
            Some(newer) => link(connections, newer, |links| links.older = older),
            None => match destination_of(connections, key) {
                None => {
                    if let Some(state) = self.endpoint(endpoint) {
                        state.newest = older;
                    }
                }
                Some(destination) => self.set_newest_to(endpoint, destination, older),
            },
        }
        if let Some(older) = older {
            link(connections, older, |links| links.newer = newer);
        }
    }

    /// The newest idle connection of an endpoint, still in its pool.
    pub(crate) fn newest_idle(&mut self, endpoint: EndpointId) -> Option<ConnKey> {
        let newest = self.endpoint(endpoint)?.newest;
        newest.or_else(|| self.first_original(endpoint))
    }

    /// How many connections are idle and how many exchanges wait, by cluster.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (ClusterId, u32, u32)> {
        self.clusters.iter().flatten().map(|state| (state.id, state.idle, state.turns.waiting()))
    }

    /// An endpoint went away from a connection after it had taken so many streams, and left others.
    pub(crate) fn on_worn_out(&mut self, endpoint: EndpointId, streams: u32) {
        if let Some(state) = self.endpoint(endpoint) {
            state.stream_budget.on_worn_out(streams);
        }
    }

    /// An endpoint, or the destination that it stands for, went away from a connection on which it had
    /// processed nothing. Returns whether it is not connected to for a while.
    pub(crate) fn on_refused(
        &mut self,
        endpoint: EndpointId,
        destination: Option<SocketAddr>,
        random: u64,
        now: Time,
    ) -> bool {
        if let Some(destination) = destination {
            // The id of an endpoint that this configuration does not have is beyond every table.
            let is_known = endpoint.0.slot != u32::MAX;
            return is_known && self.refusing.on_refused((endpoint, destination), random, now);
        }
        let state = self.endpoint_or_new(endpoint);
        state.is_some_and(|state| state.backoff.on_refused(random, now))
    }

    /// An endpoint answered, or the destination `peer` that it stands for.
    pub(crate) fn on_answered(&mut self, endpoint: EndpointId, peer: &PeerAddress) {
        self.refusing.on_answered(endpoint, peer);
        if let Some(state) = self.endpoint(endpoint) {
            state.backoff.on_answered();
        }
    }

    /// The place of the endpoint to open a connection to: this one, or one of the next if it refused too
    /// often of late. If those did, too, the time when this one may be asked again.
    fn place_to_open(&mut self, cluster: &Cluster, place: usize, now: Time) -> Result<usize, Time> {
        let Some(endpoint) = cluster.endpoints.get(place) else { return Ok(place) };
        let Some(until) = self.pause_of(endpoint.id, now) else { return Ok(place) };
        let count = cluster.endpoints.len();
        let mut others = (1..count.min(OTHERS_MAX)).map(|ahead| (place + ahead) % count);
        let is_open = |other: &usize| {
            let other = cluster.endpoints.get(*other);
            other.is_some_and(|other| other.weight > 0 && self.pause_of(other.id, now).is_none())
        };
        others.find(is_open).ok_or(until)
    }

    /// Until when no connection is opened to an endpoint, if it refused too often of late.
    fn pause_of(&mut self, endpoint: EndpointId, now: Time) -> Option<Time> {
        self.endpoint(endpoint)?.backoff.pause(now)
    }

    /// Whether a connection that had so many streams is one from which its endpoint is about to go away.
    pub(crate) fn is_worn(&mut self, endpoint: EndpointId, streams: u32) -> bool {
        self.endpoint(endpoint).is_some_and(|state| state.stream_budget.is_reached(streams))
    }

    /// A connection ends because it is worn.
    pub(crate) fn on_worn(&mut self, endpoint: EndpointId) {
        if let Some(state) = self.endpoint(endpoint) {
            state.stream_budget.on_used();
        }
    }

    /// Forgets an endpoint. Its idle connections must be gone.
    pub(crate) fn forget_endpoint(&mut self, endpoint: EndpointId) {
        self.refusing.forget(endpoint);
        if let Some(place) = self.endpoints.get_mut(endpoint.0.slot as usize)
            && place.as_ref().is_some_and(|state| state.id == endpoint)
        {
            *place = None;
        }
    }

    /// Forgets a cluster. What is still open to it is not counted any more.
    pub(crate) fn forget_cluster(&mut self, cluster: ClusterId) {
        if let Some(place) = self.clusters.get_mut(cluster.0.slot as usize)
            && place.as_ref().is_some_and(|state| state.id == cluster && state.turns.waiting() == 0)
        {
            *place = None;
        }
    }

    fn cluster(&mut self, id: ClusterId) -> Option<&mut ClusterState> {
        self.clusters.get_mut(id.0.slot as usize)?.as_mut().filter(|state| state.id == id)
    }

    fn cluster_or_new(
        &mut self,
        id: ClusterId,
        start: impl FnOnce() -> u64,
    ) -> Option<&mut ClusterState> {
        let slot = slot(&mut self.clusters, id.0);
        // An exchange on an old configuration may ask for a cluster that is gone.
        if slot.as_ref().is_some_and(|state| state.id.0.generation > id.0.generation) {
            return None;
        }
        if slot.as_ref().is_none_or(|state| state.id != id) {
            let cursor = start();
            let retry_cursor = cursor;
            *slot = Some(ClusterState {
                id,
                cursor,
                retry_cursor,
                open: 0,
                idle: 0,
                candidates: Candidates::default(),
                turns: Turns::default(),
                reserve: Reserve::default(),
                is_crowded: false,
                noted: Noted::default(),
            });
        }
        slot.as_mut()
    }

    /// The state of an endpoint, unless it is gone and its place is another's.
    fn endpoint_or_new(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
        // The id of an endpoint that this configuration does not have is beyond every table.
        if id.0.slot == u32::MAX {
            return None;
        }
        let slot = slot(&mut self.endpoints, id.0);
        if slot.as_ref().is_some_and(|state| state.id.0.generation > id.0.generation) {
            return None;
        }
        if slot.as_ref().is_none_or(|state| state.id != id) {
            *slot = None;
        }
        Some(slot.get_or_insert(EndpointState::new(id)))
    }

    fn endpoint(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
        self.endpoints.get_mut(id.0.slot as usize)?.as_mut().filter(|state| state.id == id)
    }
}

/// Whether no exchange has a connection that is in a pool.
fn is_unused(key: ConnKey, connections: &Connections) -> bool {
    connections.get(key).is_some_and(|connection| !connection.is_busy())
}

/// The place for `id`, which the table grows to have.
fn slot<T>(table: &mut Vec<Option<T>>, id: Id) -> &mut Option<T> {
    let slot = id.slot as usize;
    if table.len() <= slot {
        table.resize_with(slot + 1, || None);
    }
    table.get_mut(slot).expect("grown above")
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

/// The endpoint at `place` of a cluster.
pub(crate) fn endpoint_at(cluster: &Arc<Cluster>, place: usize) -> &Endpoint {
    cluster.endpoints.get(place).expect("the balancer picks places of this very cluster")
}
