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
