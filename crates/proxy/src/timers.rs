//! Whose deadlines the wheel of a worker has.

use crate::keys::{ConnKey, ExchangeKey};

/// Whose deadline a timer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimerOwner {
    Connection(ConnKey),
    Exchange(ExchangeKey),
    /// A connection that has begun before the end of its handshake, which has a deadline of its own.
    Handshake(ConnKey),
}

/// A [`TimerOwner`] in one word: a key leaves the highest bit free, and that of its place, since no
/// worker has 2^31 connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedOwner(u64);

impl PackedOwner {
    const EXCHANGE: u64 = 1 << 63;
    const HANDSHAKE: u64 = 1 << 31;

    pub(crate) const fn unpack(self) -> TimerOwner {
        if self.0 & Self::EXCHANGE != 0 {
            TimerOwner::Exchange(ExchangeKey::from_bits(self.0 & !Self::EXCHANGE))
        } else if self.0 & Self::HANDSHAKE != 0 {
            TimerOwner::Handshake(ConnKey::from_bits(self.0 & !Self::HANDSHAKE))
        } else {
            TimerOwner::Connection(ConnKey::from_bits(self.0))
        }
    }
}

impl From<TimerOwner> for PackedOwner {
    fn from(owner: TimerOwner) -> Self {
        match owner {
            TimerOwner::Connection(key) => Self(key.to_bits()),
            TimerOwner::Exchange(key) => Self(key.to_bits() | Self::EXCHANGE),
            TimerOwner::Handshake(key) => Self(key.to_bits() | Self::HANDSHAKE),
        }
    }
}
