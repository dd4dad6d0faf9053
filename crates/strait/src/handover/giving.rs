//! The running process's side: a thread that listens for the process that takes its place.
//!
//! It asks control for what the process has, and the workers for their connections, and keeps each
//! connection's sockets and bytes until the other process is the process. What comes back goes to the worker that it
//! came from.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use ::handover::{Deadlines, Giver, Purpose, UpgradeRequest};
use config::snapshot::HandoverOptions;
use control::{HandoverFact, HandoverNews, HandoverStep};
use io::packets::{Barrier, PacketListener, Packets, own_user};
use proxy::save::VERSION as FORM;
use tls::ProcessSessions;
use tokio::sync::mpsc::Sender;

use super::attempt::Attempt;
use super::leaving::Leaving;
use super::line::{Incoming, Line, nanos, now};
use super::log_pace::LogPace;
use super::pending::{First, Heard, LOOK_INTERVAL, PendingPeers};
use super::refused::RefusedPeers;
use super::requester::{Conclusion, Requester};
use super::socket_file::SocketFile;
use super::start_command::StartCommand;
use super::topics::Topic;
use super::{access, hint_to_allow, is_allowed};
use crate::VERSION;
use crate::data_path::{Contacts, DataPath};

/// Refusals in between are counted, and not logged.
const REFUSAL_LOG_INTERVAL: u64 = 1_000_000_000;

/// How long the thread waits for a process at a time. Then it looks whether others still find this one.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Rest after a failed accept, which is most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Between two lines of the log about processes that cannot be accepted.
const ACCEPT_LOG_INTERVAL: u64 = 10_000_000_000;

/// What the other process may say of what it knows itself.
const LEARNS: &[&str] = &[Topic::Totals.name()];

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct Giving {
    /// Where other processes connect to.
    pub(crate) listener: PacketListener,
    /// Where that is found.
    pub(crate) path: PathBuf,
    /// Its file.
    pub(crate) file: SocketFile,
    /// How it is configured.
    pub(crate) options: HandoverOptions,
    pub(crate) contacts: Contacts,
    pub(crate) control: Sender<HandoverStep<DataPath>>,
    /// How this process was started.
    pub(crate) start: StartCommand,
    /// How many handovers led to this process.
    pub(crate) generation: u64,
    pub(crate) sessions: ProcessSessions,
    /// When a refusal was logged last.
    pub(crate) refusal_logged_at: Cell<u64>,
    /// Attempts that ended before listening sockets were given.
    pub(crate) early_ends: LogPace,
    /// When a failed accept was.
    pub(crate) failure_logged_at: Cell<u64>,
    pub(crate) pending: RefCell<PendingPeers>,
    pub(crate) refused: RefCell<RefusedPeers>,
    /// Is over once this process is ending, and nothing can be handed over any more.
    pub(crate) ending: Barrier,
}

/// How an attempt ended.
pub(super) enum End {
    /// This process goes on.
    Back,
    /// This process goes on, to which so many handovers led: the other one has given everything back.
    Returned(u64),
    /// This process ends before the handover does.
    Ending,
    /// The other process has taken over, and this one is not needed any more. What it still hears of that one, if it does.
    Over(Option<Box<Leaving>>),
}

impl Giving {
    /// Serves one process after the other, until one has taken this one's place.
    pub(crate) fn run(mut self) {
        // A process that starts meanwhile finds none here, and listens itself.
        while !self.is_ending() {
            let Some((line, heard)) = self.next_peer(ACCEPT_TIMEOUT) else {
                self.restore_file();
                continue;
            };
            let end = match &heard.hello.purpose {
                Purpose::Take { .. } => self.give(line, &heard, None),
                Purpose::Upgrade(request) => self.upgrade(line, request),
                Purpose::GiveBack { reason } => self.give_back(line, reason.clone()),
                Purpose::TakeBack { .. } => {
                    let reason = "this process was not asked to give back".to_owned();
                    self.refuse(&line, "out_of_turn", reason);
                    End::Back
                }
            };
            match end {
                End::Back => {}
                End::Ending => return,
                End::Returned(generation) => self.generation = generation,
                End::Over(leaving) => {
                    let Self { listener, contacts, control, refused, pending, .. } = self;
                    // What connects there from now on finds the other process, or none.
                    drop((listener, refused, pending));
                    if let Some(leaving) = leaving {
                        leaving.run(&contacts, &control);
                    }
                    return;
                }
            }
        }
    }

    /// Has others find this process again, where the file of its socket is gone.
    fn restore_file(&mut self) {
        if self.is_ending() {
            return;
        }
        if let Some(listener) = self.file.restore(&self.path, access(&self.options)) {
            self.listener = listener;
        }
    }

    /// Lets those connect whom this process is configured to let, where another may have set it otherwise.
    pub(super) fn set_access(&self) {
        if !self.file.is_at(&self.path) {
            return;
        }
        if let Err(error) = io::packets::set_access(&self.path, access(&self.options)) {
            let at = self.path.display();
            tracing::warn!("handover: {at}: cannot set who may connect: {error}");
        }
    }

    /// Whether this process is ending.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.wait(Duration::ZERO).unwrap_or(false)
    }

    /// The next process that connects, for so long at most, or until this process is ending. A failure passes: it is logged now and
    /// then, and a caller that waits rests.
    pub(super) fn accept(&self, timeout: Duration) -> Option<Packets> {
        let timeout = self.refused.borrow_mut().look(timeout);
        let error = match self.listener.accept(timeout, &self.ending) {
            Ok(packets) => return packets,
            Err(error) => error,
        };
        let at = now();
        if at >= self.failure_logged_at.get() {
            self.failure_logged_at.set(at.saturating_add(ACCEPT_LOG_INTERVAL));
            tracing::error!("handover: cannot accept a connection: {error}");
        }
        if !timeout.is_zero() {
            let _ = self.ending.wait(ACCEPT_PAUSE);
        }
        None
    }

    /// The next process that says what it wants, if it may: waits so long at most for one that connects, or until this process is
    /// ending.
    pub(super) fn next_peer(&self, timeout: Duration) -> Option<(Line, Heard)> {
        let is_waited_for = !self.pending.borrow().is_empty();
        let timeout = if is_waited_for { timeout.min(LOOK_INTERVAL) } else { timeout };
        if let Some(Ok(line)) = self.accept(timeout).map(Line::new) {
            self.add_pending(line);
        }
        loop {
            let next = self.pending.borrow_mut().next();
            match next? {
                (line, First::Hello(heard)) => return Some((line, heard)),
                (line, First::Refused(cause, reason)) => self.refuse(&line, cause, reason),
                (_, First::Nothing | First::Look) => {}
            }
        }
    }

    fn add_pending(&self, line: Line) {
        let uid = line.peer.uid;
        if !is_allowed(uid, &self.options) {
            let reason = format!("user {uid} may not take over: {}", hint_to_allow(uid));
            return self.refuse(&line, "user", reason);
        }
        let displaced = self.pending.borrow_mut().add(line);
        if let Some(line) = displaced {
            let reason = "it sent nothing, and others have connected".to_owned();
            self.refuse(&line, "silent", reason);
        }
    }

    /// Refuses a process that connects, and those that are waited for, because this one is busy. Does not wait.
    pub(super) fn turn_away(&self, reason: impl Fn() -> String) {
        let waiting = self.pending.borrow_mut().take();
        let other = self.accept(Duration::ZERO).and_then(|packets| Line::new(packets).ok());
        for line in waiting.chain(other) {
            self.refuse(&line, "busy", reason());
        }
    }

    /// Says no to who connected, and counts it. What is logged of it is bounded.
    pub(super) fn refuse(&self, line: &Line, cause: &'static str, reason: String) {
        let (peer, at) = (line.peer, now());
        if at >= self.refusal_logged_at.get().saturating_add(REFUSAL_LOG_INTERVAL) {
            self.refusal_logged_at.set(at);
            tracing::warn!(pid = peer.pid, uid = peer.uid, "a handover is refused: {reason}");
        }
        self.count_failure(cause);
        line.refuse(reason);
        if let Ok(packets) = line.try_clone() {
            self.refused.borrow_mut().add(packets);
        }
    }

    fn count_failure(&self, cause: &'static str) {
        // Control ends with the process.
        let news = HandoverStep::Heard(HandoverFact::News(HandoverNews::Failed(cause)));
        let _ = self.control.blocking_send(news);
    }

    /// Starts the new process, and gives when it asks.
    fn upgrade(&self, mut line: Line, request: &UpgradeRequest) -> End {
        let uid = line.peer.uid;
        if self.start.differs(request) && uid != 0 && uid != own_user() {
            // What it names would run as this process's user.
            let reason = format!(
                "user {uid} may take over, but not choose a program or a file for user {}: omit --binary and --config, or run the command \
                 as that user",
                own_user()
            );
            self.refuse(&line, "user", reason);
            return End::Back;
        }
        // This process may have been stopped meanwhile.
        if matches!(line.receive(Some(now())), Ok(Incoming::End) | Err(_)) {
            tracing::warn!(
                pid = line.peer.pid,
                "upgrade: the command has ended, and is not carried out"
            );
            return End::Back;
        }
        let mut command = self.start.successor(request);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let requester = Requester::new(line, None);
                return self
                    .not_started(requester, format!("{program} cannot be started: {error}"));
            }
        };
        tracing::info!(pid = child.id(), program, "upgrade: started the new process");
        let mut requester = Requester::new(line, None);
        let until = now().saturating_add(nanos(self.options.timeout));
        while now() < until && !self.is_ending() {
            requester.look();
            if let Ok(Some(status)) = child.try_wait() {
                let reason = format!("the new process ended before it took over ({status})");
                return self.not_started(requester, reason);
            }
            let next = self.next_peer(Duration::from_millis(50));
            let Some((taker, heard)) = next else { continue };
            if taker.peer.pid != child.id() {
                let reason = format!("process {} is taking over already", child.id());
                self.refuse(&taker, "busy", reason);
                continue;
            }
            if !matches!(heard.hello.purpose, Purpose::Take { .. }) {
                continue;
            }
            requester.child = Some(child);
            return self.give(taker, &heard, Some(requester));
        }
        // It was started by this process, which therefore may end it.
        let _ = child.kill();
        let _ = child.wait();
        if self.is_ending() {
            let reason = "this process is ending, and has ended the new one".to_owned();
            return self.conclude(requester, reason);
        }
        let reason = "the new process did not ask to take over in time, and was ended".to_owned();
        self.not_started(requester, reason)
    }

    /// There is no new process that asks to take over, for this reason.
    fn not_started(&self, requester: Requester, reason: String) -> End {
        self.count_failure("start");
        self.conclude(requester, reason)
    }

    /// Nothing is handed over, for this reason.
    pub(super) fn conclude(&self, requester: Requester, reason: String) -> End {
        let conclusion = if self.is_ending() {
            tracing::error!("upgrade: {reason}");
            Conclusion::Ends
        } else {
            tracing::error!("upgrade: {reason}; this process continues");
            Conclusion::Continues
        };
        requester.finish(conclusion, reason);
        End::Back
    }

    /// Hands over to the process at the other end.
    pub(super) fn give(&self, line: Line, heard: &Heard, asked: Option<Requester>) -> End {
        let began = now();
        let Heard { frame, hello } = heard;
        let is_return = matches!(hello.purpose, Purpose::TakeBack { .. });
        let deadlines = Deadlines {
            // The other one is the process again, and needs no other to stand in for it.
            probation: if is_return { Duration::ZERO } else { self.options.probation },
            total: self.options.timeout,
            ..Deadlines::default()
        };
        let open = io::limits::open_files().unwrap_or_default();
        let mut giver = Giver::new(VERSION, FORM, open, self.generation, deadlines, began);
        giver.learn(LEARNS);
        giver.on_frame(frame, 0, began);
        let version = hello.program.clone();
        let began_with = HandoverNews::Began { is_giver: true, pid: line.peer.pid, version };
        // Control ends with the process.
        let _ = self.control.blocking_send(HandoverStep::Heard(HandoverFact::News(began_with)));
        Attempt::new(self, line, asked, is_return, giver, began).run()
    }
}
