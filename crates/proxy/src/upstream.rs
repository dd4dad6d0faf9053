//! Hop 8: upstream connections, from their opening to their return to the pool, and what they
//! answer.

use std::sync::Arc;

use config::snapshot::{Cluster, ClusterId};
use telemetry::cause::Cause;
use telemetry::events::{TunnelStarted, UpstreamConnectFailed, UpstreamConnected};
use wire::h1::{
    BodyDecoder, BodyElement, BodyEncoder, ConnectionField, HeadError, HeadErrorKind, HeadLimits,
    Scan, decode_response,
};
use wire::h2::{ErrorCode, Http2, RequestForm, Scheme, head_len_max};
use wire::head::{Framing, Method, RequestHead, ResponseHead, Version};

use crate::connection::{
    ConnKey, Connection, ExchangeKey, Life, Receive, Role, Send, StreamKey, Upstream, UpstreamState,
};
use crate::downstream::{BODY_LIMITS, Step};
use crate::exchange::{
    ATTEMPTS_MAX, Exchange, Form, INTERIM_RESPONSES_MAX, Kind, Stage, Unbound, Wait,
};
use crate::http2::{Multiplex, Stream, Tail, Watch};
use crate::ops::{ConnectOptions, Op};
use crate::proxy::Proxy;
use crate::pump::announces_trailers;
use crate::record::label;
use crate::streams::Answer;
use crate::time::Time;
use crate::transport::Tls;

/// Bounds on a response head. They are not an option: a service that needs more is broken.
pub(crate) const RESPONSE_HEAD: HeadLimits =
    HeadLimits { request_line_bytes_max: 8 << 10, head_bytes_max: 60 << 10, fields_max: 200 };

impl Proxy {
    // Opening, giving, taking back.

    /// Opens a connection to the endpoint at `place` for an exchange.
    pub(crate) fn open(
        &mut self,
        key: ExchangeKey,
        cluster: &Arc<Cluster>,
        place: usize,
        request: Unbound,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        let has_tried_enough = |exchange: &Exchange| {
            exchange.request.asks_upgrade && exchange.record.attempts >= ATTEMPTS_MAX
        };
        if self.exchanges.get(key).is_some_and(has_tried_enough) {
            return self.fail_unbound(key, request, Cause::ConnectFailed, now);
        }
        let (endpoint, address, peer) = self.way(key, cluster, place);
        let (state, is_personal) = match request.form {
            Form::Whole { is_personal, .. } => {
                (UpstreamState::Connecting { exchange: key, since: now }, is_personal)
            }
            Form::Stream { .. } => {
                (UpstreamState::Shared { connecting_since: Some(now), links: None }, false)
            }
        };
        let role = Role::Upstream(Upstream {
            cluster: cluster.id,
            endpoint,
            state,
            is_personal,
            is_reusable: false,
        });
        let receive = if self.is_raw(key) {
            Receive::Body(BodyDecoder::new(Framing::UntilClose))
        } else {
            Receive::Head(Scan::default())
        };
        let upstream = self.insert_connection(role, receive, now);
        self.pools.on_open(cluster.id);
        if let Some(settings) = &cluster.tls {
            let mut tls = Tls::waiting(settings, self.is_raw(key), &address, now);
            if let Some(version) = cluster.proxy_protocol {
                self.write_proxy_header(key, version, tls.preamble());
            }
            if let Some(connection) = self.connections.get_mut(upstream) {
                connection.tls = Some(Box::new(tls));
                self.upstream_handshakes += 1;
            }
        }
        let deadline = now + cluster.timeouts.connect;
        let Some(connection) = self.connections.get_mut(upstream) else { return };
        connection.peer = peer;
        match request.form {
            Form::Whole { send, .. } => {
                connection.outbox = request.outbox;
                connection.send = send;
                connection.requests = 1;
                self.timers.arm(connection.timer, deadline);
                self.bind(key, StreamKey::whole(upstream), place, now);
            }
            Form::Stream { .. } => {
                let limits = crate::http2::limits(RESPONSE_HEAD, &cluster.http2);
                let mut multiplex = Multiplex::new(Http2::client(&limits), limits, now);
                multiplex.watches.set(Watch::Opening, deadline);
                self.set_multiplex(upstream, multiplex);
                self.give_stream(key, upstream, place, request, head, now);
            }
        }
        let Cluster { keepalive, fast_open, mark, .. } = **cluster;
        let options = ConnectOptions { keepalive, fast_open, mark };
        self.ops.push_back(Op::Connect { connection: upstream, address, options });
    }

    /// Gives a request to a connection that was idle.
    pub(crate) fn give(
        &mut self,
        key: ExchangeKey,
        upstream: ConnKey,
        place: usize,
        request: Unbound,
        now: Time,
    ) {
        let Some(connection) = self.connections.get_mut(upstream) else { return };
        let Form::Whole { send, .. } = request.form else {
            unreachable!("streams are given by the connections that have them");
        };
        connection.outbox = request.outbox;
        connection.send = send;
        connection.receive = Receive::Head(Scan::default());
        connection.requests += 1;
        self.timers.arm(connection.timer, Time::NEVER);
        if let Some(role) = connection.upstream_mut() {
            role.state = UpstreamState::Busy { exchange: key };
            role.is_reusable = false;
        }
        self.bind(key, StreamKey::whole(upstream), place, now);
        self.queue_send(upstream);
    }

    /// Opens a stream for a request on a connection that has room for one.
    pub(crate) fn give_stream(
        &mut self,
        key: ExchangeKey,
        upstream: ConnKey,
        place: usize,
        request: Unbound,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        let Unbound { outbox, form: Form::Stream { head: parked, tail } } = request else {
            unreachable!("connections that are one exchange's are given whole");
        };
        let Some(exchange) = self.exchanges.get(key) else { return };
        let form =
            if exchange.request.asks_upgrade { RequestForm::Upgrade } else { RequestForm::Same };
        let multiplex = self.connections.get(upstream).and_then(|open| open.multiplex.as_ref());
        let is_known = multiplex.is_some_and(|multiplex| multiplex.codec.has_peer_settings());
        let is_upgrade = form == RequestForm::Upgrade;
        if !is_known && (is_upgrade || multiplex.is_some_and(|multiplex| !multiplex.is_empty())) {
            // One may be sent with the preface. How many more it takes at a time, and whether it
            // takes an extended CONNECT, it will have said when it has said anything.
            let request = Unbound { outbox, form: Form::Stream { head: parked, tail } };
            self.offer(upstream);
            return self.enqueue(key, request, now);
        }
        if is_upgrade && !multiplex.is_some_and(|it| it.codec.allows_extended_connect()) {
            let request = Unbound { outbox, form: Form::Stream { head: parked, tail } };
            return self.fail_unbound(key, request, Cause::RequestNotImplemented, now);
        }
        let is_end = outbox.is_empty() && tail == Tail::End;
        let opened = match head {
            Some(head) => self.open_stream(upstream, head, form, is_end),
            None => self
                .read_parked(&parked, |proxy, head| proxy.open_stream(upstream, head, form, is_end))
                .flatten(),
        };
        let Some(stream) = opened else {
            // Its slots are not what they seemed to be.
            self.withdraw(upstream);
            let request = Unbound { outbox, form: Form::Stream { head: parked, tail } };
            return self.attempt(key, request, head, now);
        };
        let mut stream = Stream::new(stream, key);
        (stream.outbox, stream.tail, stream.is_ended) = (outbox, tail, is_end);
        stream.head = Some(parked);
        let at = StreamKey { connection: upstream, stream: stream.id };
        let silence = self.connections.get(upstream).and_then(|open| self.silence(open));
        if let Some(connection) = self.connections.get_mut(upstream) {
            connection.requests += 1;
            if let Some(multiplex) = connection.multiplex.as_deref_mut() {
                multiplex.insert(stream);
                multiplex.watches.clear(Watch::Idle);
                if let Some(silence) = silence.filter(|_| !multiplex.watches.is_set(Watch::Silence))
                {
                    multiplex.watches.set(Watch::Silence, now + silence);
                }
            }
        }
        self.arm_watches(upstream);
        self.bind(key, at, place, now);
        if is_end && let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.record.stamps.write_began = now;
            exchange.record.stamps.written = now;
            if let Some(cluster) = exchange.cluster() {
                let timeout = cluster.timeouts.response_head;
                self.set_deadline(key, Wait::ResponseHead, now + timeout);
            }
        }
        self.offer(upstream);
        self.queue_send(upstream);
    }

    fn open_stream(
        &mut self,
        upstream: ConnKey,
        head: &RequestHead<'_>,
        form: RequestForm,
        is_end: bool,
    ) -> Option<u32> {
        let connection = self.connections.get_mut(upstream)?;
        // Of this hop: what the client used stands in the forwarded fields.
        let scheme = if connection.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let multiplex = connection.multiplex.as_deref_mut()?;
        multiplex.frame_control(&mut connection.outbox, &mut self.buffers);
        let mut opened = None;
        connection.outbox.push_with(head_len_max(head), &mut self.buffers, |buffer| {
            opened = multiplex.codec.send_request(head, scheme, form, is_end, buffer);
        });
        opened
    }

    fn bind(&mut self, key: ExchangeKey, upstream: StreamKey, place: usize, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.stage = Stage::Attempting { upstream };
        exchange.deadlines.clear(Wait::Connection);
        exchange.record.attempts += 1;
        if let Some(route) = &mut exchange.route {
            route.endpoint = Some(place);
        }
        if !exchange.request.is_complete && exchange.kind == Kind::Http {
            let timeout = exchange.listener().timeouts.request_body;
            self.set_deadline(key, Wait::RequestBody, now + timeout);
        }
    }

    /// The worker begins to connect.
    pub fn on_connecting(&mut self, key: ConnKey, now: Time) {
        for exchange in self.exchanges_on(key) {
            if let Some(exchange) = self.exchanges.get_mut(exchange) {
                exchange.record.stamps.connect_began = now;
            }
        }
    }

    pub(crate) fn exchanges_on(&self, key: ConnKey) -> Vec<ExchangeKey> {
        let Some(connection) = self.connections.get(key) else { return Vec::new() };
        match &connection.multiplex {
            Some(multiplex) => multiplex.exchanges(),
            None => connection.exchange().into_iter().collect(),
        }
    }

    /// How connecting went; an error is [`Cause::ConnectFailed`] or [`Cause::OutOfDescriptors`].
    pub fn on_connected(&mut self, key: ConnKey, result: Result<(), Cause>, now: Time) {
        if result.is_err() || !self.begin_upstream_tls(key, now) {
            self.on_established(key, result, now);
        }
    }

    /// A connection can carry data, or cannot be established.
    pub(crate) fn on_established(&mut self, key: ConnKey, result: Result<(), Cause>, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let timer = connection.timer;
        let Some(upstream) = connection.upstream_mut() else { return };
        let cluster = label(upstream.cluster.0);
        let (exchange, since) = match &mut upstream.state {
            UpstreamState::Connecting { exchange, since } => (*exchange, *since),
            UpstreamState::Shared { connecting_since: Some(since), .. } => {
                let since = *since;
                return self.on_shared_connected(key, since, result, now);
            }
            _ => return,
        };
        match result {
            Ok(()) => {
                upstream.state = UpstreamState::Busy { exchange };
                connection.opened = now;
                self.timers.arm(timer, Time::NEVER);
                let duration = now.nanos_since(since);
                self.emitter.upstream_connected(&UpstreamConnected { cluster, duration });
                if let Some(exchange) = self.exchanges.get_mut(exchange) {
                    exchange.record.stamps.connected = now;
                }
                if self.is_raw(exchange) {
                    return self.on_relay_connected(key, exchange, now);
                }
                self.queue_send(key);
            }
            Err(cause) => {
                self.emitter.upstream_connect_failed(&UpstreamConnectFailed { cluster, cause });
                self.fail_attempt(exchange, cause, now);
            }
        }
    }

    /// As [`Proxy::on_established`], of a connection that exchanges have streams on already.
    fn on_shared_connected(
        &mut self,
        key: ConnKey,
        since: Time,
        result: Result<(), Cause>,
        now: Time,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(upstream) = connection.upstream_mut() else { return };
        let cluster = label(upstream.cluster.0);
        if let Err(cause) = result {
            let id = upstream.cluster;
            self.emitter.upstream_connect_failed(&UpstreamConnectFailed { cluster, cause });
            self.count_attempts(id);
            self.end_streams(key, cause, now);
            return self.close_upstream(key, Some(cause), now);
        }
        if let UpstreamState::Shared { connecting_since, .. } = &mut upstream.state {
            *connecting_since = None;
        }
        connection.opened = now;
        if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            multiplex.watches.clear(Watch::Opening);
        }
        let duration = now.nanos_since(since);
        self.emitter.upstream_connected(&UpstreamConnected { cluster, duration });
        for exchange in self.exchanges_on(key) {
            if let Some(exchange) = self.exchanges.get_mut(exchange) {
                exchange.record.stamps.connected = now;
            }
        }
        self.queue_send(key);
        self.await_streams(key, now);
    }

    /// A connection failed, and with it an attempt of those that wait to know what it allows: they
    /// have no stream on it, and would have it opened again and again.
    fn count_attempts(&mut self, id: ClusterId) {
        for key in self.pools.queue(id) {
            if let Some(exchange) = self.exchanges.get_mut(*key)
                && exchange.request.asks_upgrade
                && matches!(exchange.stage, Stage::Waiting { .. })
            {
                exchange.record.attempts = exchange.record.attempts.saturating_add(1);
            }
        }
    }

    /// The exchange is done with its connection: back to the pool with it, or away.
    fn release(&mut self, upstream: StreamKey, is_clean: bool, now: Time) {
        if !upstream.is_whole() {
            // What is left of the request is of no use to anybody.
            return self.drop_stream(upstream, ErrorCode::CANCEL, now);
        }
        let key = upstream.connection;
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_whole = connection.is_sent()
            && matches!(connection.send, Send::Idle)
            && !connection.is_read_closed
            && !connection.is_send_broken;
        let timer = connection.timer;
        connection.outbox.forget(&mut self.buffers);
        // What comes from now on belongs to no exchange; it is read to be noticed.
        connection.receive = Receive::Head(Scan::default());
        let Some(upstream) = connection.upstream() else { return };
        let ids = (upstream.cluster, upstream.endpoint);
        let cluster = self.snapshot.cluster(ids.0).map(Arc::clone);
        let is_kept = is_clean && is_whole && upstream.is_reusable;
        let Some(cluster) = cluster.filter(|_| is_kept && self.drain_deadline.is_none()) else {
            return self.close_upstream(key, None, now);
        };
        if !self.pools.put_idle(key, ids, &mut self.connections) {
            return self.close_upstream(key, None, now);
        }
        self.timers.arm(timer, now + cluster.timeouts.idle);
        self.serve_waiting(ids.0, now);
    }

    // What the upstream says.

    /// Consumes an upstream's bytes as far as possible.
    pub(crate) fn consume_upstream(&mut self, key: ConnKey, input: &[u8], now: Time) -> usize {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(connection) = self.connections.get_mut(key) else { return input.len() };
            if matches!(connection.receive, Receive::Frames) {
                return at + self.consume_frames(key, rest, now);
            }
            let Some(exchange) = connection.exchange() else {
                // Nobody asked: whatever this is, the connection is not used again.
                self.close_upstream(key, Some(Cause::ResponseInvalid), now);
                return input.len();
            };
            let step = match &connection.receive {
                Receive::Head(_) => self.on_response_head_bytes(key, exchange, rest, now),
                Receive::Body(_) => self.on_response_body_bytes(key, exchange, rest, now),
                Receive::ProxyHeader
                | Receive::Handshake
                | Receive::Detect
                | Receive::Frames
                | Receive::Complete
                | Receive::Discard { .. }
                | Receive::Linger { .. } => Step::Wait(0),
            };
            match step {
                Step::Took(n) => at += n,
                Step::Wait(n) => return at + n,
            }
        }
        at
    }

    fn on_response_head_bytes(
        &mut self,
        key: ConnKey,
        exchange_key: ExchangeKey,
        input: &[u8],
        now: Time,
    ) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return Step::Wait(0) };
        let Receive::Head(mut scan) = connection.receive else { return Step::Wait(0) };
        if connection.outbox.is_untouched() {
            // Nothing was asked yet, so this is no answer; the request goes elsewhere.
            self.fail_attempt(exchange_key, Cause::ResponseUnasked, now);
            return Step::Took(input.len());
        }
        if !exchange.record.stamps.first_byte.is_set() {
            exchange.record.stamps.first_byte = now;
        }
        // From here on the upstream has said something, so it is not asked again.
        connection.outbox.forget(&mut self.buffers);
        let method = exchange.request.method;
        let mut index = std::mem::take(&mut self.response_index);
        let step = match decode_response(input, &mut scan, &RESPONSE_HEAD, &mut index, method) {
            Ok(None) => {
                connection.receive = Receive::Head(scan);
                Step::Wait(0)
            }
            Ok(Some((mut head, n))) => {
                connection.receive = Receive::Head(Scan::default());
                match head.status() {
                    101 => {
                        let at = StreamKey::whole(key);
                        self.on_switching_protocols(at, exchange_key, &mut head, now);
                    }
                    100..=199 => self.on_interim_response(exchange_key, &head, now),
                    _ => {
                        let behind = input.len() - n;
                        let is_end = BodyDecoder::new(head.framing()).is_complete();
                        let rest = (behind, is_end);
                        let at = StreamKey::whole(key);
                        self.on_response_head(at, exchange_key, &mut head, rest, now);
                    }
                }
                Step::Took(n)
            }
            Err(error) => {
                self.fail(exchange_key, cause_of_response(&error), now);
                Step::Took(input.len())
            }
        };
        self.response_index = index;
        step
    }

    /// A 1xx response other than 101: passed on to those who can understand it.
    pub(crate) fn on_interim_response(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.record.interim_responses += 1;
        if head.status() == 100 {
            exchange.request.expects_continue = false;
        }
        if exchange.record.interim_responses > INTERIM_RESPONSES_MAX {
            return self.fail(key, Cause::ResponseInvalid, now);
        }
        if exchange.request.version == Version::Http10 {
            return;
        }
        let downstream = exchange.downstream;
        self.send_interim(downstream, head);
    }

    /// The final response's head; so many bytes came `behind` it, or it is the end.
    pub(crate) fn on_response_head(
        &mut self,
        upstream: StreamKey,
        exchange_key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        (behind, is_end): (usize, bool),
        now: Time,
    ) {
        let received = self.on_call_response(exchange_key, head, is_end);
        let gather_bytes_max = self.run_response_chain(exchange_key, head);
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.deadlines.clear(Wait::ResponseHead);
        exchange.stage = Stage::Responding { upstream };
        let timeout = exchange.cluster().map(|cluster| cluster.timeouts.response_body);
        match gather_bytes_max {
            Some(bytes_max) => self.hold_response(exchange_key, head, bytes_max),
            None => self.begin_response(exchange_key, head, received, (behind, is_end)),
        }
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if upstream.is_whole() {
            connection.receive = Receive::Body(BodyDecoder::new(head.framing()));
            let is_worn = connection.is_key_nearly_worn();
            if let Some(role) = connection.upstream_mut() {
                role.is_reusable = head.persistent()
                    && head.framing() != Framing::UntilClose
                    && !role.is_personal
                    && !is_worn;
            }
        }
        if is_end {
            self.on_response_end(upstream, exchange_key, &[], behind == 0, now);
        } else if let Some(timeout) = timeout {
            self.set_deadline(exchange_key, Wait::ResponseBody, now + timeout);
        }
    }

    /// Sends a response's head to the downstream; so many bytes of its body are there `behind` it,
    /// or it is the end.
    pub(crate) fn begin_response(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        received: Framing,
        (behind, is_end): (usize, bool),
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let version = exchange.request.version;
        let framing = match (received, version) {
            (Framing::Chunked, Version::Http10) => Framing::UntilClose,
            (Framing::UntilClose, Version::Http11) => Framing::Chunked,
            // Only the chunked coding has a place for trailers.
            (Framing::Length(_), Version::Http11) if !is_end && has_late_trailers(head) => {
                Framing::Chunked
            }
            (framing, _) => framing,
        };
        exchange.record.status = head.status();
        let downstream = exchange.downstream;
        let field = self.settle_life(key, framing);
        self.send_response(downstream, &Answer { head, version, framing, field, behind, is_end });
    }

    /// Decides what becomes of the downstream connection after a response, and how to say it.
    pub(crate) fn settle_life(&mut self, key: ExchangeKey, framing: Framing) -> ConnectionField {
        let Some(exchange) = self.exchanges.get(key) else { return ConnectionField::Close };
        let (key, request) = (exchange.downstream.connection, &exchange.request);
        if !exchange.downstream.is_whole() {
            // Other streams live on.
            return ConnectionField::Default;
        }
        let Some(connection) = self.connections.get(key) else { return ConnectionField::Close };
        let Some(downstream) = connection.downstream() else { return ConnectionField::Close };
        let is_draining = self.is_draining(downstream) || connection.is_key_nearly_worn();
        // A client that waits for leave to send a body may send it or not: it cannot be told which
        // of its bytes would begin the next request.
        let is_ambiguous = request.expects_continue && !request.is_complete;
        // What it sent behind its CONNECT was for the tunnel (RFC 9110, section 9.3.6).
        let is_tunnel_refused = request.method == Method::Connect;
        let Some(downstream) = self.connections.get_mut(key).and_then(Connection::downstream_mut)
        else {
            return ConnectionField::Close;
        };
        if downstream.life == Life::Open {
            if !request.is_persistent {
                downstream.life = Life::CloseWhenSent;
            } else if is_draining
                || is_ambiguous
                || is_tunnel_refused
                || framing == Framing::UntilClose
            {
                downstream.life = Life::LingerWhenSent;
            }
        }
        match (downstream.life, request.version) {
            (Life::Open, Version::Http11) => ConnectionField::Default,
            (Life::Open, Version::Http10) => ConnectionField::KeepAlive,
            _ => ConnectionField::Close,
        }
    }

    /// 101: from here on both connections carry bytes that belong to neither head.
    pub(crate) fn on_switching_protocols(
        &mut self,
        upstream: StreamKey,
        exchange_key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        // In HTTP/2 there is one protocol that was asked for, and none is named in the answer.
        let is_allowed = !upstream.is_whole()
            || head.upgrade().is_some_and(|protocols| exchange.allows_upgrade(protocols));
        let is_asked = !exchange.downstream.is_whole() || exchange.request.is_complete;
        if !exchange.request.asks_upgrade || !is_asked || !is_allowed {
            return self.fail(exchange_key, Cause::ResponseInvalid, now);
        }
        if let Some(handshake) = &exchange.handshake {
            head.set_status(101);
            head.set_upgrade(&handshake.protocol);
            if let Some(accept) = &handshake.accept {
                head.append(b"sec-websocket-accept", accept);
            }
        }
        self.run_response_chain(exchange_key, head);
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.record.status = head.status();
        exchange.record.is_tunnel = true;
        let listener = label(exchange.listener().id.0);
        self.emitter.tunnel_started(&TunnelStarted { listener });
        exchange.request.is_complete = false;
        exchange.stage = Stage::Responding { upstream };
        exchange.deadlines = crate::exchange::Deadlines::default();
        let downstream = exchange.downstream;
        let timeout = exchange.listener().timeouts.tunnel_idle;
        self.set_deadline(exchange_key, Wait::TunnelIdle, now + timeout);
        self.send_switching(downstream, head);
        for side in [upstream, downstream].into_iter().filter(|side| side.is_whole()) {
            if let Some(connection) = self.connections.get_mut(side.connection) {
                connection.receive = Receive::Body(BodyDecoder::new(Framing::UntilClose));
                connection.send = Send::Body(BodyEncoder::new(Framing::UntilClose));
                if let Some(role) = connection.downstream_mut() {
                    role.life = Life::CloseWhenSent;
                }
            }
        }
        self.resume_source(downstream, now);
    }

    fn on_response_body_bytes(
        &mut self,
        key: ConnKey,
        exchange_key: ExchangeKey,
        input: &[u8],
        now: Time,
    ) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        let Receive::Body(body) = &mut connection.receive else { return Step::Wait(0) };
        let at = StreamKey::whole(key);
        match body.decode(input, &BODY_LIMITS) {
            Ok((n, BodyElement::NeedMore)) => Step::Wait(n),
            Ok((n, BodyElement::Data(data))) => {
                let is_complete = body.is_complete();
                self.on_response_data(exchange_key, data, now);
                if is_complete {
                    self.on_response_end(at, exchange_key, &[], n == input.len(), now);
                }
                Step::Took(n)
            }
            Ok((n, BodyElement::End)) => {
                self.on_response_end(at, exchange_key, &[], n == input.len(), now);
                Step::Took(n)
            }
            Ok((n, BodyElement::Trailers(trailers))) => {
                self.on_response_end(at, exchange_key, trailers, n == input.len(), now);
                Step::Took(n)
            }
            Err(_) => {
                self.fail(exchange_key, Cause::ResponseInvalid, now);
                Step::Took(input.len())
            }
        }
    }

    pub(crate) fn on_response_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        self.count_response_data(key, data.len());
        let Some(exchange) = self.exchanges.get(key) else { return };
        if exchange.call.is_none() {
            return self.pass_response_data(key, data, now);
        }
        self.translate_response(key, data, |proxy, data| {
            proxy.pass_response_data(key, data, now);
        });
    }

    /// So many bytes of the response body came.
    pub(crate) fn count_response_data(&mut self, key: ExchangeKey, n: usize) {
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.record.response_bytes += n as u64;
        }
    }

    /// Some of the response body came: how long the next piece may take.
    pub(crate) fn await_response_data(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let timeout = if exchange.record.is_tunnel {
            Some((Wait::TunnelIdle, exchange.listener().timeouts.tunnel_idle))
        } else {
            let timeout = exchange.cluster().map(|cluster| cluster.timeouts.response_body);
            timeout.map(|timeout| (Wait::ResponseBody, timeout))
        };
        if let Some((wait, timeout)) = timeout {
            self.set_deadline(key, wait, now + timeout);
        }
    }

    /// A piece of the response body as it goes on.
    fn pass_response_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        self.await_response_data(key, now);
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.show_response_data(data);
        let (downstream, is_held) = (exchange.downstream, exchange.held.is_some());
        if is_held {
            return self.gather_response_data(key, data, now);
        }
        self.send_data(downstream, data);
    }

    /// The response is whole. `is_last`: no bytes came behind it.
    pub(crate) fn on_response_end(
        &mut self,
        upstream: StreamKey,
        exchange_key: ExchangeKey,
        trailers: &[u8],
        is_last: bool,
        now: Time,
    ) {
        // The last piece of the body may have been one too many.
        let is_over = |exchange: &Exchange| exchange.upstream() != Some(upstream);
        if self.exchanges.get(exchange_key).is_none_or(is_over)
            || !self.release_response(exchange_key, now)
        {
            return;
        }
        let is_said = self.end_call_response(exchange_key, trailers, |proxy, data| {
            proxy.pass_response_data(exchange_key, data, now);
        });
        let trailers = if is_said { &[] } else { trailers };
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.record.stamps.response_read = now;
        exchange.deadlines.clear(Wait::ResponseBody);
        let (downstream, is_tunnel) = (exchange.downstream, exchange.record.is_tunnel);
        let is_request_complete = exchange.request.is_complete;
        let is_sent = self.send_end(downstream, trailers);
        if is_tunnel {
            if let Some(connection) = self.connections.get_mut(upstream.connection)
                && upstream.is_whole()
            {
                connection.receive = Receive::Complete;
            }
            if let Some(exchange) = self.exchanges.get_mut(exchange_key) {
                exchange.is_response_complete = true;
            }
        } else {
            if let Some(exchange) = self.exchanges.get_mut(exchange_key) {
                exchange.stage = Stage::Finishing;
            }
            if !is_request_complete {
                if let Some(exchange) = self.exchanges.get_mut(exchange_key) {
                    exchange.deadlines.clear(Wait::RequestBody);
                }
                self.discard_request(downstream);
            }
            self.release(upstream, is_last && is_request_complete, now);
        }
        if is_sent && downstream.is_whole() {
            self.on_downstream_sent(downstream.connection, 0, 0, now);
        } else if is_sent {
            self.on_response_sent(exchange_key, (0, 0), true, now);
        }
    }

    // Ends and progress.

    /// The upstream sent FIN.
    pub(crate) fn on_upstream_end(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(exchange) = connection.exchange() else {
            self.end_streams(key, Cause::UpstreamClosed, now);
            return self.close_upstream(key, None, now);
        };
        // A write that failed took the reset's error with it, and what is read then is 0.
        let was_reset = connection.is_send_broken;
        match &mut connection.receive {
            Receive::Body(body) => {
                if !was_reset && body.on_eof().is_ok() {
                    self.on_response_end(StreamKey::whole(key), exchange, &[], true, now);
                } else {
                    self.fail(exchange, Cause::ResponseTruncated, now);
                }
            }
            _ => self.fail_attempt(exchange, Cause::UpstreamClosed, now),
        }
    }

    /// The upstream reset the connection.
    pub(crate) fn on_upstream_broken(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(exchange) = connection.exchange() else {
            self.end_streams(key, Cause::UpstreamClosed, now);
            return self.close_upstream(key, None, now);
        };
        match &connection.receive {
            Receive::Body(_) => self.fail(exchange, Cause::ResponseTruncated, now),
            _ => self.fail_attempt(exchange, Cause::UpstreamClosed, now),
        }
    }

    /// Nothing more can be sent. The response, or the end, is read before anything is decided: an
    /// upstream may answer early and close.
    pub(crate) fn on_upstream_send_failed(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.is_send_broken = true;
        if connection.is_read_closed {
            self.on_upstream_broken(key, now);
        } else {
            self.ops.push_back(Op::Read(key));
        }
    }

    /// The upstream took bytes between `began` and `now`; `left` still wait.
    pub(crate) fn on_upstream_sent(
        &mut self,
        key: ConnKey,
        left: usize,
        n: usize,
        (began, now): (Time, Time),
    ) {
        let Some(connection) = self.connections.get(key) else { return };
        let is_ending = matches!(connection.send, Send::Ending);
        let Some(exchange_key) = connection.exchange() else { return };
        self.on_request_sent(exchange_key, (left, n), is_ending, (began, now));
    }

    /// The upstream took bytes of a request; `left` still wait. `is_ended`: nothing follows them.
    pub(crate) fn on_request_sent(
        &mut self,
        exchange_key: ExchangeKey,
        (left, n): (usize, usize),
        is_ended: bool,
        (began, now): (Time, Time),
    ) {
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        let stamps = &mut exchange.record.stamps;
        if n > 0 {
            stamps.write_began = stamps.write_began.min(began);
            stamps.written = now;
        }
        if left > 0 {
            if (n > 0 || !exchange.deadlines.is_set(Wait::RequestWrite))
                && let Some(timeouts) = exchange.cluster().map(|cluster| cluster.timeouts)
            {
                self.set_deadline(exchange_key, Wait::RequestWrite, now + timeouts.request_write);
            }
            return;
        }
        exchange.deadlines.clear(Wait::RequestWrite);
        let is_tunnel = exchange.record.is_tunnel;
        if is_ended && is_tunnel {
            if let Some(upstream) = exchange.upstream().filter(|upstream| upstream.is_whole()) {
                self.shut(upstream.connection);
            }
            self.finish_tunnel(exchange_key, now);
        } else if exchange.request.is_complete
            && matches!(exchange.stage, Stage::Attempting { .. })
            && let Some(timeouts) = exchange.cluster().map(|cluster| cluster.timeouts)
        {
            self.set_deadline(exchange_key, Wait::ResponseHead, now + timeouts.response_head);
        }
    }

    /// Ends a tunnel both of whose sides have said all and been told all.
    pub(crate) fn finish_tunnel(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let Some(upstream) = exchange.upstream() else { return };
        let sides = [exchange.downstream, upstream];
        let is_quiet = |side: &StreamKey| self.backlog(*side) == 0 && !self.has_open_end(*side);
        if exchange.request.is_complete
            && exchange.is_response_complete
            && sides.iter().all(is_quiet)
        {
            if let Some(exchange) = self.exchanges.get_mut(key) {
                exchange.stage = Stage::Finishing;
            }
            if upstream.is_whole() {
                self.close_upstream(upstream.connection, None, now);
            } else {
                self.drop_stream(upstream, ErrorCode::NO_ERROR, now);
            }
            self.finish(key, None, now);
        }
    }
}

/// Whether trailers may come behind a body whose length is known.
fn has_late_trailers(head: &ResponseHead<'_>) -> bool {
    head.version() == Version::Http2 && announces_trailers(head)
}

/// What a refused response head is called.
fn cause_of_response(error: &HeadError) -> Cause {
    match error.kind() {
        HeadErrorKind::LineTooLong | HeadErrorKind::TooLarge => Cause::ResponseHeadTooLarge,
        HeadErrorKind::Syntax
        | HeadErrorKind::Framing
        | HeadErrorKind::Host
        | HeadErrorKind::Target
        | HeadErrorKind::NotImplemented
        | HeadErrorKind::Version => Cause::ResponseInvalid,
    }
}
