//! Restoring a group: its bytes are decoded, then its connections are placed, then its exchanges, in as many steps as it
//! takes.
//!
//! Its connections are paused until all of it is placed: they have no events, since their sockets are not watched. Timers of
//! connections, and what looks at all of them, wait meanwhile (`Cx::has_part_of_group`).

use std::time::Duration;
use std::vec::IntoIter;

use serde::de::DeserializeOwned;
use wiped::Pieces;

use super::exchanges::SavedExchange;
use super::group::Group;
use super::leaving::Leaving;
use super::{RestoreError, SavedEnd, VERSION};
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::keys::{ConnKey, ExchangeKey};
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// Fewer bytes than it says.
const ENDS_EARLY: RestoreError = RestoreError::Damaged("it ends early");

/// Connections that room is made for before they are read: as many as a group may have that another process sends. Of room that
/// is not used, no memory is.
const ROOM_MAX: usize = 1 << 16;

/// A group that is being taken up. No configuration may be taken up in between.
#[derive(Debug)]
pub struct Restoring {
    state: State,
    /// The piece that is being read, and bytes of it that were.
    piece: usize,
    read: usize,
    /// Bytes of all pieces that are to come.
    left: usize,
    keys: Vec<ConnKey>,
    exchanges: Vec<Option<ExchangeKey>>,
    copies: Vec<Vec<u32>>,
    /// Whether bounds on connections hold for what comes. What another process had let in stays, whatever they are.
    pub is_within_bounds: bool,
}

#[derive(Debug)]
enum State {
    /// Entries are read: so many are to come of those that are being read.
    Reading {
        group: Group,
        ends: usize,
        exchanges: Option<usize>,
    },
    Placing {
        ends: IntoIter<SavedEnd>,
        exchanges: IntoIter<Box<SavedExchange>>,
    },
    /// Connections that were opened for others are known to be: up to this place.
    Joining(usize),
    Placed,
}

impl Restoring {
    /// The connections that were placed so far, in the order of [`super::Saved::connections`].
    #[must_use]
    pub fn keys(&self) -> &[ConnKey] {
        &self.keys
    }

    /// The same, once all of it is there.
    #[must_use]
    pub fn into_keys(self) -> Vec<ConnKey> {
        self.keys
    }

    /// Whether all of it is there.
    #[must_use]
    pub const fn is_placed(&self) -> bool {
        matches!(self.state, State::Placed)
    }

    /// Whether connections of it are in the worker's tables.
    #[must_use]
    pub const fn is_begun(&self) -> bool {
        !matches!(self.state, State::Reading { .. })
    }

    /// The next entry, which is in one piece.
    fn read<T: DeserializeOwned>(&mut self, bytes: &Pieces) -> Result<T, RestoreError> {
        let left = loop {
            let piece = bytes.get(self.piece).ok_or(ENDS_EARLY)?;
            match piece.get(self.read..) {
                Some(left) if !left.is_empty() => break left,
                _ => (self.piece, self.read) = (self.piece + 1, 0),
            }
        };
        let (value, behind) = postcard::take_from_bytes(left)
            .map_err(|_| RestoreError::Damaged("an entry cannot be decoded"))?;
        let read = left.len() - behind.len();
        (self.read, self.left) = (self.read + read, self.left - read);
        Ok(value)
    }

    fn count(&mut self, bytes: &Pieces) -> Result<usize, RestoreError> {
        let count: usize = self.read(bytes)?;
        // Each takes a byte at least.
        if count > self.left { Err(ENDS_EARLY) } else { Ok(count) }
    }
}

impl Proxy {
    /// Begins to take up what [`Proxy::finish_save`] returned.
    ///
    /// # Errors
    ///
    /// It is not that.
    pub fn begin_restore(&self, bytes: &Pieces) -> Result<Restoring, RestoreError> {
        let version = bytes.get(0).and_then(<[u8]>::first_chunk).ok_or(ENDS_EARLY)?;
        let version = u16::from_be_bytes(*version);
        if version != VERSION {
            return Err(RestoreError::Version(version));
        }
        let mut restoring = Restoring {
            state: State::Placed,
            piece: 0,
            read: size_of_val(&version),
            left: bytes.bytes_len() - size_of_val(&version),
            keys: Vec::new(),
            exchanges: Vec::new(),
            copies: Vec::new(),
            is_within_bounds: false,
        };
        let ends = restoring.count(bytes)?;
        // What is said is not believed yet. As lists grow, what they have is copied.
        let room = ends.min(ROOM_MAX);
        restoring.keys.reserve_exact(room);
        let group = Group::with_capacity(room);
        restoring.state = State::Reading { group, ends, exchanges: None };
        Ok(restoring)
    }

    /// Goes on with so many connections or exchanges, at most. `bytes` are those that it began with.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; nothing was taken up then.
    pub fn restore_part(
        &mut self,
        restoring: &mut Restoring,
        bytes: &Pieces,
        entries_max: usize,
        now: Time,
    ) -> Result<(), RestoreError> {
        for _ in 0..entries_max {
            restoring.state = match std::mem::replace(&mut restoring.state, State::Placed) {
                State::Reading { group, ends, exchanges } => {
                    self.read_entry(restoring, bytes, group, ends, exchanges)?
                }
                State::Placing { ends, exchanges } => {
                    self.place_entry(restoring, ends, exchanges, now)?
                }
                State::Joining(place) => match restoring.keys.get(place) {
                    Some(key) => {
                        self.upstream.on_spare_restored(*key, &self.connections);
                        State::Joining(place + 1)
                    }
                    None => {
                        self.cx.has_part_of_group =
                            self.leaving.as_ref().is_some_and(Leaving::is_large);
                        State::Placed
                    }
                },
                State::Placed => break,
            };
        }
        self.settle(now);
        Ok(())
    }

    fn read_entry(
        &self,
        restoring: &mut Restoring,
        bytes: &Pieces,
        mut group: Group,
        ends: usize,
        exchanges: Option<usize>,
    ) -> Result<State, RestoreError> {
        if ends > 0 {
            let end = restoring.read(bytes)?;
            self.listen.check(&end, &self.cx)?;
            group.connections.push(end);
            return Ok(State::Reading { group, ends: ends - 1, exchanges });
        }
        let left = match exchanges {
            Some(left) => left,
            None => restoring.count(bytes)?,
        };
        if let Some(left) = left.checked_sub(1) {
            group.add_exchange(restoring.read(bytes)?, &self.cx)?;
            return Ok(State::Reading { group, ends, exchanges: Some(left) });
        }
        if group.check_next()? {
            return Ok(State::Reading { group, ends, exchanges: Some(0) });
        }
        if restoring.is_within_bounds {
            self.listen.check_room(&group, &self.cx)?;
        }
        let (ends, exchanges) = group.into_parts()?;
        Ok(State::Placing { ends, exchanges })
    }

    fn place_entry(
        &mut self,
        restoring: &mut Restoring,
        mut ends: IntoIter<SavedEnd>,
        mut exchanges: IntoIter<Box<SavedExchange>>,
        now: Time,
    ) -> Result<State, RestoreError> {
        self.cx.has_part_of_group = true;
        if let Some(end) = ends.next() {
            restoring.keys.push(match end {
                SavedEnd::Downstream(saved) => self.connections.restore_downstream(
                    saved,
                    now,
                    &mut self.listen,
                    &mut self.cx,
                )?,
                SavedEnd::Upstream(saved) => self.upstream.restore_upstream(
                    saved,
                    now,
                    &mut self.connections,
                    &self.listen,
                    &mut self.cx,
                ),
            });
        } else if let Some(mut saved) = exchanges.next() {
            restoring.copies.push(std::mem::take(&mut saved.copies));
            restoring.exchanges.push(self.restore_exchange(*saved, &restoring.keys, now));
        } else {
            self.exchanges.join_copies(&restoring.exchanges, &restoring.copies, &mut self.cx);
            return Ok(State::Joining(0));
        }
        Ok(State::Placing { ends, exchanges })
    }

    /// Has the worker try what may be possible on restored connections, whose sockets are registered.
    pub(super) fn try_restored(&mut self, keys: &[ConnKey]) {
        for key in keys {
            self.cx.ops.push_back(Op::Send(*key));
            self.cx.ops.push_back(Op::Read(*key));
        }
    }
}

/// How long a deadline waits that came before all of a group was here.
const POSTPONED: Duration = Duration::from_millis(10);

impl Connections {
    /// Leaves a connection's deadline to a time when all of its group is here.
    pub(crate) fn postpone(&self, key: ConnKey, now: Time, cx: &mut Cx) {
        if let Some(connection) = self.get(key) {
            cx.timers.arm(connection.timer, now + POSTPONED);
        }
    }
}

impl Exchanges {
    /// The same of an exchange's, to a time when it is elsewhere.
    pub(crate) fn postpone(&self, key: ExchangeKey, now: Time, cx: &mut Cx) {
        if let Some(exchange) = self.get(key) {
            cx.timers.arm(exchange.timer, now + POSTPONED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restoring(bytes: &Pieces) -> Restoring {
        Restoring {
            state: State::Placed,
            piece: 0,
            read: 0,
            left: bytes.bytes_len(),
            keys: Vec::new(),
            exchanges: Vec::new(),
            copies: Vec::new(),
            is_within_bounds: false,
        }
    }

    #[test]
    fn entries_are_read_from_one_piece_after_the_other_and_from_one_each() {
        let mut bytes = Pieces::from(vec![5, 2]);
        bytes.push(vec![7].into());
        let mut whole = restoring(&bytes);
        assert_eq!(
            [whole.read(&bytes), whole.read(&bytes), whole.read(&bytes)],
            [5u8, 2, 7].map(Ok)
        );
        assert_eq!((whole.read::<u8>(&bytes), whole.left), (Err(ENDS_EARLY), 0));
        // A number of more than one byte, of which the rest is in the next piece.
        let mut bytes = Pieces::from(vec![0x80]);
        bytes.push(vec![1, 1].into());
        let undecodable = RestoreError::Damaged("an entry cannot be decoded");
        assert_eq!(restoring(&bytes).read::<u32>(&bytes), Err(undecodable));
        // There cannot be more entries than bytes.
        let bytes = Pieces::from(vec![2, 0]);
        assert_eq!(restoring(&bytes).count(&bytes), Err(ENDS_EARLY));
    }
}
