//! Hop 4 for streams of HTTP/2: what comes on one goes to its exchange, and upstream connections
//! are offered while they have free slots.

use telemetry::cause::Cause;
use wire::h2::{ErrorCode, MessageError, RequestForm, Scheme, StreamError, head_len_max};
use wire::head::{RequestHead, ResponseHead};

use crate::connection::codec::elements::Slot;
use crate::connection::codec::http2::{Stream, StreamInbox, Tail, Watch};
use crate::connection::connections::Connections;
use crate::connection::{ConnKey, ExchangeKey, StreamKey};
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::{Exchange, Request, Stage};
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
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
    fn pass_on(&self, from: StreamKey, n: usize, connections: &mut Connections) {
        let is_behind =
            self.opposite_of(from, connections).is_some_and(|to| connections.is_held_back(to));
        match connections.stream_mut(from).filter(|_| is_behind) {
            Some(stream) => stream.owed += u32::try_from(n).unwrap_or(u32::MAX),
            None => connections.take(from, n),
        }
    }
}

impl Proxy {
    /// Puts an exchange on a stream that was just opened.
    pub(crate) fn begin_stream(
        &mut self,
        key: ConnKey,
        slot: Slot,
        request: Request,
        now: Time,
    ) -> Option<ExchangeKey> {
        let downstream = self.connections.get(key)?.downstream()?;
        let state = self.listen.listeners.get(downstream.listener);
        let (snapshot, place) = state.pin();
        let at = StreamKey { connection: key, slot };
        let exchange = self.begin_exchange(at, snapshot, place, request, now);
        let multiplex = self.connections.multiplex_mut(key)?;
        multiplex.insert(Stream::at(slot, exchange));
        multiplex.watches.clear(Watch::Idle);
        Some(exchange)
    }

    pub(crate) fn on_stream_data(&mut self, from: StreamKey, bytes: &[u8], now: Time) {
        let is_downstream =
            self.connections.get(from.connection).is_some_and(|c| c.downstream().is_some());
        let Some(key) = self.connections.exchange_of(from) else {
            return self.connections.take(from, bytes.len());
        };
        if !is_downstream {
            self.on_response_data(key, bytes, now);
            return self.exchanges.pass_on(from, bytes.len(), &mut self.connections);
        }
        let Some(exchange) = self.exchanges.get(key) else { return };
        if matches!(exchange.stage, Stage::Finishing) {
            // Its exchange does not want it any more.
            return self.connections.take(from, bytes.len());
        }
        let takes = exchange.takes_request_data();
        let Some(stream) = self.connections.stream_mut(from) else { return };
        if takes && stream.inbox.is_none() {
            self.on_request_data(key, bytes, now);
            return self.exchanges.pass_on(from, bytes.len(), &mut self.connections);
        }
        let mut body = match stream.inbox.take() {
            Some(inbox) => self.cx.buffers.widen(inbox.body, bytes.len()),
            None => self.cx.buffers.lease(bytes.len()),
        };
        body.push(bytes);
        if let Some(stream) = self.connections.stream_mut(from) {
            stream.inbox = Some(Box::new(StreamInbox { body, tail: Tail::Open }));
        }
    }

    pub(crate) fn on_stream_end(&mut self, from: StreamKey, tail: Tail, now: Time) {
        let Some(key) = self.connections.exchange_of(from) else { return };
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let takes = exchange.takes_request_data();
        let is_finishing = matches!(exchange.stage, Stage::Finishing);
        let Some(connection) = self.connections.get_mut(from.connection) else { return };
        if connection.upstream().is_some() {
            return self.on_response_end(from, key, trailers_of(&tail), true, now);
        }
        if is_finishing {
            exchange.request.is_complete = true;
            return;
        }
        let Some(stream) = self.connections.stream_mut(from) else { return };
        match &mut stream.inbox {
            Some(inbox) => inbox.tail = tail,
            None if takes => self.on_request_end(key, trailers_of(&tail), now),
            None => {
                let body = self.cx.buffers.lease(0);
                if let Some(stream) = self.connections.stream_mut(from) {
                    stream.inbox = Some(Box::new(StreamInbox { body, tail }));
                }
            }
        }
    }

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

    pub(crate) fn on_stream_reset(&mut self, at: StreamKey, code: ErrorCode, now: Time) {
        let Some(key) = self.connections.exchange_of(at) else { return };
        let is_downstream =
            self.connections.get(at.connection).is_some_and(|c| c.downstream().is_some());
        if is_downstream {
            self.exchanges.note_detail(key, || Detail::of_code(code));
            self.abort(key, Cause::RequestCancelled, now);
        } else if code == ErrorCode::REFUSED_STREAM {
            self.fail_attempt(key, Cause::StreamRefused, now);
        } else {
            self.exchanges.note_detail(key, || Detail::of_code(code));
            self.lose_upstream(key, Cause::StreamReset, now);
        }
    }

    pub(crate) fn on_stream_failed(&mut self, at: StreamKey, error: StreamError, now: Time) {
        let is_downstream =
            self.connections.get(at.connection).is_some_and(|c| c.downstream().is_some());
        let key = self.connections.exchange_of(at);
        if let Some(key) = key {
            self.exchanges.note_detail(key, || Detail::of(&error));
        }
        match (key, is_downstream) {
            (Some(key), true) => self.abort(key, Cause::RequestInvalid, now),
            (Some(key), false) => {
                let cause = match error {
                    StreamError::HeadTooLarge => Cause::ResponseHeadTooLarge,
                    _ => Cause::ResponseInvalid,
                };
                self.fail(key, cause, now);
            }
            (None, _) => {}
        }
    }

    /// A request breaks a rule that concerns nothing but it, in its head or behind it. It is answered,
    /// so that its client need not guess, or ask again; the codec resets the stream behind the answer.
    pub(crate) fn on_malformed_request(
        &mut self,
        at: StreamKey,
        error: MessageError,
        is_complete: bool,
        now: Time,
    ) {
        if let Some(key) = self.connections.exchange_of(at) {
            self.exchanges.note_detail(key, || Detail::of(&error));
            return self.fail(key, Cause::RequestBodyInvalid, now);
        }
        let request = Request { is_complete, ..Request::NONE };
        self.connections.count_request(at.connection, 0);
        if let Some(key) = self.begin_stream(at.connection, at.slot, request, now) {
            self.exchanges.note_detail(key, || Detail::of(&error));
            self.fail(key, cause_of_malformed(error), now);
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
    /// A response's head came on a stream.
    pub(crate) fn on_stream_response(
        &mut self,
        upstream: StreamKey,
        key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        is_end: bool,
        now: Time,
    ) {
        self.on_first_byte(upstream, key, now);
        let asks_upgrade =
            self.exchanges.get(key).is_some_and(|exchange| exchange.request.asks_upgrade);
        // RFC 8441, section 5, and RFC 9110, section 9.3.6: any of these grants it.
        if asks_upgrade && matches!(head.status(), 200..=299) && !is_end {
            self.on_switching_protocols(upstream, key, head, now);
        } else {
            self.on_response_head(upstream, key, head, (0, is_end), now);
        }
    }

    /// The upstream has said something to an exchange.
    pub(crate) fn on_first_byte(&mut self, upstream: StreamKey, key: ExchangeKey, now: Time) {
        if let Some(exchange) = self.exchanges.get_mut(key)
            && !exchange.record.stamps.first_byte.is_set()
        {
            exchange.record.stamps.first_byte = now;
        }
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if let Some(multiplex) = connection.codec.multiplex_mut()
            && let Some(stream) = multiplex.stream_mut(upstream.slot)
        {
            stream.forget_request(&mut self.cx.buffers);
        }
        if let Some(role) = connection.upstream() {
            self.upstream.pools.on_answered(role.endpoint, &connection.peer);
        }
    }
}

/// What a head that breaks a rule is called, in the words of HTTP/1.
const fn cause_of_malformed(error: MessageError) -> Cause {
    match error {
        MessageError::AuthorityInvalid | MessageError::HostRepeated => Cause::RequestHostInvalid,
        MessageError::PathInvalid => Cause::RequestTargetInvalid,
        MessageError::ContentLengthInvalid
        | MessageError::ContentLengthWrong
        | MessageError::TeInvalid => Cause::RequestFramingInvalid,
        MessageError::ConnectionField
        | MessageError::DataMisplaced
        | MessageError::EndMissing
        | MessageError::FieldNameInvalid
        | MessageError::FieldValueInvalid
        | MessageError::MethodInvalid
        | MessageError::PseudoFieldMisplaced
        | MessageError::PseudoFieldMissing
        | MessageError::PseudoFieldRepeated
        | MessageError::PseudoFieldUnknown
        | MessageError::SchemeInvalid
        | MessageError::StatusInvalid
        | MessageError::TrailerForbidden => Cause::RequestInvalid,
    }
}

fn trailers_of(tail: &Tail) -> &[u8] {
    match tail {
        Tail::Trailers(section) => section,
        Tail::Open | Tail::End | Tail::Reset(_) => &[],
    }
}
