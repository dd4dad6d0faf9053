//! A whole run: workers, their control, clients and services on one network, and the promises
//! that are checked all along and at the end.
//!
//! A run has three parts. In the first things go wrong; in the second nothing does any more, and
//! everything that was begun has to end within its time; in the third nobody is connected, and
//! everything has to be given back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use config::snapshot::ListenerId;
use proxy::time::Time;
use proxy::{ExchangeKey, Proxy, Share, Snapshot, SummarySide};
use telemetry::events::LabelId;
use telemetry::{Collector, Emitter, LogFormat, LogReader, ProcessFacts, RECORD_QUEUE_BYTES};
use worker::{Mailboxes, Message, Postbox, Report, ReportBody, Worker};

use crate::client::{Client, Leave, Manners};
use crate::configuration::{
    CLUSTERS, Configurations, EDGE, ENDPOINTS, Patience, SIDE, address, endpoint, label, names,
};
use crate::faults::{Faults, ServiceFaults};
use crate::ledger::{Ledger, Outcome};
use crate::network::{Network, PeerId, Shared};
use crate::plan::{RequestBody, RequestPlan};
use crate::random::Random;
use crate::service::Service;
use crate::world::{SimListener, SimWorld};

/// Bytes that one connection may hold back in its two queues: one read more than the 64 KiB at
/// which its source is held back, a head, and the same for what it has read itself.
const CONNECTION_BYTES_MAX: usize = 4 * (64 << 10);

/// Turns of the workers in which nothing else happens, after which they are taken to be busy with
/// nothing. Reading on what a large read left over takes a few.
const IDLE_TURNS_MAX: u32 = 500;

/// How long everything may take once nothing goes wrong any more. The whole of an exchange has
/// 30 s where timeouts are short, and a client has up to six of them.
const RECOVERY_MAX: Duration = Duration::from_secs(400);

/// How long after the last client idle connections may stand.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// What a run is made of. All of it follows from the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where all random numbers begin.
    pub seed: u64,
    /// Workers.
    pub workers: usize,
    /// Clients.
    pub clients: usize,
    /// How the network and the clock behave.
    pub faults: Faults,
    /// How services behave.
    pub service_faults: ServiceFaults,
    /// Configurations after the first.
    pub swaps: usize,
    /// Connections that move to another worker, or out of one and into it again.
    pub moves: usize,
    /// Whether the workers drain in the middle of it.
    pub drains: bool,
    /// Whether every request has to be answered.
    pub is_strict: bool,
}

impl Scenario {
    /// The scenario of a seed: in some nothing is at fault, and everything has to be answered.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed).split("scenario", 0);
        if random.chance(300) { Self::harmless(seed) } else { Self::chaos(seed) }
    }

    /// Delays, pieces and new configurations, and nothing that could cost a response.
    #[must_use]
    pub fn harmless(seed: u64) -> Self {
        let mut random = Random::new(seed).split("harmless", 0);
        Self {
            seed,
            workers: random.length_between(1, 3),
            clients: random.length_between(1, 20),
            faults: Faults::harmless(&mut random),
            service_faults: ServiceFaults::default(),
            swaps: random.length_below(8),
            moves: if random.chance(500) { random.length_below(200) } else { 0 },
            drains: false,
            is_strict: true,
        }
    }

    /// Everything that can go wrong, in some mixture.
    #[must_use]
    pub fn chaos(seed: u64) -> Self {
        let mut random = Random::new(seed).split("chaos", 0);
        let mut scenario = Self {
            workers: random.length_between(1, 3),
            clients: random.length_between(1, 25),
            faults: Faults::chaos(&mut random),
            service_faults: ServiceFaults::chaos(&mut random),
            swaps: random.length_below(8),
            moves: if random.chance(500) { random.length_below(200) } else { 0 },
            drains: random.chance(200),
            ..Self::harmless(seed)
        };
        scenario.is_strict = false;
        scenario
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// One number over everything that happened.
    pub hash: u64,
    /// How much happened on the network.
    pub happenings: u64,
    /// Turns of all workers.
    pub turns: u64,
    /// Virtual time that passed.
    pub duration: Duration,
    /// How requests ended.
    pub outcomes: BTreeMap<Outcome, usize>,
    /// Requests that were sent again.
    pub retried: usize,
    /// Connections that were moved to another worker.
    pub moved: usize,
}

/// The promises that were broken.
#[derive(Clone, Debug)]
pub struct Violations {
    /// What was broken.
    pub violations: Vec<String>,
    /// What happened last, if the trace was kept.
    pub trace: String,
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.trace)?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "violated: {violation}"))
    }
}

/// Somebody at the other side of the network.
#[derive(Debug)]
enum Peer {
    Client(Box<Client>),
    Service(Box<Service>),
}

/// One worker and when its thread gets a processor.
#[derive(Debug)]
struct Thread {
    worker: Worker<SimWorld>,
    /// When it runs next, if there is something to do.
    runs_at: Option<Time>,
}

/// What control is going to do.
#[derive(Debug)]
enum Errand {
    Swap,
    Drain,
    Move,
    Answer { worker: usize, exchange: ExchangeKey, payload: Arc<[u8]> },
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
    postboxes: Vec<Postbox<SimListener>>,
    reports: Receiver<Report>,
    errands: BTreeMap<(Time, u64), Errand>,
    errands_total: u64,
    collector: Collector,
    log: LogReader,
    log_text: Vec<u8>,
    /// The listener that every configuration has.
    edge: LabelId,
    snapshots_posted: usize,
    snapshots_retired: usize,
    turns: u64,
    idle_turns: u32,
    moved: usize,
    /// What counters said last, and what they have said so far, if that is written down.
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
        let patience = if scenario.is_strict { Patience::Long } else { Patience::Short };
        let configurations = Configurations::new(root.split("configurations", 0), patience);
        let network =
            Network::new(root.split("network", 0), scenario.faults.clone(), scenario.workers);
        let mailboxes = Mailboxes::new(u32::try_from(scenario.workers).expect("few workers"));
        let mut simulation = Self {
            scenario: scenario.clone(),
            random: root.split("simulation", 0),
            network: Rc::new(RefCell::new(network)),
            threads: Vec::new(),
            peers: Vec::new(),
            ledger: Ledger::default(),
            configurations,
            postboxes: mailboxes.postboxes,
            reports: mailboxes.reports,
            errands: BTreeMap::new(),
            errands_total: 0,
            collector: Collector::new("sim"),
            log: LogReader::new(),
            log_text: Vec::new(),
            edge: LabelId::default(),
            snapshots_posted: 0,
            snapshots_retired: 0,
            turns: 0,
            idle_turns: 0,
            moved: 0,
            counters: BTreeMap::new(),
            events: None,
        };
        let snapshot = match text {
            Some(text) => simulation.configurations.load(text),
            None => simulation.configurations.another(),
        };
        simulation.name(&snapshot);
        simulation.log.set_format(Some(LogFormat::Json));
        for (number, mailbox) in mailboxes.mailboxes.into_iter().enumerate() {
            let (emitter, reports) = Emitter::new(RECORD_QUEUE_BYTES);
            simulation.collector.add_worker(reports.counters);
            simulation.log.add_worker(reports.records);
            let now = simulation.network.borrow().now();
            let settings = proxy::Settings {
                share: Share {
                    worker: u32::try_from(number).expect("few workers"),
                    workers: u32::try_from(scenario.workers).expect("few workers"),
                },
                seed: root.split("worker", number as u64).next(),
            };
            let proxy = Proxy::new(settings, Arc::clone(&snapshot), emitter, now);
            let world = SimWorld::new(Rc::clone(&simulation.network), number);
            let listeners = simulation.listeners(&snapshot, number, |_| true);
            let settings = worker::Settings { stage_times: true };
            let worker = Worker::new(world, proxy, listeners, mailbox, settings)
                .expect("the simulated world watches any listener");
            simulation.threads.push(Some(Thread { worker, runs_at: None }));
        }
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

    /// The clients' requests as told by the access log, in the order of the workers' events.
    #[must_use]
    pub fn log_text(&self) -> &[u8] {
        &self.log_text
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
        let recovery_ends = self.now() + RECOVERY_MAX;
        while self.now() < recovery_ends && self.is_owed() && !self.has_failed() {
            self.step();
        }
        self.check_that_all_are_over();
        let silence_ends = self.now() + SILENCE_MAX;
        while self.now() < silence_ends && !self.has_failed() {
            self.step();
        }
        self.check_that_all_is_given_back();
        self.check_outcomes();
        self.summary(begin)
    }

    /// Runs for so long, or until something is violated.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now() + span;
        while self.now() < end && !self.has_failed() {
            self.step();
        }
    }

    /// Bytes of bodies that clients have read so far.
    #[must_use]
    pub fn read_total(&self) -> u64 {
        self.clients().map(Client::read_total).sum()
    }

    /// Bytes that the workers hold back for all connections now.
    pub fn buffered_bytes(&mut self) -> usize {
        let now = self.now();
        let threads = self.threads.iter_mut().flatten();
        let connections =
            threads.flat_map(|thread| thread.worker.proxy().describe(0, u32::MAX, now).0);
        connections.map(|connection| connection.inbox_bytes + connection.outbox_bytes).sum()
    }

    /// Writes down what the workers count, as it happens, from now on.
    pub fn record_events(&mut self) {
        self.events = Some(String::new());
        self.record(None);
        self.events = Some(String::new());
    }

    /// What was written down: a line for each counter that moved in a turn.
    #[must_use]
    pub fn events(&self) -> &str {
        self.events.as_deref().unwrap_or_default()
    }

    // Setting up.

    fn add_services(&mut self, root: &Random) {
        for cluster in 0..CLUSTERS.len() {
            for place in 0..ENDPOINTS {
                let peer = PeerId(self.peers.len());
                let random = root.split("service", peer.0 as u64);
                let address = config::snapshot::Address::Tcp(endpoint(cluster, place));
                let faults = self.scenario.service_faults.clone();
                let network = &mut self.network.borrow_mut();
                let service = Service::new(peer, address, faults, random, network);
                self.peers.push(Peer::Service(Box::new(service)));
            }
        }
    }

    fn add_clients(&mut self, root: &Random) {
        for number in 0..self.scenario.clients {
            let mut random = root.split("client", number as u64);
            let manners = self.manners(&mut random);
            let requests = self.requests(&mut random);
            let is_aside = !self.scenario.is_strict && random.chance(300);
            let listener = if is_aside { SIDE } else { EDGE };
            let delay = random.span(Duration::from_secs(10));
            self.add(listener, requests, manners, delay, random);
        }
    }

    /// Adds a client that connects after `delay` and sends `requests`.
    pub fn add_client(&mut self, requests: Vec<RequestPlan>, manners: Manners, delay: Duration) {
        let random = Random::new(self.scenario.seed).split("scripted", self.peers.len() as u64);
        self.add(EDGE, requests, manners, delay, random);
    }

    fn add(
        &mut self,
        listener: &str,
        requests: Vec<RequestPlan>,
        manners: Manners,
        delay: Duration,
        random: Random,
    ) {
        let peer = PeerId(self.peers.len());
        requests.iter().for_each(|request| self.ledger.announce(request));
        let network = &mut self.network.borrow_mut();
        let listener = address(listener);
        let client = Client::new(peer, listener, requests, manners, delay, random, network);
        self.peers.push(Peer::Client(Box::new(client)));
    }

    fn manners(&self, random: &mut Random) -> Manners {
        let polite = if random.chance(800) { Leave::Answered } else { Leave::HalfClose };
        let leave = match random.below(10) {
            _ if self.scenario.is_strict => polite,
            0 => Leave::CloseAfter(random.size(20_000)),
            1 => Leave::ResetAfter(random.size(20_000)),
            2 => Leave::StopsReading(random.length_below(3)),
            _ => polite,
        };
        let thinks = if self.scenario.is_strict { 3 } else { 15 };
        Manners {
            pipelined_max: if random.chance(400) { random.length_between(1, 3) } else { 0 },
            leave,
            slow_reading: random.chance(150).then(|| {
                let bytes = random.length_between(200, 8_000);
                (bytes, random.span(Duration::from_millis(300)))
            }),
            rests: (u32::try_from(random.below(100)).expect("small"), Duration::from_millis(500)),
            thinks: Duration::from_secs(thinks),
        }
    }

    fn requests(&self, random: &mut Random) -> Vec<RequestPlan> {
        let is_http11 = random.chance(850);
        let count = random.length_between(1, 6);
        let mut requests = Vec::new();
        for _ in 0..count {
            let request = request(is_http11, random);
            let is_last = request.is_last();
            requests.push(request);
            if is_last {
                return requests;
            }
        }
        if is_http11 && random.chance(100) {
            let tunnel = RequestPlan {
                id: random.next(),
                method: "GET",
                body: RequestBody::None,
                expects_continue: false,
                tunnel: Some(random.size(200_000)),
                connection: None,
                ..request(true, random)
            };
            requests.push(tunnel);
        }
        requests
    }

    fn plan_errands(&mut self) {
        let begin = self.now();
        for _ in 0..self.scenario.swaps {
            let at = begin + self.random.span(Duration::from_secs(20));
            self.errand(at, Errand::Swap);
        }
        for _ in 0..self.scenario.moves {
            // Most clients come at the beginning.
            let longest = Duration::from_secs(if self.random.chance(500) { 1 } else { 15 });
            let at = begin + longest.mul_f64(self.random.below(1_000_000) as f64 / 1e6);
            self.errand(at, Errand::Move);
        }
        if self.scenario.drains {
            let at = begin + self.random.span(Duration::from_secs(30));
            self.errand(at, Errand::Drain);
        }
    }

    fn errand(&mut self, at: Time, errand: Errand) {
        self.errands_total += 1;
        self.errands.insert((at, self.errands_total), errand);
    }

    // Going on.

    fn now(&self) -> Time {
        self.network.borrow().now()
    }

    /// Lets the next thing happen, wherever that is.
    fn step(&mut self) {
        let wake = self.network.borrow_mut().take_wake();
        if let Some((PeerId(peer), wake)) = wake {
            self.idle_turns = 0;
            let network = &mut self.network.borrow_mut();
            match self.peers.get_mut(peer) {
                Some(Peer::Client(client)) => client.on_wake(wake, network, &mut self.ledger),
                Some(Peer::Service(service)) => service.on_wake(wake, network, &mut self.ledger),
                None => {}
            }
            return;
        }
        let happening = self.network.borrow().next_time();
        let errand = self.errands.keys().next().map(|(time, _)| *time);
        let thread = (0..self.threads.len()).filter_map(|number| Some((self.due(number)?, number)));
        let thread = thread.min();
        let others = happening.into_iter().chain(errand).min();
        match (thread, others) {
            (Some((at, number)), others) if others.is_none_or(|other| at < other) => {
                if at > self.now() {
                    // It slept before this turn.
                    self.idle_turns = 0;
                }
                self.network.borrow_mut().advance(at);
                self.turn(number);
            }
            (_, Some(at)) => {
                self.idle_turns = 0;
                self.network.borrow_mut().advance(at);
                if happening == Some(at) {
                    self.network.borrow_mut().step();
                } else if let Some((_, errand)) = self.errands.pop_first() {
                    self.run_errand(errand);
                }
            }
            // Nothing will ever happen again: time passes.
            (_, None) => {
                let later = self.now() + Duration::from_secs(1);
                self.network.borrow_mut().advance(later);
            }
        }
    }

    /// When a worker's thread runs next.
    fn due(&mut self, number: usize) -> Option<Time> {
        let has_events = self.network.borrow().has_events(number);
        let now = self.now();
        let thread = self.threads.get_mut(number)?.as_mut()?;
        if has_events && thread.runs_at.is_none() {
            let is_slow = self.random.chance(self.scenario.faults.slow_thread);
            let span = if is_slow { Duration::from_millis(200) } else { Duration::from_micros(20) };
            thread.runs_at = Some(now + self.random.span(span));
        }
        let deadline = thread.worker.next_deadline();
        thread.runs_at.into_iter().chain(deadline).min()
    }

    fn turn(&mut self, number: usize) {
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        thread.runs_at = None;
        let goes_on = thread.worker.turn().expect("the simulated world always waits");
        self.turns += 1;
        self.idle_turns += 1;
        if self.idle_turns > IDLE_TURNS_MAX {
            let what = format!("worker {number} turns and turns, and nothing happens");
            self.ledger.violate(what);
        }
        if !goes_on {
            self.check_leases(number);
            self.threads[number] = None;
        } else if self.turns.is_multiple_of(16) {
            self.check_queues(number);
        }
        if self.events.is_some() {
            self.record(Some(number));
        }
        self.read_reports();
    }

    /// Writes down which counters moved. Counts of turns and of buffers are left out: they follow
    /// from how the work was done, not from what happened.
    fn record(&mut self, worker: Option<usize>) {
        let mut stats = String::new();
        self.collector.write_stats(&ProcessFacts::default(), "_total", &mut stats);
        // Finer times would change with every look at the clock.
        let tenths = self.now().as_nanos() / 100_000_000;
        for line in stats.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            let kept = self.counters.insert(name.to_owned(), value).unwrap_or(0);
            let is_work = ["proxy_worker_", "proxy_buffer", "proxy_process_", "process_"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            if value > kept
                && !is_work
                && let (Some(events), Some(worker)) = (&mut self.events, worker)
            {
                let (seconds, tenths) = (tenths / 10, tenths % 10);
                let added = value - kept;
                let _ = writeln!(events, "{seconds}.{tenths} worker {worker}: {name} +{added}");
            }
        }
    }

    fn read_reports(&mut self) {
        while let Ok(Report { worker, body }) = self.reports.try_recv() {
            match body {
                ReportBody::Question { exchange, question } => {
                    let at = self.now() + self.random.span(Duration::from_millis(50));
                    let worker = usize::try_from(worker).expect("few workers");
                    let payload = question.payload;
                    self.errand(at, Errand::Answer { worker, exchange, payload });
                }
                ReportBody::Retired(snapshot) => {
                    self.snapshots_retired += 1;
                    drop(snapshot);
                }
                ReportBody::ListenerBroken(id) => {
                    self.ledger.violate(format!("listener {id:?} broke"));
                }
                ReportBody::Described { .. }
                | ReportBody::OutOfDescriptors
                | ReportBody::Drained { .. } => {}
            }
        }
    }

    fn run_errand(&mut self, errand: Errand) {
        match errand {
            Errand::Swap => self.swap(),
            Errand::Move => self.move_one(),
            Errand::Drain => self.post_all(|_| Message::Drain),
            Errand::Answer { worker, exchange, payload } => {
                self.post(worker, Message::Answer { exchange, payload });
            }
        }
    }

    /// Moves some connection with all that belongs to it to some worker, as bytes and sockets.
    fn move_one(&mut self) {
        let now = self.now();
        let from = self.random.length_below(self.threads.len());
        let to = self.random.length_below(self.threads.len());
        let Some(Some(thread)) = self.threads.get_mut(from) else { return };
        let (mut connections, _) = thread.worker.proxy().describe(0, u32::MAX, now);
        // A listener that went cannot be found again by its name, so what came through it stays.
        let edge = SummarySide::Downstream(self.edge);
        let is_movable = |side| side == edge || matches!(side, SummarySide::Upstream { .. });
        connections.retain(|connection| is_movable(connection.side));
        if connections.is_empty() {
            return;
        }
        let key = self.random.pick(&connections).key;
        let Some(moving) = thread.worker.save(key) else { return };
        let refused = match self.threads.get_mut(to) {
            Some(Some(thread)) => thread.worker.restore(moving).err().map(|(_, moving)| moving),
            // That one has drained.
            _ => Some(moving),
        };
        match refused {
            None => self.moved += 1,
            // The other does not have its listener yet, or not any more: it stays.
            Some(moving) => {
                let Some(Some(thread)) = self.threads.get_mut(from) else { return };
                if thread.worker.restore(moving).is_err() {
                    self.ledger.violate(format!("worker {from} has lost a connection"));
                }
            }
        }
        self.network.borrow_mut().trace.note(now, "move", to as u64, &key.to_bits().to_le_bytes());
        self.read_reports();
    }

    fn swap(&mut self) {
        let snapshot = self.configurations.another();
        self.read_log();
        self.name(&snapshot);
        for number in 0..self.threads.len() {
            if self.threads.get(number).is_some_and(Option::is_some) {
                let added = &snapshot.changes.listeners_added;
                let listeners = self.listeners(&snapshot, number, |id| added.contains(&id));
                let snapshot = Arc::clone(&snapshot);
                self.snapshots_posted += 1;
                self.post(number, Message::Snapshot { snapshot, listeners });
            }
        }
    }

    fn listeners(
        &self,
        snapshot: &Snapshot,
        worker: usize,
        is_wanted: impl Fn(ListenerId) -> bool,
    ) -> Vec<(ListenerId, SimListener)> {
        let wanted = snapshot.listeners.iter().filter(|listener| is_wanted(listener.id));
        wanted
            .map(|listener| {
                let backlog = listener.socket.backlog.get();
                let socket = SimListener::new(&self.network, worker, &listener.address, backlog);
                (listener.id, socket)
            })
            .collect()
    }

    fn name(&mut self, snapshot: &Snapshot) {
        let names = names(snapshot);
        self.log.set_names(Arc::clone(&names));
        self.collector.set_names(names);
        let edge = snapshot.listeners.iter().find(|listener| &*listener.name == "edge");
        self.edge = edge.map_or(self.edge, |listener| label(listener.id.0));
    }

    fn post_all(&self, message: impl Fn(usize) -> Message<SimListener>) {
        for number in 0..self.threads.len() {
            self.post(number, message(number));
        }
    }

    fn post(&self, worker: usize, message: Message<SimListener>) {
        let postbox = self.postboxes.get(worker).expect("one for each worker");
        // A worker that has drained is gone, and its mail with it.
        if postbox.post(message).is_ok() {
            self.network.borrow_mut().notify(worker);
        }
    }

    fn read_log(&mut self) {
        let now = self.now().as_nanos();
        self.log.poll(now, &mut self.log_text, usize::MAX);
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

    // Promises.

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.peers.iter().filter_map(|peer| match peer {
            Peer::Client(client) => Some(client.as_ref()),
            Peer::Service(_) => None,
        })
    }

    fn is_over(&self) -> bool {
        self.clients().all(Client::is_over)
    }

    fn is_owed(&self) -> bool {
        self.clients().any(Client::is_owed)
    }

    fn has_failed(&self) -> bool {
        !self.ledger.violations().is_empty()
    }

    /// Nobody buffers more than its bound.
    fn check_queues(&mut self, number: usize) {
        let now = self.now();
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        let (connections, _) = thread.worker.proxy().describe(0, u32::MAX, now);
        let bytes_max = CONNECTION_BYTES_MAX + self.configurations.gathered_bytes_max;
        for connection in connections {
            if connection.inbox_bytes + connection.outbox_bytes > bytes_max {
                self.ledger.violate(format!("too much is buffered: {connection:?}"));
            }
        }
    }

    fn check_that_all_are_over(&mut self) {
        if self.has_failed() {
            return;
        }
        let network = &mut self.network.borrow_mut();
        for peer in &mut self.peers {
            if let Peer::Client(client) = peer
                && !client.is_over()
            {
                if client.is_owed() {
                    self.ledger.violate(format!("waits for ever: {}", client.describe()));
                }
                client.quit(network, &mut self.ledger);
            }
        }
    }

    fn check_that_all_is_given_back(&mut self) {
        if self.has_failed() {
            return;
        }
        for number in 0..self.threads.len() {
            self.check_leases(number);
        }
        let mut stats = String::new();
        self.collector.write_stats(&ProcessFacts::default(), "buffers_leased", &mut stats);
        if stats != "proxy_buffers_leased 0\n" {
            self.ledger.violate(format!("buffers are still leased: {stats:?}"));
        }
        let open = self.network.borrow().worker_ends();
        if open > 0 {
            self.ledger.violate(format!("{open} sockets are still open"));
        }
        self.check_pairs();
        let running = self.threads.iter().flatten().count();
        if running == self.threads.len() && self.snapshots_retired != self.snapshots_posted {
            self.ledger.violate(format!(
                "{} snapshots were given to workers and {} given back",
                self.snapshots_posted, self.snapshots_retired
            ));
        }
    }

    /// What began has ended, as told by the counters.
    fn check_pairs(&mut self) {
        let mut stats = String::new();
        self.collector.write_stats(&ProcessFacts::default(), "_total", &mut stats);
        let count = |name: &str| -> u64 {
            let numbers = stats.lines().filter(|line| line.starts_with(name));
            numbers.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        for (began, ended) in [
            (
                "proxy_downstream_connections_opened_total",
                "proxy_downstream_connections_closed_total",
            ),
            ("proxy_exchanges_started_total", "proxy_exchanges_finished_total"),
            ("proxy_tunnels_started_total", "proxy_tunnels_finished_total"),
        ] {
            let (began, ended) = ((began, count(began)), (ended, count(ended)));
            if began.1 != ended.1 {
                self.ledger.violate(format!("{began:?} and {ended:?} are no pairs"));
            }
        }
        self.read_log();
        let finished = count("proxy_exchanges_finished_total");
        let lines = self.log_text.iter().filter(|byte| **byte == b'\n').count() as u64;
        // Listeners that went took their counters with them, but not their lines.
        if lines < finished {
            self.ledger.violate(format!("{finished} exchanges and {lines} lines in the log"));
        }
    }

    /// A worker without connections tells how many buffers are leased: none.
    fn check_leases(&mut self, number: usize) {
        let now = self.now();
        let Some(Some(thread)) = self.threads.get_mut(number) else { return };
        let proxy = thread.worker.proxy();
        let (connections, _) = proxy.describe(0, u32::MAX, now);
        proxy.tell_gauges(0, 0);
        // A worker that ends does not close its pools one by one.
        if connections.iter().any(|connection| connection.state != "idle") {
            self.ledger.violate(format!("connections are left: {connections:?}"));
        }
    }

    fn check_outcomes(&mut self) {
        if !self.scenario.is_strict || self.has_failed() {
            return;
        }
        let is_bad =
            |outcome| !matches!(outcome, Outcome::Answered | Outcome::Declined | Outcome::Unsent);
        self.ledger.refuse_outcomes(is_bad);
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
            moved: self.moved,
        })
    }
}

fn request(is_http11: bool, random: &mut Random) -> RequestPlan {
    let method = *random.pick(&["GET", "GET", "GET", "HEAD", "POST", "PUT"]);
    let has_body = matches!(method, "POST" | "PUT");
    let length = match random.below(20) {
        0 => random.length_between(70_000, 200_000),
        _ => random.size(5_000),
    };
    let body = match random.below(2) {
        _ if !has_body => RequestBody::None,
        0 if is_http11 => RequestBody::Chunked(length, random.chance(300)),
        _ => RequestBody::Length(length),
    };
    let connection = match (is_http11, random.below(10)) {
        (true, 0) => Some("close"),
        (false, 0..7) => Some("keep-alive"),
        _ => None,
    };
    RequestPlan {
        id: random.next(),
        method,
        is_http11,
        cluster: random.pick::<&str>(&CLUSTERS),
        expects_continue: !body.is_empty() && is_http11 && random.chance(200),
        body,
        tunnel: None,
        connection,
    }
}
