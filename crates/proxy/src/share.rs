//! One worker among several, and its part of the limits of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use config::breakers::Member;
use config::snapshot::ClusterId;

/// What stays the same for the life of a worker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which part of the process's limits is this worker's.
    pub share: Share,
    /// Where random numbers begin.
    pub seed: u64,
    /// What workers leave for each other: the same for all of the process.
    pub bells: Bells,
}

/// In which clusters other workers of the process have left something for a worker: room for a connection, or the wish for
/// some. A worker that rings has the other one woken ([`Op::Wake`](crate::Op::Wake)), and then that looks.
#[derive(Clone, Debug)]
pub struct Bells(Arc<[AtomicU64]>);

impl Bells {
    /// For this many workers.
    #[must_use]
    pub fn new(workers: u32) -> Self {
        Self(std::iter::repeat_with(AtomicU64::default).take(workers as usize).collect())
    }

    /// Has workers look at a cluster: those whose number is in the set, modulo 64.
    pub(crate) fn ring(&self, workers: u64, cluster: ClusterId) {
        let bells = (0_u32..).zip(&*self.0);
        for (_, bell) in bells.filter(|(worker, _)| workers & bit(*worker) != 0) {
            bell.fetch_or(bit(cluster.0.slot), Ordering::AcqRel);
        }
    }

    /// The clusters to look at: those whose slot is in the set, modulo 64.
    pub(crate) fn take(&self, worker: u32) -> u64 {
        let bell = self.0.get(worker as usize);
        let is_rung = |bell: &&AtomicU64| bell.load(Ordering::Acquire) != 0;
        bell.filter(is_rung).map_or(0, |bell| bell.swap(0, Ordering::AcqRel))
    }
}

/// The bit of a worker, or of a cluster's slot, in a set.
pub(crate) const fn bit(number: u32) -> u64 {
    1 << (number % u64::BITS)
}

/// One worker among several, each of which takes its part of a limit of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// This worker, from 0.
    pub worker: u32,
    /// All of them, at least 1.
    pub workers: u32,
}

impl Share {
    /// What is no worker, and only tries something out with the configuration of a process: what limits count does not bear on it, and
    /// it counts in none that workers share.
    pub const APART: Self = Self { worker: u32::MAX, workers: 1 };

    /// Whether it is [`Share::APART`].
    pub(crate) const fn is_apart(self) -> bool {
        self.worker >= self.workers
    }

    /// This worker's part of `limit`. The parts add up to the limit, unless it is smaller than the
    /// number of workers: then each has 1, because one that had none could serve no client.
    #[must_use]
    pub fn of(self, limit: u32) -> u32 {
        let rest = u32::from(self.worker < limit % self.workers);
        if limit == 0 { 0 } else { (limit / self.workers + rest).max(1) }
    }

    /// This worker, as breakers know it.
    pub(crate) const fn member(self) -> Member {
        let worker = if self.is_apart() { 0 } else { self.worker };
        Member { worker, workers: self.workers }
    }

    /// This worker's part of `limit` where a part may be nothing: what it may have before it gives way to workers that have
    /// less.
    pub(crate) const fn part_of(self, limit: u32) -> u32 {
        limit / self.workers
    }

    /// As [`Share::of`] of a number of bytes, where a remainder does not matter.
    #[must_use]
    pub const fn of_bytes(self, limit: u64) -> u64 {
        limit / self.workers as u64
    }
}
