//! What the other process hears beside connections.

use ::handover::{Phase, STATE_BYTES_MAX};
use control::{HandoverQuestion, HandoverStep};
use tokio::sync::oneshot;
use wiped::Wiped;

use super::super::leaving::{slow, totals};
use super::super::line::now;
use super::super::{BALANCING, EARLY_SESSIONS, HEALTH, SLOW, TICKET_KEYS, TOTALS, balancing};
use super::Attempt;

impl Attempt<'_> {
    /// Says what this process knows, while it is not certain that the other one becomes the process: that one serves already, and
    /// goes on alone if this one ends. What it needs to accept connections comes first.
    pub(super) fn inform(&mut self, is_first: bool) {
        let states: Vec<_> = if is_first {
            let Some(health) = self.health() else { return };
            vec![
                (HEALTH.to_owned(), health),
                (TICKET_KEYS.to_owned(), self.giving.sessions.ring.write().into()),
                // Not again at COMMIT: the other process takes its own turns from here on.
                (BALANCING.to_owned(), balancing::save(&self.giving.contacts).into()),
            ]
        } else {
            let (control, is_own) = (&self.giving.control, self.is_return);
            let totals = self.updates.next(now(), || totals(control, is_own)).flatten();
            let Some(totals) = totals else { return };
            // What is found out or decided meanwhile concerns the connections that the other process accepts.
            let health = self.health().filter(|health| *health != self.health_said);
            let health = health.map(|health| (HEALTH.to_owned(), health));
            health.into_iter().chain([(TOTALS.to_owned(), totals)]).collect()
        };
        if let Some((_, health)) = states.iter().find(|(topic, _)| topic == HEALTH) {
            self.health_said = health.clone();
        }
        self.giver.inform(&states);
    }

    /// What this process knows of endpoints; none if control has ended.
    fn health(&self) -> Option<Wiped> {
        let (reply, health) = oneshot::channel();
        self.step(HandoverStep::Ask(HandoverQuestion::SaveHealth(reply)));
        health.blocking_recv().ok().map(Wiped::from)
    }

    /// What else goes along when the other process becomes the process.
    pub(super) fn whole_state(&self) -> Option<Vec<(String, Wiped)>> {
        let totals = totals(&self.giving.control, self.is_return)?;
        let sessions = &self.giving.sessions;
        let totals = bounded(totals, STATE_BYTES_MAX as usize);
        Some(vec![
            (TOTALS.to_owned(), totals),
            (HEALTH.to_owned(), self.health()?),
            (SLOW.to_owned(), slow(&self.giving.control).into()),
            (TICKET_KEYS.to_owned(), sessions.ring.write().into()),
            // From here on this process has no memory of them, whatever comes.
            (EARLY_SESSIONS.to_owned(), sessions.early.give().into()),
        ])
    }

    /// Tells the new process what this one has counted by now.
    pub(super) fn update(&mut self, at: u64) {
        if self.giver.phase() == Phase::Probation && !self.line.is_full() {
            let (control, is_own) = (&self.giving.control, self.is_return);
            if let Some(totals) = self.updates.next(at, || totals(control, is_own)).flatten() {
                self.giver.update(&[(TOTALS.to_owned(), totals)]);
            }
        }
    }
}

/// As many of these lines as fit, the short ones first: those of counters are worth more than those of histograms, of which each has
/// the room of fifty. Connections are worth more than any of them.
pub(crate) fn bounded(totals: Wiped, bytes_max: usize) -> Wiped {
    if totals.len() <= bytes_max {
        return totals;
    }
    let mut lines: Vec<&[u8]> = totals.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_by_key(|line| line.len());
    let (mut len, count) = (0, lines.len());
    let fit = lines.iter().take_while(|line| {
        len += line.len();
        len <= bytes_max
    });
    let kept: Vec<u8> = fit.copied().flatten().copied().collect();
    let dropped = count - kept.iter().filter(|byte| **byte == b'\n').count();
    tracing::warn!(
        dropped,
        "handover: the counters have more than {bytes_max} bytes: these series begin anew in the new process"
    );
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_by_lines_the_longest_first() {
        let lines = b"a long line of a histogram 1 2 3\na\tn 1\nanother histogram 1 2 3 4 5 6 7 8\nb\tn 2\n";
        let bounded =
            |max| String::from_utf8(bounded(lines.to_vec().into(), max).to_vec()).unwrap();
        assert_eq!(bounded(lines.len()).as_bytes(), lines);
        assert_eq!(bounded(50), "a\tn 1\nb\tn 2\na long line of a histogram 1 2 3\n");
        assert_eq!(bounded(13), "a\tn 1\nb\tn 2\n");
        assert_eq!(bounded(1), "");
    }
}
