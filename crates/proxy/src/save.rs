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
mod companions;
mod connections;
mod exchanges;
mod group;
mod held;
mod leaving;
mod records;
mod remains;
mod restoring;
mod routes;
mod saving;

use std::sync::Arc;

use config::snapshot::Id;
use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;
use wiped::Pieces;

use self::connections::{SavedDownstream, SavedUpstream};
use crate::connection::codec::Opening;
use crate::connection::connections::Connections;
use crate::connection::transport::SavedTls;
use crate::connection::{Connection, Upstream};
use crate::cx::Cx;
use crate::keys::{ConnKey, Slot, StreamKey};
use crate::listen::Listen;
use crate::listen::listeners::ListenerKey;
use crate::proxy::Proxy;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;

pub use self::balancing::{BalancingPlace, ClusterBalancing};
pub use self::held::Held;
pub(crate) use self::leaving::Leaving;
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
    /// Its group has more connections than were asked for ([`GroupMax`]).
    TooLarge,
    /// There is no such connection, or it went with another.
    Unknown,
}

/// What a group has at most that is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMax {
    /// Connections, of clients and upstreams.
    pub connections: usize,
    /// Connections of clients.
    pub clients: usize,
}

impl GroupMax {
    /// No bounds.
    pub const ANY: Self = Self::connections(usize::MAX);

    /// So many connections, of clients or upstreams.
    #[must_use]
    pub const fn connections(connections: usize) -> Self {
        Self { connections, clients: usize::MAX }
    }
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

    /// Has the next requests of a client's connection go on upstream connections that no other client has, for some seconds: once
    /// those that it has begun are over, its group is small.
    pub fn set_apart(&mut self, key: ConnKey, now: Time) {
        if self.connections.get(key).is_some_and(|it| it.downstream().is_some()) {
            self.upstream.set_apart(key, now);
        }
    }

    /// Whether there is a connection of this key.
    #[must_use]
    pub fn has_connection(&self, key: ConnKey) -> bool {
        self.connections.get(key).is_some()
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
