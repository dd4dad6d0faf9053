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
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use config::balance::Balancer;
use config::locality::LocalityKey;
use config::snapshot::{Cluster, ClusterId, Endpoint, EndpointId};
use config::subsets::SubsetHash;
use config::view::{self, Level, Part};
use telemetry::cause::Cause;
use telemetry::events::ChoiceKind;

use self::backoff::Refusing;
use self::checking::KeptForChecks;
use self::claim::Claim;
use self::reserve::RESERVE_MAX;
use self::state::{ClusterState, EndpointState};
use crate::connection::check_target::CheckTarget;
use crate::connection::connections::Connections;
use crate::keys::ConnKey;
use crate::listen::clients::{ClientPlace, Clients};
use crate::share::Share;
use crate::tools::peer_address::PeerAddress;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::balance::{self, Among};

mod backoff;
mod candidates;
mod checking;
mod claim;
mod idle;
mod latency;
mod original;
mod queue;
mod reserve;
mod state;
mod stream_budget;
mod turns;

pub(crate) use self::latency::FAILED_MIN;

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
    /// Connections that are kept for health checks.
    checked: BTreeMap<CheckTarget, KeptForChecks>,
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
    /// Whether any cluster ejects endpoints by how attempts end: while none does, that is not counted.
    pub(crate) counts_results: bool,
    /// Whether any cluster in use checks its endpoints.
    pub(crate) has_checks: bool,
    /// Requests under way at endpoints whose balancer compares them.
    pub(crate) counted: u32,
}

/// Draws of endpoints that came lately which are let pass: of these few, if all are new, the last is taken.
const REDRAWS_MAX: usize = 64;

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
    /// A place in the queue, or a connection that is being established for none.
    Wait {
        /// The endpoint that was chosen, which an exchange keeps while it waits.
        place: usize,
        /// Whether such a connection has to be to this endpoint.
        stays: bool,
    },
    /// A place in the queue, although connections are free: they are kept for other clients.
    Reserved,
    /// The same, until an endpoint may be connected to again at this time.
    Pause(Time),
    /// Nothing: the queue is full.
    Overflow,
    /// Nothing, for this reason.
    Nothing(Cause),
}

impl Acquired {
    /// Whether an endpoint gets the request.
    pub(crate) const fn is_endpoint(self) -> bool {
        matches!(self, Self::Idle(..) | Self::Shared(..) | Self::Open(_) | Self::Replace(..))
    }
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
    /// The endpoint that was chosen before the exchange waited.
    pub(crate) chosen: Option<EndpointId>,
    /// What the endpoint is chosen by, where the cluster goes by a hash.
    pub(crate) hash: Option<NonZeroU64>,
    /// Which endpoints it may be, where the cluster has subsets.
    pub(crate) subset: Option<SubsetHash>,
    /// Where this process is, for clusters whose localities count.
    pub(crate) locality: Option<LocalityKey>,
    /// Where the client's connection was going, for a cluster of original destinations.
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) sharing: Sharing,
    pub(crate) client: ClientPlace,
}

/// What a balancer chose, and where the cluster stands.
#[derive(Clone, Copy, Debug)]
struct Choice<'c> {
    /// Where it was chosen.
    among: Among<'c>,
    place: usize,
    endpoint: &'c Endpoint,
    /// How it was chosen, if by more than the balancer.
    kind: Option<ChoiceKind>,
    /// Connections of the cluster that are open or being opened.
    open: u32,
    /// Of these, in pools.
    idle: u32,
    /// Exchanges that wait for one.
    waiting: u32,
}

/// What is looked for among the connections to all endpoints of a cluster, for a request to a group of them.
#[derive(Clone, Copy, Debug)]
struct Others<'c> {
    among: Among<'c>,
    /// The endpoint that was chosen.
    place: usize,
    wanted: Wanted,
}

/// What an exchange may have of the idle connections to other endpoints.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// Room: no other endpoint will do.
    Room,
    /// The same, of endpoints that have more than their part of the connections.
    RoomOf(Claim),
    /// Any of the group.
    Any,
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
            checked: BTreeMap::new(),
            refusing: Refusing::default(),
            share,
            unreserved_from: Time::from_nanos(0),
            open: 0,
            idle: 0,
            waiting: 0,
            is_counting: false,
            counts_results: false,
            has_checks: false,
            counted: 0,
        }
    }

    /// Finds a connection for an exchange, and says how its endpoint was chosen if by more than the balancer. What is personal gets a new connection only, and one that is
    /// shared stays where it is. A client that has more than its share gets none that is reserved.
    pub(crate) fn acquire(
        &mut self,
        ask: &Ask<'_>,
        clients: &Clients,
        random: &mut Random,
        now: Time,
        connections: &mut Connections,
    ) -> (Acquired, Option<ChoiceKind>) {
        if !self.admits(ask.newest, ask.client, clients, now) {
            let has_room = self.has_room_to_wait(ask.newest);
            let acquired = if has_room { Acquired::Reserved } else { Acquired::Overflow };
            return (acquired, None);
        }
        if let Some(endpoint) = ask.cluster.original_destination {
            return (self.acquire_to(endpoint, ask, random, now, connections), None);
        }
        match self.choose(ask, random, now) {
            Some(choice) => (self.acquire_chosen(choice, ask, now, connections), choice.kind),
            None => (Acquired::Nothing(Cause::NoEndpoint), None),
        }
    }

    /// An idle connection to the endpoint that is chosen, else a new one. Where no more may be opened, a new one in place of
    /// an idle one to another endpoint: of any, where a hash chose, else as its [`Claim`] says. An endpoint that has its part
    /// of the connections gives way to an idle one of the group. Else a place in the queue.
    fn acquire_chosen(
        &mut self,
        choice: Choice<'_>,
        ask: &Ask<'_>,
        now: Time,
        connections: &mut Connections,
    ) -> Acquired {
        let Ask { cluster, newest, sharing, .. } = *ask;
        let share = self.share;
        let Choice { among, place, endpoint, open, idle, waiting, .. } = choice;
        if idle > 0
            && let Some(acquired) =
                self.acquire_idle((endpoint.id, cluster.transport), place, sharing, connections)
        {
            return acquired;
        }
        if open < share.of(newest.connections_max.get()) {
            return match self.place_to_open(among, place, now) {
                Ok(place) => Acquired::Open(place),
                Err(until) if waiting < share.of(newest.pending_max) => Acquired::Pause(until),
                Err(_) => Acquired::Overflow,
            };
        }
        let is_by_hash = ask.hash.is_some() && cluster.balancer.is_by_hash();
        if idle > 0 {
            let claim = Claim::new(self.connections_max(newest), among.group);
            let has_less = claim.has_less(self.open_to(endpoint.id), endpoint);
            let wanted = match (is_by_hash, has_less) {
                (true, _) => &[Wanted::Room][..],
                (false, true) => &[Wanted::RoomOf(claim), Wanted::Any],
                (false, false) => &[Wanted::Any],
            };
            let found = wanted.iter().find_map(|wanted| {
                let others = Others { among, place, wanted: *wanted };
                self.acquire_of_others(others, sharing, connections)
            });
            if let Some(acquired) = found {
                return acquired;
            }
        }
        if waiting < share.of(newest.pending_max) {
            // One that is being established may be to an endpoint of another group.
            Acquired::Wait { place, stays: is_by_hash || !among.group.is_whole() }
        } else {
            Acquired::Overflow
        }
    }

    /// The endpoint that the cluster's balancer chooses for a request: another one than the one to avoid, if there is
    /// any other. None if the cluster has no endpoints, or is one of a former configuration whose place is
    /// another's by now.
    #[inline]
    fn choose<'c>(&mut self, ask: &Ask<'c>, random: &mut Random, now: Time) -> Option<Choice<'c>> {
        let Ask { cluster, avoid, subset, .. } = *ask;
        let levels = cluster.view.levels(subset);
        if let Some(choice) = ask.chosen.and_then(|chosen| self.choose_again(chosen, ask)) {
            return Some(choice);
        }
        let die = || ask.hash.map_or_else(|| random.next(), NonZeroU64::get);
        let level = view::level(levels, cluster.panic, die)?;
        let Level { place, group, is_partial } = level;
        self.counts_results |= cluster.outlier.is_some();
        if !cluster.checks.is_empty() {
            self.has_checks = true;
            cluster.activity.mark();
        }
        let among = Among { cluster, group, is_partial };
        let is_panicking = level.is_panicking();
        let kind = match (is_panicking, place) {
            (true, _) => Some(ChoiceKind::Panic),
            (false, 0) => None,
            (false, _) => Some(ChoiceKind::Failover),
        };
        if cluster.localities.is_some()
            && kind.is_none()
            && let Some(choice) = self.choose_locality(among, ask, random, now)
        {
            return Some(choice);
        }
        let choice = match self.choose_among(among, ask, random, now) {
            // The last one was ejected, and what follows of that is not counted yet.
            None if is_partial && !cluster.panic.is_none() => {
                let all = Among { is_partial: false, ..among };
                let choice = self.choose_among(all, ask, random, now)?;
                Choice { kind: Some(ChoiceKind::Panic), ..choice }
            }
            choice => Choice { kind, ..choice? },
        };
        // The only one of a priority failed: those of the next stand in.
        match levels.get(place + 1) {
            Some(group) if Some(choice.endpoint.id) == avoid => {
                let next = Among { cluster, group, is_partial: true };
                let next = self.choose_among(next, ask, random, now);
                let next = next.map(|it| Choice { kind: Some(ChoiceKind::Failover), ..it });
                next.or(Some(choice))
            }
            _ => Some(choice),
        }
    }

    /// An endpoint of the locality that a request goes to; none where any of the group will do, as where the only one of its
    /// locality failed.
    #[cold]
    fn choose_locality<'c>(
        &mut self,
        among: Among<'c>,
        ask: &Ask<'c>,
        random: &mut Random,
        now: Time,
    ) -> Option<Choice<'c>> {
        let part = among.group.part(ask.locality, || random.next())?;
        let of_part = Among { group: &part.group, ..among };
        let choice = self.choose_among(of_part, ask, random, now)?;
        let kind = kind_of(part, ask.locality);
        (Some(choice.endpoint.id) != ask.avoid).then_some(Choice { kind: Some(kind), ..choice })
    }

    /// The endpoint that was chosen for an exchange before it waited, while that may still be chosen. Where a hash
    /// chooses, it leads there again.
    #[cold]
    fn choose_again<'c>(&mut self, chosen: EndpointId, ask: &Ask<'c>) -> Option<Choice<'c>> {
        let Ask { cluster, avoid, subset, .. } = *ask;
        let place = cluster.place_of(chosen)?;
        let endpoint = cluster.endpoints.get(place)?;
        let may_be = endpoint.weight > 0 && endpoint.health.is_available();
        if !may_be || avoid == Some(chosen) || cluster.balancer.is_by_hash() {
            return None;
        }
        let mut levels = cluster.view.levels(subset).iter();
        let group = levels.find(|group| group.inner(place).is_some())?;
        let part = group.parts().find(|part| part.group.inner(place).is_some());
        let kind = part.map(|part| kind_of(part, ask.locality));
        let group = part.map_or(group, |part| &part.group);
        let among = Among { cluster, group, is_partial: true };
        let state = self.cluster(cluster.id)?;
        let (open, idle, waiting) = (state.open, state.idle, state.turns.waiting());
        Some(Choice { among, place, endpoint, kind, open, idle, waiting })
    }

    /// The endpoint of a group that the cluster's balancer chooses.
    #[inline]
    fn choose_among<'c>(
        &mut self,
        among: Among<'c>,
        ask: &Ask<'c>,
        random: &mut Random,
        now: Time,
    ) -> Option<Choice<'c>> {
        let Ask { cluster, avoid, hash, .. } = *ask;
        let state = self.cluster_or_new(cluster.id, || random.next())?;
        let (open, idle, waiting) = (state.open, state.idle, state.turns.waiting());
        let (place, endpoint) = match cluster.balancer {
            Balancer::RoundRobin => {
                // Were the turn of a retry taken from the others', they would all begin where one failed.
                let cursors = state.cursors_of(among.group.number);
                let cursor = if avoid.is_some() { &mut cursors.retry } else { &mut cursors.first };
                if cluster.slow_start.is_some() {
                    let mut next = *cursor;
                    let found = self.draw(among, avoid, random, now, |_| take_turn(&mut next));
                    let cursors = self.cluster(cluster.id)?.cursors_of(among.group.number);
                    *(if avoid.is_some() { &mut cursors.retry } else { &mut cursors.first }) = next;
                    found
                } else {
                    balance::pick(among, avoid, || take_turn(cursor))
                }
            }
            Balancer::Random => self.draw(among, avoid, random, now, Random::next),
            Balancer::LeastRequest { choices } => {
                self.is_counting = true;
                let requests =
                    |it: &Endpoint| self.known_endpoint(it.id).map_or(0, |it| it.requests);
                let draw = || self.draw(among, avoid, random, now, Random::next);
                balance::pick_least(among, avoid, choices, draw, |one, other| {
                    balance::has_fewer((one, requests(one)), (other, requests(other)))
                })
            }
            Balancer::PeakEwma { decay } => {
                self.is_counting = true;
                let draw = || self.draw(among, avoid, random, now, Random::next);
                let load = |it: &Endpoint| {
                    self.known_endpoint(it.id)
                        .map_or(0.0, |state| state.load(it.weight, decay, now))
                };
                balance::pick_least(among, avoid, 2, draw, |one, other| load(one) < load(other))
            }
            Balancer::Hash { load_percent_max, .. } => {
                let hash = hash.map_or_else(|| random.next(), NonZeroU64::get);
                let under_way = state.requests;
                self.is_counting |= load_percent_max.is_some();
                balance::pick_by_hash(among, avoid, hash, |endpoint| {
                    let Some(state) = self.endpoint(endpoint.id) else { return true };
                    let requests = state.requests;
                    let has_room = load_percent_max.is_none_or(|percent| {
                        balance::has_room(among, endpoint, (requests, under_way), percent)
                    });
                    has_room && state.backoff.pause(now).is_none()
                })
            }
        }?;
        Some(Choice { among, place, endpoint, kind: None, open, idle, waiting })
    }

    /// An endpoint that is drawn; one that came lately is drawn again, but for a chance that grows with its age.
    fn draw<'c>(
        &self,
        among: Among<'c>,
        avoid: Option<EndpointId>,
        random: &mut Random,
        now: Time,
        mut next: impl FnMut(&mut Random) -> u64,
    ) -> Option<(usize, &'c Endpoint)> {
        let Some(slow_start) = among.cluster.slow_start else {
            return balance::pick(among, avoid, || next(random));
        };
        let mut found = None;
        for _ in 0..REDRAWS_MAX {
            let drawn = balance::pick(among, avoid, || next(random))?;
            let began = self.known_endpoint(drawn.1.id).and_then(|state| state.began);
            let chance = began.and_then(|began| slow_start.chance(now - began));
            if chance.is_none_or(|chance| random.next() <= chance) {
                return Some(drawn);
            }
            found = Some(drawn);
        }
        found
    }

    /// An endpoint came, whose cluster may give it less for a while.
    pub(crate) fn on_endpoint_added(&mut self, cluster: &Cluster, endpoint: EndpointId, now: Time) {
        if cluster.slow_start.is_some()
            && let Some(state) = self.endpoint_or_new(endpoint)
        {
            state.began = Some(now);
        }
    }

    /// An attempt at an endpoint took so long until the head of its response, or until it failed.
    pub(crate) fn on_measured(
        &mut self,
        endpoint: EndpointId,
        length: Duration,
        decay: Duration,
        now: Time,
    ) {
        if let Some(state) = self.endpoint(endpoint) {
            state.latency.observe(length, decay, now);
        }
    }

    /// A request is under way at an endpoint, whose balancer wants to know.
    pub(crate) fn on_request_begun(&mut self, (cluster, endpoint): (ClusterId, EndpointId)) {
        self.counted += 1;
        if let Some(state) = self.cluster(cluster) {
            state.requests += 1;
        }
        if let Some(state) = self.endpoint_or_new(endpoint) {
            state.requests += 1;
        }
    }

    /// A request that was under way at an endpoint is answered, or has failed there.
    pub(crate) fn on_request_over(&mut self, (cluster, endpoint): (ClusterId, EndpointId)) {
        self.counted -= 1;
        if let Some(state) = self.cluster(cluster) {
            state.requests = state.requests.saturating_sub(1);
        }
        if let Some(state) = self.endpoint(endpoint) {
            state.requests = state.requests.saturating_sub(1);
        }
    }

    /// A connection of this cluster begins to be opened; none of its bounds counts one for health checks.
    pub(crate) fn on_open(
        &mut self,
        (cluster, endpoint): (ClusterId, EndpointId),
        is_for_checks: bool,
    ) {
        self.open += 1;
        if is_for_checks {
            return;
        }
        if let Some(state) = self.cluster(cluster) {
            state.open += 1;
        }
        if let Some(state) = self.endpoint_or_new(endpoint) {
            state.open += 1;
        }
    }

    /// A connection of this cluster came from another worker.
    pub(crate) fn on_restored(
        &mut self,
        (cluster, endpoint): (ClusterId, EndpointId),
        start: impl FnOnce() -> u64,
    ) {
        self.open += 1;
        if let Some(state) = self.endpoint_or_new(endpoint) {
            state.open += 1;
        }
        // The id of a cluster that is gone is beyond every table.
        if cluster.0.slot != u32::MAX
            && let Some(state) = self.cluster_or_new(cluster, start)
        {
            state.open += 1;
        }
    }

    /// A connection of this cluster is gone; it was not idle any more.
    pub(crate) fn on_closed(
        &mut self,
        (cluster, endpoint): (ClusterId, EndpointId),
        was_for_checks: bool,
    ) {
        self.open -= 1;
        if was_for_checks {
            return;
        }
        if let Some(state) = self.cluster(cluster) {
            state.open -= 1;
        }
        // One that came back after it was gone has not counted all that are open.
        if let Some(state) = self.endpoint(endpoint) {
            state.open = state.open.saturating_sub(1);
        }
    }

    /// Connections to an endpoint that are open or being opened.
    fn open_to(&self, endpoint: EndpointId) -> u32 {
        self.known_endpoint(endpoint).map_or(0, |state| state.open)
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
    pub(crate) fn on_streams_limited(&mut self, endpoint: EndpointId, streams: u32) {
        if let Some(state) = self.endpoint(endpoint) {
            state.stream_budget.on_streams_limited(streams);
        }
    }

    /// An endpoint, or the destination that it stands for, went away from a connection on which it had
    /// processed nothing. Returns until when it is not connected to, if it is to be left alone.
    pub(crate) fn on_refused(
        &mut self,
        endpoint: EndpointId,
        destination: Option<SocketAddr>,
        random: u64,
        now: Time,
    ) -> Option<Time> {
        if let Some(destination) = destination {
            // The id of an endpoint that this configuration does not have is beyond every table.
            let is_known = endpoint.0.slot != u32::MAX;
            if !is_known {
                return None;
            }
            return self.refusing.on_refused((endpoint, destination), random, now);
        }
        self.endpoint_or_new(endpoint)?.backoff.on_refused(random, now)
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
    fn place_to_open(&mut self, among: Among<'_>, place: usize, now: Time) -> Result<usize, Time> {
        let Some(endpoint) = among.cluster.endpoints.get(place) else { return Ok(place) };
        let Some(until) = self.pause_of(endpoint.id, now) else { return Ok(place) };
        let mut others = among.behind(place).take(OTHERS_MAX.min(among.group.len()) - 1);
        let found = others.find(|(_, it)| {
            it.weight > 0 && among.may_be(it) && self.pause_of(it.id, now).is_none()
        });
        found.map(|(place, _)| place).ok_or(until)
    }

    /// Until when no connection is opened to an endpoint, if it refused too often of late.
    fn pause_of(&mut self, endpoint: EndpointId, now: Time) -> Option<Time> {
        self.endpoint(endpoint)?.backoff.pause(now)
    }

    /// Whether a connection that had so many streams is one from which its endpoint is about to go away.
    pub(crate) fn is_stream_budget_used(&mut self, endpoint: EndpointId, streams: u32) -> bool {
        self.endpoint(endpoint).is_some_and(|state| state.stream_budget.is_reached(streams))
    }

    /// A connection ends because its streams are used up.
    pub(crate) fn on_stream_budget_used(&mut self, endpoint: EndpointId) {
        if let Some(state) = self.endpoint(endpoint) {
            state.stream_budget.on_used();
        }
    }
}

/// How an endpoint of this part is chosen.
fn kind_of(part: &Part, own: Option<LocalityKey>) -> ChoiceKind {
    if own == Some(part.key) { ChoiceKind::OwnLocality } else { ChoiceKind::OtherLocality }
}

fn take_turn(cursor: &mut u64) -> u64 {
    let turn = *cursor;
    *cursor = cursor.wrapping_add(1);
    turn
}

/// The endpoint at `place` of a cluster.
pub(crate) fn endpoint_at(cluster: &Arc<Cluster>, place: usize) -> &Endpoint {
    cluster.endpoints.get(place).expect("the balancer picks places of this very cluster")
}
