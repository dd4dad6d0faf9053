//! The control loop.
//!
//! One thing at a time, in the order in which it comes: a signal, a changed file, a report, a query
//! of the admin interface. None of it takes long: files are read and snapshots built and freed on a
//! thread of their own. A new configuration is taken up in this order: text, snapshot and access log
//! (there), sockets bound, names reported to who needs them, then the workers. What fails before the last
//! step leaves the former configuration serving.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use config::memory::MemoryMax;
use config::snapshot::{Address, DnsAnswer, DnsName, ListenerId, Snapshot};
use config::{Errors, Finding};
use telemetry::Collector;
use telemetry::events::{AccessLogWriteFailed, ControlTurned, MemoryBounded};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::admin::{AdminSocket, Query, Rows, Server, UnreadPages};
use crate::builder::{Builder, Built, Reading};
use crate::clock;
use crate::dns::{Dns, DnsReport};
use crate::expiry::Expiry;
use crate::handover::{Begun, HandoverStep};
use crate::handover_report::HandoverReport;
use crate::health::Health;
use crate::last_good::LastGood;
use crate::log_writer::{LinesLost, LogWriter};
use crate::memory::{MemoryLook, MemoryRelease, MemoryWatch, report_memory};
use crate::overflows::Overflows;
use crate::questions::Answerers;
use crate::reload::{Accepted, ConfigFile, Refused};
use crate::service_manager::ServiceManager;
use crate::signals::{Signalled, Signals};
use crate::source::{Delivery, Source};
use crate::storing::Storer;
use crate::tick::Tick;
use crate::warming::Warming;
use crate::watch::{FileWatch, Noticed, WatchList};
use crate::workers::{Report, Workers};

mod admin_handles;
mod adopting;
mod breakers;
mod deliveries;
mod demands;
mod drains;
mod ending;
mod file_lines;
mod file_trouble;
mod handing;
mod handover;
mod kept;
mod listing_pages;
mod moves;
mod old_process;
mod other_processes;
mod pages;
mod passing;
mod reading;
mod reports;
mod resource_page;
mod sources;
mod start;
mod stored;
mod taking_up;
mod versions;

use self::admin_handles::AdminHandles;
use self::deliveries::Deliveries;
use self::demands::Demands;
use self::drains::Drains;
use self::file_lines::FileLines;
use self::file_trouble::FileTrouble;
use self::handing::Handing;
use self::kept::KeptState;
use self::moves::{Ended, Moves};
use self::old_process::OldListing;
use self::other_processes::OtherProcesses;
use self::passing::hear_last;
use self::stored::Stored;
use self::versions::Versions;

/// Questions of filters that are being answered. More wait where they are: reports are not read
/// until there is room.
const ANSWERING_MAX: usize = 10_000;

/// Reports of workers that are taken together: between two, control looks at all else that may have happened.
const REPORTS_AT_ONCE: usize = 32;

/// Questions about connections that workers were asked and have not answered.
const DESCRIBING_MAX: usize = 1024;

/// Between two looks at what waits for nothing: new counters, answers that did not fit.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(100);

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
    /// Open as long as another may take its place, if one may. Closed once this process begins to end.
    pub hands_over: Option<OwnedFd>,
    /// Whether this is the first process of its PID namespace, which gets the signals that are meant for the one that
    /// serves.
    pub is_init: bool,
    /// The names under which the service manager may keep sockets of a former process that this one does not have.
    pub stale_sockets: Vec<String>,
    /// What leaves connections with the service manager.
    pub storer: Box<dyn Storer>,
    /// Whether the service manager had kept connections for this process.
    pub had_connections: bool,
    /// Version of the program.
    pub version: &'static str,
}

/// How the process is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All workers ended after a drain.
    Drained,
    /// All workers ended, and another process serves.
    Replaced {
        /// Its id; 0 for one that has none here, as in another container.
        successor: u32,
        /// Whether a signal has asked the process that serves to end, and could not be passed on to it.
        was_to_end: bool,
    },
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
                // As a task: whatever wakes what `block_on` itself runs also writes to the runtime's own eventfd, and
                // another wait follows for that.
                let serving = async { tokio::spawn(self.serve()).await };
                let outcome = match runtime.block_on(serving) {
                    Ok(outcome) => outcome,
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                };
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
    tick: Tick,
}

/// What came.
enum Event<W: Workers> {
    Signal(Signalled),
    FileChanged(Noticed),
    Built(Built<W::Filter>),
    Resolved(DnsReport),
    Delivered(Delivery),
    Reports(Vec<Report<W>>),
    Query(Query),
    Handover(HandoverStep<W>),
    Answered(u32, W::Asker, Arc<[u8]>),
    LinesLost(LinesLost),
    StateRead(LastGood),
    /// There is more to take note of.
    Noting,
    MoveEnded(Ended),
    HealthDue,
    Upkeep,
}

/// How far the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    /// Connections are being left for the next process.
    Storing,
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
    /// Workers that have ended.
    stopped: BTreeSet<u32>,
    outcome: Option<Outcome>,
    config: InEffect<W::Filter>,
    log: LogWriter,
    collector: Collector,
    admin: Vec<Server>,
    /// Those in whose place another process answers: what was asked here before is answered here.
    admin_released: Vec<Server>,
    admin_handles: AdminHandles,
    handing: Handing,
    /// Open as long as another process may take this one's place.
    hands_over: Option<OwnedFd>,
    /// Who is to begin a handover once the configuration that is being read is in effect.
    begin_waits: Option<oneshot::Sender<Result<Begun<W>, String>>>,
    answerers: Answerers,
    answering: JoinSet<(u32, W::Asker, Arc<[u8]>)>,
    describing: BTreeMap<u64, (u32, oneshot::Sender<Rows>)>,
    /// Pages of metrics that clients read.
    unread_pages: UnreadPages,
    describe_next: u64,
    listing: OldListing,
    demands: Demands<W::Asker>,
    descriptors_warned_at: Option<u64>,
    overflows: Overflows,
    health: Health,
    kept: KeptState,
    versions: Versions,
    moves: Moves,
    handover_report: HandoverReport,
    others: OtherProcesses,
    /// Whether this process was asked to end.
    is_asked_to_end: bool,
    memory: MemoryRelease,
    memory_watch: MemoryWatch,
    /// Bytes that the control groups of the process allow it.
    memory_of_groups: Option<u64>,
    service_manager: ServiceManager,
    /// Whether a reload was reported to the service manager, and its end was not.
    is_reloading: bool,
    /// Whether this is the first process of its PID namespace.
    is_init: bool,
    stored: Stored,
    version: &'static str,
}

/// A file of endpoints whose list is in use.
#[derive(Clone, Copy, Debug, Default)]
struct EndpointFile {
    /// When this list was read; wall-clock time, ns.
    accepted_at: u64,
    /// The version of the configuration that began to use it.
    version: u64,
    /// Of the content that was refused last, if any was.
    refused_digest: Option<u64>,
}

/// The files of endpoints that are refused since when (wall-clock time, ns), and why.
type EndpointsRefused = BTreeMap<Arc<str>, (u64, Errors)>;

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
    /// When the file's version in use was, wall-clock time, ns.
    file_accepted_at: u64,
    trouble: FileTrouble,
    /// Why a later one was refused, and when.
    refused: Option<(u64, Refused)>,
    /// Why files that it names are refused, and since when, while a later text does not count.
    named_refused: Option<(u64, Refused)>,
    /// The files of endpoints that are refused since when, and why: the lists of before stay in use.
    endpoints_refused: EndpointsRefused,
    /// Lines of the log about them.
    file_lines: FileLines,
    /// The files of endpoints that it names.
    endpoint_files: BTreeMap<Arc<str>, EndpointFile>,
    /// The clusters whose endpoints are from DNS, and the version that began to use these.
    resolved_since: BTreeMap<Arc<str>, u64>,
    dns: Dns,
    /// Its host names.
    host_names: BTreeSet<Arc<DnsName>>,
    /// What host names stand for, where the builder does not know yet.
    answers: BTreeMap<Arc<DnsName>, Option<DnsAnswer>>,
    warming: Warming,
    deliveries: Deliveries,
    drains: Drains,
}

/// The next ones, of which there is one at least; never, once there are no more.
async fn several<T>(queue: &mut mpsc::Receiver<T>, count_max: usize) -> Vec<T> {
    let mut taken = Vec::new();
    if queue.recv_many(&mut taken, count_max).await == 0 {
        std::future::pending::<()>().await;
    }
    taken
}

impl<W: Workers> Running<W> {
    async fn run(mut self, mut sources: Sources<W>) -> Outcome {
        // What was written between the first load and the watch is not seen by the watch.
        self.read_config(Reading::IfChanged);
        let outcome = loop {
            if let Some(outcome) = self.outcome.take() {
                break outcome;
            }
            // Each may be a question.
            let room = REPORTS_AT_ONCE.min(ANSWERING_MAX.saturating_sub(self.answering.len()));
            let takes_deliveries = self.takes_deliveries();
            let changed = async {
                match &mut sources.watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            let health_due = self.health.next_in(self.makes_checks());
            let takes_up = self.takes_up();
            let is_noting = self.config.deliveries.is_noting();
            let event = tokio::select! {
                signal = sources.signals.next() => Event::Signal(signal),
                noticed = changed => Event::FileChanged(noticed),
                Some(built) = sources.built.recv(), if takes_up => Event::Built(built),
                () = std::future::ready(()), if is_noting => Event::Noting,
                Some(report) = sources.resolved.recv() => Event::Resolved(report),
                Some(delivery) = sources.delivered.recv(), if takes_deliveries => {
                    Event::Delivered(delivery)
                }
                reports = several(&mut sources.reports, room), if room > 0 => Event::Reports(reports),
                Some(query) = sources.queries.recv() => Event::Query(query),
                Some(step) = sources.handover.recv() => Event::Handover(step),
                Some(Ok((worker, asker, answer))) = self.answering.join_next() => {
                    Event::Answered(worker, asker, answer)
                }
                Some(Ok(ended)) = self.moves.under_way.join_next() => Event::MoveEnded(ended),
                Some(lost) = self.log.lost.recv() => Event::LinesLost(lost),
                last_good = self.kept.read_state() => Event::StateRead(last_good),
                () = tokio::time::sleep(health_due.unwrap_or_default()), if health_due.is_some() => {
                    Event::HealthDue
                }
                () = sources.tick.next() => Event::Upkeep,
            };
            let began = clock::monotonic_ns();
            self.on_event(event).await;
            self.end_when_over();
            self.begin_moves();
            let taken = clock::monotonic_ns().saturating_sub(began);
            self.collector.control_turned(&ControlTurned { taken });
        };
        self.report_last(&mut sources.handover).await;
        self.admin_handles.close();
        self.answer_last(&mut sources.queries).await;
        for admin in std::mem::take(&mut self.admin) {
            admin.close().await;
        }
        self.finish_storing().await;
        self.hold_kept();
        self.kept.close().await;
        self.log.close().await;
        let has_drained = self.state != State::Stopping;
        if has_drained && matches!(outcome, Outcome::Drained | Outcome::Replaced { .. }) {
            tracing::info!("drained");
        }
        let (handing, is_init) = (self.handing, self.is_init);
        hear_last::<W>(handing, is_init, &mut sources.signals, outcome).await
    }

    /// Answers what was asked before another process took this one's place.
    async fn answer_last(&mut self, queries: &mut mpsc::Receiver<Query>) {
        // Workers have ended, and say nothing more.
        self.answer_for_ended(|_| true);
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
            Event::Signal(signal) => self.on_signal(signal),
            Event::FileChanged(noticed) => self.read_changed(noticed),
            Event::Built(built) => {
                self.on_built(built).await;
                if !self.config.deliveries.is_noting() {
                    self.on_built_noted();
                }
            }
            Event::Noting => {
                self.note_portion();
                if !self.config.deliveries.is_noting() {
                    self.on_built_noted();
                }
            }
            Event::Resolved(report) => self.on_resolved(report),
            Event::Delivered(delivery) => self.on_delivery(delivery),
            Event::Reports(reports) => {
                reports.into_iter().for_each(|report| self.on_report(report));
            }
            Event::Query(query) => self.on_query(query),
            Event::Handover(step) => self.on_handover(step),
            Event::Answered(worker, asker, answer) => {
                self.workers.answer(worker, asker, answer);
            }
            Event::LinesLost(LinesLost(lines)) => {
                self.collector.access_log_write_failed(&AccessLogWriteFailed { lines });
            }
            Event::StateRead(last_good) => self.take_state(last_good),
            Event::MoveEnded(ended) => self.on_move_ended(ended),
            Event::HealthDue => self.on_health_due(),
            Event::Upkeep => {
                self.health.on_upkeep(&self.config.snapshot);
                self.config.deliveries.end_second();
                self.config.file_lines.end_second();
                self.collector.poll();
                self.workers.flush();
                self.config.expiry.look();
                self.miss_file();
                if self.handing.successor().is_some() {
                    self.log.follow();
                }
                self.lose_what_ended();
                self.look_at_memory();
                self.look_again();
                self.end_warming();
                self.end_waits();
                self.expire_demands();
                self.hand_deliveries();
                self.hand_noted();
                self.hold_kept();
                self.begin_when_read();
                self.report_alive();
                self.warn_of_late_worker();
                self.drain_after_delay();
                self.end_wait_to_be_heard();
                self.rebalance();
                self.config.builder.on_upkeep();
                self.describing.retain(|_, (_, reply)| !reply.is_closed());
                self.listing.forget_unwanted();
            }
        }
        self.tell_warmed();
    }

    /// The builder's answer is taken up, and all that follows from it is taken note of: it is asked what has waited.
    fn on_built_noted(&mut self) {
        if !self.config.builder.has_noted() {
            self.config.drains.answer();
        }
        // What has waited is linked together with whatever is asked now.
        self.hand_along();
        self.config.builder.on_answered();
        self.hand_deliveries();
        self.hand_noted();
        self.report_reloaded();
        self.begin_when_read();
    }

    /// What the process may take of memory, if that is known.
    fn memory_bytes_max(&self) -> Option<u64> {
        match self.config.snapshot.limits.memory_max {
            MemoryMax::OfControlGroup => self.memory_of_groups,
            MemoryMax::Unbounded => None,
            MemoryMax::Bytes(bytes) => Some(bytes),
        }
    }

    /// Tells workers how near the process is to its bound on memory, and gives back what is free.
    fn look_at_memory(&mut self) {
        let now = clock::monotonic_ns();
        let max = self.memory_bytes_max();
        let resident = max.and_then(|_| W::resident_bytes()).unwrap_or_default();
        let MemoryLook { pressure, is_news, releases } = self.memory_watch.look(resident, max, now);
        if let Some(pressure) = pressure {
            self.workers.set_memory(pressure);
            if is_news {
                report_memory(pressure);
            }
        }
        self.collector
            .memory_bounded(&MemoryBounded { max, level: self.memory_watch.level() as u8 });
        if releases || self.memory.is_due(self.collector.bytes_held(), now) {
            tokio::task::spawn_blocking(|| {
                let began = clock::monotonic_ns();
                W::release_free_memory();
                let micros = clock::monotonic_ns().saturating_sub(began) / 1000;
                tracing::debug!(micros, "free memory was given back to the system");
            });
        }
    }

    /// Whether this process checks endpoints: one at a time does, and none while connections move from one to the other.
    fn makes_checks(&self) -> bool {
        // A process that hands over finds out what the other one goes by, which makes none before it has the place.
        matches!(self.state, State::Starting | State::Ready | State::Leaving)
            && matches!(
                self.handing,
                Handing::None | Handing::Giving { .. } | Handing::Given { stands_in: true, .. }
            )
    }

    /// Has workers serve the requests of clusters whose endpoints have been checked.
    fn tell_warmed(&mut self) {
        let warmed = self.health.take_warmed();
        if !warmed.is_empty() {
            self.workers.warmed(&warmed.into());
        }
    }

    fn on_health_due(&mut self) {
        let count = self.makes_checks().then(|| self.workers.count());
        let tasks = self.health.on_due(&self.config.snapshot, count, &mut self.collector);
        for (worker, tasks) in tasks {
            self.workers.check(worker, tasks.into());
        }
    }
}
