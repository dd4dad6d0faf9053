//! Reading from sockets, and passing on what is not parsed.
//!
//! Everything is read into the worker's one scratch buffer. What the proxy does not parse is written to the other side
//! from there; only what that does not take is copied.

use std::io::{self, IoSlice};

use proxy::time::Time;
use proxy::{ConnKey, Passed, Passthrough};

use super::Worker;
use crate::sockets::Flags;
use crate::world::{Spliced, World};

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// Bytes that are spliced at a time. Those that the other side does not take have to be buffered
/// for it.
pub(super) const SPLICE_BYTES: usize = 256 << 10;

impl<W: World> Worker<W> {
    pub(super) fn read(&mut self, key: ConnKey) {
        let is_bulk = self.sockets.get(key).is_some_and(|(_, flags)| flags.has(Flags::BULK));
        if !is_bulk || !self.splice(key) {
            self.receive(key);
        }
    }

    fn receive(&mut self, key: ConnKey) {
        // The end of a body is read with what comes behind it, rather than apart.
        let passing = self.proxy.passthrough(key).filter(|way| way.bytes_max >= READ_BYTES);
        let bytes_max = match passing {
            Some(_) => READ_BYTES,
            None => self.proxy.read_bytes_max(key).min(READ_BYTES),
        };
        let Some((socket, flags)) = self.sockets.get(key) else { return };
        if bytes_max == 0 {
            if flags.has(Flags::CLOSED) {
                let now = self.now;
                self.proxy.on_hangup(key, now);
            } else if self.proxy.is_handshake_held(key) && !flags.has(Flags::QUEUED) {
                flags.set(Flags::QUEUED);
                self.again.push(key);
            }
            return;
        }
        let Some(buffer) = self.scratch.get_mut(..bytes_max) else { return };
        match self.world.recv(socket, buffer) {
            Ok(0) => self.on_read_end(key),
            Ok(n) => {
                if n < bytes_max && !flags.has(Flags::ENDING) {
                    flags.clear(Flags::READABLE);
                } else if !flags.has(Flags::QUEUED) {
                    flags.set(Flags::QUEUED);
                    self.again.push(key);
                }
                if n >= W::SPLICE_BYTES_MIN {
                    flags.set(Flags::BULK);
                }
                let now = if self.settings.stage_times { self.world.now() } else { self.now };
                match passing {
                    Some(Passthrough { to, .. }) => self.pass(key, to, n, now),
                    None => {
                        let bytes = self.scratch.get_mut(..n).unwrap_or_default();
                        self.proxy.on_received(key, bytes, now);
                    }
                }
            }
            Err(error) => self.on_read_failed(key, &error),
        }
    }

    fn on_read_end(&mut self, key: ConnKey) {
        let now = self.stamp();
        if let Some((_, flags)) = self.sockets.get(key) {
            flags.clear(Flags::READABLE);
        }
        self.proxy.on_read_closed(key, now);
    }

    fn on_read_failed(&mut self, key: ConnKey, error: &io::Error) {
        if let Some((_, flags)) = self.sockets.get(key) {
            flags.clear(Flags::READABLE);
        }
        if error.kind() != io::ErrorKind::WouldBlock {
            let now = self.stamp();
            self.proxy.on_broken(key, ::io::errno_name(error), now);
        }
    }

    /// Sends bytes of a passthrough on at once, from the read buffer.
    pub(super) fn pass(&mut self, key: ConnKey, to: ConnKey, n: usize, began: Time) {
        let bytes = self.scratch.get(..n).unwrap_or_default();
        let mut sent = 0;
        if let Some((target, flags)) = self.sockets.get(to)
            && flags.has(Flags::WRITABLE)
        {
            let is_full = match self.world.send(target, &[IoSlice::new(bytes)]) {
                Ok(taken) => {
                    sent = taken;
                    0 < sent && sent < n
                }
                // The next send reports what else is wrong.
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            };
            if is_full {
                self.on_full(to);
            }
        }
        let now = self.stamp();
        let rest = self.scratch.get(sent..n).unwrap_or_default();
        self.proxy.on_passed_through(&Passed { from: key, to, sent, rest, began }, now);
    }

    /// Splices what arrived on a connection; returns false if that is not possible.
    pub(super) fn splice(&mut self, key: ConnKey) -> bool {
        let began = self.stamp();
        let Some(Passthrough { to, bytes_max }) = self.proxy.passthrough(key) else { return false };
        let Some((from, _)) = self.sockets.peek(key) else { return false };
        let Some((target, to_flags)) = self.sockets.peek(to) else { return false };
        if !to_flags.has(Flags::WRITABLE) {
            return false;
        }
        let rest = &mut self.scratch;
        let Some(rest) = rest.get_mut(..bytes_max.min(SPLICE_BYTES)) else { return false };
        let result = self.world.splice(from, target, rest);
        let Some((_, flags)) = self.sockets.get(key) else { return false };
        match result {
            Ok(Spliced { received: 0, .. }) => self.on_read_end(key),
            Ok(Spliced { received, sent }) => {
                // How many come says nothing about how many are left: a pipe has room for a number
                // of packets.
                if received < W::SPLICE_BYTES_MIN || sent < received {
                    flags.clear(Flags::BULK);
                }
                if !flags.has(Flags::QUEUED) {
                    flags.set(Flags::QUEUED);
                    self.again.push(key);
                }
                let now = self.stamp();
                let rest = self.scratch.get(..received - sent).unwrap_or_default();
                self.proxy.on_passed_through(&Passed { from: key, to, sent, rest, began }, now);
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                flags.clear(Flags::BULK);
                return false;
            }
            // The kernel reports an error once.
            Err(error) => self.on_read_failed(key, &error),
        }
        true
    }

    /// Reads once more from those that had more; what still has more waits for the next turn.
    pub(super) fn read_again(&mut self) {
        let count = self.again.len();
        for index in 0..count {
            let Some(key) = self.again.get(index).copied() else { break };
            if let Some((_, flags)) = self.sockets.get(key) {
                flags.clear(Flags::QUEUED);
                if flags.has(Flags::READABLE) && !self.proxy.is_leaving(key) {
                    self.read(key);
                    self.perform();
                }
            }
        }
        self.again.drain(..count);
    }
}
