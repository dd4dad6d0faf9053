//! Listening sockets: what is accepted, and when nothing is.
//!
//! A token of the poller names a place in `Worker::listeners`. Places of closed listeners are used again, so that an
//! event may be meant for the former one.

use std::io;
use std::time::Duration;

use config::snapshot::ListenerId;
use proxy::PeerAddress;
use telemetry::cause::Cause;

use super::{Listening, Worker};
use crate::mailbox::{InheritedSocket, KeptListener, ReplacingSocket, ReportBody};
use crate::sockets::Flags;
use crate::world::{AcceptError, World};

/// Connections accepted from one listener in a turn: a burst must not starve what is open.
pub(super) const ACCEPTS_MAX: usize = 64;

/// Pause of accepting after running out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl<W: World> Worker<W> {
    pub(super) fn add_listener(&mut self, id: ListenerId, socket: W::Listener) -> io::Result<()> {
        // An event that was meant for the closed one makes the new one accept nothing, once.
        let next = u32::try_from(self.listeners.len()).expect("fewer than 2^32 listeners");
        let token = self.listeners_closed.last().copied().unwrap_or(next);
        let is_left = self.leaves_accepting;
        if !is_left {
            self.world.watch_listener(&socket, token)?;
        }
        let listening = Listening { id, socket: Some(socket), paused_until: None, is_left };
        match self.listeners.get_mut(token as usize) {
            Some(closed) => *closed = listening,
            None => self.listeners.push(listening),
        }
        if token != next {
            self.listeners_closed.pop();
        }
        self.listener_places.entry(id).or_default().push(token);
        Ok(())
    }

    /// Gives a listener's socket to another one, whose configuration comes before the next connection is accepted.
    pub(super) fn inherit(&mut self, inherited: &InheritedSocket) {
        let InheritedSocket { id, from, address } = inherited;
        let Some(places) = self.listener_places.get_mut(from) else { return };
        let (listeners, world) = (&mut self.listeners, &self.world);
        let kept = places.extract_if(.., |place| {
            let Some(listening) = listeners.get_mut(*place as usize) else { return false };
            let is_it =
                listening.socket.as_ref().is_some_and(|socket| world.listens_at(socket, address));
            if is_it {
                listening.id = *id;
            }
            is_it
        });
        let kept: Vec<_> = kept.collect();
        self.listener_places.entry(*id).or_default().extend(kept);
    }

    /// Accepts up to `count` connections.
    pub(super) fn accept(&mut self, index: usize, count: usize) {
        if self.listeners.get(index).is_none_or(|listening| listening.is_left) {
            return;
        }
        for _ in 0..count {
            let Some(listening) = self.listeners.get_mut(index) else { return };
            let Some(listener) = &listening.socket else { return };
            let id = listening.id;
            match self.world.accept(listener) {
                Ok(Some(accepted)) => {
                    let original = accepted.original;
                    // The peer connected to that address.
                    let local = PeerAddress::from(original.or(accepted.local));
                    let peer = PeerAddress::from(accepted.peer);
                    let now = self.stamp();
                    let key = self.proxy.on_accepted(id, peer, local, original, now);
                    let Some(key) = key else {
                        // An end in order could be taken for that of an answer without a byte.
                        self.world.reset(accepted.socket);
                        continue;
                    };
                    if let Err(error) = self.world.watch(&accepted.socket, key) {
                        self.proxy.on_broken(key, ::io::errno_name(&error), now);
                        self.world.reset(accepted.socket);
                        continue;
                    }
                    self.sockets.insert(key, accepted.socket, Flags::WRITABLE);
                }
                Ok(None) => return,
                Err(AcceptError::Transient) => self.proxy.on_accept_failed(id, Cause::AcceptFailed),
                Err(AcceptError::OutOfDescriptors(errno)) => {
                    self.proxy.on_accept_failed(id, Cause::OutOfDescriptors);
                    self.world.unwatch_listener(listener);
                    listening.paused_until = Some(self.now + ACCEPT_PAUSE);
                    return self.mailbox.report(ReportBody::OutOfDescriptors(errno));
                }
                Err(AcceptError::Fatal(errno)) => {
                    self.close_listener(id);
                    let broken = ReportBody::ListenerBroken { listener: id, errno };
                    return self.mailbox.report(broken);
                }
            }
        }
    }

    /// Accepts again where descriptors had run out.
    pub(super) fn resume_listeners(&mut self) {
        for (index, listening) in (0u32..).zip(&mut self.listeners) {
            if listening.paused_until.is_some_and(|until| until <= self.now) {
                let watched = listening
                    .socket
                    .as_ref()
                    .is_some_and(|socket| self.world.watch_listener(socket, index).is_ok());
                listening.paused_until = if watched { None } else { Some(self.now + ACCEPT_PAUSE) };
            }
        }
    }

    pub(super) fn close_listener(&mut self, id: ListenerId) {
        for place in self.listener_places.remove(&id).unwrap_or_default() {
            self.close_place(place);
        }
    }

    fn close_place(&mut self, place: u32) {
        let Some(listening) = self.listeners.get_mut(place as usize) else { return };
        listening.paused_until = None;
        if let Some(socket) = listening.socket.take() {
            self.world.unwatch_listener(&socket);
        }
        self.listeners_closed.push(place);
    }

    /// Accepts from a socket in the place of others at the same address, whose queues are emptied.
    pub(super) fn replace_listener(&mut self, replacing: ReplacingSocket<W::Listener>) {
        let ReplacingSocket { id, address, socket } = replacing;
        let is_replaced = |place: &u32| {
            let listening = self.listeners.get(*place as usize);
            let socket = listening.and_then(|listening| listening.socket.as_ref());
            socket.is_some_and(|socket| self.world.listens_at(socket, &address))
        };
        let places = self.listener_places.get(&id);
        let replaced: Vec<_> = places.into_iter().flatten().copied().filter(is_replaced).collect();
        let queued_max = self.queued_max(id);
        for place in &replaced {
            self.accept(*place as usize, queued_max);
            self.close_place(*place);
        }
        if let Some(places) = self.listener_places.get_mut(&id) {
            places.retain(|place| !replaced.contains(place));
        }
        if let Err(error) = self.add_listener(id, socket) {
            let errno = ::io::errno_name(&error);
            self.mailbox.report(ReportBody::ListenerBroken { listener: id, errno });
        }
    }

    /// Leaves new connections to another process, which has the same sockets, but for these.
    pub(super) fn stop_accepting(&mut self, but: &[KeptListener]) {
        for listening in &mut self.listeners {
            let Some(socket) = &listening.socket else { continue };
            let id = listening.id;
            let first = but.partition_point(|kept| kept.id < id);
            let mut of_listener = but.iter().skip(first).take_while(|kept| kept.id == id);
            let is_at = |kept: &KeptListener| {
                kept.address.as_ref().is_none_or(|address| self.world.listens_at(socket, address))
            };
            if of_listener.any(is_at) {
                continue;
            }
            listening.is_left = true;
            listening.paused_until = None;
            self.world.unwatch_listener(socket);
        }
        self.leaves_accepting = true;
    }

    pub(super) fn accept_again(&mut self) {
        if !std::mem::take(&mut self.leaves_accepting) {
            return;
        }
        self.returned.clear();
        self.accepts_since = self.now;
        for (index, listening) in (0u32..).zip(&mut self.listeners) {
            if !std::mem::take(&mut listening.is_left) {
                continue;
            }
            if let Some(socket) = &listening.socket
                && self.world.watch_listener(socket, index).is_err()
            {
                listening.paused_until = Some(self.now + ACCEPT_PAUSE);
            }
        }
    }

    /// Takes the connections that the kernel has accepted already, so that closing resets none.
    pub(super) fn empty_queue(&mut self, id: ListenerId) {
        let queued_max = self.queued_max(id);
        for place in self.listener_places.get(&id).cloned().unwrap_or_default() {
            self.accept(place as usize, queued_max);
        }
    }

    /// Connections that the queue of a listener holds at most: more came since one began to take them.
    fn queued_max(&self, id: ListenerId) -> usize {
        let listener = self.proxy.snapshot().listener(id);
        listener.map_or(0, |(_, listener)| listener.socket.backlog.get() as usize + 1)
    }
}
