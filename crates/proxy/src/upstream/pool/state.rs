//! What a worker keeps of each pool and endpoint, under their stable ids. One without a request yet takes
//! no memory, and one of a former configuration does not find what took its place.

use std::time::Duration;

use config::breakers::{Breakers, EndpointConnections};
use config::priority::Priority;
use config::snapshot::{EndpointId, Id};

use super::backoff::Backoff;
use super::bounds::Permits;
use super::candidates::Candidates;
use super::latency::Latency;
use super::reserve::Reserve;
use super::stream_budget::StreamBudget;
use super::turns::Turns;
use super::{Pool, Pools};
use crate::keys::{ConnKey, PoolId};
use crate::tools::time::Time;
use crate::upstream::balance::Expected;

/// What this worker counts in the bounds of a cluster, beside its connections and the exchanges that wait.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Requests under way, where the cluster bounds them.
    pub(super) requests: u32,
    /// Exchanges whose rules have `retry`.
    pub(super) retriable: u32,
    /// Retries under way.
    pub(super) retries: u32,
}

/// What was noted of a cluster since its queue was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Whether a connection may be free, or may be opened.
    pub(crate) has_room: bool,
    /// Whether other workers want connections.
    pub(crate) is_wanted: bool,
    /// Connections that are being established and became spare.
    pub(crate) spares: u32,
}

/// A pool at run time.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) id: PoolId,
    /// Where the balancer stands in the first group of endpoints, which most clusters have alone.
    pub(super) cursors: Cursors,
    /// The same of the groups behind it.
    pub(super) more_cursors: Vec<Cursors>,
    pub(super) open: u32,
    pub(super) idle: u32,
    /// Requests under way at its endpoints, where the balancer compares them.
    pub(super) requests: u32,
    /// What of its bounds of the cluster is in use, in the process.
    pub(super) breakers: Breakers,
    pub(super) counted: Counted,
    pub(super) permits: Permits,
    /// Whether other workers know that exchanges wait since the bound of connections is reached.
    pub(super) is_wanting: bool,
    /// What [`freed`](config::breakers::InUse::freed) was when an exchange last found no endpoint with room for a connection;
    /// none if none looked in vain since there was room.
    pub(super) full_at: Option<u32>,
    /// The endpoints that may have idle connections.
    pub(super) candidates: Candidates,
    /// The exchanges that wait for a connection.
    pub(super) turns: Turns,
    /// Connections that are kept for others than clients that had more than their share.
    pub(super) reserve: Reserve,
    /// Whether it is among the clusters that are looked at because exchanges wait.
    pub(super) is_crowded: bool,
    /// What stands on the agenda for it.
    pub(super) noted: Noted,
}

/// Where a balancer stands in a group of endpoints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursors {
    pub(super) first: u64,
    /// The same of attempts that follow one that failed.
    pub(super) retry: u64,
}

impl Cursors {
    /// Where the first group begins, so do the others.
    const fn at(start: u64) -> Self {
        Self { first: start, retry: start }
    }
}

impl PoolState {
    /// Where the balancer stands in the group with this number.
    pub(super) fn cursors_of(&mut self, group: usize) -> &mut Cursors {
        let Some(place) = group.checked_sub(1) else { return &mut self.cursors };
        if self.more_cursors.len() <= place {
            self.more_cursors.resize(place + 1, self.cursors);
        }
        self.more_cursors.get_mut(place).expect("grown above")
    }

    /// Whether nothing of this worker counts in the bounds.
    const fn is_unused(&self) -> bool {
        let Counted { requests, retriable, retries } = self.counted;
        self.open == 0 && self.turns.waiting() == 0 && requests + retriable + retries == 0
    }
}

impl Drop for PoolState {
    /// What is open or waits where a worker ends, or a cluster goes, counts no more.
    fn drop(&mut self) {
        self.breakers.give_connections(self.open);
        self.breakers.give_pending(self.turns.waiting());
    }
}

/// The connections of one pool to an endpoint.
#[derive(Debug, Default)]
pub(super) struct Stack {
    /// The newest idle one.
    pub(super) newest: Option<ConnKey>,
    /// Whether the endpoint is among the candidates of the pool.
    pub(super) is_candidate: bool,
    /// Those that are open or being opened, but for health checks.
    pub(super) open: u32,
    /// Requests under way, where the balancer compares them, or `preconnect` follows them.
    pub(super) requests: u32,
}

/// An endpoint at run time.
#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) id: EndpointId,
    /// Its connections for requests of default priority.
    pub(super) stack: Stack,
    /// Those for requests of high priority, once there was one.
    pub(super) high: Option<Box<Stack>>,
    /// Where those of default priority are counted for the process, if its cluster bounds them.
    pub(super) connections: EndpointConnections,
    /// When it came, where it may get less for a while.
    pub(super) began: Option<Time>,
    /// How long its responses took, where the balancer compares that.
    pub(super) latency: Latency,
    pub(super) stream_budget: StreamBudget,
    pub(super) backoff: Backoff,
}

impl EndpointState {
    fn new(id: EndpointId) -> Self {
        let (stream_budget, backoff) = (StreamBudget::default(), Backoff::default());
        Self {
            id,
            stack: Stack::default(),
            high: None,
            connections: EndpointConnections::default(),
            began: None,
            latency: Latency::default(),
            stream_budget,
            backoff,
        }
    }

    /// How long a request may have to wait here; only to be compared.
    pub(super) fn expected(&self, decay: Duration, now: Time) -> Expected {
        let requests = self.requests();
        Expected { nanos: self.latency.load(requests, decay, now), requests }
    }
}

impl EndpointState {
    /// Its connections of the pool for requests of this priority.
    #[inline]
    pub(super) fn stack(&mut self, priority: Priority) -> &mut Stack {
        match priority {
            Priority::Default => &mut self.stack,
            Priority::High => self.high.get_or_insert_default(),
        }
    }

    /// The same, if there ever was one.
    #[inline]
    pub(super) fn known_stack(&self, priority: Priority) -> Option<&Stack> {
        match priority {
            Priority::Default => Some(&self.stack),
            Priority::High => self.high.as_deref(),
        }
    }

    /// Requests under way, of all pools.
    #[inline]
    pub(super) fn requests(&self) -> u32 {
        self.stack.requests + self.high.as_ref().map_or(0, |stack| stack.requests)
    }

    /// The newest idle connection of any pool.
    pub(super) fn any_idle(&self) -> Option<ConnKey> {
        self.stack.newest.or_else(|| self.high.as_ref()?.newest)
    }

    /// Counts its connections where the newest snapshot has them counted.
    pub(super) fn count_in(&mut self, connections: &EndpointConnections) {
        if self.connections.is_same(connections) {
            return;
        }
        self.connections.give(self.stack.open);
        connections.add(self.stack.open);
        self.connections = connections.clone();
    }
}

impl Drop for EndpointState {
    /// What is open where a worker ends, or an endpoint goes, counts no more.
    fn drop(&mut self) {
        self.connections.give(self.stack.open);
    }
}

impl Pools {
    /// Forgets an endpoint. Its idle connections must be gone.
    pub(crate) fn forget_endpoint(&mut self, endpoint: EndpointId) {
        self.refusing.forget(endpoint);
        if let Some(place) = self.endpoints.get_mut(endpoint.0.slot as usize)
            && place.as_ref().is_some_and(|state| state.id == endpoint)
        {
            *place = None;
        }
    }

    /// Forgets a pool, unless something still counts for it: its cluster may come again under the same id.
    pub(crate) fn forget_pool(&mut self, id: PoolId) {
        if let Some(place) = self.pools.of_mut(id.priority).get_mut(id.cluster.0.slot as usize)
            && place.as_ref().is_some_and(|state| state.id == id && state.is_unused())
        {
            *place = None;
        }
    }

    #[inline]
    pub(super) fn pool(&mut self, id: PoolId) -> Option<&mut PoolState> {
        // Pools of one priority stand in one table.
        let state = self.pools.of_mut(id.priority).get_mut(id.cluster.0.slot as usize)?;
        state.as_mut().filter(|state| state.id.cluster == id.cluster)
    }

    pub(super) fn pool_or_new(
        &mut self,
        pool: Pool<'_>,
        start: impl FnOnce() -> u64,
    ) -> Option<&mut PoolState> {
        let id = pool.id();
        let slot = slot(self.pools.of_mut(id.priority), id.cluster.0);
        // An exchange on an old configuration may ask for a cluster that is gone.
        let generation = id.cluster.0.generation;
        if slot.as_ref().is_some_and(|state| state.id.cluster.0.generation > generation) {
            return None;
        }
        if slot.as_ref().is_none_or(|state| state.id != id) {
            *slot = Some(PoolState {
                id,
                cursors: Cursors::at(start()),
                more_cursors: Vec::new(),
                open: 0,
                idle: 0,
                requests: 0,
                breakers: match self.share.is_apart() {
                    true => Breakers::default(),
                    false => pool.cluster.breakers.of(id.priority),
                },
                counted: Counted::default(),
                permits: Permits::default(),
                is_wanting: false,
                full_at: None,
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
    #[inline]
    pub(super) fn endpoint_or_new(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
        match self.known_endpoint(id) {
            Some(_) => self.endpoint(id),
            None => self.new_endpoint(id),
        }
    }

    #[cold]
    fn new_endpoint(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
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

    pub(super) fn known_endpoint(&self, id: EndpointId) -> Option<&EndpointState> {
        self.endpoints.get(id.0.slot as usize)?.as_ref().filter(|state| state.id == id)
    }

    pub(super) fn endpoint(&mut self, id: EndpointId) -> Option<&mut EndpointState> {
        self.endpoints.get_mut(id.0.slot as usize)?.as_mut().filter(|state| state.id == id)
    }
}

/// The budget for retries.
impl Pools {
    /// An exchange begins whose rule has `retry`.
    pub(crate) fn on_retriable_begun(
        &mut self,
        pool: Pool<'_>,
        is_retry: bool,
        start: impl FnOnce() -> u64,
    ) {
        let member = self.share.member();
        if let Some(state) = self.pool_or_new(pool, start) {
            state.counted.retriable += 1;
            state.breakers.add_retriable(member);
            if is_retry {
                state.counted.retries += 1;
                state.breakers.add_retry();
            }
        }
    }

    /// It is over.
    pub(crate) fn on_retriable_over(&mut self, pool: PoolId, is_retry: bool) {
        let member = self.share.member();
        if let Some(state) = self.pool(pool) {
            state.counted.retriable -= 1;
            state.breakers.give_retriable(member);
            if is_retry {
                state.counted.retries -= 1;
                state.breakers.give_retry();
            }
        }
    }

    /// Whether the cluster's budget allows one more retry, which then counts; `is_counted`: it does already, since the
    /// exchange was sent again before.
    pub(crate) fn takes_retry(&mut self, pool: Pool<'_>, is_counted: bool) -> bool {
        let budget = pool.bounds().retry_budget;
        let Some(state) = self.pool(pool.id()) else { return false };
        match is_counted {
            true => state.breakers.keeps_retry(budget),
            false => {
                let is_taken = state.breakers.take_retry(budget);
                state.counted.retries += u32::from(is_taken);
                is_taken
            }
        }
    }
}

/// The place for `id`, which the table grows to have.
fn slot<T>(table: &mut Vec<Option<T>>, id: Id) -> &mut Option<T> {
    let slot = id.slot as usize;
    if table.len() <= slot {
        table.resize_with(slot + 1, || None);
    }
    table.get_mut(slot).expect("grown above")
}
