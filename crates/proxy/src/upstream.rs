//! Hop 8: upstream connections, from their opening to their return to the pool, and what they
//! answer.

use std::sync::Arc;

use config::snapshot::Cluster;
use telemetry::cause::Cause;
use telemetry::events::{TunnelStarted, UpstreamConnectFailed, UpstreamConnected};
use wire::h1::{
    BodyDecoder, BodyElement, BodyEncoder, ConnectionField, HeadError, HeadErrorKind, HeadLimits,
    Scan, decode_response, encode_response,
};
use wire::head::{Framing, ResponseHead, Version};

use crate::connection::{
    ConnKey, Connection, ExchangeKey, Life, OUTBOX_BYTES_MAX, Receive, Role, Send, Upstream,
    UpstreamState,
};
use crate::downstream::{BODY_LIMITS, Step};
use crate::exchange::{Exchange, INTERIM_RESPONSES_MAX, Kind, Stage, Unbound, Wait};
use crate::ops::{ConnectOptions, Op};
use crate::pool::endpoint_at;
use crate::proxy::Proxy;
use crate::pump::TOGETHER_BYTES_MAX;
use crate::record::label;
use crate::time::Time;

/// Bounds on a response head. They are not an option: a service that needs more is broken.
const RESPONSE_HEAD: HeadLimits =
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
        now: Time,
    ) {
        let endpoint = endpoint_at(cluster, place);
        let role = Role::Upstream(Upstream {
            cluster: cluster.id,
            endpoint: endpoint.id,
            state: UpstreamState::Connecting { exchange: key, since: now },
            is_personal: request.is_personal,
            is_reusable: false,
        });
        let receive = if self.is_relay(key) {
            Receive::Body(BodyDecoder::new(Framing::UntilClose))
        } else {
            Receive::Head(Scan::default())
        };
        let upstream = self.insert_connection(role, receive, now);
        self.pools.on_open(cluster.id);
        if let Some(connection) = self.connections.get_mut(upstream) {
            connection.outbox = request.outbox;
            connection.send = request.send;
            connection.requests = 1;
            self.timers.arm(connection.timer, now + cluster.timeouts.connect);
        }
        self.bind(key, upstream, place, now);
        let options = ConnectOptions { keepalive: cluster.keepalive, fast_open: cluster.fast_open };
        let address = endpoint.address.clone();
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
        connection.outbox = request.outbox;
        connection.send = request.send;
        connection.receive = Receive::Head(Scan::default());
        connection.requests += 1;
        self.timers.arm(connection.timer, Time::NEVER);
        if let Some(role) = connection.upstream_mut() {
            role.state = UpstreamState::Busy { exchange: key };
            role.is_reusable = false;
        }
        self.bind(key, upstream, place, now);
        self.queue_send(upstream);
    }

    fn bind(&mut self, key: ExchangeKey, upstream: ConnKey, place: usize, now: Time) {
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
        let exchange = self.connections.get(key).and_then(Connection::exchange);
        if let Some(exchange) = exchange.and_then(|key| self.exchanges.get_mut(key)) {
            exchange.record.stamps.connect_began = now;
        }
    }

    /// How connecting went; an error is [`Cause::ConnectFailed`] or [`Cause::OutOfDescriptors`].
    pub fn on_connected(&mut self, key: ConnKey, result: Result<(), Cause>, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let timer = connection.timer;
        let Some(upstream) = connection.upstream_mut() else { return };
        let UpstreamState::Connecting { exchange, since } = upstream.state else { return };
        let cluster = label(upstream.cluster.0);
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
                if self.is_relay(exchange) {
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

    /// The exchange is done with its connection: back to the pool with it, or away.
    fn release(&mut self, key: ConnKey, is_clean: bool, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_whole = connection.outbox.is_empty()
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
            let Some(exchange) = connection.exchange() else {
                // Nobody asked: whatever this is, the connection is not used again.
                self.close_upstream(key, Some(Cause::ResponseInvalid), now);
                return input.len();
            };
            let step = match &connection.receive {
                Receive::Head(_) => self.on_response_head_bytes(key, exchange, rest, now),
                Receive::Body(_) => self.on_response_body_bytes(key, exchange, rest, now),
                Receive::ProxyHeader
                | Receive::Detect
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
                    101 => self.on_switching_protocols(key, exchange_key, &mut head, now),
                    100..=199 => self.on_interim_response(exchange_key, &head, now),
                    _ => {
                        let behind = input.len() - n;
                        self.on_response_head(key, exchange_key, &mut head, behind, now);
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
    fn on_interim_response(&mut self, key: ExchangeKey, head: &ResponseHead<'_>, now: Time) {
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
        if let Some(connection) = self.connections.get_mut(downstream) {
            connection.outbox.push_with(head.encoded_len_max(), &mut self.buffers, |buffer| {
                let (framing, field) = (Framing::None, ConnectionField::Default);
                encode_response(head, Version::Http11, framing, field, buffer);
            });
        }
        self.queue_send(downstream);
    }

    /// The final response's head; so many bytes came `behind` it.
    fn on_response_head(
        &mut self,
        key: ConnKey,
        exchange_key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        behind: usize,
        now: Time,
    ) {
        let received = head.framing();
        let gather_bytes_max = self.run_response_chain(exchange_key, head);
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.deadlines.clear(Wait::ResponseHead);
        exchange.stage = Stage::Responding { upstream: key };
        let timeout = exchange.cluster().map(|cluster| cluster.timeouts.response_body);
        match gather_bytes_max {
            Some(bytes_max) => self.hold_response(exchange_key, head, bytes_max),
            None => self.begin_response(exchange_key, head, received, behind),
        }
        let body = BodyDecoder::new(received);
        let is_complete = body.is_complete();
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.receive = Receive::Body(body);
        if let Some(upstream) = connection.upstream_mut() {
            upstream.is_reusable =
                head.persistent() && received != Framing::UntilClose && !upstream.is_personal;
        }
        if is_complete {
            self.on_response_end(key, exchange_key, &[], behind == 0, now);
        } else if let Some(timeout) = timeout {
            self.set_deadline(exchange_key, Wait::ResponseBody, now + timeout);
        }
    }

    /// Encodes a response's head for the downstream; so many bytes of its body are there already.
    pub(crate) fn begin_response(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        received: Framing,
        behind: usize,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let version = exchange.request.version;
        let framing = match (received, version) {
            (Framing::Chunked, Version::Http10) => Framing::UntilClose,
            (Framing::UntilClose, Version::Http11) => Framing::Chunked,
            (framing, _) => framing,
        };
        exchange.record.status = head.status();
        let downstream = exchange.downstream;
        let field = self.settle_life(key, framing);
        let Some(connection) = self.connections.get_mut(downstream) else { return };
        // Room for what came with it too, so that a usual response is one buffer and one send.
        let bytes = head.encoded_len_max();
        let room = if behind <= TOGETHER_BYTES_MAX { bytes + behind } else { bytes };
        connection.outbox.push_with(room, &mut self.buffers, |buffer| {
            encode_response(head, version, framing, field, buffer);
        });
        connection.send = Send::Body(BodyEncoder::new(framing));
        self.queue_send(downstream);
    }

    /// Decides what becomes of the downstream connection after a response, and how to say it.
    pub(crate) fn settle_life(&mut self, key: ExchangeKey, framing: Framing) -> ConnectionField {
        let Some(exchange) = self.exchanges.get(key) else { return ConnectionField::Close };
        let (key, request) = (exchange.downstream, &exchange.request);
        let Some(downstream) = self.connections.get(key).and_then(Connection::downstream) else {
            return ConnectionField::Close;
        };
        let is_draining = self.is_draining(downstream);
        // A client that waits for leave to send a body may send it or not: it cannot be told which
        // of its bytes would begin the next request.
        let is_ambiguous = request.expects_continue && !request.is_complete;
        let Some(downstream) = self.connections.get_mut(key).and_then(Connection::downstream_mut)
        else {
            return ConnectionField::Close;
        };
        if downstream.life == Life::Open {
            if !request.is_persistent {
                downstream.life = Life::CloseWhenSent;
            } else if is_draining || is_ambiguous || framing == Framing::UntilClose {
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
    fn on_switching_protocols(
        &mut self,
        key: ConnKey,
        exchange_key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        let is_allowed = head.upgrade().is_some_and(|protocols| exchange.allows_upgrade(protocols));
        if !exchange.request.asks_upgrade || !exchange.request.is_complete || !is_allowed {
            return self.fail(exchange_key, Cause::ResponseInvalid, now);
        }
        self.run_response_chain(exchange_key, head);
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.record.status = 101;
        exchange.record.is_tunnel = true;
        let listener = label(exchange.listener().id.0);
        self.emitter.tunnel_started(&TunnelStarted { listener });
        exchange.request.is_complete = false;
        exchange.stage = Stage::Responding { upstream: key };
        exchange.deadlines = crate::exchange::Deadlines::default();
        let downstream = exchange.downstream;
        let timeout = exchange.listener().timeouts.tunnel_idle;
        self.set_deadline(exchange_key, Wait::TunnelIdle, now + timeout);
        if let Some(connection) = self.connections.get_mut(downstream) {
            connection.outbox.push_with(head.encoded_len_max(), &mut self.buffers, |buffer| {
                let (framing, field) = (Framing::None, ConnectionField::Upgrade);
                encode_response(head, Version::Http11, framing, field, buffer);
            });
            if let Some(role) = connection.downstream_mut() {
                role.life = Life::CloseWhenSent;
            }
        }
        for side in [key, downstream] {
            if let Some(connection) = self.connections.get_mut(side) {
                connection.receive = Receive::Body(BodyDecoder::new(Framing::UntilClose));
                connection.send = Send::Body(BodyEncoder::new(Framing::UntilClose));
            }
        }
        self.queue_send(downstream);
        self.resume_inbox(downstream, now);
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
        match body.decode(input, &BODY_LIMITS) {
            Ok((n, BodyElement::NeedMore)) => Step::Wait(n),
            Ok((n, BodyElement::Data(data))) => {
                let is_complete = body.is_complete();
                self.on_response_data(exchange_key, data, now);
                if is_complete {
                    self.on_response_end(key, exchange_key, &[], n == input.len(), now);
                }
                Step::Took(n)
            }
            Ok((n, BodyElement::End)) => {
                self.on_response_end(key, exchange_key, &[], n == input.len(), now);
                Step::Took(n)
            }
            Ok((n, BodyElement::Trailers(trailers))) => {
                self.on_response_end(key, exchange_key, trailers, n == input.len(), now);
                Step::Took(n)
            }
            Err(_) => {
                self.fail(exchange_key, Cause::ResponseInvalid, now);
                Step::Took(input.len())
            }
        }
    }

    fn on_response_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.record.response_bytes += data.len() as u64;
        let downstream = exchange.downstream;
        let timeout = if exchange.record.is_tunnel {
            Some((Wait::TunnelIdle, exchange.listener().timeouts.tunnel_idle))
        } else {
            let timeout = exchange.cluster().map(|cluster| cluster.timeouts.response_body);
            timeout.map(|timeout| (Wait::ResponseBody, timeout))
        };
        exchange.show_response_data(data);
        let is_held = exchange.held.is_some();
        if let Some((wait, timeout)) = timeout {
            self.set_deadline(key, wait, now + timeout);
        }
        if is_held {
            return self.gather_response_data(key, data, now);
        }
        let Some(connection) = self.connections.get_mut(downstream) else { return };
        connection
            .send_data(data, &mut self.buffers)
            .expect("both sides have the same framing, and the decoder keeps to it");
        self.queue_send(downstream);
    }

    /// The response is whole. `is_last`: no bytes came behind it.
    fn on_response_end(
        &mut self,
        key: ConnKey,
        exchange_key: ExchangeKey,
        trailers: &[u8],
        is_last: bool,
        now: Time,
    ) {
        // The last piece of the body may have been one too many.
        let is_over = |exchange: &Exchange| exchange.upstream() != Some(key);
        if self.exchanges.get(exchange_key).is_none_or(is_over)
            || !self.release_response(exchange_key, now)
        {
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.record.stamps.response_read = now;
        exchange.deadlines.clear(Wait::ResponseBody);
        let (downstream, is_tunnel) = (exchange.downstream, exchange.record.is_tunnel);
        let is_request_complete = exchange.request.is_complete;
        if let Some(connection) = self.connections.get_mut(downstream) {
            connection
                .send_end(trailers, &mut self.buffers)
                .expect("both sides have the same framing, and the decoder keeps to it");
        }
        if is_tunnel {
            if let Some(connection) = self.connections.get_mut(key) {
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
            self.release(key, is_last && is_request_complete, now);
        }
        let is_sent = self.connections.get(downstream).is_some_and(|c| c.outbox.is_empty());
        if is_sent {
            self.on_downstream_sent(downstream, 0, 0, now);
        } else {
            self.queue_send(downstream);
        }
    }

    // Ends and progress.

    /// The upstream sent FIN.
    pub(crate) fn on_upstream_end(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(exchange) = connection.exchange() else {
            return self.close_upstream(key, None, now);
        };
        // A write that failed took the reset's error with it, and what is read then is 0.
        let was_reset = connection.is_send_broken;
        match &mut connection.receive {
            Receive::Body(body) => {
                if !was_reset && body.on_eof().is_ok() {
                    self.on_response_end(key, exchange, &[], true, now);
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
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        let stamps = &mut exchange.record.stamps;
        if n > 0 {
            stamps.write_began = stamps.write_began.min(began);
            stamps.written = now;
        }
        let timeouts = exchange.cluster().map(|cluster| cluster.timeouts);
        if left > 0 {
            if (n > 0 || !exchange.deadlines.is_set(Wait::RequestWrite))
                && let Some(timeouts) = timeouts
            {
                self.set_deadline(exchange_key, Wait::RequestWrite, now + timeouts.request_write);
            }
            return;
        }
        exchange.deadlines.clear(Wait::RequestWrite);
        if is_ending {
            self.shut(key);
            self.finish_tunnel(exchange_key, now);
        } else if exchange.request.is_complete
            && matches!(exchange.stage, Stage::Attempting { .. })
            && let Some(timeouts) = timeouts
        {
            self.set_deadline(exchange_key, Wait::ResponseHead, now + timeouts.response_head);
        }
    }

    /// Ends a tunnel both of whose sides have said all and been told all.
    pub(crate) fn finish_tunnel(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let Some(upstream) = exchange.upstream() else { return };
        let sides = [exchange.downstream, upstream];
        let is_quiet = |side: &ConnKey| {
            self.connections.get(*side).is_some_and(|connection| connection.outbox.is_empty())
        };
        if exchange.request.is_complete
            && exchange.is_response_complete
            && sides.iter().all(is_quiet)
        {
            self.close_upstream(upstream, None, now);
            if let Some(exchange) = self.exchanges.get_mut(key) {
                exchange.stage = Stage::Finishing;
            }
            self.finish(key, None, now);
        }
    }

    /// Whether the other side has to catch up before this one is read on.
    pub(crate) fn is_held_back(&self, key: ConnKey) -> bool {
        let connection = self.connections.get(key);
        connection.is_some_and(|connection| connection.outbox.len() >= OUTBOX_BYTES_MAX)
    }
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
