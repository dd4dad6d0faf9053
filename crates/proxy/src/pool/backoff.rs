//! Pauses before an endpoint is connected to again that takes connections and processes nothing.
//!
//! Such an endpoint accepts, and says at once that it goes away from all it was asked (GOAWAY with a last
//! stream of 0). What it did not process is asked again, so that without a pause one request would open
//! connection after connection. The first time costs nothing: a service that restarts does it once.

use std::time::Duration;

use crate::time::Time;

/// The pause after the second refusal in a row; it doubles with each.
const FIRST: Duration = Duration::from_millis(25);

/// Pauses grow no longer than this: a service that is back is found within a second.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How an endpoint behaved of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// Connections in a row on which it processed nothing.
    refusals: u8,
    /// When it may be connected to again.
    until: Option<Time>,
}

impl Backoff {
    /// It went away from a connection on which it had processed nothing. Half of the pause is by chance,
    /// so that workers and processes do not all come back at once.
    pub(super) fn on_refused(&mut self, random: u64, now: Time) {
        self.refusals = self.refusals.saturating_add(1);
        let Some(doublings) = self.refusals.checked_sub(2) else { return };
        let pause = FIRST.saturating_mul(1 << doublings.min(10)).min(PAUSE_MAX);
        let half = u64::try_from(pause.as_nanos() / 2).unwrap_or(u64::MAX);
        let by_chance = random.checked_rem(half).unwrap_or_default();
        self.until = Some(now + pause / 2 + Duration::from_nanos(by_chance));
    }

    /// It answered.
    pub(super) fn on_answered(&mut self) {
        *self = Self::default();
    }

    /// Until when no connection is opened to it, if that is later than `now`.
    pub(super) fn pause(&self, now: Time) -> Option<Time> {
        self.until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_and_end_with_an_answer() {
        let now = Time::from_nanos(1_000_000_000);
        for random in [0, u64::MAX] {
            let mut backoff = Backoff::default();
            backoff.on_refused(random, now);
            assert_eq!(backoff.pause(now), None, "once is no habit");
            for millis in [25, 50, 100, 200, 400, 800, 1_000, 1_000] {
                backoff.on_refused(random, now);
                let pause = backoff.pause(now).expect("a pause") - now;
                let whole = Duration::from_millis(millis);
                assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
                assert_eq!(backoff.pause(now + whole), None);
            }
            for _ in 0..300 {
                backoff.on_refused(random, now);
            }
            assert!(backoff.pause(now).is_some());
            backoff.on_answered();
            assert_eq!(backoff.pause(now), None);
        }
    }
}
