//! Lines of the log about what other processes may do as often as they like: one a second.

use std::cell::Cell;

/// Between two lines, ns.
const INTERVAL: u64 = 1_000_000_000;

/// When there may be the next line, and how many there was no room for.
#[derive(Debug, Default)]
pub(crate) struct LogPace {
    next_at: Cell<u64>,
    omitted: Cell<u64>,
}

impl LogPace {
    /// Whether there is room for a line at this time, and how many there was none for since the last one. Otherwise it is counted.
    pub(super) fn next(&self, at: u64) -> Option<u64> {
        if at < self.next_at.get() {
            self.omitted.set(self.omitted.get().saturating_add(1));
            return None;
        }
        self.next_at.set(at.saturating_add(INTERVAL));
        Some(self.omitted.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_line_which_says_how_many_there_was_no_room_for() {
        let pace = LogPace::default();
        let lines = [0, 1, INTERVAL - 1, INTERVAL, INTERVAL + 1, 3 * INTERVAL, 9 * INTERVAL];
        let expected = [Some(0), None, None, Some(2), None, Some(1), Some(0)];
        assert_eq!(lines.map(|at| pace.next(at)), expected);
    }
}
