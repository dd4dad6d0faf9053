//! What a process has counted, as far as another process reads it.

use ::handover::STATE_BYTES_MAX;
use control::{HandoverQuestion, HandoverStep};
use telemetry::Readings;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use wiped::Wiped;

use crate::data_path::DataPath;

/// What a process has counted, a series in each line.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) bytes: Wiped,
    /// Series for which there was no room.
    dropped: usize,
}

impl Totals {
    /// As many of these lines as another process reads, the short ones first: those of counters are worth more than those of histograms,
    /// of which each has the room of fifty. Connections are worth more than any of them.
    pub(super) fn bounded(bytes: Vec<u8>) -> Self {
        Self::bounded_by(bytes, STATE_BYTES_MAX as usize)
    }

    /// The same with so many bytes at most.
    pub(super) fn bounded_by(bytes: Vec<u8>, bytes_max: usize) -> Self {
        if bytes.len() <= bytes_max {
            return Self { bytes: bytes.into(), dropped: 0 };
        }
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        lines.sort_by_key(|line| line.len());
        let mut len = 0;
        let fit = lines.iter().take_while(|line| {
            len += line.len();
            len <= bytes_max
        });
        let fit = fit.count();
        let dropped = lines.len() - fit;
        lines.truncate(fit);
        Self { bytes: lines.concat().into(), dropped }
    }

    /// Says what the other process does not get, if that is anything.
    pub(super) fn report(&self) {
        let Self { dropped, .. } = self;
        if *dropped > 0 {
            tracing::warn!(
                dropped,
                "handover: the counters have more than {STATE_BYTES_MAX} bytes: these series begin anew in the new process"
            );
        }
    }
}

/// What this process has counted: all, or without what others had counted, which the one that asks has. None if control has ended.
pub(super) fn totals(control: &Sender<HandoverStep<DataPath>>, is_own: bool) -> Option<Totals> {
    let (reply, readings) = oneshot::channel();
    control.blocking_send(HandoverStep::Ask(HandoverQuestion::Count(reply))).ok()?;
    let readings: Readings = readings.blocking_recv().ok()?;
    let totals = if is_own { readings.write_own_totals() } else { readings.write_totals() };
    Some(Totals::bounded(totals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_by_lines_the_longest_first() {
        let lines = b"a long line of a histogram 1 2 3\na\tn 1\nanother histogram 1 2 3 4 5 6 7 8\nb\tn 2\n";
        let bounded = |max| {
            let Totals { bytes, dropped } = Totals::bounded_by(lines.to_vec(), max);
            (String::from_utf8(bytes.to_vec()).unwrap(), dropped)
        };
        assert_eq!(bounded(lines.len()).0.as_bytes(), lines);
        let all_but_one = "a\tn 1\nb\tn 2\na long line of a histogram 1 2 3\n";
        assert_eq!(bounded(50), (all_but_one.to_owned(), 1));
        assert_eq!(bounded(13), ("a\tn 1\nb\tn 2\n".to_owned(), 2));
        assert_eq!(bounded(1), (String::new(), 4));
    }
}
