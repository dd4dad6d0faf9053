//! The only place here that knows the time: waiting for something to become true.
//!
//! Nothing sleeps for a fixed time in the hope that something has happened by then; a claim polls
//! for what it needs and gives up at a deadline that only a broken program reaches.

#![expect(clippy::disallowed_methods, reason = "the entry point to the clock of these tests")]

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long anything that should happen at once may take on a machine that is busy.
pub(crate) const SOON: Duration = Duration::from_secs(10);

const BETWEEN: Duration = Duration::from_millis(5);

/// Polls `look` until it finds something, at most for `patience`.
///
/// # Errors
///
/// If nothing was found; the text says what was waited for.
pub(crate) fn for_some<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T> {
    let stopwatch = Stopwatch::start();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if stopwatch.elapsed() > patience {
            bail!("waited {patience:?} in vain for {what}");
        }
        std::thread::sleep(BETWEEN);
    }
}

/// Polls `look` until it holds, at most for `patience`.
///
/// # Errors
///
/// If it did not hold in time; the text says what was waited for.
pub(crate) fn until(what: &str, patience: Duration, mut look: impl FnMut() -> bool) -> Result<()> {
    for_some(what, patience, || look().then_some(()))
}

/// Time since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the beginning.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
