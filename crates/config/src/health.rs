//! What the process knows of the health of endpoints, beside their configuration.
//!
//! An endpoint of a cluster that asks for it has one cell, which all snapshots and workers share: workers count in it how
//! attempts ended, and read from it whether the endpoint may be chosen. Only [`Detector`](crate::outlier::Detector)
//! ejects endpoints and takes them back, and only [`Checker`](crate::checks::Checker) says what its checks say, each at one
//! place in the process, so that bounds over a cluster hold whatever workers see at the same time. A cell is no part of a
//! configuration: it stays while its endpoint does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Its attempts failed.
const EJECTED: u8 = 1;

/// Its checks failed, or have not passed yet.
const UNFIT: u8 = 2;

/// The health of one endpoint.
#[derive(Debug, Default)]
pub struct EndpointHealth {
    /// Why it may not be chosen: [`EJECTED`], [`UNFIT`].
    excluded: AtomicU8,
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
        self.excluded.load(Ordering::Relaxed) & EJECTED != 0
    }

    /// Whether it may be chosen.
    #[must_use]
    #[inline]
    pub fn is_available(&self) -> bool {
        self.excluded.load(Ordering::Relaxed) == 0
    }

    /// It said that it is not healthy: whether that is to be reported. It is once, until its checks say otherwise.
    #[must_use]
    pub fn fails_itself(&self) -> bool {
        self.excluded.load(Ordering::Relaxed) & UNFIT == 0
            && !self.has_failed_itself.swap(true, Ordering::Relaxed)
    }

    /// Its checks failed, or passed. Returns whether that is another answer than before.
    pub(crate) fn set_unfit(&self, is_unfit: bool) -> bool {
        self.has_failed_itself.store(false, Ordering::Relaxed);
        self.set(UNFIT, is_unfit) != is_unfit
    }

    /// Returns whether it was so before.
    fn set(&self, reason: u8, is_so: bool) -> bool {
        let before = match is_so {
            true => self.excluded.fetch_or(reason, Ordering::Relaxed),
            false => self.excluded.fetch_and(!reason, Ordering::Relaxed),
        };
        before & reason != 0
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
#[derive(Clone, Default)]
pub struct HealthCell(Option<Arc<EndpointHealth>>);

impl HealthCell {
    /// A new cell, or that of `former`; none if the cluster asks for none.
    pub(crate) fn new(is_asked: bool, former: Option<&Self>) -> Self {
        if !is_asked {
            return Self::default();
        }
        Self(former.and_then(|former| former.0.clone()).or_else(|| Some(Arc::default())))
    }

    /// What is known, if its cluster asks.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Option<&EndpointHealth> {
        self.0.as_deref()
    }

    /// Whether its endpoint may be chosen.
    #[must_use]
    #[inline]
    pub fn is_available(&self) -> bool {
        self.0.as_ref().is_none_or(|health| health.is_available())
    }
}

impl PartialEq for HealthCell {
    /// Whether both are there, or none is: what is known is no part of a configuration.
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() == other.0.is_some()
    }
}

impl Eq for HealthCell {}

impl fmt::Debug for HealthCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthCell").field(&self.0.is_some()).finish()
    }
}

/// How many endpoints of a group may be chosen: those that have a weight, and are neither ejected nor unfit. None where its
/// cluster asks for no health.
#[derive(Clone, Default)]
pub(crate) struct Availability(Option<Arc<AtomicU32>>);

impl Availability {
    pub(crate) fn new(count: Option<u32>) -> Self {
        Self(count.map(|count| Arc::new(AtomicU32::new(count))))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<u32> {
        self.0.as_ref().map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, count: u32) {
        if let Some(cell) = &self.0 {
            cell.store(count, Ordering::Relaxed);
        }
    }
}

impl PartialEq for Availability {
    /// As that of [`HealthCell`].
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() == other.0.is_some()
    }
}

impl Eq for Availability {}

impl fmt::Debug for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Availability").field(&self.0.is_some()).finish()
    }
}

/// Whether a cluster with checks has had a request: until then its endpoints are checked less often.
#[derive(Clone, Default)]
pub struct Activity(Option<Arc<AtomicBool>>);

impl Activity {
    /// A new one, or that of `former`; none if the cluster asks for none.
    pub(crate) fn new(is_asked: bool, former: Option<&Self>) -> Self {
        if !is_asked {
            return Self::default();
        }
        Self(former.and_then(|former| former.0.clone()).or_else(|| Some(Arc::default())))
    }

    /// It has a request.
    #[inline]
    pub fn mark(&self) {
        if let Some(is_used) = &self.0
            && !is_used.load(Ordering::Relaxed)
        {
            is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it has had one.
    pub(crate) fn is_used(&self) -> bool {
        self.0.as_ref().is_some_and(|is_used| is_used.load(Ordering::Relaxed))
    }
}

impl PartialEq for Activity {
    /// As that of [`HealthCell`].
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() == other.0.is_some()
    }
}

impl Eq for Activity {}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Activity").field(&self.0.is_some()).finish()
    }
}
