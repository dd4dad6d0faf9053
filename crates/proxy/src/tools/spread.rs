//! Ages that differ among connections, so that those that were opened together do not end together.

use std::time::Duration;

use crate::tools::time::Time;

/// The age of a connection that was opened at this time: from `least` thousandths of `age` on, up to a fifth of it more. One
/// that is restored elsewhere may draw another.
pub(crate) fn spread(age: Duration, least: u32, opened: Time) -> Duration {
    // Fibonacci hashing: neighbours in time are far apart.
    let mixed = opened.as_nanos().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let lot = u32::try_from(mixed % 201).unwrap_or(0);
    age.saturating_mul(least + lot) / 1_000
}

/// The greatest of these ages.
pub(crate) fn latest(age: Duration, least: u32) -> Duration {
    age.saturating_mul(least + 200) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_by_a_tenth_either_way() {
        let hour = Duration::from_secs(3_600);
        let mut ages: Vec<_> = (0..10_000u64)
            .map(|n| spread(hour, 900, Time::from_nanos(1_000_000_000 + n * 1_000_000)))
            .collect();
        ages.sort_unstable();
        let (first, last) = (ages[0], ages[ages.len() - 1]);
        assert_eq!((first.as_secs(), last.as_secs()), (3_240, 3_960));
        assert_eq!(last, latest(hour, 900));
        let middle = ages[ages.len() / 2].as_secs();
        assert!((3_560..3_640).contains(&middle), "{middle}");
    }
}
