//! How an attempt ends: the taker is the process, or this one goes on.

use super::{Giver, GiverAction, PeerLife, Standby, State};
use crate::deadlines::{Phase, later};
use crate::failure::Failure;
use crate::message::Message;
use crate::pieces::shortened;

impl Giver {
    /// The connection to the other process is over.
    pub fn on_closed(&mut self) {
        match self.state {
            State::InDoubt | State::Ended => {}
            State::Leaving => self.state = State::Ended,
            State::Probation(_) => {
                self.state = State::Ended;
                self.actions.push(GiverAction::AcceptAgain);
            }
            _ => {
                let why = self.why_taker_ends.take().map(Failure::GaveUp);
                let failure = why.unwrap_or_else(|| Failure::Closed(self.phase()));
                let peer = if self.has_given() { PeerLife::Closed } else { PeerLife::Over };
                self.roll_back(failure, peer);
            }
        }
    }

    /// Probation is over, and the service manager has heard that the taker is the main process of the service.
    pub fn main_process(&mut self) {
        if matches!(self.state, State::Leaving) {
            self.send(&Message::MainProcess);
        }
    }

    /// The taker is the process, or becomes it as soon as it runs.
    pub(super) fn begin_probation(&mut self, standby: Standby, now: u64) {
        self.actions.push(GiverAction::Committed);
        self.enter(State::Probation(standby));
        self.deadline = later(now, self.deadlines.probation);
    }

    /// A taker that was asked to commit was ended, as [`GiverAction::EndCommitting`] asked: everything is this process's own again.
    pub fn on_ended(&mut self, failure: Failure) {
        if matches!(self.state, State::InDoubt) {
            self.roll_back(failure, PeerLife::Over);
        }
    }

    /// It could not be ended, and may be the process as soon as it runs again: this one does not take anything back, and accepts until
    /// it hears from the taker, or that ends.
    pub fn on_not_ended(&mut self, now: u64) {
        if matches!(self.state, State::InDoubt) {
            self.awaits_committed = true;
            self.begin_probation(Standby::StandingIn, now);
            self.actions.push(GiverAction::StandIn);
        }
    }

    pub(super) fn finish(&mut self) {
        self.state = State::Leaving;
        self.actions.push(GiverAction::Enter(Phase::Done));
        self.actions.push(GiverAction::Finish);
    }

    /// This side cannot go on: the attempt is over.
    pub fn fail(&mut self, failure: Failure) {
        let is_over = matches!(
            self.state,
            State::InDoubt | State::Ended | State::Probation(_) | State::Leaving
        );
        if is_over {
            return;
        }
        let is_asked = !self.actions.drop_unsent() && matches!(self.state, State::Committing);
        if is_asked {
            self.state = State::InDoubt;
            return self.actions.push(GiverAction::EndCommitting(failure));
        }
        self.give_up(failure);
    }

    /// The same where the last frame was not sent: what the taker was not asked it does not do.
    pub fn fail_unsent(&mut self, failure: Failure) {
        if matches!(self.state, State::Committing) {
            self.actions.drop_unsent();
            self.give_up(failure);
        } else {
            self.fail(failure);
        }
    }

    pub(super) fn give_up(&mut self, failure: Failure) {
        self.send(&Message::GiveUp { reason: shortened(failure.to_string()) });
        let peer = if self.has_given() { PeerLife::InDoubt } else { PeerLife::Over };
        self.roll_back(failure, peer);
    }

    /// Whether the other process has sockets of this one.
    pub(super) const fn has_given(&self) -> bool {
        matches!(
            self.state,
            State::Serving { .. } | State::Moving(_) | State::Summarizing | State::Committing
        )
    }

    pub(super) fn roll_back(&mut self, failure: Failure, peer: PeerLife) {
        self.state = State::Ended;
        self.actions.push(GiverAction::RollBack { failure, peer });
    }
}
