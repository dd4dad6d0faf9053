//! The new process's side: until it has the listening sockets on the thread that starts the process, and from
//! there on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ::handover::{
    Deadlines, Difference, Failure, Left, ListedConnections, Message, Part, PartKind, Phase,
    ReceivedGroup, Refused, SocketKey, Taker, TakerAction, UnusedSocket, Welcome,
};
use config::HandoverReader;
use config::snapshot::{Address, HandoverOptions};
use control::{
    AdminSocket, DeliveredResources, FormerState, HandoverNews, HandoverResult, HandoverStep,
    OldProcess,
};
use io::Socket;
use io::inherited::Inherited;
use io::packets::{PacketListener, Packets, ProcessHandle};
use proxy::Snapshot;
use proxy::save::{Differing, Held, Remains, VERSION as FORM};
use telemetry::FormerTotals;
use tls::ProcessSessions;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use wiped::Wiped;
use worker::{Message as Mail, Moving, Origin, Take};

use super::groups::open_envelope;
use super::line::{Incoming, Line, ends, give_way, now};
use super::{
    BALANCING, EARLY_SESSIONS, HEALTH, SLOW, TICKET_KEYS, TOTALS, access, balancing, is_allowed,
    parts, resources, socket_path,
};
use crate::activation::{is_anywhere, is_at};
use crate::data_path::{Contacts, DataPath};
use crate::{Failure as StartFailure, VERSION};

/// How long a worker may take to answer.
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the running process may take to read why this one gives up, ns.
const READ_TIMEOUT: u64 = 2_000_000_000;

/// Descriptors that a process has beside those that it takes over.
const OWN_DESCRIPTORS: u64 = 64;

/// A handover that this process is in, from when it has the listening sockets.
#[derive(Debug)]
pub(crate) struct Taking {
    line: Line,
    taker: Taker,
    differing: Arc<Differing>,
    /// Version of the other program.
    version: String,
    /// Whether the other process lists the connections that it still has.
    lists_connections: bool,
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
        let is_there =
            |socket: &mut Inherited| is_at(socket, address) || is_anywhere(socket, address);
        let taken = self.admin.take_if(is_there).or_else(|| self.metrics.take_if(is_there));
        taken.map(|socket| AdminSocket::take_over(socket.into(), address))
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

    fn parts(&self) -> Vec<Part> {
        parts(self)
    }
}

/// What came of an attempt to take over.
#[derive(Debug)]
pub(crate) enum Asked {
    /// There is no process to take over from.
    NoProcess(String),
    /// It gives.
    Taking(Box<Taking>, TakenSockets),
    /// It was only to be compared with.
    Checked,
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
) -> Result<Asked, StartFailure> {
    let at = path.display();
    let is_owner = |user| is_allowed(user, options);
    if let Err(error) = io::packets::check_private_folder(path, access(options), is_owner) {
        return match error {
            io::packets::FolderError::System(error)
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(Asked::NoProcess(format!("{at}: its folder is missing")))
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
            return Ok(Asked::NoProcess(format!("no process listens at {at}")));
        }
        Err(error) => return Err(start(&format!("{at}: {error}"))),
    };
    let line = Line::new(packets).map_err(|error| start(&error.to_string()))?;
    if !is_allowed(line.peer.uid, options) {
        let uid = line.peer.uid;
        return Err(start(&format!(
            "{at} belongs to a process of user {uid}: add {uid} to handover.users"
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
    let process = ProcessHandle::open(line.peer.pid).ok();
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
            differing: Arc::default(),
            version: String::new(),
            lists_connections: false,
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
        }
    }

    /// The side of a process that takes back what it gave.
    pub(super) fn of_former(
        line: Line,
        options: &HandoverOptions,
        process: Option<ProcessHandle>,
    ) -> Self {
        let descriptors = io::limits::open_files_max();
        let (forms, deadlines) = (vec![FORM], deadlines(options));
        let taker = Taker::of_former(VERSION, forms, descriptors, deadlines, now());
        Self::new(line, taker, process, true)
    }

    pub(super) fn receive_sockets(
        mut self,
        beginning: &mut dyn Beginning,
        is_check: bool,
    ) -> Result<Asked, StartFailure> {
        let mut stopped = None;
        loop {
            while let Some(action) = self.taker.poll() {
                match action {
                    TakerAction::Enter(phase) => drop(self.enter(phase)),
                    TakerAction::Send(frame) => self.send(&frame),
                    TakerAction::Welcomed(welcome) => self.on_welcome(&welcome),
                    TakerAction::Begin(bytes) => {
                        self.begin_with(bytes, beginning);
                        self.taker.begun(now());
                    }
                    TakerAction::Compare(theirs) => {
                        let differences = differences(&beginning.parts(), &theirs);
                        self.differing = Arc::new(differing(&differences));
                        report(&differences, "its connections stay with the old process");
                        if is_check && differences.is_empty() {
                            tracing::info!(
                                "handover: no difference prevents connections from moving"
                            );
                        }
                        self.taker.compared(differences, now());
                    }
                    TakerAction::Listen(keys) => match self.take_sockets(keys) {
                        Ok(sockets) => return Ok(Asked::Taking(Box::new(self), sockets)),
                        Err(reason) => self.taker.fail(Failure::Own(reason)),
                    },
                    TakerAction::Finished if is_check => return Ok(Asked::Checked),
                    // The frame for the other process comes behind it.
                    TakerAction::Stop(failure) => stopped = Some(failure),
                    // They come behind the listening sockets.
                    TakerAction::Take { .. }
                    | TakerAction::Learned(_)
                    | TakerAction::Commit { .. }
                    | TakerAction::Update { .. }
                    | TakerAction::IsMainProcess
                    | TakerAction::Listed(_)
                    | TakerAction::EndSilent
                    | TakerAction::Finished => {}
                }
            }
            if let Some(Failure::Closed(Phase::Hello)) = stopped {
                let reason = "the process that listened there has closed its socket, or ended";
                return Ok(Asked::NoProcess(reason.to_owned()));
            }
            if let Some(failure) = stopped {
                if !is_check && matches!(failure, Failure::Closed(_)) && self.has_giver_ended() {
                    return Ok(Asked::NoProcess(format!("the process there has ended: {failure}")));
                }
                return Err(start(&format!("this process cannot take over: {failure}")));
            }
            self.hear();
        }
    }

    /// Whether the other process is gone, and not only its end of the connection.
    fn has_giver_ended(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.wait(END_TIMEOUT).unwrap_or(false))
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
        self.generation = welcome.generation + 1;
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

    /// The descriptors behind the keys.
    fn take_sockets(&mut self, keys: Vec<SocketKey>) -> Result<TakenSockets, String> {
        let mut sockets = TakenSockets::default();
        for key in keys {
            let Some(descriptor) = self.line.descriptors.pop_front() else {
                return Err("descriptors are missing".to_owned());
            };
            match key {
                SocketKey::Listener(name, _) => {
                    let socket = Inherited::new(descriptor)
                        .map_err(|error| format!("a socket of listener {name}: {error}"))?;
                    // Those of a listener are neighbours.
                    match sockets.listeners.last_mut().filter(|(it, _)| *it == name) {
                        Some((_, list)) => list.push(socket),
                        None => sockets.listeners.push((name, vec![socket])),
                    }
                }
                SocketKey::Admin => sockets.admin = Some(listening(descriptor)?),
                SocketKey::Metrics => sockets.metrics = Some(listening(descriptor)?),
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

    fn hear(&mut self) {
        let incoming = self.line.receive(self.taker.next_deadline());
        let at = now();
        match incoming {
            Ok(Incoming::Frame(frame, count)) => {
                self.taker.on_frame(&frame, count, at);
                give_way();
            }
            Ok(Incoming::End) => self.taker.on_closed(at),
            Ok(Incoming::Nothing) => {}
            Err(error) => self.taker.fail(Failure::Own(error.to_string())),
        }
        self.taker.on_time(at);
    }

    /// Takes connections until this process is the process; returns then, with what is left to hear of the former
    /// one. None if this process has to end.
    pub(crate) fn take_connections(
        mut self,
        contacts: &Contacts,
        control: &Sender<HandoverStep<DataPath>>,
        sessions: &ProcessSessions,
    ) -> Option<Self> {
        let differing = Arc::clone(&self.differing);
        contacts.deliver_to_all(|| Mail::Differing(Arc::clone(&differing)));
        // Control ends with the process; the same below.
        let news = |news| drop(control.blocking_send(HandoverStep::News(news)));
        let (pid, version) = (self.line.peer.pid, self.version.clone());
        news(HandoverNews::Began { is_giver: false, pid, version });
        for (phase, after_ms) in &self.phases {
            news(HandoverNews::Phase(phase, *after_ms));
        }
        if contacts.ping(0..contacts.count(), WORKER_TIMEOUT).is_ok() {
            self.taker.unused(mem::take(&mut self.unused));
            self.taker.serving(now());
        } else {
            self.taker.fail(Failure::Own("a worker did not start in time".to_owned()));
        }
        let mut next = 0;
        let mut accepts_by = Some(now().saturating_add(HEALTH_WAIT_MAX));
        loop {
            // The other process does not accept either by now, perhaps.
            if accepts_by.take_if(|at| *at <= now()).is_some() {
                tracing::warn!(
                    "handover: the other process does not say what it knows of endpoints; connections are accepted without that"
                );
                contacts.deliver_to_all(|| Mail::AcceptAgain);
            }
            while let Some(action) = self.taker.poll() {
                match action {
                    TakerAction::Enter(phase) => news(self.enter(phase)),
                    TakerAction::Send(frame) => self.send(&frame),
                    TakerAction::Take { batch, groups } => {
                        let count = groups.len() as u64;
                        let (refused, is_busy) = self.take(groups, contacts, &mut next);
                        let is_first = self.moved == 0;
                        self.moved += count.saturating_sub(refused.len() as u64);
                        if is_first {
                            news(HandoverNews::Counted { moved: self.moved, left: Vec::new() });
                        }
                        for refused in &refused {
                            Left::add(&mut self.left, &refused.reason, 1);
                        }
                        self.taker.taken(batch, refused, is_busy, now());
                    }
                    TakerAction::Learned(topic) => {
                        let state = self.taker.state(&topic).unwrap_or_default();
                        match &*topic {
                            HEALTH => {
                                learn(state, control);
                                accepts_by = None;
                                contacts.deliver_to_all(|| Mail::AcceptAgain);
                            }
                            TICKET_KEYS => sessions.ring.adopt(state),
                            BALANCING => balancing::restore(state, contacts),
                            _ => {}
                        }
                    }
                    TakerAction::Commit { states, is_alone } => {
                        self.take_place(&states, is_alone, (contacts, control, sessions));
                        return Some(self);
                    }
                    TakerAction::EndSilent => self.end_silent(),
                    TakerAction::Stop(failure) => {
                        let reason = format!("this process cannot take over: {failure}");
                        self.send(&Message::Ends { reason: failure.to_string() }.encode());
                        // Control ends the process, and with it the connection to the other one, which
                        // then knows that nothing is used here any more.
                        let _ = control.blocking_send(HandoverStep::Stop(reason));
                        mem::forget(self);
                        return None;
                    }
                    // They came before, or come behind COMMIT.
                    TakerAction::Welcomed(_)
                    | TakerAction::Begin(_)
                    | TakerAction::Compare(_)
                    | TakerAction::Listen(_)
                    | TakerAction::Update { .. }
                    | TakerAction::IsMainProcess
                    | TakerAction::Listed(_)
                    | TakerAction::Finished => {}
                }
            }
            self.hear();
        }
    }

    /// Becomes the process, with what the other one knew.
    fn take_place(
        &mut self,
        states: &BTreeMap<String, Wiped>,
        is_alone: bool,
        (contacts, control, sessions): (
            &Contacts,
            &Sender<HandoverStep<DataPath>>,
            &ProcessSessions,
        ),
    ) {
        // Control ends with the process.
        let news = |news| drop(control.blocking_send(HandoverStep::News(news)));
        // The former process may have ended before it said what it knew.
        contacts.deliver_to_all(|| Mail::AcceptAgain);
        // Before it is the process, which may be asked to end at once.
        contacts.former().keep(self.line.try_clone().ok());
        if let Some(keys) = states.get(TICKET_KEYS) {
            sessions.ring.adopt(keys);
        }
        // None if the former process ended before: they ended with it.
        let early = states.get(EARLY_SESSIONS);
        sessions.early.adopt(early.map_or(&[][..], |early| early.as_slice()));
        let said = |topic: &str| states.get(topic).map(|it| it.to_vec()).unwrap_or_default();
        let totals = states.get(TOTALS).map_or(&[][..], |totals| totals.as_slice());
        let totals = FormerTotals::read(totals);
        let state = FormerState { totals, health: said(HEALTH), slow: said(SLOW) };
        if let Some(listener) = &self.listener {
            // From here on those who connect see this process as the other one.
            listener.own();
        }
        self.commit(state, is_alone, control);
        let left = mem::take(&mut self.left).into_iter();
        let left = left.map(|left| (left.reason, left.count)).collect();
        news(HandoverNews::Counted { moved: self.moved, left });
        let result =
            if self.is_return { HandoverResult::TakenBack } else { HandoverResult::Completed };
        news(HandoverNews::Ended(result, String::new()));
        self.taker.committed();
        while let Some(action) = self.taker.poll() {
            if let TakerAction::Send(frame) = action {
                self.send(&frame);
            }
        }
        contacts.deliver_to_all(|| Mail::SocketsAreOwn);
    }

    /// Ends the other process, which is silent: this one goes on alone, with what it has by now.
    fn end_silent(&mut self) {
        let pid = self.line.peer.pid;
        tracing::error!(
            pid,
            "the old process does not run any more (stopped or hanging), and is killed"
        );
        let is_over = self.process.as_ref().is_some_and(ends);
        if is_over {
            self.taker.on_closed(now());
        } else {
            self.taker.stop_for_silence();
        }
    }

    /// Has the workers take groups. Says which they refuse, and whether a worker also serves others.
    fn take(
        &mut self,
        groups: Vec<ReceivedGroup>,
        contacts: &Contacts,
        next: &mut usize,
    ) -> (Vec<Refused>, bool) {
        let mut refused = Vec::new();
        let (reply, answers) = sync_channel(groups.len());
        let (mut asked, mut workers) = (0, BTreeSet::new());
        for group in groups {
            let count = group.sockets as usize;
            let sockets = self.line.descriptors.drain(..count.min(self.line.descriptors.len()));
            let number = group.group;
            match moving(group.bytes, sockets.collect()) {
                Some(moving) => {
                    let worker = *next % contacts.count().max(1);
                    *next += 1;
                    let take =
                        Take { moving, origin: Origin::Process, number, reply: reply.clone() };
                    if contacts.post_unwoken(worker, Mail::Take(take)).is_ok() {
                        asked += 1;
                        workers.insert(worker);
                    } else {
                        let reason = "a worker of the new process takes no messages".to_owned();
                        refused.push(Refused { group: number, reason });
                    }
                }
                None => {
                    let reason = "the group is damaged".to_owned();
                    refused.push(Refused { group: number, reason });
                }
            }
        }
        drop(reply);
        // One wake and one answer for all groups of a batch: for each of them it would cost more than the groups.
        let pongs = contacts.ping(workers.into_iter(), WORKER_TIMEOUT);
        for _ in 0..asked {
            let wait = if pongs.is_ok() { Duration::ZERO } else { WORKER_TIMEOUT };
            let Ok(taken) = answers.recv_timeout(wait) else {
                self.taker.fail(Failure::Own("a worker does not answer".to_owned()));
                break;
            };
            if let Err((error, _)) = taken.result {
                refused.push(Refused { group: taken.number, reason: error.to_string() });
            }
        }
        (refused, pongs.is_ok_and(|pongs| pongs.iter().any(|pong| pong.is_busy)))
    }

    fn commit(
        &mut self,
        state: FormerState,
        is_alone: bool,
        control: &Sender<HandoverStep<DataPath>>,
    ) {
        io::own_socket_files(true);
        let pid = self.line.peer.pid;
        if is_alone {
            tracing::error!(pid, "the old process ended during the handover: this one continues");
        }
        let (reply, is_done) = oneshot::channel();
        let generation = self.generation;
        let is_return = self.is_return;
        let step = HandoverStep::TakenOver { state, generation, is_return, reply };
        // Control ends with the process.
        let _ = control.blocking_send(step);
        self.is_to_return = is_done.blocking_recv().unwrap_or(false);
        tracing::info!(pid, generation = self.generation, "took over");
    }

    /// Passes on what the former process counts, until it has ended.
    pub(crate) fn follow(mut self, contacts: &Contacts, control: &Sender<HandoverStep<DataPath>>) {
        let pid = self.line.peer.pid;
        // It may be asked from here on, behind `Committed`. Control ends with the process; the same below.
        let process = OldProcess { pid, lists_connections: self.lists_connections };
        let _ = control.blocking_send(HandoverStep::FormerStays(process));
        while !self.taker.is_over() {
            while let Some(action) = self.taker.poll() {
                match action {
                    // Where control has no time, the next ones say as much. Nothing here waits for it: the former process
                    // ends one that is silent.
                    TakerAction::Update { topic, bytes } if topic == TOTALS => {
                        let (totals, is_return) = (FormerTotals::read(&bytes), self.is_return);
                        let _ = control.try_send(HandoverStep::Update { totals, is_return });
                    }
                    TakerAction::IsMainProcess => drop(control.try_send(HandoverStep::MainProcess)),
                    TakerAction::Listed(ListedConnections { request, rows, next }) => {
                        drop(control.try_send(HandoverStep::Listed { request, rows, next }));
                    }
                    TakerAction::Send(frame) if !self.line.is_full() => self.line.queue(frame),
                    // A frame without room says that this process runs, which can wait. Nothing else concerns a process that has everything.
                    TakerAction::Send(_)
                    | TakerAction::Enter(_)
                    | TakerAction::Welcomed(_)
                    | TakerAction::Begin(_)
                    | TakerAction::Compare(_)
                    | TakerAction::Listen(_)
                    | TakerAction::Take { .. }
                    | TakerAction::Learned(_)
                    | TakerAction::Commit { .. }
                    | TakerAction::Update { .. }
                    | TakerAction::EndSilent
                    | TakerAction::Finished
                    | TakerAction::Stop(_) => {}
                }
            }
            contacts.former().flush();
            self.hear();
        }
        contacts.former().keep(None);
        let _ = control.blocking_send(HandoverStep::FormerEnded(pid));
        tracing::info!(pid, "the old process has ended");
    }
}

/// How long connections are not accepted while it is not known which endpoints get no requests, ns.
const HEALTH_WAIT_MAX: u64 = 1_000_000_000;

/// How long the end of a process may take that has closed its connection.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Has this process know what the other one knew of endpoints, before it accepts connections.
fn learn(health: &[u8], control: &Sender<HandoverStep<DataPath>>) {
    let (reply, is_learned) = oneshot::channel();
    let step = HandoverStep::Learned { health: health.to_vec(), reply };
    // Control ends with the process, and answers no later than it builds a configuration.
    if control.blocking_send(step).is_ok() {
        let _ = is_learned.blocking_recv();
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

pub(super) fn differences(own: &[Part], theirs: &[Part]) -> Vec<Difference> {
    let named = own.iter().map(|it| ((it.kind, &*it.name), it.fingerprint));
    let named: BTreeMap<_, _> = named.collect();
    let difference = |part: &Part| {
        let found = named.get(&(part.kind, &*part.name));
        let is_same = found.is_some_and(|fingerprint| *fingerprint == part.fingerprint);
        (!is_same).then(|| Difference {
            kind: part.kind,
            name: part.name.clone(),
            is_missing: found.is_none(),
        })
    };
    theirs.iter().filter_map(difference).collect()
}

pub(super) fn differing(differences: &[Difference]) -> Differing {
    let mut differing = Differing::default();
    for difference in differences {
        let names = match difference.kind {
            PartKind::Listener => &mut differing.listeners,
            PartKind::Chain => &mut differing.chains,
            PartKind::Cluster => &mut differing.clusters,
        };
        names.insert(difference.name.clone());
    }
    differing
}

/// Warns of differences, and says what becomes of connections that they concern.
pub(super) fn report(differences: &[Difference], outcome: &str) {
    for Difference { kind, name, is_missing } in differences {
        let what = if *is_missing { "is not configured here" } else { "is configured differently" };
        let kind = kind.as_str();
        tracing::warn!("handover: {kind} {name} {what}: {outcome}");
    }
}

fn start(reason: &str) -> StartFailure {
    StartFailure::Start(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_other_differs_and_what_is_new_does_not() {
        let part = |name: &str, fingerprint| Part {
            kind: PartKind::Cluster,
            name: name.to_owned(),
            fingerprint,
        };
        let own = [part("same", 1), part("other", 2), part("new", 3)];
        let theirs = [part("same", 1), part("other", 9), part("gone", 4)];
        let found = differences(&own, &theirs);
        let found: Vec<_> = found.iter().map(|it| (&*it.name, it.is_missing)).collect();
        assert_eq!(found, [("other", false), ("gone", true)]);
    }
}
