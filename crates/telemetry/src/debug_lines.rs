//! Lines of the debug log about connections, on their way from a worker to control.
//!
//! A worker has no log: it must not wait for one. With `--log-level debug` it writes each line to a queue of
//! its own, in whole, at a bounded rate; control takes them every few milliseconds and logs them. What is over
//! the rate, or finds no room, is counted, and the next line that is written says how many there were.
//! Without the level there is no queue, and asking [`Emitter::is_debug`](crate::Emitter::is_debug) is all that it costs.
//!
//! ```text
//! u16 length of the text | text
//! ```

use std::fmt::{self, Write as _};

/// Bytes of a queue: some two thousand lines, more than a worker may write in a second.
const QUEUE_BYTES: usize = 256 << 10;

/// Bytes of a line; what is longer is cut.
const LINE_BYTES_MAX: usize = 512;

/// Lines of a worker in a second.
const LINES_PER_SECOND_MAX: u32 = 1_000;

/// The worker's end.
#[derive(Debug)]
pub(crate) struct DebugLines {
    queue: rtrb::Producer<u8>,
    second: u64,
    /// Lines written in this second.
    written: u32,
    /// Lines left out since the last that was written.
    left_out: u64,
}

/// Control's end, for [`crate::LogReader::add_debug_lines`].
#[derive(Debug)]
pub struct DebugSource {
    queue: rtrb::Consumer<u8>,
}

/// A line that is being written.
struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (place, octet) in self.bytes.iter_mut().skip(self.len).zip(text.bytes()) {
            *place = octet;
        }
        self.len = (self.len + text.len()).min(LINE_BYTES_MAX);
        Ok(())
    }
}

impl DebugLines {
    pub(crate) fn new() -> (Self, DebugSource) {
        let (producer, consumer) = rtrb::RingBuffer::new(QUEUE_BYTES);
        let lines = Self { queue: producer, second: 0, written: 0, left_out: 0 };
        (lines, DebugSource { queue: consumer })
    }

    /// Writes a line, of something at this time, ns of any clock.
    pub(crate) fn write(&mut self, at: u64, words: fmt::Arguments<'_>) {
        let second = at / 1_000_000_000;
        if self.second != second {
            (self.second, self.written) = (second, 0);
        }
        if self.written >= LINES_PER_SECOND_MAX {
            self.left_out += 1;
            return;
        }
        if self.left_out > 0 {
            let left_out = self.left_out;
            if !self.push(format_args!("{left_out} lines about connections were left out")) {
                self.left_out += 1;
                return;
            }
            self.left_out = 0;
        }
        if !self.push(words) {
            self.left_out += 1;
        }
        self.written += 1;
    }

    /// Whether there was room for it.
    fn push(&mut self, words: fmt::Arguments<'_>) -> bool {
        let mut line = Line { bytes: [0; LINE_BYTES_MAX], len: 0 };
        let written = line.write_fmt(words);
        debug_assert!(written.is_ok(), "a line takes all, and cuts it");
        let Ok(len) = u16::try_from(line.len) else { return false };
        let text = line.bytes.get(..line.len).unwrap_or_default();
        if self.queue.slots() < text.len() + 2 {
            return false;
        }
        self.queue.push_entire_slice(&len.to_le_bytes()).is_ok()
            && self.queue.push_entire_slice(text).is_ok()
    }
}

impl DebugSource {
    /// Takes the next line, if there is a whole one.
    pub(crate) fn take(&mut self) -> Option<String> {
        let head = self.queue.read_chunk(2).ok()?;
        let mut octets = head.as_slices().0.iter().chain(head.as_slices().1);
        let len = u16::from_le_bytes([*octets.next()?, *octets.next()?]);
        // Both are handed over apart: the text may come a moment later.
        let whole = self.queue.read_chunk(2 + usize::from(len)).ok()?;
        let (front, back) = whole.as_slices();
        let text: Vec<u8> = front.iter().chain(back).skip(2).copied().collect();
        whole.commit_all();
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(source: &mut DebugSource) -> Vec<String> {
        std::iter::from_fn(|| source.take()).collect()
    }

    #[test]
    fn lines_come_as_they_were_written_wherever_the_queue_wraps() {
        let (mut lines, mut source) = DebugLines::new();
        let mut longest = 0;
        for place in 0..20_000u64 {
            let text = format!("{place} {}", "x".repeat((place % 601) as usize));
            lines.write(place * 10_000_000, format_args!("{text}"));
            let cut = text.get(..LINE_BYTES_MAX).unwrap_or(&text);
            longest = longest.max(cut.len());
            assert_eq!(taken(&mut source), [cut]);
        }
        assert_eq!(longest, LINE_BYTES_MAX);
    }

    #[test]
    fn beyond_the_rate_lines_are_left_out_and_counted() {
        let (mut lines, mut source) = DebugLines::new();
        for _ in 0..LINES_PER_SECOND_MAX + 7 {
            lines.write(1, format_args!("short"));
        }
        assert_eq!(taken(&mut source).len(), LINES_PER_SECOND_MAX as usize);
        lines.write(1_000_000_000, format_args!("next"));
        assert_eq!(taken(&mut source), ["7 lines about connections were left out", "next"]);
    }

    #[test]
    fn a_full_queue_leaves_lines_out_and_never_half_of_one() {
        let (mut lines, mut source) = DebugLines::new();
        let text = "y".repeat(LINE_BYTES_MAX);
        for _ in 0..600 {
            lines.write(1, format_args!("{text}"));
        }
        let found = taken(&mut source);
        assert_eq!(found.len(), QUEUE_BYTES / (LINE_BYTES_MAX + 2));
        assert!(found.iter().all(|line| *line == text));
        lines.write(2, format_args!("next"));
        let left_out = 600 - found.len();
        let want = format!("{left_out} lines about connections were left out");
        assert_eq!(taken(&mut source), [want.as_str(), "next"]);
    }
}
