//! Hop 4 for HTTP/2: frames become elements of exchanges, and what exchanges say becomes frames.
//!
//! Everything an exchange does goes to a [`StreamKey`], which may be a stream or a whole
//! connection of HTTP/1; the methods that send are here for both.

use std::time::Duration;

use config::snapshot::{ClusterId, Ping};
use telemetry::cause::Cause;
use wire::h1::{self, BodyEncoder, ConnectionField, encode_reply, encode_response};
use wire::h2::{
    ConnectionError, Element, ErrorCode, Http2, StreamError, head_len_max, reply_len_max,
};
use wire::head::{Framing, RequestHead, ResponseHead, Version};

use crate::connection::{
    ConnKey, Connection, Downstream, ExchangeKey, Life, OUTBOX_BYTES_MAX, Receive, Role, Send,
    StreamKey, UpstreamState,
};
use crate::downstream::cause_of_request;
use crate::exchange::{Exchange, Request, Stage};
use crate::http2::{Framed, Multiplex, Stream, StreamInbox, Tail, Watch, downstream_limits};
use crate::ops::Op;
use crate::proxy::{DRAIN_IDLE, Proxy, UNREAD_BYTES_MAX, is_unread};
use crate::pump::TOGETHER_BYTES_MAX;
use crate::time::Time;

/// What the PING behind the first GOAWAY holds; its answer says that the peer has seen both.
const GOODBYE: [u8; 8] = *b"goodbye?";

/// How long a connection without streams keeps the storage for them.
const REST: Duration = Duration::from_secs(1);

/// What other PINGs hold.
const SIGN_OF_LIFE: [u8; 8] = *b"alive???";

/// A response's head, and how it is sent on.
pub(crate) struct Answer<'h, 'b> {
    pub(crate) head: &'h ResponseHead<'b>,
    /// The version that the client speaks.
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    pub(crate) field: ConnectionField,
    /// Bytes of the body that will follow at once.
    pub(crate) behind: usize,
    /// Whether nothing follows.
    pub(crate) is_end: bool,
}

/// Connections.
impl Proxy {
    /// Goes on with a downstream connection as HTTP/2.
    pub(crate) fn begin_http2(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let listener = self.listeners.get(downstream.listener).listener();
        let limits = downstream_limits(&listener.http, &listener.http2);
        let opening = now + listener.timeouts.request_head;
        let mut multiplex = Multiplex::new(Http2::server(&limits), limits, now);
        multiplex.watches.set(Watch::Opening, opening);
        self.set_multiplex(key, multiplex);
        // What the peer may do is the first that it is told.
        self.queue_send(key);
    }

    /// An HTTP/1 request that asked for `h2c` is stream 1 of the connection from here on.
    pub(crate) fn upgrade_to_http2(
        &mut self,
        key: ExchangeKey,
        head: &RequestHead<'_>,
        now: Time,
    ) -> bool {
        const SWITCHING: &[u8] =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
        let Some(exchange) = self.exchanges.get_mut(key) else { return false };
        let Some(settings) = head.http2_settings() else { return false };
        let (listener, connection) = (exchange.listener(), exchange.downstream.connection);
        let limits = downstream_limits(&listener.http, &listener.http2);
        let Ok(codec) = Http2::upgraded_server(settings, &limits) else { return false };
        let opening = now + listener.timeouts.request_head;
        let mut multiplex = Multiplex::new(codec, limits, now);
        multiplex.watches.set(Watch::Opening, opening);
        multiplex.insert(Stream::new(1, key));
        exchange.downstream.stream = 1;
        exchange.request.version = Version::Http2;
        let Some(open) = self.connections.get_mut(connection) else { return false };
        open.outbox.push(SWITCHING, &mut self.buffers);
        if let Some(downstream) = open.downstream_mut() {
            downstream.exchange = None;
        }
        self.set_multiplex(connection, multiplex);
        self.queue_send(connection);
        true
    }

    /// Makes a connection one of HTTP/2.
    pub(crate) fn set_multiplex(&mut self, key: ConnKey, multiplex: Multiplex) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.receive = Receive::Frames;
            connection.multiplex = Some(Box::new(multiplex));
        }
        self.arm_watches(key);
    }

    pub(crate) fn multiplex_mut(&mut self, key: ConnKey) -> Option<&mut Multiplex> {
        self.connections.get_mut(key)?.multiplex.as_deref_mut()
    }

    /// Sets what a connection is watched for, and its timer accordingly.
    fn watch(&mut self, key: ConnKey, watch: Watch, deadline: Time) {
        if let Some(multiplex) = self.multiplex_mut(key) {
            multiplex.watches.set(watch, deadline);
            self.arm_watches(key);
        }
    }

    pub(crate) fn arm_watches(&mut self, key: ConnKey) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(multiplex) = &connection.multiplex else { return };
        let (_, deadline) = multiplex.watches.first();
        // A timer that fires early looks what is next, so only an earlier one is armed.
        if deadline < self.timers.deadline(connection.timer) || !deadline.is_set() {
            self.timers.arm(connection.timer, deadline);
        }
    }

    /// Consumes frames as far as possible.
    pub(crate) fn consume_frames(&mut self, key: ConnKey, input: &[u8], now: Time) -> usize {
        let silence = self.connections.get(key).and_then(|connection| self.silence(connection));
        if let Some(multiplex) = self.multiplex_mut(key) {
            multiplex.on_sign_of_life(now, silence);
        }
        let mut scratch = std::mem::take(&mut self.http2_scratch);
        let mut at = 0;
        loop {
            let Some(connection) = self.connections.get_mut(key) else {
                at = input.len();
                break;
            };
            let is_behind = is_unread(connection);
            let is_over = !matches!(connection.receive, Receive::Frames);
            let Some(multiplex) = connection.multiplex.as_deref_mut() else { break };
            if is_behind || is_over {
                break;
            }
            let rest = input.get(at..).unwrap_or_default();
            match multiplex.codec.decode(rest, &multiplex.limits, &mut scratch) {
                Ok((n, Element::NeedMore)) => {
                    at += n;
                    break;
                }
                Ok((n, element)) => {
                    at += n;
                    self.on_element(key, element, now);
                }
                Err(error) => {
                    at = input.len();
                    self.on_http2_failed(key, error, now);
                    break;
                }
            }
        }
        self.http2_scratch = scratch;
        self.after_frames(key, now);
        at
    }

    /// What was said is answered, if need be.
    fn after_frames(&mut self, key: ConnKey, now: Time) {
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        let has_work = multiplex.has_work() || multiplex.codec.is_finished();
        if multiplex.watches.is_set(Watch::Opening) && multiplex.codec.has_peer_settings() {
            multiplex.watches.clear(Watch::Opening);
            self.await_streams(key, now);
        }
        if has_work {
            self.queue_send(key);
        }
    }

    /// The silence after which this connection's peer is asked for a sign of life, if it is.
    pub(crate) fn silence(&self, connection: &Connection) -> Option<Duration> {
        self.ping_of(connection).map(|ping| ping.interval)
    }

    fn ping_of(&self, connection: &Connection) -> Option<Ping> {
        match &connection.role {
            Role::Downstream(downstream) => {
                self.listeners.get(downstream.listener).listener().http2.ping
            }
            Role::Upstream(upstream) => self.snapshot.cluster(upstream.cluster)?.http2.ping,
        }
    }

    fn on_element(&mut self, key: ConnKey, element: Element<'_>, now: Time) {
        match element {
            Element::NeedMore => {}
            Element::Request { stream, mut head, is_end } => {
                let request = Request::of(&head, is_end);
                let exchange = self.begin_stream(key, stream, request, now);
                if let Some(exchange) = exchange {
                    self.on_request_head(exchange, &mut head, now);
                }
            }
            Element::Unacceptable { stream, error, is_end } => {
                let request = Request { is_complete: is_end, ..Request::NONE };
                let exchange = self.begin_stream(key, stream, request, now);
                if let Some(exchange) = exchange {
                    self.fail(exchange, cause_of_request(&error), now);
                }
            }
            Element::Response { stream, mut head, is_end } => {
                let upstream = StreamKey { connection: key, stream };
                if let Some(exchange) = self.exchange_of(upstream) {
                    self.on_stream_response(upstream, exchange, &mut head, is_end, now);
                }
            }
            Element::Interim { stream, head } => {
                let upstream = StreamKey { connection: key, stream };
                if let Some(exchange) = self.exchange_of(upstream) {
                    self.on_first_byte(upstream, exchange, now);
                    self.on_interim_response(exchange, &head, now);
                }
            }
            Element::Data { stream, bytes, is_end } => {
                let from = StreamKey { connection: key, stream };
                self.on_stream_data(from, bytes, now);
                if is_end {
                    self.on_stream_end(from, Tail::End, now);
                }
            }
            Element::End { stream } => {
                self.on_stream_end(StreamKey { connection: key, stream }, Tail::End, now);
            }
            Element::Trailers { stream, section } => {
                let tail = Tail::of(section);
                self.on_stream_end(StreamKey { connection: key, stream }, tail, now);
            }
            Element::Reset { stream, code } => {
                self.on_stream_reset(StreamKey { connection: key, stream }, code, now);
            }
            Element::Failed { stream, error } => {
                self.on_stream_failed(StreamKey { connection: key, stream }, error, now);
            }
            Element::WindowOpened { stream } => {
                if let Some(multiplex) = self.multiplex_mut(key) {
                    multiplex.on_window_opened(stream);
                }
            }
            Element::SettingsChanged => {
                if let Some(multiplex) = self.multiplex_mut(key) {
                    multiplex.on_window_opened(None);
                }
                if let Some(cluster) = self.offer(key) {
                    self.serve_waiting(cluster, now);
                }
            }
            Element::GoingAway { .. } => self.on_going_away(key, now),
            Element::PingAnswered { opaque } => {
                if opaque == GOODBYE {
                    self.on_goodbye(key);
                }
            }
        }
    }

    /// The peer broke a rule that the connection does not survive.
    fn on_http2_failed(&mut self, key: ConnKey, error: ConnectionError, now: Time) {
        let cause = match error {
            ConnectionError::TooMuchWork(_) | ConnectionError::AnswersUnread => Cause::Http2Abuse,
            _ => Cause::Http2Invalid,
        };
        let Some(connection) = self.connections.get_mut(key) else { return };
        let left = self.snapshot.limits.discard_bytes_max;
        connection.receive = Receive::Linger { left };
        if let Some(downstream) = connection.downstream_mut() {
            downstream.life = Life::LingerWhenSent;
        }
        // What a service does wrong is nothing that its clients asked for.
        let told = if connection.upstream().is_some() { Cause::ResponseInvalid } else { cause };
        if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.failure = Some(cause);
        }
        self.end_streams(key, told, now);
        // GOAWAY says why.
        self.queue_send(key);
    }

    /// All exchanges of a connection that is no more end, or go on elsewhere.
    pub(crate) fn end_streams(&mut self, key: ConnKey, cause: Cause, now: Time) {
        let is_downstream = self.connections.get(key).is_some_and(|c| c.downstream().is_some());
        self.withdraw(key);
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        multiplex.is_gone = true;
        for exchange in multiplex.exchanges() {
            if is_downstream {
                self.abort(exchange, cause, now);
            } else {
                self.lose_upstream(exchange, cause, now);
            }
        }
    }

    /// An exchange's upstream connection is gone before the end of the response.
    fn lose_upstream(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        match (&exchange.stage, cause) {
            (Stage::Responding { .. }, Cause::UpstreamClosed) => {
                self.fail(key, Cause::ResponseTruncated, now);
            }
            (Stage::Responding { .. }, _) => self.fail(key, cause, now),
            _ => self.fail_attempt(key, cause, now),
        }
    }

    /// What a connection was watched for did not happen.
    pub(crate) fn on_watch(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_upstream = connection.upstream().is_some();
        let Some(multiplex) = connection.multiplex.as_deref_mut() else { return };
        let (watch, deadline) = multiplex.watches.first();
        if deadline > now {
            return self.timers.arm(connection.timer, deadline);
        }
        multiplex.watches.clear(watch);
        match watch {
            Watch::Opening if is_upstream => {
                self.on_connected(key, Err(Cause::ConnectTimeout), now);
            }
            Watch::Opening => {
                self.end_streams(key, Cause::RequestHeadTimeout, now);
                self.close_downstream(key, Some(Cause::RequestHeadTimeout), now);
            }
            Watch::Idle => {
                multiplex.codec.go_away(ErrorCode::NO_ERROR);
                self.withdraw(key);
                self.queue_send(key);
                // Whoever does not take even that is left alone soon.
                self.watch(key, Watch::Write, now + DRAIN_IDLE);
            }
            Watch::Silence => {
                multiplex.codec.ping(SIGN_OF_LIFE);
                let timeout = self.connections.get(key).and_then(|c| self.ping_of(c));
                if let Some(ping) = timeout {
                    self.watch(key, Watch::Answer, now + ping.timeout);
                }
                self.queue_send(key);
            }
            Watch::Answer | Watch::Write => {
                let cause = match (watch, is_upstream) {
                    (Watch::Answer, _) => Cause::Http2PingTimeout,
                    (_, true) => Cause::RequestWriteTimeout,
                    (_, false) => Cause::ResponseWriteTimeout,
                };
                self.end_streams(key, cause, now);
                self.close(key, Some(cause), now);
            }
            Watch::Goodbye => self.on_goodbye(key),
            Watch::Rest => {
                if let Some(multiplex) = self.multiplex_mut(key).filter(|it| it.is_empty()) {
                    multiplex.rest();
                }
            }
        }
        if self.connections.get(key).is_some() {
            self.arm_watches(key);
        }
    }

    fn close(&mut self, key: ConnKey, cause: Option<Cause>, now: Time) {
        match self.connections.get(key).map(|connection| &connection.role) {
            Some(Role::Downstream(_)) => self.close_downstream(key, cause, now),
            Some(Role::Upstream(_)) => self.close_upstream(key, cause, now),
            None => {}
        }
    }

    /// Tells a downstream that its connection will end. What it asks for before it knows is
    /// answered (RFC 9113, section 6.8).
    pub(crate) fn say_goodbye(&mut self, key: ConnKey, now: Time) {
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        multiplex.codec.drain();
        multiplex.codec.ping(GOODBYE);
        self.watch(key, Watch::Goodbye, now + DRAIN_IDLE);
        self.queue_send(key);
    }

    /// It knows, or had time to: no further streams are taken.
    fn on_goodbye(&mut self, key: ConnKey) {
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        multiplex.watches.clear(Watch::Goodbye);
        multiplex.codec.go_away(ErrorCode::NO_ERROR);
        self.queue_send(key);
    }

    /// An upstream takes no further streams; what it did not process goes elsewhere.
    fn on_going_away(&mut self, key: ConnKey, now: Time) {
        if self.connections.get(key).is_none_or(|connection| connection.upstream().is_none()) {
            return;
        }
        self.withdraw(key);
        let Some(connection) = self.connections.get(key) else { return };
        let Some((multiplex, upstream)) = connection.multiplex.as_ref().zip(connection.upstream())
        else {
            return;
        };
        let codec = &multiplex.codec;
        let is_lost = |stream: &&Stream| !codec.is_open(stream.id);
        let lost: Vec<_> = multiplex.iter().filter(is_lost).map(|s| s.exchange).collect();
        if !lost.is_empty() {
            let lost = u32::try_from(lost.len()).unwrap_or(u32::MAX);
            self.pools.on_worn_out(upstream.endpoint, connection.requests.saturating_sub(lost));
        }
        for exchange in lost {
            self.fail_attempt(exchange, Cause::UpstreamGoingAway, now);
        }
    }

    /// Lets streams fill a connection's queue.
    pub(crate) fn frame(&mut self, key: ConnKey, now: Time) {
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let Some(multiplex) = connection.multiplex.as_deref_mut() else { return };
            match multiplex.frame(&mut connection.outbox, &mut self.buffers) {
                Some(framed) => self.on_framed(key, framed, now),
                None => break,
            }
        }
        let Some(connection) = self.connections.get(key) else { return };
        let Some(multiplex) = &connection.multiplex else { return };
        let is_over = multiplex.failure.is_some() || multiplex.codec.is_finished();
        if is_over && connection.is_sent() {
            return self.end_http2(key, now);
        }
        self.watch_writing(key, now, false);
    }

    /// A frame of a stream is in the queue.
    fn on_framed(&mut self, key: ConnKey, framed: Framed, now: Time) {
        let at = StreamKey { connection: key, stream: framed.id };
        let Some(exchange) = self.exchange_of(at) else { return };
        let waited = framed.left + framed.bytes;
        if waited >= OUTBOX_BYTES_MAX
            && framed.left < OUTBOX_BYTES_MAX
            && let Some(source) = self.opposite_of(at)
        {
            self.on_caught_up(source);
        }
        let is_downstream = self.connections.get(key).is_some_and(|c| c.downstream().is_some());
        let Framed { bytes, left, is_ended, .. } = framed;
        if is_downstream {
            self.on_response_sent(exchange, (left, bytes), is_ended, now);
        } else {
            self.on_request_sent(exchange, (left, bytes), is_ended, (now, now));
        }
    }

    /// The socket took bytes of a connection, or none of what waits.
    pub(crate) fn on_frames_sent(&mut self, key: ConnKey, before: usize, n: usize, now: Time) {
        if n > 0 {
            self.frame(key, now);
        }
        self.watch_writing(key, now, n > 0);
        if before >= UNREAD_BYTES_MAX && before - n < UNREAD_BYTES_MAX {
            self.resume_inbox(key, now);
        }
    }

    /// Watches that the peer takes what waits for it.
    fn watch_writing(&mut self, key: ConnKey, now: Time, has_moved: bool) {
        let Some(connection) = self.connections.get(key) else { return };
        let timeout = match &connection.role {
            Role::Downstream(downstream) => {
                self.listeners.get(downstream.listener).listener().timeouts.response_write
            }
            Role::Upstream(upstream) => match self.snapshot.cluster(upstream.cluster) {
                Some(cluster) => cluster.timeouts.request_write,
                None => return,
            },
        };
        let is_empty = connection.is_sent() || connection.is_connecting();
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        if is_empty {
            multiplex.watches.clear(Watch::Write);
        } else if has_moved || !multiplex.watches.is_set(Watch::Write) {
            self.watch(key, Watch::Write, now + timeout);
        }
    }

    /// Everything is said: the connection ends.
    fn end_http2(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let cause = connection.multiplex.as_ref().and_then(|multiplex| multiplex.failure);
        match connection.role {
            Role::Downstream(Downstream { life: Life::Lingering, .. }) => {}
            Role::Downstream(_) => self.linger(key, now),
            Role::Upstream(_) => self.close_upstream(key, cause, now),
        }
    }

    /// A connection has no stream: it waits for one, or ends if it is to.
    pub(crate) fn await_streams(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        let timeout = match &connection.role {
            Role::Downstream(downstream) => {
                Some(self.listeners.get(downstream.listener).listener().timeouts.idle)
            }
            Role::Upstream(upstream) => {
                self.snapshot.cluster(upstream.cluster).map(|cluster| cluster.timeouts.idle)
            }
        };
        let is_upstream = connection.upstream().is_some();
        let is_connecting = connection.is_connecting();
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        if !multiplex.is_empty() || is_connecting {
            return;
        }
        multiplex.watches.set(Watch::Rest, now + REST);
        multiplex.watches.clear(Watch::Silence);
        multiplex.watches.clear(Watch::Answer);
        if is_upstream && timeout.is_none() {
            multiplex.codec.go_away(ErrorCode::NO_ERROR);
            self.withdraw(key);
        }
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        if multiplex.codec.is_finished() || multiplex.has_work() {
            self.queue_send(key);
        }
        if let Some(timeout) = timeout {
            self.watch(key, Watch::Idle, now + timeout);
        }
    }
}

/// Streams.
impl Proxy {
    /// The exchange of a stream.
    pub(crate) fn exchange_of(&self, at: StreamKey) -> Option<ExchangeKey> {
        let connection = self.connections.get(at.connection)?;
        if at.is_whole() {
            return connection.exchange();
        }
        Some(connection.multiplex.as_ref()?.stream(at.stream)?.exchange)
    }

    pub(crate) fn stream_mut(&mut self, at: StreamKey) -> Option<&mut Stream> {
        self.multiplex_mut(at.connection)?.stream_mut(at.stream)
    }

    /// Puts an exchange on a stream that was just opened.
    fn begin_stream(
        &mut self,
        key: ConnKey,
        stream: u32,
        request: Request,
        now: Time,
    ) -> Option<ExchangeKey> {
        let downstream = self.connections.get(key)?.downstream()?;
        let state = self.listeners.get(downstream.listener);
        let (snapshot, place) = (state.snapshot.clone(), state.place);
        let at = StreamKey { connection: key, stream };
        let exchange = self.begin_exchange(at, snapshot, place, request, now);
        let multiplex = self.multiplex_mut(key)?;
        multiplex.insert(Stream::new(stream, exchange));
        multiplex.watches.clear(Watch::Idle);
        Some(exchange)
    }

    fn on_stream_data(&mut self, from: StreamKey, bytes: &[u8], now: Time) {
        let is_downstream =
            self.connections.get(from.connection).is_some_and(|c| c.downstream().is_some());
        let Some(key) = self.exchange_of(from) else {
            return self.take(from, bytes.len());
        };
        if !is_downstream {
            self.on_response_data(key, bytes, now);
            return self.pass_on(from, bytes.len());
        }
        let Some(exchange) = self.exchanges.get(key) else { return };
        if matches!(exchange.stage, Stage::Finishing) {
            // Nobody wants it any more.
            return self.take(from, bytes.len());
        }
        let takes = exchange.takes_request_data();
        let Some(stream) = self.stream_mut(from) else { return };
        if takes && stream.inbox.is_none() {
            self.on_request_data(key, bytes, now);
            return self.pass_on(from, bytes.len());
        }
        let mut body = match stream.inbox.take() {
            Some(inbox) => self.buffers.widen(inbox.body, bytes.len()),
            None => self.buffers.lease(bytes.len()),
        };
        body.push(bytes);
        if let Some(stream) = self.stream_mut(from) {
            stream.inbox = Some(Box::new(StreamInbox { body, tail: Tail::Open }));
        }
    }

    fn on_stream_end(&mut self, from: StreamKey, tail: Tail, now: Time) {
        let Some(key) = self.exchange_of(from) else { return };
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
        let Some(stream) = self.stream_mut(from) else { return };
        match &mut stream.inbox {
            Some(inbox) => inbox.tail = tail,
            None if takes => self.on_request_end(key, trailers_of(&tail), now),
            None => {
                let body = self.buffers.lease(0);
                if let Some(stream) = self.stream_mut(from) {
                    stream.inbox = Some(Box::new(StreamInbox { body, tail }));
                }
            }
        }
    }

    /// Hands an exchange what came while it could not take it.
    pub(crate) fn resume_stream(&mut self, from: StreamKey, now: Time) {
        let Some(key) = self.exchange_of(from) else { return };
        let takes = |exchange: &Exchange| exchange.takes_request_data();
        if !self.exchanges.get(key).is_some_and(takes) {
            return;
        }
        let Some(inbox) = self.stream_mut(from).and_then(|stream| stream.inbox.take()) else {
            return;
        };
        let StreamInbox { body, tail } = *inbox;
        if !body.is_empty() {
            self.on_request_data(key, body.filled(), now);
            self.pass_on(from, body.len());
            // Nobody else may be about to tell the peer that its window is open again.
            self.queue_send(from.connection);
        }
        self.buffers.give_back(body);
        if tail != Tail::Open {
            self.on_request_end(key, trailers_of(&tail), now);
        }
    }

    /// The peer gets back what it sent of its window.
    fn take(&mut self, from: StreamKey, n: usize) {
        if let Some(multiplex) = self.multiplex_mut(from.connection) {
            multiplex.codec.on_taken(from.stream, n);
        }
    }

    /// As [`Proxy::take`], once the other side has room again.
    fn pass_on(&mut self, from: StreamKey, n: usize) {
        let is_behind = self.opposite_of(from).is_some_and(|to| self.is_held_back(to));
        match self.stream_mut(from).filter(|_| is_behind) {
            Some(stream) => stream.owed += u32::try_from(n).unwrap_or(u32::MAX),
            None => self.take(from, n),
        }
    }

    /// The other side has room again for what comes from here.
    pub(crate) fn on_caught_up(&mut self, source: StreamKey) {
        if source.is_whole() {
            return self.ops.push_back(Op::Read(source.connection));
        }
        let Some(stream) = self.stream_mut(source) else { return };
        let owed = std::mem::take(&mut stream.owed);
        self.take(source, owed as usize);
        self.queue_send(source.connection);
    }

    fn on_stream_reset(&mut self, at: StreamKey, code: ErrorCode, now: Time) {
        let Some(key) = self.exchange_of(at) else { return };
        let is_downstream =
            self.connections.get(at.connection).is_some_and(|c| c.downstream().is_some());
        if is_downstream {
            self.abort(key, Cause::RequestCancelled, now);
        } else if code == ErrorCode::REFUSED_STREAM {
            self.fail_attempt(key, Cause::StreamRefused, now);
        } else {
            self.lose_upstream(key, Cause::StreamReset, now);
        }
    }

    fn on_stream_failed(&mut self, at: StreamKey, error: StreamError, now: Time) {
        let is_downstream =
            self.connections.get(at.connection).is_some_and(|c| c.downstream().is_some());
        match (self.exchange_of(at), is_downstream) {
            (Some(key), true) => self.abort(key, Cause::RequestInvalid, now),
            (Some(key), false) => {
                let cause = match error {
                    StreamError::HeadTooLarge => Cause::ResponseHeadTooLarge,
                    _ => Cause::ResponseInvalid,
                };
                self.fail(key, cause, now);
            }
            // A request that was never one is on record all the same.
            (None, true) if matches!(error, StreamError::Malformed(_)) => {
                let request = Request { is_complete: true, ..Request::NONE };
                if let Some(key) = self.begin_stream(at.connection, at.stream, request, now) {
                    self.abort(key, Cause::RequestInvalid, now);
                }
            }
            (None, _) => {}
        }
    }

    /// Takes a stream from its exchange, and resets it if it is open with this code.
    pub(crate) fn drop_stream(&mut self, at: StreamKey, code: ErrorCode, now: Time) {
        let Some(multiplex) = self.multiplex_mut(at.connection) else { return };
        multiplex.codec.reset(at.stream, code);
        let Some(mut stream) = multiplex.remove(at.stream) else { return };
        stream.clear(&mut self.buffers);
        self.after_stream(at.connection, now);
    }

    /// A stream is gone: there is room for another.
    pub(crate) fn after_stream(&mut self, key: ConnKey, now: Time) {
        if let Some(cluster) = self.offer(key) {
            self.serve_waiting(cluster, now);
        }
        let Some(multiplex) = self.multiplex_mut(key) else { return };
        if multiplex.has_work() {
            self.queue_send(key);
        }
        self.await_streams(key, now);
    }
}

/// Sending, to streams and connections alike.
impl Proxy {
    /// Bytes that wait to be sent there.
    pub(crate) fn backlog(&self, to: StreamKey) -> usize {
        let Some(connection) = self.connections.get(to.connection) else { return 0 };
        if to.is_whole() {
            return connection.unsent_len();
        }
        let stream = connection.multiplex.as_ref().and_then(|it| it.stream(to.stream));
        stream.map_or(0, |stream| stream.outbox.len())
    }

    /// Whether what waits there has to be sent before more is taken from the other side.
    pub(crate) fn is_held_back(&self, to: StreamKey) -> bool {
        self.backlog(to) >= OUTBOX_BYTES_MAX
    }

    /// Begins a response, whose body comes next.
    pub(crate) fn send_response(&mut self, to: StreamKey, answer: &Answer<'_, '_>) {
        let Answer { head, version, framing, field, behind, is_end } = *answer;
        let room = if behind <= TOGETHER_BYTES_MAX { behind } else { 0 };
        let Some(connection) = self.connections.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        if to.is_whole() {
            // Room for what came with it too, so that a usual response is one buffer and one send.
            outbox.push_with(head.encoded_len_max() + room, &mut self.buffers, |buffer| {
                encode_response(head, version, framing, field, buffer);
            });
            connection.send = Send::Body(BodyEncoder::new(framing));
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut self.buffers);
            outbox.push_with(head_len_max(head) + room, &mut self.buffers, |buffer| {
                multiplex.codec.send_response(to.stream, head, framing, is_end, buffer);
            });
            if let Some(stream) = multiplex.stream_mut(to.stream).filter(|_| is_end) {
                (stream.tail, stream.is_ended) = (Tail::End, true);
            }
        }
        self.queue_send(to.connection);
    }

    /// Sends an interim response.
    pub(crate) fn send_interim(&mut self, to: StreamKey, head: &ResponseHead<'_>) {
        let Some(connection) = self.connections.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        let framing = Framing::None;
        if to.is_whole() {
            outbox.push_with(head.encoded_len_max(), &mut self.buffers, |buffer| {
                let field = ConnectionField::Default;
                encode_response(head, Version::Http11, framing, field, buffer);
            });
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut self.buffers);
            outbox.push_with(head_len_max(head), &mut self.buffers, |buffer| {
                multiplex.codec.send_response(to.stream, head, framing, false, buffer);
            });
        }
        self.queue_send(to.connection);
    }

    /// Says that the connection, or stream, is a tunnel from here on.
    pub(crate) fn send_switching(&mut self, to: StreamKey, head: &ResponseHead<'_>) {
        let Some(connection) = self.connections.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        let framing = Framing::None;
        if to.is_whole() {
            outbox.push_with(head.encoded_len_max(), &mut self.buffers, |buffer| {
                encode_response(head, Version::Http11, framing, ConnectionField::Upgrade, buffer);
            });
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut self.buffers);
            outbox.push_with(head_len_max(head), &mut self.buffers, |buffer| {
                multiplex.codec.send_response(to.stream, head, framing, false, buffer);
            });
        }
        self.queue_send(to.connection);
    }

    /// Says that a tunnel stands. It has no body, but what the tunnel carries.
    pub(crate) fn send_granted(&mut self, to: StreamKey) {
        const GRANTED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
        self.send_bodiless(to, GRANTED, 200);
    }

    /// Whether a body that was sent to its end there has an end that was not sent.
    pub(crate) fn has_open_end(&self, to: StreamKey) -> bool {
        let multiplex = self.connections.get(to.connection).and_then(|c| c.multiplex.as_ref());
        let stream = multiplex.and_then(|multiplex| multiplex.stream(to.stream));
        stream.is_some_and(|stream| stream.tail != Tail::Open && !stream.is_ended)
    }

    /// Sends a whole reply. Says whether nobody will be told when it was sent.
    pub(crate) fn send_reply(
        &mut self,
        to: StreamKey,
        status: u16,
        fields: &[(&[u8], &[u8])],
        (length, body): (Option<u64>, &[u8]),
        field: ConnectionField,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(to.connection) else { return true };
        let outbox = &mut connection.outbox;
        if to.is_whole() {
            outbox.push_with(h1::reply_len_max(fields), &mut self.buffers, |buffer| {
                encode_reply(status, fields, length, field, buffer);
            });
            outbox.push(body, &mut self.buffers);
            connection.send = Send::Idle;
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            let is_end = body.is_empty();
            multiplex.frame_control(outbox, &mut self.buffers);
            outbox.push_with(reply_len_max(fields), &mut self.buffers, |buffer| {
                multiplex.codec.send_reply(to.stream, status, fields, length, is_end, buffer);
            });
            if let Some(stream) = multiplex.stream_mut(to.stream) {
                stream.outbox.push(body, &mut self.buffers);
                (stream.tail, stream.is_ended) = (Tail::End, is_end);
            }
            multiplex.wake(to.stream);
        }
        self.queue_send(to.connection);
        !to.is_whole() && body.is_empty()
    }

    /// Gives leave to send the body.
    pub(crate) fn send_continue(&mut self, to: StreamKey) {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        self.send_bodiless(to, CONTINUE, 100);
    }

    /// Sends a head without fields, with this text where it is one of HTTP/1.
    fn send_bodiless(&mut self, to: StreamKey, text: &[u8], status: u16) {
        let Some(connection) = self.connections.get_mut(to.connection) else { return };
        let outbox = &mut connection.outbox;
        if to.is_whole() {
            outbox.push(text, &mut self.buffers);
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.frame_control(outbox, &mut self.buffers);
            outbox.push_with(reply_len_max(&[]), &mut self.buffers, |buffer| {
                multiplex.codec.send_reply(to.stream, status, &[], None, false, buffer);
            });
        }
        self.queue_send(to.connection);
    }

    /// Sends a piece of a body, in the framing that its head announced.
    pub(crate) fn send_data(&mut self, to: StreamKey, data: &[u8]) {
        const SAME: &str = "both sides have the same framing, and the decoder keeps to it";
        let Some(connection) = self.connections.get_mut(to.connection) else { return };
        if to.is_whole() {
            connection.send_data(data, &mut self.buffers).expect(SAME);
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            if let Some(stream) = multiplex.stream_mut(to.stream) {
                stream.outbox.push(data, &mut self.buffers);
            }
            multiplex.wake(to.stream);
        }
        self.queue_send(to.connection);
    }

    /// Sends the end of a body, with its trailer section if it has one. Says whether nothing is
    /// left to send, so that nobody will be told when it was sent.
    pub(crate) fn send_end(&mut self, to: StreamKey, trailers: &[u8]) -> bool {
        const SAME: &str = "both sides have the same framing, and the decoder keeps to it";
        let Some(connection) = self.connections.get_mut(to.connection) else { return true };
        if to.is_whole() {
            connection.send_end(trailers, &mut self.buffers).expect(SAME);
            if connection.is_sent() {
                return true;
            }
        } else if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            let Some(stream) = multiplex.stream_mut(to.stream) else { return true };
            if stream.is_ended {
                return true;
            }
            stream.tail = Tail::of(trailers);
            multiplex.wake(to.stream);
        }
        self.queue_send(to.connection);
        false
    }
}

fn trailers_of(tail: &Tail) -> &[u8] {
    match tail {
        Tail::Trailers(section) => section,
        Tail::Open | Tail::End | Tail::Reset(_) => &[],
    }
}

/// The upstream side.
impl Proxy {
    /// A response's head came on a stream.
    fn on_stream_response(
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
    fn on_first_byte(&mut self, upstream: StreamKey, key: ExchangeKey, now: Time) {
        if let Some(exchange) = self.exchanges.get_mut(key)
            && !exchange.record.stamps.first_byte.is_set()
        {
            exchange.record.stamps.first_byte = now;
        }
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        let Some(multiplex) = connection.multiplex.as_deref_mut() else { return };
        if let Some(stream) = multiplex.stream_mut(upstream.stream) {
            stream.forget_request(&mut self.buffers);
        }
    }

    /// Puts an upstream connection into its pool if it has a free slot and is not there, and takes
    /// it out if it has none. Gives the cluster whose exchanges may have the slot.
    pub(crate) fn offer(&mut self, key: ConnKey) -> Option<ClusterId> {
        let connection = self.connections.get(key)?;
        let upstream = connection.upstream()?;
        let multiplex = connection.multiplex.as_ref()?;
        let UpstreamState::Shared { links, .. } = upstream.state else { return None };
        let endpoint = upstream.endpoint;
        if self.pools.is_worn(endpoint, connection.requests) {
            if links.is_some() {
                self.pools.on_worn(endpoint);
            }
            self.retire(key);
            return None;
        }
        let has_slot = multiplex.codec.free_slots() > 0
            && !multiplex.is_gone
            && self.snapshot.cluster(upstream.cluster).is_some();
        let ids = (upstream.cluster, upstream.endpoint);
        match (has_slot, links) {
            (true, None) if self.pools.put_idle(key, ids, &mut self.connections) => Some(ids.0),
            (true, None) => {
                self.retire(key);
                None
            }
            (false, Some(_)) => {
                self.withdraw(key);
                None
            }
            (true, Some(_)) => Some(ids.0),
            (false, None) => None,
        }
    }

    /// Takes an upstream connection out of its pool.
    pub(crate) fn withdraw(&mut self, key: ConnKey) {
        let Some(upstream) = self.connections.get(key).and_then(Connection::upstream) else {
            return;
        };
        if matches!(upstream.state, UpstreamState::Shared { links: Some(_), .. }) {
            self.pools.remove_idle(key, &mut self.connections);
            self.pools.set_links(key, None, &mut self.connections);
        }
    }

    /// An upstream connection takes no more exchanges, and ends with those it has.
    pub(crate) fn retire(&mut self, key: ConnKey) {
        self.withdraw(key);
        if let Some(multiplex) = self.multiplex_mut(key) {
            multiplex.codec.go_away(ErrorCode::NO_ERROR);
            self.queue_send(key);
        }
    }
}
