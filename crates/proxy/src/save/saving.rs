//! Saving a group: it is found ([`Leaving`]), taken out of the worker's tables and encoded, a large one in as many steps as it takes.
//!
//! Each connection and exchange is encoded as it is taken out: the connections first, since an exchange says where among them its
//! sides are.

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use wiped::{Pieces, Wiped};

use super::companions::Companions;
use super::leaving::{Found, Leaving};
use super::{GroupMax, Held, NotSaved, Remains, Saved, SavedEnd, Unmovable, VERSION};
use crate::connection::{Connection, Upstream};
use crate::keys::{ConnKey, ExchangeKey, PoolId};
use crate::proxy::Proxy;
use crate::tools::time::Time;
use crate::upstream::pool::Pool;

/// A group on its way out of the worker's tables. The worker may not take up a configuration in between.
#[derive(Debug)]
pub struct Saving {
    /// Whether it takes several turns.
    is_large: bool,
    /// None until all are found.
    group: Option<FoundGroup>,
    held: Held,
    /// Clusters in which there is room now.
    pools: Vec<PoolId>,
    may_begin: bool,
    remains: Remains,
    written: Written,
}

/// All of a group, and how much of it is out.
#[derive(Debug)]
struct FoundGroup {
    connections: Vec<ConnKey>,
    connections_taken: usize,
    exchanges: Vec<ExchangeKey>,
    exchanges_taken: usize,
    /// When the first was taken out: deadlines count from then.
    began: Time,
}

impl Saving {
    fn new(is_large: bool) -> Self {
        Self {
            is_large,
            group: None,
            held: Held::default(),
            pools: Vec::new(),
            may_begin: false,
            remains: Remains::default(),
            written: Written::begin(),
        }
    }

    /// Whether it takes several turns: it has more connections than [`Proxy::begin_save`] was to take at once.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        self.is_large
    }

    /// The connections that are out of the tables, whose sockets go with it, in the order in which [`Proxy::restore`] names their
    /// successors. The keys are stale.
    #[must_use]
    pub fn taken(&self) -> &[ConnKey] {
        let group = self.group.as_ref();
        group.and_then(|it| it.connections.get(..it.connections_taken)).unwrap_or_default()
    }

    /// Whether all of it is taken and encoded.
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.group.as_ref().is_some_and(|group| {
            group.connections_taken == group.connections.len()
                && group.exchanges_taken == group.exchanges.len()
        })
    }

    /// All of it is found, and taken out from here on.
    fn begin_taking(&mut self, leaving: &mut Leaving, now: Time) {
        let connections = std::mem::take(&mut leaving.companions.connections);
        let exchanges = std::mem::take(&mut leaving.companions.exchanges);
        self.write(&connections.len());
        self.group = Some(FoundGroup {
            connections,
            connections_taken: 0,
            exchanges,
            exchanges_taken: 0,
            began: now,
        });
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
    /// Begins to take a connection with all that belongs to it out of this worker's tables. Refuses a stale key, and
    /// an upstream connection whose exchange has it alone: it goes with its downstream.
    ///
    /// A group of more than `part_max` connections is still in the tables when this returns, and no other may be saved meanwhile.
    ///
    /// Nothing of it is closed and nothing is counted: the sockets live on under [`Proxy::restore`].
    ///
    /// # Errors
    ///
    /// It is not saved where the listener of some downstream drains (elsewhere it would meet another), while a handshake of TLS lasts or two
    /// attempts of an exchange, and where it has more than `max`. For a large group, [`Proxy::save_part`] says so.
    pub fn begin_save(
        &mut self,
        key: ConnKey,
        max: GroupMax,
        part_max: usize,
        now: Time,
    ) -> Result<Saving, NotSaved> {
        debug_assert!(self.cx.agenda.is_empty(), "each event is settled");
        let upstream = self.connections.get(key).map(|connection| connection.upstream().is_some());
        if upstream.is_none_or(|is_upstream| is_upstream && self.leading(key) != key)
            || self.leaving.is_some()
            || self.end_checks_on(key, now)
        {
            return Err(NotSaved { why: Unmovable::Unknown, connections: Vec::new() });
        }
        if self.connections.stays(key, &self.listen) {
            return Err(NotSaved { why: Unmovable::Stays, connections: vec![key] });
        }
        let mut leaving = Leaving::new(key, upstream == Some(false), max);
        while leaving.companions.connections.len() <= part_max {
            if let Found::All = self.find_more(&mut leaving)? {
                let mut saving = Saving::new(false);
                saving.begin_taking(&mut leaving, now);
                self.leaving = Some(leaving);
                return Ok(saving);
            }
        }
        self.begin_large(&mut leaving);
        self.leaving = Some(leaving);
        Ok(Saving::new(true))
    }

    /// Goes on with so many connections and exchanges, at most: they are found, taken out of the tables, and encoded.
    ///
    /// # Errors
    ///
    /// It cannot move: [`Proxy::on_kept`] is to be called for each of its connections.
    pub fn save_part(
        &mut self,
        saving: &mut Saving,
        entries_max: usize,
        now: Time,
    ) -> Result<(), NotSaved> {
        let Some(mut leaving) = self.leaving.take() else { return Ok(()) };
        let mut left = entries_max;
        while left > 0 && !saving.is_encoded() {
            if saving.group.is_some() {
                self.take_next(saving, &leaving.companions, now);
                left -= 1;
                continue;
            }
            match self.find_more(&mut leaving) {
                Ok(Found::Part(looked_at)) => left = left.saturating_sub(looked_at),
                Ok(Found::All) => saving.begin_taking(&mut leaving, now),
                Err(refused) => {
                    self.leaving = Some(leaving);
                    for pool in self.end_leaving() {
                        self.serve_waiting(pool, now);
                    }
                    self.settle(now);
                    return Err(refused);
                }
            }
        }
        self.leaving = Some(leaving);
        self.settle(now);
        Ok(())
    }

    /// Takes the next connection or exchange out of the tables, and encodes it. It counts on, whatever becomes of it.
    fn take_next(&mut self, saving: &mut Saving, companions: &Companions, now: Time) {
        let Some(group) = &mut saving.group else { return };
        let began = group.began;
        if let Some(key) = group.connections.get(group.connections_taken).copied() {
            group.connections_taken += 1;
            let exchanges = group.exchanges.len();
            let is_last = group.connections_taken == group.connections.len();
            self.hold_connection(key, &mut saving.held);
            let upstream = self.connections.get(key).and_then(Connection::upstream);
            let pool =
                upstream.map(Upstream::pool).filter(|pool| saving.pools.last() != Some(pool));
            saving.pools.extend(pool);
            let end = match upstream {
                None => self.connections.take_downstream(key, now, &mut self.listen, &mut self.cx),
                Some(_) => {
                    self.upstream.take_upstream(key, now, &mut self.connections, &mut self.cx)
                }
            };
            debug_assert!(end.is_some(), "nothing of a group ends while it leaves");
            if let Some(end) = end {
                let saved: SavedEnd = self.cx.write_end(end, began);
                saving.write(&saved);
                saving.remains.keep(saved.into_tls());
            }
            if is_last {
                saving.write(&exchanges);
            }
        } else if let Some(key) = group.exchanges.get(group.exchanges_taken).copied() {
            group.exchanges_taken += 1;
            self.hold_requests(key, &mut saving.held);
            let taken = self.take_exchange(key, companions, now);
            debug_assert!(taken.is_some(), "nothing of a group ends while it leaves");
            if let Some(exchange) = taken {
                saving.may_begin |= exchange.may_begin();
                let saved = self.cx.write_exchange(exchange, began);
                saving.write(&saved);
            }
        }
    }

    fn hold_connection(&self, key: ConnKey, held: &mut Held) {
        let upstream = self.connections.get(key).and_then(Connection::upstream);
        let upstream = upstream.filter(|it| it.checked_port.is_none());
        if let Some(upstream) = upstream
            && let Some(cluster) = self.cx.snapshot.cluster(upstream.cluster)
        {
            held.hold_connection(Pool::new(cluster, upstream.priority), upstream.endpoint);
        }
    }

    fn hold_requests(&self, key: ExchangeKey, held: &mut Held) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let member = self.cx.share.member();
        let listener =
            exchange.holds_listener_request.then(|| exchange.listener().breakers.clone());
        held.hold_request(listener, member);
        let cluster = exchange.cluster().filter(|_| exchange.holds_request);
        held.hold_request(cluster.map(|it| it.breakers.of(exchange.priority())), member);
    }

    /// Goes on with exchanges that waited for the room of connections that are gone, once all of a group is taken and its sockets are out.
    pub fn on_saved(&mut self, saving: &mut Saving, now: Time) {
        debug_assert!(saving.is_encoded(), "what is left would be lost");
        let queues = self.end_leaving();
        self.end_if_drained(now);
        for pool in &queues {
            self.serve_waiting(*pool, now);
        }
        saving.pools.sort_unstable();
        saving.pools.dedup();
        for pool in &saving.pools {
            self.serve_waiting(*pool, now);
        }
        self.settle(now);
    }

    /// The bytes of a group, all of which is taken and encoded.
    pub fn finish_save(&mut self, saving: Saving) -> Saved {
        debug_assert!(saving.is_encoded(), "what is left would be lost");
        self.end_leaving();
        if self.cx.has_former_snapshots() {
            self.cx.retire_former();
        }
        let Saving { group, held, may_begin, remains, written, .. } = saving;
        let connections = group.map(|group| group.connections).unwrap_or_default();
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
