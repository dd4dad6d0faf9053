//! Which places of a table are free: a bit for each, in chunks.
//!
//! The lowest free place is given out first, so that after a burst the places at the end empty
//! first and their chunks can go back to the allocator.

use crate::tools::slab::CHUNK;

/// Bits of one chunk.
const WORDS: usize = CHUNK / 64;

/// The free places of a table that grows and shrinks by whole chunks.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// A bit for each place: whether it is free.
    free: Vec<[u64; WORDS]>,
    /// A bit for each chunk: whether it has free places. 100,000 places have 7 of these words, so that
    /// they are looked through from the first one.
    open: Vec<u64>,
}

impl Places {
    /// Takes the lowest free place, if there is one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        let (at, open) = self.open.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let chunk = at * 64 + open.trailing_zeros() as usize;
        let words = self.free.get_mut(chunk)?;
        let (at, word) = words.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let place = chunk * CHUNK + at * 64 + word.trailing_zeros() as usize;
        *word &= *word - 1;
        if *word == 0 && words.iter().all(|word| *word == 0) {
            *open &= *open - 1;
        }
        u32::try_from(place).ok()
    }

    /// Gives a place back.
    #[inline]
    pub(crate) fn give_back(&mut self, place: u32) {
        let place = place as usize;
        let (chunk, bit) = (place / CHUNK, place % CHUNK);
        let word = self.free.get_mut(chunk).and_then(|words| words.get_mut(bit / 64));
        debug_assert!(word.as_ref().is_some_and(|word| **word >> (bit % 64) & 1 == 0), "in use");
        if let (Some(word), Some(open)) = (word, self.open.get_mut(chunk / 64)) {
            *word |= 1 << (bit % 64);
            *open |= 1 << (chunk % 64);
        }
    }

    /// Adds a chunk of free places.
    pub(crate) fn grow(&mut self) {
        let chunk = self.free.len();
        self.free.push([u64::MAX; WORDS]);
        self.open.resize(chunk / 64 + 1, 0);
        if let Some(open) = self.open.last_mut() {
            *open |= 1 << (chunk % 64);
        }
    }

    /// Takes the last chunk away if all of its places are free. The first one stays.
    pub(crate) fn shrink(&mut self) -> bool {
        let is_empty = |words: &[u64; WORDS]| words.iter().all(|word| *word == u64::MAX);
        if self.free.len() < 2 || !self.free.last().is_some_and(is_empty) {
            return false;
        }
        self.free.pop();
        let chunk = self.free.len();
        if let Some(open) = self.open.get_mut(chunk / 64) {
            *open &= !(1 << (chunk % 64));
        }
        self.open.truncate(chunk.div_ceil(64));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_place_is_taken_and_empty_chunks_at_the_end_go() {
        let mut places = Places::default();
        assert_eq!(places.take(), None);
        let chunks = 130;
        (0..chunks).for_each(|_| places.grow());
        let all = u32::try_from(chunks * CHUNK).unwrap();
        for place in 0..all {
            assert_eq!(places.take(), Some(place));
        }
        assert_eq!(places.take(), None);
        for place in [all - 1, 7, 70_000 % all, 300] {
            places.give_back(place);
        }
        for place in [7, 300, 70_000 % all, all - 1] {
            assert_eq!(places.take(), Some(place), "in rising order");
        }
        assert!(!places.shrink());
        for place in (300..all).rev() {
            places.give_back(place);
        }
        let gone = std::iter::repeat_with(|| places.shrink()).take_while(|gone| *gone).count();
        assert_eq!(gone, chunks - 2, "place 299 is in the second chunk");
        assert_eq!(places.take(), Some(300));
        for _ in 301..512 {
            places.take();
        }
        assert_eq!(places.take(), None);
        places.grow();
        assert_eq!(places.take(), Some(512));
    }

    #[test]
    fn the_first_chunk_stays() {
        let mut places = Places::default();
        assert!(!places.shrink());
        places.grow();
        assert!(!places.shrink());
        places.grow();
        assert!(places.shrink());
        assert!(!places.shrink());
    }
}
