//! Tables from ids to resources that share structure from one snapshot to the next.

use super::id::Id;
use std::sync::Arc;

/// Slots of a chunk, and chunks of a page. A change copies one chunk, one page, and the pointers to all pages: with 10,000
/// slots that touches 68 counts of references, and each may be a cache miss, where 64 slots to a chunk and no pages
/// touch 221.
const CHUNK_SLOTS: usize = 16;
const PAGE_CHUNKS: usize = 32;

/// A table from ids to resources with shared structure: the next one shares all chunks but those in
/// which it differs.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    pages: Vec<Arc<Page<T>>>,
}

type Page<T> = [Option<Arc<Chunk<T>>>; PAGE_CHUNKS];
type Chunk<T> = [Option<(u32, T)>; CHUNK_SLOTS];

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

/// The page of a slot, its chunk there, and its place in that.
const fn place(slot: u32) -> (usize, usize, usize) {
    let slot = slot as usize;
    let chunk = slot / CHUNK_SLOTS;
    (chunk / PAGE_CHUNKS, chunk % PAGE_CHUNKS, slot % CHUNK_SLOTS)
}

impl<T> Slots<T> {
    /// The resource with this id, if this snapshot still has it.
    #[must_use]
    pub fn find(&self, id: Id) -> Option<&T> {
        let (page, chunk, place) = place(id.slot);
        match self.pages.get(page)?.get(chunk)?.as_ref()?.get(place) {
            Some(Some((generation, value))) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// Whether it has never held anything.
    #[must_use]
    #[inline]
    pub const fn is_unused(&self) -> bool {
        self.pages.is_empty()
    }

    /// All resources with their ids, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        let chunks = self.pages.iter().flat_map(|page| page.iter());
        // A table has fewer slots than u32 counts, of which ids are made.
        let chunks = chunks.zip((0u32..).step_by(CHUNK_SLOTS));
        chunks.filter_map(|(chunk, first)| Some((chunk.as_ref()?, first))).flat_map(
            |(chunk, first)| {
                chunk.iter().zip(first..).filter_map(|(place, slot)| {
                    let (generation, value) = place.as_ref()?;
                    Some((Id { slot, generation: *generation }, value))
                })
            },
        )
    }
}

impl<T> Slots<T> {
    /// What stands in the chunks that the two do not share: of this one, and of `former`. All that differs is among it.
    /// Costs a pointer for each page, and as much as differs.
    pub fn unshared<'s>(
        &'s self,
        former: &'s Self,
    ) -> (impl Iterator<Item = &'s T>, impl Iterator<Item = &'s T>) {
        fn of<'s, T>(one: &'s Slots<T>, other: &'s Slots<T>) -> impl Iterator<Item = &'s T> {
            let pages = one.pages.iter().enumerate();
            let pages = pages.map(|(place, page)| (page, other.pages.get(place)));
            let own_pages = pages.filter(|(page, of)| !of.is_some_and(|of| Arc::ptr_eq(page, of)));
            let chunks = own_pages.flat_map(|(page, of)| {
                let of = move |place: usize| of?.get(place)?.as_ref();
                page.iter().enumerate().map(move |(place, chunk)| (chunk.as_ref(), of(place)))
            });
            let chunks = chunks.filter_map(|(chunk, of)| Some((chunk?, of)));
            let own = chunks.filter(|(chunk, of)| !of.is_some_and(|of| Arc::ptr_eq(chunk, of)));
            own.flat_map(|(chunk, _)| chunk.iter().flatten()).map(|(_, value)| value)
        }
        (of(self, former), of(former, self))
    }
}

impl<T: Clone> Slots<T> {
    /// Puts `value` under `id`, replacing what the slot held. Slots are given out densely: a table
    /// is as long as the largest slot.
    pub fn insert(&mut self, id: Id, value: T) {
        let (page, ..) = place(id.slot);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || Arc::new([const { None }; PAGE_CHUNKS]));
        }
        if let Some(slot) = self.slot_mut(id.slot) {
            *slot = Some((id.generation, value));
        }
    }

    /// Empties the slot of `id`, if it holds that.
    pub(crate) fn remove(&mut self, id: Id) {
        if self.find(id).is_some()
            && let Some(slot) = self.slot_mut(id.slot)
        {
            *slot = None;
        }
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut Option<(u32, T)>> {
        let (page, chunk, place) = place(slot);
        let chunk = Arc::make_mut(self.pages.get_mut(page)?).get_mut(chunk)?;
        let chunk = chunk.get_or_insert_with(|| Arc::new([const { None }; CHUNK_SLOTS]));
        Arc::make_mut(chunk).get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_among_what_is_not_shared() {
        let mut former = Slots::default();
        let id = |slot| Id { slot, generation: 0 };
        (0..1300).for_each(|slot| former.insert(id(slot), slot));
        let mut now = former.clone();
        now.remove(id(70));
        now.insert(id(1300), 1300);
        let (own, gone) = now.unshared(&former);
        let (own, gone): (Vec<_>, Vec<_>) = (own.collect(), gone.collect());
        assert!(own.contains(&&1300) && !own.contains(&&70) && gone.contains(&&70));
        assert!(own.len() <= 2 * CHUNK_SLOTS && gone.len() <= 2 * CHUNK_SLOTS);
        let (own, gone) = now.unshared(&now);
        assert_eq!((own.count(), gone.count()), (0, 0));
        let slots = now.iter().map(|(id, value)| (id.slot, *value));
        assert!(slots.eq((0..=1300).filter(|slot| *slot != 70).map(|slot| (slot, slot))));
        let empty = Slots::default();
        assert_eq!(now.unshared(&empty).0.count(), 1300);
    }
}
