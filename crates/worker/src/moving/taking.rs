//! Connections that arrive: they are placed, and their sockets watched.

use std::sync::mpsc::{SyncSender, TrySendError};

use proxy::save::{RestoreError, Restoring};
use proxy::time::Time;
use proxy::{ConnKey, PeerAddress};
use wiped::Pieces;

use super::{Moving, UnderWay};
use crate::mailbox::{Origin, ReportBody, Take, Taken};
use crate::sockets::Flags;
use crate::turn::Worker;
use crate::world::World;

/// By how many bytes the heap grows where connections arrive. Less than what the allocator maps by itself, and than what it gives back
/// as soon as it is free (128 KiB each).
const HEAP_STEP: usize = 96 << 10;

/// Connections that a worker goes on with, and the bytes that it has read them from.
struct Restored {
    keys: Vec<ConnKey>,
    used: Pieces,
}

/// A large group that arrives.
#[derive(Debug)]
pub(crate) struct LargeRestore<S> {
    restoring: Restoring,
    /// Its sockets are taken out as their connections are placed.
    moving: Moving<S>,
    /// How many connections are at work.
    begun: usize,
    /// None of one that was given in vain.
    answer: Option<TakeAnswer<S>>,
}

/// Who waits for what becomes of a [`Take`].
#[derive(Debug)]
pub(crate) struct TakeAnswer<S> {
    origin: Origin,
    number: u32,
    reply: SyncSender<Taken<S>>,
}

impl<W: World> Worker<W> {
    /// Goes on with connections from elsewhere, and says so.
    pub(crate) fn take(&mut self, take: Take<W::Socket>) {
        let Take { moving, origin, number, reply } = take;
        self.shares_sockets |= origin == Origin::Process;
        self.take_up(moving, Some(TakeAnswer { origin, number, reply }), self.now);
    }

    pub(super) fn take_up(
        &mut self,
        moving: Moving<W::Socket>,
        answer: Option<TakeAnswer<W::Socket>>,
        now: Time,
    ) {
        let is_within_bounds =
            answer.as_ref().is_some_and(|answer| answer.origin == Origin::AnotherWorker);
        // A drain that ends at its deadline spares nothing that is only half here.
        if self.is_large(moving.sockets.len()) && self.under_way.is_none() && !self.is_draining() {
            match self.proxy.begin_restore(&moving.bytes) {
                Ok(mut restoring) => {
                    restoring.is_within_bounds = is_within_bounds;
                    let restore = LargeRestore { restoring, moving, begun: 0, answer };
                    self.under_way = Some(UnderWay::Restoring(restore));
                }
                Err(error) => self.answer_take(answer, Err((error, moving))),
            }
            return;
        }
        let result = self.restore_keys(moving, is_within_bounds, now);
        self.answer_take(answer, result);
    }

    fn answer_take(
        &mut self,
        answer: Option<TakeAnswer<W::Socket>>,
        result: Result<Restored, (RestoreError, Moving<W::Socket>)>,
    ) {
        // What was given in vain was saved here a moment ago.
        let Some(TakeAnswer { origin, number, reply }) = answer else { return };
        let (result, used) = match result {
            Ok(Restored { keys, used }) => (Ok(keys), used),
            Err(error) => (Err(error), Pieces::default()),
        };
        if let (Origin::Returned, Ok(keys)) = (origin, &result) {
            self.returned.extend(keys.iter().map(|key| key.to_bits()));
        }
        // Who asked may be gone; what was taken goes on.
        let unheard = reply.try_send(Taken { number, result, used });
        if let Err(TrySendError::Full(taken) | TrySendError::Disconnected(taken)) = unheard
            && let Err((error, moving)) = taken.result
            // Another process has the sockets as well, and goes on with them.
            && origin != Origin::Process
        {
            self.lose(&error, moving);
        }
    }

    /// Ends the connections of a group that nothing else has.
    fn lose(&mut self, error: &RestoreError, moving: Moving<W::Socket>) {
        let mut connections = 0;
        for socket in moving.sockets.into_iter().flatten() {
            self.world.reset(socket);
            connections += 1;
        }
        self.mailbox.report(ReportBody::GroupLost { connections, reason: error.to_string() });
    }

    pub(super) fn continue_restore(&mut self, mut restore: LargeRestore<W::Socket>) {
        let until = self.moving_until();
        let now = self.world.now();
        grow_heap();
        let LargeRestore { restoring, moving, begun, .. } = &mut restore;
        for stride in self.strides() {
            if restoring.is_placed() {
                let last = (*begun + stride).min(restoring.keys().len());
                let keys = restoring.keys().get(*begun..last).unwrap_or_default();
                keys.iter().for_each(|key| self.begin_watching(*key, now));
                self.proxy.on_restored(keys, now);
                *begun = last;
            } else {
                let before = restoring.keys().len();
                let part = self.proxy.restore_part(restoring, &moving.bytes, stride, now);
                if let Err(error) = part {
                    let LargeRestore { moving, answer, .. } = restore;
                    return self.answer_take(answer, Err((error, moving)));
                }
                let placed = restoring.keys().iter().zip(&mut moving.sockets).skip(before);
                for (key, socket) in placed {
                    if let Some(socket) = socket.take() {
                        self.keep_socket(*key, socket);
                    }
                }
            }
            if self.world.now() >= until {
                break;
            }
        }
        if restoring.is_placed() && *begun == restoring.keys().len() {
            let LargeRestore { restoring, moving, answer, .. } = restore;
            let restored = Restored { keys: restoring.into_keys(), used: moving.bytes };
            self.answer_take(answer, Ok(restored));
        } else {
            self.under_way = Some(UnderWay::Restoring(restore));
        }
    }

    /// Has the kernel report what happens to a restored connection, which may have ended since.
    fn begin_watching(&mut self, key: ConnKey, now: Time) {
        let awaits_connection = self.proxy.awaits_connection(key);
        let Some((socket, flags)) = self.sockets.get(key) else {
            if self.proxy.has_connection(key) {
                self.proxy.on_broken(key, "", now);
            }
            return;
        };
        let watched = if awaits_connection {
            flags.set(Flags::CONNECTING);
            self.world.watch(socket, key)
        } else {
            // Assumed, and corrected by the first call that finds it wrong. What can be read, and an end, is reported as soon as
            // the socket is watched; to try that here would cost each idle connection a system call.
            flags.set(Flags::WRITABLE);
            flags.set(Flags::READS_ONLY);
            self.world.watch_reads(socket, key)
        };
        if let Err(error) = watched {
            self.proxy.on_broken(key, ::io::errno_name(&error), now);
        }
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
        self.restore_keys(moving, false, now).map(drop)
    }

    /// Keeps the socket of a restored connection. It says who connected, which is not written down.
    fn keep_socket(&mut self, key: ConnKey, socket: W::Socket) {
        if self.proxy.asks_direct_source(key)
            && let Ok(direct) = self.world.peer_address(&socket)
        {
            self.proxy.on_direct_source(key, PeerAddress::from(direct));
        }
        self.sockets.insert(key, socket, Flags::default());
    }

    fn restore_keys(
        &mut self,
        moving: Moving<W::Socket>,
        is_within_bounds: bool,
        now: Time,
    ) -> Result<Restored, (RestoreError, Moving<W::Socket>)> {
        let restored = match is_within_bounds {
            true => self.proxy.restore_within_bounds(&moving.bytes, now),
            false => self.proxy.restore(&moving.bytes, now),
        };
        let keys = match restored {
            Ok(keys) => keys,
            Err(error) => return Err((error, moving)),
        };
        for (key, socket) in keys.iter().zip(moving.sockets) {
            if let Some(socket) = socket {
                self.keep_socket(*key, socket);
            }
            self.begin_watching(*key, now);
        }
        self.proxy.on_restored(&keys, now);
        self.perform();
        Ok(Restored { keys, used: moving.bytes })
    }
}

/// Has the allocator take as much from the kernel at once as the connections of a turn may need. The heap of a thread grows by a page at
/// a time otherwise (glibc), with a system call for each: a tenth of what it takes to restore connections.
pub(super) fn grow_heap() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(HEAP_STEP)));
}
