//! The trace of a simulation: one number over all events, and the last ones as text.

use std::collections::VecDeque;

use proxy::time::Time;

use crate::random::mix;

/// Lines kept as text.
const LINES_MAX: usize = 400;

/// The trace of a run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    count: u64,
    lines: Option<VecDeque<String>>,
    /// Whether lines go to standard error as they happen.
    is_loud: bool,
}

impl Trace {
    /// Keeps the last lines as text from now on.
    pub fn keep_lines(&mut self) {
        self.lines.get_or_insert_default();
    }

    /// Prints every line from now on.
    pub const fn be_loud(&mut self) {
        self.is_loud = true;
    }

    /// Adds an event: its kind, its place, and its bytes or a number.
    pub fn note(&mut self, now: Time, what: &'static str, place: u64, bytes: &[u8]) {
        self.count += 1;
        let mut hash = mix(self.hash ^ now.as_nanos());
        hash = mix(hash ^ place ^ (what.len() as u64) << 56);
        hash = what.bytes().fold(hash, |hash, byte| hash.rotate_left(5) ^ u64::from(byte));
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word))
                .wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        self.hash = mix(hash ^ bytes.len() as u64);
        if self.is_loud || self.lines.is_some() {
            self.keep(now, what, place, bytes);
        }
    }

    #[cold]
    fn keep(&mut self, now: Time, what: &str, place: u64, bytes: &[u8]) {
        let seconds = now.as_nanos() / 1_000_000_000;
        let nanos = now.as_nanos() % 1_000_000_000;
        let shown = bytes.get(..bytes.len().min(72)).unwrap_or_default().escape_ascii();
        let length = bytes.len();
        let line = format!("{seconds:>5}.{nanos:09} {what:<14} {place:<6} {length:>6} {shown}");
        if self.is_loud {
            #[expect(clippy::print_stderr, reason = "asked for on the command line")]
            {
                eprintln!("{line}");
            }
        }
        if let Some(lines) = &mut self.lines {
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    }

    /// One number over everything that was noted. Two runs with the same number were the same.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// How much was noted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The last lines.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().flatten().map(|line| format!("{line}\n")).collect()
    }
}
