//! Values under typed keys with a generation; a stale key finds nothing instead of the wrong thing.
//!
//! Grows by whole chunks and never moves a value, so that growing from 100,000 to 100,001
//! connections costs the same as growing from one to two. Empty chunks at the end go back to the
//! allocator ([`Slab::shrink`]), so that memory follows load in both directions.

use std::fmt;
use std::marker::PhantomData;

use crate::tools::places::Places;

/// Chunks that one call of `shrink` gives back: 16,384 places take some 0.2 ms.
pub(crate) const SHRINK_CHUNKS_MAX: usize = 64;

/// Values of one chunk.
pub(crate) const CHUNK: usize = 256;

/// A sequence that grows by whole chunks: nothing is ever moved, and no more memory is touched than
/// is used, give or take a chunk.
#[derive(Debug)]
pub struct Chunks<T> {
    // Of a length that the compiler knows, so that a place in a chunk needs no check.
    chunks: Vec<Box<[T; CHUNK]>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Chunks<T> {
    /// Values there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The value at a place.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// The value at a place.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// Adds a chunk of values, each made from its place.
    pub fn grow(&mut self, value: impl FnMut(usize) -> T) {
        let first = self.len();
        let chunk: Box<[T]> = (first..first + CHUNK).map(value).collect();
        self.chunks.extend(chunk.try_into().ok());
    }

    /// Whether there is a last chunk of which all values are so.
    #[must_use]
    pub fn is_last_chunk(&self, is_so: impl FnMut(&T) -> bool) -> bool {
        self.chunks.last().is_some_and(|chunk| chunk.iter().all(is_so))
    }

    /// Takes the last chunk away, with what is in it.
    pub fn shrink(&mut self) -> Option<Box<[T; CHUNK]>> {
        let last = self.chunks.pop();
        if self.chunks.capacity() > 4 * self.chunks.len().max(16) {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        last
    }

    /// All values in order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut())
    }

    /// All values in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

/// A generation has 31 bits, which leaves one in [`Key::to_bits`] for others.
const GENERATION_MASK: u32 = u32::MAX >> 1;

/// Names one value of a [`Slab`].
pub struct Key<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    /// The key of a place, and of which use of it.
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation, of: PhantomData }
    }

    /// Place in the slab: dense, small, used again.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// How often the place was given away before; 31 bits.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// Both halves in one word, for a poller's token; the highest bit is 0.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    /// The key that [`Key::to_bits`] made.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub const fn from_bits(bits: u64) -> Self {
        Self::new(bits as u32, (bits >> 32) as u32)
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl<T> Eq for Key<T> {}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Values under keys. `Of` is what the keys say they name: the value itself, or a type that stands for it
/// where those who hold keys need not know the value.
#[derive(Debug)]
pub struct Slab<T, Of = T> {
    slots: Chunks<Slot<T>>,
    free: Places,
    len: usize,
    /// Where generations of new slots begin: beyond those of slots that were given back, so that
    /// their keys stay stale.
    first_generation: u32,
    of: PhantomData<fn() -> Of>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T> {
    Free,
    Used(T),
}

impl<T, Of> Default for Slab<T, Of> {
    fn default() -> Self {
        Self {
            slots: Chunks::default(),
            free: Places::default(),
            len: 0,
            first_generation: 0,
            of: PhantomData,
        }
    }
}

impl<T, Of> Slab<T, Of> {
    /// Values held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no value is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a value in.
    pub fn insert(&mut self, value: T) -> Key<Of> {
        let free = self.free.take();
        let index = free.unwrap_or_else(|| self.grow());
        let slot = self.slot_mut(index).expect("free places are those of slots of this slab");
        assert!(matches!(slot.content, Content::Free), "a free place holds no value");
        slot.content = Content::Used(value);
        let generation = slot.generation;
        self.len += 1;
        Key { index, generation, of: PhantomData }
    }

    /// Takes a value out, if the key is not stale.
    pub fn remove(&mut self, key: Key<Of>) -> Option<T> {
        let slot = self.slot_mut(key.index)?;
        if slot.generation != key.generation || matches!(slot.content, Content::Free) {
            return None;
        }
        let content = std::mem::replace(&mut slot.content, Content::Free);
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.give_back(key.index);
        self.len -= 1;
        match content {
            Content::Used(value) => Some(value),
            Content::Free => None,
        }
    }

    /// Drops a value where it is, if the key is not stale: large ones are not copied out for that.
    pub fn discard(&mut self, key: Key<Of>) {
        let Some(slot) = self.slot_mut(key.index) else { return };
        if slot.generation != key.generation || matches!(slot.content, Content::Free) {
            return;
        }
        slot.content = Content::Free;
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.give_back(key.index);
        self.len -= 1;
    }

    /// The value, if the key is not stale.
    #[must_use]
    #[inline]
    pub fn get(&self, key: Key<Of>) -> Option<&T> {
        match self.slots.get(key.index as usize)? {
            Slot { generation, content: Content::Used(value) } if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The value, if the key is not stale.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, key: Key<Of>) -> Option<&mut T> {
        match self.slot_mut(key.index)? {
            Slot { generation, content: Content::Used(value) } if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// All values in the order of their places, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| match &mut slot.content {
            Content::Used(value) => Some(value),
            Content::Free => None,
        })
    }

    /// All values with their keys, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Key<Of>, &T)> {
        self.slots.iter().zip(0u32..).filter_map(|(slot, index)| match &slot.content {
            Content::Used(value) => {
                Some((Key { index, generation: slot.generation, of: PhantomData }, value))
            }
            Content::Free => None,
        })
    }

    /// Changes the values in `count` slots from `first` on, and says which slot to go on with if there
    /// are more.
    pub fn change_range(
        &mut self,
        first: u32,
        count: u32,
        mut change: impl FnMut(&mut T),
    ) -> Option<u32> {
        let slots = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let last = first.saturating_add(count).min(slots);
        for index in first..last {
            if let Some(Slot { content: Content::Used(value), .. }) = self.slot_mut(index) {
                change(value);
            }
        }
        (last < slots).then_some(last)
    }

    /// The values in `count` slots from `first` on, and the slot to go on with if there are more.
    pub fn range(
        &self,
        first: u32,
        count: u32,
    ) -> (impl Iterator<Item = (Key<Of>, &T)>, Option<u32>) {
        let slots = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let last = first.saturating_add(count).min(slots);
        let values = (first..last).filter_map(|index| {
            let slot = self.slots.get(index as usize)?;
            match &slot.content {
                Content::Used(value) => {
                    Some((Key { index, generation: slot.generation, of: PhantomData }, value))
                }
                Content::Free => None,
            }
        });
        (values, (last < slots).then_some(last))
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.slots.get_mut(index as usize)
    }

    /// Adds a chunk, and takes its first place.
    fn grow(&mut self) -> u32 {
        let generation = self.first_generation;
        self.slots.grow(|_| Slot { generation, content: Content::Free });
        self.free.grow();
        self.free.take().expect("a new chunk has places, and there are fewer than 2^32")
    }

    /// Gives empty chunks at the end back to the allocator, a bounded number at a time.
    pub fn shrink(&mut self) {
        for _ in 0..SHRINK_CHUNKS_MAX {
            if !self.free.shrink() {
                break;
            }
            let gone = self.slots.shrink();
            let latest =
                gone.iter().flat_map(|chunk| chunk.iter()).map(|slot| slot.generation).max();
            let next = latest.map_or(0, |latest| latest.wrapping_add(1) & GENERATION_MASK);
            self.first_generation = self.first_generation.max(next);
        }
    }

    /// Slots there are, used or not.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab: Slab<_> = Slab::default();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.index(), first.index(), "the slot is used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
    }

    #[test]
    fn what_is_discarded_is_dropped_and_its_key_is_stale() {
        let value = std::rc::Rc::new(());
        let mut slab: Slab<_> = Slab::default();
        let first = slab.insert(std::rc::Rc::clone(&value));
        slab.discard(first);
        assert_eq!((slab.len(), std::rc::Rc::strong_count(&value)), (0, 1));
        let second = slab.insert(std::rc::Rc::clone(&value));
        assert_eq!(second.index(), first.index(), "the slot is used again");
        // A stale key discards nothing, whether its place is used or free.
        slab.discard(first);
        assert!(slab.get(first).is_none() && slab.get(second).is_some());
        slab.discard(second);
        slab.discard(second);
        assert!(slab.is_empty());
    }

    #[test]
    fn grows_past_a_chunk_and_keeps_every_value() {
        let mut slab: Slab<_> = Slab::default();
        let keys: Vec<_> = (0..3 * CHUNK).map(|n| slab.insert(n)).collect();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(slab.get(*key), Some(&n));
        }
        assert_eq!(slab.len(), 3 * CHUNK);
        assert_eq!(slab.iter().map(|(_, n)| *n).sum::<usize>(), (0..3 * CHUNK).sum::<usize>());
    }

    #[test]
    fn empty_chunks_at_the_end_go_and_their_keys_stay_stale() {
        let mut slab: Slab<_> = Slab::default();
        let keys: Vec<_> = (0..5 * CHUNK).map(|n| slab.insert(n)).collect();
        slab.shrink();
        assert_eq!(slab.slots(), 5 * CHUNK);
        for key in &keys[CHUNK + 1..] {
            slab.remove(*key);
        }
        slab.shrink();
        assert_eq!(slab.slots(), 2 * CHUNK, "one value is left in the second chunk");
        assert_eq!(slab.get(keys[CHUNK]), Some(&CHUNK));
        let again: Vec<_> = (0..4 * CHUNK).map(|n| slab.insert(n)).collect();
        assert!(again.iter().any(|key| key.index() == keys[4 * CHUNK].index()));
        for stale in &keys[CHUNK + 1..] {
            assert_eq!(slab.get(*stale), None);
            assert_eq!(slab.remove(*stale), None);
        }
        assert_eq!(slab.len(), 5 * CHUNK + 1);
        assert!(again.iter().enumerate().all(|(n, key)| slab.get(*key) == Some(&n)));
    }

    #[test]
    fn a_key_survives_its_bits() {
        let mut slab: Slab<_> = Slab::default();
        let gone = slab.insert(1);
        slab.remove(gone);
        let key = slab.insert(2);
        assert_eq!(Key::from_bits(key.to_bits()), key);
    }
}
