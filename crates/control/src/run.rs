//! The control loop.
//!
//! One thing at a time, in the order in which it comes: a signal, a changed file, a report, a query
//! of the admin interface. None of it takes long: files are read and snapshots built and freed on a
//! thread of their own. A new configuration is taken up in this order: text, snapshot and access log
//! (there), sockets bound, names reported to who needs them, then the workers. What fails before the last
//! step leaves the former configuration serving.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::{Address, DnsAnswer, DnsName, ListenerId, Snapshot};
use config::{EndpointsOutcome, Errors, Finding, ResourceKind};
use telemetry::Collector;
use telemetry::events::{
    AccessLogWriteFailed, ConfigAccepted, ConfigRejected, SourceAnswered, SourceKind,
    SourceResources,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::admin::{AdminSocket, Hosts, Query, Rows, Scope, Server};
use crate::builder::{Builder, Built, Reading};
use crate::changes;
use crate::clock;
use crate::dns::{Change, Dns, DnsReport};
use crate::expiry::Expiry;
use crate::handover::{Begun, HandoverStep};
use crate::handover_report::HandoverReport;
use crate::health::Health;
use crate::log_writer::{LinesLost, LogWriter};
use crate::memory::MemoryRelease;
use crate::names::label;
use crate::overflows::Overflows;
use crate::questions::Answerers;
use crate::reload::{
    Accepted, Candidate, ConfigFile, Endpoints, EndpointsCandidate, Refused, TakenUp,
};
use crate::service_manager::ServiceManager;
use crate::signals::{Asked, Signals};
use crate::source::{Delivery, Source};
use crate::warming::Warming;
use crate::watch::{FileWatch, WatchList};
use crate::workers::{BindFailure, Report, Workers};

mod carried;
mod deliveries;
mod handover;
mod kept;
mod moves;
mod pages;

use self::deliveries::Deliveries;
use self::handover::{AdminHandles, Handing};
use self::kept::Kept;
use self::moves::{Ended, Moves};

/// Queries of the admin interface that wait.
const QUERIES_MAX: usize = 64;

/// Questions of filters that are being answered. More wait where they are: reports are not read
/// until there is room.
const ANSWERING_MAX: usize = 10_000;

/// Questions about connections that workers were asked and have not answered.
const DESCRIBING_MAX: usize = 1024;

/// Between two looks at what waits for nothing: new counters, answers that did not fit.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(100);

/// A build that took so long (ns) leaves megabytes that were freed.
const LONG_BUILD: u64 = 50_000_000;

/// How long the configuration file may be away, ns: editors and deployments take it away for an
/// instant to put another in its place.
const GRACE: u64 = 1_000_000_000;

/// What the end of the process takes beyond the drain, at most: the last pages and lines.
const END_MAX: Duration = Duration::from_secs(10);

/// Between two warnings about descriptors.
const WARNING_INTERVAL: u64 = 10_000_000_000;

/// What control is made of.
#[derive(Debug)]
pub struct Parts<W: Workers> {
    /// Where the configuration comes from.
    pub config: ConfigFile<W::Filter>,
    /// The first snapshot, with which the workers are started.
    pub first: Accepted<W::Filter>,
    /// Where its listeners are bound.
    pub addresses: Vec<(ListenerId, Vec<Address>)>,
    /// The workers, which need not run yet.
    pub workers: W,
    /// What they tell.
    pub reports: mpsc::Receiver<Report<W>>,
    /// The writer of the access log, which knows the workers' records.
    pub log: LogWriter,
    /// The metrics, which know the workers' counters.
    pub collector: Collector,
    /// Where the admin interface listens, if it does.
    pub admin: Option<AdminSocket>,
    /// Where what scrapers and probes ask for is served alone, if it is.
    pub metrics: Option<AdminSocket>,
    /// Where resources come from beside the file, which has been loaded to expect them: those first that go before
    /// others.
    pub sources: Vec<Box<dyn Source>>,
    /// Who answers what filters ask.
    pub answerers: Answerers,
    /// Who started the process, if that wants to know how far it is.
    pub service_manager: ServiceManager,
    /// Steps of a handover.
    pub handover: mpsc::Receiver<HandoverStep<W>>,
    /// Whether this process takes the place of another, which says when.
    pub is_taking_over: bool,
    /// Version of the program.
    pub version: &'static str,
}

/// How the process is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All workers ended after a drain.
    Drained,
    /// A second signal cut the drain short.
    Stopped,
    /// Something without which nothing can go on.
    Failed(String),
}

/// The control path before it runs.
#[derive(Debug)]
pub struct Control<W: Workers> {
    parts: Parts<W>,
}

impl<W: Workers> Control<W> {
    /// Makes the first snapshot's names known. The workers may start after this.
    #[must_use]
    pub fn new(mut parts: Parts<W>) -> Self {
        parts.collector.set_names(Arc::clone(&parts.first.names));
        Self { parts }
    }

    /// Runs until all workers have ended. Takes the process's signals over.
    #[must_use]
    pub fn run(self) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                let outcome = runtime.block_on(self.serve());
                // A page that is still being written must not hold the end up.
                runtime.shutdown_background();
                outcome
            }
            Err(error) => Outcome::Failed(format!("control cannot start: {error}")),
        }
    }

    async fn serve(self) -> Outcome {
        match Running::start(self.parts).await {
            Ok((running, sources)) => running.run(sources).await,
            Err(error) => Outcome::Failed(format!("control cannot start: {error}")),
        }
    }
}

/// What control waits for.
struct Sources<W: Workers> {
    signals: Signals,
    watch: Option<FileWatch>,
    reports: mpsc::Receiver<Report<W>>,
    queries: mpsc::Receiver<Query>,
    built: mpsc::Receiver<Built<W::Filter>>,
    resolved: mpsc::Receiver<DnsReport>,
    delivered: mpsc::Receiver<Delivery>,
    handover: mpsc::Receiver<HandoverStep<W>>,
}

/// What came.
enum Event<W: Workers> {
    Signal(Asked),
    FileChanged,
    Built(Built<W::Filter>),
    Resolved(DnsReport),
    Delivered(Delivery),
    Report(Report<W>),
    Query(Query),
    Handover(HandoverStep<W>),
    Answered(u32, W::Asker, Arc<[u8]>),
    LinesLost(LinesLost),
    MoveEnded(Ended),
    HealthDue,
    Upkeep,
}

/// How far the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    /// To end, and still accepting for `limits.drain_delay`.
    Leaving,
    Draining,
    Stopping,
}

/// The control path at work.
struct Running<W: Workers> {
    workers: W,
    state: State,
    /// When a process that is leaving begins to drain; monotonic time, ns.
    drain_at: u64,
    started: u32,
    stopped: u32,
    outcome: Option<Outcome>,
    config: InEffect<W::Filter>,
    log: LogWriter,
    collector: Collector,
    admin: Vec<Server>,
    /// Those in whose place another process answers: what was asked here before is answered here.
    admin_released: Vec<Server>,
    admin_handles: AdminHandles,
    handing: Handing,
    /// Who is to begin a handover once the configuration that is being read is in effect.
    begin_waits: Option<oneshot::Sender<Result<Begun<W>, String>>>,
    answerers: Answerers,
    answering: JoinSet<(u32, W::Asker, Arc<[u8]>)>,
    describing: BTreeMap<u64, (u32, oneshot::Sender<Rows>)>,
    describe_next: u64,
    descriptors_warned_at: Option<u64>,
    overflows: Overflows,
    health: Health,
    kept: Kept,
    moves: Moves,
    handover_report: HandoverReport,
    memory: MemoryRelease,
    service_manager: ServiceManager,
    /// Whether a reload was reported to the service manager, and its end was not.
    is_reloading: bool,
    version: &'static str,
}

/// The configuration in effect.
struct InEffect<F> {
    builder: Builder<F>,
    /// What is watched for changes, if anything can be.
    watch_list: Option<WatchList>,
    expiry: Expiry,
    snapshot: Arc<Snapshot<F>>,
    addresses: BTreeMap<ListenerId, Vec<Address>>,
    warnings: Vec<Finding>,
    /// Wall-clock time, ns.
    loaded_at: u64,
    /// Since when the file cannot be read, if that is still to be reported; monotonic time, ns.
    unreadable_since: Option<u64>,
    /// Since when the files that the configuration names do not go together, if that is still to be
    /// reported; monotonic time, ns.
    unsettled_since: Option<u64>,
    /// When to look at the files again that could not be read for lack of descriptors; monotonic
    /// time, ns.
    look_again_at: Option<u64>,
    /// Why a later one was refused, and when.
    refused: Option<(u64, Refused)>,
    /// The files of endpoints that are refused since when, and why.
    endpoints_refused: BTreeMap<Arc<str>, (u64, Errors)>,
    /// How many files of endpoints it names.
    endpoint_files: u64,
    dns: Dns,
    /// Its host names.
    host_names: BTreeSet<Arc<DnsName>>,
    /// What host names stand for, where the builder does not know yet.
    answers: BTreeMap<Arc<DnsName>, Option<DnsAnswer>>,
    warming: Warming,
    deliveries: Deliveries,
}

impl<W: Workers> Running<W> {
    async fn start(parts: Parts<W>) -> io::Result<(Self, Sources<W>)> {
        let began = clock::monotonic_ns();
        let Parts { mut config, first, addresses, workers, reports, log, mut collector, .. } =
            parts;
        if !parts.sources.is_empty() {
            config.order_sources(parts.sources.iter().map(|it| it.name().into()).collect());
        }
        let (query_sender, queries) = mpsc::channel(QUERIES_MAX);
        let signals = Signals::new()?;
        let watched = config.path().and_then(|_| match FileWatch::new(config.watched()) {
            Ok(watched) => Some(watched),
            Err(error) => {
                let file = config.name();
                tracing::warn!("{file} cannot be watched ({error}): send SIGHUP after a change");
                None
            }
        });
        let (watch, watch_list) = watched.unzip();
        let count = workers.count();
        let hosts = Hosts::Known(Arc::clone(&first.snapshot.startup.admin_hosts));
        let startup = &first.snapshot.startup;
        let mut servers = Vec::new();
        let mut admin_handles = AdminHandles::new(query_sender.clone());
        for (socket, address, scope) in [
            (parts.admin, &startup.admin, Scope::All(hosts)),
            (parts.metrics, &startup.metrics, Scope::Metrics),
        ] {
            let Some(socket) = socket else { continue };
            admin_handles.keep(&socket, address.as_ref(), scope.clone());
            if !parts.is_taking_over {
                servers.push(Server::start(socket, scope, query_sender.clone(), count)?);
            }
        }
        let loaded_at = clock::wall_ns();
        let last_good = config.take_last_good();
        let (builder, built) = Builder::start(config)?;
        let Accepted { snapshot, warnings, known, wanted, endpoint_files, duration, .. } = first;
        let (kept, restored) =
            Kept::start(&snapshot.startup, last_good, &known, &parts.sources, parts.is_taking_over);
        let (deliveries, delivered) = Deliveries::start(parts.sources, wanted, restored);
        let (mut dns, resolved) = Dns::new(snapshot.resolvers.clone());
        let host_names = known.keys().cloned().collect();
        let unanswered = known.iter().filter(|(_, status)| !status.is_answered());
        let warming = Warming::after(unanswered.map(|(name, _)| Arc::clone(name)).collect());
        dns.resume(known);
        collector.config_accepted(&ConfigAccepted {
            version: snapshot.version,
            at: loaded_at,
            duration,
            taking_up: clock::monotonic_ns().saturating_sub(began),
        });
        warn(&warnings);
        let expiry = Expiry::new(&snapshot);
        collector.certificates_in_use(expiry.in_use());
        let mut health = Health::default();
        health.on_snapshot(&snapshot);
        let running = Self {
            workers,
            state: State::Starting,
            drain_at: 0,
            started: 0,
            stopped: 0,
            outcome: None,
            config: InEffect {
                builder,
                watch_list,
                expiry,
                snapshot,
                addresses: addresses.into_iter().collect(),
                warnings,
                loaded_at,
                unreadable_since: None,
                unsettled_since: None,
                look_again_at: None,
                refused: None,
                endpoints_refused: BTreeMap::new(),
                endpoint_files,
                dns,
                host_names,
                answers: BTreeMap::new(),
                warming,
                deliveries,
            },
            log,
            collector,
            admin: servers,
            admin_released: Vec::new(),
            admin_handles,
            handing: if parts.is_taking_over { Handing::Taking } else { Handing::None },
            begin_waits: None,
            answerers: parts.answerers,
            answering: JoinSet::new(),
            describing: BTreeMap::new(),
            describe_next: 0,
            descriptors_warned_at: None,
            overflows: Overflows::default(),
            health,
            kept,
            moves: Moves::default(),
            handover_report: HandoverReport::default(),
            memory: MemoryRelease::default(),
            service_manager: parts.service_manager,
            is_reloading: false,
            version: parts.version,
        };
        let handover = parts.handover;
        Ok((
            running,
            Sources { signals, watch, reports, queries, built, resolved, delivered, handover },
        ))
    }

    async fn run(mut self, mut sources: Sources<W>) -> Outcome {
        let mut upkeep = tokio::time::interval(UPKEEP_INTERVAL);
        upkeep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // What was written between the first load and the watch is not seen by the watch.
        self.read_config(Reading::IfChanged);
        let outcome = loop {
            if let Some(outcome) = self.outcome.take() {
                break outcome;
            }
            let has_room = self.answering.len() < ANSWERING_MAX;
            let takes_deliveries = self.takes_deliveries();
            let changed = async {
                match &mut sources.watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            let health_due = self.health.next_in(self.makes_checks());
            let nothing_moves = self.moves.under_way.is_empty();
            let event = tokio::select! {
                asked = sources.signals.next() => Event::Signal(asked),
                () = changed => Event::FileChanged,
                Some(built) = sources.built.recv(), if nothing_moves => Event::Built(built),
                Some(report) = sources.resolved.recv() => Event::Resolved(report),
                Some(delivery) = sources.delivered.recv(), if takes_deliveries => {
                    Event::Delivered(delivery)
                }
                Some(report) = sources.reports.recv(), if has_room => Event::Report(report),
                Some(query) = sources.queries.recv() => Event::Query(query),
                Some(step) = sources.handover.recv() => Event::Handover(step),
                Some(Ok((worker, asker, answer))) = self.answering.join_next() => {
                    Event::Answered(worker, asker, answer)
                }
                Some(Ok(ended)) = self.moves.under_way.join_next() => Event::MoveEnded(ended),
                Some(lost) = self.log.lost.recv() => Event::LinesLost(lost),
                () = tokio::time::sleep(health_due.unwrap_or_default()), if health_due.is_some() => {
                    Event::HealthDue
                }
                _ = upkeep.tick() => Event::Upkeep,
            };
            self.on_event(event).await;
            self.begin_moves();
        };
        self.admin_handles.close();
        self.answer_last(&mut sources.queries).await;
        for admin in std::mem::take(&mut self.admin) {
            admin.close().await;
        }
        self.hold_kept();
        self.kept.close().await;
        self.log.close().await;
        if outcome == Outcome::Drained {
            tracing::info!("drained");
        }
        outcome
    }

    /// Answers what was asked before another process took this one's place.
    async fn answer_last(&mut self, queries: &mut mpsc::Receiver<Query>) {
        // Workers have ended, and say nothing more.
        self.describing.clear();
        let released = std::mem::take(&mut self.admin_released);
        let closed = async {
            for server in released {
                server.close_released().await;
            }
        };
        let mut closed = std::pin::pin!(closed);
        loop {
            tokio::select! {
                () = &mut closed => return,
                Some(query) = queries.recv() => self.on_query(query),
            }
        }
    }

    async fn on_event(&mut self, event: Event<W>) {
        match event {
            Event::Signal(Asked::End) => self.end(),
            Event::Signal(Asked::Reload) => self.reload(),
            Event::Signal(Asked::ReopenLog) => self.log.reopen(),
            Event::Signal(Asked::Nothing) => {
                tracing::warn!("SIGUSR2 does nothing: start the successor, then send SIGTERM");
            }
            Event::FileChanged => self.read_config(Reading::IfChanged),
            Event::Built(built) => {
                self.on_built(built).await;
                self.config.builder.on_answered();
                self.hand_deliveries();
                self.hand_answers();
                self.report_reloaded();
                self.begin_when_read();
            }
            Event::Resolved(report) => self.on_resolved(report),
            Event::Delivered(delivery) => self.on_delivery(delivery),
            Event::Report(report) => self.on_report(report),
            Event::Query(query) => self.on_query(query),
            Event::Handover(step) => self.on_handover(step),
            Event::Answered(worker, asker, answer) => {
                self.workers.answer(worker, asker, answer);
            }
            Event::LinesLost(LinesLost(lines)) => {
                self.collector.access_log_write_failed(&AccessLogWriteFailed { lines });
            }
            Event::MoveEnded(ended) => self.on_move_ended(ended),
            Event::HealthDue => self.on_health_due(),
            Event::Upkeep => {
                self.health.on_upkeep(&self.config.snapshot);
                self.collector.poll();
                self.workers.flush();
                self.config.expiry.look();
                self.miss_file();
                self.release_memory();
                self.look_again();
                self.end_warming();
                self.end_waits();
                self.hand_deliveries();
                self.hand_answers();
                self.hold_kept();
                self.report_alive();
                self.drain_after_delay();
                self.rebalance();
                self.describing.retain(|_, (_, reply)| !reply.is_closed());
            }
        }
    }

    fn release_memory(&mut self) {
        if self.memory.is_due(self.collector.bytes_held(), clock::monotonic_ns()) {
            tokio::task::spawn_blocking(|| {
                let began = clock::monotonic_ns();
                W::release_free_memory();
                let micros = clock::monotonic_ns().saturating_sub(began) / 1000;
                tracing::debug!(micros, "free memory was given back to the system");
            });
        }
    }

    // Beginning and end.

    /// A first time drains, at the end of a delay if there is one, which a second time ends; another
    /// time stops.
    fn end(&mut self) {
        if self.postpones_end() {
            tracing::info!("a handover is under way: the end waits for its own");
            return;
        }
        match self.handing {
            Handing::Taking => return self.stop_taking(),
            Handing::Given(_) if self.state == State::Ready => return self.finish_giving(),
            Handing::None | Handing::Giving { .. } | Handing::Given(_) => {}
        }
        match self.state {
            State::Starting | State::Ready => self.leave(),
            State::Leaving => self.drain(),
            State::Draining => {
                tracing::warn!("stopping at once: what still ran is cut off");
                self.stop_now();
            }
            State::Stopping => {}
        }
    }

    fn stop_now(&mut self) {
        self.state = State::Stopping;
        self.service_manager.status("stopping at once");
        self.workers.stop();
    }

    /// Begins the end: says that the process is not ready, and drains after `limits.drain_delay`.
    fn leave(&mut self) {
        let limits = &self.config.snapshot.limits;
        let (delay, timeout) = (limits.drain_delay, limits.drain_timeout);
        if delay.is_zero() {
            return self.drain();
        }
        tracing::info!(?delay, "leaving: not ready any more, still accepting");
        self.state = State::Leaving;
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.drain_at = clock::monotonic_ns().saturating_add(delay_ns);
        let at_most = delay.saturating_add(timeout).saturating_add(END_MAX);
        self.service_manager.stopping(at_most, "not ready, still accepting");
    }

    fn drain_after_delay(&mut self) {
        if self.state == State::Leaving && clock::monotonic_ns() >= self.drain_at {
            self.drain();
        }
    }

    fn drain(&mut self) {
        let timeout = self.config.snapshot.limits.drain_timeout;
        tracing::info!(?timeout, "draining: not accepting any more, finishing what runs");
        self.state = State::Draining;
        self.config.dns.stop();
        self.service_manager.forget_workers();
        self.service_manager.stopping(timeout.saturating_add(END_MAX), "draining");
        self.drain_workers();
    }

    fn on_report(&mut self, report: Report<W>) {
        match report {
            Report::Started { .. } => {
                self.started += 1;
                if self.started == self.workers.count() && self.state == State::Starting {
                    self.state = State::Ready;
                    tracing::info!(workers = self.started, "ready");
                    self.is_reloading = false;
                    self.service_manager.ready(&self.status());
                }
            }
            Report::Stopped { .. } => {
                self.stopped += 1;
                if self.stopped == self.workers.count() {
                    self.outcome = Some(match self.state {
                        State::Stopping => Outcome::Stopped,
                        State::Starting | State::Ready | State::Leaving | State::Draining => {
                            Outcome::Drained
                        }
                    });
                }
            }
            Report::Failed { worker, reason } => {
                self.workers.stop();
                self.outcome = Some(Outcome::Failed(format!("worker {worker}: {reason}")));
            }
            Report::Question { worker, asker, question } => match self.answerers.ask(&question) {
                Some(answering) => {
                    self.answering.spawn(async move { (worker, asker, answering.await) });
                }
                None => {
                    tracing::error!(topic = %question.topic, "no handler is registered for this filter's question");
                }
            },
            Report::Retired(snapshot) => self.config.builder.free(snapshot),
            Report::Described { request, described } => {
                if self.service_manager.on_answer(request) {
                    return;
                }
                if let Some((worker, reply)) = self.describing.remove(&request) {
                    // The client may be gone.
                    let _ = reply.send(Rows::new(worker, described, &self.config.snapshot));
                }
            }
            Report::ListenerBroken { worker, listener } => {
                let listener = self.config.snapshot.listener(listener);
                let name = listener.map_or("(removed)", |(_, listener)| &listener.name);
                tracing::error!(
                    worker,
                    listener = name,
                    "a listening socket broke: restart to listen with this worker again"
                );
            }
            Report::BufferedOverflow { listener, closed } => {
                self.warn_of_overflow(listener, closed);
            }
            Report::OutlierFound { cluster, endpoint, kind } => {
                let found = (cluster, endpoint, kind);
                self.health.on_reached(&self.config.snapshot, found, &mut self.collector);
            }
            Report::Checked { number, result } => {
                let checked = (number, result);
                self.health.on_checked(&self.config.snapshot, checked, &mut self.collector);
            }
            Report::FailedItself { cluster, endpoint } => {
                self.health.on_failed_itself(&self.config.snapshot, (cluster, endpoint));
            }
            Report::OutOfDescriptors { worker } => self.warn_of_descriptors(worker),
            Report::Drained { worker, cut_off: 0 } => tracing::debug!(worker, "drained"),
            Report::Drained { worker, cut_off } => tracing::warn!(
                worker,
                cut_off,
                "exchanges were cut off: they took longer than limits.drain_timeout"
            ),
        }
    }

    /// Whether this process checks endpoints: one at a time does, and none while connections move from one to the other.
    fn makes_checks(&self) -> bool {
        matches!(self.state, State::Starting | State::Ready | State::Leaving)
            && self.handing == Handing::None
    }

    fn on_health_due(&mut self) {
        let count = self.makes_checks().then(|| self.workers.count());
        let tasks = self.health.on_due(&self.config.snapshot, count, &mut self.collector);
        for (worker, tasks) in tasks {
            self.workers.check(worker, tasks.into());
        }
    }

    fn warn_of_overflow(&mut self, listener: ListenerId, closed: u32) {
        let Some(closed) = self.overflows.note(listener, closed, clock::monotonic_ns()) else {
            return;
        };
        let listener = self.config.snapshot.listener(listener).map(|(_, listener)| listener);
        let name = listener.map_or("(removed)", |listener| &listener.name);
        let bytes_max = listener.and_then(|listener| listener.buffered_bytes_max);
        tracing::warn!(
            listener = name,
            closed,
            bytes_max,
            "the clients of a listener held more in buffers than its buffered_max: the connections \
             that held the most were closed (buffered_overflow); raise buffered_max if these were \
             no attack, or lower connections_per_client_max, http.head_max, http.request_buffer or rpc.body_max"
        );
    }

    fn warn_of_descriptors(&mut self, worker: u32) {
        if self.is_descriptor_warning_due() {
            tracing::warn!(
                worker,
                "no file descriptor was left to accept a connection: raise the limit on open \
                 files (ulimit -n, LimitNOFILE=) or lower limits.connections_max"
            );
        }
    }

    /// Whether it is time for another warning about descriptors, which there is one of then.
    fn is_descriptor_warning_due(&mut self) -> bool {
        let now = clock::monotonic_ns();
        let last = self.descriptors_warned_at;
        let is_due = last.is_none_or(|at| now.saturating_sub(at) > WARNING_INTERVAL);
        if is_due {
            self.descriptors_warned_at = Some(now);
        }
        is_due
    }

    // Configuration.

    fn read_config(&mut self, reading: Reading) {
        if self.postpones_reading() {
            return;
        }
        if self.is_ending() {
            self.config.builder.skip();
        } else {
            self.config.builder.read(reading);
        }
    }

    const fn is_ending(&self) -> bool {
        matches!(self.state, State::Draining | State::Stopping)
    }

    /// Reads the file once it has been away for too long, which says why it cannot be read; and once
    /// files that it names have not gone together for too long, such as a certificate and its key.
    fn miss_file(&mut self) {
        let is_missed = |since: &mut u64| clock::monotonic_ns().saturating_sub(*since) > GRACE;
        if self.config.unreadable_since.take_if(is_missed).is_some() {
            self.read_config(Reading::UnlessSame);
        }
        if self.config.unsettled_since.take_if(is_missed).is_some() {
            self.read_config(Reading::Anyway);
        }
    }

    /// A change that could not be read for lack of descriptors is looked at until it can: nothing else
    /// would tell of it again.
    fn look_again(&mut self) {
        let now = clock::monotonic_ns();
        if self.config.look_again_at.take_if(|at| *at <= now).is_some() {
            self.read_config(Reading::UnlessSame);
        }
    }

    fn on_starved(&mut self) {
        self.config.look_again_at = Some(clock::monotonic_ns() + GRACE);
        if self.is_descriptor_warning_due() {
            let file = self.config.builder.file_name();
            tracing::warn!(
                "no file descriptor was left to read {file} and what it names: it is looked at \
                 again every second; raise the limit on open files (ulimit -n, LimitNOFILE=) or \
                 lower limits.connections_max"
            );
        }
    }

    /// On request: also if nothing changed.
    fn reload(&mut self) {
        if !self.config.builder.has_file() {
            tracing::warn!("there is no configuration file to read again");
        } else if self.is_ending() {
            self.config.builder.skip();
            self.warn_of_skip();
        } else if let Handing::Given(pid) = self.handing {
            tracing::warn!("process {pid} has taken over: it reads the file, and takes SIGHUP");
        } else {
            self.report_reloading();
            self.read_config(Reading::Anyway);
        }
    }

    // The service manager.

    fn report_reloading(&mut self) {
        if self.state == State::Ready {
            self.is_reloading = true;
            let status = format!("reading {}", self.config.builder.file_name());
            self.service_manager.reloading(clock::boot_us(), &status);
        }
    }

    /// Ends a reload, once no question about the file is open.
    fn report_reloaded(&mut self) {
        let is_open = self.config.builder.is_busy() || self.config.warming.is_holding();
        if self.state != State::Ready || is_open {
            return;
        }
        let status = self.status();
        if std::mem::take(&mut self.is_reloading) {
            self.service_manager.ready(&status);
        } else {
            self.service_manager.status(&status);
        }
    }

    /// What serves, in a line.
    fn status(&self) -> String {
        let config = &self.config;
        let served = format!("configuration version {} serves", config.snapshot.version);
        match &config.refused {
            Some((at, refused)) => {
                let (count, at) = (refused.count(), clock::rfc3339(*at));
                format!("{served}; a later one was refused at {at}, mistakes: {count}")
            }
            None => served,
        }
    }

    /// Asks the workers whether they are alive, where the service manager wants to know.
    fn report_alive(&mut self) {
        self.service_manager.flush();
        let now = clock::monotonic_ns();
        if !self.service_manager.is_watchdog_due(now) {
            return;
        }
        let is_serving = matches!(self.state, State::Ready | State::Leaving);
        let count = if is_serving { self.workers.count() } else { 0 };
        let first = self.describe_next;
        self.describe_next += u64::from(count);
        self.service_manager.on_asked(first..self.describe_next, now);
        for (worker, request) in (0..count).zip(first..) {
            // No connection has this slot: the answer is empty.
            self.workers.describe(worker, u32::MAX, request);
        }
    }

    fn warn_of_skip(&self) {
        let (file, state) = (self.config.builder.file_name(), self.state_text());
        tracing::warn!("{file} is not read again: the process is {state}");
    }

    async fn on_built(&mut self, built: Built<W::Filter>) {
        let (result, watched) = match built {
            Built::Same => return self.config.unreadable_since = None,
            Built::Endpoints(endpoints) => return self.on_endpoints(endpoints).await,
            Built::Unreadable => {
                self.config.unreadable_since.get_or_insert_with(clock::monotonic_ns);
                return;
            }
            Built::Unsettled => {
                self.config.unsettled_since.get_or_insert_with(clock::monotonic_ns);
                return;
            }
            Built::Starved => return self.on_starved(),
            Built::Skipped => return self.warn_of_skip(),
            Built::Read(result, watched) => (result, watched),
        };
        self.config.unreadable_since = None;
        self.config.unsettled_since = None;
        self.config.look_again_at = None;
        if self.is_ending() {
            // The drain began while it was read.
            if let Ok(candidate) = result {
                self.config.builder.discard(candidate);
            }
            return self.warn_of_skip();
        }
        if let Some(list) = &self.config.watch_list {
            list.set(watched);
        }
        let result = match result {
            Ok(candidate) if self.is_held(&candidate) => {
                return self.config.builder.discard(candidate);
            }
            Ok(candidate) => self.take_up(candidate).await,
            Err(refused) => Err(refused),
        };
        if let Err(refused) = result {
            let (at, errors) = (clock::wall_ns(), refused.count());
            let version = self.config.snapshot.version;
            tracing::error!("configuration refused, version {version} serves on:\n{refused}");
            self.collector.config_rejected(&ConfigRejected { errors, at });
            self.config.refused = Some((at, refused));
            self.config.warming.forget();
            let host_names = self.config.host_names.clone();
            self.follow_names(&host_names);
        }
    }

    // Sources of endpoints.

    fn count_answer(
        &mut self,
        source: SourceKind,
        kind: ResourceKind,
        failure: Option<&'static str>,
    ) {
        let (kind, at) = (kind.word(), clock::wall_ns());
        self.collector.source_answered(&SourceAnswered { source, kind, failure, at });
    }

    /// Has the metrics say how files of endpoints and host names are.
    fn describe_sources(&mut self) {
        let refused = u64::try_from(self.config.endpoints_refused.len()).unwrap_or(u64::MAX);
        let good = self.config.endpoint_files.saturating_sub(refused);
        let files = [("good", good), ("refused", refused)];
        let files = files.map(|it| (SourceKind::File, it));
        let names = self.config.dns.states().into_iter().map(|it| (SourceKind::Dns, it));
        let all = files.into_iter().chain(names);
        let all = all.map(|(source, (state, count))| SourceResources { source, state, count });
        let all = all.chain(self.kept.restored());
        self.collector.source_resources(all.collect());
        self.kept.count(&mut self.collector);
        self.collector.config_resources(self.config.resources());
        self.health.gauge(&self.config.snapshot, &mut self.collector);
    }

    // Host names.

    /// Whether a configuration has to wait for first answers. Its names are asked for beside those of the one in
    /// effect, in the way that the new one says.
    fn is_held(&mut self, candidate: &Candidate<W::Filter>) -> bool {
        let resolvers = &candidate.snapshot().resolvers;
        if !self.config.warming.holds(candidate.unanswered(), resolvers) {
            return false;
        }
        self.config.dns.set_resolvers(resolvers);
        let names = self.config.host_names.union(&candidate.host_names()).cloned().collect();
        self.follow_names(&names);
        true
    }

    /// Has these names asked for and no others.
    fn follow_names(&mut self, names: &BTreeSet<Arc<DnsName>>) {
        let gone = self.config.dns.follow(names);
        self.forget_answers(&gone);
        self.note_answers(gone);
    }

    /// Takes note of what names stand for.
    fn note_answers(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.config.answers.extend(changes);
        self.hand_answers();
    }

    /// Hands over to the builder what names stand for, once it has time: of each name the last. Nothing is changed
    /// during a handover.
    fn hand_answers(&mut self) {
        let config = &mut self.config;
        if config.answers.is_empty() || config.builder.is_busy() || self.handing != Handing::None {
            return;
        }
        if matches!(self.state, State::Draining | State::Stopping) {
            return config.answers.clear();
        }
        let changes = std::mem::take(&mut config.answers).into_iter().collect();
        config.builder.answers(changes);
    }

    /// Reads the configuration that waited for first answers again, once they are there or took too long.
    fn end_warming(&mut self) {
        // Those that came have to be handed over before.
        let is_settled = self.config.answers.is_empty() && !self.config.builder.is_busy();
        if is_settled && self.config.warming.is_over(&self.config.dns) {
            self.read_config(Reading::Anyway);
        }
    }

    /// Files of endpoints changed, or what host names stand for, and nothing else.
    async fn on_endpoints(&mut self, endpoints: Endpoints<W::Filter>) {
        let Endpoints { candidate, outcomes, delivered, is_dns } = endpoints;
        self.config.unreadable_since = None;
        if self.is_ending() {
            if !is_dns {
                self.warn_of_skip();
            }
            return;
        }
        for outcome in outcomes {
            self.note_endpoints(outcome);
        }
        if let Some(candidate) = candidate
            && let Err(failures) = self.take_up_endpoints(candidate, is_dns).await
        {
            if delivered.is_some() {
                return self.config.deliveries.on_unbindable(failures);
            }
            let refused = Refused::Unbindable(failures);
            tracing::error!("endpoints refused, those of before serve on:\n{refused}");
        }
        if let Some(delivered) = delivered {
            self.on_delivered(*delivered);
        }
    }

    /// Remembers what became of a file of endpoints, and reports what is new of it.
    fn note_endpoints(&mut self, EndpointsOutcome { file, refused }: EndpointsOutcome) {
        let failure = refused.as_ref().map(|_| "invalid");
        self.count_answer(SourceKind::File, ResourceKind::Assignment, failure);
        let Some(errors) = refused else {
            if self.config.endpoints_refused.remove(&file).is_some() {
                tracing::info!(%file, "endpoints are good again");
            }
            return;
        };
        let known = self.config.endpoints_refused.get(&file);
        if known.is_some_and(|(_, known)| *known == errors) {
            return;
        }
        tracing::error!("endpoints refused, those of before serve on:\n{errors}");
        let refused = Refused::Invalid(errors.clone());
        let at = clock::wall_ns();
        self.collector.config_rejected(&ConfigRejected { errors: refused.count(), at });
        self.config.endpoints_refused.insert(file, (at, errors));
    }

    /// Takes other endpoints up, or what sources have delivered. Nothing here follows the size of the configuration,
    /// unless listeners changed.
    async fn take_up_endpoints(
        &mut self,
        mut candidate: Box<EndpointsCandidate<W::Filter>>,
        is_dns: bool,
    ) -> Result<(), Vec<BindFailure>> {
        let began = clock::monotonic_ns();
        let snapshot = Arc::clone(candidate.snapshot());
        let bound = self.workers.bind(&snapshot)?;
        warn(candidate.warnings());
        let (duration, names) = (candidate.duration, candidate.names.clone());
        let expiry = candidate.expiry.take();
        self.config.builder.keep_endpoints(candidate);
        if let Some(expiry) = expiry {
            self.collector.certificates_in_use(expiry.in_use());
            self.config.expiry = expiry;
        }
        if let Some(names) = names {
            self.collector.set_names(Arc::clone(&names));
            self.log.set_names(names).await;
        }
        for (_, endpoint) in &snapshot.changes.endpoints_removed {
            self.collector.forget_endpoint(label(endpoint.0));
        }
        // Before workers choose by it: what was ejected while it was built is counted.
        self.health.on_snapshot(&snapshot);
        self.workers.publish(&snapshot, bound.sockets);
        for id in &snapshot.changes.listeners_removed {
            self.config.addresses.remove(id);
        }
        self.config.addresses.extend(bound.addresses);
        self.publish_done(snapshot, (duration, began), is_dns);
        Ok(())
    }

    /// Ends the taking up of a snapshot that the workers have.
    fn publish_done(
        &mut self,
        snapshot: Arc<Snapshot<W::Filter>>,
        (duration, began): (u64, u64),
        is_dns: bool,
    ) {
        let loaded_at = clock::wall_ns();
        let version = snapshot.version;
        let taking_up = clock::monotonic_ns().saturating_sub(began);
        let accepted = ConfigAccepted { version, at: loaded_at, duration, taking_up };
        self.collector.config_accepted(&accepted);
        let changed = changes::summary(&self.config.snapshot, &snapshot);
        let milliseconds = duration / 1_000_000;
        if is_dns {
            tracing::debug!(version, milliseconds, %changed, "other addresses taken up");
        } else {
            tracing::info!(version, milliseconds, %changed, "configuration taken up");
        }
        if !snapshot.changes.clusters_removed.is_empty() {
            self.health.gauge(&snapshot, &mut self.collector);
        }
        let former = std::mem::replace(&mut self.config.snapshot, snapshot);
        self.config.builder.free(former);
        self.config.loaded_at = loaded_at;
    }

    /// Takes a candidate up, or changes nothing.
    async fn take_up(&mut self, mut candidate: Box<Candidate<W::Filter>>) -> Result<(), Refused> {
        let began = clock::monotonic_ns();
        let snapshot = Arc::clone(candidate.snapshot());
        let bound = match self.workers.bind(&snapshot) {
            Ok(bound) => bound,
            Err(failures) => {
                self.config.builder.discard(candidate);
                return self.leave_out(failures, &snapshot).map_err(Refused::Unbindable);
            }
        };
        self.config.deliveries.on_file_taken();
        let taken_up = candidate.take_up();
        let TakenUp { warnings, endpoints_refused, log_output, names, expiry, .. } = taken_up;
        let TakenUp { host_names, wanted, endpoint_files, duration, late, waits, .. } = taken_up;
        self.config.builder.keep(candidate);
        self.collector.set_names(Arc::clone(&names));
        for (_, endpoint) in &snapshot.changes.endpoints_removed {
            self.collector.forget_endpoint(label(endpoint.0));
        }
        self.log.set_names(names).await;
        self.log.set_output(log_output);
        // Before workers choose by it: what was ejected while it was built is counted.
        self.health.on_snapshot(&snapshot);
        self.workers.publish(&snapshot, bound.sockets);

        let config = &mut self.config;
        config.expiry = expiry;
        self.collector.certificates_in_use(config.expiry.in_use());
        for id in &snapshot.changes.listeners_removed {
            config.addresses.remove(id);
        }
        config.addresses.extend(bound.addresses);
        config.refused = None;
        config.dns.set_resolvers(&snapshot.resolvers);
        self.follow_names(&host_names);
        self.config.deliveries.want(wanted);
        self.config.host_names = host_names;
        self.config.endpoint_files = endpoint_files;
        self.publish_done(snapshot, (duration, began), false);
        self.on_relinked(late, waits);
        warn(&warnings);
        self.config.warnings = warnings;
        let is_refused = |file: &Arc<str>| endpoints_refused.iter().any(|it| it.file == *file);
        self.config.endpoints_refused.retain(|file, _| is_refused(file));
        for outcome in endpoints_refused {
            self.note_endpoints(outcome);
        }
        if duration >= LONG_BUILD {
            self.memory.note_freed();
        }
        Ok(())
    }
}

fn warn(warnings: &[Finding]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}
