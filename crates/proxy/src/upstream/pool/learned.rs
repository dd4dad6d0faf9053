//! What a worker has learned of endpoints beside their connections, and where its balancers stand, in values with which another
//! process goes on.
//!
//! Each field of what is kept of a pool and an endpoint is named here: one that comes later does not compile until it is said what
//! becomes of it.

use serde::{Deserialize, Serialize};

use super::backoff::Backoff;
use super::latency::Latency;
use super::state::{Cursors, EndpointState, PoolState};
use super::stream_budget::StreamBudget;
use super::{Pool, Pools};
use crate::keys::PoolId;
use crate::tools::time::Time;
use config::snapshot::EndpointId;

/// Groups of endpoints of a cluster whose cursors are written down, at most. Others begin anew.
const GROUPS_MAX: usize = 64;

/// Whose turn it is in a group of endpoints: the cursor of first attempts, and that of others.
pub type Turns = (u64, u64);

/// What was learned of an endpoint. Times are in ns, and 0 where there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedOfEndpoint {
    /// The average of its response times, and how old that is.
    #[serde(skip_serializing_if = "is_default")]
    pub latency: (f64, u64),
    /// How long ago it came, plus 1, where it may get less for a while.
    #[serde(skip_serializing_if = "is_default")]
    pub age: u64,
    /// Connections in a row on which it processed nothing, and how long none is opened to it for that.
    #[serde(skip_serializing_if = "is_default")]
    pub refusals: (u8, u64),
    /// Streams after which it went away from a connection; those after which it does so by habit, or 0; and for how many connections
    /// that is believed.
    #[serde(skip_serializing_if = "is_default")]
    pub streams: (u32, u32, u8),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Pools {
    /// Whose turn it is in each group of the endpoints of a cluster. Nothing where no request came yet.
    pub(crate) fn turns(&self, id: PoolId) -> Vec<Turns> {
        let state = self.pools.of(id.priority).get(id.cluster.0.slot as usize);
        let state = state.and_then(Option::as_ref).filter(|state| state.id == id);
        let Some(state) = state else { return Vec::new() };
        let PoolState {
            cursors,
            more_cursors,
            // Of the connections, and the exchanges, that move.
            id: _,
            open: _,
            idle: _,
            requests: _,
            breakers: _,
            counted: _,
            permits: _,
            is_wanting: _,
            full_at: _,
            candidates: _,
            turns: _,
            reserve: _,
            is_crowded: _,
            noted: _,
        } = state;
        let all = std::iter::once(cursors).chain(more_cursors).take(GROUPS_MAX);
        all.map(|cursors| (cursors.first, cursors.retry)).collect()
    }

    /// Goes on with these.
    pub(crate) fn set_turns(&mut self, pool: Pool<'_>, turns: &[Turns]) {
        let mut turns = turns.iter().take(GROUPS_MAX);
        let cursors = |(first, retry): &Turns| Cursors { first: *first, retry: *retry };
        let Some(first) = turns.next().map(cursors) else { return };
        if let Some(state) = self.pool_or_new(pool, || first.first) {
            state.cursors = first;
            state.more_cursors = turns.map(cursors).collect();
        }
    }

    /// What was learned of an endpoint, if anything was.
    pub(crate) fn learned(&self, endpoint: EndpointId, now: Time) -> Option<LearnedOfEndpoint> {
        let EndpointState {
            began,
            latency,
            stream_budget,
            backoff,
            // Of the connections, and the requests, that move.
            id: _,
            stack: _,
            high: _,
            connections: _,
        } = self.known_endpoint(endpoint)?;
        let learned = LearnedOfEndpoint {
            latency: latency.save(now),
            age: began.map_or(0, |began| now.nanos_since(began).saturating_add(1)),
            refusals: backoff.save(now),
            streams: stream_budget.save(),
        };
        (learned != LearnedOfEndpoint::default()).then_some(learned)
    }

    /// Goes on with that. It comes from elsewhere, and may be anything.
    pub(crate) fn learn(&mut self, endpoint: EndpointId, learned: &LearnedOfEndpoint, now: Time) {
        let Some(state) = self.endpoint_or_new(endpoint) else { return };
        let before = |nanos: u64| Time::from_nanos(now.as_nanos().saturating_sub(nanos));
        state.began = learned.age.checked_sub(1).map(before);
        state.latency = Latency::restore(learned.latency, now);
        state.backoff = Backoff::restore(learned.refusals, now);
        state.stream_budget = StreamBudget::restore(learned.streams);
    }
}
