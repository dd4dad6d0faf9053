//! When a name is asked for again.

use std::time::Duration;

use config::snapshot::DnsName;

use super::failure::Failure;
use super::round::Found;

/// How long an answer without a time to live of its own is used, such as what `/etc/hosts` says; and one without endpoints
/// at most, so that a name that comes back is found soon. Envoy's `dns_refresh_rate`.
const TTL: Duration = Duration::from_secs(5);

/// The first wait after a failure; each further one is twice as long.
const BACK_OFF_MIN: Duration = Duration::from_millis(250);

/// The longest wait after a failure.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// How often in a row a name could not be asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures {
    /// Rounds without an answer.
    whole: u32,
    /// Answers with a part missing, whatever rounds without one there were between them.
    partial: u32,
}

impl Failures {
    /// Whether the last round had no answer.
    pub(super) const fn is_whole(self) -> bool {
        self.whole > 0
    }

    /// How long to wait after this round. An answer with a part missing is used, and the name is asked for again like after
    /// a failure, but no later than when the answer's time to live ends.
    pub(super) fn next_wait(
        &mut self,
        name: &DnsName,
        result: &Result<Found, Failure>,
        random: u64,
    ) -> Duration {
        let Ok(found) = result else {
            self.whole = self.whole.saturating_add(1);
            return back_off(self.whole, random);
        };
        self.whole = 0;
        let until_next = until_next(name, found.ttl, found.endpoints.is_empty(), random);
        if found.failure.is_none() {
            self.partial = 0;
            return until_next;
        }
        self.partial = self.partial.saturating_add(1);
        until_next.min(back_off(self.partial, random))
    }
}

/// How long an answer with this time to live (seconds) is used; `is_empty` if there are no endpoints in it. Up to a tenth less, by `random`, so that names
/// that were asked for together are not asked for together ever after.
fn until_next(name: &DnsName, ttl: Option<u32>, is_empty: bool, random: u64) -> Duration {
    let ttl = ttl.map_or(TTL, |seconds| Duration::from_secs(seconds.into()));
    let ttl = if is_empty { ttl.min(TTL) } else { ttl };
    let ttl = ttl.min(name.ttl_max).max(name.ttl_min);
    less_up_to(ttl, 10, random).max(name.ttl_min)
}

/// How long to wait after so many failures in a row, the last one among them. Up to a half less, by `random`.
fn back_off(failures: u32, random: u64) -> Duration {
    let doubled = BACK_OFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    less_up_to(doubled.min(BACK_OFF_MAX), 2, random)
}

/// `duration`, less up to one part of it.
fn less_up_to(duration: Duration, part: u32, random: u64) -> Duration {
    let most = duration / part;
    // A number from 0 to 1, of the 32 bits that are most random.
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    duration - most.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use config::snapshot::{DnsFamily, DnsMode, Resolved};

    use super::*;

    fn name() -> DnsName {
        DnsName {
            host: "a".into(),
            port: None,
            mode: DnsMode::Srv,
            family: DnsFamily::All,
            ttl_min: Duration::from_secs(2),
            ttl_max: Duration::from_secs(300),
        }
    }

    /// An answer that holds for so many seconds.
    fn found(ttl: u32, failure: Option<Failure>) -> Result<Found, Failure> {
        let endpoint = Resolved {
            address: ([10, 0, 0, 1], 80).into(),
            weight: NonZeroU16::MIN,
            priority: 0,
            host: "a".into(),
        };
        Ok(Found { endpoints: vec![endpoint], ttl: Some(ttl), failure, ..Found::default() })
    }

    #[test]
    fn an_answer_with_a_part_missing_is_asked_for_again_like_after_a_failure() {
        let (name, mut failures) = (name(), Failures::default());
        let mut wait = |result: &Result<Found, Failure>| {
            let wait = failures.next_wait(&name, result, 0);
            (wait.as_millis(), failures.is_whole())
        };
        let whole = || found(300, None);
        let partial = || found(300, Some(Failure::ServFail));
        for expected in [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            assert_eq!(wait(&partial()), (expected, false));
        }
        // Not later than its time to live, and no sooner than that allows either.
        assert_eq!(wait(&found(5, Some(Failure::ServFail))), (5000, false));
        assert_eq!(wait(&found(0, Some(Failure::ServFail))), (2000, false));
        // A failure of the whole is another matter: it begins anew, and the part that is missing for good goes on.
        for expected in [250, 500] {
            assert_eq!(wait(&Err(Failure::Timeout)), (expected, true));
        }
        assert_eq!(wait(&partial()), (30_000, false));
        assert_eq!(wait(&Err(Failure::Timeout)), (250, true));
        // With all of it there, the time to live counts, and the next time it begins anew.
        assert_eq!(wait(&whole()), (300_000, false));
        assert_eq!(wait(&partial()), (250, false));
    }

    #[test]
    fn a_time_to_live_is_bounded_and_spread() {
        let name = name();
        for (ttl, shortest, longest) in [
            (Some(0), 2, 2),
            (Some(1), 2, 2),
            (Some(2), 2, 2),
            (Some(100), 90, 100),
            (Some(300), 270, 300),
            (Some(301), 270, 300),
            // 68 years, and what would be 136.
            (Some(i32::MAX.cast_unsigned()), 270, 300),
            (Some(u32::MAX), 270, 300),
        ] {
            let waits = [0, u64::MAX].map(|random| until_next(&name, ttl, false, random));
            let expected = [longest, shortest].map(Duration::from_secs);
            assert_eq!(waits, expected, "{ttl:?}");
        }
        assert_eq!(until_next(&name, None, false, 0), TTL);
        // That a name does not exist holds for less than its zone says.
        assert_eq!(until_next(&name, Some(3600), true, 0), TTL);
        assert_eq!(until_next(&name, Some(1), true, 0), name.ttl_min);
        let halfway = until_next(&name, Some(100), false, 1 << 63);
        assert!((94..96).contains(&halfway.as_secs()), "{halfway:?}");
    }

    #[test]
    fn waits_after_failures_double_up_to_a_bound() {
        let waits = [1, 2, 3, 8, 9, u32::MAX].map(|failures| back_off(failures, 0));
        let expected = [250, 500, 1000, 30_000, 30_000, 30_000].map(Duration::from_millis);
        assert_eq!(waits, expected);
        assert_eq!(back_off(1, u64::MAX), Duration::from_millis(125));
    }
}
