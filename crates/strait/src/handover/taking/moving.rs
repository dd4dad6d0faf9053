//! Connections come, and then the place of the other process: from the listening sockets on until COMMIT.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use ::handover::{ALIVE_INTERVAL, BATCHES_MAX, Failure, Left, Message, MovingAction, TakerAction};
use control::{
    FormerState, HandoverChange, HandoverFact, HandoverNews, HandoverResult, HandoverStep,
};
use telemetry::FormerTotals;
use tls::ProcessSessions;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use wiped::Wiped;
use worker::Message as Mail;

use super::Taking;
use super::batches::{Batches, Finished};
use crate::data_path::{Contacts, DataPath};
use crate::handover::answers::answer_within;
use crate::handover::balancing;
use crate::handover::line::now;
use crate::handover::summary::Summary;
use crate::handover::timeouts::WORKER_TIMEOUT;
use crate::handover::topics::Topic;

/// How long connections are not accepted while it is not known which endpoints get no requests, ns.
const HEALTH_WAIT_MAX: u64 = 1_000_000_000;

/// Batches that workers are given beside the one that they are at.
const BATCHES_AHEAD: usize = 1;

/// A process to which connections come.
struct ConnectionTaker<'a> {
    taking: Taking,
    contacts: &'a Contacts,
    control: &'a Sender<HandoverStep<DataPath>>,
    sessions: &'a ProcessSessions,
    batches: Batches,
    /// When connections are accepted whatever is known of endpoints by then.
    accepts_by: Option<u64>,
}

/// How it ended.
enum Taken {
    /// This process has the place of the other one.
    Place,
    /// It has to end.
    Nothing,
}

impl Taking {
    /// Takes connections until this process is the one that serves; returns then, with what is left to hear of the former
    /// one. None if this process has to end.
    pub(crate) fn take_connections(
        self,
        contacts: &Contacts,
        control: &Sender<HandoverStep<DataPath>>,
        sessions: &ProcessSessions,
    ) -> Option<Self> {
        let accepts_by = Some(now().saturating_add(HEALTH_WAIT_MAX));
        let mut this = ConnectionTaker {
            taking: self,
            contacts,
            control,
            sessions,
            batches: Batches::default(),
            accepts_by,
        };
        match this.run() {
            Taken::Place => Some(this.taking),
            Taken::Nothing => {
                // Its connection ends with the process: the other one then knows that nothing is used here any more.
                mem::forget(this.taking);
                None
            }
        }
    }
}

impl ConnectionTaker<'_> {
    fn run(&mut self) -> Taken {
        self.begin();
        loop {
            // The other process does not accept either by now, perhaps.
            if self.accepts_by.take_if(|at| *at <= now()).is_some() {
                tracing::warn!(
                    "handover: the other process does not say what it knows of endpoints; connections are accepted without that"
                );
                self.contacts.deliver_to_all(|| Mail::AcceptAgain);
            }
            while let Some(action) = self.taking.taker.poll() {
                if !matches!(
                    action,
                    TakerAction::Send(_) | TakerAction::Moving(MovingAction::Take { .. })
                ) {
                    self.finish_batches(0);
                }
                match action {
                    TakerAction::Enter(phase) => {
                        let entered = self.taking.enter(phase);
                        self.news(entered);
                    }
                    TakerAction::Send(frame) => self.taking.send(&frame),
                    TakerAction::Moving(MovingAction::Commit { states, is_alone }) => {
                        return self.take_place(&states, is_alone);
                    }
                    TakerAction::Moving(action) => self.perform(action),
                    TakerAction::Stop(failure) => {
                        self.stop(&failure);
                        return Taken::Nothing;
                    }
                    // They came before, or come behind COMMIT.
                    TakerAction::Opening(_) | TakerAction::Following(_) | TakerAction::Finished => {
                    }
                }
            }
            // The next batch is read and handed to the workers while they are at the one before.
            let is_waiting = self.batches.is_empty();
            let has_heard = self.taking.report_and_hear(self.control, is_waiting);
            self.finish_batches(if has_heard { BATCHES_MAX } else { 0 });
        }
    }

    fn begin(&mut self) {
        let differing = Arc::new(mem::take(&mut self.taking.differing));
        self.contacts.deliver_to_all(|| Mail::Differing(Arc::clone(&differing)));
        let (pid, version) = (self.taking.line.peer.pid, self.taking.version.clone());
        self.news(HandoverNews::Began { is_giver: false, pid, version });
        for (phase, after_ms) in &self.taking.phases {
            self.news(HandoverNews::Phase(phase, *after_ms));
        }
        if self.contacts.ping(0..self.contacts.count(), WORKER_TIMEOUT).is_ok() {
            let unused = mem::take(&mut self.taking.unused);
            self.taking.taker.unused(unused);
            self.taking.taker.serving(now());
        } else {
            self.taking.taker.fail(Failure::Own("a worker did not start in time".to_owned()));
        }
    }

    fn perform(&mut self, action: MovingAction) {
        match action {
            MovingAction::Take { batch, groups } => {
                let descriptors = &mut self.taking.line.descriptors;
                self.batches.begin(batch, groups, descriptors, self.contacts);
                self.finish_batches(BATCHES_AHEAD);
            }
            MovingAction::Learned(topic) => {
                let state = self.taking.taker.state(&topic).unwrap_or_default();
                match Topic::named(&topic) {
                    Some(Topic::Health) => {
                        let health = state.to_vec();
                        self.learn(health);
                        self.accepts_by = None;
                        self.contacts.deliver_to_all(|| Mail::AcceptAgain);
                    }
                    Some(Topic::TicketKeys) => self.sessions.ring.adopt(state),
                    Some(Topic::Balancing) => balancing::restore(state, self.contacts),
                    // At COMMIT; and what another version knows.
                    Some(Topic::Totals | Topic::Slow | Topic::EarlySessions | Topic::Summary)
                    | None => {}
                }
            }
            MovingAction::EndSilent => self.end_silent(),
            // The end of it.
            MovingAction::Commit { .. } => {}
        }
    }

    /// This process cannot go on.
    fn stop(&mut self, failure: &Failure) {
        self.taking.send(&Message::Ends { reason: failure.to_string() }.encode());
        let reason = format!("this process cannot take over: {failure}");
        // Control ends the process.
        let _ = self.control.blocking_send(HandoverStep::Became(HandoverChange::Stop(reason)));
    }

    /// Becomes the process that serves, with what the other one knew.
    fn take_place(&mut self, states: &BTreeMap<String, Wiped>, is_alone: bool) -> Taken {
        // The former process may have ended before it said what it knew.
        self.contacts.deliver_to_all(|| Mail::AcceptAgain);
        // Before it is the process, which may be asked to end at once.
        self.contacts.former().keep(self.taking.line.try_clone().ok());
        if let Some(keys) = states.get(Topic::TicketKeys.name()) {
            self.sessions.ring.adopt(keys);
        }
        // None if the former process ended before: they ended with it.
        let early = states.get(Topic::EarlySessions.name());
        self.sessions.early.adopt(early.map_or(&[][..], |early| early.as_slice()));
        let said = |it: Topic| states.get(it.name()).map(|it| it.to_vec()).unwrap_or_default();
        let totals = states.get(Topic::Totals.name()).unwrap_or(&self.taking.counted_there);
        let totals = FormerTotals::read(totals);
        let state = FormerState { totals, health: said(Topic::Health), slow: said(Topic::Slow) };
        if let Some(listener) = &self.taking.listener {
            // From here on those who connect see this process as the other one.
            listener.own();
        }
        if !self.commit(state, is_alone) {
            return Taken::Nothing;
        }
        let summary = states.get(Topic::Summary.name()).and_then(|summary| Summary::read(summary));
        let phases = summary.as_ref().map(Summary::phases).unwrap_or_default();
        if !phases.is_empty() {
            self.news(HandoverNews::Phases(phases));
        }
        // What this process has refused is among what the other one lists.
        let own = mem::take(&mut self.taking.left);
        let left = summary.map_or(own, |summary| summary.left).into_iter();
        let left = left.map(|left| (left.reason, left.count)).collect();
        self.news(HandoverNews::Counted { moved: self.taking.moved, left });
        let result = match self.taking.is_return {
            true => HandoverResult::TakenBack,
            false => HandoverResult::Completed,
        };
        self.news(HandoverNews::Ended(result, String::new()));
        if self.taking.is_to_return {
            // Who asked for the upgrade is not to take this process for the one that serves.
            self.taking.taker.gives_back("it was asked to end while it took over");
        }
        self.taking.taker.committed();
        self.taking.send_all();
        self.contacts.deliver_to_all(|| Mail::SocketsAreOwn);
        Taken::Place
    }

    /// Has control go on as the process. False if it has ended: then the other process does.
    fn commit(&mut self, state: FormerState, is_alone: bool) -> bool {
        io::own_socket_files(true);
        let pid = self.taking.line.peer.pid;
        if is_alone {
            tracing::error!(pid, "the old process ended during the handover: this one continues");
        }
        let (reply, is_done) = oneshot::channel();
        let Taking { generation, is_return, .. } = self.taking;
        let step =
            HandoverStep::Became(HandoverChange::TakenOver { state, generation, is_return, reply });
        let is_sent = self.control.blocking_send(step).is_ok();
        let Some(is_to_return) = is_sent.then(|| self.wait_for(is_done)).flatten() else {
            return false;
        };
        self.taking.is_to_return = is_to_return;
        tracing::info!(pid, generation, "took over");
        true
    }

    /// Ends the other process, which is silent: this one goes on alone, with what it has by now.
    fn end_silent(&mut self) {
        let pid = self.taking.line.peer.pid;
        let is_over = self.taking.line.ends(self.taking.process.as_ref());
        if is_over {
            tracing::error!(
                pid,
                "the old process does not run any more (stopped or hanging): this one has killed it"
            );
            self.taking.taker.on_closed(now());
        } else {
            tracing::error!(
                pid,
                "the old process does not run any more (stopped or hanging), and this one cannot end it: this one gives up"
            );
            self.taking.taker.stop_for_silence();
        }
    }

    /// Says what came of each batch that workers have answered for, oldest first, and waits for them until no more than so many are
    /// under way.
    fn finish_batches(&mut self, count_max: usize) {
        while let Some(batch) = self.batches.next(count_max) {
            let finished = batch.finish(self.contacts, || self.taking.say_alive());
            let Some(finished) = finished else {
                self.batches.forget();
                return self.taking.taker.fail(Failure::Own("a worker does not answer".to_owned()));
            };
            let Finished { batch, taken, refused, is_busy } = finished;
            let is_first = self.taking.moved == 0;
            self.taking.moved += taken;
            if is_first {
                let moved = self.taking.moved;
                self.news(HandoverNews::Counted { moved, left: Vec::new() });
            }
            for refused in &refused {
                Left::add(&mut self.taking.left, &refused.reason, 1);
            }
            self.taking.taker.taken(batch, refused, is_busy, now());
        }
    }

    /// Has this process know what the other one knew of endpoints, before it accepts connections.
    fn learn(&mut self, health: Vec<u8>) {
        let (reply, is_learned) = oneshot::channel();
        let step = HandoverStep::Heard(HandoverFact::Learned { health, reply });
        // Control ends with the process, and answers no later than it builds a configuration.
        if self.control.blocking_send(step).is_ok() {
            self.wait_for(is_learned);
        }
    }

    /// Waits for an answer of control, and says to the other process that this one is there. None if control ends.
    fn wait_for<T>(&mut self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        loop {
            if let Some(answer) = answer_within(&mut answer, ALIVE_INTERVAL) {
                return answer;
            }
            self.taking.say_alive();
        }
    }

    fn news(&self, news: HandoverNews) {
        // Control ends with the process.
        let _ = self.control.blocking_send(HandoverStep::Heard(HandoverFact::News(news)));
    }
}
