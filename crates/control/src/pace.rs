//! Lines of the log about endpoints, so many a second: a cluster that fails has thousands of them.

use crate::clock;

/// Lines of a second.
const LINES_MAX: u32 = 20;

/// How many were logged in this second, and how many were not.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    second: u64,
    logged: u32,
    left_out: u32,
}

impl Pace {
    /// Some time has passed: says how much was not logged of a second that is over.
    pub(crate) fn end_second(&mut self) {
        let second = clock::monotonic_ns() / 1_000_000_000;
        if second == self.second {
            return;
        }
        if self.left_out > 0 {
            tracing::warn!(lines = self.left_out, "further messages about endpoints are omitted");
        }
        *self = Self { second, ..Self::default() };
    }

    /// Logs a line, if this second has room for it.
    pub(crate) fn log(&mut self, log: impl FnOnce()) {
        self.end_second();
        if self.logged < LINES_MAX {
            self.logged += 1;
            log();
        } else {
            self.left_out += 1;
        }
    }
}
