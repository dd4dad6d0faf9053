//! How many connections are collected at a time, and when: a few, after pauses, while workers of either process also serve
//! connections that do not move.

use std::time::Duration;

use crate::deadlines::later;
use crate::{BATCH_GROUPS_MAX, BATCHES_MAX, PACED_GROUPS_MAX, PROBE_GROUPS_MAX};

/// Between a batch and the next, in which both processes leave the processors to what is served and to its clients: some three times
/// as long as a batch of this size takes.
const PACE_INTERVAL: Duration = Duration::from_micros(500);

/// How long batches may be paced: 90,000 connections of a worker take about as long. A quarter of the whole deadline, where that is less.
const PACED_TIME_MAX: Duration = Duration::from_secs(5);

/// What to take out of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collect {
    /// Groups, at most.
    pub groups_max: u32,
    /// The same, of one worker.
    pub of_worker_max: u32,
    /// Whether workers may give what the next batch takes, too.
    pub is_ahead: bool,
    /// Whether to take only connections that carry nothing.
    pub is_probe: bool,
}

/// Whether batches are paced.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Whether this process's workers serve others, as they said last.
    pub(crate) is_giver_busy: bool,
    /// Whether the taker's do, as it said of the last batch.
    pub(crate) is_taker_busy: bool,
    is_on: bool,
    /// Until when it may be, once connections move.
    until: Option<u64>,
    /// When the next batch is collected.
    rests_until: Option<u64>,
}

impl Pace {
    /// Connections move from now on. `total`: how long the handover may take.
    pub(crate) fn begin(&mut self, total: Duration, now: u64) {
        self.until = Some(later(now, PACED_TIME_MAX.min(total / 4)));
    }

    /// The taker has a batch.
    pub(crate) fn on_taken(&mut self, now: u64) {
        let is_taker_busy = std::mem::take(&mut self.is_taker_busy);
        let is_in_time = self.until.is_some_and(|until| now < until);
        self.is_on = is_in_time && (is_taker_busy || self.is_giver_busy);
        self.rests_until = self.is_on.then(|| later(now, PACE_INTERVAL));
    }

    /// When a pause is over, if there is one.
    pub(crate) const fn rests_until(&self) -> Option<u64> {
        self.rests_until
    }

    /// Ends a pause that is over, and says whether it was.
    pub(crate) fn on_time(&mut self, now: u64) -> bool {
        self.rests_until.take_if(|until| *until <= now).is_some()
    }

    /// What to collect next, where so many batches are under way; none as long as these are enough.
    pub(crate) fn next(&self, is_probe: bool, under_way: usize) -> Option<Collect> {
        let is_ahead = !is_probe && !self.is_on;
        let batches_max = if is_ahead { BATCHES_MAX } else { 1 };
        if self.rests_until.is_some() || under_way >= batches_max {
            return None;
        }
        let groups_max = if is_probe { PROBE_GROUPS_MAX } else { BATCH_GROUPS_MAX };
        let of_worker_max = if self.is_on { PACED_GROUPS_MAX } else { groups_max };
        Some(Collect { groups_max, of_worker_max, is_ahead, is_probe })
    }
}
