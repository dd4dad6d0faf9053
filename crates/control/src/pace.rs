//! Lines of the log about endpoints, or resources, so many a second: a cluster that fails has thousands of endpoints, and
//! a source may deliver a hundred thousand resources at once that are refused.

use crate::clock;

/// Lines of a second.
const LINES_MAX: u32 = 20;

/// How many were logged in this second, and how many were not.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What the lines are about, and where else that stands.
    about: &'static str,
    second: u64,
    logged: u32,
    left_out: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self::about("endpoints")
    }
}

impl Pace {
    /// Lines about these.
    pub(crate) const fn about(about: &'static str) -> Self {
        Self { about, second: 0, logged: 0, left_out: 0 }
    }

    /// Some time has passed: says how much was not logged of a second that is over.
    pub(crate) fn end_second(&mut self) {
        let second = clock::monotonic_ns() / 1_000_000_000;
        if second == self.second {
            return;
        }
        if self.left_out > 0 {
            let (lines, about) = (self.left_out, self.about);
            tracing::warn!(lines, "further messages about {about} are omitted");
        }
        *self = Self { second, ..Self::about(self.about) };
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

    /// Counts a line that is not logged.
    pub(crate) fn leave_out(&mut self) {
        self.end_second();
        self.left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_room_for_so_many_lines_and_the_next_one_says_how_many_there_were() {
        let mut pace = Pace::about("resources");
        let mut logged = 0;
        // As many in all as two seconds have room for, if this takes longer.
        for _ in 0..100_000 {
            pace.log(|| logged += 1);
        }
        assert!((LINES_MAX..1_000).contains(&logged), "{logged}");
        assert!(pace.left_out > 0 && pace.about == "resources");
    }
}
