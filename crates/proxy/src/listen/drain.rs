//! The end of a worker, or of a listener: who learns of it, who may finish, and until when.

use std::time::Duration;

use config::chains::ConnectionFacts;
use config::snapshot::Detected;
use wire::rpc::RpcName;

use crate::connection::codec::{Codec, Opening};
use crate::connection::connections::Connections;
use crate::connection::transport::Tls;
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

    /// Gives connections that met what is lost, or would meet something new in `snapshot`, to the listener that still has what they
    /// met. Says whether there are any.
    pub(crate) fn move_to_draining(
        &mut self,
        lost: &Lost,
        snapshot: &Pinned,
        connections: &mut Connections,
    ) -> bool {
        let id = self.listeners.get(lost.to).id;
        let listener = snapshot.listener(id).map(|(_, listener)| listener);
        let listener = listener.filter(|_| lost.has_new());
        let is_concerned = |connection: &Connection| {
            // What such a connection is going to meet is not decided yet.
            let is_new = matches!(
                connection.opening(),
                Some(Opening::ProxyHeader | Opening::Detect | Opening::Hello)
            ) && connection.tls.is_none();
            let downstream = connection.downstream().filter(|_| !is_new);
            downstream.is_some_and(|downstream| {
                let has_new = || {
                    let listener = listener?;
                    let facts = facts_of(connection)?;
                    Some(lost.has_new_for(listener, downstream.chain, &facts))
                };
                // Its chain was chosen before what it is going to say is known.
                let is_unread = match connection.opening() {
                    Some(Opening::Handshake) => true,
                    Some(Opening::Detect) => connection.tls.is_some(),
                    _ => false,
                };
                downstream.listener == lost.from
                    && (lost.concerns(downstream.chain)
                        || is_unread && lost.has_new()
                        || has_new().unwrap_or_default())
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
        !keys.is_empty()
    }
}

/// What is known of an open connection; none if that says nothing of which chain it would meet, or it brings no further requests.
fn facts_of(connection: &Connection) -> Option<ConnectionFacts<'_>> {
    let tls = connection.tls.as_deref();
    let (protocol, agreed): (_, &[&[u8]]) = match &connection.codec {
        Codec::Http1(_) => (Detected::Http1, &[b"http/1.1"]),
        Codec::Shared(codec) => match codec.rpc() {
            Some(rpc) => (Detected::Rpc(RpcName::new(rpc.protocol.name())?), &[]),
            None => (Detected::Http2, &[b"h2"]),
        },
        Codec::Opening(_) | Codec::Bytes(_) => return None,
    };
    Some(ConnectionFacts {
        protocol: Some(if tls.is_some() { Detected::Tls } else { protocol }),
        server_name: tls.and_then(Tls::server_name),
        // What was agreed upon was offered.
        alpn: if tls.is_some() { agreed } else { &[] },
        ..connection.address_facts()
    })
}

impl Listen {
    /// Whether nothing is left to wait for, once a drain began.
    pub(crate) fn has_drained(&self, cx: &Cx) -> bool {
        cx.drain_deadline.is_some() && self.listeners.open == 0
    }
}
