//! What the other process hears beside connections.

use ::handover::Phase;
use control::{HandoverStep, Summary};
use tokio::sync::oneshot;
use wiped::Wiped;

use super::super::leaving::{slow, summary};
use super::super::line::now;
use super::super::{BALANCING, EARLY_SESSIONS, HEALTH, SLOW, TICKET_KEYS, TOTALS, balancing};
use super::Attempt;

impl Attempt<'_> {
    pub(super) fn summary(&self) -> Option<Summary> {
        summary(&self.giving.control, self.is_return)
    }

    /// Says what this process knows, while it is not certain that the other one becomes the process: that one serves already, and
    /// goes on alone if this one ends. What it needs to accept connections comes first.
    pub(super) fn inform(&mut self, is_first: bool) {
        let states = if is_first {
            let (reply, health) = oneshot::channel();
            self.step(HandoverStep::SaveHealth(reply));
            let Ok(health) = health.blocking_recv() else { return };
            vec![
                (HEALTH.to_owned(), Wiped::from(health)),
                (TICKET_KEYS.to_owned(), self.giving.sessions.ring.write().into()),
                // Not again at COMMIT: the other process takes its own turns from here on.
                (BALANCING.to_owned(), balancing::save(&self.giving.contacts).into()),
            ]
        } else {
            let (control, is_own) = (&self.giving.control, self.is_return);
            let summary = self.updates.next(now(), || summary(control, is_own)).flatten();
            let Some(summary) = summary else { return };
            vec![(TOTALS.to_owned(), summary.totals.into())]
        };
        self.giver.inform(&states);
    }

    /// What else goes along when the other process becomes the process.
    pub(super) fn whole_state(&self) -> Option<Vec<(String, Wiped)>> {
        let Summary { totals, health, .. } = self.summary()?;
        let sessions = &self.giving.sessions;
        Some(vec![
            (TOTALS.to_owned(), totals.into()),
            (HEALTH.to_owned(), health.into()),
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
            if let Some(summary) = self.updates.next(at, || summary(control, is_own)).flatten() {
                self.giver.update(&[(TOTALS.to_owned(), summary.totals.into())]);
            }
        }
    }
}
