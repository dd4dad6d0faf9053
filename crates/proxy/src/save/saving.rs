//! Saving a group: it is taken out of the worker's tables in one step, and encoded in as many as it takes.
//!
//! In between it is paused. No event reaches it: its keys are stale, its timers are gone, and no pool has its connections. Most of
//! the work is to encode it (to copy buffers, to look up names and keys), and that is bounded for each step.

use std::vec::IntoIter;

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use wiped::{Pieces, Wiped};

use super::connections::TakenEnd;
use super::exchanges::TakenExchange;
use super::{Companions, Held, NotSaved, Remains, Saved, SavedEnd, Unmovable, VERSION};
use crate::connection::Upstream;
use crate::keys::{ConnKey, ExchangeKey, PoolId};
use crate::proxy::Proxy;
use crate::tools::time::Time;
use crate::upstream::pool::Pool;

/// A group that is out of the worker's tables and not encoded yet. The worker may not take up a configuration in between.
#[derive(Debug)]
pub struct Saving {
    connections: Vec<ConnKey>,
    held: Held,
    /// Clusters in which there is room now.
    pools: Vec<PoolId>,
    ends: IntoIter<TakenEnd>,
    exchanges: IntoIter<TakenExchange>,
    exchanges_total: usize,
    may_begin: bool,
    remains: Remains,
    written: Written,
    /// When it was taken out: its deadlines count from then.
    began: Time,
}

impl Saving {
    /// The connections whose sockets go with it, in the order in which [`Proxy::restore`] names their successors. The keys
    /// are stale.
    #[must_use]
    pub fn connections(&self) -> &[ConnKey] {
        &self.connections
    }

    /// Whether all of it is encoded.
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.ends.len() == 0 && self.exchanges.len() == 0
    }

    fn write<T: Serialize>(&mut self, value: &T) {
        self.written.begin_entry();
        let written = postcard::serialize_with_flavor(value, &mut self.written);
        written.expect("memory is all that it needs");
    }
}

/// What is encoded, in order. There are keys in it: where a vector grows by itself, it leaves a copy behind.
#[derive(Debug)]
struct Written {
    /// What does not grow any more, so that nothing copies all of a large group. No entry is in two of them.
    pieces: Pieces,
    last: Wiped,
}

impl Written {
    /// Enough for an idle connection of TLS.
    const ROOM: usize = 512;

    /// As much as most entries have.
    const ENTRY: usize = 4 << 10;

    /// From here on another piece is begun with the next entry.
    const PIECE: usize = 64 << 10;

    /// The form goes in front.
    fn begin() -> Self {
        let mut last = Wiped::with_capacity(Self::ROOM);
        last.extend_from_slice(&VERSION.to_be_bytes());
        Self { pieces: Pieces::default(), last }
    }

    fn begin_entry(&mut self) {
        if self.last.len() >= Self::PIECE {
            // Room for all of it at once: each time that it grew, what it had would be copied, and overwritten where it was.
            let next = Wiped::with_capacity(Self::PIECE + Self::ENTRY);
            self.pieces.push(std::mem::replace(&mut self.last, next));
        }
    }

    #[inline]
    fn make_room(&mut self, more: usize) {
        if more > self.last.capacity() - self.last.len() {
            self.grow(more);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        let needed = self.last.len() + more;
        let room = needed.max(self.last.capacity() * 2).max(Self::ROOM);
        let mut larger = Wiped::with_capacity(room);
        larger.extend_from_slice(&self.last);
        self.last = larger;
    }

    /// All of it. What is kept until a handover ends, as that of thousands of idle connections is, has no more room than it needs: to
    /// copy it costs less than memory that is new to the process.
    fn into_pieces(mut self) -> Pieces {
        let last = if self.last.capacity() <= Self::ROOM {
            let mut exact = Wiped::with_capacity(self.last.len());
            exact.extend_from_slice(&self.last);
            exact
        } else {
            self.last
        };
        self.pieces.push(last);
        self.pieces
    }
}

impl Flavor for &mut Written {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.make_room(data.len());
        self.last.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.make_room(1);
        self.last.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
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
    /// It is not saved where the listener of some downstream drains (elsewhere it would meet another), while a handshake of TLS lasts or two
    /// attempts of an exchange, and where its connections are more than `connections_max`.
    pub fn begin_save(
        &mut self,
        key: ConnKey,
        connections_max: usize,
        now: Time,
    ) -> Result<Saving, NotSaved> {
        debug_assert!(self.cx.agenda.is_empty(), "each event is settled");
        let upstream = self.connections.get(key).map(|connection| connection.upstream().is_some());
        if upstream.is_none_or(|is_upstream| is_upstream && self.leading(key) != key)
            || self.end_checks_on(key, now)
        {
            return Err(NotSaved { why: Unmovable::Unknown, connections: Vec::new() });
        }
        if self.connections.stays(key, &self.listen) {
            return Err(NotSaved { why: Unmovable::Stays, connections: vec![key] });
        }
        let companions = self.companions(key, connections_max);
        if let Some(why) = self.unmovable(&companions, connections_max) {
            return Err(NotSaved { why, connections: companions.connections });
        }
        let upstreams = companions.connections.iter();
        let upstreams = upstreams.filter_map(|key| self.connections.get(*key)?.upstream());
        let mut pools: Vec<_> = upstreams.map(Upstream::pool).collect();
        pools.sort_unstable();
        pools.dedup();
        let held = self.hold(&companions);
        let mut exchanges = Vec::with_capacity(companions.exchanges.len());
        for key in &companions.exchanges {
            exchanges.extend(self.take_exchange(*key, &companions, now));
        }
        let may_begin = exchanges.iter().any(TakenExchange::may_begin);
        let mut ends = Vec::with_capacity(companions.connections.len());
        for key in &companions.connections {
            let connection = self.connections.get(*key);
            let end = if connection.is_some_and(|it| it.downstream().is_some()) {
                self.connections.take_downstream(*key, now, &mut self.listen, &mut self.cx)
            } else {
                self.upstream.take_upstream(*key, now, &mut self.connections, &mut self.cx)
            };
            ends.extend(end);
        }
        self.end_if_drained(now);
        self.settle(now);
        let mut saving = Saving {
            connections: companions.connections,
            held,
            pools,
            exchanges_total: exchanges.len(),
            may_begin,
            remains: Remains::default(),
            ends: ends.into_iter(),
            exchanges: exchanges.into_iter(),
            written: Written::begin(),
            began: now,
        };
        let total = saving.ends.len();
        saving.write(&total);
        Ok(saving)
    }

    /// Has a group count on, whatever becomes of it.
    fn hold(&self, companions: &Companions) -> Held {
        let mut held = Held::default();
        let connections = companions.connections.iter();
        for connection in connections.filter_map(|key| self.connections.get(*key)) {
            let upstream = connection.upstream().filter(|it| it.checked_port.is_none());
            if let Some(upstream) = upstream
                && let Some(cluster) = self.cx.snapshot.cluster(upstream.cluster)
            {
                held.hold_connection(Pool::new(cluster, upstream.priority), upstream.endpoint);
            }
        }
        let member = self.cx.share.member();
        for exchange in companions.exchanges.iter().filter_map(|key| self.exchanges.get(*key)) {
            let listener =
                exchange.holds_listener_request.then(|| exchange.listener().breakers.clone());
            held.hold_request(listener, member);
            let cluster = exchange.cluster().filter(|_| exchange.holds_request);
            held.hold_request(cluster.map(|it| it.breakers.of(exchange.priority())), member);
        }
        held
    }

    /// Why a group cannot be saved, if it cannot.
    fn unmovable(&self, companions: &Companions, connections_max: usize) -> Option<Unmovable> {
        let Companions { connections, exchanges, .. } = companions;
        if connections.len() > connections_max {
            return Some(Unmovable::TooLarge);
        }
        if connections.iter().any(|key| self.connections.stays(*key, &self.listen)) {
            return Some(Unmovable::WithDraining);
        }
        // A handshake is finished where it began.
        let is_settled = |key: &ConnKey| {
            self.connections.get(*key).is_some_and(|connection| !connection.owes_handshake())
        };
        let is_detached = |key: &ExchangeKey| {
            self.exchanges.get(*key).is_some_and(|exchange| exchange.detached.is_some())
        };
        // Earlier attempts do not move, and the first response may be theirs.
        let is_hedged = |key: &ExchangeKey| {
            let exchange = self.exchanges.get(*key);
            exchange.is_some_and(|exchange| {
                let hedge = exchange.hedge().and_then(|hedge| self.exchanges.get(hedge));
                exchange.hedge_of().is_some() || hedge.is_some()
            })
        };
        let has_listener = !self.cx.snapshot.listeners.is_empty();
        let can_move = connections.iter().all(is_settled)
            && (self.exchanges.hedges == 0 || !exchanges.iter().any(is_hedged))
            && (has_listener || !exchanges.iter().any(is_detached));
        (!can_move).then_some(Unmovable::NotYet)
    }

    /// Goes on with exchanges that waited for the room of connections that are gone, once their sockets are out.
    pub fn on_save_begun(&mut self, saving: &Saving, now: Time) {
        for pool in &saving.pools {
            self.serve_waiting(*pool, now);
        }
        self.settle(now);
    }

    /// Encodes so many connections and exchanges, at most.
    pub fn save_part(&mut self, saving: &mut Saving, entries_max: usize) {
        let now = saving.began;
        for _ in 0..entries_max {
            if let Some(end) = saving.ends.next() {
                let saved: SavedEnd = self.cx.write_end(end, now);
                saving.write(&saved);
                saving.remains.keep(saved.into_tls());
                if saving.ends.len() == 0 {
                    let total = saving.exchanges_total;
                    saving.write(&total);
                }
            } else if let Some(exchange) = saving.exchanges.next() {
                let saved = self.cx.write_exchange(exchange, now);
                saving.write(&saved);
            } else {
                break;
            }
        }
    }

    /// The bytes of a group, all of which is encoded.
    pub fn finish_save(&mut self, saving: Saving) -> Saved {
        debug_assert!(saving.is_encoded(), "what is left would be lost");
        if self.cx.has_former_snapshots() {
            self.cx.retire_former();
        }
        let Saving { connections, held, may_begin, remains, written, .. } = saving;
        Saved { bytes: written.into_pieces(), connections, held, may_begin, remains }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_whole_entries_in_their_order() {
        let entry = |number: u8| vec![number; 3_000];
        let mut written = Written::begin();
        for number in 0..100 {
            written.begin_entry();
            (&mut written).try_extend(&entry(number)).unwrap();
        }
        let whole = [VERSION.to_be_bytes().to_vec(), (0..100).flat_map(entry).collect()].concat();
        let pieces = written.into_pieces();
        assert!(*pieces.join() == whole);
        let lens: Vec<_> = pieces.iter().map(<[u8]>::len).collect();
        assert_eq!(lens, [66_002, 66_000, 66_000, 66_000, 36_000]);
    }
}
