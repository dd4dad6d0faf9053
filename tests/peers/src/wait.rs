//! The only place here that knows the time: waiting for something to become true.
//!
//! Nothing sleeps for a fixed time in the hope that something has happened by then; a claim polls
//! for what it needs and gives up at a deadline that only a broken program reaches.

#![expect(clippy::disallowed_methods, reason = "the entry point to the clock of these tests")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::say;

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
    let _waiting = Waiting::begin(what);
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if stopwatch.elapsed() > patience {
            bail!("timed out after {patience:?} waiting for {what}");
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

/// Ends this process if it still runs after `patience`, and says what it waits for then; `more` is
/// said, too.
#[expect(clippy::exit, reason = "nothing else ends a claim that hangs")]
pub(crate) fn end_process_after(patience: Duration, more: &str) {
    let more = more.to_owned();
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner).join(", in it for ");
        let waiting = if waiting.is_empty() { "something that it does not name" } else { &waiting };
        say::line(format_args!(
            "{more}: it did not end within {patience:?}; it waits for {waiting}"
        ));
        // What it started is killed by the kernel then.
        std::process::exit(1);
    });
}

/// What is waited for now; the last one is within those before it.
static WAITING: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// As long as this is held, something is waited for.
struct Waiting;

impl Waiting {
    fn begin(what: &str) -> Self {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).push(what.to_owned());
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).pop();
    }
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
