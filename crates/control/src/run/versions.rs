//! How far workers are with the snapshots that they were handed.
//!
//! A worker reports each snapshot that it has taken up. While too many wait for one of them, what the builder has made next
//! is not looked at: the builder is busy until it is, so that whatever changes meanwhile is put together.

use std::collections::VecDeque;

use telemetry::events::ConfigTakenUp;

use super::Running;
use crate::clock;
use crate::workers::Workers;

/// Snapshots that wait for a worker.
const SNAPSHOTS_WAITING_MAX: usize = 2;

/// A worker that has not taken up what it was handed for so long, ns, is reported.
const LATE_AFTER: u64 = 5_000_000_000;

/// Snapshots that not all workers have, and how far each worker is.
#[derive(Debug)]
pub(super) struct Versions {
    /// The version that each worker took up last; 0 before its first.
    workers: Vec<u64>,
    /// Versions that not all workers have, with when each was begun; monotonic time, ns.
    waiting: VecDeque<(u64, u64)>,
    /// The one that workers start with.
    first: u64,
    /// Whether it was reported that a worker is late.
    is_late: bool,
}

impl Versions {
    /// Workers start with the version `first`.
    pub(super) fn new(workers: u32, first: u64, began: u64) -> Self {
        let waiting = [(first, began)].into();
        Self { workers: (0..workers).map(|_| 0).collect(), waiting, first, is_late: false }
    }

    /// Workers were handed a version.
    pub(super) fn on_published(&mut self, version: u64, began: u64) {
        self.waiting.push_back((version, began));
    }

    /// A worker has a version. Returns when the ones were begun that all workers have now.
    fn on_taken_up(&mut self, worker: u32, version: u64) -> Vec<u64> {
        let worker = usize::try_from(worker).unwrap_or(usize::MAX);
        if let Some(known) = self.workers.get_mut(worker) {
            *known = version.max(*known);
        }
        let all = self.version();
        let count = self.waiting.iter().take_while(|(version, _)| *version <= all).count();
        self.is_late &= count == 0;
        self.waiting.drain(..count).map(|(_, began)| began).collect()
    }

    /// The first worker that makes all others' configurations wait, once it has done so for too long, and which version
    /// it has not taken up.
    fn late(&mut self, now: u64) -> Option<(usize, u64)> {
        let (version, began) = *self.waiting.front().filter(|_| self.is_behind())?;
        if now.saturating_sub(began) < LATE_AFTER || std::mem::replace(&mut self.is_late, true) {
            return None;
        }
        let worker = self.workers.iter().position(|known| *known < version)?;
        Some((worker, version))
    }

    /// The version that all workers have, or a later one.
    pub(super) fn version(&self) -> u64 {
        self.workers.iter().min().copied().unwrap_or_default()
    }

    /// The version that each worker serves by; 0 before its first.
    pub(super) fn workers(&self) -> &[u64] {
        &self.workers
    }

    /// Whether a worker has as many to take up as may wait for it.
    pub(super) fn is_behind(&self) -> bool {
        self.waiting.len() >= SNAPSHOTS_WAITING_MAX
    }
}

impl<W: Workers> Running<W> {
    /// A worker began to serve, with the first snapshot.
    pub(super) fn on_first_taken_up(&mut self, worker: u32) {
        self.on_taken_up(worker, self.versions.first);
    }

    /// A worker serves by this version.
    pub(super) fn on_taken_up(&mut self, worker: u32, version: u64) {
        let now = clock::monotonic_ns();
        for began in self.versions.on_taken_up(worker, version) {
            let taking_up = now.saturating_sub(began);
            self.collector.config_taken_up(&ConfigTakenUp { taking_up });
        }
    }

    /// Whether what was built can be handed to the workers.
    pub(super) fn takes_up(&self) -> bool {
        // A handover waits for what is built, and may be the way out if a worker hangs.
        let is_urgent = self.is_ending() || self.begin_waits.is_some();
        self.moves.under_way.is_empty() && (is_urgent || !self.versions.is_behind())
    }

    /// Reports a worker for which changes wait.
    pub(super) fn warn_of_late_worker(&mut self) {
        if let Some((worker, version)) = self.versions.late(clock::monotonic_ns()) {
            tracing::error!(
                worker,
                version,
                "a worker does not apply its new configuration: no further one is applied \
                 until it does; if this continues, restart the process"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_taken_up_once_the_last_worker_has_it() {
        let mut versions = Versions::new(2, 5, 50);
        assert!(!versions.is_behind());
        versions.on_published(6, 60);
        assert!(versions.is_behind());
        assert!(versions.on_taken_up(0, 5).is_empty());
        assert!(versions.on_taken_up(0, 6).is_empty());
        assert_eq!(versions.version(), 0);
        assert_eq!(versions.on_taken_up(1, 5), [50]);
        assert!(!versions.is_behind());
        assert_eq!(versions.late(u64::MAX), None);
        versions.on_published(7, 70);
        assert_eq!(versions.late(LATE_AFTER + 59), None);
        assert_eq!(versions.late(LATE_AFTER + 60), Some((1, 6)));
        assert_eq!(versions.late(u64::MAX), None, "it was reported");
        assert!(versions.is_behind());
        assert!(versions.on_taken_up(0, 7).is_empty());
        assert_eq!(versions.on_taken_up(1, 7), [60, 70]);
        assert_eq!((versions.version(), versions.is_behind()), (7, false));
        // One that is not there.
        assert!(versions.on_taken_up(9, 8).is_empty());
    }
}
