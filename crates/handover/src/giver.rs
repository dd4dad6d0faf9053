//! The side that has the sockets.
//!
//! ```text
//!  Hello ─► Describing ─► Config ─► Listening ─► Serving ─► Moving (probe, connections, remaining)
//!                                                              │ nothing is left
//!                    Leaving ◄─ Probation ◄─ Committing ◄─ Summarizing
//! ```
//!
//! From any state before `Probation` a failure leads to [`GiverAction::RollBack`], once. In `Leaving` this process ends what it
//! still has, and hears from its taker whether others wait for that.

mod action;

use std::collections::VecDeque;
use std::time::Duration;

use wiped::Wiped;

pub use self::action::{GiverAction, PeerLife};
use crate::deadlines::{Deadlines, Phase, later};
use crate::failure::Failure;
use crate::frame::DESCRIPTORS_MAX;
use crate::message::{
    Difference, Hello, ListedConnections, Message, Part, Purpose, Refused, SocketKey, StatePiece,
    UnusedSocket, VERSION, Welcome,
};
use crate::pace::Pace;
use crate::pieces::{self, GivenGroup, PIECE_BYTES_MAX, cut, shortened};
use crate::silence::{ALIVE_INTERVAL, Silence};
use crate::{
    BATCH_BYTES_MAX, GROUP_BYTES_MAX, GROUP_SOCKETS_MAX, LISTENING_MAX, PARTS_MAX, STATE_BYTES_MAX,
};

/// Between two attempts to move what could not move before.
const REMAINING_INTERVAL: Duration = Duration::from_millis(20);

/// So many bytes need no more time than none.
const BYTES_IN_TIME: u64 = 1 << 20;

/// How much longer more bytes may take: a second for each 4 MiB. Where other work has two processors twice over, these take a quarter of
/// that.
const fn extra_time(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_sub(BYTES_IN_TIME) / 4)
}

/// How old what the taker knows of this process's counts may be where this one ends all of a sudden.
const INFORM_INTERVAL: Duration = Duration::from_millis(100);

/// How often the taker hears that without a word from it: one that stands still reads nothing, and this process must not wait for
/// it.
const UNHEARD_MAX: u32 = 3;

/// What differs, at most: each part of either side, and the frames that say so.
const DIFFERENCES_MAX: usize = 3 * PARTS_MAX;

/// What this process says in its welcome.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    program: String,
    form: u16,
    descriptors: u64,
    generation: u64,
}

/// The side that has the sockets.
#[derive(Debug)]
pub struct Giver {
    offer: Offer,
    deadlines: Deadlines,
    state: State,
    /// When the state is over unless something comes.
    deadline: u64,
    /// When the attempt is over unless COMMIT was reached.
    total_at: u64,
    /// When to try again to move what could not.
    again_at: Option<u64>,
    /// When COMMIT comes although connections cannot move yet.
    remaining_until: u64,
    under_way: VecDeque<Batch>,
    /// Groups for the next batches, and when their workers were asked for them.
    waiting: VecDeque<(GivenGroup, u64)>,
    batch_next: u32,
    is_collecting: bool,
    pace: Pace,
    is_check: bool,
    reads_packs: bool,
    /// Whether the taker reads connections as they are written here. Otherwise all of them stay, and drain.
    reads_form: bool,
    /// What the taker has said of its end, before that.
    why_taker_ends: Option<String>,
    reads_resources: bool,
    /// Differences that the taker has said so far.
    differences: usize,
    /// Listeners whose sockets the taker does not use.
    unused: Vec<UnusedSocket>,
    silence: Silence,
    /// When the taker, which waits, hears from this process next.
    alive_at: u64,
    /// When it hears next what this process knows.
    inform_at: u64,
    /// How often it heard that since it said something.
    unheard: u32,
    actions: VecDeque<GiverAction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hello,
    /// Waits for the caller's description.
    Describing,
    Config,
    /// Waits for the caller's list of sockets.
    Listening,
    Serving,
    Moving(Phase),
    /// Waits for the caller's summary.
    Summarizing,
    Committing,
    Probation(Standby),
    /// Probation is over, and the connection to the taker is not.
    Leaving,
    Ended,
}

/// What this process does in the probation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standby {
    /// It stands by.
    Waiting,
    /// The taker was to be ended for its silence.
    TakerGivenUp,
    /// That could not be done: this process accepts beside the taker.
    StandingIn,
}

/// Whether a taker reads a state of so many bytes.
fn is_read((_, bytes): &&(String, Wiped)) -> bool {
    bytes.len() <= STATE_BYTES_MAX as usize
}

#[derive(Debug)]
struct Batch {
    number: u32,
    groups: Vec<u32>,
    bytes: u32,
    /// When their workers were asked for them.
    asked_at: u64,
    /// How long it may take, once those before it were acknowledged.
    within: Duration,
    deadline: u64,
}

impl Giver {
    /// A giver to which a taker has just connected.
    #[must_use]
    pub fn new(
        program: &str,
        form: u16,
        descriptors: u64,
        generation: u64,
        deadlines: Deadlines,
        now: u64,
    ) -> Self {
        Self {
            offer: Offer { program: program.to_owned(), form, descriptors, generation },
            deadlines,
            state: State::Hello,
            deadline: later(now, deadlines.hello),
            total_at: later(now, deadlines.total),
            again_at: None,
            remaining_until: u64::MAX,
            under_way: VecDeque::new(),
            waiting: VecDeque::new(),
            batch_next: 0,
            is_collecting: false,
            pace: Pace::default(),
            is_check: false,
            reads_packs: false,
            reads_form: true,
            why_taker_ends: None,
            reads_resources: false,
            differences: 0,
            unused: Vec::new(),
            silence: Silence::default(),
            alive_at: 0,
            inform_at: 0,
            unheard: 0,
            actions: VecDeque::from([GiverAction::Enter(Phase::Hello)]),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<GiverAction> {
        self.actions.pop_front()
    }

    /// How far it is.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Hello => Phase::Hello,
            State::Describing | State::Config => Phase::Config,
            State::Listening | State::Serving => Phase::Listeners,
            State::Moving(phase) => phase,
            State::Summarizing | State::Committing => Phase::Commit,
            State::Probation(_) => Phase::Probation,
            State::Leaving | State::Ended => Phase::Done,
        }
    }

    /// Whether nothing comes of it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Ended && self.actions.is_empty()
    }

    /// Whether this process ends what it still has.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving)
    }

    /// When [`Giver::on_time`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        if matches!(self.state, State::Leaving | State::Ended) {
            return None;
        }
        let batches = self.under_way.iter().map(|batch| batch.deadline);
        let total = self.is_before_commit().then_some(self.total_at);
        let inform_at = if self.unheard < UNHEARD_MAX { self.inform_at } else { u64::MAX };
        let said = self.alive_at.min(inform_at);
        let alive = matches!(self.state, State::Moving(_)).then_some(said);
        // As long as the other process may be stopped, a probation that is over does not end: there are looks at it alone.
        let waits = matches!(self.state, State::Probation(_)) && self.silence.is_in_doubt();
        let deadline = (!waits).then_some(self.deadline);
        let looks =
            [total, alive, self.again_at, self.pace.rests_until(), self.silence.next_look()];
        batches.chain(looks.into_iter().flatten()).chain(deadline).min()
    }

    /// A frame came, with so many descriptors.
    pub fn on_frame(&mut self, frame: &[u8], descriptors: usize, now: u64) {
        if self.state == State::Ended {
            return;
        }
        self.silence.on_frame();
        self.unheard = 0;
        if let State::Probation(standby) = &mut self.state
            && std::mem::replace(standby, Standby::Waiting) == Standby::StandingIn
        {
            self.actions.push_back(GiverAction::StandBack);
        }
        let phase = self.phase();
        let result = match Message::decode(frame) {
            Err(error) => Err(Failure::Frame { phase, error }),
            // A taker has none to give.
            Ok(_) if descriptors != 0 => {
                Err(Failure::Descriptors { phase, expected: 0, got: descriptors })
            }
            Ok(None) => Ok(()),
            Ok(Some(Message::Alive)) => {
                self.silence.on_alive(now);
                Ok(())
            }
            Ok(Some(Message::ReadsPacks)) => {
                self.reads_packs = true;
                Ok(())
            }
            Ok(Some(Message::Unused { sockets })) => self.on_unused(sockets),
            Ok(Some(Message::Ends { reason })) => {
                self.why_taker_ends = Some(reason);
                Ok(())
            }
            Ok(Some(Message::Busy)) => {
                self.pace.is_taker_busy = true;
                Ok(())
            }
            Ok(Some(Message::GiveUp { reason }))
                if !matches!(self.state, State::Probation(_) | State::Leaving) =>
            {
                self.drop_unsent();
                return self.roll_back(Failure::GaveUp(reason), PeerLife::Over);
            }
            Ok(Some(message)) => self.on_message(message, now),
        };
        if let Err(failure) = result {
            self.fail(failure);
        }
    }

    fn on_message(&mut self, message: Message, now: u64) -> Result<(), Failure> {
        match (self.state, message) {
            (State::Hello, Message::Hello(hello)) => self.on_hello(&hello, now),
            (State::Config, Message::Differences { differences, is_last }) => {
                self.on_differences(differences, is_last, now)
            }
            (State::Serving, Message::Serving) => {
                let but = std::mem::take(&mut self.unused);
                // The taker accepts once it knows which endpoints get no requests.
                self.actions.push_back(GiverAction::Inform { is_first: true });
                self.actions.push_back(GiverAction::StopAccepting { but });
                self.actions.push_back(GiverAction::Inform { is_first: false });
                self.inform_at = later(now, INFORM_INTERVAL);
                self.alive_at = now;
                self.deadline = u64::MAX;
                if self.reads_form {
                    self.enter(State::Moving(Phase::Probe));
                    self.collect(now);
                } else {
                    self.begin_connections(now);
                    self.on_nothing(Phase::Connections, 0, now);
                }
                Ok(())
            }
            (State::Moving(_), Message::Taken { batch, refused }) => {
                self.on_taken(batch, refused, now)
            }
            (State::Committing, Message::Committed) => {
                self.actions.push_back(GiverAction::Committed);
                self.enter(State::Probation(Standby::Waiting));
                self.deadline = later(now, self.deadlines.probation);
                Ok(())
            }
            // It ends as it should, or has handed over in its turn: there is nothing to stand in for.
            (State::Probation(_), Message::Committed) => {
                self.finish();
                Ok(())
            }
            (State::Probation(_), Message::TakeBack { reason }) => {
                self.actions.push_back(GiverAction::BecomeTaker(reason));
                Ok(())
            }
            (State::Probation(_) | State::Leaving, Message::Succeeded) => {
                self.actions.push_back(GiverAction::EndFormer);
                Ok(())
            }
            (State::Probation(_) | State::Leaving, Message::EndRemaining) => {
                if matches!(self.state, State::Probation(_)) {
                    self.finish();
                }
                self.actions.push_back(GiverAction::EndRemaining);
                Ok(())
            }
            (
                State::Probation(_) | State::Leaving,
                Message::ListConnections { request, worker, slot },
            ) => {
                self.actions.push_back(GiverAction::List { request, worker, slot });
                Ok(())
            }
            // What else it says there cannot end what is done.
            (State::Probation(_) | State::Leaving, _) => Ok(()),
            (_, message) => {
                Err(Failure::OutOfTurn { phase: self.phase(), message: message.name() })
            }
        }
    }

    fn on_hello(&mut self, hello: &Hello, now: u64) -> Result<(), Failure> {
        if !hello.is_spoken() {
            let (min, max) = (hello.version_min, hello.version_max);
            return Err(Failure::Version { min, max });
        }
        let (forms_read, is_check) = match &hello.purpose {
            Purpose::Take { forms_read, is_check, .. } => (forms_read, *is_check),
            Purpose::TakeBack { forms_read, .. } => (forms_read, false),
            Purpose::Upgrade(_) | Purpose::GiveBack { .. } => {
                return Err(Failure::OutOfTurn { phase: Phase::Hello, message: "Hello" });
            }
        };
        self.reads_form = forms_read.contains(&self.offer.form);
        self.is_check = is_check;
        self.reads_resources = hello.reads_resources;
        let probation_ms = u64::try_from(self.deadlines.probation.as_millis()).unwrap_or(u64::MAX);
        self.send(&Message::Welcome(Welcome {
            version: VERSION,
            program: self.offer.program.clone(),
            form: self.offer.form,
            descriptors: self.offer.descriptors,
            generation: self.offer.generation,
            probation_ms,
            lists_connections: true,
        }));
        self.enter(State::Describing);
        self.deadline = later(now, self.deadlines.config);
        self.actions.push_back(GiverAction::Describe);
        Ok(())
    }

    fn on_unused(&mut self, sockets: Vec<UnusedSocket>) -> Result<(), Failure> {
        if self.state != State::Serving {
            return Err(Failure::OutOfTurn { phase: self.phase(), message: "Unused" });
        }
        self.unused.extend(sockets);
        if self.unused.len() > LISTENING_MAX {
            return Err(Failure::OverBound { what: "listening sockets", max: LISTENING_MAX });
        }
        Ok(())
    }

    /// Whether connections move: the taker reads the form in which they are written.
    #[must_use]
    pub const fn moves_connections(&self) -> bool {
        self.reads_form
    }

    /// Whether the taker reads what sources have delivered.
    #[must_use]
    pub const fn reads_resources(&self) -> bool {
        self.reads_resources
    }

    /// What this process is configured to do, and in which version, as [`GiverAction::Describe`] asked; and how many bytes of what
    /// sources have delivered to it there are for a taker that reads them, if there are any. That one has a second more for
    /// each MiB of them.
    pub fn describe(
        &mut self,
        (version, parts): (u64, Vec<Part>),
        resources: Option<u64>,
        now: u64,
    ) {
        if self.state != State::Describing {
            return;
        }
        self.send(&Message::ConfigVersion { version });
        // What this process took for its description is no time of the taker's.
        let mut within = self.deadlines.config;
        if let Some(bytes) = resources.filter(|_| self.reads_resources) {
            let frame = Message::Resources { bytes }.encode();
            within = within.saturating_add(Duration::from_secs(1 + (bytes >> 20)));
            self.actions.push_back(GiverAction::SendResources(frame));
        }
        self.deadline = later(now, within);
        if parts.len() > PARTS_MAX {
            return self.fail(Failure::OverBound { what: "parts", max: PARTS_MAX });
        }
        for (parts, is_last) in cut(parts, |part| part.name.len(), usize::MAX) {
            self.send(&Message::Parts { parts, is_last });
        }
        self.state = State::Config;
    }

    fn on_differences(
        &mut self,
        differences: Vec<Difference>,
        is_last: bool,
        now: u64,
    ) -> Result<(), Failure> {
        // There may be a frame without any, too.
        self.differences = self.differences.saturating_add(differences.len() + 1);
        if self.differences > DIFFERENCES_MAX {
            return Err(Failure::OverBound { what: "differences", max: DIFFERENCES_MAX });
        }
        self.actions.push_back(GiverAction::Compared(differences));
        if !is_last {
            return Ok(());
        }
        if self.is_check {
            self.state = State::Ended;
            self.actions.push_back(GiverAction::Checked);
            return Ok(());
        }
        self.enter(State::Listening);
        self.deadline = later(now, self.deadlines.listeners);
        self.actions.push_back(GiverAction::Listen);
        Ok(())
    }

    /// The listening sockets, as [`GiverAction::Listen`] asked.
    pub fn listen(&mut self, keys: Vec<SocketKey>) {
        if self.state != State::Listening {
            return;
        }
        if keys.len() > LISTENING_MAX {
            return self.fail(Failure::OverBound { what: "sockets", max: LISTENING_MAX });
        }
        let name = |key: &SocketKey| match key {
            SocketKey::Listener(name, _) => name.len(),
            SocketKey::Admin | SocketKey::Metrics | SocketKey::Handover => 0,
        };
        for (keys, is_last) in cut(keys, name, DESCRIPTORS_MAX) {
            let frame = Message::Sockets { keys: keys.clone(), is_last }.encode();
            self.actions.push_back(GiverAction::SendListening(frame, keys));
        }
        self.state = State::Serving;
    }

    /// Begins the next batch of what waits, or has the workers give more.
    fn collect(&mut self, now: u64) {
        let State::Moving(phase) = self.state else { return };
        loop {
            // What waits for others to be taken stands still.
            let bytes: u64 = self.under_way.iter().map(|batch| u64::from(batch.bytes)).sum();
            let next = self.pace.next(phase == Phase::Probe, self.under_way.len());
            let next = next.filter(|_| bytes < u64::from(BATCH_BYTES_MAX));
            let Some(collect) = next else { return };
            if self.waiting.is_empty() {
                if !self.is_collecting && self.again_at.is_none() {
                    self.is_collecting = true;
                    self.actions.push_back(GiverAction::Collect(collect));
                }
                return;
            }
            self.begin_batch(now);
        }
    }

    /// The next groups, as [`GiverAction::Collect`] asked, which have stood still since `asked_at`. None at all says that nothing can
    /// move now; `pending` connections may be able to later. Also whether workers of this process serve others meanwhile.
    pub fn give(
        &mut self,
        groups: Vec<GivenGroup>,
        asked_at: u64,
        pending: u32,
        is_busy: bool,
        now: u64,
    ) {
        let State::Moving(phase) = self.state else { return };
        self.is_collecting = false;
        self.pace.is_giver_busy = is_busy;
        if groups.is_empty() {
            return self.on_nothing(phase, pending, now);
        }
        let is_too_large =
            |group: &GivenGroup| group.bytes > GROUP_BYTES_MAX || group.sockets > GROUP_SOCKETS_MAX;
        let (too_large, groups): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_too_large);
        for GivenGroup { group, bytes, .. } in too_large {
            let reason = format!("its group has {bytes} bytes or too many connections");
            self.actions.push_back(GiverAction::TakeBack(Refused { group, reason }));
        }
        self.waiting.extend(groups.into_iter().map(|group| (group, asked_at)));
        self.collect(now);
    }

    /// Sends groups that wait: as many as a batch may have bytes of, or one that has more.
    fn begin_batch(&mut self, now: u64) {
        let Some((first, asked_at)) = self.waiting.pop_front() else { return };
        let mut bytes = first.bytes;
        let mut groups = vec![first];
        let fits = |bytes: u32, group: &GivenGroup, at: u64| {
            at == asked_at && bytes.saturating_add(group.bytes) <= BATCH_BYTES_MAX
        };
        while let Some((group, _)) =
            self.waiting.pop_front_if(|(group, at)| fits(bytes, group, *at))
        {
            bytes += group.bytes;
            groups.push(group);
        }
        let number = self.batch_next;
        self.batch_next = self.batch_next.wrapping_add(1);
        let within = self.deadlines.batch.saturating_add(extra_time(bytes.into()));
        let deadline = later(now, within);
        let ids = groups.iter().map(|group| group.group).collect();
        let batch = Batch { number, groups: ids, bytes, asked_at, within, deadline };
        self.under_way.push_back(batch);
        let count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        let frames = pieces::of_groups(number, &groups, self.reads_packs);
        self.actions.extend(frames.into_iter().map(GiverAction::from));
        self.send(&Message::BatchEnd { batch: number, groups: count });
    }

    fn on_nothing(&mut self, phase: Phase, pending: u32, now: u64) {
        if !self.under_way.is_empty() {
            // What is refused comes back, and is no reason to begin anew.
            return;
        }
        let remaining_until = self.remaining_until.min(self.remaining_until(now));
        match phase {
            Phase::Probe => {
                self.begin_connections(now);
                self.collect(now);
            }
            _ if pending > 0 && now < remaining_until => {
                self.enter(State::Moving(Phase::Remaining));
                self.remaining_until = remaining_until;
                self.again_at = Some(later(now, REMAINING_INTERVAL));
            }
            _ => {
                self.enter(State::Summarizing);
                self.deadline = later(now, self.deadlines.commit);
                self.actions.push_back(GiverAction::Summarize);
            }
        }
    }

    /// Until when connections are waited for that cannot move yet: a client that stays in its handshake is no reason to fail.
    fn remaining_until(&self, now: u64) -> u64 {
        let commit = self.deadlines.commit.min(self.deadlines.total / 2);
        let commit = u64::try_from(commit.as_nanos()).unwrap_or(u64::MAX);
        later(now, self.deadlines.remaining).min(self.total_at.saturating_sub(commit))
    }

    /// Whether the deadline of the whole attempt counts: COMMIT has its own.
    const fn is_before_commit(&self) -> bool {
        !matches!(
            self.state,
            State::Summarizing
                | State::Committing
                | State::Probation(_)
                | State::Leaving
                | State::Ended
        )
    }

    fn begin_connections(&mut self, now: u64) {
        self.enter(State::Moving(Phase::Connections));
        self.pace.begin(self.deadlines.total, now);
    }

    fn on_taken(&mut self, batch: u32, refused: Vec<Refused>, now: u64) -> Result<(), Failure> {
        let out_of_turn = Failure::OutOfTurn { phase: self.phase(), message: "Taken" };
        let Some(taken) = self.under_way.pop_front().filter(|first| first.number == batch) else {
            return Err(out_of_turn);
        };
        let mut left = taken.groups;
        for refused in refused {
            let Some(place) = left.iter().position(|group| *group == refused.group) else {
                return Err(out_of_turn);
            };
            left.swap_remove(place);
            self.actions.push_back(GiverAction::TakeBack(refused));
        }
        let groups = u32::try_from(left.len()).unwrap_or(u32::MAX);
        self.actions.push_back(GiverAction::Taken { groups, asked_at: taken.asked_at });
        if self.state == State::Moving(Phase::Probe) {
            self.begin_connections(now);
        }
        self.pace.on_taken(now);
        // Each batch has its time from when those before it were acknowledged.
        for batch in &mut self.under_way {
            batch.deadline = later(now, batch.within);
        }
        self.collect(now);
        Ok(())
    }

    /// What the process knows, by topic, as [`GiverAction::Inform`] asked.
    pub fn inform(&mut self, states: &[(String, Wiped)]) {
        // One that is too large ends the handover at its commit.
        if matches!(self.state, State::Moving(_)) {
            self.send_states(states.iter().filter(is_read));
        }
    }

    /// What the process knows, by topic, as [`GiverAction::Summarize`] asked.
    pub fn commit(&mut self, states: &[(String, Wiped)], now: u64) {
        if self.state != State::Summarizing {
            return;
        }
        if !states.iter().all(|state| is_read(&state)) {
            let max = STATE_BYTES_MAX as usize;
            return self.fail(Failure::OverBound { what: "bytes of state", max });
        }
        self.send_states(states);
        self.send(&Message::Commit);
        self.state = State::Committing;
        // It sends nothing while it becomes the process. That it did not before counts.
        let within = self.deadlines.commit.saturating_sub(self.silence.so_far());
        let bytes = states.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        self.deadline = later(now, within.saturating_add(extra_time(bytes)));
    }

    /// Newer values of what the process knows, while this process still has connections. What the taker would not read is left out.
    pub fn update(&mut self, states: &[(String, Wiped)]) {
        if matches!(self.state, State::Probation(_) | State::Leaving) {
            self.send_states(states.iter().filter(is_read));
        }
    }

    /// Connections that this process still has, as [`GiverAction::List`] asked.
    pub fn list(&mut self, listed: ListedConnections) {
        if matches!(self.state, State::Probation(_) | State::Leaving) {
            self.send(&Message::Connections(listed));
        }
    }

    fn send_states<'s>(&mut self, states: impl IntoIterator<Item = &'s (String, Wiped)>) {
        for (topic, bytes) in states {
            let bytes_total = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let mut rest = bytes.as_slice();
            loop {
                let (piece, behind) = rest.split_at(rest.len().min(PIECE_BYTES_MAX));
                let (topic, bytes) = (topic.clone(), piece.to_vec().into());
                self.send(&Message::State(StatePiece { topic, bytes_total, bytes }));
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }

    /// Whether the taker is to hear now that this process is there, for a caller that is kept from calling [`Self::on_time`].
    pub fn is_alive_due(&mut self, now: u64) -> bool {
        let is_due = matches!(self.state, State::Moving(_)) && self.alive_at <= now;
        if is_due {
            self.alive_at = later(now, ALIVE_INTERVAL);
        }
        is_due
    }

    /// Whether the whole attempt has taken too long.
    #[must_use]
    pub const fn is_late(&self, now: u64) -> bool {
        self.is_before_commit() && self.total_at <= now
    }

    /// The connection to the other process is over.
    pub fn on_closed(&mut self) {
        match self.state {
            State::Ended => {}
            State::Leaving => self.state = State::Ended,
            State::Probation(_) => {
                self.state = State::Ended;
                self.actions.push_back(GiverAction::AcceptAgain);
            }
            _ => {
                let why = self.why_taker_ends.take().map(Failure::GaveUp);
                let failure = why.unwrap_or_else(|| Failure::Closed(self.phase()));
                let peer = if self.has_given() { PeerLife::Closed } else { PeerLife::Over };
                self.roll_back(failure, peer);
            }
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: u64) {
        if matches!(self.state, State::Leaving | State::Ended) {
            return;
        }
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            self.collect(now);
        }
        if self.pace.on_time(now) {
            self.collect(now);
        }
        let is_silent = self.silence.on_time(now);
        let is_late = self.under_way.iter().any(|batch| batch.deadline <= now)
            || is_silent && matches!(self.state, State::Moving(_));
        match self.state {
            // Where this process was stopped itself meanwhile, it looks first whether the other one runs.
            State::Probation(_) if self.deadline <= now && !self.silence.is_in_doubt() => {
                self.finish();
            }
            // It may be gone for good, or run again: as long as it does neither, this process does not end.
            State::Probation(Standby::Waiting) if is_silent => {
                self.state = State::Probation(Standby::TakerGivenUp);
                self.actions.push_back(GiverAction::EndSilent);
            }
            State::Probation(Standby::TakerGivenUp) if is_silent => {
                self.state = State::Probation(Standby::StandingIn);
                self.actions.push_back(GiverAction::StandIn);
            }
            State::Probation(_) => {}
            _ if self.deadline <= now || is_late => self.fail(Failure::Silent(self.phase())),
            _ if self.is_late(now) => self.fail(Failure::Late(self.phase())),
            State::Moving(_) => {
                if self.is_alive_due(now) {
                    self.send(&Message::Alive);
                }
                if self.inform_at <= now && self.unheard < UNHEARD_MAX {
                    self.unheard += 1;
                    self.actions.push_back(GiverAction::Inform { is_first: false });
                    self.inform_at = later(now, INFORM_INTERVAL);
                }
            }
            _ => {}
        }
    }

    /// Probation is over, and the service manager has heard that the taker is the main process of the service.
    pub fn main_process(&mut self) {
        if self.state == State::Leaving {
            self.send(&Message::MainProcess);
        }
    }

    fn finish(&mut self) {
        self.state = State::Leaving;
        self.actions.push_back(GiverAction::Enter(Phase::Done));
        self.actions.push_back(GiverAction::Finish);
    }

    /// This side cannot go on: the attempt is over.
    pub fn fail(&mut self, failure: Failure) {
        if matches!(self.state, State::Ended | State::Probation(_) | State::Leaving) {
            return;
        }
        self.drop_unsent();
        self.send(&Message::GiveUp { reason: shortened(failure.to_string()) });
        let peer = if self.has_given() { PeerLife::InDoubt } else { PeerLife::Over };
        self.roll_back(failure, peer);
    }

    /// Whether the other process has sockets of this one.
    const fn has_given(&self) -> bool {
        matches!(
            self.state,
            State::Serving | State::Moving(_) | State::Summarizing | State::Committing
        )
    }

    /// What was not sent yet is not: a process that does not read would have each frame wait.
    fn drop_unsent(&mut self) {
        self.actions.retain(|action| !action.is_frame());
    }

    fn roll_back(&mut self, failure: Failure, peer: PeerLife) {
        self.state = State::Ended;
        self.under_way.clear();
        self.waiting.clear();
        self.actions.push_back(GiverAction::RollBack { failure, peer });
    }

    fn enter(&mut self, state: State) {
        let before = self.phase();
        self.state = state;
        if self.phase() != before {
            self.actions.push_back(GiverAction::Enter(self.phase()));
        }
    }

    fn send(&mut self, message: &Message) {
        self.actions.push_back(GiverAction::Send(message.encode()));
    }
}
