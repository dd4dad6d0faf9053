//! The clocks that the data path may read.
//!
//! Those of the machine are read through the vDSO, without a system call: 20.6 ns each on the machine of the
//! results under `bench/` (`cargo run --release -p io --example costs`). The processor's own
//! counter would take 9.0 ns. The nine stamps of a request would gain 0.1 µs of the 12 µs that a
//! request costs, for a calibration that drifts against this clock and an unsafe intrinsic, so it
//! is not used; stage times can be turned off instead.

use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOSECONDS: u64 = 1_000_000_000;

/// Nanoseconds since some moment before the process began; never goes back.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds since 1970 (UTC), as the machine's clock is set; may jump. 0 before 1970.
#[inline]
#[must_use]
pub fn realtime_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// Nanoseconds for which the calling thread has had a processor. A system call.
#[must_use]
pub fn thread_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    match (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(rest)) => seconds.saturating_mul(NANOSECONDS).saturating_add(rest),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_nanoseconds_add_up_and_times_before_1970_are_zero() {
        assert_eq!(nanoseconds(Timespec { tv_sec: 3, tv_nsec: 7 }), 3_000_000_007);
        assert_eq!(nanoseconds(Timespec { tv_sec: -1, tv_nsec: 7 }), 0);
        assert_eq!(nanoseconds(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }), u64::MAX);
    }

    #[test]
    fn monotonic_time_never_goes_back() {
        let mut last = monotonic_ns();
        for _ in 0..1000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn real_time_agrees_with_the_standard_library() {
        #[expect(clippy::disallowed_methods, reason = "the reading to compare with")]
        let theirs = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let difference = realtime_ns().abs_diff(u64::try_from(theirs.as_nanos()).unwrap());
        assert!(difference < 60 * NANOSECONDS, "{difference} ns apart");
    }
}
