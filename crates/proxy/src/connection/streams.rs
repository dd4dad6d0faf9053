//! Hop 4 for streams of HTTP/2: what comes on one goes to its exchange, and upstream connections
//! are offered while they have free slots.

use wire::h2::{ErrorCode, RequestForm, Scheme, head_len_max};
use wire::head::RequestHead;

use crate::connection::codec::http2::{Stream, StreamInbox, Tail};
use crate::connection::connections::Connections;
use crate::connection::{ConnKey, ExchangeKey, StreamKey};
use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::exchanges::Exchanges;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// Streams.
impl Connections {
    /// The exchange of a stream.
    pub(crate) fn exchange_of(&self, at: StreamKey) -> Option<ExchangeKey> {
        let connection = self.get(at.connection)?;
        if at.is_alone() {
            return connection.exchange();
        }
        Some(connection.codec.multiplex()?.stream(at.slot)?.exchange)
    }

    pub(crate) fn stream_mut(&mut self, at: StreamKey) -> Option<&mut Stream> {
        self.multiplex_mut(at.connection)?.stream_mut(at.slot)
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
            Some(multiplex) => multiplex.exchanges(),
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
        let multiplex = connection.codec.multiplex_mut()?;
        multiplex.frame_control(&mut connection.outbox, &mut cx.buffers);
        let mut opened = None;
        connection.outbox.push_with(head_len_max(head), &mut cx.buffers, |buffer| {
            opened = multiplex.codec.send_request(head, scheme, form, is_end, buffer);
        });
        opened
    }
}

impl Exchanges {
    /// As [`Connections::take`], once the other side has room again.
    #[inline]
    pub(crate) fn pass_on(&self, from: StreamKey, n: usize, connections: &mut Connections) {
        if from.is_alone() {
            // Without a window, it is not read while the other side has no room.
            return;
        }
        let is_behind =
            self.opposite_of(from, connections).is_some_and(|to| connections.is_held_back(to));
        match connections.stream_mut(from).filter(|_| is_behind) {
            Some(stream) => stream.owed += u32::try_from(n).unwrap_or(u32::MAX),
            None => connections.take(from, n),
        }
    }
}

impl Proxy {
    /// Hands an exchange what came while it could not take it.
    pub(crate) fn resume_stream(&mut self, from: StreamKey, now: Time) {
        let Some(key) = self.connections.exchange_of(from) else { return };
        let takes = |exchange: &Exchange| exchange.takes_request_data();
        if !self.exchanges.get(key).is_some_and(takes) {
            return;
        }
        let Some(inbox) = self.connections.stream_mut(from).and_then(|stream| stream.inbox.take())
        else {
            return;
        };
        let StreamInbox { body, tail } = *inbox;
        if !body.is_empty() {
            self.on_request_data(key, body.filled(), now);
            self.exchanges.pass_on(from, body.len(), &mut self.connections);
            // No other send may be due that carries the peer's window update.
            self.connections.queue_send(from.connection, &mut self.cx);
        }
        self.cx.buffers.give_back(body);
        if tail != Tail::Open {
            self.on_request_end(key, trailers_of(&tail), now);
        }
    }

    /// Takes a stream from its exchange, and resets it if it is open with this code.
    pub(crate) fn drop_stream(&mut self, at: StreamKey, code: ErrorCode, now: Time) {
        let Some(multiplex) = self.connections.multiplex_mut(at.connection) else { return };
        let Some(mut stream) = multiplex.reset(at.slot, code) else { return };
        stream.clear(&mut self.cx.buffers);
        self.after_stream(at.connection, now);
    }

    /// A stream is gone: there is room for another.
    pub(crate) fn after_stream(&mut self, key: ConnKey, now: Time) {
        if let Some(cluster) = self.upstream.offer(key, &mut self.connections, &mut self.cx) {
            self.upstream.note_room(cluster, &mut self.cx);
        }
        let Some(multiplex) = self.connections.multiplex_mut(key) else { return };
        if multiplex.has_work() {
            self.connections.queue_send(key, &mut self.cx);
        }
        self.await_streams(key, now);
    }
}

/// The upstream side.
impl Proxy {
    /// The upstream has said something to an exchange.
    pub(crate) fn on_first_byte(&mut self, upstream: StreamKey, key: ExchangeKey, now: Time) {
        if let Some(exchange) = self.exchanges.get_mut(key)
            && !exchange.record.stamps.first_byte.is_set()
        {
            exchange.record.stamps.first_byte = now;
        }
        let Some(connection) = self.connections.get(upstream.connection) else { return };
        if let Some(role) = connection.upstream() {
            self.upstream.pools.on_answered(role.endpoint, &connection.peer);
        }
    }
}

fn trailers_of(tail: &Tail) -> &[u8] {
    match tail {
        Tail::Trailers(section) => section,
        Tail::Open | Tail::End | Tail::Reset(_) => &[],
    }
}
