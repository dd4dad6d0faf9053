//! Upstream connections by endpoint, and the exchanges that wait for one.
//!
//! What changes at run time stands here, under the stable ids of clusters and endpoints; a cluster
//! without a request yet takes no memory. A cluster has a *pool* for the requests of each priority, with connections, a queue and
//! bounds of its own; what is known of an endpoint (how long it takes, whether it refuses) stands once.
//!
//! Idle connections of a pool to an endpoint form a stack, linked
//! through the connections themselves: the newest is used first, so that the ones a burst left
//! over grow old and close. They are all of the transport that the newest snapshot has for their cluster: those of a former one
//! leave the pool when that comes, and none enters it. A pool has a list of the endpoints that may have some, so that where no
//! more may be opened one is found at a cost that does not depend on the number of endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use config::locality::LocalityKey;
use config::priority::{Bounds, Priority};
use config::snapshot::{Cluster, ClusterId, Endpoint, EndpointId};
use config::subsets::SubsetHash;
use telemetry::cause::Cause;
use telemetry::events::ChoiceKind;

pub use self::learned::{LearnedOfEndpoint, Turns};

use self::backoff::Refusing;
use self::bounds::endpoint_has_room;
use self::checking::KeptForChecks;
use self::choice::Choice;
use self::quota::Quota;
use self::reserve::RESERVE_MAX;
use self::state::{EndpointState, PoolState};
use crate::connection::check_target::CheckTarget;
use crate::connection::connections::Connections;
use crate::keys::{ConnKey, EndpointKey, PoolId};
use crate::listen::clients::{ClientPlace, Clients};
use crate::share::Share;
use crate::tools::peer_address::PeerAddress;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::balance::Among;

mod backoff;
mod bounds;
mod candidates;
mod checking;
mod choice;
mod idle;
mod latency;
mod learned;
mod original;
mod queue;
mod quota;
mod reserve;
mod state;
mod stream_budget;
mod turns;

pub(crate) use self::bounds::{Want, Yield};
pub(crate) use self::latency::FAILED_MIN;

/// A client has more than its share when it holds more than this part of a cluster's connections.
const SHARE_DIVISOR: u32 = 8;

/// What a worker knows of clusters and endpoints at run time.
#[derive(Debug)]
pub(crate) struct Pools {
    pools: ByPriority<Vec<Option<PoolState>>>,
    endpoints: Vec<Option<EndpointState>>,
    /// The newest idle connection to each destination of an original-destination cluster, where
    /// there is one: as bounded as those connections are.
    originals: BTreeMap<(EndpointId, Priority, SocketAddr), ConnKey>,
    /// Connections that are kept for health checks.
    checked: BTreeMap<CheckTarget, KeptForChecks>,
    /// The destinations of such clusters that refused.
    refusing: Refusing,
    share: Share,
    /// The pool for which there are permits.
    permits_of: Option<PoolId>,
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
    /// Whether any cluster has connections opened before requests need them.
    pub(crate) preconnects: bool,
    /// Whether any cluster ejects endpoints by how attempts end: while none does, that is not counted.
    pub(crate) counts_results: bool,
    /// Whether any cluster in use checks its endpoints.
    pub(crate) has_checks: bool,
    /// Requests under way at endpoints whose balancer compares them.
    pub(crate) counted: u32,
}

/// One of something for the requests of each priority.
#[derive(Debug, Default)]
struct ByPriority<T> {
    default: T,
    high: T,
}

impl<T> ByPriority<T> {
    const fn of(&self, priority: Priority) -> &T {
        match priority {
            Priority::Default => &self.default,
            Priority::High => &self.high,
        }
    }

    const fn of_mut(&mut self, priority: Priority) -> &mut T {
        match priority {
            Priority::Default => &mut self.default,
            Priority::High => &mut self.high,
        }
    }
}

/// A pool, with its cluster as some snapshot has it: the newest, where bounds are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) priority: Priority,
}

impl<'c> Pool<'c> {
    pub(crate) const fn new(cluster: &'c Cluster, priority: Priority) -> Self {
        Self { cluster, priority }
    }

    pub(crate) const fn id(self) -> PoolId {
        PoolId { cluster: self.cluster.id, priority: self.priority }
    }

    pub(crate) const fn bounds(self) -> &'c Bounds {
        self.cluster.bounds_of(self.priority)
    }

    /// Connections that may be open to each endpoint, if that is bounded.
    pub(crate) const fn per_endpoint_max(self) -> Option<NonZeroU32> {
        self.cluster.per_endpoint_max(self.priority)
    }
}

/// Endpoints that are asked, the one whose turn it is among them, for one that may be connected to.
const OTHERS_MAX: usize = 16;

/// The same where endpoints have bounds of their own.
const BOUNDED_OTHERS_MAX: usize = 64;

/// Where a connection may be opened.
#[derive(Clone, Copy, Debug)]
enum ToOpen {
    /// To the endpoint at this place.
    Place(usize),
    /// Nowhere until then: the endpoints refused too often of late.
    Pause(Time),
    /// Nowhere: the endpoints have all the connections that they may have.
    Full,
}

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
    /// The same, until the endpoints of a new cluster have been checked.
    Warming,
    /// The same, until an endpoint may be connected to again at this time.
    Pause(Time),
    /// Nothing: the queue is full.
    Overflow,
    /// Nothing, for this reason.
    Nothing(Cause),
}

impl Acquired {
    /// The place of the endpoint that gets the request, if one does.
    pub(crate) const fn endpoint(self) -> Option<usize> {
        match self {
            Self::Idle(_, place)
            | Self::Shared(_, place)
            | Self::Open(place)
            | Self::Replace(_, place) => Some(place),
            _ => None,
        }
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
    /// Which of its connections it may have.
    pub(crate) priority: Priority,
    /// The endpoint where an attempt failed.
    pub(crate) avoid: Option<EndpointId>,
    /// The endpoints of all attempts that failed, where none of them is to have another.
    pub(crate) tried: &'c [EndpointId],
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

impl<'c> Ask<'c> {
    /// The pool that it asks, with the cluster as the exchange follows it.
    const fn followed(&self) -> Pool<'c> {
        Pool::new(self.cluster, self.priority)
    }

    /// The same with the cluster as the newest snapshot has it.
    const fn pool(&self) -> Pool<'c> {
        Pool::new(self.newest, self.priority)
    }
}

/// What is looked for among the connections to all endpoints of a cluster, for a request to a group of them.
#[derive(Clone, Copy, Debug)]
struct Others<'c> {
    among: Among<'c>,
    /// Of which pool of the cluster.
    priority: Priority,
    /// The endpoint that was chosen.
    place: usize,
    wanted: Wanted,
    /// Whether another connection to that endpoint may be opened. If not, one makes room for it that is to the same.
    may_open: bool,
}

/// What an exchange may have of the idle connections to other endpoints.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// Room: no other endpoint will do.
    Room,
    /// The same, of endpoints that have more than their part of the connections.
    RoomOf(Quota),
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
            pools: ByPriority::default(),
            endpoints: Vec::new(),
            originals: BTreeMap::new(),
            checked: BTreeMap::new(),
            refusing: Refusing::default(),
            share,
            permits_of: None,
            unreserved_from: Time::from_nanos(0),
            open: 0,
            idle: 0,
            waiting: 0,
            is_counting: false,
            preconnects: false,
            counts_results: false,
            has_checks: false,
            counted: 0,
        }
    }

    /// Finds a connection for an exchange, and says how its endpoint was chosen if by more than the balancer. What is personal gets a new connection only, and one that is
    /// shared stays where it is. A client that has more than its share gets none that is reserved.
    #[expect(
        clippy::inline_always,
        reason = "as a call, it would cost each request 60 instructions; the other caller is for few"
    )]
    #[inline(always)]
    pub(crate) fn acquire(
        &mut self,
        ask: &Ask<'_>,
        clients: &Clients,
        random: &mut Random,
        now: Time,
        connections: &mut Connections,
    ) -> (Acquired, Option<ChoiceKind>) {
        if now < self.unreserved_from && !self.admits(ask.pool(), ask.client, clients) {
            let has_place = self.takes_place(ask.pool());
            let acquired = if has_place { Acquired::Reserved } else { Acquired::Overflow };
            return (acquired, None);
        }
        if ask.newest.warming.waits() {
            let has_place = self.pool_or_new(ask.followed(), || random.next()).is_some()
                && self.takes_place(ask.pool());
            return (if has_place { Acquired::Warming } else { Acquired::Overflow }, None);
        }
        if let Some(endpoint) = ask.cluster.original_destination {
            return (self.acquire_to(endpoint, ask, random, now, connections), None);
        }
        match self.choose(ask, random, now) {
            Some(choice) if !ask.tried.is_empty() => {
                let choice = self.choose_untried(choice, ask, random, now);
                (self.acquire_chosen(choice, ask, now, connections), choice.kind)
            }
            Some(choice) => (self.acquire_chosen(choice, ask, now, connections), choice.kind),
            None => (Acquired::Nothing(Cause::NoEndpoint), None),
        }
    }

    /// An idle connection to the endpoint that is chosen, else a new one. Where no more may be opened, a new one in place of
    /// an idle one to another endpoint: of any, where a hash chose, else as its [`Quota`] says. An endpoint that has its part
    /// of the connections gives way to an idle one of the group. Else a place in the queue.
    fn acquire_chosen(
        &mut self,
        choice: Choice<'_>,
        ask: &Ask<'_>,
        now: Time,
        connections: &mut Connections,
    ) -> Acquired {
        let Ask { cluster, sharing, priority, .. } = *ask;
        let (newest, id) = (ask.pool(), ask.pool().id());
        let Choice { among, place, endpoint, idle, .. } = choice;
        if idle > 0
            && let Some(acquired) = self.acquire_idle(
                (endpoint.id, cluster.transports.of(endpoint).id, priority),
                place,
                sharing,
                connections,
            )
        {
            return acquired;
        }
        let is_by_hash = ask.hash.is_some() && cluster.balancer.is_by_hash();
        let freed = self.freed(id);
        let mut is_full = false;
        if self.has_room(newest) {
            match self.place_to_open(among, place, (newest, is_by_hash), now) {
                // Another worker may have been faster.
                ToOpen::Place(place) if self.takes_connection(newest) => {
                    return Acquired::Open(place);
                }
                ToOpen::Place(_) => {}
                ToOpen::Pause(until) if self.takes_place(newest) => return Acquired::Pause(until),
                ToOpen::Pause(_) => return Acquired::Overflow,
                ToOpen::Full => {
                    is_full = true;
                    self.note_full(id, freed);
                }
            }
        }
        if idle > 0 {
            // The connections that this worker has, as it gets no more.
            let quota = Quota::new(self.open_of(id), among.group);
            let has_less = quota.has_less(self.open_to(endpoint.id, priority), endpoint);
            let may_open = !is_full && endpoint_has_room(newest, endpoint.id);
            let wanted = match (is_by_hash, has_less && may_open) {
                (true, _) => &[Wanted::Room][..],
                (false, true) => &[Wanted::RoomOf(quota), Wanted::Any],
                (false, false) => &[Wanted::Any],
            };
            let found = wanted.iter().find_map(|wanted| {
                let others = Others { among, priority, place, wanted: *wanted, may_open };
                self.acquire_of_others(others, sharing, connections)
            });
            match found {
                // Another worker may have been faster.
                Some(Acquired::Replace(..))
                    if may_open && !self.takes_endpoint(newest, endpoint.id) => {}
                Some(acquired) => return acquired,
                None => {}
            }
        }
        if self.takes_place(newest) {
            // One that is being established may be to an endpoint of another group.
            Acquired::Wait { place, stays: is_by_hash || !among.group.is_whole() }
        } else {
            Acquired::Overflow
        }
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

    /// A request is under way at an endpoint, whose balancer or `preconnect` wants to know.
    pub(crate) fn on_request_begun(&mut self, EndpointKey { pool, endpoint }: EndpointKey) {
        self.counted += 1;
        if let Some(state) = self.pool(pool) {
            state.requests += 1;
        }
        if let Some(state) = self.endpoint_or_new(endpoint) {
            state.stack(pool.priority).requests += 1;
        }
    }

    /// A request that was under way at an endpoint is answered, or has failed there.
    pub(crate) fn on_request_over(&mut self, EndpointKey { pool, endpoint }: EndpointKey) {
        self.counted -= 1;
        if let Some(state) = self.pool(pool) {
            state.requests = state.requests.saturating_sub(1);
        }
        if let Some(state) = self.endpoint(endpoint) {
            let stack = state.stack(pool.priority);
            stack.requests = stack.requests.saturating_sub(1);
        }
    }

    /// Connections of a pool to an endpoint that are open or being opened.
    fn open_to(&self, endpoint: EndpointId, priority: Priority) -> u32 {
        let stack = self.known_endpoint(endpoint).and_then(|state| state.known_stack(priority));
        stack.map_or(0, |stack| stack.open)
    }

    /// Whether a client may have a connection of this cluster, while some may be kept for others.
    fn admits(&mut self, pool: Pool<'_>, client: ClientPlace, clients: &Clients) -> bool {
        let (free, share) = (self.free(pool), self.share_max(pool));
        let state = self.pool(pool.id()).filter(|state| state.reserve.is_some());
        let Some(state) = state else { return true };
        if clients.held_by(client) > share && state.reserve.keeps_from(client, free) {
            return false;
        }
        state.reserve.on_needed(free.saturating_sub(1));
        true
    }

    /// A stalled exchange of a client that has more than its share gives way: others have its
    /// connection for a while.
    pub(crate) fn on_gave_way(&mut self, pool: PoolId, client: ClientPlace, now: Time) {
        if let Some(state) = self.pool(pool) {
            state.reserve.on_gave_way(client, now);
            self.unreserved_from = self.unreserved_from.max(now + RESERVE_MAX);
        }
    }

    /// Ends the time for which connections were reserved, if it is over. Returns whether clients from
    /// which they were kept may have some now.
    pub(crate) fn end_reserve(&mut self, pool: Pool<'_>, now: Time) -> bool {
        let free = self.free(pool);
        let Some(state) = self.pool(pool.id()) else { return false };
        let is_less = state.reserve.end_period(free, now);
        if state.reserve.is_some() {
            self.unreserved_from = self.unreserved_from.max(now + RESERVE_MAX);
        }
        is_less
    }

    /// Connections of a cluster that a client may hold in this worker before it has more than its share: an eighth of the
    /// worker's part.
    pub(crate) fn share_max(&self, pool: Pool<'_>) -> u32 {
        self.share.of(pool.cluster.connections_bound(pool.priority)) / SHARE_DIVISOR
    }

    /// Connections of a pool that carry as many exchanges as they can, those of other workers included, and how many there
    /// may be.
    pub(crate) fn use_of(&self, pool: Pool<'_>) -> (u32, u32) {
        let Pool { cluster, priority } = pool;
        let state = self.pools.of(priority).get(cluster.id.0.slot as usize);
        let state = state.and_then(Option::as_ref).filter(|state| state.id == pool.id());
        let in_use = state.map_or_else(
            || cluster.breakers.of(priority).connections(),
            |state| state.breakers.connections().saturating_sub(state.idle),
        );
        (in_use, cluster.connections_bound(priority))
    }

    /// Whether half of the cluster's connections are in use.
    pub(crate) fn is_short(&self, pool: Pool<'_>) -> bool {
        let (in_use, connections_max) = self.use_of(pool);
        2 * u64::from(in_use) >= u64::from(connections_max)
    }

    /// The pools of a cluster that may have anything.
    pub(crate) fn pools_of(&self, cluster: ClusterId) -> impl Iterator<Item = PoolId> + use<> {
        let has_high = self.pools.high.len() > cluster.0.slot as usize;
        let priorities = Priority::ALL.into_iter().take(1 + usize::from(has_high));
        priorities.map(move |priority| PoolId { cluster, priority })
    }

    /// All pools.
    fn states(&self) -> impl Iterator<Item = &PoolState> {
        Priority::ALL.into_iter().flat_map(|priority| self.pools.of(priority).iter().flatten())
    }

    /// Requests under way at the endpoints of a cluster, where the balancer compares them.
    fn requests_of(&self, cluster: ClusterId) -> u32 {
        let of = |priority| self.pools.of(priority).get(cluster.0.slot as usize)?.as_ref();
        let states = Priority::ALL.into_iter().filter_map(of);
        states.filter(|state| state.id.cluster == cluster).map(|state| state.requests).sum()
    }

    /// How many connections are idle and how many exchanges wait, by cluster.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (ClusterId, u64, u64)> {
        let ByPriority { default, high } = &self.pools;
        (0..default.len().max(high.len())).filter_map(|slot| {
            let state = default.get(slot).and_then(Option::as_ref);
            let high = high.get(slot).and_then(Option::as_ref);
            let id = state.or(high)?.id.cluster;
            let of_both = state.into_iter().chain(high.filter(|high| high.id.cluster == id));
            let levels = of_both.map(|it| (u64::from(it.idle), u64::from(it.turns.waiting())));
            let (idle, waiting) = levels.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            Some((id, idle, waiting))
        })
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

    /// The endpoint to open a connection to: that at `place`, or one of the next if it refused too often of late or has all
    /// the connections that it may have. Where it `stays` with the first, no other stands in for one that has these.
    fn place_to_open(
        &mut self,
        among: Among<'_>,
        place: usize,
        (newest, stays): (Pool<'_>, bool),
        now: Time,
    ) -> ToOpen {
        let Some(endpoint) = among.cluster.endpoints.get(place) else {
            return ToOpen::Place(place);
        };
        let until = self.pause_of(endpoint.id, now);
        if until.is_none() && self.takes_endpoint(newest, endpoint.id) {
            return ToOpen::Place(place);
        }
        let looks_max = match newest.per_endpoint_max() {
            Some(_) if until.is_none() && stays => return ToOpen::Full,
            Some(_) => BOUNDED_OTHERS_MAX,
            None => OTHERS_MAX,
        };
        let others = among.behind(place).take(looks_max.min(among.group.len()) - 1);
        for (place, it) in others.filter(|(_, it)| it.weight > 0 && among.may_be(it)) {
            if self.pause_of(it.id, now).is_none() && self.takes_endpoint(newest, it.id) {
                return ToOpen::Place(place);
            }
        }
        until.map_or(ToOpen::Full, ToOpen::Pause)
    }

    /// Whether one more connection to an endpoint is to be opened before a request needs it: each has room for so many, and
    /// no exchange waits. There is a permit for it then.
    pub(crate) fn takes_preconnect(
        &mut self,
        pool: Pool<'_>,
        endpoint: EndpointId,
        requests_per_connection: u32,
        now: Time,
    ) -> bool {
        let Some(preconnect) = pool.cluster.preconnect else { return false };
        let state = self.known_endpoint(endpoint);
        let Some(stack) = state.and_then(|state| state.known_stack(pool.priority)) else {
            return false;
        };
        let room = stack.open.saturating_mul(requests_per_connection);
        room < preconnect.room_for(stack.requests)
            && self.waiting_for(pool.id()) == 0
            && self.pause_of(endpoint, now).is_none()
            && self.has_room(pool)
            && self.takes_endpoint(pool, endpoint)
            && self.takes_connection(pool)
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

/// The endpoint at `place` of a cluster.
pub(crate) fn endpoint_at(cluster: &Arc<Cluster>, place: usize) -> &Endpoint {
    cluster.endpoints.get(place).expect("the balancer picks places of this very cluster")
}
