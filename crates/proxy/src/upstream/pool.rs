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
use config::snapshot::{Cluster, ClusterId, Endpoint, EndpointId};
use telemetry::cause::Cause;

use self::backoff::Refusing;
use self::reserve::RESERVE_MAX;
use self::state::{ClusterState, EndpointState};
use crate::connection::connections::Connections;
use crate::keys::ConnKey;
use crate::listen::clients::{ClientPlace, Clients};
use crate::share::Share;
use crate::tools::peer_address::PeerAddress;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::balance;

mod backoff;
mod candidates;
mod idle;
mod original;
mod queue;
mod reserve;
mod state;
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

/// What a balancer chose, and where the cluster stands.
#[derive(Clone, Copy, Debug)]
struct Choice<'c> {
    place: usize,
    endpoint: &'c Endpoint,
    /// Connections of the cluster that are open or being opened.
    open: u32,
    /// Of these, in pools.
    idle: u32,
    /// Exchanges that wait for one.
    waiting: u32,
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
        let Some(choice) = self.choose(cluster, avoid, random) else {
            return Acquired::Nothing(Cause::NoEndpoint);
        };
        let Choice { place, endpoint, open, idle, waiting } = choice;
        if idle > 0
            && let Some(acquired) =
                self.acquire_idle((endpoint.id, cluster.transport), place, sharing, connections)
        {
            return acquired;
        }
        if open < share.of(newest.connections_max.get()) {
            return match self.place_to_open(cluster, place, now) {
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

    /// The endpoint that the cluster's balancer chooses for a request: another one than `avoid`, if there is
    /// any other. None if the cluster has no endpoints, or is one of a former configuration whose place is
    /// another's by now.
    #[inline]
    fn choose<'c>(
        &mut self,
        cluster: &'c Cluster,
        avoid: Option<EndpointId>,
        random: &mut Random,
    ) -> Option<Choice<'c>> {
        let state = self.cluster_or_new(cluster.id, || random.next())?;
        let (open, idle, waiting) = (state.open, state.idle, state.turns.waiting());
        let (place, endpoint) = match cluster.balancer {
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
        }?;
        Some(Choice { place, endpoint, open, idle, waiting })
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
}

/// The endpoint at `place` of a cluster.
pub(crate) fn endpoint_at(cluster: &Arc<Cluster>, place: usize) -> &Endpoint {
    cluster.endpoints.get(place).expect("the balancer picks places of this very cluster")
}
