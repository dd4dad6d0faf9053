//! How a process comes up, and how it ends.
//!
//! Order: configuration, descriptors, sockets, then threads. Whatever can fail has failed before
//! the first connection is accepted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use ::handover::Part;
use config::file_mode::FileMode;
use config::snapshot::{Address, HandoverOptions, ListenerId, StartupOptions};
use control::{
    AdminSocket, Answerers, Candidate, ConfigFile, Control, DeliveredResources, EarlyAdmin,
    HandoverStep, LogWriter, Outcome, Parts, Refused, ServiceManager, Source, WarmingError,
    Workers,
};
use io::packets::{Barrier, PacketListener, set_access};
use proxy::Snapshot;
use proxy::filter::Filter;
use telemetry::{Collector, Emitter, LOG_QUEUE_BYTES, LogReader};
use tls::ProcessSessions;
use tokio::sync::mpsc;
use worker::REPORTS_MAX;

use crate::activation::Activation;
use crate::arguments::{Run, TakeOver};
use crate::cores::WorkerCount;
use crate::data_path::{Contacts, DataPath, KeepsHandles, address_text, hint};
use crate::descriptors::Descriptors;
use crate::filter_list::loader;
use crate::handover::giving::Giving;
use crate::handover::giving_back::{return_and_end, watch};
use crate::handover::log_pace::LogPace;
use crate::handover::socket_file::SocketFile;
use crate::handover::spawn;
use crate::handover::start_command::{StartCommand, has_starter_ended};
use crate::handover::stored::Stored;
use crate::handover::storing::Storing;
use crate::handover::taking::{Beginning, TakeOutcome, TakenSockets, Taking};
use crate::init::{is_init, stay_if_needed};
use crate::secrecy::{self, CoreDumps};
use crate::{COMMIT, Failure, VERSION, handover, logging};

/// Steps of a handover that wait for control.
const STEPS_MAX: usize = 16;

/// Where a process came up.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) listeners: Vec<(ListenerId, Vec<Address>)>,
    pub(crate) admin: Option<SocketAddr>,
}

/// `strait run`.
pub(crate) fn run(run: &Run) -> Result<(), Failure> {
    // Before anything is opened.
    let activation =
        Activation::from_environment(|name| std::env::var_os(name), std::process::id())?;
    logging::start(&run.log).map_err(|error| Failure::Start(error.to_string()))?;
    control::note_requests::<DataPath>().map_err(failed("signals"))?;
    activation.report();
    secrecy::key_log(run)?;
    let core_dumps = if run.core_dumps { CoreDumps::ALLOWED } else { CoreDumps::UNTIL_KEYS };
    let config = ConfigFile::new(&run.config, loader()?);
    serve(config, Vec::new(), core_dumps, activation, run.take_over, |_| Ok(()))
}

/// Serves `config`, and what `sources` deliver beside it, until a signal or the admin interface ends the process. `came`
/// is called once all is bound.
pub(crate) fn serve(
    mut config: ConfigFile<Box<dyn Filter>>,
    sources: Vec<Box<dyn Source>>,
    mut core_dumps: CoreDumps,
    activation: Activation,
    take_over: Option<TakeOver>,
    came: impl FnOnce(&Came) -> Result<(), Failure>,
) -> Result<(), Failure> {
    config.expect_sources(&sources);
    let loaded = load(&mut config, &activation, take_over.is_some());
    let (candidate, early) = match loaded {
        // It was asked to, and leaves nothing undone.
        Err(Failure::Ended(reason)) if take_over.is_none() => {
            tracing::info!("{reason}");
            return Ok(());
        }
        loaded => loaded.inspect_err(|failure| {
            if let (Some(take_over), Some(file)) = (take_over, config.path()) {
                handover::taking::refuse(file, take_over == TakeOver::Check, failure);
            }
        })?,
    };
    let snapshot = Arc::clone(candidate.snapshot());
    activation.check_use(&snapshot)?;
    core_dumps.on_snapshot(&snapshot);
    let workers = worker_count(&snapshot)?;
    let open_files_max = raise_open_files();
    let handover_path =
        handover::socket_path(&snapshot.startup.handover, |name| std::env::var_os(name));
    let handover_options = snapshot.startup.handover.clone();
    // What comes with a takeover may take its place.
    drop(snapshot);
    let has_sources = !sources.is_empty();
    let mut begun = StartCandidate { config: &mut config, candidate: Ok(candidate), has_sources };
    let asked = take_over_from(take_over, handover_path.as_deref(), &handover_options, &mut begun)?;
    let (mut taking, taken) = match asked {
        TakeOutcome::NoProcess(_) => (None, TakenSockets::default()),
        TakeOutcome::Taking(taking, sockets) => (Some(taking), sockets),
        TakeOutcome::Checked(former) => {
            let open = io::limits::open_files().unwrap_or_default();
            let here = Descriptors::divide(open_files_max, open, workers.count);
            let room = former.map_or(Ok(()), |former| here.check_room_for(former));
            return room.map_err(Failure::Start);
        }
    };
    let candidate = begun.candidate;
    let start = Start {
        config,
        sources,
        core_dumps,
        activation,
        workers,
        open_files_max,
        handover_path,
        early,
        taken,
    };
    let started = start.begin(candidate, &mut taking, came);
    // The process that would be replaced goes on, and says why.
    let control = started.inspect_err(|failure| give_up(&mut taking, failure))?;
    match control.run() {
        Outcome::Drained => Ok(()),
        Outcome::Replaced { successor, was_to_end } => {
            stay_if_needed(successor, was_to_end, |name| std::env::var_os(name));
            Ok(())
        }
        Outcome::Stopped => Err(Failure::Ended("stopped before everything had ended".to_owned())),
        Outcome::Failed(reason) => Err(Failure::Ended(reason)),
    }
}

/// What a process starts with, once it is known which process it takes the place of.
struct Start {
    config: ConfigFile<Box<dyn Filter>>,
    sources: Vec<Box<dyn Source>>,
    core_dumps: CoreDumps,
    activation: Activation,
    workers: WorkerCount,
    open_files_max: u64,
    handover_path: Option<PathBuf>,
    early: EarlySockets,
    taken: TakenSockets,
}

impl Start {
    /// Binds what is new, and starts the threads. `taking` goes to the one that takes over, as the last thing that can fail but for
    /// `came`.
    fn begin(
        self,
        candidate: Result<Candidate<Box<dyn Filter>>, Refused>,
        taking: &mut Option<Box<Taking>>,
        came: impl FnOnce(&Came) -> Result<(), Failure>,
    ) -> Result<Control<DataPath>, Failure> {
        let Self { mut config, sources, mut core_dumps, mut activation, workers, .. } = self;
        let (handover_path, mut taken) = (self.handover_path, self.taken);
        let candidate = candidate.map_err(Failure::Config)?;
        let snapshot = Arc::clone(candidate.snapshot());
        core_dumps.on_snapshot(&snapshot);
        if taking.is_some() {
            candidate.check_room().map_err(Failure::Config)?;
            // Before workers accept: what they are asked for may be in the other process's memory.
            config.sessions().early.expect();
        }
        let (queues, kept_elsewhere) = (activation.take_connections(), activation.moved(&snapshot));
        activation.take_over(std::mem::take(&mut taken.listeners));
        let is_stored = snapshot.startup.handover.fd_store.keeps_listeners();
        let keeps_handles =
            KeepsHandles { for_taker: handover_path.is_some(), for_service_manager: is_stored };
        let (report_sender, reports) = mpsc::channel(REPORTS_MAX);
        let (mut data_path, crew) =
            DataPath::new(workers.count, core_dumps, activation, keeps_handles, report_sender)
                .map_err(failed("the workers' descriptors"))?;
        let bound = data_path
            .bind(&snapshot)
            .map_err(|failures| Failure::Config(Refused::Unbindable(failures)))?;
        if let Some(taking) = taking {
            taking.unused = data_path.unused(&snapshot);
            taking.note_moved(data_path.activation().moved(&snapshot));
        }
        let was_stored = taking.is_none() && data_path.activation().has_taken();
        let stale_sockets = data_path.let_go(&snapshot);
        let mut first = config.keep(candidate);
        let (admin, metrics) =
            self.early.or_bind(&snapshot.startup, &mut taken, data_path.activation())?;
        if let Some(taking) = taking {
            taking.unused.extend(taken.unused_admin());
        }
        // Clients that connect to what is not used here would wait for ever otherwise, once the other process has closed it.
        drop(taken);
        let bound_at =
            |socket: &Option<AdminSocket>| socket.as_ref()?.local_address().ok().flatten();
        let addresses = Came { listeners: bound.addresses.clone(), admin: bound_at(&admin) };

        let open = io::limits::open_files().unwrap_or_default();
        let descriptors = Descriptors::divide(self.open_files_max, open, workers.count);
        if let Some(taking) = taking {
            taking.check_room(&descriptors).map_err(Failure::Start)?;
        }
        let Telemetry { collector, reader, emitters } = Telemetry::of(workers.count);
        let at = (&addresses, bound_at(&metrics));
        log_start(config.name(), &snapshot, &workers, &descriptors, at);
        let log =
            LogWriter::start(reader, &mut first).map_err(failed("the access log's thread"))?;
        let options = snapshot.startup.handover.clone();
        let peers = match handover_path.as_deref().filter(|_| taking.is_none()) {
            Some(path) => Some(bind_handover(path, &options)?),
            None => None,
        };
        let had_connections = !queues.is_empty();
        let stored = read_stored(queues, &snapshot, kept_elsewhere, &config.sessions())?;
        // One that takes another's place knows first which endpoints that one gives no requests.
        let crew = (crew, taking.is_none());
        data_path
            .start(crew, &snapshot, bound.sockets, emitters, descriptors)
            .map_err(failed("the workers' threads"))?;
        if was_stored {
            // The process that had them is gone.
            data_path.set_socket_options(&snapshot);
            data_path.set_file_modes(&snapshot);
        }
        let (steps, handover) = mpsc::channel(STEPS_MAX);
        let is_taking_over = taking.is_some();
        let (contacts, sessions) = (data_path.contacts(), config.sessions());
        let storer = Box::new(Storing::new(contacts.clone(), sessions.clone()));
        let thread = HandoverThread { options, contacts, steps, sessions };
        let hands_over = thread.start(handover_path.as_deref(), peers, taking, stored)?;
        came(&addresses)?;
        Ok(Control::new(Parts {
            sources,
            config,
            first,
            addresses: bound.addresses,
            workers: data_path,
            reports,
            log,
            collector,
            admin,
            metrics,
            answerers: Answerers::default(),
            service_manager: service_manager(),
            handover,
            is_taking_over,
            hands_over,
            is_init: is_init(),
            stale_sockets,
            storer,
            had_connections,
            version: VERSION,
        }))
    }
}

/// What the system refused at the start.
fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Start(format!("{what}: {error}; {}", hint_for_start(&error)))
}

fn hint_for_start(error: &std::io::Error) -> &'static str {
    match io::errno_name(error) {
        "EMFILE" | "ENFILE" => "raise the limit on open files (`LimitNOFILE=`, `ulimit -n`)",
        "EAGAIN" | "ENOMEM" => {
            "raise the limit on threads or memory (`TasksMax=`, `MemoryMax=`, `ulimit -u`)"
        }
        _ => "see the system's log",
    }
}

/// The configuration with the first answers for its host names. Meanwhile its admin interface answers already, unless this
/// process takes the place of another, which answers for itself until then.
fn load(
    config: &mut ConfigFile<Box<dyn Filter>>,
    activation: &Activation,
    is_taking_over: bool,
) -> Result<(Candidate<Box<dyn Filter>>, EarlySockets), Failure> {
    let candidate = config.load().map_err(Failure::Config)?;
    let early = match candidate.is_waiting() && !is_taking_over {
        true => EarlySockets::bind(candidate.snapshot(), activation)?,
        false => EarlySockets::default(),
    };
    let admin = EarlyAdmin {
        admin: early.admin.as_ref().map(|(socket, _)| socket),
        metrics: early.metrics.as_ref().map(|(socket, _)| socket),
        version: VERSION,
    };
    let candidate = config.warm::<DataPath>(candidate, &admin).map_err(|error| match error {
        WarmingError::Refused(refused) => Failure::Config(refused),
        WarmingError::Ended => {
            Failure::Ended("stopped while it waited for first answers of DNS".to_owned())
        }
        WarmingError::System(error) => Failure::Start(error.to_string()),
    })?;
    Ok((candidate, early))
}

/// Has the process that would be replaced know why it is not.
fn give_up(taking: &mut Option<Box<Taking>>, failure: &Failure) {
    if let Some(taking) = taking.take() {
        taking.give_up(&failure.to_string());
    }
}

/// The limit on open files, as high as it may be.
fn raise_open_files() -> u64 {
    io::limits::raise_open_files().unwrap_or_else(|error| {
        tracing::warn!("the limit on open files cannot be raised: {error}");
        io::limits::open_files_max()
    })
}

/// The connections that a former process left with the service manager, if it left some and they can be read. `moved` are listeners
/// whose kept sockets have another address than theirs. To be called as late as possible: what was read is in no queue any more, and
/// is lost with a process that cannot start.
fn read_stored(
    queues: Vec<OwnedFd>,
    snapshot: &Snapshot,
    moved: BTreeSet<String>,
    sessions: &ProcessSessions,
) -> Result<Option<Stored>, Failure> {
    if queues.is_empty() {
        return Ok(None);
    }
    // One that asks this process to end has connections stored again, once control hears it.
    control::note_signals::<DataPath>().map_err(failed("signals"))?;
    let mut stored = Stored::read(queues, snapshot);
    if let Some(stored) = &mut stored {
        stored.note_moved(moved);
        stored.adopt(sessions);
    }
    Ok(stored)
}

/// Logs what starts, and where it listens; `metrics` is where scrapers ask.
fn log_start(
    config: &str,
    snapshot: &Snapshot,
    workers: &WorkerCount,
    descriptors: &Descriptors,
    (came, metrics): (&Came, Option<SocketAddr>),
) {
    tracing::info!(
        version = VERSION,
        commit = COMMIT,
        config,
        workers = workers.count,
        workers_from = %workers,
        descriptors = descriptors.limit,
        admin = %admin_text(snapshot.startup.admin.as_ref(), came.admin),
        metrics = %admin_text(snapshot.startup.metrics.as_ref(), metrics),
        "starting"
    );
    log_listening(snapshot, came);
    descriptors.warn(&snapshot.limits);
}

fn log_listening(snapshot: &Snapshot, came: &Came) {
    for (id, addresses) in &came.listeners {
        let Some((_, listener)) = snapshot.listener(*id) else { continue };
        for address in addresses {
            tracing::info!(listener = %listener.name, address = %address_text(address), "listening");
        }
    }
}

/// What workers emit to, and where that is read.
struct Telemetry {
    collector: Collector,
    reader: LogReader,
    /// One for each worker.
    emitters: Vec<Emitter>,
}

impl Telemetry {
    fn of(workers: u32) -> Self {
        let mut collector = Collector::new(VERSION).built_from(COMMIT);
        let mut reader = LogReader::new();
        let mut emitters = Vec::new();
        for _ in 0..workers {
            let (mut emitter, reports) = Emitter::new(LOG_QUEUE_BYTES);
            if tracing::enabled!(tracing::Level::DEBUG) {
                reader.add_debug_lines(emitter.set_debug());
            }
            collector.add_worker(reports.counters);
            reader.add_worker(reports.records);
            emitters.push(emitter);
        }
        Self { collector, reader, emitters }
    }
}

/// The admin interface's sockets of a process that waits for first answers, and their addresses in the
/// configuration.
#[derive(Debug, Default)]
struct EarlySockets {
    admin: Option<(AdminSocket, Address)>,
    metrics: Option<(AdminSocket, Address)>,
}

impl EarlySockets {
    fn bind(snapshot: &Snapshot, activation: &Activation) -> Result<Self, Failure> {
        let startup = &snapshot.startup;
        let bind = |address: &Option<Address>| -> Result<_, Failure> {
            let Some(address) = address else { return Ok(None) };
            let socket = bind_admin(address, startup.admin_mode, activation)?;
            let bound = socket.local_address().ok().flatten();
            let at = admin_text(Some(address), bound);
            tracing::info!(admin = %at, "starting: the admin interface responds, but no worker serves yet");
            Ok(Some((socket, address.clone())))
        };
        Ok(Self { admin: bind(&startup.admin)?, metrics: bind(&startup.metrics)? })
    }

    /// The sockets of the admin interface: these, where they are the right ones, those that were taken over, or new ones.
    fn or_bind(
        self,
        startup: &StartupOptions,
        taken: &mut TakenSockets,
        activation: &Activation,
    ) -> Result<AdminSockets, Failure> {
        let mut bind = |address: &Option<Address>, early| match (address, early) {
            (None, _) => Ok(None),
            (Some(address), Some((socket, at))) if *address == at => Ok(Some(socket)),
            (Some(address), early) => {
                // Or it would be in use.
                drop(early);
                if taken.is_admin_lost(address) {
                    // The former process keeps the socket that no client reaches.
                    match bind_admin(address, startup.admin_mode, activation) {
                        Ok(socket) => return Ok(Some(socket)),
                        Err(failure) => tracing::error!("{failure}"),
                    }
                }
                let taken = taken.take_admin(address);
                taken
                    .map_or_else(|| bind_admin(address, startup.admin_mode, activation), Ok)
                    .map(Some)
            }
        };
        Ok((bind(&startup.admin, self.admin)?, bind(&startup.metrics, self.metrics)?))
    }
}

/// Of all pages, and of the metrics alone.
type AdminSockets = (Option<AdminSocket>, Option<AdminSocket>);

/// Asks the running process for what it has, if this one is to take its place.
fn take_over_from(
    take_over: Option<TakeOver>,
    path: Option<&Path>,
    options: &HandoverOptions,
    beginning: &mut dyn Beginning,
) -> Result<TakeOutcome, Failure> {
    let Some(take_over) = take_over else { return Ok(TakeOutcome::NoProcess(String::new())) };
    let asked = match path {
        Some(path) => {
            let is_check = take_over == TakeOver::Check;
            handover::taking::ask(path, options, beginning, is_check)?
        }
        None => TakeOutcome::NoProcess("the configuration has no handover.socket".to_owned()),
    };
    if let TakeOutcome::NoProcess(reason) = &asked {
        if take_over == TakeOver::Required && has_starter_ended(|name| std::env::var_os(name)) {
            tracing::error!(
                "the process that this one was to replace has ended: this one starts, without its connections"
            );
            return Ok(asked);
        }
        if take_over != TakeOver::IfAny {
            return Err(Failure::Start(format!("there is no process to take over from: {reason}")));
        }
        tracing::info!("there is no process to take over from: {reason}");
    }
    Ok(asked)
}

/// What a process begins with that may take another's place.
struct StartCandidate<'a> {
    config: &'a mut ConfigFile<Box<dyn Filter>>,
    /// Or why there is none any more.
    candidate: Result<Candidate<Box<dyn Filter>>, Refused>,
    has_sources: bool,
}

impl Beginning for StartCandidate<'_> {
    fn reads_resources(&self) -> bool {
        self.has_sources || self.candidate.as_ref().is_ok_and(|it| !it.host_names().is_empty())
    }

    fn begin_with(&mut self, delivered: DeliveredResources) -> Result<(), String> {
        let unknown = Refused::Unbindable(Vec::new());
        let candidate = std::mem::replace(&mut self.candidate, Err(unknown));
        self.candidate = candidate.and_then(|it| self.config.restore(it, delivered));
        self.candidate.as_ref().map(drop).map_err(ToString::to_string)
    }

    fn continue_versions(&mut self, version: u64) {
        self.config.continue_versions(version);
        if let Ok(candidate) = &mut self.candidate {
            candidate.continue_versions(version);
        }
    }

    fn parts(&self) -> Vec<Part> {
        let snapshot = self.candidate.as_ref().map(Candidate::snapshot);
        snapshot.map(|snapshot| handover::parts(snapshot)).unwrap_or_default()
    }
}

/// Where other processes connect to.
fn bind_handover(path: &Path, options: &HandoverOptions) -> Result<PacketListener, Failure> {
    let at = path.display();
    let access = handover::access(options);
    io::packets::private_folder(path, access).map_err(|error| {
        Failure::Start(format!("handover: the folder of {at} has to be private: {error}"))
    })?;
    PacketListener::bind(path, access).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process has it: start with --take-over to take its place, or give this process another socket"
            }
            std::io::ErrorKind::AlreadyExists => {
                "remove it, or give this process another socket"
            }
            _ => "see the option handover.socket",
        };
        Failure::Start(format!("handover: cannot listen at {at}: {error}; {hint}"))
    })
}

/// The thread that takes over, and then gives.
struct HandoverThread {
    options: HandoverOptions,
    contacts: Contacts,
    steps: mpsc::Sender<HandoverStep<DataPath>>,
    sessions: ProcessSessions,
}

impl HandoverThread {
    /// Starts it, if other processes may connect to `path`, by `listener` or once this process has taken over: what has to be closed when
    /// this process begins to end. What was stored is taken up in any case.
    fn start(
        self,
        path: Option<&Path>,
        listener: Option<PacketListener>,
        taking: &mut Option<Box<Taking>>,
        stored: Option<Stored>,
    ) -> Result<Option<OwnedFd>, Failure> {
        let Some(path) = path else {
            if let Some(stored) = stored {
                spawn("strait-stored", move || stored.restore(&self.contacts, &self.steps));
            }
            return Ok(None);
        };
        handover::warn_of_unmapped(&self.options);
        let failed = |error: std::io::Error| Failure::Start(format!("handover: {error}"));
        let (ending, hands_over) = io::packets::barrier().map_err(failed)?;
        // What is sent there is lost with a thread that cannot be started.
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::Builder::new()
            .name("strait-handover".to_owned())
            .spawn({
                let path = path.to_owned();
                move || {
                    let taking = receiver.recv().unwrap_or_default();
                    self.work(path, listener, taking, stored, ending);
                }
            })
            .map_err(failed)?;
        let _ = sender.send(taking.take().map(|taking| *taking));
        Ok(Some(hands_over))
    }

    fn work(
        self,
        path: PathBuf,
        listener: Option<PacketListener>,
        taking: Option<Taking>,
        stored: Option<Stored>,
        ending: Barrier,
    ) {
        let mut generation = stored.as_ref().map_or(0, |stored| stored.generation);
        if let Some(stored) = stored {
            stored.restore(&self.contacts, &self.steps);
        }
        let mut listener = listener;
        if let Some(taking) = taking {
            let taken = taking.take_connections(&self.contacts, &self.steps, &self.sessions);
            let Some(mut taken) = taken else { return };
            generation = taken.generation;
            listener = taken.listener.take();
            if let Err(error) = set_access(&path, handover::access(&self.options)) {
                tracing::warn!("handover: {}: cannot set who may connect: {error}", path.display());
            }
            let (probation, contacts) = (taken.probation, self.contacts.clone());
            let at = path.clone();
            if taken.is_to_return {
                let control = self.steps.clone();
                spawn("strait-return", move || return_and_end(&at, &control));
            } else {
                spawn("strait-probation", move || watch(&contacts, &at, probation));
            }
            let (steps, contacts) = (self.steps.clone(), self.contacts.clone());
            spawn("strait-former", move || taken.follow(&contacts, &steps));
        }
        let Some(listener) = listener else { return };
        let Self { options, contacts, steps: control, sessions } = self;
        let start = StartCommand::of_this_process();
        Giving {
            listener,
            file: SocketFile::of(&path),
            path,
            options,
            contacts,
            control,
            start,
            generation,
            sessions,
            refusal_logged_at: Cell::default(),
            early_ends: LogPace::default(),
            failure_logged_at: Cell::default(),
            pending: RefCell::default(),
            refused: RefCell::default(),
            ending,
        }
        .run();
    }
}

/// The service manager that started this process, if one did.
fn service_manager() -> ServiceManager {
    ServiceManager::from_environment(|name| std::env::var_os(name), std::process::id())
        .unwrap_or_else(|error| {
            tracing::warn!("NOTIFY_SOCKET: {error}; nothing is reported to the service manager");
            ServiceManager::default()
        })
}

/// Where the admin interface listens: as the file says, but with the port that it got.
fn admin_text(asked: Option<&Address>, bound: Option<SocketAddr>) -> String {
    match (bound, asked) {
        (Some(bound), _) => bound.to_string(),
        (None, Some(asked)) => address_text(asked),
        (None, None) => "none".to_owned(),
    }
}

/// How many workers a process with this configuration has, and why.
pub(crate) fn worker_count(snapshot: &Snapshot) -> Result<WorkerCount, Failure> {
    match snapshot.startup.workers {
        Some(count) => Ok(WorkerCount::configured(count.get())),
        None => WorkerCount::automatic()
            .map_err(|error| Failure::Start(format!("counting cores: {error}"))),
    }
}

fn bind_admin(
    address: &Address,
    mode: Option<FileMode>,
    activation: &Activation,
) -> Result<AdminSocket, Failure> {
    let socket = match activation.find(address) {
        Some(inherited) => inherited.try_clone().map(|fd| AdminSocket::inherit(fd, address)),
        None => handover::bind(address, mode),
    };
    socket.map_err(|error| {
        let (address, hint) = (address_text(address), hint(&error));
        Failure::Start(format!("the admin interface cannot listen on {address}: {error}; {hint}"))
    })
}

#[cfg(test)]
mod source_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_interface_is_reported_with_its_port_or_its_path() {
        let (asked, bound) = ("127.0.0.1:0".parse().unwrap(), "127.0.0.1:9901".parse().unwrap());
        assert_eq!(admin_text(Some(&asked), Some(bound)), "127.0.0.1:9901");
        let unix = "unix:/run/strait.sock".parse().unwrap();
        assert_eq!(admin_text(Some(&unix), None), "unix:/run/strait.sock");
        assert_eq!(admin_text(None, None), "none");
    }
}
