//! Control's part in moving connections between workers: when they may, for whom, and what is counted.
//!
//! Workers that connections move between must have the same configuration, and be there until the end: meanwhile no
//! configuration is taken up, no handover begins and no drain. Those wait for the moves under way, and no other begins before
//! them. A move takes less than a millisecond where the workers answer; those that do not are not asked again.

use std::collections::VecDeque;

use telemetry::events::ConnectionMoved;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use config::file::Rebalance;

use super::{Handing, Running, State};
use crate::clock;
use crate::moves::{
    ASKED_MAX, ConnectionId, ConnectionWork, Moved, Mover, NotMoved, REBALANCED_MAX,
};
use crate::rebalance::{Rebalancer, Step};
use crate::storing::{StoredCounts, Storer};
use crate::workers::Workers;

/// Moves under way.
const UNDER_WAY_MAX: usize = 16;

/// Moves that wait for their turn.
const WAITING_MAX: usize = 64;

/// Between two looks at how busy workers are, ns.
const LOOK_INTERVAL: u64 = 1_000_000_000;

/// Moves that were asked for, and those that `rebalance` makes.
#[derive(Debug, Default)]
pub(super) struct Moves {
    waiting: VecDeque<Wanted>,
    pub(super) under_way: JoinSet<Ended>,
    rebalancer: Rebalancer,
    look_at: u64,
    /// What is to be done once nothing is under way.
    after: Option<AfterMoves>,
}

/// What waits for connections that are between two workers.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterMoves {
    /// Have the workers drain.
    Drain,
    /// Store connections for the next process.
    Store,
}

/// A move that the admin interface was asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    connection: ConnectionId,
    to: u32,
    reply: oneshot::Sender<Result<Moved, NotMoved>>,
}

/// What has come of something that was under way.
#[derive(Debug)]
pub(super) enum Ended {
    Wanted(Wanted, Result<Moved, NotMoved>),
    Weighed(Vec<ConnectionWork>),
    Stored(Box<dyn Storer>, Result<StoredCounts, String>),
    SetApart,
    Rebalanced {
        from: u32,
        to: u32,
        moved: Vec<ConnectionId>,
        refused: usize,
        /// With each of which too many would have had to move, those with the most work first.
        too_large: Vec<ConnectionId>,
    },
}

impl<W: Workers> Running<W> {
    /// Moves a connection to another worker as soon as it may.
    pub(super) fn move_connection(
        &mut self,
        connection: ConnectionId,
        to: u32,
        reply: oneshot::Sender<Result<Moved, NotMoved>>,
    ) {
        let last = self.workers.count().saturating_sub(1);
        let refusal = if to > last {
            Some(NotMoved::UnknownWorker { worker: to, last })
        } else if connection.worker > last {
            Some(NotMoved::UnknownConnection(connection))
        } else if connection.worker == to {
            Some(NotMoved::SameWorker(to))
        } else if self.moves.waiting.len() >= WAITING_MAX {
            Some(NotMoved::NotNow("too many other connections are moving".to_owned()))
        } else {
            None
        };
        match refusal {
            // The client may be gone; the same below.
            Some(refusal) => drop(reply.send(Err(refusal))),
            None => self.moves.waiting.push_back(Wanted { connection, to, reply }),
        }
    }

    /// Begins with moves that wait, as far as they may.
    pub(super) fn begin_moves(&mut self) {
        if self.moves.waiting.is_empty() {
            return;
        }
        if let Some(reason) = self.why_nothing_moves() {
            for wanted in self.moves.waiting.drain(..) {
                let _ = wanted.reply.send(Err(NotMoved::NotNow(reason.clone())));
            }
        }
        while self.moves.under_way.len() < UNDER_WAY_MAX
            && let Some(mover) = self.mover()
            && let Some(wanted) = self.moves.waiting.pop_front()
        {
            if !wanted.reply.is_closed() {
                self.moves.under_way.spawn_blocking(move || {
                    let result = mover.move_group(wanted.connection, wanted.to, ASKED_MAX);
                    Ended::Wanted(wanted, result)
                });
            }
        }
    }

    /// What moves connections, if some may move now.
    fn mover(&self) -> Option<W::Mover> {
        let is_free = self.begin_waits.is_none() && !self.config.builder.is_busy();
        if is_free && self.why_nothing_moves().is_none() { self.workers.mover() } else { None }
    }

    /// Why no connection may move for longer than a moment.
    fn why_nothing_moves(&self) -> Option<String> {
        match (self.state, &self.handing) {
            (State::Ready, Handing::None) => None,
            (State::Ready, Handing::Given { successor: pid, .. }) => {
                Some(format!("process {pid} has taken over"))
            }
            (
                State::Ready,
                Handing::Giving { .. } | Handing::Taking { .. } | Handing::TakingBack { .. },
            ) => Some("a handover is under way".to_owned()),
            _ => Some(format!("the process is {}", self.state_text())),
        }
    }

    /// Something that was under way is over.
    pub(super) fn on_move_ended(&mut self, ended: Ended) {
        match ended {
            Ended::Wanted(wanted, result) => {
                let is_moved = result.is_ok();
                self.collector.connection_moved(ConnectionMoved { is_rebalanced: false, is_moved });
                let _ = wanted.reply.send(result);
            }
            Ended::Stored(storer, result) => self.on_stored(storer, result),
            Ended::Weighed(work) => {
                let step = self.moves.rebalancer.on_weighed(work, clock::monotonic_ns());
                self.begin_step(step);
            }
            Ended::SetApart => {}
            Ended::Rebalanced { from, to, moved, refused, too_large } => {
                let now = clock::monotonic_ns();
                let step = self.moves.rebalancer.on_moved((from, to), &moved, &too_large, now);
                let waiting = self.moves.rebalancer.waiting();
                let refused = refused + too_large.len() - waiting;
                tracing::info!(
                    from,
                    to,
                    moved = moved.len(),
                    refused,
                    waiting,
                    "rebalanced workers"
                );
                let counts = [(true, moved.len()), (false, refused)];
                for (is_moved, count) in counts {
                    let event = ConnectionMoved { is_rebalanced: true, is_moved };
                    (0..count).for_each(|_| self.collector.connection_moved(event));
                }
                self.begin_step(step);
            }
        }
        self.do_after_moves();
        self.begin_when_read();
    }

    /// Compares how busy workers are, once a second.
    pub(super) fn rebalance(&mut self) {
        let now = clock::monotonic_ns();
        if now < self.moves.look_at {
            return;
        }
        self.moves.look_at = now.saturating_add(LOOK_INTERVAL);
        let is_wanted = self.config.snapshot.rebalance == Rebalance::Auto;
        if !is_wanted || self.why_nothing_moves().is_some() {
            return self.moves.rebalancer.reset();
        }
        let step = self.moves.rebalancer.on_second(&self.collector.busy(), now);
        self.begin_step(step);
    }

    fn begin_step(&mut self, step: Option<Step>) {
        let Some(step) = step else { return };
        // What could not begin is decided anew.
        let Some(mover) = self.mover() else { return self.moves.rebalancer.reset() };
        self.moves.under_way.spawn_blocking(move || match step {
            Step::Weigh(worker) => Ended::Weighed(mover.work(worker)),
            Step::SetApart(connections) => {
                connections.iter().for_each(|connection| mover.set_apart(*connection));
                Ended::SetApart
            }
            Step::Move(connections, to) => {
                let from = connections.first().map_or(to, |it| it.worker);
                let (mut moved, mut refused, mut too_large) = (Vec::new(), 0, Vec::new());
                for connection in &connections {
                    match mover.move_group(*connection, to, REBALANCED_MAX) {
                        Ok(it) => moved.push(it.connection),
                        Err(NotMoved::TooLarge(_)) => too_large.push(*connection),
                        Err(why) => {
                            refused += 1;
                            if matches!(why, NotMoved::NoAnswer(_) | NotMoved::Late(_)) {
                                break;
                            }
                        }
                    }
                }
                Ended::Rebalanced { from, to, moved, refused, too_large }
            }
        });
    }

    /// Does something now, or when the moves under way are over.
    pub(super) fn after_moves(&mut self, what: AfterMoves) {
        self.moves.after = Some(what);
        self.do_after_moves();
    }

    fn do_after_moves(&mut self) {
        if !self.moves.under_way.is_empty() {
            return;
        }
        match self.moves.after.take() {
            None => {}
            // A worker that has drained is gone.
            Some(AfterMoves::Drain) => self.workers.drain(),
            Some(AfterMoves::Store) => self.store(),
        }
    }
}
