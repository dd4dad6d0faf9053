//! The new process's side.
//!
//! ```text
//!  Welcome ─► Parts ─► Comparing ─► Sockets ─► Opening ─► Taking ─► Committing ─► Done
//! ```
//!
//! From `Taking` on, the end of the giver makes this process go on alone ([`MovingAction::Commit`] with
//! what it has); before, it has nothing to go on with ([`TakerAction::Stop`]).

mod action;
mod incoming;

use std::collections::{BTreeSet, VecDeque};
use std::mem;

use wiped::Wiped;

pub use self::action::{FollowingAction, MovingAction, OpeningAction, ReceivedGroup, TakerAction};
use self::incoming::Incoming;
use crate::deadlines::{Deadlines, Phase, later};
use crate::failure::Failure;
use crate::message::{
    Difference, Hello, Message, Part, Purpose, Refused, SocketKey, StatePiece, UnusedSocket,
    VERSION, Welcome,
};
use crate::pieces::{cut, shortened, shortened_alone};
use crate::silence::{ALIVE_INTERVAL, Silence};
use crate::topics::{Topics, pieces};
use crate::{LISTENING_MAX, PARTS_MAX, STATE_BYTES_MAX};

/// The new process's side.
#[derive(Debug)]
pub struct Taker {
    kind: Kind,
    deadlines: Deadlines,
    state: State,
    deadline: u64,
    silence: Silence,
    /// When this process says next that it runs.
    alive_at: u64,
    /// Until when a giver that says no more than that it is there is waited for.
    patient_until: u64,
    /// Whether what sources have delivered to the giver may come.
    reads_resources: bool,
    /// Listening sockets whose files were the giver's own.
    own_files: BTreeSet<SocketKey>,
    topics: Topics,
    actions: VecDeque<TakerAction>,
}

/// What a taker is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To compare the configurations, and nothing else.
    Check,
    /// To be the process.
    New,
    /// To be the process again that it was before.
    Former,
}

#[derive(Debug)]
enum State {
    Welcome,
    Parts(Vec<Part>),
    /// Waits for the caller's differences.
    Comparing,
    Sockets(Vec<SocketKey>),
    /// Waits for the caller to serve.
    Opening,
    Taking {
        incoming: Incoming,
        /// Whether the giver was to be ended for its silence.
        has_ended_giver: bool,
    },
    /// Waits for the caller to be the process.
    Committing,
    Done {
        /// Whether the giver watches no longer.
        is_main_process: bool,
    },
    Ended,
}

impl Taker {
    /// A taker that has just connected.
    #[must_use]
    pub fn new(
        program: &str,
        forms_read: Vec<u16>,
        descriptors: u64,
        is_check: bool,
        deadlines: Deadlines,
        now: u64,
    ) -> Self {
        let purpose = Purpose::Take { forms_read, descriptors, is_check };
        Self::with_hello(Hello::new(program, purpose), deadlines, now)
    }

    /// The same of a process that begins with what sources have delivered to the giver.
    #[must_use]
    pub fn with_resources(
        program: &str,
        forms_read: Vec<u16>,
        descriptors: u64,
        is_check: bool,
        deadlines: Deadlines,
        now: u64,
    ) -> Self {
        let purpose = Purpose::Take { forms_read, descriptors, is_check };
        let mut hello = Hello::new(program, purpose);
        hello.reads_resources = true;
        Self::with_hello(hello, deadlines, now)
    }

    /// The former process, which has just connected to take back what it gave, since it was asked to.
    #[must_use]
    pub fn of_former(
        program: &str,
        forms_read: Vec<u16>,
        descriptors: u64,
        deadlines: Deadlines,
        now: u64,
    ) -> Self {
        let purpose = Purpose::TakeBack { forms_read, descriptors };
        Self::with_hello(Hello::new(program, purpose), deadlines, now)
    }

    fn with_hello(hello: Hello, deadlines: Deadlines, now: u64) -> Self {
        let kind = match hello.purpose {
            Purpose::Take { is_check: true, .. } => Kind::Check,
            Purpose::TakeBack { .. } => Kind::Former,
            _ => Kind::New,
        };
        let reads_resources = hello.reads_resources;
        let frame = Message::Hello(hello).encode();
        Self {
            kind,
            deadlines,
            state: State::Welcome,
            deadline: later(now, deadlines.hello),
            silence: Silence::default(),
            alive_at: u64::MAX,
            patient_until: 0,
            reads_resources,
            own_files: BTreeSet::new(),
            topics: Topics::default(),
            actions: VecDeque::from([TakerAction::Enter(Phase::Hello), TakerAction::Send(frame)]),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<TakerAction> {
        self.actions.pop_front()
    }

    /// How far it is.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Welcome => Phase::Hello,
            State::Parts(_) | State::Comparing => Phase::Config,
            State::Sockets(_) | State::Opening => Phase::Listeners,
            State::Taking { .. } => Phase::Connections,
            State::Committing => Phase::Commit,
            State::Done { .. } => Phase::Probation,
            State::Ended => Phase::Done,
        }
    }

    /// Whether nothing comes of it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Ended) && self.actions.is_empty()
    }

    /// When [`Taker::on_time`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let deadline = self.is_waiting().then_some(self.deadline);
        let alive = self.is_to_send_alive().then_some(self.alive_at);
        let look = self.silence.next_look().filter(|_| self.watches());
        deadline.into_iter().chain(alive).chain(look).min()
    }

    /// Whether something has to come before the deadline.
    const fn is_waiting(&self) -> bool {
        !matches!(self.state, State::Done { .. } | State::Ended)
    }

    /// Whether the giver waits for this process.
    const fn is_to_send_alive(&self) -> bool {
        matches!(self.state, State::Taking { .. } | State::Done { is_main_process: false })
    }

    /// Whether the giver is to hear now that this process is there, for a caller that is kept from calling [`Self::on_time`].
    pub fn is_alive_due(&mut self, now: u64) -> bool {
        let is_due = self.is_to_send_alive() && self.alive_at <= now;
        if is_due {
            self.alive_at = later(now, ALIVE_INTERVAL);
        }
        is_due
    }

    /// Whether this process looks if the giver runs: it serves, and could go on alone.
    const fn watches(&self) -> bool {
        matches!(self.state, State::Taking { has_ended_giver: false, .. })
    }

    /// A frame came, with so many descriptors.
    pub fn on_frame(&mut self, frame: &[u8], descriptors: usize, now: u64) {
        if matches!(self.state, State::Ended) {
            return;
        }
        self.silence.on_frame();
        let phase = self.phase();
        let result = match Message::decode(frame) {
            Err(error) => Err(Failure::Frame { phase, error }),
            Ok(None) if descriptors == 0 => Ok(()),
            Ok(None) => Err(Failure::Descriptors { phase, expected: 0, got: descriptors }),
            Ok(Some(message)) if message.descriptors() != descriptors => {
                let expected = message.descriptors();
                Err(Failure::Descriptors { phase, expected, got: descriptors })
            }
            Ok(Some(Message::Alive)) => {
                self.silence.on_alive(now);
                // It has its own deadlines, and says so when one is over; but not for ever.
                if matches!(self.state, State::Taking { .. }) {
                    let until = self.deadline.max(self.patient_until);
                    self.wait_for_more(now);
                    self.deadline = self.deadline.min(until);
                }
                Ok(())
            }
            Ok(Some(Message::GiveUp { reason })) => Err(Failure::GaveUp(reason)),
            Ok(Some(message)) => self.on_message(message, now),
        };
        if let Err(failure) = result {
            self.fail(failure);
        }
    }

    fn on_message(&mut self, message: Message, now: u64) -> Result<(), Failure> {
        match (&mut self.state, message) {
            (State::Welcome, Message::Welcome(welcome)) => self.on_welcome(welcome, now),
            (State::Parts(parts), Message::ConfigVersion { version }) if parts.is_empty() => {
                self.open(OpeningAction::ContinueVersions(version));
                Ok(())
            }
            (State::Parts(parts), Message::Downstream(downstream)) if parts.is_empty() => {
                self.open(OpeningAction::NoteDownstream(downstream));
                Ok(())
            }
            (State::Parts(parts), Message::Resources { bytes })
                if self.reads_resources && parts.is_empty() =>
            {
                self.reads_resources = false;
                self.open(OpeningAction::Begin(bytes));
                Ok(())
            }
            (State::Parts(parts), Message::Parts { parts: more, is_last }) => {
                parts.extend(more);
                if parts.len() > PARTS_MAX {
                    return Err(Failure::OverBound { what: "parts", max: PARTS_MAX });
                }
                if is_last {
                    let parts = mem::take(parts);
                    self.state = State::Comparing;
                    self.open(OpeningAction::Compare(parts));
                }
                Ok(())
            }
            (State::Sockets(_), Message::OwnFiles { keys }) => {
                self.own_files.extend(keys);
                if self.own_files.len() > LISTENING_MAX {
                    return Err(Failure::OverBound { what: "files", max: LISTENING_MAX });
                }
                Ok(())
            }
            (State::Sockets(keys), Message::Sockets { keys: more, is_last }) => {
                keys.extend(more);
                if keys.len() > LISTENING_MAX {
                    return Err(Failure::OverBound { what: "sockets", max: LISTENING_MAX });
                }
                if is_last {
                    let keys = mem::take(keys);
                    return self.on_all_sockets(keys);
                }
                Ok(())
            }
            (State::Taking { incoming, .. }, Message::Piece(piece)) => {
                incoming.on_piece(piece)?;
                self.wait_for_more(now);
                Ok(())
            }
            (State::Taking { incoming, .. }, Message::Pack { batch, groups }) => {
                incoming.on_pack(batch, groups)?;
                self.wait_for_more(now);
                Ok(())
            }
            (State::Taking { incoming, .. }, Message::BatchEnd { batch, groups }) => {
                let action = incoming.on_batch_end(batch, groups)?;
                self.actions.push_back(TakerAction::Moving(action));
                Ok(())
            }
            (State::Taking { .. }, Message::State(piece)) => {
                if let Some((topic, bytes)) = self.topics.on_piece(piece, Phase::Connections)?
                    && self.topics.keep(&topic, bytes)
                {
                    self.actions.push_back(TakerAction::Moving(MovingAction::Learned(topic)));
                }
                Ok(())
            }
            (State::Taking { incoming, .. }, Message::Commit)
                if incoming.is_empty() && !self.topics.are_cut() =>
            {
                self.commit(false, now);
                Ok(())
            }
            (State::Done { is_main_process }, Message::MainProcess) => {
                *is_main_process = true;
                self.actions.push_back(TakerAction::Following(FollowingAction::IsMainProcess));
                Ok(())
            }
            (State::Done { .. }, Message::State(piece)) => {
                self.on_update(piece);
                Ok(())
            }
            (State::Done { .. }, Message::Connections(listed)) => {
                self.actions.push_back(TakerAction::Following(FollowingAction::Listed(listed)));
                Ok(())
            }
            (_, message) => Err(self.out_of_turn(message.name())),
        }
    }

    const fn out_of_turn(&self, message: &'static str) -> Failure {
        Failure::OutOfTurn { phase: self.phase(), message }
    }

    fn on_welcome(&mut self, welcome: Welcome, now: u64) -> Result<(), Failure> {
        if welcome.version != VERSION {
            let version = welcome.version;
            return Err(Failure::Version { min: version, max: version });
        }
        self.open(OpeningAction::Welcomed(welcome));
        self.enter(State::Parts(Vec::new()));
        self.deadline = later(now, self.deadlines.config);
        Ok(())
    }

    /// This process has begun with these, or goes on without, as [`OpeningAction::Begin`] asked. That may have taken a while.
    pub fn begun(&mut self, now: u64) {
        if matches!(self.state, State::Parts(_)) {
            self.deadline = later(now, self.deadlines.config);
        }
    }

    /// Where this process is configured otherwise, as [`OpeningAction::Compare`] asked.
    pub fn compared(&mut self, differences: Vec<Difference>, now: u64) {
        if !matches!(self.state, State::Comparing) {
            return;
        }
        for (differences, is_last) in cut(differences, |it| it.name.len(), usize::MAX) {
            self.send(&Message::Differences { differences, is_last });
        }
        if self.kind == Kind::Check {
            self.state = State::Ended;
            self.actions.push_back(TakerAction::Finished);
            return;
        }
        self.enter(State::Sockets(Vec::new()));
        self.deadline = later(now, self.deadlines.listeners);
    }

    fn on_all_sockets(&mut self, keys: Vec<SocketKey>) -> Result<(), Failure> {
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort();
        if sorted.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
            return Err(self.out_of_turn("Sockets"));
        }
        self.state = State::Opening;
        self.open(OpeningAction::Listen(keys));
        Ok(())
    }

    /// Whether the file of this listening socket was the giver's own, and is this process's with it. Without a word of the giver it is
    /// not: a file that stays behind is stale and replaced by its next user, while nothing replaces one of a socket unit.
    #[must_use]
    pub fn owns_file(&self, key: &SocketKey) -> bool {
        self.own_files.contains(key)
    }

    /// This process does not use these sockets, as turned out when it listened. To be said before [`Taker::serving`].
    pub fn unused(&mut self, sockets: Vec<UnusedSocket>) {
        if !matches!(self.state, State::Opening) || sockets.is_empty() {
            return;
        }
        for (sockets, _) in cut(sockets, UnusedSocket::text_bytes, usize::MAX) {
            self.send(&Message::Unused { sockets });
        }
    }

    /// This process accepts, as [`OpeningAction::Listen`] asked.
    pub fn serving(&mut self, now: u64) {
        if !matches!(self.state, State::Opening) {
            return;
        }
        self.send(&Message::ReadsPacks);
        let ms = u64::try_from(self.deadlines.total.as_millis()).ok();
        self.send(&Message::IsPatient { ms });
        self.send(&Message::Serving);
        self.enter(State::Taking { incoming: Incoming::default(), has_ended_giver: false });
        self.patient_until = later(now, self.deadlines.total.saturating_add(self.deadlines.commit));
        self.alive_at = now;
        self.wait_for_more(now);
    }

    /// The giver says within its own deadlines what comes next; a longer silence is its end.
    fn wait_for_more(&mut self, now: u64) {
        self.deadline = later(now, self.deadlines.remaining.saturating_add(self.deadlines.commit));
    }

    /// What became of a batch, as [`MovingAction::Take`] asked, and whether workers of this process serve others meanwhile.
    pub fn taken(&mut self, batch: u32, mut refused: Vec<Refused>, is_busy: bool, now: u64) {
        let State::Taking { incoming, .. } = &mut self.state else { return };
        if !incoming.taken(batch) {
            return;
        }
        for refused in &mut refused {
            refused.reason = shortened(mem::take(&mut refused.reason));
        }
        if is_busy {
            self.send(&Message::Busy);
        }
        self.send(&Message::Taken { batch, refused });
        self.wait_for_more(now);
    }

    /// The giver says more than it knew. What cannot be read there is not worth the connection, whose end would end this process.
    fn on_update(&mut self, piece: StatePiece) {
        let topic = piece.topic.clone();
        match self.topics.on_piece(piece, Phase::Probation) {
            Ok(Some((topic, bytes))) => {
                let update = FollowingAction::Update { topic, bytes };
                self.actions.push_back(TakerAction::Following(update));
            }
            Ok(None) => {}
            Err(_) => self.topics.forget(&topic),
        }
    }

    /// The frames that say what this process knows of a topic by itself, with which the giver goes on should this one end: to be sent when
    /// there is room. None once the giver does not stand by any more, nor of what that one would not read.
    pub fn frames_of<'s>(
        &self,
        topic: &'s str,
        value: &'s [u8],
    ) -> impl Iterator<Item = Wiped> + use<'s> {
        let is_read = self.stands_by() && value.len() <= STATE_BYTES_MAX as usize;
        let pieces = is_read.then(|| pieces(topic, value)).into_iter().flatten();
        pieces.map(|piece| Message::TakerState(piece).encode())
    }

    /// Whether the giver goes on should this process end.
    #[must_use]
    pub const fn stands_by(&self) -> bool {
        self.is_to_send_alive()
    }

    /// What the giver knows of a topic, as far as it has said it, before its place is taken.
    #[must_use]
    pub fn state(&self, topic: &str) -> Option<&[u8]> {
        self.topics.known(topic)
    }

    fn commit(&mut self, is_alone: bool, now: u64) {
        self.enter(State::Committing);
        self.deadline = later(now, self.deadlines.commit);
        let states = self.topics.take();
        self.actions.push_back(TakerAction::Moving(MovingAction::Commit { states, is_alone }));
    }

    /// This process takes over, as [`MovingAction::Commit`] asked, and gives everything back then. To be said before [`Self::committed`].
    pub fn gives_back(&mut self, reason: &str) {
        if matches!(self.state, State::Committing) {
            self.send(&Message::GivesBack { reason: shortened_alone(reason.to_owned()) });
        }
    }

    /// This process has taken over, as [`MovingAction::Commit`] asked.
    pub fn committed(&mut self) {
        if !matches!(self.state, State::Committing) {
            return;
        }
        self.send(&Message::Committed);
        self.enter(State::Done { is_main_process: false });
    }

    /// Whether the end of the giver makes this process the process.
    #[must_use]
    pub const fn goes_on_alone(&self) -> bool {
        matches!(self.state, State::Taking { .. })
    }

    /// The connection to the giver is over, which has ended with it.
    pub fn on_closed(&mut self, now: u64) {
        match self.state {
            State::Taking { .. } => self.commit(true, now),
            State::Done { .. } => {
                self.state = State::Ended;
                self.actions.push_back(TakerAction::Finished);
            }
            // The caller is about to be the process.
            State::Committing | State::Ended => {}
            _ => self.stop(Failure::Closed(self.phase())),
        }
    }

    /// This process was stopped for so long, ns, while it waited: that is no time of the giver's, which may have been stopped as well.
    pub const fn was_stopped(&mut self, nanos: u64) {
        self.deadline = self.deadline.saturating_add(nanos);
        self.patient_until = self.patient_until.saturating_add(nanos);
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: u64) {
        let is_silent = self.silence.on_time(now);
        let is_late = self.is_waiting() && self.deadline <= now;
        // A process that was the one before is well, and does not wait. Another one is as long in doubt as the giver may take
        // for all that it does.
        let is_former = self.kind == Kind::Former;
        let is_to_end = if is_former { is_silent || is_late } else { is_silent && is_late };
        if let State::Taking { has_ended_giver: has_ended @ false, .. } = &mut self.state
            && is_to_end
        {
            // Asked once: it ends by that, in one way or the other.
            *has_ended = true;
            self.actions.push_back(TakerAction::Moving(MovingAction::EndSilent));
        } else if is_late {
            self.stop_for_silence();
        } else if self.is_alive_due(now) {
            self.send(&Message::Alive);
        }
    }

    /// The giver is silent, and may still use what it has.
    pub fn stop_for_silence(&mut self) {
        self.fail(Failure::Silent(self.phase()));
    }

    /// This side cannot go on. What was committed stays so: then the connection to the giver is all that
    /// is given up.
    pub fn fail(&mut self, failure: Failure) {
        match self.state {
            State::Ended => {}
            State::Done { .. } => {
                self.state = State::Ended;
                self.actions.push_back(TakerAction::Finished);
            }
            _ => {
                let reason = shortened_alone(failure.to_string());
                self.stop(failure);
                self.send(&Message::GiveUp { reason });
            }
        }
    }

    fn stop(&mut self, failure: Failure) {
        self.state = State::Ended;
        // The caller lets everything go first; then the giver may learn of it.
        self.actions.push_back(TakerAction::Stop(failure));
    }

    fn open(&mut self, action: OpeningAction) {
        self.actions.push_back(TakerAction::Opening(action));
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.actions.push_back(TakerAction::Enter(self.phase()));
    }

    fn send(&mut self, message: &Message) {
        self.actions.push_back(TakerAction::Send(message.encode()));
    }
}
