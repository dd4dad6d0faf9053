//! Connections that leave a worker and arrive at another, or at the next process, with their
//! sockets.

use std::time::Duration;

use proxy::ConnKey;
use proxy::save::{Movable, RestoreError};

use crate::mailbox::{Give, Given, Take, Taken};
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
    pub bytes: Vec<u8>,
    /// The sockets, in the order in which [`Worker::restore`] wants them back. None for a
    /// connection that has no socket yet.
    pub sockets: Vec<Option<S>>,
}

impl<W: World> Worker<W> {
    /// Gives away what can move of the connections from a slot on, for a moment at most.
    pub(crate) fn give(&mut self, give: &Give<W::Socket>) {
        let until = self.world.now() + GIVING_TIME_MAX;
        let (candidates, mut next) = self.proxy.movable(give.first, SLOTS_MAX);
        let mut given = Given {
            worker: self.mailbox.worker(),
            groups: Vec::new(),
            next: None,
            pending: 0,
            staying: 0,
        };
        for (key, movable) in candidates {
            let is_full = given.groups.len() >= give.groups_max as usize;
            if is_full || self.world.now() >= until && !given.groups.is_empty() {
                next = Some(key.index());
                break;
            }
            match movable {
                // Their companions went with the group, and they with those.
                Movable::WithAnother => {}
                _ if self.returned.contains(&key.to_bits()) => given.staying += 1,
                Movable::Busy if give.only_idle => {}
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
        // Who asked may have given up; then the connections go on here.
        if let Err(unsent) = give.reply.send(given) {
            for moving in unsent.0.groups {
                // It was saved here a moment ago.
                let _ = self.restore(moving);
            }
        }
    }

    /// Goes on with connections from elsewhere, and says so.
    pub(crate) fn take(&mut self, take: Take<W::Socket>) {
        let Take { moving, is_returned, number, reply } = take;
        self.shares_sockets |= !is_returned;
        let result = self.restore_keys(moving).map(|keys| {
            if is_returned {
                self.returned.extend(keys.iter().map(|key| key.to_bits()));
            }
        });
        // Who asked may be gone; what was taken goes on.
        let _ = reply.send(Taken { number, result });
    }

    /// Takes a downstream connection with all that belongs to it, or an idle upstream connection,
    /// out of this worker, between two turns. None for a key that [`proxy::Proxy::save`] refuses.
    pub fn save(&mut self, key: ConnKey) -> Option<Moving<W::Socket>> {
        let now = self.world.now();
        let saved = self.proxy.save(key, now)?;
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
        Some(Moving { bytes: saved.bytes, sockets })
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
