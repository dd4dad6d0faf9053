//! A limit to the real time that one seed may take.
//!
//! Virtual time has limits of its own; this is for what spins or blocks without any passing. The
//! simulation runs on the caller's thread, which cannot be ended alone, so the process ends, and
//! says first which seed it was.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// How long one seed may take. The longest take a second without optimization.
pub const SEED_MAX: Duration = Duration::from_secs(60);

/// Watches seeds that run one after the other on a thread, until it is dropped.
#[derive(Debug)]
pub struct SeedLimit {
    begun: Sender<u64>,
}

impl SeedLimit {
    /// Watches; `on_late` is called with a seed that takes longer than `limit`.
    pub fn new(limit: Duration, on_late: impl FnOnce(u64) + Send + 'static) -> Self {
        let (begun, seeds) = mpsc::channel();
        std::thread::spawn(move || {
            let Ok(mut seed) = seeds.recv() else { return };
            loop {
                match seeds.recv_timeout(limit) {
                    Ok(next) => seed = next,
                    Err(RecvTimeoutError::Timeout) => return on_late(seed),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self { begun }
    }

    /// Ends the process when a seed takes longer than [`SEED_MAX`], with the line that replays it.
    #[expect(clippy::print_stderr, reason = "the last that this process says")]
    pub fn ending_the_process() -> Self {
        Self::new(SEED_MAX, |seed| {
            let limit = SEED_MAX.as_secs();
            eprintln!(
                "seed {seed} did not end within {limit} s; again: cargo xtask sim --seed {seed}"
            );
            std::process::exit(1);
        })
    }

    /// This seed begins, and the one before it is over.
    pub fn begin(&self, seed: u64) {
        // Once it was late, nothing listens.
        _ = self.begun.send(seed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_that_takes_too_long_is_named() {
        let (late, seeds) = mpsc::channel();
        let limit = SeedLimit::new(Duration::from_secs(1), move |seed| {
            late.send(seed).unwrap();
        });
        limit.begin(1);
        limit.begin(2);
        assert_eq!(seeds.recv().unwrap(), 2);
    }

    #[test]
    fn seeds_that_are_over_are_not_late() {
        let (late, seeds) = mpsc::channel();
        let limit = SeedLimit::new(SEED_MAX, move |seed| {
            late.send(seed).unwrap();
        });
        limit.begin(1);
        drop(limit);
        // The watch is over, and what it would have called is gone with it.
        assert_eq!(seeds.recv().ok(), None);
    }
}
