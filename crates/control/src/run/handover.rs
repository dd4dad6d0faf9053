//! Control's part in a handover: what is read, served and reported, and by which of the two processes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::Address;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value};
use telemetry::FormerTotals;
use telemetry::events::{HandoverEnded, HandoverFailed};
use tokio::sync::{mpsc, oneshot};

use super::{Reading, Running, State, breakers};
use crate::admin::{AdminSocket, Query, Scope, Server, own_admin_files, set_socket_mode};
use crate::clock;
use crate::handover::{
    Begun, FormerState, HandoverChange, HandoverFact, HandoverQuestion, HandoverStep, KeptAdmin,
};
use crate::handover_report::HandoverNews;
use crate::log_writer::SlowForm;
use crate::run::Outcome;
use crate::signals::Asked;
use crate::workers::Workers;

/// How long the last counts of a process may take to be asked for, at its end.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long connections may take to be back with their workers that another process did not take, ns.
const RETURN_TIME: u64 = 2_000_000_000;

/// How long a handover waits for slow requests, which are with the thread of the access log.
const SLOW_WAIT_MAX: Duration = Duration::from_millis(200);

/// How far this process is in a handover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Handing {
    /// There is none.
    #[default]
    None,
    /// Another process is taking this one's place. Files are not read; a signal to end waits.
    Giving {
        /// How files are to be read afterwards, if something asked for that meanwhile.
        postponed: Option<Reading>,
        /// Whether the process was asked to end meanwhile.
        is_to_end: bool,
    },
    /// Another process has taken it.
    Given {
        /// Its id.
        successor: u32,
        /// Whether this one serves, since that one does not run.
        stands_in: bool,
    },
    /// That process gives everything back. A signal to end waits.
    TakingBack {
        /// Its id.
        successor: u32,
        /// Whether this process was asked to end meanwhile.
        is_to_end: bool,
    },
    /// This process is taking the place of another: it does not answer on the admin interface yet. A signal to end waits once it has
    /// connections: to end then would close those that were served here.
    Taking {
        /// Whether it has connections of the other one.
        is_moving: bool,
        /// Whether the process was asked to end meanwhile.
        is_to_end: bool,
    },
}

impl Handing {
    /// The start of a process that takes another's place.
    pub(super) const TAKING: Self = Self::Taking { is_moving: false, is_to_end: false };

    /// The process that serves in this one's place.
    pub(super) const fn successor(self) -> Option<u32> {
        match self {
            Self::Given { successor, .. } | Self::TakingBack { successor, .. } => Some(successor),
            Self::None | Self::Giving { .. } | Self::Taking { .. } => None,
        }
    }
}

/// A socket of the admin interface, to be served and handed on.
#[derive(Debug)]
pub(super) struct AdminHandle {
    socket: Option<OwnedFd>,
    address: Address,
    scope: Scope,
    /// Whether this process answers there although another one has taken its place, and does not use it.
    is_kept: bool,
}

impl AdminHandle {
    const fn is_metrics(&self) -> bool {
        matches!(self.scope, Scope::Metrics)
    }
}

/// The admin interface's sockets, whether served or not.
#[derive(Debug)]
pub(super) struct AdminHandles {
    handles: Vec<AdminHandle>,
    queries: mpsc::Sender<Query>,
}

impl AdminHandles {
    /// Where queries go.
    pub(super) fn queries(&self) -> mpsc::Sender<Query> {
        self.queries.clone()
    }

    pub(super) const fn new(queries: mpsc::Sender<Query>) -> Self {
        Self { handles: Vec::new(), queries }
    }

    /// Keeps a handle on a socket, beside the socket itself.
    pub(super) fn keep(&mut self, socket: &AdminSocket, address: Option<&Address>, scope: Scope) {
        let bound = || socket.local_address().ok().flatten().map(Address::Tcp);
        let Some(address) = address.cloned().or_else(bound) else { return };
        let socket = socket.try_clone_fd().ok();
        self.handles.push(AdminHandle { socket, address, scope, is_kept: false });
    }

    /// Lets the addresses go.
    pub(super) fn close(&mut self) {
        self.handles.iter_mut().for_each(|handle| handle.socket = None);
    }

    /// Notes where this process goes on to answer although another one has taken its place.
    fn set_kept(&mut self, kept: KeptAdmin) {
        for handle in &mut self.handles {
            handle.is_kept = if handle.is_metrics() { kept.metrics } else { kept.all };
        }
    }

    /// Whether this server goes on then.
    fn is_kept(&self, server: &Server) -> bool {
        self.of(server.is_metrics()).is_some_and(|handle| handle.is_kept)
    }

    /// Whether a socket has a file that another process uses which has taken this one's place.
    fn has_given_files(&self) -> bool {
        let is_given = |handle: &AdminHandle| !handle.is_kept && handle.address.is_unix();
        self.handles.iter().any(is_given)
    }

    fn of(&self, is_metrics: bool) -> Option<&AdminHandle> {
        self.handles.iter().find(|handle| handle.is_metrics() == is_metrics)
    }

    fn handle(&self, is_metrics: bool) -> Option<OwnedFd> {
        self.of(is_metrics)?.socket.as_ref()?.try_clone().ok()
    }

    /// Serves those that have no server.
    fn serve(&self, workers: u32, served: &[Server]) -> Vec<Server> {
        let serve = |handle: &AdminHandle| {
            if served.iter().any(|server| server.is_metrics() == handle.is_metrics()) {
                return None;
            }
            let socket = handle.socket.as_ref()?.try_clone().ok()?;
            let socket = AdminSocket::take_over(socket, &handle.address);
            let (scope, queries) = (handle.scope.clone(), self.queries.clone());
            match Server::start(socket, scope, queries, workers) {
                Ok(server) => Some(server),
                Err(error) => {
                    tracing::error!("the admin interface cannot be served: {error}");
                    None
                }
            }
        };
        self.handles.iter().filter_map(serve).collect()
    }
}

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
                if let Handing::Given { successor, .. } = self.handing
                    && self.state == State::Ready
                {
                    self.handing = Handing::TakingBack { successor, is_to_end: false };
                    let _ = reply.send(Arc::clone(&self.config.snapshot));
                }
            }
            HandoverQuestion::List { worker, slot, reply } => self.list(worker, slot, reply),
        }
    }

    fn on_handover_change(&mut self, change: HandoverChange) {
        match change {
            HandoverChange::RolledBack => {
                // One that was refused before it began gave nothing.
                if matches!(self.handing, Handing::Giving { .. }) {
                    self.lost_at = Some(clock::monotonic_ns() + RETURN_TIME);
                }
                self.end_giving();
            }
            HandoverChange::Committed { successor, kept_admin, reply } => {
                self.admin_handles.set_kept(kept_admin);
                self.hand_over(successor);
                let _ = reply.send(());
            }
            HandoverChange::AcceptAgain => {
                self.lost_at = Some(clock::monotonic_ns() + RETURN_TIME);
                self.be_the_process_again();
            }
            HandoverChange::StandIn => {
                if let Handing::Given { stands_in, .. } = &mut self.handing
                    && self.state == State::Ready
                {
                    *stands_in = true;
                    self.serve_admin();
                }
            }
            HandoverChange::StandBack => {
                if let Handing::Given { stands_in, .. } = &mut self.handing {
                    *stands_in = false;
                    self.release_servers();
                }
            }
            HandoverChange::NotReturned => {
                if let Handing::TakingBack { successor, is_to_end } = self.handing {
                    self.handing = Handing::Given { successor, stands_in: false };
                    if is_to_end {
                        self.end();
                    }
                }
            }
            HandoverChange::TakenOver { mut state, generation, is_return, reply } => {
                self.collector.set_generation(generation);
                self.handover_report.generation = generation;
                let was_to_end = matches!(
                    self.handing,
                    Handing::Taking { is_to_end: true, .. }
                        | Handing::TakingBack { is_to_end: true, .. }
                );
                let slow = std::mem::take(&mut state.slow);
                self.take_over(state, is_return);
                self.log.adopt_slow(slow);
                if was_to_end && is_return {
                    self.terminate();
                }
                let _ = reply.send(was_to_end && !is_return);
            }
            HandoverChange::Restored { state, generation } => {
                self.collector.set_generation(generation);
                self.handover_report.generation = generation;
                self.add_totals(state.totals, false);
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
            HandoverFact::Update { totals, is_return } => self.add_totals(totals, is_return),
            HandoverFact::Listed { request, rows, next } => {
                self.listing.on_listed(request, &rows, next);
            }
            HandoverFact::FormerStays(process) => self.listing.begin(process),
            HandoverFact::FormerEnded(pid) => {
                self.listing.end(pid);
                // One that has handed over in its turn does not know what of it is open elsewhere.
                if self.handing == Handing::None {
                    self.collector.lose_former();
                }
                self.store_listeners();
            }
            // The service manager hears this process from here on; the former one may be of a version that does not say so.
            HandoverFact::MainProcess => self.store_listeners(),
            HandoverFact::Learned { health, reply } => {
                // That one finds out what endpoints are like until this one has its place.
                self.adopt_health(&health, true);
                self.config.drains.reply_when_counted(reply);
                self.hand_drains();
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
        if self.lost_at.take().is_some() {
            self.collector.lose_given();
        }
        self.collector.begin_giving();
        self.handing = Handing::Giving { postponed: None, is_to_end: false };
        Ok(Begun {
            snapshot: self.config.snapshot.clone(),
            handles,
            admin: self.admin_handles.handle(false),
            metrics: self.admin_handles.handle(true),
            delivered: self.kept.delivered().with_answers(self.config.dns.answers()),
        })
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

    /// Whether an end waits for that of a handover.
    pub(super) const fn postpones_end(&mut self) -> bool {
        match &mut self.handing {
            Handing::Giving { is_to_end, .. }
            | Handing::TakingBack { is_to_end, .. }
            | Handing::Taking { is_moving: true, is_to_end } => {
                // A second signal does not wait.
                !std::mem::replace(is_to_end, true)
            }
            Handing::None | Handing::Given { .. } | Handing::Taking { is_moving: false, .. } => {
                false
            }
        }
    }

    /// Whether a signal is meant for the process that serves, and was passed on: where this one is the first of a container,
    /// it gets them all.
    pub(super) fn passes_on(&self, asked: Asked) -> bool {
        let Some(successor) = self.handing.successor() else { return false };
        let pid = i32::try_from(successor).ok().and_then(Pid::from_raw).filter(|_| self.is_init);
        let Some(pid) = pid else { return false };
        let signal = match asked {
            Asked::Terminate | Asked::End => Signal::TERM,
            Asked::Reload => Signal::HUP,
            Asked::ReopenLog => Signal::USR1,
            Asked::Nothing => return false,
        };
        let is_passed = kill_process(pid, signal).is_ok();
        tracing::info!(pid = successor, ?asked, is_passed, "a signal is passed on");
        // What both write to is opened again by both.
        is_passed && asked != Asked::ReopenLog
    }

    /// Ends a process that is not the one that serves yet: what it has goes back.
    pub(super) fn stop_taking(&mut self) {
        let reason = "asked to end before it had taken over".to_owned();
        self.on_handover(HandoverStep::Became(HandoverChange::Stop(reason)));
    }

    fn end_giving(&mut self) {
        let Handing::Giving { postponed, is_to_end } = self.handing else { return };
        self.handing = Handing::None;
        if is_to_end {
            // A second signal did not wait: this process is ending, and the end of the handover is no third one.
            if self.state == State::Ready {
                self.terminate();
            }
        } else if let Some(reading) = postponed {
            self.read_config(reading);
        }
    }

    /// The other process answers on the admin interface from now on.
    fn hand_over(&mut self, successor: u32) {
        let was_to_end = matches!(self.handing, Handing::Giving { is_to_end: true, .. });
        self.handing = Handing::Given { successor, stands_in: false };
        if self.admin_handles.has_given_files() {
            own_admin_files(false);
        }
        self.release_servers();
        self.hold_kept();
        self.service_manager.status(&format!("handed over to process {successor}"));
        // Two processes share the machine for a while; and what is freed may have had keys in it.
        tokio::task::spawn_blocking(W::release_free_memory);
        if was_to_end {
            self.finish_giving();
        }
    }

    /// Leaves new connections to the admin interface to another process, which uses its sockets. Those that are open go on.
    fn release_servers(&mut self) {
        let is_given = |server: &mut Server| !self.admin_handles.is_kept(server);
        let given = self.admin.extract_if(.., is_given).inspect(|server| drop(server.release()));
        self.admin_released.extend(given);
    }

    /// Answers on the admin interface, also where this process does not yet.
    fn serve_admin(&mut self) {
        let servers = self.admin_handles.serve(self.workers.count(), &self.admin);
        self.admin.extend(servers);
    }

    /// Has what was given in vain count as open no more, once what came back of it is there. Nothing is between two workers then.
    pub(super) fn lose_given(&mut self) {
        let is_quiet = self.handing == Handing::None && self.moves.under_way.is_empty();
        let is_due = |at: &mut u64| is_quiet && clock::monotonic_ns() >= *at;
        if self.lost_at.take_if(is_due).is_some() {
            self.collector.lose_given();
        }
    }

    fn be_the_process_again(&mut self) {
        if !matches!(self.handing, Handing::Given { .. }) || self.state != State::Ready {
            return;
        }
        self.handing = Handing::None;
        self.hold_kept();
        own_admin_files(true);
        self.own_sockets();
        self.admin_handles.set_kept(KeptAdmin::default());
        self.serve_admin();
        self.service_manager.status(&self.status());
        self.config.dns.ask_again();
        self.read_config(Reading::IfTextIsSame);
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
                let _ = reply.send(self.collector.readings());
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

    fn add_totals(&mut self, totals: FormerTotals, is_return: bool) {
        if totals.is_empty() {
            return;
        }
        if is_return {
            self.collector.set_returned_totals(totals);
        } else {
            self.collector.set_former_totals(totals);
        }
    }

    /// Goes on with what another process knew of endpoints, and, if it `is_newer`, has measured since this one did.
    fn adopt_health(&mut self, written: &[u8], is_newer: bool) {
        let Ok(written) = serde_json::from_slice::<Value>(written) else { return };
        self.health.adopt(&self.config.snapshot, &written, is_newer);
        if let Some(drained) = written.get("drained") {
            self.config.drains.adopt(drained);
        }
        self.hand_drains();
        if let Some(over) = written.get("runtime").and_then(Value::as_object) {
            self.adopt_runtime(over);
        }
        if let Some(measured) = written.get("concurrency").and_then(Value::as_object) {
            breakers::adopt_measured(&self.config.snapshot, measured, is_newer);
        }
    }

    /// Puts the values over those of the file that operators had put over them in a former process.
    fn adopt_runtime(&self, over: &Map<String, Value>) {
        let runtime = &self.config.snapshot.runtime;
        for used in runtime.iter() {
            let name = used.cell.name();
            let value = over.get(name).and_then(|it| serde_json::from_value(it.clone()).ok());
            if let (Some(written), None) = (over.get(name), &value) {
                tracing::warn!(
                    "runtime {name}: its override is dropped, because {written} is no value in this version"
                );
            }
            if value != used.cell.get() {
                // It is used: it is one of these.
                let _ = runtime.put_over(&[(name.to_owned(), value)]);
            }
        }
        for name in over.keys().filter(|name| !runtime.iter().any(|it| it.cell.name() == **name)) {
            tracing::warn!("runtime {name}: no rule uses it any more, and its override is dropped");
        }
    }

    /// Gives the listening sockets, and the files of those of unix, what this configuration says: another process may have given them
    /// something else. Not earlier: until now they were that one's, which might have gone on.
    fn own_sockets(&self) {
        let snapshot = &self.config.snapshot;
        self.workers.set_socket_options(snapshot);
        let listeners = snapshot.listeners.iter().flat_map(|listener| {
            let mode = listener.socket.mode;
            listener.addresses.iter().map(move |address| (address, mode))
        });
        let startup = &snapshot.startup;
        let admin = startup.admin.iter().chain(&startup.metrics);
        let admin = admin.map(|address| (address, startup.admin_mode));
        for (address, mode) in listeners.chain(admin) {
            let (Address::Unix(path), Some(mode)) = (address, mode) else { continue };
            if let Err(error) = set_socket_mode(path, mode) {
                tracing::warn!("{}: cannot set mode {mode}: {error}", path.display());
            }
        }
    }

    fn take_over(&mut self, state: FormerState, is_return: bool) {
        if is_return {
            self.collector.begin_return();
        }
        self.add_totals(state.totals, is_return);
        self.handing = Handing::None;
        self.adopt_health(&state.health, true);
        self.kept.read();
        self.hold_kept();
        own_admin_files(true);
        self.own_sockets();
        self.admin_handles.set_kept(KeptAdmin::default());
        self.serve_admin();
        if is_return {
            self.service_manager.status(&self.status());
            // The other process may have had newer answers.
            self.config.dns.ask_again();
            // What changed since may be the reason.
            self.read_config(Reading::IfTextIsSame);
        } else {
            self.read_config(Reading::IfChanged);
        }
    }
}
