//! What the process knows of the health of endpoints, beside their configuration.
//!
//! An endpoint of a cluster that asks for it has one cell, which all snapshots and workers share: workers count in it how
//! attempts ended, and read from it whether the endpoint may be chosen. Only [`Detector`](crate::resource::cluster::outlier::Detector)
//! ejects endpoints and takes them back, and only [`Checker`](crate::resource::cluster::checks::Checker) says what its checks say, each at one
//! place in the process, so that bounds over a cluster hold whatever workers see at the same time. A cell is no part of a
//! configuration: it stays while its endpoint does.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::shared_cell::SharedCell;

/// Its attempts failed.
const EJECTED: u8 = 1;

/// Its checks failed, or have not passed yet.
const UNFIT: u8 = 2;

/// Its checks say that it is degraded.
const DEGRADED: u8 = 4;

/// Which requests an endpoint gets, from the worst on. As in Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthStatus {
    /// None, unless too few others are left.
    Unhealthy,
    /// Those that healthy ones are too few for.
    Degraded,
    /// All.
    Healthy,
}

/// The health of one endpoint.
#[derive(Debug, Default)]
pub struct EndpointHealth {
    /// What keeps requests from it: [`EJECTED`], [`UNFIT`], [`DEGRADED`].
    state: AtomicU8,
    /// Whether it is reported that it said of itself that it is not healthy, and no check has said anything since.
    has_failed_itself: AtomicBool,
    /// Whether it is said of it that it reached a bound, and that is not settled.
    is_reported: AtomicBool,
    /// Failures in a row, by their kind.
    pub(crate) streaks: [AtomicU32; 3],
    /// Attempts of this interval, and those of them that succeeded.
    attempts: AtomicU32,
    successes: AtomicU32,
}

impl EndpointHealth {
    /// Whether it was ejected, and gets requests only where too few others are left.
    #[must_use]
    #[inline]
    pub fn is_ejected(&self) -> bool {
        self.state.load(Ordering::Relaxed) & EJECTED != 0
    }

    /// Which requests it gets.
    #[must_use]
    #[inline]
    pub fn status(&self) -> HealthStatus {
        match self.state.load(Ordering::Relaxed) {
            0 => HealthStatus::Healthy,
            DEGRADED => HealthStatus::Degraded,
            _ => HealthStatus::Unhealthy,
        }
    }

    /// It said that it is not healthy: whether that is to be reported. It is once, until its checks say otherwise.
    #[must_use]
    pub fn fails_itself(&self) -> bool {
        self.state.load(Ordering::Relaxed) & UNFIT == 0
            && !self.has_failed_itself.swap(true, Ordering::Relaxed)
    }

    /// What its checks alone say of it.
    pub(crate) fn checked(&self) -> HealthStatus {
        match self.state.load(Ordering::Relaxed) & (UNFIT | DEGRADED) {
            0 => HealthStatus::Healthy,
            DEGRADED => HealthStatus::Degraded,
            _ => HealthStatus::Unhealthy,
        }
    }

    /// Its checks failed, or passed.
    pub(crate) fn set_unfit(&self, is_unfit: bool) {
        self.has_failed_itself.store(false, Ordering::Relaxed);
        self.set(UNFIT, is_unfit);
    }

    /// Its checks say that it is degraded, or that it is not.
    pub(crate) fn set_degraded(&self, is_degraded: bool) {
        self.set(DEGRADED, is_degraded);
    }

    fn set(&self, reason: u8, is_so: bool) {
        match is_so {
            true => self.state.fetch_or(reason, Ordering::Relaxed),
            false => self.state.fetch_and(!reason, Ordering::Relaxed),
        };
    }

    /// It is ejected, or not any more. It begins anew with either.
    pub(crate) fn set_ejected(&self, is_ejected: bool) {
        self.set(EJECTED, is_ejected);
        self.settle();
        self.streaks.iter().for_each(|streak| streak.store(0, Ordering::Relaxed));
        self.take_interval();
    }

    /// It reached a bound: whether that is to be reported. It is once, until [`EndpointHealth::settle`].
    pub(crate) fn report(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }

    /// What it did is settled: the next bound that it reaches is reported.
    pub(crate) fn settle(&self) {
        self.is_reported.store(false, Ordering::Relaxed);
    }

    /// An attempt ended.
    pub(crate) fn count(&self, has_succeeded: bool) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.successes.fetch_add(u32::from(has_succeeded), Ordering::Relaxed);
    }

    /// The attempts since the last call, and those of them that succeeded.
    pub(crate) fn take_interval(&self) -> (u32, u32) {
        let attempts = self.attempts.swap(0, Ordering::Relaxed);
        // Workers go on counting: a success whose attempt was taken before counts for the next interval.
        (attempts, self.successes.swap(0, Ordering::Relaxed).min(attempts))
    }
}

/// The cell of an endpoint, if its cluster asks for one.
pub type HealthCell = SharedCell<EndpointHealth>;

impl SharedCell<EndpointHealth> {
    /// Which requests its endpoint gets, as far as this process has found out.
    #[must_use]
    #[inline]
    pub fn status(&self) -> HealthStatus {
        self.get().map_or(HealthStatus::Healthy, EndpointHealth::status)
    }
}

/// How many endpoints of a group that have a weight get requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) healthy: u32,
    pub(crate) degraded: u32,
}

impl Counts {
    pub(crate) fn of(statuses: impl Iterator<Item = HealthStatus>) -> Self {
        statuses.fold(Self::default(), |mut counts, status| {
            match status {
                HealthStatus::Healthy => counts.healthy = counts.healthy.saturating_add(1),
                HealthStatus::Degraded => counts.degraded = counts.degraded.saturating_add(1),
                HealthStatus::Unhealthy => {}
            }
            counts
        })
    }

    fn pack(self) -> u64 {
        (u64::from(self.degraded) << u32::BITS) | u64::from(self.healthy)
    }

    const fn unpack(packed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = packed.to_be_bytes();
        Self {
            degraded: u32::from_be_bytes([a, b, c, d]),
            healthy: u32::from_be_bytes([e, f, g, h]),
        }
    }
}

/// These counts of a group, which change while others read them. None where nothing is known of the health of its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Availability(SharedCell<AtomicU64>);

impl Availability {
    pub(crate) fn new(counts: Option<Counts>) -> Self {
        Self(SharedCell::with(counts.map(|counts| AtomicU64::new(counts.pack()))))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<Counts> {
        self.0.get().map(|counts| Counts::unpack(counts.load(Ordering::Relaxed)))
    }

    pub(crate) fn set(&self, counts: Counts) {
        if let Some(cell) = self.0.get() {
            cell.store(counts.pack(), Ordering::Relaxed);
        }
    }
}

/// Whether a new cluster waits for the first checks of its endpoints, and with it all its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warming(SharedCell<AtomicBool>);

impl Warming {
    /// A new one, or that of `former`; none if the cluster does not ask for it.
    pub(crate) fn new(is_asked: bool, former: Option<&Self>) -> Self {
        Self(SharedCell::new(is_asked, former.map(|former| &former.0)))
    }

    /// It waits from here on, or does not any more.
    pub(crate) fn set(&self, waits: bool) {
        if let Some(cell) = self.0.get() {
            cell.store(waits, Ordering::Relaxed);
        }
    }

    /// Whether both are the same one, or none.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// Whether it waits.
    #[must_use]
    #[inline]
    pub fn waits(&self) -> bool {
        self.0.get().is_some_and(|waits| waits.load(Ordering::Relaxed))
    }
}

/// Whether a cluster with checks has had a request: until then its endpoints are checked less often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity(SharedCell<AtomicBool>);

impl Activity {
    /// A new one, or that of `former`; none if the cluster asks for none.
    pub(crate) fn new(is_asked: bool, former: Option<&Self>) -> Self {
        Self(SharedCell::new(is_asked, former.map(|former| &former.0)))
    }

    /// It has a request.
    #[inline]
    pub fn mark(&self) {
        if let Some(is_used) = self.0.get()
            && !is_used.load(Ordering::Relaxed)
        {
            is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it has had one.
    pub(crate) fn is_used(&self) -> bool {
        self.0.get().is_some_and(|is_used| is_used.load(Ordering::Relaxed))
    }
}
