//! Clients that have upstream connections of their own for a while, so that they can move without others.
//!
//! Clients that share connections of HTTP/2 of a service move together, and may be all clients of a worker. To relieve it, the busiest
//! is set apart: its new requests go on connections that no other client has. Once those that it had begun before are over, it
//! moves alone.
//!
//! Endpoints are chosen as ever. Where half of a cluster's connections are in use, or the last one would be, or other workers want some, requests are
//! shared.

use std::time::Duration;

use config::priority::Priority;
use config::snapshot::{Cluster, EndpointId};
use telemetry::events::ChoiceKind;

use crate::connection::codec::multiplex::Multiplex;
use crate::connection::connections::Connections;
use crate::connection::{Connection, Upstream};
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::listen::clients::Clients;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::Upstreams;
use crate::upstream::age::has_served;
use crate::upstream::pool::{Acquired, Ask, Pool, Sharing};

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

/// What a request of a client that is set apart gets, to the endpoint that was chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnChoice {
    /// This connection of its own.
    Use(ConnKey),
    /// A new one.
    Open,
}

impl OwnConnections {
    /// The connections of all clients to an endpoint.
    pub(crate) fn connections_to(
        &self,
        endpoint: EndpointId,
        connections: &Connections,
    ) -> Vec<ConnKey> {
        let all = self.0.iter().flat_map(|client| &client.connections).copied();
        let upstream = |key| connections.get(key).and_then(Connection::upstream);
        all.filter(|key| upstream(*key).is_some_and(|it| it.endpoint == endpoint)).collect()
    }

    fn has(&self, client: ConnKey) -> bool {
        self.0.iter().any(|it| it.key == client)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, client: ConnKey, connection: ConnKey) {
        if let Some(client) = self.0.iter_mut().find(|it| it.key == client) {
            client.connections.push(connection);
        }
    }

    /// A connection is no client's own any more.
    pub(crate) fn forget(&mut self, connection: ConnKey) {
        for client in &mut self.0 {
            client.connections.retain(|key| *key != connection);
        }
    }

    /// What a request of this client gets that is for the endpoint at a place of a cluster; none if it has to share. `is_used_up` says
    /// whether a connection to an endpoint has had as many streams as it may have.
    pub(crate) fn choose(
        &mut self,
        client: ConnKey,
        (cluster, place, priority): (&Cluster, usize, Priority),
        connections: &Connections,
        mut is_used_up: impl FnMut(&Connection) -> bool,
    ) -> Option<OwnChoice> {
        let endpoint = cluster.endpoints.get(place)?.id;
        let transport = cluster.transport_at(place).id;
        let client = self.0.iter_mut().find(|it| it.key == client)?;
        client.connections.retain(|key| connections.get(*key).is_some());
        let found = client.connections.iter().find(|key| {
            let Some(connection) = connections.get(**key) else { return false };
            let Some(upstream) = connection.upstream() else { return false };
            let is_of_pool = (upstream.cluster, upstream.priority) == (cluster.id, priority);
            let is_to_it = (upstream.endpoint, upstream.transport) == (endpoint, transport);
            is_of_pool
                && is_to_it
                && connection.multiplex().is_some_and(takes_stream)
                && !has_served(connection, cluster)
                && !is_used_up(connection)
        });
        match found {
            Some(key) => Some(OwnChoice::Use(*key)),
            None if client.connections.len() < CONNECTIONS_MAX => Some(OwnChoice::Open),
            None => None,
        }
    }
}

/// Whether a stream can be opened at once.
fn takes_stream(multiplex: &Multiplex) -> bool {
    let is_known = multiplex.has_peer_settings() || multiplex.streams.is_empty();
    is_known && !multiplex.is_gone && !multiplex.is_exhausted() && multiplex.free_slots() > 0
}

impl Upstreams {
    /// What a request of a client gets that is set apart: a connection of its own to the endpoint that is chosen, or leave to open one
    /// that is its own from then on. None where it has to share.
    #[cold]
    #[inline(never)]
    pub(super) fn acquire_own(
        &mut self,
        client: ConnKey,
        ask: &Ask<'_>,
        now: Time,
        clients: &Clients,
        connections: &mut Connections,
        random: &mut Random,
    ) -> Option<(Acquired, Option<ChoiceKind>, bool)> {
        let pool = Pool::new(ask.newest, ask.priority);
        let (in_use, connections_max) = self.pools.use_of(pool);
        let leaves_one = in_use.saturating_add(2) <= connections_max;
        if !self.own.has(client)
            || !leaves_one
            || self.pools.is_short(pool)
            || self.pools.is_wanted_by_others(pool.id())
        {
            return None;
        }
        // One that is not to be shared is a new one.
        let alone = Ask { sharing: Sharing::Personal, ..*ask };
        let (acquired, kind) = self.pools.acquire(&alone, clients, random, now, connections);
        let Acquired::Open(place) = acquired else { return None };
        let pools = &mut self.pools;
        let is_used_up = |connection: &Connection| {
            let endpoint = connection.upstream().map(|upstream| upstream.endpoint);
            endpoint.is_some_and(|it| pools.is_stream_budget_used(it, connection.requests))
        };
        let at = (ask.cluster, place, ask.priority);
        match self.own.choose(client, at, connections, is_used_up)? {
            // There was leave to open one, which is given back when the attempt is over.
            OwnChoice::Use(own) => Some((Acquired::Shared(own, place), kind, false)),
            OwnChoice::Open => Some((acquired, kind, true)),
        }
    }

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
