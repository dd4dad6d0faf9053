//! A whole run: workers, their control, clients and services on one network, and the promises
//! that are checked all along and at the end.
//!
//! A run has three parts. The first injects faults; in the second there are none, and everything
//! that was begun has to end within its time; in the third no client is connected, and everything
//! has to be released.

mod bounds;
mod checks;
mod counts;
mod deliveries;
mod demands;
mod errands;
mod handovers;
mod moves;
mod outliers;
mod population;
mod processes;
mod promises;
mod publishing;
mod recording;
mod reports;
mod resolutions;
mod scenario;
mod summary;
mod turning;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use config::checks::Checker;
use config::outlier::Detector;
use config::priority::Priority;
use proxy::time::Time;
use proxy::{ExchangeKey, Snapshot};
use telemetry::{LogFormat, LogReader, LogStyle};
use worker::{Given, Mailboxes, Postbox, Report, Worker};

use crate::configuration::{Configurations, names};
use crate::ledger::Ledger;
use crate::network::{Network, Shared, Wake};
use crate::random::Random;
use crate::service::Service;
use crate::versions::Served;
use crate::world::{SimListener, SimSocket, SimWorld};

use self::bounds::Bounds;
use self::counts::Counts;
use self::errands::Errand;
use self::handovers::Handover;
use self::moves::Move;
use self::resolutions::Resolved;

pub use handovers::Returns;
pub use scenario::Scenario;
pub use summary::{Summary, Violations};

/// Turns of the workers in which nothing else happens, after which they are taken to be busy with
/// nothing. Reading on what a large read left over takes a few.
const IDLE_TURNS_MAX: u32 = 500;

/// How long everything may take once nothing goes wrong any more, from the last byte of a body that
/// some client read, or of a relay that it sent: one that opens its window by 500 bytes at a time, twice a
/// second, takes as long as it likes where timeouts are long (seed 301784), and so does one that sends 200 KB by
/// 18 bytes at a time (seed 70000699). The whole of an exchange has 30 s where they are short, and a client
/// has up to six of them.
const RECOVERY_MAX: Duration = Duration::from_secs(400);

/// How often it is looked whether some client has gone on, and how often that counts.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(100);
const PROGRESS_MAX: u32 = 100;

/// How long after the last client idle connections may stand.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A scripted peer.
#[derive(Debug)]
enum Peer {
    Client(Box<dyn Asker>),
    Service(Box<Service>),
}

impl Peer {
    /// Requests that came with the host of their endpoint.
    const fn rewritten(&self) -> usize {
        match self {
            Self::Client(_) => 0,
            Self::Service(service) => service.rewritten(),
        }
    }
}

/// A scripted client, of any protocol.
pub trait Asker: fmt::Debug {
    /// Handles a wake-up.
    fn on_wake(&mut self, wake: Wake, network: &mut Network, ledger: &mut Ledger);

    /// Whether it has nothing more to do.
    fn is_over(&self) -> bool;

    /// Whether it waits for something that Strait owes it.
    fn is_owed(&self) -> bool;

    /// Bytes of bodies that it read, and of a relay also those that it sent.
    fn moved_total(&self) -> u64;

    /// Its state, for a report.
    fn describe(&self) -> String;

    /// Leaves at once.
    fn quit(&mut self, network: &mut Network, ledger: &mut Ledger);
}

/// One worker, and when its thread is scheduled.
#[derive(Debug)]
struct Thread {
    worker: Worker<SimWorld>,
    /// When it runs next, if there is something to do.
    runs_at: Option<Time>,
}

/// A run.
pub struct Simulation {
    scenario: Scenario,
    random: Random,
    network: Shared,
    threads: Vec<Option<Thread>>,
    peers: Vec<Peer>,
    ledger: Ledger,
    configurations: Configurations,
    /// The latest configuration.
    snapshot: Option<Arc<Snapshot>>,
    /// By cluster.
    bounds: BTreeMap<(String, Priority), Bounds>,
    /// By listener: the most requests that it had for a bound so far.
    requests_max: BTreeMap<String, u32>,
    detector: Detector,
    checker: Checker,
    /// What decides about the times of checks.
    checks_random: Random,
    /// What decides which answers to checks say that their endpoint is degraded.
    degraded_random: Random,
    /// Checks that workers were asked for and did not answer yet.
    checks_open: BTreeSet<u64>,
    checks_ended: usize,
    /// Whether nothing more begins by itself.
    is_silent: bool,
    /// Endpoints that were ejected so far.
    ejections: usize,
    postboxes: Vec<Postbox<SimListener, SimSocket>>,
    /// Of each process, with the number of its first worker.
    reports: Vec<(usize, Receiver<Report>)>,
    errands: BTreeMap<(Time, u64), Errand>,
    errands_total: u64,
    counts: Counts,
    log: LogReader,
    log_text: Vec<u8>,
    snapshots_posted: usize,
    snapshots_retired: usize,
    turns: u64,
    idle_turns: u32,
    moved: usize,
    /// Moves under way.
    moves: Vec<Move>,
    /// The workers of the process that control plays.
    process: Range<usize>,
    /// Another process that takes its place.
    handover: Option<Box<Handover>>,
    /// Workers that were asked for groups, and had not answered when that was over.
    late: Vec<(usize, Receiver<Given<SimSocket>>)>,
    /// Handovers that began, and how often another process was the process then.
    handovers: usize,
    replaced: usize,
    /// How many workers they had before and then.
    replaced_workers: BTreeSet<(usize, usize)>,
    /// Workers whose process was killed.
    killed: usize,
    /// Those whose process stands still.
    stopped: BTreeSet<usize>,
    /// Configurations that came in a probation.
    reloaded_in_probation: usize,
    /// What a source delivered in one.
    delivered_in_probation: usize,
    /// How often a process was stopped.
    stops: usize,
    /// Former processes that the new ones found to be silent for too long.
    givers_ended: usize,
    /// New processes that might not be ended when a handover failed, and former ones that accepted beside a new one.
    takers_left: usize,
    stood_in: usize,
    /// How attempts to give everything back ended.
    returns: Returns,
    /// Control's handles on the listening sockets.
    listeners_of: Vec<(Arc<str>, SimListener)>,
    is_draining: bool,
    /// Exchanges that wait for a cluster, by worker.
    demands: Vec<(usize, ExchangeKey)>,
    demands_random: Random,
    /// Which delivered versions serve by a configuration, by the first worker of its process and its number.
    served: BTreeMap<(usize, u64), Served>,
    /// What became of connections when workers heard of other addresses.
    resolved: Resolved,
    /// Connections that were taken out of a worker, whichever took them up.
    taken_out: usize,
    /// The last values of the counters, and the lines recorded so far, if they are recorded.
    counters: BTreeMap<String, u64>,
    events: Option<String>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("scenario", &self.scenario).finish_non_exhaustive()
    }
}

impl Simulation {
    /// Sets everything up.
    ///
    /// # Panics
    ///
    /// If the first configuration is refused.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self::with_configuration(scenario, None)
    }

    /// Sets everything up, with this configuration to begin with.
    ///
    /// # Panics
    ///
    /// If it is refused.
    #[must_use]
    pub fn with_configuration(scenario: &Scenario, text: Option<&str>) -> Self {
        let root = Random::new(scenario.seed);
        let configurations = Configurations::new(root.split("configurations", 0), scenario);
        let mut ledger = Ledger::default();
        if configurations.has_retries {
            ledger.allow_retries();
        }
        ledger.has_moves = scenario.moves > 0 || scenario.handovers > 0 || scenario.drains;
        let network =
            Network::new(root.split("network", 0), scenario.faults.clone(), scenario.workers);
        let workers = u32::try_from(scenario.workers).expect("few workers");
        let mailboxes = Mailboxes::new(workers);
        let mut simulation = Self {
            scenario: scenario.clone(),
            random: root.split("simulation", 0),
            network: Rc::new(RefCell::new(network)),
            threads: Vec::new(),
            peers: Vec::new(),
            ledger,
            configurations,
            snapshot: None,
            bounds: BTreeMap::new(),
            requests_max: BTreeMap::new(),
            detector: Detector::default(),
            checker: Checker::default(),
            checks_random: root.split("check times", 0),
            degraded_random: root.split("degraded", 0),
            checks_open: BTreeSet::new(),
            checks_ended: 0,
            is_silent: false,
            ejections: 0,
            postboxes: Vec::new(),
            reports: Vec::new(),
            errands: BTreeMap::new(),
            errands_total: 0,
            counts: Counts::default(),
            log: LogReader::new(),
            log_text: Vec::new(),
            snapshots_posted: 0,
            snapshots_retired: 0,
            turns: 0,
            idle_turns: 0,
            moved: 0,
            moves: Vec::new(),
            process: 0..scenario.workers,
            handover: None,
            late: Vec::new(),
            handovers: 0,
            replaced: 0,
            replaced_workers: BTreeSet::new(),
            killed: 0,
            stopped: BTreeSet::new(),
            reloaded_in_probation: 0,
            delivered_in_probation: 0,
            stops: 0,
            givers_ended: 0,
            takers_left: 0,
            stood_in: 0,
            returns: Returns::default(),
            listeners_of: Vec::new(),
            is_draining: false,
            demands: Vec::new(),
            demands_random: root.split("demands", 0),
            served: BTreeMap::new(),
            resolved: Resolved::default(),
            taken_out: 0,
            counters: BTreeMap::new(),
            events: None,
        };
        let snapshot = match text {
            Some(text) => simulation.configurations.load(text),
            None => simulation.configurations.another(),
        };
        let now = simulation.now();
        let snapshot = simulation.configurations.begin_deliveries(now).unwrap_or(snapshot);
        simulation.note_bounds(&snapshot);
        simulation.detect_in(&snapshot);
        simulation.check_in(&snapshot);
        simulation.log.set_names(names(&snapshot));
        simulation.log.set_style(Some(LogStyle::all(LogFormat::Json)));
        let listeners = (0..scenario.workers)
            .map(|number| simulation.listeners(&snapshot, number, |_| true))
            .collect();
        simulation.start_workers(mailboxes, &snapshot, listeners, true);
        simulation.add_services(&root);
        simulation.add_clients(&root);
        simulation.plan_errands();
        simulation
    }

    /// Keeps the last of what happens as text, for a report.
    pub fn keep_trace(&self) {
        self.network.borrow_mut().trace.keep_lines();
    }

    /// Prints everything that happens.
    pub fn be_loud(&self) {
        self.network.borrow_mut().trace.be_loud();
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// The promises that were broken.
    pub fn run(mut self) -> Result<Summary, Violations> {
        let begin = self.now();
        let chaos_ends = begin + Duration::from_secs(60);
        while self.now() < chaos_ends && !self.is_over() && !self.has_failed() {
            self.step();
        }
        self.heal();
        self.recover();
        self.check_that_all_are_over();
        self.is_silent = true;
        let silence_ends = self.now() + SILENCE_MAX;
        while self.now() < silence_ends && !self.has_failed() {
            self.step();
        }
        self.check_that_checks_ended();
        self.check_that_all_was_heard();
        self.check_that_all_is_given_back();
        self.check_that_nothing_is_open();
        self.check_that_bounds_are_free();
        self.check_outcomes();
        self.summary(begin)
    }

    /// Ends all faults and runs until everything that was begun has ended.
    fn recover(&mut self) {
        let mut moved = self.progress();
        let mut ends = self.now() + RECOVERY_MAX;
        for _ in 0..PROGRESS_MAX {
            let look = ends.min(self.now() + PROGRESS_INTERVAL);
            while self.now() < look && self.is_owed() && !self.has_failed() {
                self.step();
            }
            if self.now() >= ends || !self.is_owed() || self.has_failed() {
                return;
            }
            let total = self.progress();
            if total > moved {
                (moved, ends) = (total, self.now() + RECOVERY_MAX);
            }
        }
    }

    /// Runs for so long, or until something is violated.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now() + span;
        while self.now() < end && !self.has_failed() {
            self.step();
        }
    }

    /// What goes on until nothing does: bytes that clients sent or read, and that services read. A request of 118 KB by 2
    /// octets each 9 ms takes longer than [`RECOVERY_MAX`] (seed 940010387).
    fn progress(&self) -> u64 {
        self.moved_total() + self.network.borrow().read_by_peers
    }

    /// Bytes of bodies that clients have read so far, and of relays also those that they sent.
    #[must_use]
    pub fn moved_total(&self) -> u64 {
        self.clients().map(Asker::moved_total).sum()
    }

    /// Bytes that the workers hold back for all connections now.
    pub fn buffered_bytes(&mut self) -> usize {
        let now = self.now();
        let threads = self.threads.iter_mut().flatten();
        let connections =
            threads.flat_map(|thread| thread.worker.proxy().describe(0, u32::MAX, now).connections);
        connections.map(|connection| connection.inbox_bytes + connection.outbox_bytes).sum()
    }

    fn now(&self) -> Time {
        self.network.borrow().now()
    }

    fn heal(&mut self) {
        let network = &mut self.network.borrow_mut();
        network.heal();
        for peer in &mut self.peers {
            if let Peer::Service(service) = peer {
                service.heal(network);
            }
        }
    }

    fn summary(self, begin: Time) -> Result<Summary, Violations> {
        let network = self.network.borrow();
        if self.has_failed() {
            let violations = self.ledger.violations().to_vec();
            return Err(Violations { violations, trace: network.trace.text() });
        }
        Ok(Summary {
            hash: network.trace.hash(),
            happenings: network.trace.count(),
            turns: self.turns,
            duration: network.now() - begin,
            outcomes: self.ledger.outcomes(),
            retried: self.ledger.retried(),
            rewritten: self.peers.iter().map(Peer::rewritten).sum(),
            delivered: self.ledger.versions.checked,
            waited: self.configurations.waited(),
            delivered_in_probation: self.delivered_in_probation,
            resolved: self.ledger.versions.resolved,
            closed_as_removed: self.resolved.closed,
            kept_though_removed: self.resolved.kept,
            kept_as_logical: self.resolved.kept_as_logical,
            moved: self.moved,
            replaced: self.replaced,
            replaced_workers: self.replaced_workers,
            reloaded_in_probation: self.reloaded_in_probation,
            stopped: self.stops,
            givers_ended: self.givers_ended,
            takers_left: self.takers_left,
            stood_in: self.stood_in,
            returns: self.returns,
            ejected: self.ejections,
            checked: self.checks_ended,
            spliced: network.spliced_total,
            secure: network.secure_total(),
        })
    }
}
