//! What one connection may have done in one turn of the worker, and what waits for the next.
//!
//! A read brings up to 64 KiB, which is room for thousands of requests. Beginning, cancelling or
//! answering one costs some 10 to 40 us, so that without a bound one client could keep the worker
//! from all others for a good part of a second. What is beyond the bound waits in the connection's
//! inbox, nothing more is read meanwhile, and the worker goes on with it in its next turn, behind
//! the events of others.

use std::collections::VecDeque;

use crate::connection::codec::elements::{Element, Invalid};
use crate::connection::codec::http1::{Http1, Receive};
use crate::connection::connections::Connections;
use crate::connection::{ConnKey, Connection};
use crate::proxy::Proxy;
use crate::tools::time::Time;

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
    keys: VecDeque<ConnKey>,
    /// Counts turns.
    turn: u32,
}

/// Whether a connection of HTTP/1 has a request, or its beginning, that waits for the next turn. No more
/// is read of it meanwhile, and not its end either.
pub(crate) fn has_request_waiting(connection: &Connection) -> bool {
    // A head that was looked at has begun.
    matches!(connection.codec.http1(), Some(Http1 { receive: Receive::Head(_), .. }))
        && !connection.is_lingering()
        && connection.inbox.is_some()
        && connection.downstream().is_some_and(|downstream| {
            downstream.exchange.is_none() && !downstream.head_began.is_set()
        })
}

/// What a connection of HTTP/2 has begun in a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnShare {
    turn: u32,
    requests: u16,
    /// Whether it waits for a further turn.
    is_held: bool,
}

impl TurnShare {
    /// Whether it waits for a further turn.
    pub(crate) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// A request begins, whose head has so many bytes.
    fn on_request(&mut self, turn: u32, bytes: usize) {
        if self.turn != turn {
            (self.turn, self.requests) = (turn, 0);
        }
        let count = u16::try_from(1 + bytes / HEAD_BYTES).unwrap_or(u16::MAX);
        self.requests = self.requests.saturating_add(count);
    }

    const fn is_spent(&self, turn: u32) -> bool {
        self.turn == turn && self.requests >= REQUESTS_PER_TURN_MAX
    }
}

impl Connections {
    /// Lets a connection wait for the next turn.
    pub(crate) fn hold_back(&mut self, key: ConnKey) {
        self.held_back.keys.push_back(key);
    }

    /// Counts an element of a stream of HTTP/2: one that begins an exchange by the bytes of its head, one
    /// that ends it before its time as much as another request.
    #[inline]
    pub(crate) fn count(&mut self, key: ConnKey, element: &Element<'_>, has_exchange: bool) {
        let bytes = match element {
            Element::Request { head, .. } => head.block().len(),
            Element::Invalid { error: Invalid::Stream(_), .. } | Element::Reset { .. } => 0,
            Element::Invalid { .. } if !has_exchange => 0,
            _ => return,
        };
        let turn = self.held_back.turn;
        if let Some(multiplex) = self.multiplex_mut(key) {
            multiplex.share.on_request(turn, bytes);
        }
    }

    /// Whether a connection of HTTP/2 has to wait for the next turn; then it does.
    pub(crate) fn is_share_spent(&mut self, key: ConnKey) -> bool {
        let turn = self.held_back.turn;
        let Some(multiplex) = self.multiplex_mut(key) else { return false };
        if !multiplex.share.is_held && multiplex.share.is_spent(turn) {
            multiplex.share.is_held = true;
            self.hold_back(key);
            return true;
        }
        multiplex.share.is_held
    }
}

impl Proxy {
    /// A turn of the worker begins. Gives how often to call [`Proxy::resume_held`] at its end.
    pub fn begin_turn(&mut self) -> usize {
        self.connections.held_back.turn = self.connections.held_back.turn.wrapping_add(1);
        self.connections.held_back.keys.len()
    }

    /// Whether some connection waits for the next turn.
    #[must_use]
    pub fn has_held(&self) -> bool {
        !self.connections.held_back.keys.is_empty()
    }

    /// Goes on with the connection that has waited longest.
    pub fn resume_held(&mut self, now: Time) {
        let Some(key) = self.connections.held_back.keys.pop_front() else { return };
        if let Some(multiplex) = self.connections.multiplex_mut(key) {
            multiplex.share.is_held = false;
        }
        self.resume_inbox(key, now);
        self.settle(now);
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
