//! Connections that leave a worker and arrive at another, or at the next process, with their
//! sockets; and by which of them a worker would be relieved.

mod giving;
mod taking;

use std::time::Duration;

use proxy::save::{Held, Remains};
use proxy::time::Time;
use wiped::Pieces;

use self::giving::{LargeKeep, LargeSave};
use self::taking::{LargeRestore, grow_heap};
use crate::mailbox::{Ping, Pong, Weigh, Weighed, Work};
use crate::turn::Worker;
use crate::world::World;

/// How long a worker gives or takes connections in a turn, at least and at most: others wait meanwhile, for as long as some requests
/// take.
const MOVING_TIME_MIN: Duration = Duration::from_micros(50);
const MOVING_TIME_MAX: Duration = Duration::from_micros(200);

/// Connections or exchanges between two looks at the clock.
const STRIDE: usize = 8;

/// How long a worker counts as busy after an event of a socket, ns: as long as a few batches take to move.
const BUSY_FOR: u64 = 5_000_000;

/// Slots that are looked at for one message.
const SLOTS_MAX: u32 = 4096;

/// The messages of a turn that move connections.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    count: usize,
    /// Whether there is memory for those that arrive.
    has_grown: bool,
    /// Connections since the clock was looked at.
    unseen: usize,
}

impl Moves {
    /// One begins that has groups taken out.
    pub(crate) const fn begin_give(&mut self) {
        self.count += 1;
        self.unseen = STRIDE;
    }

    /// One begins that brings so many connections, which need memory.
    pub(crate) fn begin_take(&mut self, connections: usize) {
        if !self.has_grown {
            self.has_grown = true;
            grow_heap();
        }
        self.count += 1;
        self.unseen += connections;
    }

    /// Whether there were any.
    pub(crate) const fn have_begun(&self) -> bool {
        self.count > 0
    }

    /// Whether others have waited for them for long enough, which `is_time` says.
    pub(crate) fn are_enough(&mut self, count_max: usize, is_time: impl FnOnce() -> bool) -> bool {
        if self.count >= count_max {
            return true;
        }
        if self.unseen < STRIDE {
            return false;
        }
        self.unseen = 0;
        is_time()
    }
}

/// A saved group of connections that belong together.
#[derive(Debug)]
pub struct Moving<S> {
    /// The saved state, without the sockets.
    pub bytes: Pieces,
    /// The sockets, in the order in which [`Worker::restore`] wants them back. None for a
    /// connection that has no socket yet.
    pub sockets: Vec<Option<S>>,
    /// What they count for on their way.
    pub held: Held,
    /// See [`Saved::may_begin`](proxy::save::Saved::may_begin). So may a request whose connection has no socket.
    pub may_begin: bool,
    /// What is left of it where it was.
    pub remains: Remains,
}

/// A group of more connections than [`Settings::group_part_max`](crate::Settings::group_part_max) on its way, in parts: one for each turn. Mail waits meanwhile, so that no
/// configuration comes, no drain begins, and nothing else moves.
#[derive(Debug)]
pub(crate) enum UnderWay<S> {
    Saving(LargeSave<S>),
    Keeping(LargeKeep<S>),
    Restoring(LargeRestore<S>),
}

impl<W: World> Worker<W> {
    pub(crate) fn answer_ping(&self, ping: &Ping) {
        let pong = Pong { worker: self.mailbox.worker(), is_busy: self.is_busy() };
        // Who asked may have given up.
        let _ = ping.reply.try_send(pong);
    }

    /// Whether connections were served, or new ones accepted, a moment ago.
    fn is_busy(&self) -> bool {
        self.served_at.is_some_and(|at| self.now.nanos_since(at) < BUSY_FOR)
    }

    /// Whether a large group is being saved or restored.
    pub const fn is_moving(&self) -> bool {
        self.under_way.is_some()
    }

    /// Until when connections move in this turn, which has served others by now: for as long as that took, within bounds. Where workers are
    /// busy, what moves stands still for some times as long otherwise.
    fn moving_until(&mut self) -> Time {
        if let Some(until) = self.moving_until {
            return until;
        }
        let now = self.world.now();
        let served = Duration::from_nanos(now.nanos_since(self.now));
        let until = now + served.clamp(MOVING_TIME_MIN, MOVING_TIME_MAX);
        self.moving_until = Some(until);
        until
    }

    /// Whether others have waited for long enough in this turn.
    pub(crate) fn has_moved_enough(&mut self) -> bool {
        let until = self.moving_until();
        self.world.now() >= until
    }

    const fn is_large(&self, connections: usize) -> bool {
        connections > self.settings.group_part_max
    }

    /// How many entries go in a turn, in parts between which the clock is looked at.
    fn strides(&self) -> impl Iterator<Item = usize> + use<W> {
        let part_max = self.settings.group_part_max;
        (0..part_max).step_by(STRIDE).map(move |done| STRIDE.min(part_max - done))
    }

    /// Goes on with a large group, for a moment.
    pub(crate) fn move_on(&mut self) {
        if self.under_way.is_some() {
            self.has_moved = true;
        }
        match self.under_way.take() {
            None => {}
            Some(UnderWay::Saving(save)) => self.continue_save(save),
            Some(UnderWay::Keeping(keep)) => self.continue_keep(keep),
            Some(UnderWay::Restoring(restore)) => self.continue_restore(restore),
        }
        self.perform();
    }

    /// Says what was done for clients' connections since this was asked last.
    pub(crate) fn weigh(&mut self, weigh: &Weigh) {
        let (requests, next) = self.proxy.requests_carried(weigh.first, SLOTS_MAX);
        let work = |(connection, requests)| {
            let operations = self.sockets.take_operations(connection);
            (operations > 0).then_some(Work { connection, operations, requests })
        };
        let connections = requests.into_iter().filter_map(work).collect();
        // Who asked may have given up.
        let _ = weigh.reply.send(Weighed { connections, next });
    }
}
