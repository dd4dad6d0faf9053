//! Connections that leave a worker and arrive at another, or at the next process, with their
//! sockets.

use proxy::ConnKey;
use proxy::save::RestoreError;

use crate::sockets::Flags;
use crate::turn::Worker;
use crate::world::World;

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
        Ok(())
    }
}
