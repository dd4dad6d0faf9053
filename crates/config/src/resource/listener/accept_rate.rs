//! `accept_rate` of a listener: how many connections it accepts in a second, in the whole process.
//!
//! One number, which all snapshots and workers share: the time from which on the next connection is within the rate if
//! they come one by one (the generic cell rate algorithm of ITU-T I.371). It may be up to a second ahead, so that as many
//! connections as the rate says may come at once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000_000;

/// How many connections a listener accepts, and what of that is used.
#[derive(Clone, Debug)]
pub struct AcceptRate {
    per_second: NonZeroU32,
    /// In ns, on the clock of [`AcceptRate::take`].
    next: Arc<AtomicU64>,
}

impl AcceptRate {
    /// So many a second. What `former` has used stays used.
    pub(crate) fn new(per_second: NonZeroU32, former: Option<&Self>) -> Self {
        let next = former.map_or_else(Arc::default, |former| Arc::clone(&former.next));
        Self { per_second, next }
    }

    /// Connections a second.
    #[must_use]
    pub const fn per_second(&self) -> NonZeroU32 {
        self.per_second
    }

    /// Takes one, at this time in ns on a clock that all workers have in common. Says whether it is within the rate.
    #[must_use]
    pub fn take(&self, now: u64) -> bool {
        let interval = SECOND / u64::from(self.per_second.get());
        let ahead_max = SECOND - interval;
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            // A worker's time may be somewhat behind that of another.
            let next = next.max(now);
            (next - now <= ahead_max).then_some(next + interval)
        });
        taken.is_ok()
    }
}

impl PartialEq for AcceptRate {
    /// What is used is no part of a configuration.
    fn eq(&self, other: &Self) -> bool {
        self.per_second == other.per_second
    }
}

impl Eq for AcceptRate {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32) -> AcceptRate {
        AcceptRate::new(NonZeroU32::new(per_second).unwrap(), None)
    }

    /// How many of so many are taken at a time.
    fn taken(rate: &AcceptRate, tries: u32, now: u64) -> usize {
        (0..tries).filter(|_| rate.take(now)).count()
    }

    #[test]
    fn as_many_as_the_rate_says_may_come_at_once_and_then_one_by_one() {
        for per_second in [1, 3, 1_000, 4_000_000_000] {
            let rate = rate(per_second);
            let burst = per_second.min(5_000) as usize;
            assert_eq!(taken(&rate, 5_000, 7 * SECOND), burst, "{per_second}");
        }
        let rate = rate(10);
        assert_eq!(taken(&rate, 100, SECOND), 10);
        assert_eq!(taken(&rate, 100, SECOND + SECOND / 20), 0);
        assert_eq!(taken(&rate, 100, SECOND + SECOND / 10), 1);
        assert_eq!(taken(&rate, 100, SECOND + SECOND / 2), 4);
        assert_eq!(taken(&rate, 100, 60 * SECOND), 10, "no more is saved up");
    }

    #[test]
    fn a_changed_rate_goes_on_from_what_was_used() {
        let former = rate(10);
        assert_eq!(taken(&former, 10, 0), 10);
        let changed = AcceptRate::new(NonZeroU32::new(100).unwrap(), Some(&former));
        assert_eq!(taken(&changed, 100, 0), 0);
        assert_eq!(taken(&changed, 100, SECOND / 2), 50);
        assert_eq!(former, rate(10));
        assert_ne!(former, changed);
    }

    #[test]
    fn workers_together_take_no_more() {
        let rate = rate(1_000);
        let all = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| taken(&rate, 1_000, SECOND)));
            threads.map(|thread| thread.join().unwrap()).iter().sum::<usize>()
        });
        assert_eq!(all, 1_000);
    }
}
