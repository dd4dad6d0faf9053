//! The least rate at which a client sends a body, or takes a response.
//!
//! A deadline is all that is kept: every byte puts it off by its part of a second, and never to later
//! than the timeout from now. So who is silent has the whole timeout, who is at the rate or above never
//! reaches it, and who is below it uses it up. Only waiting for the client is measured: no deadline
//! is set while something else is waited for.

use std::time::Duration;

use crate::tools::time::Time;

/// A least rate, and the silence that is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Bytes a second; 0 for none.
    pub(crate) bytes_min: u32,
    pub(crate) timeout: Duration,
}

impl Rate {
    /// The deadline after `n` bytes, which was `former` before, and whether they were too slow to put
    /// it off to the whole timeout.
    pub(crate) fn extend(self, former: Time, n: usize, now: Time) -> (Time, bool) {
        let full = now + self.timeout;
        if self.bytes_min == 0 || !former.is_set() {
            return (full, false);
        }
        let nanos = (n as u64).saturating_mul(1_000_000_000) / u64::from(self.bytes_min);
        let earned = former + Duration::from_nanos(nanos);
        if earned < full { (earned, true) } else { (full, false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { bytes_min: 100, timeout: Duration::from_secs(30) };

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn bytes_put_a_deadline_off_by_their_part_of_a_second_and_no_further_than_the_timeout() {
        for (former, n, now, expected, is_slow) in [
            (Time::NEVER, 0, 0, 30_000, false),
            (Time::NEVER, 1, 500, 30_500, false),
            (at(30_000), 99, 1_000, 30_990, true),
            (at(30_000), 100, 1_000, 31_000, false),
            (at(30_000), 5_000, 1_000, 31_000, false),
            (at(30_000), usize::MAX, 1_000, 31_000, false),
            (at(30_000), 1, 29_000, 30_010, true),
            // Late, and not yet noticed.
            (at(30_000), 1, 40_000, 30_010, true),
        ] {
            let (deadline, slow) = RATE.extend(former, n, at(now));
            assert_eq!((deadline, slow), (at(expected), is_slow), "{n} bytes at {now}");
        }
    }

    #[test]
    fn without_a_rate_any_byte_earns_the_whole_timeout() {
        let rate = Rate { bytes_min: 0, ..RATE };
        assert_eq!(rate.extend(at(30_000), 1, at(29_000)), (at(59_000), false));
    }

    #[test]
    fn a_client_at_the_rate_goes_on_for_ever_and_one_below_it_does_not() {
        for (n, seconds_max) in [(100, None), (99, Some(3_100)), (50, Some(61)), (1, Some(31))] {
            let mut deadline = at(30_000);
            let ended = (1..4_000).find(|second| {
                let now = at(second * 1_000);
                let is_over = deadline <= now;
                (deadline, _) = RATE.extend(deadline, n, now);
                is_over
            });
            assert_eq!(ended.is_some(), seconds_max.is_some(), "{n}");
            assert!(ended <= seconds_max.or(ended), "{n}: {ended:?}");
        }
    }
}
