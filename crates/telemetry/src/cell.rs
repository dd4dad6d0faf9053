//! Numbers with one writer and any number of readers.
//!
//! A worker owns its counters, so adding is a relaxed load and a relaxed store: no bus lock, no
//! read-modify-write. Two writers would lose counts; the crate therefore hands out `&Counter` for
//! writing only inside [`crate::Emitter`], which is neither cloned nor shared.
//!
//! A reader on another thread sees each number whole but not all of them at one instant.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cause::Cause;

/// A number that only grows, until it wraps.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the one writer may call this.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds one. Only the one writer may call this.
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Takes one off, for numbers that go both ways: below nothing they wrap. Only the one writer may call this.
    pub(crate) fn decrement(&self) {
        self.add(u64::MAX);
    }

    /// Replaces the value, for totals that the writer keeps elsewhere and for gauges.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One counter per cause of a closed set, and a last one for causes outside it.
///
/// `N` is one more than the set has members; [`CauseSet::new`] checks that.
#[derive(Debug)]
pub(crate) struct CauseCounters<const N: usize>([Counter; N]);

impl<const N: usize> Default for CauseCounters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize> CauseCounters<N> {
    /// Counts `cause` under its place in `set`.
    pub(crate) fn increment(&self, set: &CauseSet<N>, cause: Cause) {
        if let Some(counter) = self.0.get(set.place(cause)) {
            counter.increment();
        }
    }

    /// The value at a place.
    pub(crate) fn value(&self, place: usize) -> u64 {
        self.0.get(place).map_or(0, Counter::value)
    }

    /// All of them together.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Counter::value).sum()
    }
}

/// The causes that a family of counters distinguishes; `N` is their number and one for all others.
#[derive(Debug)]
pub(crate) struct CauseSet<const N: usize> {
    members: &'static [Cause],
    places: [u8; Cause::ALL.len()],
}

impl<const N: usize> CauseSet<N> {
    /// A set with these members.
    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time only")]
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer than 255 causes")]
    pub(crate) const fn new(members: &'static [Cause]) -> Self {
        assert!(members.len() + 1 == N && N < 256, "N is the number of members and one");
        let mut places = [(N - 1) as u8; Cause::ALL.len()];
        let mut place = 0;
        while place < members.len() {
            places[members[place] as usize] = place as u8;
            place += 1;
        }
        Self { members, places }
    }

    /// Where `cause` is counted.
    fn place(&self, cause: Cause) -> usize {
        self.places.get(cause as usize).map_or(N - 1, |place| usize::from(*place))
    }

    /// The word at each place, in order; the last is `other`.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'static str> {
        self.members.iter().map(|cause| cause.as_str()).chain(std::iter::once("other"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_outside_the_set_is_counted_as_other() {
        static SET: CauseSet<3> = CauseSet::new(&[Cause::ConnectFailed, Cause::ConnectTimeout]);
        let counters = CauseCounters::<3>::default();
        counters.increment(&SET, Cause::ConnectTimeout);
        counters.increment(&SET, Cause::NoRoute);
        counters.increment(&SET, Cause::NoHost);
        let values: Vec<_> =
            SET.words().enumerate().map(|(place, word)| (word, counters.value(place))).collect();
        assert_eq!(values, [("connect_failed", 0), ("connect_timeout", 1), ("other", 2)]);
    }

    #[test]
    fn a_counter_wraps_instead_of_panicking() {
        let counter = Counter::default();
        counter.set(u64::MAX);
        counter.add(2);
        assert_eq!(counter.value(), 1);
    }
}
