//! Upstream connections that are being established for no exchange: one asked for them and then did not need them, because its
//! client is gone, or none did yet (`preconnect`).
//!
//! Closing the former would let a client that cancels what it asks for (HTTP/2, "rapid reset") have the
//! proxy connect and close without end, at the upstream too. So a connection on which nothing was
//! sent stays: one from the pool goes back there, and one that is being established is *spare*. The
//! next request to its endpoint gets it; established before that, it goes to the pool. One that the
//! worker has not begun to connect is forgotten: nothing was done for it yet.

use config::snapshot::EndpointId;

use crate::connection::connections::Connections;
use crate::connection::{Connection, ConnectionRole, Upstream, UpstreamState};
use crate::keys::ConnKey;

/// Connections of a worker that are being established for no exchange; further ones are closed. As
/// many as a client of HTTP/2 may have streams, and a few more.
const SPARES_MAX: usize = 128;

/// Connections that are being established for no exchange, and maybe some that are not any more.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<ConnKey>);

impl Spares {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is room for another.
    pub(crate) fn has_room(&mut self, connections: &Connections) -> bool {
        if self.0.len() >= SPARES_MAX {
            self.0.retain(|key| connections.get(*key).is_some_and(is_spare));
        }
        self.0.len() < SPARES_MAX
    }

    /// Remembers one; returns false if there are too many.
    pub(crate) fn insert(&mut self, key: ConnKey, connections: &Connections) -> bool {
        let has_room = self.has_room(connections);
        if has_room {
            self.0.push(key);
        }
        has_room
    }

    /// Takes out the oldest that an exchange may use.
    pub(crate) fn take(
        &mut self,
        connections: &Connections,
        is_wanted: impl Fn(&Upstream) -> bool,
    ) -> Option<ConnKey> {
        self.0.retain(|key| connections.get(*key).is_some_and(is_spare));
        let upstream = |key: &ConnKey| connections.get(*key).and_then(Connection::upstream);
        let place = self.0.iter().position(|key| upstream(key).is_some_and(&is_wanted))?;
        Some(self.0.remove(place))
    }
}

/// Connections with streams that were established for no exchange and are in no pool, as their peers have not said what they take; and
/// maybe some that are not any more.
#[derive(Debug, Default)]
pub(crate) struct Unheard {
    keys: Vec<ConnKey>,
    /// How many were left when the others were last forgotten.
    left: usize,
}

impl Unheard {
    pub(crate) fn insert(&mut self, key: ConnKey, connections: &Connections) {
        // Each is looked at twice at most before as many come again.
        if self.keys.len() >= 2 * self.left.max(SPARES_MAX) {
            self.keys.retain(|key| connections.get(*key).is_some_and(is_unheard));
            self.left = self.keys.len();
        }
        self.keys.push(key);
    }

    /// Takes out those to an endpoint.
    pub(crate) fn take(&mut self, endpoint: EndpointId, connections: &Connections) -> Vec<ConnKey> {
        let is_to_it = |key: &mut ConnKey| {
            let connection = connections.get(*key).filter(|connection| is_unheard(connection));
            let upstream = connection.and_then(Connection::upstream);
            upstream.is_some_and(|it| it.endpoint == endpoint && !it.is_withheld)
        };
        self.keys.extract_if(.., is_to_it).collect()
    }
}

fn is_unheard(connection: &Connection) -> bool {
    connection.multiplex().is_some_and(|it| it.streams.is_empty() && !it.has_peer_settings())
}

/// Whether a connection is being established for no exchange.
pub(crate) fn is_spare(connection: &Connection) -> bool {
    matches!(
        &connection.role,
        ConnectionRole::Upstream(Upstream {
            state: UpstreamState::Connecting { exchange: None, .. },
            ..
        })
    )
}
