//! What one connection may have done in one turn of the worker, and what waits for the next.
//!
//! A read brings up to 64 KiB, which is room for thousands of requests. Beginning, cancelling or
//! answering one costs some 10 to 40 us, so that without a bound one client could keep the worker
//! from all others for a good part of a second. What is beyond the bound waits in the connection's
//! inbox, nothing more is read meanwhile, and the worker goes on with it in its next turn, behind
//! the events of others.

use std::collections::VecDeque;

use crate::keys::ConnKey;

/// Requests that begin on a connection of HTTP/2 in a turn, where one that is cancelled counts twice:
/// a millisecond of work. As many as a client has streams at a time (`streams_max`), so that those
/// that come together go on together. Of HTTP/1, where each waits for the end of the one before it,
/// those that came together begin one a turn.
pub(crate) const REQUESTS_PER_TURN_MAX: u16 = 128;

/// Bytes of a head that count as one request more: what HPACK makes of a few bytes has to be copied.
const HEAD_BYTES: usize = 4 << 10;

/// Connections that had their share of this turn, each of HTTP/2 once.
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    pub(crate) keys: VecDeque<ConnKey>,
    /// Counts turns.
    pub(crate) turn: u32,
}

/// What a connection of HTTP/2 has begun in a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnShare {
    turn: u32,
    requests: u16,
    /// Whether it waits for a further turn.
    pub(crate) is_held: bool,
}

impl TurnShare {
    /// Whether it waits for a further turn.
    pub(crate) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// A request begins, whose head has so many bytes.
    pub(crate) fn on_request(&mut self, turn: u32, bytes: usize) {
        if self.turn != turn {
            (self.turn, self.requests) = (turn, 0);
        }
        let count = u16::try_from(1 + bytes / HEAD_BYTES).unwrap_or(u16::MAX);
        self.requests = self.requests.saturating_add(count);
    }

    pub(crate) const fn is_spent(&self, turn: u32) -> bool {
        self.turn == turn && self.requests >= REQUESTS_PER_TURN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_heads_count_as_several_requests() {
        for (bytes, requests) in [(100, 128), (4095, 128), (4096, 64), (60 << 10, 8)] {
            let mut share = TurnShare::default();
            let begun = (1..).take_while(|_| {
                let is_spent = share.is_spent(7);
                share.on_request(7, bytes);
                !is_spent
            });
            assert_eq!(begun.count(), requests, "{bytes}");
            assert!(!share.is_spent(8), "another turn");
        }
    }
}
