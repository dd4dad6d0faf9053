//! The end of a worker, or of a listener: who learns of it, who may finish, and until when.

use std::time::Duration;

use crate::connection::codec::Opening;
use crate::connection::connections::Connections;
use crate::connection::{Connection, Downstream};
use crate::cx::Cx;
use crate::listen::Listen;
use crate::listen::listeners::{ListenerKey, Lost};
use crate::tools::pinned::Pinned;
use crate::tools::time::Time;

/// How long a kept connection may stay silent once a drain began. Its client may be about to ask,
/// and is answered with `connection: close` then; a silent one shall not hold up the drain.
pub(crate) const DRAIN_IDLE: Duration = Duration::from_secs(5);

impl Listen {
    /// Whether connections of this downstream end with their exchange.
    pub(crate) fn is_draining(&self, downstream: &Downstream, cx: &Cx) -> bool {
        cx.drain_deadline.is_some() || self.listeners.get(downstream.listener).is_draining()
    }
}

impl Listen {
    /// Lets the connections of a listener end within the drain timeout.
    pub(crate) fn drain_listener(
        &mut self,
        listener: ListenerKey,
        snapshot: &Pinned,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        self.draining_listeners.push((listener, now + snapshot.limits.drain_timeout));
        connections.hasten_idle(now, |downstream| downstream.listener == listener, cx);
    }

    /// Gives connections that met what is lost to the listener that still has it.
    pub(crate) fn move_to_draining(&mut self, lost: &Lost, connections: &mut Connections) {
        let is_concerned = |connection: &Connection| {
            // What such a connection is going to meet is not decided yet.
            let is_new = matches!(
                connection.opening(),
                Some(Opening::ProxyHeader | Opening::Detect | Opening::Hello)
            ) && connection.tls.is_none();
            let downstream = connection.downstream().filter(|_| !is_new);
            downstream.is_some_and(|downstream| {
                downstream.listener == lost.from && lost.concerns(downstream.chain)
            })
        };
        let concerned = connections.table.iter().filter(|(_, connection)| is_concerned(connection));
        let keys: Vec<_> = concerned.map(|(key, _)| key).collect();
        for key in &keys {
            let connection = connections.get_mut(*key);
            if let Some(downstream) = connection.and_then(Connection::downstream_mut) {
                downstream.listener = lost.to;
            }
        }
        self.listeners.on_moved(lost.from, lost.to, keys.len());
    }
}

impl Listen {
    /// Whether nothing is left to wait for, once a drain began.
    pub(crate) fn has_drained(&self, cx: &Cx) -> bool {
        cx.drain_deadline.is_some() && self.listeners.open == 0
    }
}
