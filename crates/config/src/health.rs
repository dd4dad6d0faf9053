//! What the process knows of the health of endpoints, beside their configuration.
//!
//! An endpoint of a cluster that asks for it has one cell, which all snapshots and workers share: workers count in it how
//! attempts ended, and read from it whether the endpoint may be chosen. Only [`Detector`](crate::outlier::Detector)
//! ejects endpoints and takes them back, and only [`Checker`](crate::checks::Checker) says what its checks say, each at one
//! place in the process, so that bounds over a cluster hold whatever workers see at the same time. A cell is no part of a
//! configuration: it stays while its endpoint does.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::shared_cell::SharedCell;

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
pub type HealthCell = SharedCell<EndpointHealth>;

impl SharedCell<EndpointHealth> {
    /// Whether its endpoint may be chosen.
    #[must_use]
    #[inline]
    pub fn is_available(&self) -> bool {
        self.get().is_none_or(EndpointHealth::is_available)
    }
}

/// How many endpoints of a group may be chosen: those that have a weight, and are neither ejected nor unfit. None where its
/// cluster asks for no health.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Availability(SharedCell<AtomicU32>);

impl Availability {
    pub(crate) fn new(count: Option<u32>) -> Self {
        Self(SharedCell::with(count.map(AtomicU32::new)))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<u32> {
        self.0.get().map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, count: u32) {
        if let Some(cell) = self.0.get() {
            cell.store(count, Ordering::Relaxed);
        }
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
