//! Control's part in a handover: what is read, served and reported, and by which of the two processes.

use std::sync::Arc;
use std::time::Duration;

use telemetry::FormerTotals;
use telemetry::events::{HandoverEnded, HandoverFailed};
use tokio::sync::{mpsc, oneshot};

use super::handing::{EndAsked, ForServer, Handing};
use super::{Reading, Running, State};
use crate::admin::{AdminSocket, Scope, Server, own_admin_files};
use crate::clock;
use crate::handover::{
    Begun, HandoverChange, HandoverFact, HandoverQuestion, HandoverStep, KeptAdmin,
};
use crate::handover_report::HandoverNews;
use crate::log_writer::SlowForm;
use crate::names::label;
use crate::run::Outcome;
use crate::workers::Workers;

/// How long the last counts of a process may take to be asked for, at its end.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_millis(500);

/// How often a process that is in a handover may be asked to end until it does so at once.
const POSTPONED_MAX: u32 = 2;

/// How long a handover waits for slow requests, which are with the thread of the access log.
const SLOW_WAIT_MAX: Duration = Duration::from_millis(200);

impl<W: Workers> Running<W> {
    pub(super) fn on_handover(&mut self, step: HandoverStep<W>) {
        match step {
            HandoverStep::Ask(question) => self.on_handover_question(question),
            HandoverStep::Became(change) => self.on_handover_change(change),
            HandoverStep::Heard(fact) => self.on_handover_fact(fact),
        }
    }

    fn on_handover_question(&mut self, question: HandoverQuestion<W>) {
        match question {
            HandoverQuestion::Begin(reply) => {
                // One that waits is of a giver that has given up: there is one at a time.
                self.begin_waits = Some(reply);
                self.kept.hurry();
                self.begin_when_read();
            }
            HandoverQuestion::Count(reply) => {
                let _ = reply.send(self.collector.readings_to_give());
            }
            HandoverQuestion::CountOwn(reply) => {
                let _ = reply.send(self.collector.readings());
            }
            HandoverQuestion::SaveHealth(reply) => {
                let _ = reply.send(self.write_health());
                if matches!(self.handing, Handing::Giving { .. }) {
                    // The other process accepts connections, and has it from here on.
                    self.config.drains.answer_waiting();
                }
            }
            HandoverQuestion::SaveSlow(reply) => self.save_slow(reply),
            HandoverQuestion::BeginReturn(reply) => {
                if let Handing::Given { successor, end, .. } = self.handing
                    && self.state == State::Ready
                {
                    let asked_to_end = u32::from(end != EndAsked::No);
                    let for_server = ForServer::default();
                    self.handing = Handing::TakingBack { successor, asked_to_end, for_server };
                    let _ = reply.send(Arc::clone(&self.config.snapshot));
                }
            }
            HandoverQuestion::List { worker, slot, reply } => self.list(worker, slot, reply),
        }
    }

    fn on_handover_change(&mut self, change: HandoverChange) {
        match change {
            HandoverChange::RolledBack { totals, reply } => {
                self.collector.go_on_from(totals);
                // One that was refused before it began gave nothing.
                if matches!(self.handing, Handing::Giving { .. }) {
                    self.others.on_rolled_back(clock::monotonic_ns());
                }
                self.end_giving();
                // Who asked for it may be gone.
                let _ = reply.send(self.state != State::Ready);
            }
            HandoverChange::Committed { successor, is_return, kept_admin, reply } => {
                self.others.on_successor(is_return);
                self.admin_handles.set_kept(kept_admin);
                self.hand_over(successor);
                let _ = reply.send(());
            }
            HandoverChange::AcceptAgain { totals } => {
                self.collector.go_on_from(totals);
                self.others.on_rolled_back(clock::monotonic_ns());
                self.be_the_process_again();
            }
            HandoverChange::StandIn { totals } => {
                if let Handing::Given { stands_in, .. } = &mut self.handing
                    && self.state == State::Ready
                {
                    *stands_in = true;
                    self.collector.stand_in_for(totals);
                    self.serve_admin();
                }
            }
            HandoverChange::StandBack => {
                if let Handing::Given { stands_in, .. } = &mut self.handing {
                    *stands_in = false;
                    self.collector.stand_in_for(FormerTotals::default());
                    self.release_servers();
                }
            }
            HandoverChange::NotReturned => {
                if let Handing::TakingBack { successor, asked_to_end, for_server } = self.handing {
                    self.handing = Handing::given(successor);
                    let ends = self.pass_noted_on(for_server);
                    let is_own = asked_to_end > 0 && !for_server.is_to_end;
                    if (ends || is_own) && self.state == State::Ready {
                        self.end();
                    }
                }
            }
            // This process ends at once: without a reply, the other one stays.
            HandoverChange::TakenOver { .. } if self.state == State::Stopping => {}
            HandoverChange::TakenOver { mut state, generation, is_return, reply } => {
                self.collector.set_generation(generation);
                self.handover_report.generation = generation;
                let (was_to_end, for_server) = match self.handing {
                    Handing::Taking { is_to_end, .. } => (is_to_end, ForServer::default()),
                    Handing::TakingBack { asked_to_end, for_server, .. } => {
                        (asked_to_end > 0, for_server)
                    }
                    Handing::None | Handing::Giving { .. } | Handing::Given { .. } => {
                        (false, ForServer::default())
                    }
                };
                let slow = std::mem::take(&mut state.slow);
                self.take_over(state, is_return.then_some(generation));
                self.log.adopt_slow(slow);
                if was_to_end && is_return && self.state == State::Ready {
                    self.terminate();
                } else if for_server.is_to_reload {
                    self.reload();
                }
                let _ = reply.send(was_to_end && !is_return);
            }
            HandoverChange::Restored { state, generation } => {
                self.collector.set_generation(generation);
                self.handover_report.generation = generation;
                self.add_totals(state.totals, None);
                self.adopt_health(&state.health, false);
                self.log.adopt_slow(state.slow);
            }
            HandoverChange::Finish(reply) => {
                self.finish_giving();
                let _ = reply.send(());
            }
            HandoverChange::EndRemaining => self.end_remaining(),
            HandoverChange::End => {
                if self.handing == Handing::None && self.state == State::Ready {
                    self.terminate();
                }
            }
            HandoverChange::Stop(reason) => {
                self.workers.stop();
                self.outcome = Some(Outcome::Failed(reason));
            }
        }
    }

    fn on_handover_fact(&mut self, fact: HandoverFact) {
        match fact {
            HandoverFact::News(news) => self.on_handover_news(news),
            HandoverFact::Update { totals, returned } => self.add_totals(totals, returned),
            HandoverFact::Listed { request, rows, next } => {
                self.listing.on_listed(request, &rows, next);
            }
            HandoverFact::FormerStays(process) => {
                self.listing.begin(process);
                self.others.on_former();
            }
            HandoverFact::FormerEnded { pid, returned } => {
                self.listing.end(pid);
                self.others.on_former_ended(returned.is_some());
                if let Some(handover) = returned {
                    self.collector.on_returned_ended(handover);
                }
                self.lose_what_ended();
                // It may be of a version that does not say so before.
                self.on_heard();
                // The file of a socket that it had bound anew went with it.
                self.bind_lost();
            }
            HandoverFact::SuccessorEnded => self.others.on_successor_gone(),
            HandoverFact::MainProcess => self.on_heard(),
            HandoverFact::Learned { health, reply } => {
                // That one finds out what endpoints are like until this one has its place.
                self.adopt_health(&health, true);
                self.config.drains.reply_when_counted(reply);
                self.hand_noted();
            }
        }
    }

    /// The other process waits for them, and not for a log whose output blocks.
    pub(super) fn save_slow(&self, reply: oneshot::Sender<Vec<u8>>) {
        let (written, is_written) = oneshot::channel();
        self.log.write_slow(SlowForm::Saved, written);
        tokio::spawn(async move {
            if let Ok(Ok(slow)) = tokio::time::timeout(SLOW_WAIT_MAX, is_written).await {
                let _ = reply.send(slow);
            }
        });
    }

    fn on_handover_news(&mut self, news: HandoverNews) {
        if let HandoverNews::Failed(cause) = news {
            self.collector.handover_failed(HandoverFailed { cause });
        }
        if let HandoverNews::Counted { moved, .. } = &news
            && let Handing::Taking { is_moving, .. } = &mut self.handing
        {
            *is_moving |= *moved > 0;
        }
        let result = match &news {
            HandoverNews::Ended(result, _) => Some(*result),
            _ => None,
        };
        self.handover_report.on_news(news);
        // The process counts that goes on.
        if let Some(result) = result {
            let groups = self.handover_report.moved();
            self.collector.handover_ended(&HandoverEnded { result: result.as_str(), groups });
        }
    }

    /// What the process is at, for the page.
    pub(super) const fn handover_state(&self) -> &'static str {
        match self.handing {
            Handing::None => "none",
            Handing::Giving { .. } => "giving",
            Handing::Given { .. } => "given",
            Handing::Taking { .. } | Handing::TakingBack { .. } => "taking",
        }
    }

    /// Begins the handover that was asked for, unless a configuration is being read: both processes have to
    /// begin with the same, and reading takes no longer than its files are large; or what sources gave last is being
    /// written down for the other process. Nor while connections are between two
    /// workers, where it would not find them.
    pub(super) fn begin_when_read(&mut self) {
        let is_reading = self.config.builder.is_busy() && self.state == State::Ready;
        let is_waited_for = is_reading || self.kept.is_hurrying();
        if is_waited_for || !self.moves.under_way.is_empty() {
            return;
        }
        let Some(reply) = self.begin_waits.take() else { return };
        // Who asked may have given up.
        if !reply.is_closed() && reply.send(self.begin_giving()).is_err() {
            self.end_giving();
        }
    }

    fn begin_giving(&mut self) -> Result<Begun<W>, String> {
        if self.handing != Handing::None {
            return Err("this process is in a handover already".to_owned());
        }
        if self.state != State::Ready {
            return Err(format!("this process is {}", self.state_text()));
        }
        if let Some(reason) = self.kept.missing() {
            return Err(reason);
        }
        let handles = self.workers.handles(None).map_err(|error| error.to_string())?;
        if self.others.take_unreturned() {
            self.collector.lose_given();
        }
        self.collector.begin_giving();
        let for_server = ForServer::default();
        self.handing = Handing::Giving { postponed: None, asked_to_end: 0, for_server };
        let downstream_connections = self.downstream_connections();
        Ok(Begun {
            snapshot: self.config.snapshot.clone(),
            handles,
            admin: self.admin_handles.given(false),
            metrics: self.admin_handles.given(true),
            delivered: self.kept.delivered().with_answers(self.config.dns.answers()),
            downstream_connections,
        })
    }

    /// How many connections are open at the listeners of the configuration in effect.
    fn downstream_connections(&mut self) -> u64 {
        let listeners = &self.config.snapshot.listeners;
        let ids = listeners.iter().map(|listener| listener.id);
        ids.map(|id| self.collector.listener_totals(label(id.0)).connections_active).sum()
    }

    /// Whether reading a file waits for the end of a handover.
    pub(super) fn postpones_reading(&mut self, reading: Reading) -> bool {
        match &mut self.handing {
            Handing::Giving { postponed, .. } => {
                *postponed = (*postponed).max(Some(reading));
                true
            }
            // Its start has read it, and what it took over goes with that.
            Handing::Taking { .. } | Handing::TakingBack { .. } | Handing::Given { .. } => true,
            Handing::None => false,
        }
    }

    /// How often an end was asked for by now that waits for that of a handover; none where it does not wait.
    pub(super) fn postpones_end(&mut self) -> Option<u32> {
        match &mut self.handing {
            // Where the workers ended now, connections between both processes would end with them, and the other one with the attempt.
            Handing::Giving { asked_to_end, .. } | Handing::TakingBack { asked_to_end, .. } => {
                *asked_to_end += 1;
                Some(*asked_to_end).filter(|asked| *asked <= POSTPONED_MAX)
            }
            Handing::Taking { is_moving: true, is_to_end } => {
                // A second signal does not wait.
                (!std::mem::replace(is_to_end, true)).then_some(1)
            }
            Handing::None | Handing::Given { .. } | Handing::Taking { is_moving: false, .. } => {
                None
            }
        }
    }

    /// This process ends before the handover does: the other one, if it accepts by now, becomes the process by that.
    pub(super) fn leave_to_taker(&mut self) {
        // Their files stay if it has the sockets.
        own_admin_files(false);
        if let Some(successor) = self.handover_report.serving_taker() {
            let for_server = self.handing.for_server();
            self.handing = Handing::given(successor);
            self.pass_noted_on(for_server);
            self.service_manager.succeeded_by(successor);
        }
    }

    /// Ends a process that is not the one that serves yet: what it has goes back.
    pub(super) fn stop_taking(&mut self) {
        let reason = "asked to end before it had taken over".to_owned();
        self.on_handover(HandoverStep::Became(HandoverChange::Stop(reason)));
    }

    fn end_giving(&mut self) {
        let Handing::Giving { postponed, asked_to_end, .. } = self.handing else { return };
        self.handing = Handing::None;
        self.store_if_due();
        if asked_to_end > 0 {
            // A third signal did not wait: this process is ending.
            if self.state == State::Ready {
                self.terminate();
            }
        } else if let Some(reading) = postponed {
            self.read_config(reading);
        }
    }

    /// The other process answers on the admin interface from now on.
    fn hand_over(&mut self, successor: u32) {
        let was_to_end = matches!(self.handing, Handing::Giving { asked_to_end: 1.., .. });
        let for_server = self.handing.for_server();
        self.handing = Handing::given(successor);
        if self.admin_handles.has_given_files() {
            own_admin_files(false);
        }
        self.release_servers();
        self.hold_kept();
        self.service_manager.status(&format!("handed over to process {successor}"));
        // Where the other process ends, this one follows.
        if self.pass_noted_on(for_server) || was_to_end && !for_server.is_to_end {
            self.finish_giving();
        }
    }

    /// Leaves new connections to the admin interface to another process, which uses its sockets. Those that are open go on.
    fn release_servers(&mut self) {
        let is_given = |server: &mut Server| !self.admin_handles.is_kept(server);
        let given = self.admin.extract_if(.., is_given).inspect(|server| drop(server.release()));
        self.admin_released.extend(given);
    }

    /// Answers on a socket of the admin interface that was bound anew. What is open at the former one goes on to its next answer.
    pub(super) fn serve_anew(&mut self, socket: AdminSocket, scope: Scope) {
        let is_metrics = matches!(scope, Scope::Metrics);
        let is_former = |server: &mut Server| server.is_metrics() == is_metrics;
        let former = self.admin.extract_if(.., is_former).inspect(|it| drop(it.release()));
        self.admin_released.retain(|server| !server.is_over());
        self.admin_released.extend(former);
        self.admin.extend(self.admin_handles.start(socket, scope, self.workers.count()));
    }

    /// Answers on the admin interface, also where this process does not yet.
    pub(super) fn serve_admin(&mut self) {
        let servers = self.admin_handles.serve(self.workers.count(), &self.admin);
        self.admin.extend(servers);
    }

    /// Has what was given in vain count as open no more, once what came back of it is there, and what ended with the process before this
    /// one. Nothing is between two workers then. A process that has handed over does not know what is open elsewhere.
    pub(super) fn lose_what_ended(&mut self) {
        let is_quiet = self.handing == Handing::None && self.moves.under_way.is_empty();
        if !is_quiet {
            return;
        }
        let lost = self.others.take_lost(clock::monotonic_ns());
        if lost.given {
            self.collector.lose_given();
        }
        if lost.former {
            self.collector.lose_former();
        }
    }

    fn be_the_process_again(&mut self) {
        let Handing::Given { end, .. } = self.handing else { return };
        if self.state != State::Ready {
            return;
        }
        self.handing = Handing::None;
        self.store_if_due();
        self.hold_kept();
        own_admin_files(true);
        self.own_sockets();
        self.admin_handles.set_kept(KeptAdmin::default());
        self.serve_admin();
        self.service_manager.status(&self.status());
        self.config.dns.ask_again();
        self.read_config(Reading::IfTextIsSame);
        // That process had got it, and has not ended by that.
        if end != EndAsked::No {
            self.terminate();
        }
    }

    pub(super) fn finish_giving(&mut self) {
        let Handing::Given { successor, .. } = self.handing else { return };
        if self.state != State::Ready {
            return;
        }
        self.admin_handles.close();
        self.admin_handles.set_kept(KeptAdmin::default());
        self.release_servers();
        self.service_manager.succeeded_by(successor);
        self.drain();
    }

    /// Lets the process that took this one's place know what was counted to the end: the last connections have closed since it
    /// heard last.
    pub(super) async fn report_last(&mut self, steps: &mut mpsc::Receiver<HandoverStep<W>>) {
        if !matches!(self.handing, Handing::Given { .. }) {
            return;
        }
        let reported = async {
            let mut is_asked = false;
            // The thread that asks once more has sent what it got before.
            while let Some(step) = steps.recv().await {
                let HandoverStep::Ask(HandoverQuestion::Count(reply)) = step else { continue };
                let _ = reply.send(self.collector.readings_to_give());
                if std::mem::replace(&mut is_asked, true) {
                    return;
                }
            }
        };
        // Without an answer that process, or its connection, is gone.
        let _ = tokio::time::timeout(LAST_REPORT_TIMEOUT, reported).await;
    }

    /// Ends at once what a process still has that has given its place away, and that is the third of those that live.
    fn end_remaining(&mut self) {
        if matches!(self.handing, Handing::Given { .. }) && self.state == State::Draining {
            tracing::warn!(
                "two newer processes exist: the remaining connections of this one are closed"
            );
            self.stop_now();
        }
    }
}
