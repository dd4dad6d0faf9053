//! What connections count for while they are on their way from one worker to another.
//!
//! Were they counted by neither, others would take their room, and a bound would be exceeded once they arrive. So they count
//! from before the one lets go of them until the other has them, and for a moment twice. What is lost on the way is given
//! back.

use config::breakers::{Breakers, EndpointConnections, Member};
use config::snapshot::EndpointId;

use crate::upstream::pool::Pool;

/// Counts until it is dropped.
#[derive(Debug, Default)]
pub struct Held(Vec<HeldPlace>);

/// What counts.
#[derive(Debug)]
enum HeldPlace {
    Connection(Breakers),
    Endpoint(EndpointConnections),
    Request(Breakers, Member),
}

impl Held {
    /// A connection to this endpoint of a cluster.
    pub(super) fn hold_connection(&mut self, pool: Pool<'_>, endpoint: EndpointId) {
        let Pool { cluster, priority } = pool;
        if pool.per_endpoint_max().is_some()
            && let Some(place) = cluster.place_of(endpoint)
            && let Some(endpoint) = cluster.endpoints.get(place)
        {
            endpoint.connections.add(1);
            self.0.push(HeldPlace::Endpoint(endpoint.connections.clone()));
        }
        // Behind that of the endpoint: where it is given back, exchanges look whether an endpoint has room.
        let breakers = cluster.breakers.of(priority);
        breakers.add_connection();
        self.0.push(HeldPlace::Connection(breakers));
    }

    pub(super) fn hold_request(&mut self, breakers: Option<Breakers>, member: Member) {
        if let Some(breakers) = breakers {
            breakers.add_request(member);
            self.0.push(HeldPlace::Request(breakers, member));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for held in &self.0 {
            match held {
                HeldPlace::Connection(breakers) => breakers.give_connections(1),
                HeldPlace::Endpoint(connections) => connections.give(1),
                HeldPlace::Request(breakers, member) => breakers.give_request(*member),
            }
        }
    }
}
