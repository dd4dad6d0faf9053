//! Connections that are opened before a request needs them (`preconnect` of a cluster).
//!
//! Each request that gets a connection looks whether its endpoint has room for the next ones, as Envoy's
//! `per_upstream_preconnect_ratio` does in each worker. A connection for HTTP/1 is spare until it is established: a request that
//! comes sooner gets it all the same. One for streams enters its pool once its peer has said how many it takes.

use std::sync::Arc;

use config::snapshot::{Cluster, EndpointId};

use super::connect::Way;
use crate::connection::codec::Codec;
use crate::connection::codec::http1::Http1;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::{Connection, Upstream, UpstreamState};
use crate::keys::{ExchangeKey, PoolId};
use crate::proxy::Proxy;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;
use crate::upstream::pool::Pool;

/// Connections that one request has opened for others, as in Envoy: many new requests open many.
const OPENED_MAX: usize = 3;

impl Proxy {
    /// An exchange may have got a connection: opens others to its endpoint, if its cluster is to have more.
    #[cold]
    pub(super) fn preconnect(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let Some((pool, at)) = exchange.pool().zip(exchange.upstream()) else { return };
        let newest = self.cx.snapshot.cluster(pool.cluster);
        let Some(cluster) = newest.filter(|newest| newest.preconnect.is_some()).cloned() else {
            return;
        };
        let connection = self.connections.get(at.connection);
        let Some(upstream) = connection.and_then(Connection::upstream) else { return };
        let (endpoint, is_for_checks) = (upstream.endpoint, upstream.checked_port.is_some());
        let is_for_one = is_for_checks || upstream.is_personal;
        if is_for_one || !upstream.is_of(&cluster) || self.cx.drain_deadline.is_some() {
            return;
        }
        let multiplex = connection.and_then(Connection::multiplex);
        let requests_per_connection = match multiplex {
            None => 1,
            Some(multiplex) if multiplex.has_peer_settings() => streams_max(multiplex),
            // One is there for all, as far as is known.
            Some(_) => return,
        };
        let is_shared = multiplex.is_some();
        for _ in 0..OPENED_MAX {
            // One that could not be remembered would be closed at once, and the next request would open another.
            if !is_shared && !self.upstream.spares.has_room(&self.connections) {
                return;
            }
            let of_newest = Pool::new(&cluster, pool.priority);
            let pools = &mut self.upstream.pools;
            if !pools.takes_preconnect(of_newest, endpoint, requests_per_connection, now) {
                return;
            }
            self.open_for_none((pool, endpoint), &cluster, is_shared, now);
        }
    }

    /// Opens a connection to an endpoint that no exchange waits for.
    fn open_for_none(
        &mut self,
        (pool, endpoint): (PoolId, EndpointId),
        cluster: &Arc<Cluster>,
        is_shared: bool,
        now: Time,
    ) {
        let Some(place) = cluster.place_of(endpoint) else { return };
        let Some(found) = cluster.endpoints.get(place) else { return };
        let (state, codec) = match is_shared {
            true => self.cx.shared_connection(cluster, now),
            false => {
                let state =
                    UpstreamState::Connecting { exchange: None, since: now, is_begun: false };
                (state, Codec::Http1(Http1::new()))
            }
        };
        let role = Upstream {
            cluster: pool.cluster,
            priority: pool.priority,
            endpoint,
            transport: cluster.transport_at(place).id,
            state,
            is_personal: false,
            checked_port: None,
            is_reusable: false,
            is_withheld: false,
            reason: None,
        };
        let (address, peer) = (found.address.clone(), PeerAddress::Unix);
        let way = Way { cluster, place, address, peer };
        let key = self.begin_connecting(role, codec, way, None, now);
        if !is_shared {
            self.upstream.spares.insert(key, &self.connections);
        }
    }
}

/// Streams that a connection may have at a time.
fn streams_max(multiplex: &Multiplex) -> u32 {
    u32::try_from(multiplex.streams.len() + multiplex.free_slots()).unwrap_or(u32::MAX)
}
