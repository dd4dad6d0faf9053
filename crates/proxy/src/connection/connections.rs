//! The connections of a worker: their table, and what is counted over all of them.

use telemetry::cause::Cause;
use telemetry::events::ConnectionClosed;
use wire::buffer::Buffer;

use crate::agenda::Note;
use crate::connection::codec::Codec;
use crate::connection::handshake_slots::HANDSHAKES_TOGETHER;
use crate::connection::handshake_slots::HandshakeSlots;
use crate::connection::signers::Signers;
use crate::connection::turns::HeldBack;
use crate::connection::{Connection, ConnectionRole, Life};
use crate::cx::Cx;
use crate::keys::OfConnection;
use crate::keys::{ConnKey, label};
use crate::listen::Listen;
use crate::listen::clients::Part;
use crate::ops::Op;
use crate::timers::TimerOwner;
use crate::tools::detail::Detail;
use crate::tools::slab::Slab;
use crate::tools::time::Time;

/// The connections of a worker, either way.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) table: Slab<Connection, OfConnection>,
    /// Connections that had their share of this turn.
    pub(crate) held_back: HeldBack,
    /// Handshakes with downstreams that are going on.
    pub(crate) handshakes: HandshakeSlots,
    /// Downstreams that a handshake is expected of, and that were silent so far.
    pub(crate) handshakes_expected: u32,
    /// How many of them may still go on before others have their turn.
    pub(crate) handshakes_admitted: u32,
    /// Handshakes with upstreams that are going on, or to come when the connection stands.
    pub(crate) upstream_handshakes: u32,
    pub(crate) signers: Signers,
    /// The slot of the next connection to look at for what it need not keep.
    pub(crate) cool_next: u32,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            table: Slab::default(),
            held_back: HeldBack::default(),
            handshakes: HandshakeSlots::default(),
            handshakes_expected: 0,
            handshakes_admitted: HANDSHAKES_TOGETHER,
            upstream_handshakes: 0,
            signers: Signers::default(),
            cool_next: 0,
        }
    }
}

impl Connections {
    #[inline]
    pub(crate) fn get(&self, key: ConnKey) -> Option<&Connection> {
        self.table.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: ConnKey) -> Option<&mut Connection> {
        self.table.get_mut(key)
    }

    /// Those in `count` slots from `first` on, and the slot to go on with.
    pub(crate) fn slots(
        &self,
        first: u32,
        count: u32,
    ) -> (impl Iterator<Item = (ConnKey, &Connection)>, Option<u32>) {
        self.table.range(first, count)
    }

    pub(crate) fn insert(&mut self, connection: Connection) -> ConnKey {
        self.table.insert(connection)
    }

    pub(crate) fn remove(&mut self, key: ConnKey) -> Option<Connection> {
        self.table.remove(key)
    }

    /// Notes why an upstream connection is about to fail, or to take no more.
    pub(crate) fn note_reason(&mut self, key: ConnKey, detail: impl FnOnce() -> Detail) {
        if let Some(upstream) = self.get_mut(key).and_then(Connection::upstream_mut) {
            upstream.reason = Some(Box::new(detail()));
        }
    }

    /// Notes how an upstream ended its connection, if it has not said why and anything waits for it.
    pub(crate) fn note_end(&mut self, key: ConnKey, how: &str) {
        let Some(connection) = self.get(key) else { return };
        // While its peer has not said what it takes, requests without a stream may wait for it.
        let is_awaited = connection.exchange().is_some()
            || connection
                .multiplex()
                .is_some_and(|it| !it.streams.is_empty() || !it.has_peer_settings());
        let is_explained = connection.upstream().is_none_or(|upstream| upstream.reason.is_some());
        if is_explained || !is_awaited || how.is_empty() {
            return;
        }
        let is_reused = connection.requests > 1 && connection.multiplex().is_none();
        let since = if is_reused { ", on a connection that was used before" } else { "" };
        self.note_reason(key, || Detail::of(&format_args!("{how}{since}")));
    }

    /// Whether the newest snapshot has removed the endpoint, or the cluster, of this upstream connection, or
    /// has endpoints spoken to in another way than on it.
    pub(crate) fn is_of_former(&self, key: ConnKey, cx: &Cx) -> bool {
        let upstream = self.get(key).and_then(Connection::upstream);
        upstream.is_some_and(|upstream| {
            let cluster = cx.snapshot.cluster(upstream.cluster);
            cluster.is_none_or(|cluster| !upstream.is_of(cluster))
        })
    }

    pub(crate) fn insert_connection(
        &mut self,
        role: ConnectionRole,
        codec: Codec,
        now: Time,
        cx: &mut Cx,
    ) -> ConnKey {
        // The timer wants its owner's key, the connection its timer's.
        let placeholder = cx.timers.insert(TimerOwner::Connection(ConnKey::from_bits(0)).into());
        let key = self.insert(Connection::new(role, codec, placeholder, now));
        cx.timers.set_owner(placeholder, TimerOwner::Connection(key).into());
        key
    }

    /// Takes a connection out, with its timer and its buffers.
    pub(crate) fn remove_connection(&mut self, key: ConnKey, cx: &mut Cx) -> Option<Connection> {
        let mut connection = self.remove(key)?;
        cx.timers.remove(connection.timer);
        self.end_handshake(&mut connection, cx);
        if connection.awaits_signature() {
            self.signers.cancel(key);
        }
        if let Some(tls) = connection.tls.as_deref_mut() {
            tls.clear(&mut cx.buffers);
        }
        connection.outbox.clear(&mut cx.buffers);
        for stream in connection.multiplex_mut().into_iter().flat_map(|all| all.streams.iter_mut())
        {
            stream.clear(&mut cx.buffers);
        }
        if let Some(inbox) = connection.inbox.take() {
            cx.buffers.give_back(inbox);
        }
        Some(connection)
    }

    /// Closes a downstream connection that has no exchange any more.
    pub(crate) fn close_downstream(
        &mut self,
        key: ConnKey,
        cause: Option<Cause>,
        now: Time,
        listen: &mut Listen,
        cx: &mut Cx,
    ) {
        let would_end_early = self.would_end_early(key);
        if !would_end_early {
            self.send_close_notify(key, cx);
        }
        let Some(connection) = self.remove_connection(key, cx) else {
            return;
        };
        let ConnectionRole::Downstream(downstream) = &connection.role else {
            unreachable!("only downstream connections are closed here");
        };
        let failure = connection.codec.multiplex().and_then(|multiplex| multiplex.failure);
        let refusal = (downstream.life == Life::Refused).then_some(Cause::TlsHandshakeFailed);
        let cause = refusal.or(cause).or(failure);
        let undelivered_bytes = match &downstream.lingering {
            Some(lingering) if cause == Some(Cause::ResponseUndelivered) => lingering.undelivered(),
            _ => 0,
        };
        if cx.emitter.is_debug() {
            cx.debug_closed(key, &connection, cause, now);
        }
        cx.emitter.connection_closed(&ConnectionClosed {
            listener: label(listen.listeners.get(downstream.listener).id.0),
            cause,
            lifetime: now.nanos_since(connection.opened),
            requests: connection.requests,
            undelivered_bytes,
        });
        listen.listeners.on_closed(downstream.listener);
        listen.clients.remove(downstream.client, Part::Connection);
        cx.ops.push_back(if would_end_early { Op::Reset(key) } else { Op::Close(key) });
        if listen.has_drained(cx) {
            cx.agenda.push(Note::CloseUpstreams);
        }
        // A listener that is gone may have been the last to need its configuration.
        if cx.has_former_snapshots() {
            cx.retire_former();
        }
    }

    pub(crate) fn would_end_early(&self, key: ConnKey) -> bool {
        self.get(key).is_some_and(Connection::would_end_early)
    }

    /// Queues a send, once.
    pub(crate) fn queue_send(&mut self, key: ConnKey, cx: &mut Cx) {
        if let Some(connection) = self.get_mut(key)
            && !connection.is_flush_queued
        {
            connection.is_flush_queued = true;
            cx.ops.push_back(Op::Send(key));
        }
    }

    /// What waits behind the records that are sent has to be sealed.
    pub(crate) fn seal_more(&mut self, key: ConnKey, cx: &mut Cx) {
        let may_seal_more = |connection: &Connection| {
            connection.tls.as_ref().is_some_and(|tls| tls.outbox().is_empty())
                && !connection.is_sent()
        };
        if self.get(key).is_some_and(may_seal_more) {
            self.queue_send(key, cx);
        }
    }

    pub(crate) fn put_inbox(&mut self, key: ConnKey, inbox: Buffer, cx: &mut Cx) {
        match self.get_mut(key) {
            Some(connection) if !inbox.is_empty() => connection.inbox = Some(inbox),
            _ => cx.buffers.give_back(inbox),
        }
    }
}
