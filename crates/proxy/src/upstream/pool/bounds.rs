//! The bounds of a cluster, which are those of the whole process ([`config::breakers`]), as one worker meets them.
//!
//! A *permit* for a connection, or for a place in the queue, is taken of the bound within one attempt, and released at its end
//! if it was not used.
//!
//! Where exchanges wait since the bound of connections is reached, their worker says so to the others, and has them look
//! ([`Bells`](crate::share::Bells)). Each of these closes what it does not use. From then on, so does every worker that has
//! a connection which becomes free. A worker with exchanges of its own keeps what it has, but for one case: those that have
//! less than their part (the bound, divided by the workers) come before those that have more.
//!
//! ```text
//!  exchange waits ─► others look ─► they close what is unused, and ring ─► served
//!                     ▲                                                     │ exchanges still wait, and the bound is reached
//!                     └─────────────────────────────────────────────────────┘
//! ```
//!
//! Where connections to each endpoint are bounded too, there may be room in the cluster and none for the endpoints that an
//! exchange may have. Such an exchange waits as if the cluster had none, until a connection to any endpoint is closed
//! ([`freed`](config::breakers::InUse::freed)).

use config::breakers::Member;
use config::priority::Priority;
use config::snapshot::{Cluster, EndpointId};
use telemetry::cause::Cause;

use super::state::PoolState;
use super::{Pool, Pools};
use crate::keys::{EndpointKey, PoolId};
use crate::share::{Share, bit};
use crate::tools::random::Random;
use crate::tools::time::Time;

/// Permits of a cluster's bounds that an attempt has taken, and not used yet.
#[derive(Debug, Default)]
pub(super) struct Permits {
    connections: u32,
    pending: u32,
    /// The endpoint to which a connection may be opened.
    endpoint: Option<EndpointId>,
    /// Whether the next connection that is closed is for one that is opened in its place.
    keeps_connection: bool,
    /// Whether that one is to the same endpoint.
    keeps_endpoint: bool,
    /// Whether the next exchange that leaves the queue does for one that takes its place.
    keeps_place: bool,
}

/// How many connections of a cluster may be open.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// In the process.
    max: u32,
    /// Whether each endpoint has a bound of its own.
    is_by_endpoint: bool,
}

impl Bound {
    fn of(pool: Pool<'_>) -> Self {
        let is_by_endpoint = pool.per_endpoint_max().is_some();
        Self { max: pool.bounds().connections_max.get(), is_by_endpoint }
    }
}

impl PoolState {
    /// Whether another connection may be opened, as far as the cluster bounds them.
    fn has_room(&self, share: Share, bound: Bound) -> bool {
        self.permits.connections > 0
            || (self.breakers.connections() < bound.max && !self.is_barred(share, bound))
    }

    /// Whether an exchange that waits may find an endpoint to which another may be opened.
    fn has_room_somewhere(&self, share: Share, bound: Bound) -> bool {
        self.has_room(share, bound) && self.full_at != Some(self.breakers.freed())
    }

    /// A worker's part of the connections that may be open. Where endpoints have bounds of their own, not all of them may get
    /// some: those that are there are shared out.
    fn part(&self, share: Share, bound: Bound) -> u32 {
        share.part_of(match bound.is_by_endpoint {
            true => bound.max.min(self.breakers.connections()),
            false => bound.max,
        })
    }

    /// Whether workers that have less come first.
    fn is_barred(&self, share: Share, bound: Bound) -> bool {
        self.open >= self.part(share, bound).max(1)
            && self.breakers.is_owed_to_others(share.member())
    }

    /// Whether workers that have less get the next connection that is not used here.
    fn owes(&self, share: Share, bound: Bound) -> bool {
        self.open > self.part(share, bound) && self.breakers.is_owed_to_others(share.member())
    }

    fn tell(&mut self, share: Share, bound: Bound) {
        let is_entitled = self.open < self.part(share, bound).max(1);
        self.breakers.set_wanting(share.member(), true, is_entitled);
        self.is_wanting = true;
    }

    /// It has one more: whether that is still less than its part is for the next time that it tells. Two workers that went on
    /// to say so would each leave the room to the other, and wake each other without end.
    fn end_entitlement(&self, member: Member) {
        if self.is_wanting {
            self.breakers.set_wanting(member, true, false);
        }
    }

    /// Exchanges wait for a connection no more, or for one that they may get.
    pub(super) fn end_wanting(&mut self, member: Member) {
        if std::mem::take(&mut self.is_wanting) {
            self.breakers.set_wanting(member, false, false);
        }
    }
}

impl Pools {
    /// Whether there are other workers.
    const fn has_others(&self) -> bool {
        self.share.workers > 1
    }

    // What an attempt takes.

    /// Whether a connection may be opened now.
    pub(crate) fn has_room(&mut self, newest: Pool<'_>) -> bool {
        let (share, bound) = (self.share, Bound::of(newest));
        self.pool(newest.id()).is_some_and(|state| state.has_room(share, bound))
    }

    /// How many connections a cluster has beyond its bound, as after that was lowered, or where another process had some of them.
    pub(crate) fn surplus(&mut self, newest: Pool<'_>) -> u32 {
        let max = Bound::of(newest).max;
        let open = self.pool(newest.id()).map_or(0, |state| state.breakers.connections());
        open.saturating_sub(max)
    }

    /// Whether a cluster, or this endpoint of it, has more connections than it may: then one that becomes free is closed.
    pub(crate) fn is_over(&mut self, newest: Pool<'_>, endpoint: EndpointId) -> bool {
        if self.surplus(newest) > 0 {
            return true;
        }
        let Some(max) = newest.per_endpoint_max() else { return false };
        let open = self.endpoint(endpoint).and_then(|state| state.connections.open());
        open.is_some_and(|open| open > max.get())
    }

    /// Takes a permit for a connection, if it has none. Returns false if none may be opened.
    pub(super) fn takes_connection(&mut self, newest: Pool<'_>) -> bool {
        let (share, bound) = (self.share, Bound::of(newest));
        let Some(state) = self.pool(newest.id()) else { return false };
        if state.permits.connections == 0 {
            if state.is_barred(share, bound) || !state.breakers.take_connection(bound.max) {
                return false;
            }
            state.permits.connections = 1;
            self.permits_of = Some(newest.id());
        }
        true
    }

    /// Takes a permit for a connection to this endpoint, if it has none. Returns false if none may be opened.
    pub(super) fn takes_endpoint(&mut self, newest: Pool<'_>, endpoint: EndpointId) -> bool {
        let cluster = newest.cluster;
        let Some(max) = newest.per_endpoint_max().filter(|_| !self.share.is_apart()) else {
            return true;
        };
        let taken = self.pool(newest.id()).and_then(|state| state.permits.endpoint);
        if taken == Some(endpoint) {
            return true;
        }
        // One that is gone, or of a former configuration, has no bound of now.
        let counted = cluster.place_of(endpoint).and_then(|place| cluster.endpoints.get(place));
        let Some((state, counted)) = self.endpoint_or_new(endpoint).zip(counted) else {
            return true;
        };
        state.count_in(&counted.connections);
        if !state.connections.take(max.get()) {
            return false;
        }
        self.leave_endpoint(newest.id());
        if let Some(state) = self.pool(newest.id()) {
            state.permits.endpoint = Some(endpoint);
            self.permits_of = Some(newest.id());
        }
        true
    }

    /// Gives back the permit for a connection to an endpoint, if there is one that was not used. Returns whether there was.
    fn leave_endpoint(&mut self, pool: PoolId) -> bool {
        let taken = self.pool(pool).and_then(|state| state.permits.endpoint.take());
        let Some(state) = taken.and_then(|endpoint| self.endpoint(endpoint)) else { return false };
        state.connections.give(1);
        if let Some(state) = self.pool(pool) {
            state.breakers.note_freed();
        }
        true
    }

    /// What [`freed`](config::breakers::InUse::freed) is, before endpoints are looked at for one with room.
    pub(super) fn freed(&mut self, pool: PoolId) -> u32 {
        self.pool(pool).map_or(0, |state| state.breakers.freed())
    }

    /// An exchange found no endpoint to which it may have a connection opened, at the time of `freed`.
    pub(super) fn note_full(&mut self, pool: PoolId, freed: u32) {
        if let Some(state) = self.pool(pool) {
            state.full_at = Some(freed);
        }
    }

    /// Endpoints may have come, or may be chosen again: there may be one with room.
    pub(crate) fn forget_full(&mut self, pool: PoolId) {
        if let Some(state) = self.pool(pool) {
            state.full_at = None;
        }
    }

    /// Counts connections to endpoints where this cluster has them counted, which it may not have done before.
    pub(crate) fn count_endpoints(&mut self, cluster: &Cluster) {
        if cluster.connections_per_endpoint_max.is_none() {
            return;
        }
        for endpoint in &cluster.endpoints {
            if let Some(state) = self.endpoint(endpoint.id) {
                state.count_in(&endpoint.connections);
            }
        }
    }

    /// Takes a permit for a place in the queue, if it has none. Returns false if no exchange may wait.
    pub(crate) fn takes_place(&mut self, newest: Pool<'_>) -> bool {
        let Some(state) = self.pool(newest.id()) else { return false };
        if state.permits.pending == 0 {
            if !state.breakers.take_pending(newest.bounds().pending_max) {
                return false;
            }
            state.permits.pending = 1;
            self.permits_of = Some(newest.id());
        }
        true
    }

    /// The next connection of this cluster that is closed makes room for one that is opened.
    pub(crate) fn keep_connection(&mut self, pool: PoolId) {
        if let Some(state) = self.pool(pool) {
            state.permits.keeps_connection = true;
            self.permits_of = Some(pool);
        }
    }

    /// The same, where the other one is to the same endpoint.
    pub(super) fn keep_endpoint(&mut self, pool: PoolId) {
        if let Some(state) = self.pool(pool) {
            state.permits.keeps_endpoint = true;
            self.permits_of = Some(pool);
        }
    }

    /// The next exchange that leaves this cluster's queue leaves its place to another.
    pub(crate) fn keep_place(&mut self, pool: PoolId) {
        if let Some(state) = self.pool(pool) {
            state.permits.keeps_place = true;
            self.permits_of = Some(pool);
        }
    }

    /// An attempt is over: permits that it did not use are released. Returns the cluster of which there is a connection more.
    pub(crate) fn release_permits(&mut self) -> Option<PoolId> {
        let pool = self.permits_of.take()?;
        let has_left = self.leave_endpoint(pool);
        let state = self.pool(pool)?;
        let Permits { connections, pending, .. } = std::mem::take(&mut state.permits);
        state.breakers.give_connections(connections);
        state.breakers.give_pending(pending);
        (connections > 0 || has_left).then_some(pool)
    }

    // What counts.

    /// A connection of this cluster begins to be opened; none of its bounds counts one for health checks.
    pub(crate) fn on_open(
        &mut self,
        EndpointKey { pool, endpoint }: EndpointKey,
        is_for_checks: bool,
    ) {
        self.open += 1;
        if is_for_checks {
            return;
        }
        let permits = self.pool(pool).map(|state| &mut state.permits);
        let taken = permits.and_then(|permits| permits.endpoint.take_if(|it| *it == endpoint));
        if let Some(state) = self.endpoint_or_new(endpoint) {
            state.stack(pool.priority).open += 1;
            if taken.is_none() && pool.is_counted_by_endpoint() {
                state.connections.add(1);
            }
        }
        let member = self.share.member();
        if let Some(state) = self.pool(pool) {
            state.open += 1;
            state.end_entitlement(member);
            match state.permits.connections.checked_sub(1) {
                Some(left) => state.permits.connections = left,
                None => state.breakers.add_connection(),
            }
        }
    }

    /// A connection of this cluster came from another worker.
    pub(crate) fn on_restored(
        &mut self,
        pool: Option<Pool<'_>>,
        endpoint: EndpointId,
        start: impl FnOnce() -> u64,
    ) {
        self.open += 1;
        let known = pool
            .and_then(|Pool { cluster, .. }| cluster.endpoints.get(cluster.place_of(endpoint)?));
        let (priority, is_counted) = pool.map_or((Priority::Default, true), |pool| {
            (pool.priority, pool.id().is_counted_by_endpoint())
        });
        if let Some(state) = self.endpoint_or_new(endpoint) {
            if let Some(known) = known {
                state.count_in(&known.connections);
            }
            state.stack(priority).open += 1;
            if is_counted {
                state.connections.add(1);
            }
        }
        let member = self.share.member();
        if let Some(state) = pool.and_then(|pool| self.pool_or_new(pool, start)) {
            state.open += 1;
            state.end_entitlement(member);
            state.breakers.add_connection();
        }
    }

    /// A connection of this cluster is gone; it was not idle any more.
    pub(crate) fn on_closed(
        &mut self,
        EndpointKey { pool, endpoint }: EndpointKey,
        was_for_checks: bool,
    ) {
        self.open -= 1;
        if was_for_checks {
            return;
        }
        let permits = self.pool(pool).map(|state| &mut state.permits);
        let is_kept = permits.is_some_and(|it| {
            let is_kept = std::mem::take(&mut it.keeps_endpoint);
            if is_kept {
                it.endpoint = Some(endpoint);
            }
            is_kept
        });
        // One that came back after it was gone has not counted all that are open.
        if let Some(state) = self.endpoint(endpoint)
            && let Some(open) = state.stack(pool.priority).open.checked_sub(1)
        {
            state.stack(pool.priority).open = open;
            if !is_kept && pool.is_counted_by_endpoint() {
                state.connections.give(1);
            }
        }
        if let Some(state) = self.pool(pool) {
            debug_assert!(state.open > 0, "what is closed was opened");
            let Some(open) = state.open.checked_sub(1) else { return };
            state.open = open;
            if std::mem::take(&mut state.permits.keeps_connection) {
                state.permits.connections += 1;
            } else {
                state.breakers.give_connections(1);
            }
        }
    }

    /// An exchange enters the queue of this cluster.
    pub(super) fn on_wait(&mut self, pool: PoolId) {
        self.waiting += 1;
        if let Some(state) = self.pool(pool) {
            match state.permits.pending.checked_sub(1) {
                Some(left) => state.permits.pending = left,
                None => state.breakers.add_pending(),
            }
        }
    }

    /// An exchange left the queue of this cluster.
    pub(super) fn on_wait_over(&mut self, pool: PoolId) {
        self.waiting -= 1;
        let member = self.share.member();
        if let Some(state) = self.pool(pool) {
            if std::mem::take(&mut state.permits.keeps_place) {
                state.permits.pending += 1;
            } else {
                state.breakers.give_pending(1);
            }
            if state.turns.waiting() == 0 {
                state.end_wanting(member);
            }
        }
    }

    // Requests.

    /// Counts a request that is about to be under way. Returns why it may not be, if the bound is reached.
    pub(crate) fn refuse_request(
        &mut self,
        pool: Pool<'_>,
        random: &mut Random,
        now: Time,
    ) -> Option<Cause> {
        let bound = pool.cluster.requests_bound(pool.priority, now.as_nanos());
        let (requests_max, is_adaptive) = bound?;
        let member = self.share.member();
        let state = self.pool_or_new(pool, || random.next())?;
        if state.breakers.take_request(member, requests_max) {
            state.counted.requests += 1;
            return None;
        }
        Some(if is_adaptive { Cause::ConcurrencyLimited } else { Cause::RequestsOverflow })
    }

    /// A request came from another worker.
    pub(crate) fn add_request(&mut self, pool: Pool<'_>, start: impl FnOnce() -> u64) {
        let member = self.share.member();
        if let Some(state) = self.pool_or_new(pool, start) {
            state.counted.requests += 1;
            state.breakers.add_request(member);
        }
    }

    /// A request that was counted is under way no more.
    pub(crate) fn give_request(&mut self, pool: PoolId) {
        let member = self.share.member();
        if let Some(state) = self.pool(pool) {
            state.counted.requests -= 1;
            state.breakers.give_request(member);
        }
    }

    // Where the bound is reached.

    /// Whether an exchange waits and a connection is idle or may be opened.
    pub(crate) fn can_serve(&mut self, pool: Pool<'_>) -> bool {
        let (share, bound) = (self.share, Bound::of(pool));
        self.pool(pool.id()).is_some_and(|state| {
            state.turns.waiting() > 0 && (state.idle > 0 || state.has_room_somewhere(share, bound))
        })
    }

    /// Connections of a cluster that this worker has open, or opens.
    pub(super) fn open_of(&mut self, pool: PoolId) -> u32 {
        self.pool(pool).map_or(0, |state| state.open)
    }

    /// Connections of a cluster that are idle or may be opened.
    pub(super) fn free(&mut self, pool: Pool<'_>) -> u32 {
        let connections_max = pool.cluster.connections_bound(pool.priority);
        self.pool(pool.id()).map_or(0, |state| {
            connections_max.saturating_sub(state.breakers.connections()) + state.idle
        })
    }

    /// Exchanges of this cluster wait since the bound is reached: tells other workers, if they do not know. Returns those that
    /// have to look.
    pub(crate) fn want(&mut self, pool: Pool<'_>) -> Want {
        let (share, bound) = (self.share, Bound::of(pool));
        let has_others = self.has_others();
        let Some(state) = self.pool(pool.id()) else { return Want::Nothing };
        if state.is_wanting || state.turns.waiting() == 0 {
            return Want::Nothing;
        }
        state.tell(share, bound);
        // One may have ended before others could see that.
        match state.has_room_somewhere(share, bound) {
            true => Want::Room,
            false if has_others => Want::Look(!bit(share.worker)),
            false => Want::Nothing,
        }
    }

    /// Exchanges still wait: tells other workers again, if this one has less than its part.
    pub(crate) fn want_again(&mut self, pool: Pool<'_>) -> Want {
        let member = self.share.member();
        let is_wanting = self.pool(pool.id()).is_some_and(|state| {
            let is_wanting = state.is_wanting;
            state.end_wanting(member);
            is_wanting
        });
        if is_wanting { self.want(pool) } else { Want::Nothing }
    }

    /// Exchanges that wait are served: those for which there is no connection say so again.
    pub(crate) fn end_wanting(&mut self, pool: PoolId) {
        let member = self.share.member();
        if let Some(state) = self.pool(pool) {
            state.end_wanting(member);
        }
    }

    /// Whether exchanges of other workers wait for a connection of this cluster.
    #[inline]
    pub(crate) fn is_wanted_by_others(&mut self, pool: PoolId) -> bool {
        if !self.has_others() {
            return false;
        }
        let member = self.share.member();
        self.pool(pool).is_some_and(|state| state.breakers.is_wanted_by_others(member))
    }

    /// Whether workers that have less than their part get the next connection that is not used here.
    pub(crate) fn owes(&mut self, pool: Pool<'_>) -> bool {
        let (share, bound) = (self.share, Bound::of(pool));
        self.pool(pool.id()).is_some_and(|state| state.owes(share, bound))
    }

    /// What this worker does where others want connections of this cluster.
    pub(crate) fn yielding(&mut self, pool: Pool<'_>) -> Yield {
        let (share, bound) = (self.share, Bound::of(pool));
        let Some(state) = self.pool(pool.id()) else { return Yield::Nothing };
        let waiting = state.turns.waiting();
        if !state.breakers.is_wanted_by_others(share.member()) {
            Yield::Nothing
        } else if waiting == 0 {
            Yield::Unused(state.breakers.pending().max(1))
        } else if state.owes(share, bound) {
            Yield::One
        } else {
            Yield::Nothing
        }
    }

    /// The worker whose exchanges are served next, as a set, if there is a connection for them.
    pub(crate) fn next_to_ring(&mut self, pool: Pool<'_>) -> Option<u64> {
        let (member, bound) = (self.share.member(), Bound::of(pool));
        let state = self.pool(pool.id())?;
        let has_room = state.breakers.connections() < bound.max;
        if bound.is_by_endpoint {
            // Which of them waits for the endpoint that has room is not known.
            return if has_room { state.breakers.others_to_wake(member) } else { None };
        }
        let next = if has_room { state.breakers.next_wanting(member) } else { None };
        next.map(bit)
    }

    /// The pools of this worker.
    pub(crate) fn all(&self) -> impl Iterator<Item = PoolId> {
        self.states().map(|state| state.id)
    }

    /// The pools in use of clusters whose slots are in a set of bells.
    pub(crate) fn rung(&self, bells: u64) -> impl Iterator<Item = PoolId> {
        self.states().map(|state| state.id).filter(move |id| bells & bit(id.cluster.0.slot) != 0)
    }
}

/// Whether another connection to this endpoint may be opened, unless another worker is faster.
pub(super) fn endpoint_has_room(newest: Pool<'_>, endpoint: EndpointId) -> bool {
    let Some(max) = newest.per_endpoint_max() else { return true };
    let Pool { cluster, .. } = newest;
    let counted = cluster.place_of(endpoint).and_then(|place| cluster.endpoints.get(place));
    counted.and_then(|it| it.connections.open()).is_none_or(|open| open < max.get())
}

/// What follows where exchanges wait since the bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Nothing,
    /// A connection may be opened.
    Room,
    /// These workers have to look.
    Look(u64),
}

/// What a worker leaves to others that want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yield {
    Nothing,
    /// Up to so many connections, as far as they are not used.
    Unused(u32),
    /// One connection, although exchanges wait here too.
    One,
}
