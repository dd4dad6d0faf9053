//! A connection that has had its share of a turn goes on in the next.

use crate::proxy::Proxy;
use crate::tools::time::Time;

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
        if self.is_leaving(key) {
            self.connections.held_back.keys.push_back(key);
            return;
        }
        if let Some(multiplex) = self.connections.multiplex_mut(key) {
            multiplex.share.is_held = false;
        }
        self.resume_inbox(key, now);
        self.settle(now);
    }
}
