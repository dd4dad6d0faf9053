//! Our own time: 64-bit nanoseconds on a clock that only the world can read.
//!
//! A test can set it, a save can write it, and it costs one register. Its zero means nothing;
//! only differences do.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Later than every real time; a deadline that is not set.
    pub const NEVER: Self = Self(u64::MAX);

    /// The latest point that is one.
    const LAST: Self = Self(u64::MAX - 1);

    /// The point `nanos` after the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to here, 0 if that is not in the past.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whether this deadline is set at all.
    #[must_use]
    pub const fn is_set(self) -> bool {
        self.0 != u64::MAX
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates below [`Time::NEVER`], so that a set deadline stays one.
    fn add(self, length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos)).min(Self::LAST)
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_deadline_never_becomes_never() {
        let late = Time::from_nanos(5) + Duration::MAX;
        assert!(late.is_set());
        assert!(late < Time::NEVER);
    }

    #[test]
    fn a_difference_to_the_future_is_zero() {
        assert_eq!(Time::from_nanos(3).nanos_since(Time::from_nanos(9)), 0);
        assert_eq!(Time::from_nanos(9) - Time::from_nanos(3), Duration::from_nanos(6));
    }
}
