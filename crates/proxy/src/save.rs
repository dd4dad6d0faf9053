//! A connection as bytes, and back: in another worker, with another configuration.
//!
//! What is moved together: a connection, the exchanges on it, the connections on their other side,
//! and what these have in common with others; or an idle upstream connection alone. Clusters, endpoints, listeners and
//! route tables go by name, deadlines as the time that is left. Nothing is said of readiness: it
//! is assumed, and the first call that finds it wrong corrects it.
//!
//! The form is [`VERSION`] in two bytes, then the structures below in postcard's encoding: how many connections, they, how many
//! exchanges, and they. A change of any of them is a new version. A group is written and read in as many steps as the caller likes
//! ([`Saving`], [`Restoring`]), so that a large one does not hold up others.

mod balancing;
mod codecs;
mod connections;
mod exchanges;
mod held;
mod records;
mod remains;
mod restoring;
mod routes;
mod saving;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use config::snapshot::Id;
use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;
use wiped::Pieces;

use self::connections::{SavedDownstream, SavedUpstream};
use self::exchanges::{SavedExchange, SavedStage};
use crate::connection::codec::Opening;
use crate::connection::connections::Connections;
use crate::connection::transport::SavedTls;
use crate::connection::{Connection, Upstream};
use crate::cx::Cx;
use crate::keys::Slot;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::listen::Listen;
use crate::listen::listeners::ListenerKey;
use crate::proxy::Proxy;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;

pub use self::balancing::{BalancingPlace, ClusterBalancing};
pub use self::held::Held;
pub use self::remains::Remains;
pub use self::restoring::Restoring;
pub use self::saving::Saving;
pub use crate::tools::differing::Differing;
pub use crate::upstream::pool::{LearnedOfEndpoint, Turns};

/// Version of the form that is written, and the only one that is read.
pub const VERSION: u16 = 21;

/// The id of something that the new configuration does not have.
const GONE: Id = Id { slot: u32::MAX, generation: u32::MAX };

/// What was taken out of a worker.
#[derive(Debug)]
pub struct Saved {
    /// Everything but the sockets.
    pub bytes: Pieces,
    /// The connections whose sockets go with it, in the order in which [`Proxy::restore`] names
    /// their successors. The keys are stale.
    pub connections: Vec<ConnKey>,
    /// What goes on to count until they are restored.
    pub held: Held,
    /// Whether a request of it is yet to be given to a connection, which may be none of these: that nothing is read or written
    /// here does not prove that it was not sent.
    pub may_begin: bool,
    /// What is left of it here.
    pub remains: Remains,
}

/// Whether a connection can be moved, as far as it is known without a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movable {
    /// It carries nothing.
    Idle,
    /// It carries something.
    Busy,
    /// A handshake has to end first.
    NotYet,
    /// Its listener drains with it: a reload has removed what it was admitted to, or asks more of connections there.
    Stays,
    /// It goes with the connection on the other side of its exchange.
    WithAnother,
}

/// Why a connection does not leave its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmovable {
    /// A handshake has to end first, or one of two attempts of an exchange.
    NotYet,
    /// See [`Movable::Stays`].
    Stays,
    /// Another connection of its group stays. That one ends with what it carries, and then the others can move.
    WithDraining,
    /// Its group has more connections than were asked for.
    TooLarge,
    /// There is no such connection, or it went with another.
    Unknown,
}

/// A group that is not saved.
#[derive(Debug)]
pub struct NotSaved {
    /// Why.
    pub why: Unmovable,
    /// Its connections; if it is too large, some of them.
    pub connections: Vec<ConnKey>,
}

/// Why bytes cannot become connections.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RestoreError {
    /// The bytes are not what [`Proxy::finish_save`] returned.
    #[error("the saved connection is damaged: {0}")]
    Damaged(&'static str),
    /// What it was agreed on would be otherwise in this configuration.
    #[error("its {0} is configured differently, or is not configured")]
    Differs(&'static str),
    /// The listener that it came through is not in this configuration.
    #[error("there is no listener of the saved connection's name")]
    NoListener,
    /// The worker has its share of as many connections as this option allows.
    #[error("the worker already has its share of {0}")]
    NoRoom(&'static str),
    /// Another version of this program wrote them.
    #[error("the saved connection has form {0}, and this program reads form {VERSION}")]
    Version(u16),
}

/// Connections and exchanges that know each other by their places here.
#[derive(Debug, Default)]
struct Group {
    connections: Vec<SavedEnd>,
    #[expect(
        clippy::vec_box,
        reason = "each has 1 KiB, and a list of thousands would copy them as it grows"
    )]
    exchanges: Vec<Box<SavedExchange>>,
}

#[derive(Debug, Serialize, Deserialize)]
enum SavedEnd {
    Downstream(SavedDownstream),
    Upstream(SavedUpstream),
}

/// One side of an exchange: the place of a connection, and the stream on it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SavedSide {
    connection: u32,
    slot: Slot,
}

impl SavedEnd {
    fn has_slot(&self, slot: Slot) -> bool {
        let (Self::Downstream(SavedDownstream { connection, .. })
        | Self::Upstream(SavedUpstream { connection, .. })) = self;
        connection.has_slot(slot)
    }

    /// What is left once it is written down.
    fn into_tls(self) -> Option<Box<SavedTls>> {
        let (Self::Downstream(SavedDownstream { connection, .. })
        | Self::Upstream(SavedUpstream { connection, .. })) = self;
        connection.into_tls()
    }
}

impl Group {
    /// Whether connections and exchanges go together: each side of an exchange is its own, and each
    /// connection has the exchanges that it says.
    fn is_consistent(&self) -> bool {
        let sides = self.exchanges.iter().flat_map(|it| [it.downstream, it.upstream]);
        let mut sides: Vec<_> =
            sides.flatten().map(|side| (side.connection, side.slot.stream())).collect();
        sides.sort_unstable();
        let mut counts = vec![0; self.connections.len()];
        for (connection, _) in &sides {
            let Some(count) = counts.get_mut(*connection as usize) else { return false };
            *count += 1;
        }
        sides.is_sorted_by(|one, other| one < other)
            && self.connections.iter().zip(counts).all(|(end, count)| end.carries(count))
    }
}

impl Group {
    /// Whether each exchange without a connection is the copy of one that has its client's, and waits for that.
    fn has_whole_copies(&self) -> bool {
        let originals = self.exchanges.iter();
        let mut copies: Vec<u32> = originals.flat_map(|it| it.copies.iter().copied()).collect();
        copies.sort_unstable();
        let waits = |saved: &SavedExchange| {
            saved.detached.is_some() && matches!(saved.stage, SavedStage::Buffering(_))
        };
        let has_own =
            |saved: &SavedExchange| saved.downstream.is_some() || saved.upstream.is_some();
        let places = self.exchanges.iter().zip(0u32..);
        let waiting = places.filter(|(saved, _)| !has_own(saved) || waits(saved));
        waiting.clone().all(|(saved, _)| waits(saved) && !has_own(saved))
            && waiting.map(|(_, place)| place).eq(copies)
            && self.exchanges.iter().all(|it| it.copies.is_empty() || it.downstream.is_some())
    }
}

impl Group {
    /// Whether an exchange is what it may be, and its sides are what it says they are.
    fn check_exchange(&self, saved: &SavedExchange, cx: &Cx) -> Result<(), RestoreError> {
        let end = |side: SavedSide| {
            let end = self.connections.get(side.connection as usize);
            end.filter(|end| end.has_slot(side.slot))
        };
        let needs_upstream = matches!(saved.stage, SavedStage::Attempting | SavedStage::Responding);
        let has_downstream = match (saved.downstream, &saved.detached) {
            (Some(side), None) => matches!(end(side), Some(SavedEnd::Downstream(_))),
            (None, Some(_)) if cx.snapshot.listeners.is_empty() => {
                return Err(RestoreError::NoListener);
            }
            (None, Some(_)) => true,
            _ => false,
        };
        if !has_downstream {
            return Err(RestoreError::Damaged("an exchange has no stream of a downstream"));
        }
        if saved.upstream.is_some() != needs_upstream {
            return Err(RestoreError::Damaged(
                "an upstream does not fit the stage of its exchange",
            ));
        }
        match saved.upstream.map(end) {
            None | Some(Some(SavedEnd::Upstream(_))) => Ok(()),
            Some(_) => Err(RestoreError::Damaged("an exchange has no stream of its upstream")),
        }
    }

    /// Whether all that was read goes together.
    fn check(&self) -> Result<(), RestoreError> {
        if self.connections.is_empty() {
            return Err(RestoreError::Damaged("it has no connection"));
        }
        if !self.is_consistent() {
            return Err(RestoreError::Damaged("streams and exchanges do not match"));
        }
        if !self.has_whole_copies() {
            return Err(RestoreError::Damaged("a mirrored request has no original"));
        }
        Ok(())
    }
}

impl Listen {
    /// Whether everything is there that a connection speaks of.
    fn check(&self, end: &SavedEnd, cx: &Cx) -> Result<(), RestoreError> {
        end.check_protocol(&cx.snapshot.protocols)?;
        match end {
            SavedEnd::Downstream(saved) => {
                let listener = self.listener_named(&saved.listener, cx)?;
                saved.check(self.listeners.get(listener).listener(), &cx.differing)
            }
            SavedEnd::Upstream(saved) => saved.check_differing(&cx.differing),
        }
    }

    pub(crate) fn listener_named(&self, name: &str, cx: &Cx) -> Result<ListenerKey, RestoreError> {
        let place = cx.names().listener(name, &cx.snapshot).ok_or(RestoreError::NoListener)?;
        let id = cx.snapshot.listeners.get(place).ok_or(RestoreError::NoListener)?.id;
        self.listeners.find(id).ok_or(RestoreError::NoListener)
    }
}

/// Every connection and exchange that one connection cannot be moved without, and their places in these lists.
struct Companions {
    connections: Vec<ConnKey>,
    exchanges: Vec<ExchangeKey>,
    connection_places: Places,
    exchange_places: Places,
}

/// The places of keys, which are given in the order in which keys are added.
///
/// Most groups are one connection: nothing is allocated for the first key.
#[derive(Debug, Default)]
struct Places {
    first: Option<u64>,
    others: BTreeMap<u64, u32>,
}

impl Places {
    /// Whether the key was not there before.
    fn add(&mut self, key: u64) -> bool {
        let Some(first) = self.first else {
            self.first = Some(key);
            return true;
        };
        if first == key {
            return false;
        }
        let place = u32::try_from(self.others.len() + 1).unwrap_or(u32::MAX);
        let Entry::Vacant(entry) = self.others.entry(key) else { return false };
        entry.insert(place);
        true
    }

    fn of(&self, key: u64) -> Option<u32> {
        if self.first == Some(key) { Some(0) } else { self.others.get(&key).copied() }
    }
}

impl Companions {
    fn add_connection(&mut self, key: ConnKey) {
        if self.connection_places.add(key.to_bits()) {
            self.connections.push(key);
        }
    }

    /// Whether it was not there before.
    fn add_exchange(&mut self, key: ExchangeKey) -> bool {
        let is_new = self.exchange_places.add(key.to_bits());
        if is_new {
            self.exchanges.push(key);
        }
        is_new
    }

    fn side(&self, side: StreamKey) -> SavedSide {
        let place = self.connection_places.of(side.connection.to_bits());
        SavedSide { connection: place.unwrap_or(u32::MAX), slot: side.slot }
    }
}

impl Connections {
    /// Whether a connection ends where it is. What it was admitted to is not what its listener has now, and elsewhere it
    /// would meet that.
    fn stays(&self, key: ConnKey, listen: &Listen) -> bool {
        let downstream = self.get(key).and_then(Connection::downstream);
        downstream.is_some_and(|it| listen.listeners.get(it.listener).is_draining())
    }
}

impl Proxy {
    /// Overwrites what calls have left of secrets on the stacks of this thread, once connections were given to another
    /// process.
    pub fn wipe_stacks(&self) {
        tls::wipe_stacks();
    }

    /// Has this process refuse connections that come from one with another configuration, as far as they
    /// concern what differs.
    pub fn set_differing(&mut self, differing: Arc<Differing>) {
        self.cx.differing = differing;
    }

    /// The connections in `count` slots from `first` on, and the slot to go on with.
    #[must_use]
    pub fn movable(&self, first: u32, count: u32) -> (Vec<(ConnKey, Movable)>, Option<u32>) {
        let (slots, next) = self.connections.slots(first, count);
        let movable = slots.map(|(key, connection)| (key, self.movability(key, connection)));
        (movable.collect(), next)
    }

    /// Whether a connection can be moved; none for a stale key.
    #[must_use]
    pub fn movable_one(&self, key: ConnKey) -> Option<Movable> {
        Some(self.movability(key, self.connections.get(key)?))
    }

    /// The connection by which [`Proxy::begin_save`] takes the group of this one: its downstream, if an exchange has it alone.
    #[must_use]
    pub fn leading(&self, key: ConnKey) -> ConnKey {
        let upstream = self.connections.get(key).and_then(Connection::upstream);
        let exchange = upstream.and_then(|upstream| self.exchanges.get(upstream.exchange()?));
        let downstream = exchange.filter(|exchange| exchange.detached.is_none());
        downstream.map_or(key, |exchange| exchange.downstream.connection)
    }

    fn movability(&self, key: ConnKey, connection: &Connection) -> Movable {
        if connection.upstream().is_some() && self.leading(key) != key {
            Movable::WithAnother
        } else if self.connections.stays(key, &self.listen) {
            Movable::Stays
        } else if connection.owes_handshake() {
            Movable::NotYet
        } else if connection.is_busy() {
            Movable::Busy
        } else {
            Movable::Idle
        }
    }

    /// Whether there is a connection of this key.
    #[must_use]
    pub fn has_connection(&self, key: ConnKey) -> bool {
        self.connections.get(key).is_some()
    }

    /// Every connection and exchange that this connection cannot be moved without; of more than `connections_max`
    /// connections, some of them.
    fn companions(&self, key: ConnKey, connections_max: usize) -> Companions {
        let mut found = Companions {
            connections: Vec::new(),
            exchanges: Vec::new(),
            connection_places: Places::default(),
            exchange_places: Places::default(),
        };
        found.add_connection(key);
        let mut seen = 0;
        while let Some(key) = found.connections.get(seen).copied() {
            if found.connections.len() > connections_max {
                break;
            }
            seen += 1;
            for key in self.connections.exchanges_on(key) {
                if !found.add_exchange(key) {
                    continue;
                }
                let Some(exchange) = self.exchanges.get(key) else { continue };
                let copies = exchange.copies.iter().flatten();
                for copy in copies.filter(|copy| self.exchanges.get(**copy).is_some()) {
                    found.add_exchange(*copy);
                }
                let sides = [Some(exchange.downstream), exchange.upstream()];
                for side in sides.into_iter().flatten().filter(|side| *side != StreamKey::NONE) {
                    found.add_connection(side.connection);
                }
            }
        }
        found
    }

    /// Takes up what [`Proxy::finish_save`] returned, with its sockets to be registered under the returned
    /// keys, in the order of [`Saved::connections`].
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; nothing was taken up then.
    pub fn restore(&mut self, bytes: &Pieces, now: Time) -> Result<Vec<ConnKey>, RestoreError> {
        let mut restoring = self.begin_restore(bytes)?;
        self.restore_part(&mut restoring, bytes, usize::MAX, now)?;
        Ok(restoring.into_keys())
    }

    /// The same within the bounds on connections of a listener and of a client: a worker that gave its connections away lets others in.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; nothing was taken up then.
    pub fn restore_within_bounds(
        &mut self,
        bytes: &Pieces,
        now: Time,
    ) -> Result<Vec<ConnKey>, RestoreError> {
        let mut restoring = self.begin_restore(bytes)?;
        restoring.is_within_bounds = true;
        self.restore_part(&mut restoring, bytes, usize::MAX, now)?;
        Ok(restoring.into_keys())
    }

    /// Whether the socket of a restored connection is still being connected.
    #[must_use]
    pub fn awaits_connection(&self, key: ConnKey) -> bool {
        self.connections.get(key).is_some_and(Connection::is_connecting)
    }

    /// Whether [`Proxy::on_direct_source`] matters for a connection that was restored: a chain of its listener asks who
    /// connected, and a PROXY header has named another address.
    #[must_use]
    pub fn asks_direct_source(&self, key: ConnKey) -> bool {
        let Some(connection) = self.connections.get(key) else { return false };
        let is_named = connection.opening() != Some(Opening::ProxyHeader);
        connection.downstream().is_some_and(|it| is_named && self.listen.asks_direct_source(it))
    }

    /// Who connected, as the socket of a restored connection says: that is not written down.
    pub fn on_direct_source(&mut self, key: ConnKey, direct: PeerAddress) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.peer != direct
            && let Some(downstream) = connection.downstream_mut()
        {
            downstream.keep_direct(direct);
        }
    }

    /// Goes on with restored connections, once their sockets are registered.
    pub fn on_restored(&mut self, keys: &[ConnKey], now: Time) {
        self.try_restored(keys);
        for key in keys {
            let upstream = self.connections.get(*key).and_then(Connection::upstream);
            if let Some(pool) = upstream.map(Upstream::pool) {
                // Who was restored before it may be waiting for it.
                self.serve_waiting(pool, now);
            }
            self.resume_inbox(*key, now);
            let streams = self.connections.get(*key).and_then(Connection::multiplex);
            for slot in streams.map(|all| all.streams.slots()).unwrap_or_default() {
                // One that waited for a connection may have got one on the way.
                self.resume_stream(StreamKey { connection: *key, slot }, now);
            }
        }
        // An upstream connection that came alone to a worker that has drained is of no use there.
        self.end_if_drained(now);
        self.settle(now);
    }
}

fn cause_named(word: &str) -> Option<Cause> {
    Cause::ALL.iter().copied().find(|cause| cause.as_str() == word)
}

/// Time since a stamp, if it is set.
fn since(stamp: Time, now: Time) -> Option<u64> {
    stamp.is_set().then(|| now.nanos_since(stamp))
}

/// The point that many nanoseconds before `now`.
const fn before(age: u64, now: Time) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(age))
}
