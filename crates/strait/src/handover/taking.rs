//! The new process's side: until it has the listening sockets on the thread that starts the process, and from
//! there on a thread of its own.

mod batches;
mod following;
mod moving;
mod reporting;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use ::handover::{
    Deadlines, Downstream, Failure, Left, Message, OpeningAction, Part, Phase, SocketKey, Taker,
    TakerAction, UnusedSocket, Welcome,
};
use config::HandoverReader;
use config::snapshot::{Address, HandoverOptions};
use control::{AdminSocket, DeliveredResources, HandoverNews, HandoverStep};
use io::Socket;
use io::inherited::Inherited;
use io::packets::{PacketListener, Packets, ProcessHandle};
use proxy::Snapshot;
use proxy::save::{Differing, Held, Remains, VERSION as FORM};
use tokio::sync::mpsc::Sender;
use wiped::Wiped;
use worker::Moving;

use self::reporting::Reporting;
use super::differences::Comparison;
use super::groups::open_envelope;
use super::line::{Incoming, Line, nanos, now, runs_on};
use super::timeouts::PROCESS_END_TIMEOUT;
use super::{access, has_user, hint_to_allow, is_allowed, parts, resources, socket_path};
use crate::activation::{is_anywhere, is_at};
use crate::data_path::DataPath;
use crate::descriptors::Descriptors;
use crate::{Failure as StartFailure, VERSION};

/// How long the running process may take to read why this one gives up, ns.
const READ_TIMEOUT: u64 = 2_000_000_000;

/// Between two looks whether the process is there that gives everything back.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Descriptors that a process has beside those that it takes over.
const OWN_DESCRIPTORS: u64 = 64;

/// A handover that this process is in, from when it has the listening sockets.
#[derive(Debug)]
pub(crate) struct Taking {
    line: Line,
    taker: Taker,
    differing: Differing,
    /// Version of the other program.
    version: String,
    /// Whether the other process lists the connections that it still has.
    lists_connections: bool,
    /// How many downstream connections it has, if it has said so.
    downstream: Option<Downstream>,
    began: u64,
    /// The phases that have begun, and how many milliseconds after the beginning.
    phases: Vec<(&'static str, u64)>,
    moved: u64,
    left: Vec<Left>,
    /// Which handover it is, counted from the first process on.
    pub(crate) generation: u64,
    /// Where other processes connect to, from COMMIT on.
    pub(crate) listener: Option<PacketListener>,
    /// Listening sockets of the other process that this one does not use.
    pub(crate) unused: Vec<UnusedSocket>,
    /// How long the former process stands by after COMMIT.
    pub(crate) probation: Duration,
    /// Whether the other process had taken this one's place, and gives it back.
    is_return: bool,
    /// Whether this process was asked to end meanwhile: what it took goes back.
    pub(crate) is_to_return: bool,
    /// That process.
    pub(super) process: Option<ProcessHandle>,
    /// What that process has counted by itself, if it gives back what it has of this one.
    counted_there: Wiped,
    reporting: Reporting,
}

/// What the former process had.
#[derive(Debug, Default)]
pub(crate) struct TakenSockets {
    /// By listener.
    pub(crate) listeners: Vec<(String, Vec<Inherited>)>,
    admin: Option<Inherited>,
    metrics: Option<Inherited>,
}

impl TakenSockets {
    /// The socket of the former process's admin interface that listens at this address. A port of 0 is whatever it got.
    pub(crate) fn take_admin(&mut self, address: &Address) -> Option<AdminSocket> {
        let take = |socket: Inherited| match socket.owns_file() {
            true => AdminSocket::take_over(socket.into(), address),
            false => AdminSocket::inherit(socket.into(), address),
        };
        self.take_socket_at(address).map(take)
    }

    /// Whether the former process has a unix socket there that no client reaches: its file is not that process's own any more, and another
    /// may take its place.
    pub(crate) fn is_admin_lost(&self, address: &Address) -> bool {
        let Address::Unix(path) = address else { return false };
        let all = self.admin.iter().chain(&self.metrics);
        all.into_iter().any(|socket| is_at(socket, address) && !socket.owns_file())
            && io::is_path_free(path)
    }

    /// The same as a mere socket.
    pub(super) fn take_socket_at(&mut self, address: &Address) -> Option<Inherited> {
        let is_there =
            |socket: &mut Inherited| is_at(socket, address) || is_anywhere(socket, address);
        self.admin.take_if(is_there).or_else(|| self.metrics.take_if(is_there))
    }

    /// What is left of it.
    pub(crate) fn unused_admin(&self) -> impl Iterator<Item = UnusedSocket> {
        let admin = self.admin.as_ref().map(|_| UnusedSocket::Admin);
        admin.into_iter().chain(self.metrics.as_ref().map(|_| UnusedSocket::Metrics))
    }
}

/// What this process begins with.
pub(crate) trait Beginning {
    /// Whether it may begin with what sources have delivered to another process.
    fn reads_resources(&self) -> bool;

    /// Begins with these.
    ///
    /// # Errors
    ///
    /// It cannot.
    fn begin_with(&mut self, delivered: DeliveredResources) -> Result<(), String>;

    /// Counts its configurations from this version of the other process on.
    fn continue_versions(&mut self, version: u64);

    /// What connections were agreed on in its configuration.
    fn parts(&self) -> Vec<Part>;
}

/// A process that has its configuration.
impl Beginning for &Snapshot {
    fn reads_resources(&self) -> bool {
        false
    }

    fn begin_with(&mut self, _: DeliveredResources) -> Result<(), String> {
        Err("this process has its own".to_owned())
    }

    fn continue_versions(&mut self, _: u64) {
        // It goes on with its own.
    }

    fn parts(&self) -> Vec<Part> {
        parts(self)
    }
}

/// What came of an attempt to take over.
#[derive(Debug)]
pub(crate) enum TakeOutcome {
    /// There is no process to take over from.
    NoProcess(String),
    /// It gives.
    Taking(Box<Taking>, TakenSockets),
    /// It was only to be compared with, and has these connections, if it says so.
    Checked(Option<Downstream>),
}

/// Asks the process that listens at `path` for its sockets.
///
/// # Errors
///
/// It refuses, or does not keep to the conversation.
pub(crate) fn ask(
    path: &Path,
    options: &HandoverOptions,
    beginning: &mut dyn Beginning,
    is_check: bool,
) -> Result<TakeOutcome, StartFailure> {
    let at = path.display();
    let is_owner = |user| has_user(user, options);
    if let Err(error) = io::packets::check_private_folder(path, access(options), is_owner) {
        return match error {
            io::packets::FolderError::System(error)
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(TakeOutcome::NoProcess(format!("{at}: its folder is missing")))
            }
            error => {
                let failure = start(&format!("the folder of {at} is not private: {error}"));
                say_why_to(path, options, is_check, &failure);
                Err(failure)
            }
        };
    }
    let packets = match Packets::connect(path) {
        Ok(packets) => packets,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(TakeOutcome::NoProcess(format!("no process listens at {at}")));
        }
        Err(error) => return Err(start(&format!("{at}: {error}"))),
    };
    let line = Line::new(packets).map_err(|error| start(&error.to_string()))?;
    if !is_allowed(line.peer.uid, options) {
        let uid = line.peer.uid;
        return Err(start(&format!(
            "{at} belongs to a process of user {uid}: {}",
            hint_to_allow(uid)
        )));
    }
    // What this process begins with is not its own until COMMIT.
    io::own_socket_files(false);
    control::own_admin_files(false);
    let deadlines = deadlines(options);
    let descriptors = io::limits::open_files_max();
    let new = if beginning.reads_resources() { Taker::with_resources } else { Taker::new };
    let taker = new(VERSION, vec![FORM], descriptors, is_check, deadlines, now());
    // None in a container that does not see it.
    let process = line.peer_process().unwrap_or(None);
    Taking::new(line, taker, process, false).receive_sockets(beginning, is_check)
}

/// Has the running process know that this one does not take its place, since its configuration in `file` is refused. The section that
/// says where that process is may still be right.
pub(crate) fn refuse(file: &Path, is_check: bool, failure: &StartFailure) {
    let Ok(reader) = HandoverReader::new() else { return };
    let Ok(options) = control::handover_options(&reader, file) else { return };
    if let Some(path) = socket_path(&options, |name| std::env::var_os(name)) {
        say_why_to(&path, &options, is_check, failure);
    }
}

/// Has the process that listens at `path` know why this one does not take its place. Nothing else is sent, and nothing taken.
fn say_why_to(path: &Path, options: &HandoverOptions, is_check: bool, failure: &StartFailure) {
    let Ok(line) = Packets::connect(path).and_then(Line::new) else { return };
    if !is_allowed(line.peer.uid, options) {
        return;
    }
    let (descriptors, deadlines) = (io::limits::open_files_max(), deadlines(options));
    let taker = Taker::new(VERSION, vec![FORM], descriptors, is_check, deadlines, now());
    let mut taking = Taking::new(line, taker, None, false);
    taking.say_why(&failure.to_string());
    // What is not read when a process closes its end takes along what it sent.
    let until = now().saturating_add(READ_TIMEOUT);
    while now() < until {
        if matches!(taking.line.receive(Some(until)), Ok(Incoming::End) | Err(_)) {
            return;
        }
    }
}

fn deadlines(options: &HandoverOptions) -> Deadlines {
    Deadlines { total: options.timeout, ..Deadlines::default() }
}

impl Taking {
    fn new(line: Line, taker: Taker, process: Option<ProcessHandle>, is_return: bool) -> Self {
        Self {
            line,
            taker,
            differing: Differing::default(),
            version: String::new(),
            lists_connections: false,
            downstream: None,
            began: now(),
            phases: Vec::new(),
            moved: 0,
            left: Vec::new(),
            generation: 0,
            listener: None,
            unused: Vec::new(),
            probation: Duration::ZERO,
            is_return,
            is_to_return: false,
            process,
            counted_there: Wiped::default(),
            reporting: Reporting::default(),
        }
    }

    /// The side of a process that takes back what it gave, and what the other one has counted by itself, as far as that is known by now.
    pub(super) fn of_former(
        line: Line,
        options: &HandoverOptions,
        process: Option<ProcessHandle>,
        counted_there: Wiped,
    ) -> Self {
        let descriptors = io::limits::open_files_max();
        let (forms, deadlines) = (vec![FORM], deadlines(options));
        let taker = Taker::of_former(VERSION, forms, descriptors, deadlines, now());
        Self { counted_there, ..Self::new(line, taker, process, true) }
    }

    /// Some listeners have other addresses here than what had their names in the other process: connections to those stay there.
    pub(crate) fn note_moved(&mut self, listeners: BTreeSet<String>) {
        for listener in &listeners {
            tracing::warn!(
                "handover: listener {listener} has other addresses here: connections of the former ones stay with the old process"
            );
        }
        self.differing.moved = listeners;
    }

    pub(super) fn receive_sockets(
        mut self,
        beginning: &mut dyn Beginning,
        is_check: bool,
    ) -> Result<TakeOutcome, StartFailure> {
        let mut stopped = None;
        loop {
            while let Some(action) = self.taker.poll() {
                match action {
                    TakerAction::Enter(phase) => drop(self.enter(phase)),
                    TakerAction::Send(frame) => self.send(&frame),
                    TakerAction::Opening(action) => {
                        if let Some(sockets) = self.open(action, beginning, is_check) {
                            return Ok(TakeOutcome::Taking(Box::new(self), sockets));
                        }
                    }
                    TakerAction::Finished if is_check => {
                        return Ok(TakeOutcome::Checked(self.downstream));
                    }
                    // The frame for the other process comes behind it.
                    TakerAction::Stop(failure) => stopped = Some(failure),
                    // They come behind the listening sockets.
                    TakerAction::Moving(_) | TakerAction::Following(_) | TakerAction::Finished => {}
                }
            }
            if let Some(Failure::Closed(Phase::Hello)) = stopped {
                let reason = "the process that listened there has closed its socket, or ended";
                return Ok(TakeOutcome::NoProcess(reason.to_owned()));
            }
            if let Some(failure) = stopped {
                if !is_check
                    && matches!(failure, Failure::Closed(_))
                    && self.has_giver_ended(PROCESS_END_TIMEOUT)
                {
                    return Ok(TakeOutcome::NoProcess(format!(
                        "the process there has ended: {failure}"
                    )));
                }
                return Err(start(&format!("this process cannot take over: {failure}")));
            }
            self.hear(None);
        }
    }

    /// Does what is to be done before this process listens; returns the listening sockets, which come last.
    fn open(
        &mut self,
        action: OpeningAction,
        beginning: &mut dyn Beginning,
        is_check: bool,
    ) -> Option<TakenSockets> {
        match action {
            OpeningAction::Welcomed(welcome) => self.on_welcome(&welcome),
            OpeningAction::NoteDownstream(downstream) => self.downstream = Some(downstream),
            OpeningAction::ContinueVersions(version) => beginning.continue_versions(version),
            OpeningAction::Begin(bytes) => {
                self.begin_with(bytes, beginning);
                self.taker.begun(now());
            }
            OpeningAction::Compare(theirs) => {
                let compared = Comparison::new(&beginning.parts(), &theirs);
                self.differing = compared.differing();
                compared.report("connections that it concerns stay with the old process");
                if is_check && compared.is_empty() {
                    tracing::info!("handover: no difference prevents connections from moving");
                }
                self.taker.compared(compared.all(), now());
            }
            OpeningAction::Listen(keys) => match self.take_sockets(keys) {
                Ok(sockets) => return Some(sockets),
                Err(reason) => self.taker.fail(Failure::Own(reason)),
            },
        }
        None
    }

    /// Whether the other process is gone, and not only its end of the connection.
    fn has_giver_ended(&self, timeout: Duration) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.wait(timeout).unwrap_or(false))
    }

    /// Begins with what sources have delivered to the other process, or goes on without.
    fn begin_with(&mut self, bytes: u64, beginning: &mut dyn Beginning) {
        let file = self.line.descriptors.pop_front();
        let read = file.map(|file| resources::read(file, bytes));
        let result = match read {
            Some(Ok(delivered)) => {
                if !delivered.is_empty() {
                    tracing::info!(
                        resources = delivered.len(),
                        "handover: sources had delivered to the old process"
                    );
                }
                beginning.begin_with(delivered)
            }
            Some(Err(reason)) => Err(reason),
            None => Err("its file is missing".to_owned()),
        };
        if let Err(reason) = result {
            tracing::warn!(
                "handover: resources that sources had delivered to the old process are not used: {reason}"
            );
        }
    }

    /// Tells the other process why this one ends before any of its workers accepted.
    pub(crate) fn give_up(mut self, reason: &str) {
        self.say_why(reason);
    }

    fn say_why(&mut self, reason: &str) {
        self.taker.fail(Failure::Own(reason.to_owned()));
        self.send_all();
    }

    /// Sends what waits to be sent; nothing else is done any more.
    fn send_all(&mut self) {
        while let Some(action) = self.taker.poll() {
            if let TakerAction::Send(frame) = action {
                self.send(&frame);
            }
        }
    }

    /// Notes that a phase began.
    fn enter(&mut self, phase: Phase) -> HandoverNews {
        let after_ms = now().saturating_sub(self.began) / 1_000_000;
        self.phases.push((phase.as_str(), after_ms));
        HandoverNews::Phase(phase.as_str(), after_ms)
    }

    fn on_welcome(&mut self, welcome: &Welcome) {
        self.generation = welcome.generation.saturating_add(1);
        self.probation = Duration::from_millis(welcome.probation_ms);
        self.version = welcome.program.clone();
        self.lists_connections = welcome.lists_connections;
        let needed = welcome.descriptors.saturating_add(OWN_DESCRIPTORS);
        let limit = io::limits::open_files_max();
        if needed > limit {
            let reason = format!(
                "the running process has {} descriptors open, and this one may open {limit}: raise \
                 the limit on open files (ulimit -n, LimitNOFILE=)",
                welcome.descriptors
            );
            self.taker.fail(Failure::Own(reason));
        }
    }

    /// Refuses if this process, whose descriptors are divided so, would refuse new clients, which the other one accepts.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub(crate) fn check_room(&self, descriptors: &Descriptors) -> Result<(), String> {
        self.downstream.map_or(Ok(()), |former| descriptors.check_room_for(former))
    }

    /// The descriptors behind the keys.
    fn take_sockets(&mut self, keys: Vec<SocketKey>) -> Result<TakenSockets, String> {
        let mut sockets = TakenSockets::default();
        for key in keys {
            let Some(descriptor) = self.line.descriptors.pop_front() else {
                return Err("descriptors are missing".to_owned());
            };
            let owned = |socket: Inherited| match self.taker.owns_file(&key) {
                true => socket.with_own_file(),
                false => socket,
            };
            match &key {
                SocketKey::Listener(name, _) => {
                    let socket = Inherited::new(descriptor)
                        .map(owned)
                        .map_err(|error| format!("a socket of listener {name}: {error}"))?;
                    // Those of a listener are neighbours.
                    match sockets.listeners.last_mut().filter(|(it, _)| it == name) {
                        Some((_, list)) => list.push(socket),
                        None => sockets.listeners.push((name.clone(), vec![socket])),
                    }
                }
                SocketKey::Admin => sockets.admin = Some(owned(listening(descriptor)?)),
                SocketKey::Metrics => sockets.metrics = Some(owned(listening(descriptor)?)),
                SocketKey::Handover => {
                    let listener = PacketListener::inherit(descriptor)
                        .map_err(|error| format!("the socket of handovers: {error}"))?;
                    self.listener = Some(listener);
                }
            }
        }
        Ok(sockets)
    }

    fn send(&mut self, frame: &[u8]) {
        if let Err(error) = self.line.send(frame, &[])
            && error.kind() == std::io::ErrorKind::TimedOut
        {
            // An end of the connection shows when it is read from.
            self.taker.fail(Failure::Own("the other process does not read".to_owned()));
        }
    }

    /// Has the other process know that this one is there, where it is time for that.
    fn say_alive(&mut self) {
        if self.taker.is_alive_due(now()) {
            self.send(&Message::Alive.encode());
        }
    }

    /// Reports what this process counts by itself, and hears what the other one says: for a while, or no more than it has said
    /// already. Says whether there was something.
    fn report_and_hear(
        &mut self,
        control: &Sender<HandoverStep<DataPath>>,
        is_waiting: bool,
    ) -> bool {
        let mut until = (!is_waiting).then(now);
        // One that has everything back goes on with what it knows of the other one, and that one does with what it knows of it.
        if !self.is_return && self.taker.stands_by() {
            self.reporting.go_on(&self.taker, &mut self.line, control);
            until = until.or_else(|| Some(self.reporting.next_look()));
        }
        self.hear(until)
    }

    /// Hears what the other process says, and what becomes of time that passes, until there is something, or then. Says whether
    /// there was.
    fn hear(&mut self, until: Option<u64>) -> bool {
        let look_at = self.is_return.then(|| now().saturating_add(nanos(LOOK_INTERVAL)));
        let looks = [self.taker.next_deadline(), look_at, until];
        let incoming = self.line.receive(looks.into_iter().flatten().min());
        self.taker.was_stopped(self.line.take_stopped());
        let at = now();
        match incoming {
            Ok(Incoming::Frame(frame, count)) => {
                self.taker.on_frame(&frame, count, at);
                self.say_alive();
                self.line.give_way();
                // Whether it is late is asked once all is read that has come: this process may have been stopped.
                return true;
            }
            // Both would be the process.
            Ok(Incoming::End) if self.taker.goes_on_alone() && runs_on(self.process.as_ref()) => {
                let reason = "the old process has closed its connection to this one, and runs on";
                self.taker.fail(Failure::Own(reason.to_owned()));
            }
            Ok(Incoming::End) => self.taker.on_closed(at),
            // The socket that it connects to lives on in this process where the other one has ended.
            Ok(Incoming::Nothing) if self.is_return && self.has_giver_ended(Duration::ZERO) => {
                self.taker.on_closed(at);
            }
            Ok(Incoming::Nothing) => {}
            Err(error) => self.taker.fail(Failure::Own(error.to_string())),
        }
        self.taker.on_time(at);
        false
    }
}

/// A group with its sockets.
pub(super) fn moving(envelope: Wiped, descriptors: Vec<OwnedFd>) -> Option<Moving<Socket>> {
    let (bytes, has_socket) = open_envelope(envelope)?;
    let is_complete = has_socket.iter().filter(|has| **has).count() == descriptors.len();
    let mut descriptors = descriptors.into_iter();
    let socket = |has: bool| if has { descriptors.next().map(Socket::from) } else { None };
    let sockets = has_socket.into_iter().map(socket).collect();
    is_complete.then_some(Moving {
        bytes,
        sockets,
        held: Held::default(),
        may_begin: false,
        remains: Remains::default(),
    })
}

/// A socket of the admin interface.
fn listening(descriptor: OwnedFd) -> Result<Inherited, String> {
    Inherited::new(descriptor).map_err(|error| format!("a socket of the admin interface: {error}"))
}

fn start(reason: &str) -> StartFailure {
    StartFailure::Start(reason.to_owned())
}
