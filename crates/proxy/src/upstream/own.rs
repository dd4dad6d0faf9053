//! Clients that have upstream connections of their own for a while, so that they can move without others.
//!
//! Clients that share connections of HTTP/2 of a service move together, and may be all clients of a worker. To relieve it, the busiest
//! is set apart: its new requests go on connections that no other client has. Once those that it had begun before are over, it
//! moves alone.
//!
//! Where an endpoint is chosen by more than whose turn it is, or there is no room for another connection, requests are shared as ever.

use std::time::Duration;

use config::priority::Priority;
use config::snapshot::Cluster;

use crate::connection::codec::multiplex::Multiplex;
use crate::connection::connections::Connections;
use crate::connection::{Connection, Upstream};
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::tools::time::Time;
use crate::upstream::Upstreams;

/// How long a client is set apart.
const FOR: Duration = Duration::from_secs(10);

/// Clients that are set apart at a time.
const CLIENTS_MAX: usize = 8;

/// Connections of its own that a client gets: further requests are shared.
const CONNECTIONS_MAX: usize = 8;

/// The clients that are set apart.
#[derive(Debug, Default)]
pub(crate) struct OwnConnections(Vec<Client>);

#[derive(Debug)]
struct Client {
    key: ConnKey,
    until: Time,
    connections: Vec<ConnKey>,
}

/// Where a request of a client goes that is set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnChoice {
    /// On this connection of its own, to the endpoint at this place.
    Use(ConnKey, usize),
    /// On a new one.
    Open,
}

impl OwnConnections {
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn client(&self, key: ConnKey) -> Option<&Client> {
        self.0.iter().find(|client| client.key == key)
    }

    /// Whether the next connection that is opened for a client is its own.
    pub(crate) fn takes_next_of(&self, client: ConnKey) -> bool {
        self.client(client).is_some_and(|client| client.connections.len() < CONNECTIONS_MAX)
    }

    pub(crate) fn add(&mut self, client: ConnKey, connection: ConnKey) {
        if let Some(client) = self.0.iter_mut().find(|it| it.key == client) {
            client.connections.push(connection);
        }
    }

    /// Where a request of this client to a cluster goes, if the client is set apart.
    pub(crate) fn choose(
        &self,
        client: ConnKey,
        cluster: &Cluster,
        priority: Priority,
        connections: &Connections,
    ) -> Option<OwnChoice> {
        let client = self.client(client)?;
        let of_cluster = |key: &ConnKey| {
            let connection = connections.get(*key)?;
            let upstream = connection.upstream()?;
            let is_of_pool = (upstream.cluster, upstream.priority) == (cluster.id, priority);
            let place = cluster.place_of(upstream.endpoint).filter(|_| is_of_pool)?;
            let is_current = cluster.transport_at(place).id == upstream.transport;
            let has_room = connection.multiplex().is_some_and(takes_stream);
            (is_current && has_room).then_some(OwnChoice::Use(*key, place))
        };
        let found = client.connections.iter().find_map(of_cluster);
        found.or_else(|| self.takes_next_of(client.key).then_some(OwnChoice::Open))
    }
}

/// Whether a stream can be opened at once.
fn takes_stream(multiplex: &Multiplex) -> bool {
    let is_known = multiplex.has_peer_settings() || multiplex.streams.is_empty();
    is_known && !multiplex.is_gone && !multiplex.is_exhausted() && multiplex.free_slots() > 0
}

impl Upstreams {
    /// Sets a client apart.
    pub(crate) fn set_apart(&mut self, client: ConnKey, now: Time) {
        let until = now + FOR;
        let OwnConnections(clients) = &mut self.own;
        if let Some(known) = clients.iter_mut().find(|it| it.key == client) {
            known.until = until;
        } else if clients.len() < CLIENTS_MAX {
            clients.push(Client { key: client, until, connections: Vec::new() });
        }
    }

    /// Gives connections of clients that are gone, or were set apart for long enough, to others, too.
    pub(crate) fn end_own(&mut self, now: Time, connections: &mut Connections, cx: &mut Cx) {
        let is_over =
            |client: &mut Client| client.until <= now || connections.get(client.key).is_none();
        let over: Vec<_> = self.own.0.extract_if(.., is_over).collect();
        for key in over.into_iter().flat_map(|client| client.connections) {
            self.give_back(key, connections, cx);
        }
    }

    /// A connection that was withheld is for all.
    pub(crate) fn give_back(&mut self, key: ConnKey, connections: &mut Connections, cx: &mut Cx) {
        let upstream = connections.get_mut(key).and_then(Connection::upstream_mut);
        let Some(upstream) = upstream.filter(|it: &&mut Upstream| it.is_withheld) else { return };
        upstream.is_withheld = false;
        if let Some(pool) = self.offer(key, connections, cx) {
            self.note_room(pool, cx);
        }
    }
}
