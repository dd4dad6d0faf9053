//! What the other process hears beside connections.

use ::handover::Phase;
use control::{HandoverQuestion, HandoverStep};
use tokio::sync::oneshot;
use wiped::Wiped;

use super::super::balancing;
use super::super::leaving::slow;
use super::super::line::now;
use super::super::summary::Summary;
use super::super::topics::{Sent, Topic};
use super::super::totals::totals;
use super::Attempt;

impl Attempt<'_> {
    /// Says what this process knows, while it is not certain that the other one becomes the process: that one serves already, and
    /// goes on alone if this one ends. What it needs to accept connections comes first.
    pub(super) fn inform(&mut self, is_first: bool) {
        let states: Vec<_> = if is_first {
            let Some(states) = Topic::written(Sent::Serving, |it| self.write(it)) else { return };
            states
        } else {
            let (control, is_own) = (&self.giving.control, self.is_return);
            let totals = self.updates.next(now(), || totals(control, is_own)).flatten();
            let Some(totals) = totals.map(|totals| totals.bytes) else { return };
            // What is found out or decided meanwhile concerns the connections that the other process accepts.
            let health = self.health().filter(|health| *health != self.health_said);
            let health = health.map(|health| (Topic::Health.name().to_owned(), health));
            let totals = (Topic::Totals.name().to_owned(), totals);
            health.into_iter().chain([totals]).collect()
        };
        if let Some((_, health)) = states.iter().find(|(it, _)| it == Topic::Health.name()) {
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
        Topic::written(Sent::Commit, |topic| self.write(topic))
    }

    /// What this process has of a topic; none if control has ended.
    fn write(&mut self, topic: Topic) -> Option<Wiped> {
        let giving = self.giving;
        let (control, sessions) = (&giving.control, &giving.sessions);
        Some(match topic {
            Topic::Totals => {
                let totals = totals(control, self.is_return)?;
                totals.report();
                totals.bytes
            }
            Topic::Health => self.health()?,
            Topic::Slow => slow(control).into(),
            Topic::TicketKeys => sessions.ring.write().into(),
            // From here on this process has no memory of them, whatever comes.
            Topic::EarlySessions => sessions.early.give().into(),
            Topic::Balancing => balancing::save(&giving.contacts).into(),
            Topic::Summary => Summary::new(self.left(), &self.phases).write().into(),
        })
    }

    /// Tells the new process what this one has counted by now.
    pub(super) fn update(&mut self, at: u64) {
        if self.giver.phase() == Phase::Probation && !self.line.is_full() {
            let (control, is_own) = (&self.giving.control, self.is_return);
            if let Some(totals) = self.updates.next(at, || totals(control, is_own)).flatten() {
                self.giver.update(&[(Topic::Totals.name().to_owned(), totals.bytes)]);
            }
        }
    }
}
