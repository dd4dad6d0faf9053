//! How far an unfinished head was looked through.

use serde::{Deserialize, Serialize};

/// The progress through an unfinished section of lines (a head, or a trailer section) between two
/// looks at it, so that bytes that come one at a time cost no more than bytes that come at
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
    /// Whether some of the section was there, and not all of it.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.searched > 0
    }

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

    /// Resets the scan for the next section.
    pub(crate) fn on_finished(&mut self) {
        *self = Self::default();
    }
}

/// Whether the LF at `at` ends a line that is empty, or would be if the peer meant well.
fn ends_empty_line(input: &[u8], at: usize) -> bool {
    matches!(input.get(..at).unwrap_or_default(), [] | [b'\r'] | [.., b'\n'] | [.., b'\n', b'\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a section that comes octet by octet is read, if it never ends.
    fn readings(input: &[u8], limits: &[usize]) -> Vec<usize> {
        let mut scan = Scan::default();
        let mut readings = Vec::new();
        for len in 0..=input.len() {
            let input = &input[..len];
            if scan.is_due(input) {
                readings.push(len);
                scan.on_unfinished(input, limits);
            }
        }
        readings
    }

    #[test]
    fn what_does_not_end_is_read_when_it_has_doubled() {
        let input = b"x: y\r\n".repeat(10_000);
        let read = readings(&input, &[]);
        assert_eq!(read[..5], [0, 1, 2, 4, 8]);
        assert!(read.iter().sum::<usize>() < 2 * input.len(), "each octet about once more");
    }

    #[test]
    fn what_may_end_is_read_at_once() {
        let read = readings(b"a: b\r\nc: d\r\n\r\nx", &[]);
        assert_eq!(read, [0, 1, 2, 4, 8, 14]);
        assert_eq!(readings(b"aaaaaaaaa\n\nxxx", &[]), [0, 1, 2, 4, 8, 11]);
        assert_eq!(readings(b"aaaaaaaaa\r\nxxx", &[]), [0, 1, 2, 4, 8]);
        assert_eq!(readings(b"\r\n\r\n", &[]), [0, 1, 2, 4]);
    }

    #[test]
    fn no_octet_is_searched_twice() {
        let mut scan = Scan::default();
        scan.on_unfinished(b"abcd", &[]);
        assert!(!scan.is_due(b"abcd\r\n"));
        assert_eq!(scan, Scan { searched: 6, due_len: 8 });
    }

    #[test]
    fn what_may_cross_a_limit_is_read_there() {
        assert_eq!(readings(&[b'a'; 20], &[5, 11]), [0, 1, 2, 4, 5, 10, 11]);
    }

    #[test]
    fn an_end_is_found_in_any_cut_around_it() {
        let input = b"aaaaaaaaa\r\n\r\n";
        for before in 9..input.len() {
            let mut scan = Scan::default();
            scan.on_unfinished(&input[..9], &[]);
            assert!(!scan.is_due(&input[..before]), "{before}");
            assert!(scan.is_due(input), "{before}");
        }
    }
}
