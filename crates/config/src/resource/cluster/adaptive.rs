//! `adaptive_concurrency` of a cluster: a bound of its requests that follows how long responses take.
//!
//! The gradient controller of Envoy's filter of the same name. While an upstream has room, more requests take no longer; once
//! it has none, each waits for others. So the time of responses is compared with the least that they can take, and the limit
//! follows:
//!
//! ```text
//!  gradient = (min_rtt + min_rtt × buffer) / sample       within 0.5 and 2
//!  limit    = limit × gradient + √(limit × gradient)      within `min_rtt.concurrency` and `concurrency_max`
//! ```
//!
//! The least time is measured at the beginning, and again at intervals: with few requests at a time, of which none waits for
//! another. One [`Controller`] for each cluster, which all snapshots and workers share. Workers count in its histogram, and the one
//! that sees first that a window is over makes the next limit; no lock, and no thread of its own. Without requests nothing changes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::percent::Percent;
use crate::units::Period;

/// A limit of active requests that follows the response times of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "gradient_controller_config": "write its options here: concurrency_max, percentile, update_interval, min_rtt",
    "max_concurrency_limit": "write `concurrency_max`",
    "sample_aggregate_percentile": "write `percentile`",
    "concurrency_update_interval": "write `update_interval`",
    "min_rtt_calc_params": "write `min_rtt`",
}))]
pub struct AdaptiveConcurrency {
    /// Maximum of the limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub concurrency_max: u32,
    /// Percentile of the response times of an interval that is compared with the minimum.
    pub percentile: Percent,
    /// Time between two changes of the limit.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub update_interval: Period,
    /// How the minimum response time is measured.
    pub min_rtt: MinRtt,
}

/// How the minimum response time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MinRtt {
    /// Time between two measurements.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
    pub interval: Period,
    /// Random addition to `interval`, up to this share, so that several proxies do not measure together.
    pub jitter: Percent,
    /// Responses of a measurement.
    #[schemars(range(min = 1, max = 10_000))]
    pub requests: u32,
    /// Active requests during a measurement, and the minimum of the limit.
    #[schemars(range(min = 1, max = 10_000))]
    pub concurrency: u32,
    /// Share of the minimum response time by which responses may take longer before the limit falls.
    pub buffer: Percent,
}

impl AdaptiveConcurrency {
    /// How long it may take from one measurement to the next, ns.
    fn interval_max(&self) -> u64 {
        let factor = 1.0 + self.min_rtt.jitter.part();
        let longest = self.min_rtt.interval.0.mul_f64(factor);
        u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Default for AdaptiveConcurrency {
    fn default() -> Self {
        Self {
            concurrency_max: 1_000,
            percentile: Percent::of_points(50),
            update_interval: Period::from_millis(100),
            min_rtt: MinRtt::default(),
        }
    }
}

impl Default for MinRtt {
    fn default() -> Self {
        Self {
            interval: Period::from_secs(60),
            jitter: Percent::of_points(15),
            requests: 50,
            concurrency: 3,
            buffer: Percent::of_points(25),
        }
    }
}

/// Buckets of a histogram for each doubling of the time, as a power of 2: 16, so that a bucket is 6 % wide.
const STEPS_LOG2: u32 = 4;

/// Up to 2^32 µs, more than an hour; longer times count as that.
const BUCKETS: usize = 29 << STEPS_LOG2;

/// Windows in a row at the least limit, after which the least time is measured anew: it may have been too short.
const WINDOWS_AT_LEAST: u32 = 5;

/// How long a measurement may hold requests up, ns: where the places are taken by requests that do not end, such as tunnels, or
/// nothing is answered, it ends with the samples that it has.
const MEASURING_MAX: u64 = 5_000_000_000;

/// What the least limit and the changes of a limit are bounded by.
const GRADIENT: (f64, f64) = (0.5, 2.0);

/// The time of a measurement that has begun already, and of a window that no one is to end.
const NEVER: u64 = u64::MAX;

/// The limit of a cluster, and what it is made from.
#[derive(Debug)]
pub struct Controller {
    limit: AtomicU32,
    /// ns; 0 until it is known.
    min_rtt: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
    samples: AtomicU32,
    is_measuring: AtomicBool,
    /// Since when; ns of the process's clock, 0 before the first request.
    measuring_since: AtomicU64,
    /// When it is measured next.
    measures_at: AtomicU64,
    /// The limit of before a measurement, after which it counts again.
    limit_before: AtomicU32,
    /// When the next limit is made.
    window_ends: AtomicU64,
    windows_at_least: AtomicU32,
}

/// What was measured, for the process that takes this one's place: to measure anew, it would let only a few requests through at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The limit.
    pub limit: u32,
    /// How long a response takes at least, ns.
    pub min_rtt_ns: u64,
    /// After which time that is measured again, ns.
    pub measures_in_ns: u64,
}

/// A response, or a request that waited for one in vain.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How long it took.
    pub length: Duration,
    /// When it ended; ns of a clock that all workers have.
    pub ended: u64,
}

impl Controller {
    fn new(policy: &AdaptiveConcurrency) -> Self {
        let least = policy.min_rtt.concurrency.min(policy.concurrency_max);
        Self {
            limit: AtomicU32::new(least),
            min_rtt: AtomicU64::new(0),
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
            samples: AtomicU32::new(0),
            is_measuring: AtomicBool::new(true),
            measuring_since: AtomicU64::new(0),
            measures_at: AtomicU64::new(NEVER),
            limit_before: AtomicU32::new(least),
            window_ends: AtomicU64::new(NEVER),
            windows_at_least: AtomicU32::new(0),
        }
    }

    /// How long a response takes at least, once that is known.
    #[must_use]
    pub fn min_rtt(&self) -> Option<Duration> {
        let nanos = self.min_rtt.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Whether that is being measured.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.is_measuring.load(Ordering::Acquire)
    }

    fn observe(&self, policy: &AdaptiveConcurrency, sample: Sample, random: impl FnOnce() -> u64) {
        let now = sample.ended;
        if self.is_measuring() {
            // One that began before waited for others, maybe.
            let length = u64::try_from(sample.length.as_nanos()).unwrap_or(u64::MAX);
            if now.saturating_sub(length) >= self.measuring_since.load(Ordering::Relaxed)
                && self.count(sample.length) >= policy.min_rtt.requests
                && self.is_measuring.swap(false, Ordering::AcqRel)
            {
                self.end_measurement(policy, now, random());
            }
            return;
        }
        self.count(sample.length);
        if now >= self.measures_at.load(Ordering::Acquire) {
            return self.begin_measurement(policy, now);
        }
        let ended = self.window_ends.load(Ordering::Acquire);
        if now < ended {
            return;
        }
        let next = now.saturating_add(nanos(policy.update_interval)).min(NEVER - 1);
        let windows = &self.window_ends;
        // Of several that see its end, one makes the next limit.
        if windows.compare_exchange(ended, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.end_window(policy, now);
        }
    }

    /// Ends a measurement that has held requests up for too long.
    #[cold]
    fn bound_measurement(&self, policy: &AdaptiveConcurrency, now: u64) {
        let since = self.measuring_since.load(Ordering::Relaxed);
        if since == 0 {
            let now = now.max(1);
            // Another worker may have been faster, which saw the same time.
            let _ =
                self.measuring_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        } else if now.saturating_sub(since) >= MEASURING_MAX
            && self.is_measuring.swap(false, Ordering::AcqRel)
        {
            self.end_measurement(policy, now, 0);
        }
    }

    /// Returns how many there are now.
    fn count(&self, length: Duration) -> u32 {
        if let Some(bucket) = self.buckets.get(bucket_of(length)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.samples.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    #[cold]
    fn begin_measurement(&self, policy: &AdaptiveConcurrency, now: u64) {
        if self.measures_at.swap(NEVER, Ordering::AcqRel) == NEVER {
            return;
        }
        let limit = self.limit.load(Ordering::Relaxed);
        self.limit_before.store(limit, Ordering::Relaxed);
        self.window_ends.store(NEVER, Ordering::Release);
        let least = policy.min_rtt.concurrency.min(policy.concurrency_max);
        self.limit.store(limit.min(least), Ordering::Relaxed);
        self.take(Percent::of_points(50));
        self.measuring_since.store(now, Ordering::Relaxed);
        self.is_measuring.store(true, Ordering::Release);
    }

    #[cold]
    fn end_measurement(&self, policy: &AdaptiveConcurrency, now: u64, random: u64) {
        if let Some(rtt) = self.take(policy.percentile) {
            let rtt = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).max(1);
            self.min_rtt.store(rtt, Ordering::Relaxed);
        }
        let limit = match self.min_rtt() {
            Some(_) => self.limit_before.load(Ordering::Relaxed).max(policy.min_rtt.concurrency),
            // Nothing is known that could limit anything.
            None => policy.concurrency_max,
        };
        self.limit.store(limit.min(policy.concurrency_max), Ordering::Relaxed);
        self.windows_at_least.store(0, Ordering::Relaxed);
        let interval = policy.min_rtt.interval.0.as_secs_f64();
        let part = random as f64 / u64::MAX as f64;
        let more = interval * policy.min_rtt.jitter.part() * part;
        let next = Duration::from_secs_f64(interval + more);
        let next = u64::try_from(next.as_nanos()).unwrap_or(u64::MAX);
        self.window_ends
            .store(now.saturating_add(nanos(policy.update_interval)), Ordering::Release);
        self.measures_at.store(now.saturating_add(next).min(NEVER - 1), Ordering::Release);
    }

    #[cold]
    fn end_window(&self, policy: &AdaptiveConcurrency, now: u64) {
        let (Some(sample), Some(min_rtt)) = (self.take(policy.percentile), self.min_rtt()) else {
            return;
        };
        let allowed = min_rtt.as_secs_f64() * (1.0 + policy.min_rtt.buffer.part());
        let (least_gradient, largest_gradient) = GRADIENT;
        let gradient = allowed / sample.as_secs_f64().max(1e-9);
        let gradient = gradient.clamp(least_gradient, largest_gradient);
        let before = self.limit.load(Ordering::Relaxed);
        let limit = f64::from(before) * gradient;
        let least = policy.min_rtt.concurrency.min(policy.concurrency_max);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below twice a number of 32 bits, and clamped"
        )]
        let limit = ((limit + limit.sqrt()) as u64).min(u64::from(policy.concurrency_max)) as u32;
        let limit = limit.max(least);
        // A measurement may have begun meanwhile, whose limit is not to be replaced.
        let change =
            self.limit.compare_exchange(before, limit, Ordering::Relaxed, Ordering::Relaxed);
        if change.is_err() {
            return;
        }
        if limit > least {
            return self.windows_at_least.store(0, Ordering::Relaxed);
        }
        // With a least time that was too short, every response would seem slow for good.
        if self.windows_at_least.fetch_add(1, Ordering::Relaxed) + 1 >= WINDOWS_AT_LEAST {
            self.begin_measurement(policy, now);
        }
    }

    /// The time at a percentile of what was counted, which begins anew; none if nothing was.
    fn take(&self, percentile: Percent) -> Option<Duration> {
        let mut counts = [0_u32; BUCKETS];
        for (count, bucket) in counts.iter_mut().zip(&self.buckets) {
            *count = bucket.swap(0, Ordering::Relaxed);
        }
        self.samples.store(0, Ordering::Relaxed);
        let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of the number of samples"
        )]
        let wanted = ((all as f64 * percentile.part()).ceil() as u64).max(1);
        let mut below = 0;
        let found = counts.iter().position(|count| {
            below += u64::from(*count);
            below >= wanted
        });
        found.map(time_of)
    }
}

fn nanos(period: Period) -> u64 {
    u64::try_from(period.0.as_nanos()).unwrap_or(u64::MAX)
}

/// The bucket of a time: µs below 16 have one each, and each doubling has 16.
fn bucket_of(length: Duration) -> usize {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let Some(doubling) = micros.checked_ilog2().filter(|it| *it >= STEPS_LOG2) else {
        return usize::try_from(micros).unwrap_or_default();
    };
    let step = (micros >> (doubling - STEPS_LOG2)) & ((1 << STEPS_LOG2) - 1);
    let bucket = (u64::from(doubling - STEPS_LOG2 + 1) << STEPS_LOG2) + step;
    usize::try_from(bucket).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn time_of(bucket: usize) -> Duration {
    let (doubling, step) = (bucket >> STEPS_LOG2, (bucket & ((1 << STEPS_LOG2) - 1)) as u64);
    let micros = match doubling {
        0 => step as f64 + 0.5,
        doubling => (((1 << STEPS_LOG2) + step) as f64 + 0.5) * f64::from(1 << (doubling - 1)),
    };
    Duration::from_secs_f64(micros / 1e6)
}

/// The policy of a cluster, and its controller.
#[derive(Clone)]
pub struct Adaptive {
    policy: AdaptiveConcurrency,
    controller: Arc<Controller>,
}

impl Adaptive {
    /// A new controller, or that of `former`.
    pub(crate) fn new(policy: AdaptiveConcurrency, former: Option<&Self>) -> Self {
        let controller = match former {
            Some(former) => Arc::clone(&former.controller),
            None => Arc::new(Controller::new(&policy)),
        };
        Self { policy, controller }
    }

    /// Requests that may be active now.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed).min(self.policy.concurrency_max)
    }

    /// The same for a request that is about to begin, at this time of a clock that all workers have, ns.
    #[inline]
    pub fn limit_at(&self, now: u64) -> u32 {
        if self.is_measuring() {
            self.controller.bound_measurement(&self.policy, now);
        }
        self.limit()
    }

    /// The most that it may become.
    #[must_use]
    pub const fn limit_max(&self) -> u32 {
        self.policy.concurrency_max
    }

    /// What was measured at this time of a clock that all workers have, ns; none before the first measurement has ended.
    #[must_use]
    pub fn measured(&self, now: u64) -> Option<Measured> {
        let min_rtt_ns = self.min_rtt.load(Ordering::Relaxed);
        let limit = match self.is_measuring() {
            true => self.limit_before.load(Ordering::Relaxed),
            false => self.limit(),
        };
        let measures_at = self.measures_at.load(Ordering::Acquire);
        // A measurement that lasts is made anew.
        let measures_in_ns = if measures_at == NEVER { 0 } else { measures_at.saturating_sub(now) };
        (min_rtt_ns > 0).then_some(Measured { limit, min_rtt_ns, measures_in_ns })
    }

    /// Goes on with what another process has measured, unless this one has by now and that is not newer. `now` as in
    /// [`Self::measured`].
    pub fn adopt(&self, measured: Measured, is_newer: bool, now: u64) {
        let Measured { limit, min_rtt_ns, measures_in_ns } = measured;
        if min_rtt_ns == 0 || self.min_rtt().is_some() && !is_newer {
            return;
        }
        self.take(self.policy.percentile);
        self.min_rtt.store(min_rtt_ns, Ordering::Relaxed);
        let least = self.policy.min_rtt.concurrency.min(self.policy.concurrency_max);
        self.limit.store(limit.clamp(least, self.policy.concurrency_max), Ordering::Relaxed);
        let ends = now.saturating_add(nanos(self.policy.update_interval));
        self.window_ends.store(ends.min(NEVER - 1), Ordering::Release);
        let measures_at = now.saturating_add(measures_in_ns.min(self.policy.interval_max()));
        self.measures_at.store(measures_at.min(NEVER - 1), Ordering::Release);
        self.is_measuring.store(false, Ordering::Release);
    }

    /// A response came, or a request waited for it too long. `random` is asked for where a measurement ends.
    pub fn observe(&self, sample: Sample, random: impl FnOnce() -> u64) {
        self.controller.observe(&self.policy, sample, random);
    }
}

impl Deref for Adaptive {
    type Target = Controller;

    fn deref(&self) -> &Controller {
        &self.controller
    }
}

impl PartialEq for Adaptive {
    /// What was measured is no part of a configuration.
    fn eq(&self, other: &Self) -> bool {
        self.policy == other.policy
    }
}

impl Eq for Adaptive {}

impl fmt::Debug for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Adaptive").field(&self.policy).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn adaptive(policy: AdaptiveConcurrency) -> Adaptive {
        Adaptive::new(policy, None)
    }

    #[test]
    fn another_process_goes_on_with_what_was_measured() {
        let policy = AdaptiveConcurrency::default();
        let (old, new) = (adaptive(policy), adaptive(policy));
        let sample = |ended| Sample { length: Duration::from_millis(8), ended };
        assert_eq!(old.measured(MS), None);
        old.limit_at(MS);
        (0..policy.min_rtt.requests).for_each(|_| old.observe(sample(10 * MS), || 0));
        let measured = old.measured(10 * MS).expect("it has measured");
        assert_eq!(measured.measures_in_ns, 60_000 * MS);
        let later = old.measured(1_010 * MS).expect("it has measured");
        assert_eq!(later.measures_in_ns, 59_000 * MS);
        // Its clock may be another.
        new.adopt(Measured { limit: 40, ..later }, false, 5 * MS);
        assert_eq!((new.limit_at(5 * MS), new.min_rtt()), (40, old.min_rtt()));
        assert!(!new.is_measuring());
        new.observe(sample(59_004 * MS), || 0);
        assert!(!new.is_measuring());
        new.observe(sample(59_006 * MS), || 0);
        assert!(new.is_measuring());
        // What this one has measured itself counts.
        let before = old.limit();
        let other = Measured { limit: 7, min_rtt_ns: 1, measures_in_ns: 0 };
        old.adopt(other, false, 10 * MS);
        assert_eq!(old.limit(), before);
        old.adopt(other, true, 10 * MS);
        assert_eq!(old.limit(), 7);
        for (limit, within) in [(0, 3), (u32::MAX, 1_000)] {
            let new = adaptive(policy);
            let measured = Measured { limit, min_rtt_ns: u64::MAX, measures_in_ns: u64::MAX };
            new.adopt(measured, false, u64::MAX);
            assert_eq!(new.limit(), within);
        }
    }

    #[test]
    fn to_look_at_a_limit_ends_no_measurement() {
        let adaptive = adaptive(AdaptiveConcurrency::default());
        assert_eq!((adaptive.limit(), adaptive.measured(u64::MAX)), (3, None));
        assert_eq!(adaptive.limit_at(100_000 * MS), 3);
        assert!(adaptive.is_measuring());
    }

    /// An upstream that answers `room` requests at a time in `rtt`; more wait for others.
    struct Upstream {
        room: u32,
        rtt: u64,
    }

    /// Has `wanted` requests under way as far as the limit allows, for so many responses, and returns how many were at a time.
    fn run(
        adaptive: &Adaptive,
        upstream: &Upstream,
        wanted: u32,
        now: &mut u64,
        rounds: u32,
    ) -> u32 {
        let mut at_a_time = 0;
        for _ in 0..rounds {
            at_a_time = wanted.min(adaptive.limit());
            let length = upstream.rtt * u64::from(at_a_time.div_ceil(upstream.room).max(1));
            *now += length;
            for _ in 0..at_a_time {
                let sample = Sample { length: Duration::from_nanos(length), ended: *now };
                adaptive.observe(sample, || 0);
            }
        }
        at_a_time
    }

    #[test]
    fn a_time_is_near_the_middle_of_its_bucket() {
        for micros in [0, 1, 15, 16, 17, 31, 32, 100, 999, 12_345, 1_000_000, 3_600_000_000_u64] {
            let length = Duration::from_micros(micros);
            let middle = time_of(bucket_of(length)).as_secs_f64();
            let error = (middle - length.as_secs_f64()).abs();
            assert!(error <= length.as_secs_f64() * 0.032 + 5.1e-7, "{micros}: {middle}");
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
        assert_eq!(bucket_of(Duration::from_secs(1 << 32)), BUCKETS - 1);
    }

    #[test]
    fn the_limit_grows_to_what_an_upstream_has_room_for_and_not_far_beyond() {
        let adaptive = adaptive(AdaptiveConcurrency::default());
        let (mut now, upstream) = (1, Upstream { room: 64, rtt: 10 * MS });
        assert_eq!((adaptive.limit(), adaptive.min_rtt()), (3, None));
        run(&adaptive, &upstream, 1_000, &mut now, 17);
        assert!(!adaptive.is_measuring());
        let rtt = adaptive.min_rtt().unwrap().as_secs_f64();
        assert!((0.0097..0.0103).contains(&rtt), "{rtt}");
        let mut most = 0;
        for _ in 0..200 {
            run(&adaptive, &upstream, 1_000, &mut now, 5);
            most = most.max(adaptive.limit());
        }
        // It tries a little more than there is room for, and goes back.
        assert!((64..=160).contains(&most), "{most}");
        let now_and_then = run(&adaptive, &upstream, 1_000, &mut now, 1);
        assert!((30..=160).contains(&now_and_then), "{now_and_then}");
    }

    #[test]
    fn the_limit_follows_an_upstream_that_becomes_slow_and_comes_back() {
        let adaptive = adaptive(AdaptiveConcurrency::default());
        let (mut now, mut upstream) = (1, Upstream { room: 100, rtt: 10 * MS });
        run(&adaptive, &upstream, 1_000, &mut now, 300);
        let before = adaptive.limit();
        upstream.room = 10;
        let mut least = u32::MAX;
        for _ in 0..20 {
            run(&adaptive, &upstream, 1_000, &mut now, 1);
            least = least.min(adaptive.limit());
        }
        assert!(least < before / 3, "{before} before, {least}");
        upstream.room = 100;
        run(&adaptive, &upstream, 1_000, &mut now, 300);
        assert!(adaptive.limit() > before / 3, "{before} before, {}", adaptive.limit());
    }

    #[test]
    fn an_upstream_that_takes_longer_for_good_is_measured_anew() {
        let adaptive = adaptive(AdaptiveConcurrency::default());
        let (mut now, mut upstream) = (1, Upstream { room: 100, rtt: 10 * MS });
        run(&adaptive, &upstream, 1_000, &mut now, 200);
        upstream.rtt = 100 * MS;
        run(&adaptive, &upstream, 1_000, &mut now, 100);
        let rtt = adaptive.min_rtt().unwrap();
        assert!(rtt > Duration::from_millis(90), "{rtt:?}");
        assert!(adaptive.limit() > 3, "{}", adaptive.limit());
    }

    #[test]
    fn the_least_time_is_measured_again_with_few_requests_at_a_time() {
        let adaptive = adaptive(AdaptiveConcurrency::default());
        let (mut now, upstream) = (1, Upstream { room: 64, rtt: 10 * MS });
        run(&adaptive, &upstream, 50, &mut now, 50);
        let before = adaptive.limit();
        assert!(before > 3);
        now += 61_000 * MS;
        run(&adaptive, &upstream, 50, &mut now, 1);
        assert_eq!((adaptive.is_measuring(), adaptive.limit()), (true, 3));
        // What began before says nothing.
        for _ in 0..100 {
            let sample = Sample { length: Duration::from_millis(20), ended: now };
            adaptive.observe(sample, || 0);
        }
        assert!(adaptive.is_measuring());
        run(&adaptive, &upstream, 50, &mut now, 17);
        assert_eq!((adaptive.is_measuring(), adaptive.limit()), (false, before));
    }

    #[test]
    fn a_measurement_that_nothing_ends_ends_by_itself() {
        let (second, start) = (1_000 * MS, 7 * MS);
        // Nothing is answered: what is not known limits nothing.
        let silent = adaptive(AdaptiveConcurrency::default());
        assert_eq!(silent.limit_at(start), 3);
        assert_eq!(silent.limit_at(start + 5 * second - 1), 3);
        assert_eq!(silent.limit_at(start + 5 * second), 1_000);
        // Few are answered, beside requests that do not end: these few count.
        let held = adaptive(AdaptiveConcurrency::default());
        assert_eq!(held.limit_at(start), 3);
        for _ in 0..2 {
            let sample = Sample { length: Duration::from_millis(10), ended: start + second };
            held.observe(sample, || 0);
        }
        assert_eq!((held.limit_at(start + 5 * second), held.is_measuring()), (3, false));
        assert!(held.min_rtt().is_some());
        // A later one gives the limit back that it found.
        let (mut now, upstream) = (start + 5 * second, Upstream { room: 64, rtt: 10 * MS });
        run(&held, &upstream, 50, &mut now, 50);
        let before = held.limit();
        now += 61 * second;
        run(&held, &upstream, 50, &mut now, 1);
        assert_eq!(held.limit_at(now + second), 3);
        assert_eq!(held.limit_at(now + 5 * second), before);
    }

    #[test]
    fn a_smaller_maximum_counts_at_once_and_another_policy_keeps_what_is_known() {
        let first = adaptive(AdaptiveConcurrency::default());
        let (mut now, upstream) = (1, Upstream { room: 640, rtt: 10 * MS });
        run(&first, &upstream, 1_000, &mut now, 300);
        assert!(first.limit() > 100);
        let policy = AdaptiveConcurrency { concurrency_max: 20, ..AdaptiveConcurrency::default() };
        let next = Adaptive::new(policy, Some(&first));
        assert_eq!((next.limit(), next.min_rtt()), (20, first.min_rtt()));
        run(&next, &upstream, 1_000, &mut now, 100);
        assert!(next.limit() <= 20);
    }

    #[test]
    fn workers_at_the_same_time_never_make_a_limit_beyond_its_bounds() {
        let policy = AdaptiveConcurrency {
            concurrency_max: 50,
            update_interval: Period::from_millis(1),
            min_rtt: MinRtt {
                requests: 5,
                interval: Period::from_millis(100),
                ..MinRtt::default()
            },
            ..AdaptiveConcurrency::default()
        };
        let adaptive = adaptive(policy);
        std::thread::scope(|scope| {
            for worker in 0..4_u64 {
                let adaptive = &adaptive;
                scope.spawn(move || {
                    for step in 1..50_000_u64 {
                        let length = Duration::from_micros(1 + (step * 7919 + worker) % 5_000);
                        adaptive.observe(Sample { length, ended: step * 20_000 }, || step);
                        let limit = adaptive.limit();
                        assert!((3..=50).contains(&limit), "{limit}");
                    }
                });
            }
        });
    }
}
