//! One worker among several, and its part of the limits of the process.

/// What stays the same for the life of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which part of the process's limits is this worker's.
    pub share: Share,
    /// Where random numbers begin.
    pub seed: u64,
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
    /// This worker's part of `limit`. The parts add up to the limit, unless it is smaller than the
    /// number of workers: then each has 1, because one that had none could serve no client.
    #[must_use]
    pub fn of(self, limit: u32) -> u32 {
        let rest = u32::from(self.worker < limit % self.workers);
        if limit == 0 { 0 } else { (limit / self.workers + rest).max(1) }
    }

    /// The same of a number of bytes, where a remainder does not matter.
    #[must_use]
    pub const fn of_bytes(self, limit: u64) -> u64 {
        limit / self.workers as u64
    }
}
