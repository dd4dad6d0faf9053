//! Tables from ids to resources that share structure from one snapshot to the next.

use super::id::Id;
use std::sync::Arc;

/// Slots of a chunk: a change copies one chunk, and the pointers to all of them.
const CHUNK_SLOTS: usize = 64;

/// A table from ids to resources with shared structure: the next one shares all chunks but those in
/// which it differs.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    chunks: Vec<Arc<Chunk<T>>>,
}

type Chunk<T> = [Option<(u32, T)>; CHUNK_SLOTS];

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

/// The chunk of a slot, and its place there.
const fn place(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    (slot / CHUNK_SLOTS, slot % CHUNK_SLOTS)
}

impl<T> Slots<T> {
    /// The resource with this id, if this snapshot still has it.
    #[must_use]
    pub fn find(&self, id: Id) -> Option<&T> {
        let (chunk, place) = place(id.slot);
        match self.chunks.get(chunk)?.get(place) {
            Some(Some((generation, value))) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// Whether it has never held anything.
    #[must_use]
    #[inline]
    pub const fn is_unused(&self) -> bool {
        self.chunks.is_empty()
    }

    /// All resources with their ids, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.zip(0u32..).filter_map(|(place, slot)| {
            place.as_ref().map(|(generation, value)| (Id { slot, generation: *generation }, value))
        })
    }
}

impl<T> Slots<T> {
    /// What stands in the chunks that the two do not share: of this one, and of `former`. All that differs is among it.
    /// Costs a pointer for each chunk, and as much as differs.
    pub fn unshared<'s>(
        &'s self,
        former: &'s Self,
    ) -> (impl Iterator<Item = &'s T>, impl Iterator<Item = &'s T>) {
        fn of<'s, T>(one: &'s Slots<T>, other: &'s Slots<T>) -> impl Iterator<Item = &'s T> {
            let chunks = one.chunks.iter().enumerate();
            let is_own = |(place, chunk): &(usize, &'s Arc<Chunk<T>>)| {
                !other.chunks.get(*place).is_some_and(|other| Arc::ptr_eq(chunk, other))
            };
            let values = chunks.filter(is_own).flat_map(|(_, chunk)| chunk.iter().flatten());
            values.map(|(_, value)| value)
        }
        (of(self, former), of(former, self))
    }
}

impl<T: Clone> Slots<T> {
    /// Puts `value` under `id`, replacing what the slot held. Slots are given out densely: a table
    /// is as long as the largest slot.
    pub fn insert(&mut self, id: Id, value: T) {
        let (chunk, place) = place(id.slot);
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || Arc::new([const { None }; CHUNK_SLOTS]));
        }
        if let Some(slot) = self.slot_mut(chunk, place) {
            *slot = Some((id.generation, value));
        }
    }

    /// Empties the slot of `id`, if it holds that.
    pub(crate) fn remove(&mut self, id: Id) {
        let (chunk, place) = place(id.slot);
        if self.find(id).is_some()
            && let Some(slot) = self.slot_mut(chunk, place)
        {
            *slot = None;
        }
    }

    fn slot_mut(&mut self, chunk: usize, place: usize) -> Option<&mut Option<(u32, T)>> {
        Arc::make_mut(self.chunks.get_mut(chunk)?).get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_among_what_is_not_shared() {
        let mut former = Slots::default();
        let id = |slot| Id { slot, generation: 0 };
        (0..300).for_each(|slot| former.insert(id(slot), slot));
        let mut now = former.clone();
        now.remove(id(70));
        now.insert(id(300), 300);
        let (own, gone) = now.unshared(&former);
        let (own, gone): (Vec<_>, Vec<_>) = (own.collect(), gone.collect());
        assert!(own.contains(&&300) && !own.contains(&&70) && gone.contains(&&70));
        assert!(own.len() <= 2 * CHUNK_SLOTS && gone.len() <= 2 * CHUNK_SLOTS);
        let (own, gone) = now.unshared(&now);
        assert_eq!((own.count(), gone.count()), (0, 0));
        let empty = Slots::default();
        assert_eq!(now.unshared(&empty).0.count(), 300);
    }
}
