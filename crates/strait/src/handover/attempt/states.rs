//! What the other process hears beside connections.

use ::handover::Phase;
use control::{HandoverQuestion, HandoverStep};
use tokio::sync::oneshot;
use wiped::Wiped;

use super::super::leaving::slow;
use super::super::line::now;
use super::super::summary::Summary;
use super::super::totals::totals;
use super::super::{
    BALANCING, EARLY_SESSIONS, HEALTH, SLOW, SUMMARY, TICKET_KEYS, TOTALS, balancing,
};
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
            let Some(totals) = totals.map(|totals| totals.bytes) else { return };
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
    pub(super) fn whole_state(&mut self) -> Option<Vec<(String, Wiped)>> {
        let totals = totals(&self.giving.control, self.is_return)?;
        let sessions = &self.giving.sessions;
        totals.report();
        Some(vec![
            (TOTALS.to_owned(), totals.bytes),
            (HEALTH.to_owned(), self.health()?),
            (SLOW.to_owned(), slow(&self.giving.control).into()),
            (TICKET_KEYS.to_owned(), sessions.ring.write().into()),
            // From here on this process has no memory of them, whatever comes.
            (EARLY_SESSIONS.to_owned(), sessions.early.give().into()),
            (SUMMARY.to_owned(), Summary::new(self.left(), &self.phases).write().into()),
        ])
    }

    /// Tells the new process what this one has counted by now.
    pub(super) fn update(&mut self, at: u64) {
        if self.giver.phase() == Phase::Probation && !self.line.is_full() {
            let (control, is_own) = (&self.giving.control, self.is_return);
            if let Some(totals) = self.updates.next(at, || totals(control, is_own)).flatten() {
                self.giver.update(&[(TOTALS.to_owned(), totals.bytes)]);
            }
        }
    }
}
