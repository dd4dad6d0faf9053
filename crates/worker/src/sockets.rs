//! The sockets of a worker's connections, and what is known to be possible on them.

use proxy::ConnKey;
use proxy::slab::Chunks;

/// Sockets by connection.
#[derive(Debug)]
pub(crate) struct Sockets<S> {
    entries: Chunks<Entry<S>>,
}

impl<S> Default for Sockets<S> {
    fn default() -> Self {
        Self { entries: Chunks::default() }
    }
}

/// One connection's socket.
#[derive(Debug)]
pub(crate) struct Entry<S> {
    generation: u32,
    pub(crate) flags: Flags,
    /// How often something was done with it since [`Sockets::take_operations`], up to the highest number. In room that
    /// the entry has anyway.
    operations: u16,
    pub(crate) socket: Option<S>,
}

/// What is known to be possible on a socket. With edge-triggered events a worker has to remember
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// A read may bring something.
    pub(crate) const READABLE: Self = Self(1);
    /// A write may take something.
    pub(crate) const WRITABLE: Self = Self(2);
    /// An end is behind what can be read.
    pub(crate) const ENDING: Self = Self(4);
    /// Not connected yet.
    pub(crate) const CONNECTING: Self = Self(8);
    /// Among those to be read again.
    pub(crate) const QUEUED: Self = Self(16);
    /// Over in both directions.
    pub(crate) const CLOSED: Self = Self(32);
    /// There was more to read than one read takes, so bytes may be moved without being read.
    pub(crate) const BULK: Self = Self(64);
    /// Nothing says when a write may take something: [`World::watch_writes`](crate::World::watch_writes) has to be called first.
    pub(crate) const READS_ONLY: Self = Self(128);

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) const fn clear(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl<S> Sockets<S> {
    pub(crate) fn insert(&mut self, key: ConnKey, socket: S, flags: Flags) {
        let index = key.index() as usize;
        while self.entries.len() <= index {
            self.entries.grow(|_| Entry {
                generation: 0,
                flags: Flags::default(),
                operations: 0,
                socket: None,
            });
        }
        if let Some(entry) = self.entries.get_mut(index) {
            let generation = key.generation();
            *entry = Entry { generation, flags, operations: 0, socket: Some(socket) };
        }
    }

    /// Gives the memory of places from `len` on back, as far as no socket is there.
    pub(crate) fn shrink(&mut self, len: usize) {
        while self.entries.len() > len && self.entries.is_last_chunk(|entry| entry.socket.is_none())
        {
            self.entries.shrink();
        }
    }

    /// A socket with which something is to be done, which counts.
    #[inline]
    pub(crate) fn get(&mut self, key: ConnKey) -> Option<(&S, &mut Flags)> {
        let entry = self.entries.get_mut(key.index() as usize)?;
        match &entry.socket {
            Some(socket) if entry.generation == key.generation() => {
                entry.operations = entry.operations.saturating_add(1);
                Some((socket, &mut entry.flags))
            }
            _ => None,
        }
    }

    /// As [`Sockets::get`], for two of them at once.
    pub(crate) fn peek(&self, key: ConnKey) -> Option<(&S, Flags)> {
        let entry = self.entries.get(key.index() as usize)?;
        let socket = entry.socket.as_ref().filter(|_| entry.generation == key.generation());
        socket.map(|socket| (socket, entry.flags))
    }

    /// How often something was done with it since this was asked last.
    pub(crate) fn take_operations(&mut self, key: ConnKey) -> u16 {
        let entry = self.entries.get_mut(key.index() as usize);
        let entry = entry.filter(|entry| entry.generation == key.generation());
        entry.map_or(0, |entry| std::mem::take(&mut entry.operations))
    }

    pub(crate) fn remove(&mut self, key: ConnKey) -> Option<S> {
        let entry = self.entries.get_mut(key.index() as usize)?;
        if entry.generation == key.generation() { entry.socket.take() } else { None }
    }
}
