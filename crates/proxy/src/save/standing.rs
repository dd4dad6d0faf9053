//! A group on its way out: it leaves the worker's tables as it is, in one step, and becomes bytes in as many as it takes.
//!
//! In between it stands still. No event reaches it: its keys are stale, its timers are gone, and no pool has its connections. What
//! it takes to write it down (buffers to copy, names to look up, keys) is most of the work, and bounded for each step.

use std::vec::IntoIter;

use config::snapshot::ClusterId;
use postcard::ser_flavors::Size;
use serde::Serialize;
use zeroize::Zeroizing;

use super::connections::StandingEnd;
use super::exchanges::StandingExchange;
use super::{Companions, Saved, SavedEnd, VERSION};
use crate::keys::{ConnKey, ExchangeKey};
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// A group that is out of the worker's tables and not written down yet. No configuration may be taken up in between.
#[derive(Debug)]
pub struct Standing {
    connections: Vec<ConnKey>,
    /// Clusters in which there is room now.
    clusters: Vec<ClusterId>,
    ends: IntoIter<StandingEnd>,
    exchanges: IntoIter<StandingExchange>,
    exchanges_total: usize,
    /// What is written, in order.
    pieces: Vec<Zeroizing<Vec<u8>>>,
    /// When it left: its deadlines stand still with it.
    began: Time,
}

impl Standing {
    /// The connections whose sockets go with it, in the order in which [`Proxy::restore`] names their successors. The keys
    /// are stale.
    #[must_use]
    pub fn connections(&self) -> &[ConnKey] {
        &self.connections
    }

    /// Whether all of it is written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.ends.len() == 0 && self.exchanges.len() == 0
    }

    fn write<T: Serialize>(&mut self, value: &T) {
        // There are keys in it: where a vector grows, it leaves a copy behind.
        let len = postcard::serialize_with_flavor(value, Size::default()).unwrap_or_default();
        let bytes = Vec::with_capacity(len);
        let bytes = postcard::to_extend(value, bytes).expect("memory is all that it needs");
        self.pieces.push(Zeroizing::new(bytes));
    }
}

impl Proxy {
    /// Takes a connection with all that belongs to it out of this worker's tables. An empty list for a stale key, and
    /// for an upstream connection whose exchange has it alone: it goes with its downstream.
    ///
    /// Nothing of it is closed and nothing is counted: the sockets live on under [`Proxy::restore`].
    ///
    /// # Errors
    ///
    /// The connections of the group, where some downstream came through a listener that is not configured any more (no
    /// worker could take it up, not even this one), while a handshake of TLS lasts, and where they are more than
    /// `connections_max`.
    pub fn uproot(
        &mut self,
        key: ConnKey,
        connections_max: usize,
        now: Time,
    ) -> Result<Standing, Vec<ConnKey>> {
        debug_assert!(self.cx.agenda.is_empty(), "each event is settled");
        let upstream = self.connections.get(key).map(|connection| connection.upstream().is_some());
        if upstream.is_none_or(|is_upstream| is_upstream && self.leading(key) != key)
            || self.end_checks_on(key, now)
        {
            return Err(Vec::new());
        }
        let companions = self.companions(key, connections_max);
        if !self.can_move(&companions, connections_max) {
            return Err(companions.connections);
        }
        let upstreams = companions.connections.iter();
        let upstreams = upstreams.filter_map(|key| self.connections.get(*key)?.upstream());
        let mut clusters: Vec<_> = upstreams.map(|upstream| upstream.cluster).collect();
        clusters.sort_unstable();
        clusters.dedup();
        let exchanges = companions.exchanges.iter();
        let exchanges: Vec<_> =
            exchanges.filter_map(|key| self.uproot_exchange(*key, &companions, now)).collect();
        let mut ends = Vec::with_capacity(companions.connections.len());
        for key in &companions.connections {
            let connection = self.connections.get(*key);
            let end = if connection.is_some_and(|it| it.downstream().is_some()) {
                self.connections.uproot_downstream(*key, now, &mut self.listen, &mut self.cx)
            } else {
                self.upstream.uproot_upstream(*key, now, &mut self.connections, &mut self.cx)
            };
            ends.extend(end);
        }
        self.end_if_drained(now);
        self.settle(now);
        let mut standing = Standing {
            connections: companions.connections,
            clusters,
            exchanges_total: exchanges.len(),
            ends: ends.into_iter(),
            exchanges: exchanges.into_iter(),
            pieces: Vec::new(),
            began: now,
        };
        let total = standing.ends.len();
        standing.write(&total);
        Ok(standing)
    }

    fn can_move(&self, companions: &Companions, connections_max: usize) -> bool {
        let is_movable = |key: &ConnKey| {
            let connection = self.connections.get(*key);
            // A handshake is finished where it began.
            self.connections.has_known_listener(*key, &self.listen, &self.cx)
                && connection.is_some_and(|it| !it.owes_handshake())
        };
        let is_detached = |key: &ExchangeKey| {
            self.exchanges.get(*key).is_some_and(|exchange| exchange.detached.is_some())
        };
        let has_listener = !self.cx.snapshot.listeners.is_empty();
        companions.connections.len() <= connections_max
            && companions.connections.iter().all(is_movable)
            && (has_listener || !companions.exchanges.iter().any(is_detached))
    }

    /// Goes on with exchanges that waited for the room of connections that are gone, once their sockets are out.
    pub fn on_uprooted(&mut self, standing: &Standing, now: Time) {
        self.serve_clusters(&standing.clusters, now);
    }

    /// Writes so many connections and exchanges down, at most.
    pub fn write_standing(&mut self, standing: &mut Standing, entries_max: usize) {
        let now = standing.began;
        for _ in 0..entries_max {
            if let Some(end) = standing.ends.next() {
                let saved: SavedEnd = self.cx.write_end(end, now);
                standing.write(&saved);
                if standing.ends.len() == 0 {
                    let total = standing.exchanges_total;
                    standing.write(&total);
                }
            } else if let Some(exchange) = standing.exchanges.next() {
                let saved = self.cx.write_exchange(exchange, now);
                standing.write(&saved);
            } else {
                break;
            }
        }
    }

    /// The bytes of a group, all of which is written.
    pub fn finish_standing(&mut self, standing: Standing) -> Saved {
        debug_assert!(standing.is_written(), "what is left would be lost");
        if self.cx.has_former_snapshots() {
            self.cx.retire_former();
        }
        let version = VERSION.to_be_bytes();
        let len = standing.pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(version.len() + len);
        bytes.extend_from_slice(&version);
        standing.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        Saved { bytes, connections: standing.connections, clusters: standing.clusters }
    }
}
