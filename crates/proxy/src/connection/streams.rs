//! Hop 4 for streams of HTTP/2: what comes on one goes to its exchange, and upstream connections
//! are offered while they have free slots.

use wire::h2::{RequestForm, Scheme, head_len_max};
use wire::head::RequestHead;

use crate::connection::codec::streams::{Stream, StreamInbox, Tail};
use crate::connection::connections::Connections;
use crate::connection::{ConnectionRole, UpstreamState};
use crate::cx::Cx;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::ops::Op;

/// Streams.
impl Connections {
    /// The exchange of a stream.
    pub(crate) fn exchange_of(&self, at: StreamKey) -> Option<ExchangeKey> {
        let connection = self.get(at.connection)?;
        if at.is_alone() {
            return connection.exchange();
        }
        Some(connection.codec.multiplex()?.streams.get(at.slot)?.exchange)
    }

    /// Makes a connection, or a stream of one, that of this exchange.
    pub(crate) fn join(&mut self, side: StreamKey, key: ExchangeKey) {
        if let Some(stream) = self.stream_mut(side) {
            stream.exchange = key;
            return;
        }
        match self.get_mut(side.connection).map(|connection| &mut connection.role) {
            Some(ConnectionRole::Downstream(role)) => role.exchange = Some(key),
            Some(ConnectionRole::Upstream(role)) => match &mut role.state {
                UpstreamState::Connecting { exchange, .. } => *exchange = Some(key),
                UpstreamState::Busy { exchange } => *exchange = key,
                UpstreamState::Idle(_) | UpstreamState::Shared { .. } => {}
            },
            None => {}
        }
    }

    pub(crate) fn stream_mut(&mut self, at: StreamKey) -> Option<&mut Stream> {
        self.multiplex_mut(at.connection)?.streams.get_mut(at.slot)
    }

    /// The peer gets back what it sent of its window.
    pub(crate) fn take(&mut self, from: StreamKey, n: usize) {
        if let Some(multiplex) = self.multiplex_mut(from.connection) {
            multiplex.on_taken(from.slot, n);
        }
    }

    /// Keeps what came on a stream, a piece of a body or its end, until its exchange takes it.
    pub(crate) fn keep(&mut self, from: StreamKey, bytes: &[u8], tail: Tail, cx: &mut Cx) {
        let Some(stream) = self.stream_mut(from) else { return };
        let mut body = match stream.inbox.take() {
            Some(inbox) => cx.buffers.widen(inbox.body, bytes.len()),
            None => cx.buffers.lease(bytes.len()),
        };
        body.push(bytes);
        stream.inbox = Some(Box::new(StreamInbox { body, tail }));
    }

    /// The other side has room again for what comes from here.
    pub(crate) fn on_caught_up(&mut self, source: StreamKey, cx: &mut Cx) {
        if source.is_alone() {
            return cx.ops.push_back(Op::Read(source.connection));
        }
        let Some(stream) = self.stream_mut(source) else { return };
        let owed = std::mem::take(&mut stream.owed);
        self.take(source, owed as usize);
        self.queue_send(source.connection, cx);
    }

    pub(crate) fn exchanges_on(&self, key: ConnKey) -> Vec<ExchangeKey> {
        let Some(connection) = self.get(key) else { return Vec::new() };
        match connection.multiplex() {
            Some(multiplex) => multiplex.streams.exchanges(),
            None => connection.exchange().into_iter().collect(),
        }
    }

    pub(crate) fn open_stream(
        &mut self,
        upstream: ConnKey,
        head: &RequestHead<'_>,
        form: RequestForm,
        is_end: bool,
        cx: &mut Cx,
    ) -> Option<u32> {
        let connection = self.get_mut(upstream)?;
        // Of this hop: what the client used stands in the forwarded fields.
        let scheme = if connection.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let http2 = connection.codec.multiplex_mut()?.http2_mut()?;
        http2.frame_control(&mut connection.outbox, &mut cx.buffers);
        let mut opened = None;
        connection.outbox.push_with(head_len_max(head), &mut cx.buffers, |buffer| {
            opened = http2.codec.send_request(head, scheme, form, is_end, buffer);
        });
        opened
    }
}

impl Connections {
    /// Opens a stream for a call, in whose encoded head its number is changed.
    pub(crate) fn open_call(&mut self, upstream: ConnKey, head: &mut [u8]) -> Option<u32> {
        self.multiplex_mut(upstream)?.rpc_mut()?.open(head)
    }
}
