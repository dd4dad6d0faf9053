//! Connections that leave a worker and arrive at another, or at the next process, with their
//! sockets; and by which of them a worker would be relieved.

use std::time::Duration;

use proxy::ConnKey;
use proxy::save::{Movable, RestoreError};
use zeroize::Zeroizing;

use crate::mailbox::{Give, Given, Kept, Origin, Take, Taken, Wanted, Weigh, Weighed, Work};
use crate::sockets::Flags;
use crate::turn::Worker;
use crate::world::World;

/// How long a worker gives connections away at a time: others wait meanwhile.
const GIVING_TIME_MAX: Duration = Duration::from_millis(1);

/// Slots that are looked at for one message.
const SLOTS_MAX: u32 = 4096;

/// A saved group of connections that belong together.
#[derive(Debug)]
pub struct Moving<S> {
    /// The saved state, without the sockets.
    pub bytes: Zeroizing<Vec<u8>>,
    /// The sockets, in the order in which [`Worker::restore`] wants them back. None for a
    /// connection that has no socket yet.
    pub sockets: Vec<Option<S>>,
}

impl<W: World> Worker<W> {
    /// Gives away what is asked for, as far as it can move.
    pub(crate) fn give(&mut self, give: &Give<W::Socket>) {
        let given = match give.wanted {
            Wanted::From { first, groups_max, only_idle } => {
                self.give_from(first, groups_max, only_idle)
            }
            Wanted::One { connection, connections_max } => {
                self.give_one(connection, connections_max)
            }
        };
        // Who asked may have given up; then the connections go on here.
        if let Err(unsent) = give.reply.send(given) {
            for moving in unsent.0.groups {
                // It was saved here a moment ago.
                let _ = self.restore(moving);
            }
        }
    }

    const fn no_groups(&self) -> Given<W::Socket> {
        Given {
            worker: self.mailbox.worker(),
            groups: Vec::new(),
            next: None,
            pending: 0,
            staying: 0,
            kept: None,
        }
    }

    /// What can move of the connections from a slot on, for a moment at most.
    fn give_from(&mut self, first: u32, groups_max: u32, only_idle: bool) -> Given<W::Socket> {
        let until = self.world.now() + GIVING_TIME_MAX;
        let (candidates, mut next) = self.proxy.movable(first, SLOTS_MAX);
        let mut given = self.no_groups();
        for (key, movable) in candidates {
            let is_full = given.groups.len() >= groups_max as usize;
            if is_full || self.world.now() >= until && !given.groups.is_empty() {
                next = Some(key.index());
                break;
            }
            match movable {
                // Their companions went with the group, and they with those.
                Movable::WithAnother => {}
                _ if self.returned.contains(&key.to_bits()) => given.staying += 1,
                Movable::Busy if only_idle => {}
                Movable::NotYet => given.pending += 1,
                Movable::Stays => given.staying += 1,
                Movable::Idle | Movable::Busy => match self.save(key) {
                    Some(moving) => given.groups.push(moving),
                    // It went with a group, or one of its own is amid a handshake.
                    None => given.pending += u32::from(self.proxy.has_connection(key)),
                },
            }
        }
        given.next = next;
        given
    }

    fn give_one(&mut self, connection: ConnKey, connections_max: usize) -> Given<W::Socket> {
        let mut given = self.no_groups();
        // With an upstream connection that an exchange has alone goes what it belongs to.
        let key = self.proxy.leading(connection);
        let kept = match self.proxy.movable_one(key) {
            None => Kept::Unknown,
            Some(Movable::NotYet | Movable::WithAnother) => Kept::Handshake,
            Some(Movable::Stays) => Kept::Stays,
            Some(Movable::Idle | Movable::Busy)
                if !self.proxy.is_group_within(key, connections_max) =>
            {
                Kept::TooLarge
            }
            Some(Movable::Idle | Movable::Busy) => match self.save(key) {
                Some(moving) => {
                    given.groups.push(moving);
                    return given;
                }
                None => Kept::Handshake,
            },
        };
        given.kept = Some(kept);
        given
    }

    /// Goes on with connections from elsewhere, and says so.
    pub(crate) fn take(&mut self, take: Take<W::Socket>) {
        let Take { moving, origin, number, reply } = take;
        self.shares_sockets |= origin == Origin::Process;
        let result = self.restore_keys(moving);
        if let (Origin::Returned, Ok(keys)) = (origin, &result) {
            self.returned.extend(keys.iter().map(|key| key.to_bits()));
        }
        // Who asked may be gone; what was taken goes on.
        let _ = reply.send(Taken { number, result });
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

    /// Takes a downstream connection with all that belongs to it, or an idle upstream connection,
    /// out of this worker, between two turns. None for a key that [`proxy::Proxy::save`] refuses.
    pub fn save(&mut self, key: ConnKey) -> Option<Moving<W::Socket>> {
        let now = self.world.now();
        let Some(saved) = self.proxy.save(key, now) else {
            // A health check that it carried may have ended.
            self.perform();
            return None;
        };
        let mut sockets = Vec::new();
        for key in &saved.connections {
            let socket = self.sockets.remove(*key);
            if let Some(socket) = &socket {
                self.world.unwatch(socket);
            }
            sockets.push(socket);
        }
        self.proxy.on_saved(&saved, now);
        self.perform();
        Some(Moving { bytes: Zeroizing::new(saved.bytes), sockets })
    }

    /// Takes over connections that [`Worker::save`] took out of another worker.
    ///
    /// # Errors
    ///
    /// Why the bytes do not fit this worker, with everything given back: no connection was
    /// restored.
    pub fn restore(
        &mut self,
        moving: Moving<W::Socket>,
    ) -> Result<(), (RestoreError, Moving<W::Socket>)> {
        self.restore_keys(moving).map(drop)
    }

    fn restore_keys(
        &mut self,
        moving: Moving<W::Socket>,
    ) -> Result<Vec<ConnKey>, (RestoreError, Moving<W::Socket>)> {
        let now = self.world.now();
        let keys = match self.proxy.restore(&moving.bytes, now) {
            Ok(keys) => keys,
            Err(error) => return Err((error, moving)),
        };
        for (key, socket) in keys.iter().zip(moving.sockets) {
            let is_watched = socket.as_ref().is_some_and(|s| self.world.watch(s, *key).is_ok());
            let Some(socket) = socket.filter(|_| is_watched) else {
                self.proxy.on_broken(*key, "", now);
                continue;
            };
            let mut flags = Flags::default();
            if self.proxy.awaits_connection(*key) {
                flags.set(Flags::CONNECTING);
            } else {
                // Assumed, and corrected by the first call that finds it wrong.
                flags.set(Flags::READABLE);
                flags.set(Flags::WRITABLE);
            }
            self.sockets.insert(*key, socket, flags);
        }
        self.proxy.on_restored(&keys, now);
        self.perform();
        Ok(keys)
    }
}
