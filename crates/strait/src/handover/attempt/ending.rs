//! The other process does not answer, or has ended: this one ends it, goes on in its place, or stands in for it.

use ::handover::{Failure, PeerLife};
use control::{HandoverChange, HandoverNews, HandoverResult};
use tokio::sync::oneshot;
use worker::Message as Mail;

use super::super::giving::End;
use super::super::line::{now, runs_on};
use super::super::requester::{Conclusion, reap};
use super::super::timeouts::MAILBOX_TIMEOUT;
use super::{Attempt, process_text};

impl Attempt<'_> {
    /// Nothing is handed over: this process goes on with everything.
    pub(super) fn roll_back(&mut self, failure: &Failure, peer: PeerLife) -> End {
        let pid = self.line.peer.pid;
        let is_over = match peer {
            PeerLife::Over => true,
            PeerLife::Closed => !runs_on(self.process.as_ref()) || self.end_peer(),
            PeerLife::InDoubt => self.end_peer(),
        };
        self.giving.sessions.early.reopen();
        let (returned, ended) = self.outgoing.return_all(is_over);
        if !self.accepting.is_on() {
            io::own_socket_files(true);
            // The other one may have become the process before it could say so.
            self.giving.listener.own();
            self.giving.contacts.deliver_to_all(|| Mail::AcceptAgain);
        }
        // A newer configuration comes behind what continues with this one.
        self.giving.contacts.flush(MAILBOX_TIMEOUT);
        self.count();
        self.news(HandoverNews::Failed(failure.word()));
        let result = HandoverResult::RolledBack;
        self.news(HandoverNews::Ended(result, failure.to_string()));
        let conclusion = self.go_on();
        if let Some(omitted) = self.room_in_log() {
            let omitted = Some(omitted).filter(|it| *it > 0);
            tracing::error!(
                pid,
                returned,
                ended,
                omitted,
                "the handover is rolled back: {failure}"
            );
        }
        let mut reason = failure.to_string();
        if let Some(mut asked) = self.asked.take() {
            let status = asked.child.as_mut().and_then(|child| child.try_wait().ok()?);
            if let Some(status) = status {
                reason = format!("{reason} ({status})");
            }
            if returned + ended > 0 {
                reason = format!("{reason}; {returned} groups continue, {ended} were closed");
            }
            asked.finish(conclusion, reason);
        }
        End::Back
    }

    /// Has control go on as before, unless it was asked to end meanwhile.
    fn go_on(&self) -> Conclusion {
        let (reply, ends) = oneshot::channel();
        self.become_again(|totals| HandoverChange::RolledBack { totals, reply });
        // Control ends with the process.
        if ends.blocking_recv().unwrap_or(true) { Conclusion::Ends } else { Conclusion::Continues }
    }

    /// The other process has compared the configurations, and ends.
    pub(super) fn on_checked(&mut self) -> End {
        self.news(HandoverNews::Ended(HandoverResult::Checked, String::new()));
        self.go_on();
        if let Some(omitted) = self.room_in_log() {
            let (pid, omitted) = (self.line.peer.pid, Some(omitted).filter(|it| *it > 0));
            tracing::info!(pid, omitted, "compared with another process's configuration");
        }
        if let Some(asked) = self.asked.take() {
            asked.finish(Conclusion::Done, "checked: this process continues".to_owned());
        }
        End::Back
    }

    /// Whether the log has room for how this ended, and how many ends it had none for before: of attempts by themselves, without listening
    /// sockets, it has one a second.
    fn room_in_log(&self) -> Option<u64> {
        let is_in_log = self.asked.is_some() || self.phases_logged > 0;
        if is_in_log { Some(0) } else { self.giving.early_ends.next(now()) }
    }

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
        let mut reason = "it ended during its probation";
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
            reason = "it closed its connection during its probation, and cannot be ended";
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
        self.news(HandoverNews::Ended(HandoverResult::StoodIn, reason.to_owned()));
        self.become_again(|totals| HandoverChange::AcceptAgain { totals });
        End::Back
    }
}
