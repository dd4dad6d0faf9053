//! The side that has the sockets.
//!
//! ```text
//!  Hello ─► Describing ─► Config ─► Listening ─► Serving ─► Moving (probe, connections, remaining)
//!                                                              │ nothing is left
//!                    Leaving ◄─ Probation ◄─ Committing ◄─ Summarizing
//! ```
//!
//! From any state before `Probation` a failure leads to [`GiverAction::RollBack`], once. A taker that was asked to commit may do so
//! as long as it lives: unless it can be ended, the probation begins, in which this process stands in for it. In `Leaving` this
//! process ends what it still has, and hears from its taker whether others wait for that.

mod action;
mod ending;
mod moving;
mod opening;

use std::mem;
use std::time::Duration;

use wiped::Wiped;

use self::action::Actions;
pub use self::action::{GiverAction, PeerLife};
pub use self::moving::Collected;
use self::moving::{Moving, Next};
use crate::deadlines::{Deadlines, Phase, extra_time, later};
use crate::failure::Failure;
use crate::message::{
    Hello, ListedConnections, Message, Purpose, StatePiece, UnusedSocket, VERSION, Welcome,
};
use crate::silence::Silence;
use crate::topics::{Topics, pieces};
use crate::{LISTENING_MAX, STATE_BYTES_MAX};

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
    /// How long a TLS handshake may take that began before.
    handshakes: Duration,
    state: State,
    /// When the state is over unless something comes.
    deadline: u64,
    /// When the attempt is over unless COMMIT was reached.
    total_at: u64,
    is_check: bool,
    /// How long the taker waits for this process from `Serving` on while that says that it is there; none if it does not.
    patience: Option<Duration>,
    reads: Reads,
    /// What the taker has said of its end, before that.
    why_taker_ends: Option<String>,
    why_given_back: Option<String>,
    silence: Silence,
    /// How long the taker may take once it is asked to commit.
    commit_within: Duration,
    /// Until when `Alive` gives it more.
    commit_until: u64,
    /// Whether the probation began though the taker has not said yet that it is the process.
    awaits_committed: bool,
    /// What the taker says of what it knows itself, and the topics that are heard.
    taker_states: Topics,
    learns: &'static [&'static str],
    actions: Actions,
}

/// What the taker reads that earlier versions do not.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    /// Several groups in a frame.
    packs: bool,
    /// Connections as they are written here. Otherwise all of them stay, and drain.
    form: bool,
    /// What sources have delivered.
    resources: bool,
}

#[derive(Debug)]
enum State {
    Hello,
    /// Waits for the caller's description.
    Describing,
    Config {
        /// Those that the taker has said so far, and the frames that say so.
        differences: usize,
    },
    /// Waits for the caller's list of sockets.
    Listening,
    Serving {
        /// Sockets that the taker does not use.
        unused: Vec<UnusedSocket>,
    },
    Moving(Box<Moving>),
    /// Waits for the caller's summary.
    Summarizing,
    Committing,
    /// The taker may commit, or have done so, and is to be ended.
    InDoubt,
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
        let mut actions = Actions::default();
        actions.push(GiverAction::Enter(Phase::Hello));
        Self {
            offer: Offer { program: program.to_owned(), form, descriptors, generation },
            deadlines,
            handshakes: Duration::ZERO,
            state: State::Hello,
            deadline: later(now, deadlines.hello),
            total_at: later(now, deadlines.total),
            is_check: false,
            patience: None,
            reads: Reads::default(),
            why_taker_ends: None,
            why_given_back: None,
            silence: Silence::default(),
            commit_within: Duration::ZERO,
            commit_until: 0,
            awaits_committed: false,
            taker_states: Topics::default(),
            learns: &[],
            actions,
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<GiverAction> {
        self.actions.poll()
    }

    /// How far it is.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match &self.state {
            State::Hello => Phase::Hello,
            State::Describing | State::Config { .. } => Phase::Config,
            State::Listening | State::Serving { .. } => Phase::Listeners,
            State::Moving(moving) => moving.phase(),
            State::Summarizing | State::Committing | State::InDoubt => Phase::Commit,
            State::Probation(_) => Phase::Probation,
            State::Leaving | State::Ended => Phase::Done,
        }
    }

    /// Why the taker, which has become the process, gives everything back at once, if it does.
    #[must_use]
    pub fn why_given_back(&self) -> Option<&str> {
        self.why_given_back.as_deref()
    }

    /// Whether nothing comes of it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Ended) && self.actions.is_empty()
    }

    /// Whether this process ends what it still has.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving)
    }

    /// When [`Giver::on_time`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        if matches!(self.state, State::InDoubt | State::Leaving | State::Ended) {
            return None;
        }
        let total = self.is_before_commit().then_some(self.total_at);
        let moving = match &self.state {
            State::Moving(moving) => Some(moving.next_deadline()),
            _ => None,
        };
        // As long as the other process may be stopped, a probation that is over does not end: there are looks at it alone.
        let waits = match self.state {
            State::Probation(Standby::StandingIn) => true,
            State::Probation(_) => self.silence.is_in_doubt(),
            _ => false,
        };
        let deadline = (!waits).then_some(self.deadline);
        [deadline, total, moving, self.silence.next_look()].into_iter().flatten().min()
    }

    /// A frame came, with so many descriptors.
    pub fn on_frame(&mut self, frame: &[u8], descriptors: usize, now: u64) {
        if matches!(self.state, State::InDoubt | State::Ended) {
            return;
        }
        self.silence.on_frame();
        if let State::Moving(moving) = &mut self.state {
            moving.on_frame();
        }
        // One that has not committed yet is not the process, whatever else it says.
        if let State::Probation(standby) = &mut self.state
            && !self.awaits_committed
            && mem::replace(standby, Standby::Waiting) == Standby::StandingIn
        {
            self.actions.push(GiverAction::StandBack);
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
                match &mut self.state {
                    State::Moving(moving) => moving.on_alive(now),
                    State::Committing => {
                        let until = later(now, self.deadlines.commit).min(self.commit_until);
                        self.deadline = self.deadline.max(until);
                    }
                    _ => {}
                }
                Ok(())
            }
            Ok(Some(Message::IsPatient { ms })) => {
                self.patience = Some(ms.map_or(Duration::MAX, Duration::from_millis));
                Ok(())
            }
            Ok(Some(Message::ReadsPacks)) => {
                self.reads.packs = true;
                Ok(())
            }
            Ok(Some(Message::Ends { reason })) => {
                self.why_taker_ends = Some(reason);
                Ok(())
            }
            Ok(Some(Message::GivesBack { reason })) => {
                self.why_given_back = Some(reason);
                Ok(())
            }
            Ok(Some(Message::TakerState(piece))) => {
                self.on_taker_state(piece);
                Ok(())
            }
            Ok(Some(Message::Busy)) => {
                if let State::Moving(moving) = &mut self.state {
                    moving.on_busy();
                }
                Ok(())
            }
            Ok(Some(Message::GiveUp { reason }))
                if !matches!(self.state, State::Probation(_) | State::Leaving) =>
            {
                self.actions.drop_unsent();
                return self.roll_back(Failure::GaveUp(reason), PeerLife::Over);
            }
            Ok(Some(message)) => self.on_message(message, now),
        };
        if let Err(failure) = result {
            self.fail(failure);
        }
    }

    fn on_message(&mut self, message: Message, now: u64) -> Result<(), Failure> {
        match (&mut self.state, message) {
            (State::Hello, Message::Hello(hello)) => self.on_hello(&hello, now),
            (State::Config { .. }, Message::Differences { differences, is_last }) => {
                self.on_differences(differences, is_last, now)
            }
            (State::Serving { unused }, Message::Unused { sockets }) => {
                unused.extend(sockets);
                if unused.len() > LISTENING_MAX {
                    let what = "listening sockets";
                    return Err(Failure::OverBound { what, max: LISTENING_MAX });
                }
                Ok(())
            }
            (State::Serving { unused }, Message::Serving) => {
                let but = mem::take(unused);
                self.on_serving(but, now);
                Ok(())
            }
            (State::Moving(moving), Message::Taken { batch, refused }) => {
                moving.on_taken(batch, refused, now, &mut self.actions)
            }
            (State::Committing, Message::Committed) => {
                self.begin_probation(Standby::Waiting, now);
                Ok(())
            }
            (State::Probation(_), Message::Committed) if self.awaits_committed => {
                self.awaits_committed = false;
                self.state = State::Probation(Standby::Waiting);
                self.actions.push(GiverAction::StandBack);
                self.deadline = later(now, self.deadlines.probation);
                Ok(())
            }
            // It ends as it should, or has handed over in its turn: there is nothing to stand in for.
            (State::Probation(_), Message::Committed) => {
                self.finish();
                Ok(())
            }
            (State::Probation(_), Message::TakeBack { reason }) => {
                self.actions.push(GiverAction::BecomeTaker(reason));
                Ok(())
            }
            (State::Probation(_) | State::Leaving, Message::Succeeded) => {
                self.actions.push(GiverAction::EndFormer);
                Ok(())
            }
            (State::Probation(_) | State::Leaving, Message::EndRemaining) => {
                if matches!(self.state, State::Probation(_)) {
                    self.finish();
                }
                self.actions.push(GiverAction::EndRemaining);
                Ok(())
            }
            (
                State::Probation(_) | State::Leaving,
                Message::ListConnections { request, worker, slot },
            ) => {
                self.actions.push(GiverAction::List { request, worker, slot });
                Ok(())
            }
            // What else it says there cannot end what is done.
            (State::Probation(_) | State::Leaving, _) => Ok(()),
            (_, message) => {
                Err(Failure::OutOfTurn { phase: self.phase(), message: message.name() })
            }
        }
    }

    /// The taker says what it knows. What cannot be read of that is not worth the handover.
    fn on_taker_state(&mut self, piece: StatePiece) {
        let is_heard = self.has_given() || matches!(self.state, State::Probation(_));
        if !is_heard || !self.learns.contains(&&*piece.topic) {
            return;
        }
        let topic = piece.topic.clone();
        match self.taker_states.on_piece(piece, self.phase()) {
            Ok(Some((topic, bytes))) => self.actions.push(GiverAction::Learned { topic, bytes }),
            Ok(None) => {}
            Err(_) => self.taker_states.forget(&topic),
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
        self.reads.form = forms_read.contains(&self.offer.form);
        self.reads.resources = hello.reads_resources;
        self.is_check = is_check;
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
        self.actions.push(GiverAction::Describe);
        Ok(())
    }

    fn on_serving(&mut self, but: Vec<UnusedSocket>, now: u64) {
        // The taker accepts once it knows which endpoints get no requests.
        self.actions.push(GiverAction::Inform { is_first: true });
        self.actions.push(GiverAction::StopAccepting { but });
        self.actions.push(GiverAction::Inform { is_first: false });
        if self.reads.form {
            let mut total_at = self.total_at;
            if let Some(patience) = self.patience {
                self.deadlines.remaining = self.deadlines.remaining.max(self.handshakes);
                total_at = total_at.min(later(now, patience));
            }
            let mut moving = Moving::new(self.deadlines, total_at, self.reads.packs, now);
            self.actions.push(GiverAction::Enter(moving.phase()));
            moving.collect(now, &mut self.actions);
            self.state = State::Moving(Box::new(moving));
            self.deadline = u64::MAX;
        } else {
            self.actions.push(GiverAction::Enter(Phase::Connections));
            self.summarize(now);
        }
    }

    /// These topics of what the taker knows itself are for [`GiverAction::Learned`]; all others are not kept.
    pub const fn learn(&mut self, topics: &'static [&'static str]) {
        self.learns = topics;
    }

    /// Whether connections move: the taker reads the form in which they are written.
    #[must_use]
    pub const fn moves_connections(&self) -> bool {
        self.reads.form
    }

    /// Whether the taker reads what sources have delivered.
    #[must_use]
    pub const fn reads_resources(&self) -> bool {
        self.reads.resources
    }

    /// The next groups, as [`GiverAction::Collect`] asked.
    pub fn give(&mut self, collected: Collected, now: u64) {
        let State::Moving(moving) = &mut self.state else { return };
        match moving.give(collected, now, &mut self.actions) {
            Next::Moving => {}
            Next::Commit => self.summarize(now),
        }
    }

    /// No connection moves any more.
    fn summarize(&mut self, now: u64) {
        self.enter(State::Summarizing);
        self.deadline = later(now, self.deadlines.commit);
        self.actions.push(GiverAction::Summarize);
    }

    /// Whether the deadline of the whole attempt counts: COMMIT has its own.
    const fn is_before_commit(&self) -> bool {
        !matches!(
            self.state,
            State::Summarizing
                | State::Committing
                | State::InDoubt
                | State::Probation(_)
                | State::Leaving
                | State::Ended
        )
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
        if !matches!(self.state, State::Summarizing) {
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
        self.commit_within = within.saturating_add(extra_time(bytes));
        self.deadline = later(now, self.commit_within);
        self.commit_until = later(now, self.deadlines.total.max(self.commit_within));
    }

    /// A frame was sent. If it was COMMIT, the taker has its time from then on: this process may have been stopped before.
    pub fn on_sent(&mut self, now: u64) {
        if matches!(self.state, State::Committing) && !self.actions.have_frame() {
            self.deadline = later(now, self.commit_within);
        }
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
        for (topic, value) in states {
            pieces(topic, value).for_each(|piece| self.send(&Message::State(piece)));
        }
    }

    /// Whether the taker is to hear now that this process is there, for a caller that is kept from calling [`Self::on_time`].
    pub fn is_alive_due(&mut self, now: u64) -> bool {
        match &mut self.state {
            State::Moving(moving) => moving.is_alive_due(now),
            _ => false,
        }
    }

    /// Whether the whole attempt has taken too long, or the taker to read what it has to before it commits.
    #[must_use]
    pub const fn is_late(&self, now: u64) -> bool {
        if self.is_before_commit() {
            return self.total_at <= now;
        }
        matches!(self.state, State::Committing) && self.deadline <= now
    }

    /// This process was stopped for so long, ns, while it waited. That is no time of the taker's, which may have been stopped as well, and
    /// none of the handover's. A probation goes by the clock.
    pub fn was_stopped(&mut self, nanos: u64) {
        if matches!(self.state, State::Probation(_) | State::Leaving | State::Ended) {
            return;
        }
        self.deadline = self.deadline.saturating_add(nanos);
        self.total_at = self.total_at.saturating_add(nanos);
        self.commit_until = self.commit_until.saturating_add(nanos);
        if let State::Moving(moving) = &mut self.state {
            moving.was_stopped(nanos);
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: u64) {
        if matches!(self.state, State::InDoubt | State::Leaving | State::Ended) {
            return;
        }
        let is_silent = self.silence.on_time(now);
        let is_taker_late = match &self.state {
            State::Moving(moving) => is_silent || moving.is_late(now),
            _ => self.deadline <= now,
        };
        let is_late = self.is_late(now);
        match &mut self.state {
            // Where this process was stopped itself meanwhile, it looks first whether the other one runs.
            State::Probation(Standby::Waiting | Standby::TakerGivenUp)
                if self.deadline <= now && !self.silence.is_in_doubt() =>
            {
                self.finish();
            }
            // It may be gone for good, or run again: as long as it does neither, this process does not end.
            State::Probation(Standby::Waiting) if is_silent => {
                self.state = State::Probation(Standby::TakerGivenUp);
                self.actions.push(GiverAction::EndSilent);
            }
            State::Probation(Standby::TakerGivenUp) if is_silent => {
                self.state = State::Probation(Standby::StandingIn);
                self.actions.push(GiverAction::StandIn);
            }
            State::Probation(_) => {}
            _ if is_taker_late => self.fail(Failure::Silent(self.phase())),
            _ if is_late => self.fail(Failure::Late(self.phase())),
            State::Moving(moving) => moving.on_time(now, &mut self.actions),
            _ => {}
        }
    }

    fn enter(&mut self, state: State) {
        let before = self.phase();
        self.state = state;
        if self.phase() != before {
            self.actions.push(GiverAction::Enter(self.phase()));
        }
    }

    fn send(&mut self, message: &Message) {
        self.actions.send(message);
    }
}
