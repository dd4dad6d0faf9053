//! Pools of original-destination clusters: one for each address that connections go to.
//!
//! Such a cluster has no endpoints that could be counted beforehand. One id stands for all its
//! addresses, and idle connections are looked up by that and the address. When no more may be open
//! and none of the idle ones goes the right way, one of those makes room. An address that goes away from
//! connection after connection has pauses of its own, as an endpoint has.

use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Unbounded};

use config::priority::Priority;
use config::snapshot::EndpointId;
use telemetry::cause::Cause;

use super::idle::is_unused;
use super::{Acquired, Ask, Pools, Sharing};
use crate::connection::Connection;
use crate::connection::connections::Connections;
use crate::keys::ConnKey;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::pool::backoff::LOWEST;

impl Pools {
    /// A connection to where the client was going: an idle one, else a new one, else one in place of an
    /// idle one, else a place in the queue. `endpoint` stands for all destinations of the cluster.
    pub(super) fn acquire_to(
        &mut self,
        endpoint: EndpointId,
        ask: &Ask<'_>,
        random: &mut Random,
        now: Time,
        connections: &mut Connections,
    ) -> Acquired {
        let Ask { cluster, priority, sharing, .. } = *ask;
        let newest = ask.pool();
        let Some(destination) = ask.destination else {
            return Acquired::Nothing(Cause::NoOriginalDestination);
        };
        if self.pool_or_new(ask.followed(), || random.next()).is_none() {
            return Acquired::Nothing(Cause::NoEndpoint);
        }
        let idle =
            self.originals.get(&(endpoint, priority, destination)).copied().filter(|newest| {
                let upstream = connections.get(*newest).and_then(Connection::upstream);
                upstream.is_some_and(|upstream| upstream.transport == cluster.transports.own().id)
            });
        match (idle, sharing) {
            (Some(connection), Sharing::InTurn) => {
                self.remove_idle(connection, connections);
                return Acquired::Idle(connection, 0);
            }
            (Some(connection), Sharing::Together) => return Acquired::Shared(connection, 0),
            (Some(_), Sharing::Personal) | (None, _) => {}
        }
        if let Some(until) = self.refusing.pause((endpoint, destination), now) {
            return if self.takes_place(newest) {
                Acquired::Pause(until)
            } else {
                Acquired::Overflow
            };
        }
        if self.takes_connection(newest) {
            return Acquired::Open(0);
        }
        if let Some(other) = self.next_unused((endpoint, priority, destination), connections) {
            return Acquired::Replace(other, 0);
        }
        if self.takes_place(newest) {
            Acquired::Wait { place: 0, stays: false }
        } else {
            Acquired::Overflow
        }
    }

    /// Sets, or forgets, the newest idle connection to a destination.
    pub(super) fn set_newest_to(
        &mut self,
        place: (EndpointId, Priority, SocketAddr),
        newest: Option<ConnKey>,
    ) {
        match newest {
            Some(newest) => self.originals.insert(place, newest),
            None => self.originals.remove(&place),
        };
    }

    /// Some idle connection of those that `endpoint` stands for.
    pub(super) fn first_original(&self, endpoint: EndpointId) -> Option<ConnKey> {
        let first = (endpoint, Priority::Default, LOWEST);
        let (key, newest) = self.originals.range(first..).next()?;
        (key.0 == endpoint).then_some(*newest)
    }

    /// An unused connection to any destination of those that `endpoint` stands for, in the pool for these requests.
    pub(super) fn first_unused(
        &self,
        (endpoint, priority): (EndpointId, Priority),
        connections: &Connections,
    ) -> Option<ConnKey> {
        let all = self.originals.range((endpoint, priority, LOWEST)..);
        let all = all.take_while(|(key, _)| (key.0, key.1) == (endpoint, priority));
        all.map(|(_, newest)| *newest).find(|newest| is_unused(*newest, connections))
    }

    /// An unused connection to the next destination behind this one, so that not the same
    /// one makes room for all. Of those that are shared, each destination's newest is looked at.
    fn next_unused(
        &self,
        here: (EndpointId, Priority, SocketAddr),
        connections: &Connections,
    ) -> Option<ConnKey> {
        let (endpoint, priority, _) = here;
        let behind = self.originals.range((Excluded(here), Unbounded));
        let behind = behind.take_while(|(key, _)| (key.0, key.1) == (endpoint, priority));
        let before = self.originals.range((endpoint, priority, LOWEST)..=here);
        let mut all = behind.chain(before).map(|(_, newest)| *newest);
        all.find(|newest| is_unused(*newest, connections))
    }
}
