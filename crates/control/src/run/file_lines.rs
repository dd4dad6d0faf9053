//! Lines of the log about endpoint files: a file may be written a hundred times a second, and wrongly.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock;
use crate::pace::Pace;

/// Lines about one file in [`INTERVAL`].
const LINES_MAX: u32 = 10;

/// 10 s, in ns.
const INTERVAL: u64 = 10_000_000_000;

/// The files that lines were about lately, and how many in all.
#[derive(Debug)]
pub(super) struct FileLines {
    /// Since when (monotonic time, ns) so many were logged.
    files: BTreeMap<Arc<str>, (u64, u32)>,
    pace: Pace,
}

impl Default for FileLines {
    fn default() -> Self {
        let pace = Pace::about("endpoint files: see endpoints_files of /config");
        Self { files: BTreeMap::new(), pace }
    }
}

impl FileLines {
    /// Logs a line about a file, if there is room for it.
    pub(super) fn log(&mut self, file: &Arc<str>, log: impl FnOnce()) {
        if self.has_room(file, clock::monotonic_ns()) {
            self.pace.log(log);
        } else {
            self.pace.leave_out();
        }
    }

    /// Whether another line about a file may be logged now (monotonic time, ns), which counts then.
    fn has_room(&mut self, file: &Arc<str>, now: u64) -> bool {
        let is_over = |since: u64| now.saturating_sub(since) >= INTERVAL;
        if !self.files.contains_key(file) {
            self.files.retain(|_, (since, _)| !is_over(*since));
        }
        let (since, logged) = self.files.entry(Arc::clone(file)).or_insert((now, 0));
        if is_over(*since) {
            (*since, *logged) = (now, 0);
        }
        let has_room = *logged < LINES_MAX;
        *logged += u32::from(has_room);
        has_room
    }

    /// Some time has passed: says how much was not logged of a second that is over.
    pub(super) fn end_second(&mut self) {
        self.pace.end_second();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_often_takes_no_lines_from_others() {
        let mut lines = FileLines::default();
        let [busy, other, third] = ["busy.yaml", "other.yaml", "third.yaml"].map(Arc::from);
        let logged = (0..1_000).filter(|now| lines.has_room(&busy, *now)).count();
        assert_eq!(u32::try_from(logged), Ok(LINES_MAX));
        assert!(lines.has_room(&other, 1_000));
        assert!(!lines.has_room(&busy, INTERVAL - 1));
        // Another interval has room for others.
        assert!(lines.has_room(&busy, INTERVAL));
        // What was long ago is not kept.
        assert!(lines.has_room(&third, 3 * INTERVAL));
        assert_eq!(lines.files.len(), 1);
    }

    #[test]
    fn what_a_file_has_no_room_for_is_counted() {
        let mut lines = FileLines::default();
        let mut logged = 0;
        for _ in 0..100 {
            lines.log(&Arc::from("busy.yaml"), || logged += 1);
        }
        assert_eq!(logged, LINES_MAX);
    }
}
