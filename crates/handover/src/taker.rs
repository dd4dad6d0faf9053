//! The new process's side.
//!
//! ```text
//!  Welcome ─► Parts ─► Comparing ─► Sockets ─► Opening ─► Taking ─► Committing ─► Done
//! ```
//!
//! From `Taking` on, the end of the giver makes this process go on alone ([`MovingAction::Commit`] with
//! what it has); before, it has nothing to go on with ([`TakerAction::Stop`]).

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use wiped::Wiped;

use crate::deadlines::{Deadlines, Phase, later};
use crate::failure::Failure;
use crate::message::{
    Difference, Hello, ListedConnections, Message, Packed, Part, Piece, Purpose, Refused,
    SocketKey, StatePiece, UnusedSocket, VERSION, Welcome,
};
use crate::pieces::{cut, shortened, shortened_alone};
use crate::silence::{ALIVE_INTERVAL, Silence};
use crate::{
    BATCH_GROUPS_MAX, BATCHES_MAX, GROUP_BYTES_MAX, GROUP_SOCKETS_MAX, LISTENING_MAX, PARTS_MAX,
    STATE_BYTES_MAX,
};

/// Topics of state, at most.
const TOPICS_MAX: usize = 64;

/// What the taker's caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakerAction {
    /// Log and report that a phase began.
    Enter(Phase),
    /// Send a frame.
    Send(Wiped),
    /// Something before this process listens.
    Opening(OpeningAction),
    /// Something while connections move.
    Moving(MovingAction),
    /// Something once this process is the one that serves.
    Following(FollowingAction),
    /// The giver has ended, as it should.
    Finished,
    /// This process does not take over: it is to let everything go and end.
    Stop(Failure),
}

/// What is to be done until this process listens. Descriptors are counted out of those that came, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningAction {
    /// The giver says who it is.
    Welcomed(Welcome),
    /// The configuration of the giver has this version: that of this process goes on from there.
    ContinueVersions(u64),
    /// Begin with what sources have delivered to the giver, and say so by [`Taker::begun`]: the next descriptor is a file of so
    /// many bytes.
    Begin(u64),
    /// Compare with what this process is configured to do, and say where it differs by
    /// [`Taker::compared`].
    Compare(Vec<Part>),
    /// Listen on these sockets, the next descriptors, and say so by [`Taker::serving`].
    Listen(Vec<SocketKey>),
}

/// What is to be done while connections move, until this process takes the place of the other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovingAction {
    /// Serve these groups, whose descriptors are the next ones, and say which cannot be by [`Taker::taken`].
    Take {
        /// The batch.
        batch: u32,
        /// Its groups.
        groups: Vec<ReceivedGroup>,
    },
    /// The giver has said what it knows of this topic, for the first time or something else than before: [`Taker::state`] has it.
    Learned(String),
    /// Take over what the giver knew, and say so by [`Taker::committed`].
    Commit {
        /// By topic.
        states: BTreeMap<String, Wiped>,
        /// Whether the giver ended before it said all.
        is_alone: bool,
    },
    /// The giver is silent: end it, then [`Taker::on_closed`], or [`Taker::stop_for_silence`] if it cannot be ended.
    EndSilent,
}

/// What the giver says that still has connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowingAction {
    /// It knows more by now.
    Update {
        /// The name of what is known, such as `totals`.
        topic: String,
        /// The newer value.
        bytes: Wiped,
    },
    /// Probation is over, and the service manager knows this process as the main one of its service.
    IsMainProcess,
    /// Some of its connections, as [`Message::ListConnections`] asked.
    Listed(ListedConnections),
}

/// A group that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedGroup {
    /// Its number.
    pub group: u32,
    /// What is written of it.
    pub bytes: Wiped,
    /// How many descriptors of those that came are its own.
    pub sockets: u32,
}

/// The new process's side.
#[derive(Debug)]
pub struct Taker {
    deadlines: Deadlines,
    state: State,
    deadline: u64,
    is_check: bool,
    /// Whether this process had everything before.
    is_former: bool,
    /// Whether the giver was to be ended for its silence.
    has_ended_giver: bool,
    silence: Silence,
    /// When this process says next that it runs.
    alive_at: u64,
    /// Whether the giver watches no longer.
    is_main_process: bool,
    /// Whether what sources have delivered to the giver may come.
    reads_resources: bool,
    parts: Vec<Part>,
    keys: Vec<SocketKey>,
    /// The group that is coming.
    coming: Option<Coming>,
    /// Whole groups of the batch that is coming.
    groups: Vec<ReceivedGroup>,
    batch: u32,
    /// Batches that the caller has, oldest first, with how many groups each has.
    taking: VecDeque<u32>,
    /// What is known of each topic.
    states: BTreeMap<String, Topic>,
    actions: VecDeque<TakerAction>,
}

/// What the giver has said of something.
#[derive(Debug, Default)]
struct Topic {
    /// The last that came whole: a giver may end while it says something newer.
    whole: Option<Wiped>,
    /// What has come of the next one, and how much of it is to come.
    coming: Wiped,
    to_come: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Welcome,
    Parts,
    /// Waits for the caller's differences.
    Comparing,
    Sockets,
    /// Waits for the caller to serve.
    Opening,
    Taking,
    /// Waits for the caller to be the process.
    Committing,
    Done,
    Ended,
}

#[derive(Debug)]
struct Coming {
    /// The first piece, without its bytes.
    piece: Piece,
    bytes: Wiped,
    sockets: u32,
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
        Self::with_purpose(Hello::new(program, purpose), is_check, deadlines, now)
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
        Self::with_purpose(hello, is_check, deadlines, now)
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
        let hello = Hello::new(program, purpose);
        let taker = Self::with_purpose(hello, false, deadlines, now);
        Self { is_former: true, ..taker }
    }

    fn with_purpose(hello: Hello, is_check: bool, deadlines: Deadlines, now: u64) -> Self {
        let reads_resources = hello.reads_resources;
        let frame = Message::Hello(hello).encode();
        Self {
            deadlines,
            state: State::Welcome,
            deadline: later(now, deadlines.hello),
            is_check,
            is_former: false,
            has_ended_giver: false,
            silence: Silence::default(),
            alive_at: u64::MAX,
            is_main_process: false,
            reads_resources,
            parts: Vec::new(),
            keys: Vec::new(),
            coming: None,
            groups: Vec::new(),
            batch: 0,
            taking: VecDeque::new(),
            states: BTreeMap::new(),
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
            State::Parts | State::Comparing => Phase::Config,
            State::Sockets | State::Opening => Phase::Listeners,
            State::Taking => Phase::Connections,
            State::Committing => Phase::Commit,
            State::Done => Phase::Probation,
            State::Ended => Phase::Done,
        }
    }

    /// Whether nothing comes of it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Ended && self.actions.is_empty()
    }

    /// When [`Taker::on_time`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let is_waiting = !matches!(self.state, State::Done | State::Ended);
        let deadline = is_waiting.then_some(self.deadline);
        let alive = self.is_to_send_alive().then_some(self.alive_at);
        let look = self.silence.next_look().filter(|_| self.watches());
        deadline.into_iter().chain(alive).chain(look).min()
    }

    /// Whether the giver waits for this process.
    fn is_to_send_alive(&self) -> bool {
        matches!(self.state, State::Taking | State::Done) && !self.is_main_process
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
    fn watches(&self) -> bool {
        self.state == State::Taking && !self.has_ended_giver
    }

    /// A frame came, with so many descriptors.
    pub fn on_frame(&mut self, frame: &[u8], descriptors: usize, now: u64) {
        if self.state == State::Ended {
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
        match (self.state, message) {
            (State::Welcome, Message::Welcome(welcome)) => {
                if welcome.version != VERSION {
                    let version = welcome.version;
                    return Err(Failure::Version { min: version, max: version });
                }
                self.actions.push_back(TakerAction::Opening(OpeningAction::Welcomed(welcome)));
                self.enter(State::Parts);
                self.deadline = later(now, self.deadlines.config);
                Ok(())
            }
            (State::Parts, Message::ConfigVersion { version }) if self.parts.is_empty() => {
                let action = OpeningAction::ContinueVersions(version);
                self.actions.push_back(TakerAction::Opening(action));
                Ok(())
            }
            (State::Parts, Message::Resources { bytes })
                if self.reads_resources && self.parts.is_empty() =>
            {
                self.reads_resources = false;
                self.actions.push_back(TakerAction::Opening(OpeningAction::Begin(bytes)));
                Ok(())
            }
            (State::Parts, Message::Parts { parts, is_last }) => self.on_parts(parts, is_last),
            (State::Sockets, Message::Sockets { keys, is_last }) => self.on_sockets(keys, is_last),
            (State::Taking, Message::Piece(piece)) => self.on_piece(piece, now),
            (State::Taking, Message::Pack { batch, groups }) => {
                groups.into_iter().try_for_each(|packed| self.on_packed(batch, packed, now))
            }
            (State::Taking, Message::BatchEnd { batch, groups }) => {
                self.on_batch_end(batch, groups)
            }
            (State::Taking, Message::State(piece)) => self.on_state(piece),
            // What cannot be read there is not worth the connection, whose end would end this process.
            (State::Done, Message::State(piece)) => {
                let topic = piece.topic.clone();
                if self.on_state(piece).is_err() {
                    self.states.remove(&topic);
                }
                Ok(())
            }
            (State::Done, Message::MainProcess) => {
                self.is_main_process = true;
                self.actions.push_back(TakerAction::Following(FollowingAction::IsMainProcess));
                Ok(())
            }
            (State::Done, Message::Connections(listed)) => {
                self.actions.push_back(TakerAction::Following(FollowingAction::Listed(listed)));
                Ok(())
            }
            (State::Taking, Message::Commit) if self.is_between_batches() => {
                let is_cut = self.states.values().any(|topic| topic.to_come > 0);
                if is_cut || !self.taking.is_empty() {
                    return Err(self.out_of_turn("Commit"));
                }
                self.commit(false, now);
                Ok(())
            }
            (_, message) => Err(self.out_of_turn(message.name())),
        }
    }

    const fn out_of_turn(&self, message: &'static str) -> Failure {
        Failure::OutOfTurn { phase: self.phase(), message }
    }

    fn on_parts(&mut self, parts: Vec<Part>, is_last: bool) -> Result<(), Failure> {
        self.parts.extend(parts);
        if self.parts.len() > PARTS_MAX {
            return Err(Failure::OverBound { what: "parts", max: PARTS_MAX });
        }
        if is_last {
            self.state = State::Comparing;
            self.actions.push_back(TakerAction::Opening(OpeningAction::Compare(mem::take(
                &mut self.parts,
            ))));
        }
        Ok(())
    }

    /// This process has begun with these, or goes on without, as [`OpeningAction::Begin`] asked. That may have taken a while.
    pub fn begun(&mut self, now: u64) {
        if self.state == State::Parts {
            self.deadline = later(now, self.deadlines.config);
        }
    }

    /// Where this process is configured otherwise, as [`OpeningAction::Compare`] asked.
    pub fn compared(&mut self, differences: Vec<Difference>, now: u64) {
        if self.state != State::Comparing {
            return;
        }
        for (differences, is_last) in cut(differences, |it| it.name.len(), usize::MAX) {
            self.send(&Message::Differences { differences, is_last });
        }
        if self.is_check {
            self.state = State::Ended;
            self.actions.push_back(TakerAction::Finished);
            return;
        }
        self.enter(State::Sockets);
        self.deadline = later(now, self.deadlines.listeners);
    }

    fn on_sockets(&mut self, keys: Vec<SocketKey>, is_last: bool) -> Result<(), Failure> {
        self.keys.extend(keys);
        if self.keys.len() > LISTENING_MAX {
            return Err(Failure::OverBound { what: "sockets", max: LISTENING_MAX });
        }
        if is_last {
            let keys = mem::take(&mut self.keys);
            let mut sorted: Vec<_> = keys.iter().collect();
            sorted.sort();
            if sorted.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
                return Err(self.out_of_turn("Sockets"));
            }
            self.state = State::Opening;
            self.actions.push_back(TakerAction::Opening(OpeningAction::Listen(keys)));
        }
        Ok(())
    }

    /// This process does not use these sockets, as turned out when it listened. To be said before [`Taker::serving`].
    pub fn unused(&mut self, sockets: Vec<UnusedSocket>) {
        if self.state != State::Opening || sockets.is_empty() {
            return;
        }
        for (sockets, _) in cut(sockets, UnusedSocket::text_bytes, usize::MAX) {
            self.send(&Message::Unused { sockets });
        }
    }

    /// This process accepts, as [`OpeningAction::Listen`] asked.
    pub fn serving(&mut self, now: u64) {
        if self.state != State::Opening {
            return;
        }
        self.send(&Message::ReadsPacks);
        self.send(&Message::Serving);
        self.enter(State::Taking);
        self.alive_at = now;
        self.wait_for_more(now);
    }

    /// The giver says within its own deadlines what comes next; a longer silence is its end.
    fn wait_for_more(&mut self, now: u64) {
        self.deadline = later(now, self.deadlines.remaining.saturating_add(self.deadlines.commit));
    }

    fn on_piece(&mut self, piece: Piece, now: u64) -> Result<(), Failure> {
        if piece.bytes_total > GROUP_BYTES_MAX {
            let max = GROUP_BYTES_MAX as usize;
            return Err(Failure::OverBound { what: "bytes of a group", max });
        }
        if piece.sockets_total > GROUP_SOCKETS_MAX {
            let max = GROUP_SOCKETS_MAX as usize;
            return Err(Failure::OverBound { what: "sockets of a group", max });
        }
        if self.groups.len() >= BATCH_GROUPS_MAX as usize {
            let max = BATCH_GROUPS_MAX as usize;
            return Err(Failure::OverBound { what: "groups of a batch", max });
        }
        if self.coming.is_none() && self.groups.is_empty() {
            self.batch = piece.batch;
        }
        let is_of_batch = piece.batch == self.batch && self.taking.len() < BATCHES_MAX;
        let coming = match self.coming.take() {
            Some(coming) if coming.is_continued_by(&piece) => coming.and(piece),
            None => Coming::new(piece),
            Some(_) => return Err(self.out_of_turn("Piece")),
        };
        let (bytes, sockets) = (coming.bytes.len(), coming.sockets);
        let (bytes_total, sockets_total) =
            (coming.piece.bytes_total as usize, coming.piece.sockets_total);
        if !is_of_batch || bytes > bytes_total || sockets > sockets_total {
            return Err(self.out_of_turn("Piece"));
        }
        if bytes == bytes_total && sockets == sockets_total {
            let Coming { piece: Piece { group, .. }, bytes, .. } = coming;
            self.groups.push(ReceivedGroup { group, bytes, sockets });
        } else {
            self.coming = Some(coming);
        }
        self.wait_for_more(now);
        Ok(())
    }

    fn on_packed(&mut self, batch: u32, packed: Packed, now: u64) -> Result<(), Failure> {
        let Packed { group, sockets, bytes } = packed;
        let bytes_total = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.on_piece(
            Piece { batch, group, bytes_total, sockets_total: sockets, sockets, bytes },
            now,
        )
    }

    fn on_batch_end(&mut self, batch: u32, groups: u32) -> Result<(), Failure> {
        let is_whole = self.coming.is_none()
            && batch == self.batch
            && groups as usize == self.groups.len()
            && groups > 0;
        if !is_whole {
            return Err(self.out_of_turn("BatchEnd"));
        }
        self.taking.push_back(batch);
        let groups = mem::take(&mut self.groups);
        self.actions.push_back(TakerAction::Moving(MovingAction::Take { batch, groups }));
        Ok(())
    }

    /// What became of a batch, as [`MovingAction::Take`] asked, and whether workers of this process serve others meanwhile.
    pub fn taken(&mut self, batch: u32, mut refused: Vec<Refused>, is_busy: bool, now: u64) {
        if self.taking.front() != Some(&batch) {
            return;
        }
        self.taking.pop_front();
        for refused in &mut refused {
            refused.reason = shortened(mem::take(&mut refused.reason));
        }
        if is_busy {
            self.send(&Message::Busy);
        }
        self.send(&Message::Taken { batch, refused });
        self.wait_for_more(now);
    }

    fn on_state(&mut self, piece: StatePiece) -> Result<(), Failure> {
        let StatePiece { topic, bytes_total: total, bytes } = piece;
        if total > STATE_BYTES_MAX {
            let max = STATE_BYTES_MAX as usize;
            return Err(Failure::OverBound { what: "bytes of state", max });
        }
        if !self.states.contains_key(&topic) && self.states.len() >= TOPICS_MAX {
            return Err(Failure::OverBound { what: "topics of state", max: TOPICS_MAX });
        }
        let held = self.states.entry(topic.clone()).or_default();
        if held.to_come == 0 {
            held.to_come = total;
        }
        let Some(left) = u32::try_from(bytes.len()).ok().and_then(|n| held.to_come.checked_sub(n))
        else {
            return Err(self.out_of_turn("State"));
        };
        append(&mut held.coming, &bytes, left);
        held.to_come = left;
        if left > 0 {
            return Ok(());
        }
        let bytes = mem::take(&mut held.coming);
        if self.state == State::Done {
            self.actions
                .push_back(TakerAction::Following(FollowingAction::Update { topic, bytes }));
            return Ok(());
        }
        let is_another = held.whole.as_ref().is_none_or(|known| *known != bytes);
        held.whole = Some(bytes);
        if is_another {
            self.actions.push_back(TakerAction::Moving(MovingAction::Learned(topic)));
        }
        Ok(())
    }

    /// What the giver knows of a topic, as far as it has said it, before its place is taken.
    #[must_use]
    pub fn state(&self, topic: &str) -> Option<&[u8]> {
        self.states.get(topic)?.whole.as_ref().map(|whole| whole.as_slice())
    }

    const fn is_between_batches(&self) -> bool {
        self.coming.is_none() && self.groups.is_empty()
    }

    fn commit(&mut self, is_alone: bool, now: u64) {
        self.enter(State::Committing);
        self.deadline = later(now, self.deadlines.commit);
        let states = mem::take(&mut self.states).into_iter();
        let states = states.filter_map(|(topic, held)| Some((topic, held.whole?))).collect();
        self.actions.push_back(TakerAction::Moving(MovingAction::Commit { states, is_alone }));
    }

    /// This process has taken over, as [`MovingAction::Commit`] asked.
    pub fn committed(&mut self) {
        if self.state != State::Committing {
            return;
        }
        self.send(&Message::Committed);
        self.enter(State::Done);
    }

    /// Whether the end of the giver makes this process the process.
    #[must_use]
    pub fn goes_on_alone(&self) -> bool {
        self.state == State::Taking
    }

    /// The connection to the giver is over, which has ended with it.
    pub fn on_closed(&mut self, now: u64) {
        match self.state {
            State::Taking => self.commit(true, now),
            State::Done => {
                self.state = State::Ended;
                self.actions.push_back(TakerAction::Finished);
            }
            // The caller is about to be the process.
            State::Committing | State::Ended => {}
            _ => self.stop(Failure::Closed(self.phase())),
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: u64) {
        let is_silent = self.silence.on_time(now);
        let is_waiting = !matches!(self.state, State::Done | State::Ended);
        let is_late = is_waiting && self.deadline <= now;
        // A process that was the one before is well, and does not wait. Another one is as long in doubt as the giver may take
        // for all that it does.
        let is_to_end = if self.is_former { is_silent || is_late } else { is_silent && is_late };
        if is_to_end && self.watches() {
            // Asked once: it ends by that, in one way or the other.
            self.has_ended_giver = true;
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
            State::Done => {
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

    fn enter(&mut self, state: State) {
        self.state = state;
        self.actions.push_back(TakerAction::Enter(self.phase()));
    }

    fn send(&mut self, message: &Message) {
        self.actions.push_back(TakerAction::Send(message.encode()));
    }
}

impl Coming {
    fn is_continued_by(&self, next: &Piece) -> bool {
        let Piece { batch, group, bytes_total, sockets_total, .. } = &self.piece;
        (*batch, *group) == (next.batch, next.group)
            && (*bytes_total, *sockets_total) == (next.bytes_total, next.sockets_total)
            && (!next.bytes.is_empty() || next.sockets > 0)
    }

    fn new(mut piece: Piece) -> Self {
        let bytes = mem::take(&mut piece.bytes);
        Self { sockets: piece.sockets, piece, bytes }
    }

    fn and(mut self, next: Piece) -> Self {
        let so_far = self.bytes.len().saturating_add(next.bytes.len());
        let so_far = u32::try_from(so_far).unwrap_or(u32::MAX);
        append(&mut self.bytes, &next.bytes, self.piece.bytes_total.saturating_sub(so_far));
        self.sockets = self.sockets.saturating_add(next.sockets);
        self
    }
}

/// How many times as much room there is made as there is need for.
const ROOM: usize = 4;

/// Appends bytes that may have keys in them, and leaves no copy behind. `to_come` is said to follow: it is believed so far that a
/// large group is copied for a third, and that who lies costs as many times what it sends.
fn append(held: &mut Wiped, more: &[u8], to_come: u32) {
    let len = held.len().saturating_add(more.len());
    if len > held.capacity() {
        let all = len.saturating_add(to_come as usize);
        let mut larger = Wiped::with_capacity(all.min(len.saturating_mul(ROOM)));
        larger.extend_from_slice(held);
        *held = larger;
    }
    held.extend_from_slice(more);
}
