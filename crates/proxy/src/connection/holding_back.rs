//! Which connections wait for the next turn.

use crate::connection::Connection;
use crate::connection::codec::elements::{Element, Invalid};
use crate::connection::codec::http1::{Http1, Receive};
use crate::connection::connections::Connections;
use crate::keys::ConnKey;

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
