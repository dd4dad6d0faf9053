//! Connections that move between workers: on their way by messages that wait in mailboxes while everything else goes
//! on, as control moves them; and at once, out of workers that drain.
//!
//! They are taken out between two turns, when all that began in the last one have their record layers, and not by a
//! message in the middle of one: handshakes, which would keep them where they are, are left out here.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use proxy::ConnKey;
use proxy::save::GroupMax;
use worker::{Give, Given, Message, Moving, Origin, Take, Taken, Wanted};

use super::Simulation;
use crate::world::SimSocket;

/// A move under way: what is waited for.
#[derive(Debug)]
pub(super) struct Move {
    from: usize,
    to: usize,
    awaits: Awaits,
}

#[derive(Debug)]
enum Awaits {
    /// A large group leaves in several turns.
    Given(Receiver<Given<SimSocket>>),
    Taken(Receiver<Taken<SimSocket>>),
    /// Where it came from has to take it.
    TakenBack(Receiver<Taken<SimSocket>>),
}

impl Simulation {
    /// Moves some connection with all that belongs to it to some worker.
    pub(super) fn move_one(&mut self) {
        let now = self.now();
        let (first, count) = (self.process.start, self.process.len());
        let from = first + self.random.length_below(count);
        let to = first + self.random.length_below(count);
        let Some(Some(thread)) = self.threads.get_mut(from) else { return };
        let connections = thread.worker.proxy().describe(0, u32::MAX, now).connections;
        if connections.is_empty() {
            return;
        }
        let picked = self.random.pick(&connections);
        let key = ConnKey::new(picked.slot, picked.generation);
        self.network.borrow_mut().trace.note(now, "move", to as u64, &key.to_bits().to_le_bytes());
        if self.is_draining {
            return self.move_at_once(from, to, key);
        }
        // A message would be read behind the configuration that waits.
        let latest = self.snapshot.as_ref().map(|snapshot| snapshot.version);
        if latest != Some(thread.worker.proxy().snapshot().version) {
            return;
        }
        if self.random.chance(100) {
            // As control does before it asks once more.
            thread.worker.proxy().set_apart(key, now);
            return;
        }
        let Some(given) = self.begin_to_give(from, key) else { return };
        let first = self.go_on_with(Move { from, to, awaits: Awaits::Given(given) });
        self.moves.extend(first);
    }

    /// Has a worker give a connection away, with all that belongs to it.
    fn begin_to_give(&mut self, from: usize, key: ConnKey) -> Option<Receiver<Given<SimSocket>>> {
        if self.threads.get(from)?.as_ref()?.worker.is_moving() {
            return None;
        }
        let (reply, given) = sync_channel(1);
        // A group that turns out to be larger stays, after some turns.
        let max = match self.random.chance(200) {
            true => GroupMax {
                connections: self.random.length_between(1, 4),
                clients: self.random.length_between(1, 2),
            },
            false => GroupMax::ANY,
        };
        let wanted = Wanted::One { connection: key, max };
        let worker = &mut self.threads.get_mut(from)?.as_mut()?.worker;
        worker.give(Give { wanted, reply });
        // What waited for its room may have begun to connect.
        self.give_keys(from);
        self.read_reports();
        Some(given)
    }

    fn take_out(&mut self, from: usize, key: ConnKey) -> Option<Moving<SimSocket>> {
        let worker = &mut self.threads.get_mut(from)?.as_mut()?.worker;
        let key = worker.proxy().leading(key);
        let moving = worker.save(key);
        self.taken_out += usize::from(moving.is_some());
        // What waited for its room may have begun to connect.
        self.give_keys(from);
        self.read_reports();
        moving
    }

    /// Goes on with moves whose worker has answered.
    pub(super) fn go_on_with_moves(&mut self) {
        for under_way in std::mem::take(&mut self.moves) {
            let next = self.go_on_with(under_way);
            self.moves.extend(next);
        }
    }

    fn go_on_with(&mut self, under_way: Move) -> Option<Move> {
        let Move { from, to, awaits } = under_way;
        let on = |awaits| Some(Move { from, to, awaits });
        match awaits {
            Awaits::Given(answer) => match answer.try_recv() {
                Ok(Given { mut groups, .. }) => {
                    let moving = groups.pop()?;
                    self.taken_out += 1;
                    let taken = self.take(to, moving);
                    on(taken.map_or_else(|back| self.take_back(from, back), Awaits::Taken))
                }
                Err(TryRecvError::Empty) => on(Awaits::Given(answer)),
                Err(TryRecvError::Disconnected) => self.lost(from),
            },
            Awaits::Taken(answer) => match answer.try_recv() {
                Ok(Taken { result: Ok(_), .. }) => {
                    self.moved += 1;
                    None
                }
                // The other does not have its listener yet, or not any more: it stays.
                Ok(Taken { result: Err((_, moving)), .. }) => on(self.take_back(from, moving)),
                Err(TryRecvError::Empty) => on(Awaits::Taken(answer)),
                Err(TryRecvError::Disconnected) => self.lost(to),
            },
            Awaits::TakenBack(answer) => match answer.try_recv() {
                Ok(Taken { result: Ok(_), .. }) => None,
                Ok(Taken { result: Err((error, _)), .. }) => {
                    self.ledger.violate(format!("worker {from} has lost a connection: {error}"));
                    None
                }
                Err(TryRecvError::Empty) => on(Awaits::TakenBack(answer)),
                Err(TryRecvError::Disconnected) => self.lost(from),
            },
        }
    }

    fn lost(&mut self, worker: usize) -> Option<Move> {
        self.ledger.violate(format!("worker {worker} ended with a connection on its way"));
        None
    }

    /// Has a worker take connections; or gives them back, if it is gone.
    fn take(
        &self,
        worker: usize,
        moving: Moving<SimSocket>,
    ) -> Result<Receiver<Taken<SimSocket>>, Moving<SimSocket>> {
        let (reply, answer) = sync_channel(1);
        let take = Take { moving, origin: Origin::Worker, number: 0, reply };
        match self.try_post(worker, Message::Take(take)) {
            Err(Message::Take(take)) => Err(take.moving),
            _ => Ok(answer),
        }
    }

    fn take_back(&self, from: usize, moving: Moving<SimSocket>) -> Awaits {
        // Without a worker, its answer is missed.
        Awaits::TakenBack(self.take(from, moving).unwrap_or_else(|_| sync_channel(1).1))
    }

    fn move_at_once(&mut self, from: usize, to: usize, key: ConnKey) {
        let Some(moving) = self.take_out(from, key) else { return };
        let refused = match self.threads.get_mut(to) {
            Some(Some(thread)) => thread.worker.restore(moving).err().map(|(_, moving)| moving),
            // That one has drained.
            _ => Some(moving),
        };
        match refused {
            None => self.moved += 1,
            Some(moving) => {
                let Some(Some(thread)) = self.threads.get_mut(from) else { return };
                if let Err((error, _)) = thread.worker.restore(moving) {
                    self.ledger.violate(format!("worker {from} has lost a connection: {error}"));
                }
            }
        }
        self.give_keys(from);
        self.give_keys(to);
        self.read_reports();
    }
}
