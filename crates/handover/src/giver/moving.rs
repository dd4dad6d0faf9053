//! Groups that move, in batches, and what the taker hears meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use super::action::{Actions, GiverAction};
use crate::deadlines::{Deadlines, Phase, extra_time, later};
use crate::failure::Failure;
use crate::message::{Message, Refused};
use crate::pace::Pace;
use crate::pieces::{self, GivenGroup};
use crate::silence::ALIVE_INTERVAL;
use crate::{BATCH_BYTES_MAX, GROUP_BYTES_MAX, GROUP_SOCKETS_MAX};

/// Between two attempts to move what could not move before.
const REMAINING_INTERVAL: Duration = Duration::from_millis(20);

/// How old what the taker knows of this process's counts may be where this one ends all of a sudden.
const INFORM_INTERVAL: Duration = Duration::from_millis(100);

/// How often the taker hears that without a word from it: one that stands still reads nothing, and this process must not wait for
/// it.
const UNHEARD_MAX: u32 = 3;

/// What workers gave, as [`GiverAction::Collect`] asked. No group at all says that nothing can move now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The groups.
    pub groups: Vec<GivenGroup>,
    /// Since when they have stood still.
    pub asked_at: u64,
    /// Connections that cannot move now and may be able to later.
    pub pending: u32,
    /// Whether workers of this process serve others meanwhile.
    pub is_busy: bool,
}

/// What comes after something has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Next {
    Moving,
    /// Nothing is left that can move.
    Commit,
}

/// The state of a giver whose connections move.
#[derive(Debug)]
pub(super) struct Moving {
    phase: Phase,
    deadlines: Deadlines,
    /// When COMMIT comes at the latest.
    commit_at: u64,
    /// Until when connections that cannot move yet are waited for, once there are some.
    remaining_until: Option<u64>,
    batches: Batches,
    is_collecting: bool,
    /// When to try again to move what could not.
    again_at: Option<u64>,
    pace: Pace,
    heartbeat: Heartbeat,
}

impl Moving {
    /// `total_at`: when the attempt is over. `reads_packs`: whether the taker reads several groups in a frame.
    pub(super) fn new(deadlines: Deadlines, total_at: u64, reads_packs: bool, now: u64) -> Self {
        let commit = deadlines.commit.min(deadlines.total / 2);
        let commit = u64::try_from(commit.as_nanos()).unwrap_or(u64::MAX);
        Self {
            phase: Phase::Probe,
            deadlines,
            commit_at: total_at.saturating_sub(commit),
            remaining_until: None,
            batches: Batches { reads_packs, within: deadlines.batch, ..Batches::default() },
            is_collecting: false,
            again_at: None,
            pace: Pace::default(),
            heartbeat: Heartbeat::new(now),
        }
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins the next batch of what waits, or has the workers give more.
    pub(super) fn collect(&mut self, now: u64, actions: &mut Actions) {
        loop {
            let next = self.pace.next(self.phase == Phase::Probe, self.batches.under_way.len());
            let next = next.filter(|_| self.batches.have_room());
            let Some(collect) = next else { return };
            if self.batches.waiting.is_empty() {
                if !self.is_collecting && self.again_at.is_none() {
                    self.is_collecting = true;
                    actions.push(GiverAction::Collect(collect));
                }
                return;
            }
            self.batches.begin(now, actions);
        }
    }

    pub(super) fn give(&mut self, collected: Collected, now: u64, actions: &mut Actions) -> Next {
        let Collected { groups, asked_at, pending, is_busy } = collected;
        self.is_collecting = false;
        self.pace.is_giver_busy = is_busy;
        if groups.is_empty() {
            return self.on_nothing(pending, now, actions);
        }
        let is_too_large =
            |group: &GivenGroup| group.bytes > GROUP_BYTES_MAX || group.sockets > GROUP_SOCKETS_MAX;
        let (too_large, groups): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_too_large);
        for GivenGroup { group, bytes, .. } in too_large {
            let reason = format!("its group has {bytes} bytes or too many connections");
            actions.push(GiverAction::TakeBack(Refused { group, reason }));
        }
        self.batches.waiting.extend(groups.into_iter().map(|group| (group, asked_at)));
        self.collect(now, actions);
        Next::Moving
    }

    fn on_nothing(&mut self, pending: u32, now: u64, actions: &mut Actions) -> Next {
        if !self.batches.under_way.is_empty() {
            // What is refused comes back, and is no reason to begin anew.
            return Next::Moving;
        }
        // A client that stays in its handshake is no reason to fail.
        let until = || later(now, self.deadlines.remaining).min(self.commit_at);
        let remaining_until = self.remaining_until.unwrap_or_else(until);
        if self.phase == Phase::Probe {
            self.begin_connections(now, actions);
            self.collect(now, actions);
        } else if pending > 0 && now < remaining_until {
            self.enter(Phase::Remaining, actions);
            self.remaining_until = Some(remaining_until);
            self.again_at = Some(later(now, REMAINING_INTERVAL));
        } else {
            return Next::Commit;
        }
        Next::Moving
    }

    fn begin_connections(&mut self, now: u64, actions: &mut Actions) {
        self.enter(Phase::Connections, actions);
        self.pace.begin(self.deadlines.total, now);
    }

    fn enter(&mut self, phase: Phase, actions: &mut Actions) {
        if self.phase != phase {
            self.phase = phase;
            actions.push(GiverAction::Enter(phase));
        }
    }

    /// The taker has a batch, but for some groups.
    pub(super) fn on_taken(
        &mut self,
        batch: u32,
        refused: Vec<Refused>,
        now: u64,
        actions: &mut Actions,
    ) -> Result<(), Failure> {
        let out_of_turn = Failure::OutOfTurn { phase: self.phase, message: "Taken" };
        let Some(taken) = self.batches.next_taken(batch, now) else { return Err(out_of_turn) };
        let mut left = taken.groups;
        for refused in refused {
            let Some(place) = left.iter().position(|group| *group == refused.group) else {
                return Err(out_of_turn);
            };
            left.swap_remove(place);
            actions.push(GiverAction::TakeBack(refused));
        }
        let groups = u32::try_from(left.len()).unwrap_or(u32::MAX);
        actions.push(GiverAction::Taken { groups, asked_at: taken.asked_at });
        if self.phase == Phase::Probe {
            self.begin_connections(now, actions);
        }
        self.pace.on_taken(now);
        self.collect(now, actions);
        Ok(())
    }

    /// The taker's workers serve others, as it says before it acknowledges a batch.
    pub(super) const fn on_busy(&mut self) {
        self.pace.is_taker_busy = true;
    }

    /// Some frame came from the taker.
    pub(super) const fn on_frame(&mut self) {
        self.heartbeat.unheard = 0;
    }

    /// The taker is at work on what it was sent: a large group takes seconds where other processes need the processors, or few
    /// are to be had.
    pub(super) fn on_alive(&mut self, now: u64) {
        let until = later(now, self.deadlines.batch);
        for batch in &mut self.batches.under_way {
            batch.deadline = batch.deadline.max(until);
        }
    }

    /// Whether a batch has taken too long.
    pub(super) fn is_late(&self, now: u64) -> bool {
        self.batches.under_way.iter().any(|batch| batch.deadline <= now)
    }

    /// See [`Giver::was_stopped`](super::Giver::was_stopped).
    pub(super) fn was_stopped(&mut self, nanos: u64) {
        let batches = self.batches.under_way.iter_mut().map(|batch| &mut batch.deadline);
        let moments = batches.chain([&mut self.commit_at]).chain(&mut self.remaining_until);
        moments.for_each(|at| *at = at.saturating_add(nanos));
    }

    /// When something is to be done.
    pub(super) fn next_deadline(&self) -> u64 {
        let batches = self.batches.under_way.iter().map(|batch| batch.deadline);
        let looks = [self.again_at, self.pace.rests_until()].into_iter().flatten();
        batches.chain(looks).min().unwrap_or(u64::MAX).min(self.heartbeat.next())
    }

    /// Time has passed, and none of the deadlines of batches.
    pub(super) fn on_time(&mut self, now: u64, actions: &mut Actions) {
        let is_to_try = self.again_at.take_if(|at| *at <= now).is_some();
        if self.pace.on_time(now) || is_to_try {
            self.collect(now, actions);
        }
        self.heartbeat.on_time(now, actions);
    }

    /// Whether the taker is to hear now that this process is there.
    pub(super) fn is_alive_due(&mut self, now: u64) -> bool {
        self.heartbeat.is_alive_due(now)
    }
}

/// What is on its way to the taker, or about to be.
#[derive(Debug, Default)]
struct Batches {
    reads_packs: bool,
    /// How long a batch may take that is not large.
    within: Duration,
    /// Not acknowledged, oldest first.
    under_way: VecDeque<Batch>,
    /// Groups for the next batches, and when their workers were asked for them.
    waiting: VecDeque<(GivenGroup, u64)>,
    next: u32,
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

impl Batches {
    /// Whether another may be sent: what waits for others to be taken stands still.
    fn have_room(&self) -> bool {
        let bytes: u64 = self.under_way.iter().map(|batch| u64::from(batch.bytes)).sum();
        bytes < u64::from(BATCH_BYTES_MAX)
    }

    /// Sends groups that wait: as many as a batch may have bytes of, or one that has more.
    fn begin(&mut self, now: u64, actions: &mut Actions) {
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
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let within = self.within.saturating_add(extra_time(bytes.into()));
        let deadline = later(now, within);
        let ids = groups.iter().map(|group| group.group).collect();
        self.under_way.push_back(Batch { number, groups: ids, bytes, asked_at, within, deadline });
        for frame in pieces::of_groups(number, &groups, self.reads_packs) {
            actions.push(frame.into());
        }
        let count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        actions.send(&Message::BatchEnd { batch: number, groups: count });
    }

    /// The oldest is acknowledged, if it has this number.
    fn next_taken(&mut self, number: u32, now: u64) -> Option<Batch> {
        let taken = self.under_way.pop_front_if(|first| first.number == number)?;
        // Each has its time from when those before it were acknowledged.
        for batch in &mut self.under_way {
            batch.deadline = later(now, batch.within);
        }
        Some(taken)
    }
}

/// What the taker, which waits, hears while this process is at other things.
#[derive(Debug)]
struct Heartbeat {
    /// When it hears that this process is there.
    alive_at: u64,
    /// When it hears what this process knows.
    inform_at: u64,
    /// How often it heard that since it said something.
    unheard: u32,
}

impl Heartbeat {
    fn new(now: u64) -> Self {
        Self { alive_at: now, inform_at: later(now, INFORM_INTERVAL), unheard: 0 }
    }

    fn next(&self) -> u64 {
        if self.unheard < UNHEARD_MAX { self.alive_at.min(self.inform_at) } else { self.alive_at }
    }

    fn is_alive_due(&mut self, now: u64) -> bool {
        let is_due = self.alive_at <= now;
        if is_due {
            self.alive_at = later(now, ALIVE_INTERVAL);
        }
        is_due
    }

    fn on_time(&mut self, now: u64, actions: &mut Actions) {
        if self.is_alive_due(now) {
            actions.send(&Message::Alive);
        }
        if self.inform_at <= now && self.unheard < UNHEARD_MAX {
            self.unheard += 1;
            actions.push(GiverAction::Inform { is_first: false });
            self.inform_at = later(now, INFORM_INTERVAL);
        }
    }
}
