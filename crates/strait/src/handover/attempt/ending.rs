//! The other process does not answer, or has ended: this one ends it, goes on in its place, or stands in for it.

use ::handover::Failure;
use control::{HandoverChange, HandoverNews, HandoverResult};
use worker::Message as Mail;

use super::super::giving::End;
use super::super::line::{now, runs_on};
use super::super::requester::{Conclusion, reap};
use super::{Attempt, process_text};

impl Attempt<'_> {
    /// Ends the other process, which may still use what it was given and has to be given up otherwise; says whether it is over.
    pub(super) fn end_peer(&self) -> bool {
        let is_over = self.line.ends(self.process.as_ref());
        if !is_over {
            let pid = self.line.peer.pid;
            tracing::error!(
                pid,
                "the other process cannot be ended: connections that it may still use are reset"
            );
        }
        is_over
    }

    /// Ends the new process, which was asked to commit and does not answer as it should, so that this one can take everything back.
    pub(super) fn end_committing(&mut self, failure: Failure) {
        if self.line.ends(self.process.as_ref()) {
            return self.giver.on_ended(failure);
        }
        let pid = self.line.peer.pid;
        tracing::error!(
            pid,
            "the new process cannot be ended, and serves alone as soon as it runs: {failure}"
        );
        let reason = format!(
            "{} was asked to serve, and can neither be ended nor does it answer: it has the connections, and serves as soon as it runs; \
             until then this process accepts new ones ({failure})",
            process_text(pid)
        );
        if let Some(asked) = self.asked.take() {
            self.child = asked.conclude(Conclusion::Continues, reason);
        }
        self.giver.on_not_ended(now());
    }

    /// Ends the new process, which is silent in its probation, so that this one can accept again.
    pub(super) fn end_silent(&mut self) {
        // Otherwise this one stands in for it, and says so.
        if self.line.ends(self.process.as_ref()) {
            let pid = self.line.peer.pid;
            tracing::error!(
                pid,
                "the new process does not run any more (stopped or hanging): this one has killed it"
            );
            self.giver.on_closed();
        }
    }

    pub(super) fn accept_again(&mut self) -> End {
        let pid = self.line.peer.pid;
        if !runs_on(self.process.as_ref()) {
            tracing::error!(
                pid,
                "the new process ended during its probation: this one accepts connections again"
            );
        } else if self.line.ends(self.process.as_ref()) {
            // Two would be the process.
            tracing::error!(
                pid,
                "the new process closed its connection to this one, and was killed: this one accepts connections again"
            );
        } else {
            tracing::error!(
                pid,
                "the new process closed its connection to this one, which cannot end it: both accept connections; end that one"
            );
        }
        reap(self.child.take());
        io::own_socket_files(true);
        self.giving.set_access();
        // The other one had become the process there.
        self.giving.listener.own();
        self.giving.sessions.early.reopen();
        self.giving.contacts.deliver_to_all(|| Mail::AcceptAgain);
        let reason = "it ended during its probation".to_owned();
        self.news(HandoverNews::Ended(HandoverResult::StoodIn, reason));
        self.become_again(|totals| HandoverChange::AcceptAgain { totals });
        End::Back
    }
}
