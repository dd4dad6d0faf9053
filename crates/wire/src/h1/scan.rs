//! How far an unfinished head was looked through.

use serde::{Deserialize, Serialize};

/// What is remembered of an unfinished section of lines (a head, or a trailer section) between
/// two looks at it, so that bytes that come one at a time cost no more than bytes that come at
/// once.
///
/// An unfinished section is read again from its start only when it may have ended, when it may
/// have crossed a limit, or when it has doubled since the last reading. So each byte is read a
/// small number of times, and wrong bytes are found long before a line ends, if not at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Bytes that were searched for an end.
    searched: u32,
    /// Reading again is due once there are this many bytes.
    due_len: u32,
}

impl Scan {
    /// Whether `input` is to be read (again), having grown since the last time.
    pub(crate) fn is_due(&mut self, input: &[u8]) -> bool {
        if input.len() >= self.due_len as usize {
            return true;
        }
        let from = (self.searched as usize).min(input.len());
        self.searched = crate::octets::narrow(input.len());
        let new = input.get(from..).unwrap_or_default();
        memchr::memchr_iter(b'\n', new).any(|at| ends_empty_line(input, from + at))
    }

    /// Remembers that `input` was read and is not finished. `limits` are lengths at which it is to
    /// be read again in any case.
    pub(crate) fn on_unfinished(&mut self, input: &[u8], limits: &[usize]) {
        let len = input.len();
        let due = limits.iter().copied().filter(|&limit| limit > len).fold(2 * len, usize::min);
        self.searched = crate::octets::narrow(len);
        // Nothing at all is due with its first byte.
        self.due_len = crate::octets::narrow(due.max(1));
    }

    /// Forgets everything: what comes next is another section.
    pub(crate) fn on_finished(&mut self) {
        *self = Self::default();
    }
}

/// Whether the LF at `at` ends a line that is empty, or would be if the peer meant well.
fn ends_empty_line(input: &[u8], at: usize) -> bool {
    matches!(input.get(..at).unwrap_or_default(), [] | [b'\r'] | [.., b'\n'] | [.., b'\n', b'\r'])
}
