//! Which clients' handshakes run, and which of them gives way when there is no room for another.
//!
//! A handshake takes a slot with the first byte that its client sends; a client that is silent has
//! none. The slots of a listener are a queue, ordered by the time of the last step that we answered (or of
//! our own signature): a byte, or a record, now and then does not keep a slot.
//!
//! ```text
//!   listener A   oldest ◄─► … ◄─► newest      3 slots  ┐
//!   listener B   oldest ◄─► newest            2 slots  ┘ by_len: (2, B), (3, A)
//! ```
//!
//! At `limits.handshakes_max` the listener with the most slots gives up its oldest, so that none of `n`
//! listeners can be kept below an `n`th of all by the others. Nothing here walks over slots: finding and
//! moving one takes a step, finding the listener as many as the logarithm of their number.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use config::snapshot::ListenerId;

use crate::keys::ConnKey;
use crate::tools::slab::Key;
use crate::tools::slab::Slab;

/// Names one slot.
pub(crate) type SlotKey = Key<HandshakeSlot>;

/// A handshake that runs.
#[derive(Debug)]
pub(crate) struct HandshakeSlot {
    connection: ConnKey,
    listener: ListenerId,
    older: Option<SlotKey>,
    newer: Option<SlotKey>,
}

/// The handshakes of a listener.
#[derive(Clone, Copy, Debug)]
struct Queue {
    len: u32,
    oldest: SlotKey,
    newest: SlotKey,
}

/// The handshakes that run, bounded by the worker's share of `limits.handshakes_max`.
#[derive(Debug, Default)]
pub(crate) struct HandshakeSlots {
    slots: Slab<HandshakeSlot>,
    /// Of the listeners that have any.
    queues: BTreeMap<ListenerId, Queue>,
    /// The same listeners by how many they have.
    by_len: BTreeSet<(u32, ListenerId)>,
}

impl HandshakeSlots {
    /// Handshakes that run.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Takes a slot for a connection of this listener.
    pub(crate) fn insert(&mut self, connection: ConnKey, listener: ListenerId) -> SlotKey {
        let slot = HandshakeSlot { connection, listener, older: None, newer: None };
        let key = self.slots.insert(slot);
        self.append(key, listener);
        key
    }

    /// The connection whose slot is to be given up for one of this listener: that of the listener with
    /// the most slots which made no progress for the longest time.
    pub(crate) fn stillest(&self, listener: ListenerId) -> Option<ConnKey> {
        let (most, of_most) = self.by_len.last()?;
        // A listener that has as many as any other takes no more from the others.
        let own = self.queues.get(&listener).filter(|queue| queue.len >= *most);
        let queue = own.or_else(|| self.queues.get(of_most))?;
        self.slots.get(queue.oldest).map(|slot| slot.connection)
    }

    /// The handshake made progress.
    pub(crate) fn touch(&mut self, key: SlotKey) {
        let Some(listener) = self.slots.get(key).map(|slot| slot.listener) else { return };
        if self.queues.get(&listener).is_none_or(|queue| queue.newest == key) {
            return;
        }
        self.unlink(key);
        self.append(key, listener);
    }

    /// The handshake is over.
    pub(crate) fn remove(&mut self, key: SlotKey) {
        self.unlink(key);
        self.slots.remove(key);
    }

    fn append(&mut self, key: SlotKey, listener: ListenerId) {
        let queue = self.queues.get(&listener).copied();
        let older = queue.map(|queue| queue.newest);
        if let Some(slot) = self.slots.get_mut(key) {
            (slot.older, slot.newer) = (older, None);
        }
        if let Some(older) = older.and_then(|older| self.slots.get_mut(older)) {
            older.newer = Some(key);
        }
        let len = queue.map_or(0, |queue| queue.len) + 1;
        let oldest = queue.map_or(key, |queue| queue.oldest);
        self.queues.insert(listener, Queue { len, oldest, newest: key });
        self.by_len.remove(&(len - 1, listener));
        self.by_len.insert((len, listener));
    }

    fn unlink(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let (listener, older, newer) = (slot.listener, slot.older, slot.newer);
        if let Some(older) = older.and_then(|older| self.slots.get_mut(older)) {
            older.newer = newer;
        }
        if let Some(newer) = newer.and_then(|newer| self.slots.get_mut(newer)) {
            newer.older = older;
        }
        let Some(queue) = self.queues.get_mut(&listener) else { return };
        self.by_len.remove(&(queue.len, listener));
        queue.len -= 1;
        match (older, newer) {
            (None, None) => {
                self.queues.remove(&listener);
                return;
            }
            (None, Some(newer)) => queue.oldest = newer,
            (Some(older), None) => queue.newest = older,
            (Some(_), Some(_)) => {}
        }
        self.by_len.insert((queue.len, listener));
    }
}

/// Steps of handshakes that go on together, before requests have their turn again. With RSA of 2048
/// bits, signed at once, they take some 12 ms; with ECDSA 3.
pub(crate) const HANDSHAKES_TOGETHER: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const A: ListenerId = ListenerId(config::snapshot::Id { slot: 1, generation: 0 });
    const B: ListenerId = ListenerId(config::snapshot::Id { slot: 2, generation: 0 });

    fn connection(number: u64) -> ConnKey {
        ConnKey::from_bits(number)
    }

    #[test]
    fn the_one_without_progress_for_longest_gives_way() {
        let mut slots = HandshakeSlots::default();
        assert_eq!(slots.stillest(A), None);
        let keys: Vec<_> = (0..4).map(|n| slots.insert(connection(n), A)).collect();
        assert_eq!(slots.stillest(A), Some(connection(0)));
        slots.touch(keys[0]);
        slots.touch(keys[3]);
        slots.touch(keys[3]);
        let mut left = Vec::new();
        while let Some(first) = slots.stillest(A) {
            left.push(first.index());
            slots.remove(keys[first.index() as usize]);
        }
        assert_eq!(left, [1, 2, 0, 3]);
        assert_eq!((slots.len(), slots.queues.len(), slots.by_len.len()), (0, 0, 0));
        // A stale key changes nothing.
        slots.touch(keys[1]);
        slots.remove(keys[1]);
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn a_listener_takes_from_the_one_with_most_until_it_has_as_many() {
        let mut slots = HandshakeSlots::default();
        let mut keys: BTreeMap<u32, SlotKey> = BTreeMap::new();
        for n in 0..8 {
            keys.insert(n, slots.insert(connection(u64::from(n)), A));
        }
        let mut of_b = 0;
        for n in 8..40 {
            let given_up = slots.stillest(B).unwrap().index();
            of_b = of_b + 1 - u32::from(given_up >= 8);
            slots.remove(keys.remove(&given_up).unwrap());
            keys.insert(n, slots.insert(connection(u64::from(n)), B));
        }
        assert_eq!((slots.len(), of_b), (8, 4));
        // And the other way round, it has no more than its own to give.
        assert!(slots.stillest(A).unwrap().index() < 8);
    }

    #[test]
    fn queues_agree_with_a_list_whatever_happens() {
        let mut slots = HandshakeSlots::default();
        let mut list: Vec<(SlotKey, u64)> = Vec::new();
        let mut random = crate::tools::random::Random::new(7);
        for n in 0..4_000 {
            match random.next() % 3 {
                0 => list.push((slots.insert(connection(n), A), n)),
                1 if !list.is_empty() => {
                    let at = usize::try_from(random.next() % list.len() as u64).unwrap();
                    let one = list.remove(at);
                    slots.touch(one.0);
                    list.push(one);
                }
                _ if !list.is_empty() => {
                    let at = usize::try_from(random.next() % list.len() as u64).unwrap();
                    slots.remove(list.remove(at).0);
                }
                _ => {}
            }
            assert_eq!(slots.len() as usize, list.len());
            assert_eq!(slots.stillest(A), list.first().map(|(_, n)| connection(*n)));
        }
    }
}
