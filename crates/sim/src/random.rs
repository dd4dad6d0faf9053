//! Seeded random numbers: SplitMix64, the same on every machine and in every version.
//!
//! Each part of a simulation has a generator of its own, split off its parent's by a name, so that
//! one more number drawn in one part does not change all the others.

use std::time::Duration;

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, for the part of the simulation with this name.
    #[must_use]
    pub fn split(&self, name: &str, number: u64) -> Self {
        let folded = name.bytes().fold(self.0, |hash, byte| mix(hash ^ u64::from(byte)));
        Self(mix(folded ^ mix(number)))
    }

    /// 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`; 0 if there is none.
    pub const fn below(&mut self, end: u64) -> u64 {
        let number = self.next();
        if end == 0 { 0 } else { number % end }
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A length below `end`.
    pub fn length_below(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a usize")
    }

    /// A length from `low` to `high`, both included.
    pub fn length_between(&mut self, low: usize, high: usize) -> usize {
        low + self.length_below(high - low + 1)
    }

    /// True so many times out of a thousand.
    pub const fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as u64
    }

    /// One of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.length_below(choices.len());
        choices.get(index).expect("there is something to pick from")
    }

    /// A span up to `max`, mostly short: each power of two is as likely as the next.
    pub fn span(&mut self, max: Duration) -> Duration {
        let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        let bits = self.below(u64::from(u64::BITS - nanos.leading_zeros()) + 1);
        Duration::from_nanos(self.below(1 << bits.min(63)).min(nanos))
    }

    /// A length up to `max`, mostly short, as [`Random::span`].
    pub fn size(&mut self, max: usize) -> usize {
        let bits = self.below(u64::from(usize::BITS - max.leading_zeros()) + 1);
        usize::try_from(self.below(1 << bits.min(63))).map_or(max, |size| size.min(max))
    }
}

/// Spreads the bits of a number over all of them.
#[must_use]
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::new(1);
        let mut seen = [false; 4];
        for _ in 0..1_000 {
            seen[usize::try_from(random.between(2, 5)).unwrap() - 2] = true;
            assert!(random.size(10) <= 10);
            assert!(random.span(Duration::from_secs(1)) <= Duration::from_secs(1));
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }

    #[test]
    fn parts_differ_and_do_not_depend_on_each_other() {
        let random = Random::new(7);
        let (mut a, mut b) = (random.split("client", 1), random.split("client", 2));
        let (mut again, _) = (random.split("client", 1), random.split("service", 1).next());
        assert_ne!(a.next(), b.next());
        a = random.split("client", 1);
        assert_eq!(a.next(), again.next());
    }
}
