//! Which keep-alive PINGs the peer of a connection of HTTP/2 is sent: its listener says that, or its cluster.

use std::time::Duration;

use config::snapshot::Ping;

use crate::connection::{Connection, ConnectionRole};
use crate::cx::Cx;
use crate::listen::Listen;

impl Listen {
    /// The silence after which this connection's peer is sent a keep-alive PING, if it is.
    pub(crate) fn silence(&self, connection: &Connection, cx: &Cx) -> Option<Duration> {
        self.ping_of(connection, cx).map(|ping| ping.interval)
    }

    pub(crate) fn ping_of(&self, connection: &Connection, cx: &Cx) -> Option<Ping> {
        if connection.multiplex().is_some_and(|multiplex| multiplex.rpc().is_some()) {
            return None;
        }
        match &connection.role {
            ConnectionRole::Downstream(downstream) => {
                self.listeners.get(downstream.listener).listener().http2.ping
            }
            ConnectionRole::Upstream(upstream) => cx.snapshot.cluster(upstream.cluster)?.http2.ping,
        }
    }
}
