//! How long the responses of an endpoint took lately: a peak-sensitive moving average (as in Finagle).
//!
//! A response that took longer than the average becomes it at once; shorter ones pull it down by how much time has
//! passed. Without responses it falls, so that an endpoint which was slow is tried again.

use std::time::Duration;

use crate::tools::time::Time;

/// What one is taken for that has requests under way and has not answered any: worse than any that has.
const UNKNOWN_NANOS: f64 = 1e12;

/// What a failed attempt counts for at least, or an endpoint that fails at once would be the fastest.
pub(crate) const FAILED_MIN: Duration = Duration::from_secs(1);

/// The average, and when it was one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latency {
    /// 0 for none.
    nanos: f64,
    at: Time,
}

impl Latency {
    /// A response came after this time.
    pub(super) fn observe(&mut self, length: Duration, decay: Duration, now: Time) {
        let length = length.as_secs_f64() * 1e9;
        let kept = fading(now - self.at, decay);
        let average = self.nanos * kept + length * (1.0 - kept);
        self.nanos = if length > self.nanos * kept { length } else { average };
        self.at = now;
    }

    /// The average in ns, and how old it is.
    pub(super) fn save(&self, now: Time) -> (f64, u64) {
        if self.nanos == 0.0 { (0.0, 0) } else { (self.nanos, now.nanos_since(self.at)) }
    }

    /// What [`Self::save`] has written, or none if it is no average.
    pub(super) fn restore((nanos, age): (f64, u64), now: Time) -> Self {
        if !nanos.is_normal() || nanos < 0.0 {
            return Self::default();
        }
        Self { nanos, at: Time::from_nanos(now.as_nanos().saturating_sub(age)) }
    }

    /// How long a request may have to wait that has so many before it.
    pub(super) fn load(&self, requests: u32, decay: Duration, now: Time) -> f64 {
        if self.nanos == 0.0 {
            // One request finds out; the others wait for what it finds.
            return f64::from(requests) * UNKNOWN_NANOS;
        }
        self.nanos * fading(now - self.at, decay) * (f64::from(requests) + 1.0)
    }
}

/// What is left of a measurement of this age, as a part of 1.
fn fading(age: Duration, decay: Duration) -> f64 {
    (-age.as_secs_f64() / decay.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECAY: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Time {
        Time::from_nanos(1_000_000_000_000 + seconds * 1_000_000_000)
    }

    fn millis(latency: &Latency, seconds: u64) -> f64 {
        (latency.load(0, DECAY, at(seconds)) / 1e5).round() / 10.0
    }

    #[test]
    fn a_slow_response_counts_at_once_and_faster_ones_by_and_by() {
        let mut latency = Latency::default();
        latency.observe(Duration::from_millis(10), DECAY, at(0));
        assert_eq!(millis(&latency, 0), 10.0);
        latency.observe(Duration::from_millis(100), DECAY, at(1));
        assert_eq!(millis(&latency, 1), 100.0);
        latency.observe(Duration::from_millis(10), DECAY, at(1));
        assert_eq!(millis(&latency, 1), 100.0, "no time has passed");
        latency.observe(Duration::from_millis(10), DECAY, at(11));
        assert_eq!(millis(&latency, 11), 43.1);
        // Without responses it falls.
        assert_eq!(millis(&latency, 21), 15.9);
        assert!(millis(&latency, 400) < 0.1);
    }

    #[test]
    fn load_grows_with_the_requests_under_way() {
        let mut latency = Latency::default();
        assert_eq!(latency.load(0, DECAY, at(0)), 0.0);
        assert!(latency.load(1, DECAY, at(0)) > 1e11, "others wait for the first response");
        latency.observe(Duration::from_millis(10), DECAY, at(0));
        assert_eq!(latency.load(2, DECAY, at(0)), 3.0 * latency.load(0, DECAY, at(0)));
    }
}
