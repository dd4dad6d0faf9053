//! Hops 5 to 8: what an exchange does with the elements that codecs hand it, whatever the codecs.
//!
//! Heads go through filters and routing; data, ends and resets go to the other side's connection,
//! which frames them as it needs. Every way an exchange can end is here too: [`Proxy::finish`]
//! when its response is sent, [`Proxy::fail`] when a reply has to take the response's place, and
//! [`Proxy::abort`] when nobody is left to answer.

use std::net::SocketAddr;
use std::sync::Arc;

use config::snapshot::{Action, ClusterId, ClusterProtocol, Forward, ProxyProtocolVersion};
use telemetry::cause::Cause;
use telemetry::events::{ExchangeFinished, UpstreamRetried};
use wire::h1::{BodyEncoder, ConnectionField};
use wire::h2::ErrorCode;
use wire::head::{Framing, Head, Known, Method, RequestHead, Version};
use wire::proxy_protocol;
use wire::upgrade::{websocket_accept, websocket_key};

use crate::connection::connections::Connections;
use crate::connection::http2::Tail;
use crate::connection::transport::Tls;
use crate::connection::{Connection, ExchangeKey, Life, PeerAddress, Receive, Send, StreamKey};
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::fault::{Retry, Side, consequence};
use crate::exchange::record::{Word, label};
use crate::exchange::{
    ATTEMPTS_MAX, ATTEMPTS_UNSEEN_MAX, Deadlines, Exchange, Form, Handshake, Kind, QueuedRequest,
    Route, Stage, Wait, route,
};
use crate::listen::Listen;
use crate::listen::clients::{ClientPlace, Part};
use crate::proxy::Proxy;
use crate::tools::buffers::Buffers;
use crate::tools::detail::Detail;
use crate::tools::outbox::Outbox;
use crate::tools::rate::Rate;
use crate::tools::text::Text;
use crate::tools::time::Time;
use crate::upstream::pool::{Acquired, Sharing};
use crate::upstream::{Upstreams, original};

/// A body of up to so many bytes gets room behind its head in the head's buffer.
pub(crate) const TOGETHER_BYTES_MAX: usize = 16 << 10;

/// Bytes of the longest PROXY protocol header that is sent: a line of version 1.
const PROXY_HEADER_BYTES_MAX: usize = 107;

impl Cx {
    /// A request for a stream: how its head is encoded depends on the connection.
    fn encode_for_stream(&mut self, head: &RequestHead<'_>, is_complete: bool) -> QueuedRequest {
        let mut outbox = Outbox::new();
        outbox.keep();
        let tail = if is_complete { Tail::End } else { Tail::Open };
        QueuedRequest { outbox, form: Form::Stream { head: self.park(head), tail } }
    }
}

impl Connections {
    fn tell(&self, exchange: &Exchange, cause: Option<Cause>, now: Time, cx: &mut Cx) {
        let record = &exchange.record;
        let route = exchange.route.as_ref();
        let cluster = exchange.cluster();
        let endpoint = cluster
            .zip(route.and_then(|route| route.endpoint))
            .and_then(|(cluster, place)| cluster.endpoints.get(place));
        let connection = self.get(exchange.downstream.connection);
        let peer = connection.map(|connection| &connection.peer);
        let stages = if exchange.snapshot.access_log.stage_times {
            record.stamps.stages(now)
        } else {
            record.stamps.total_only(now)
        };
        // Most exchanges are only counted; their addresses need not become text.
        let is_recorded = cx.emitter.is_recorded(stages.total, record.is_tunnel);
        let (endpoint, peer) = if is_recorded { (endpoint, peer) } else { (None, None) };
        let onward = if is_recorded { self.connect_target_of(exchange) } else { None };
        let endpoint = endpoint.map(|endpoint| &endpoint.address).or(onward.as_ref());
        let endpoint = Text::of_address(endpoint);
        let client = match record.client.filter(|_| is_recorded) {
            Some(ip) => Text::of_ip(&PeerAddress::from(SocketAddr::new(ip, 0))),
            None => peer.map_or(Text::EMPTY, Text::of_ip),
        };
        let words = &record.words;
        let tls = connection.and_then(|connection| connection.tls.as_deref());
        let tls = tls.filter(|_| is_recorded).map(Tls::words).unwrap_or_default();
        cx.emitter.exchange_finished(&ExchangeFinished {
            listener: label(exchange.listener().id.0),
            rule: route.and_then(|route| route.rule).map(|(table, rule)| (label(table.0), rule)),
            cluster: route.and_then(|route| route.cluster).map(|id| label(id.0)),
            endpoint: endpoint.as_bytes(),
            client: client.as_bytes(),
            method: words.word(Word::Method),
            target: words.word(Word::Target),
            host: words.word(Word::Host),
            request_id: words.word(Word::RequestId),
            user_agent: words.word(Word::UserAgent),
            server_name: tls.server_name.as_bytes(),
            tls_version: tls.version.as_bytes(),
            tls_cipher: tls.cipher.as_bytes(),
            peer_identity: tls.peer_identity.as_bytes(),
            version: match (exchange.kind, exchange.request.version) {
                (Kind::Tcp, _) => 1,
                (Kind::Tls, _) => 2,
                (Kind::Http | Kind::Connect, Version::Http10) => 10,
                (Kind::Http | Kind::Connect, Version::Http11) => 11,
                (Kind::Http | Kind::Connect, Version::Http2) => 20,
            },
            status: record.status,
            cause,
            cause_detail: record.cause_detail.as_ref().map_or(&[], Detail::as_bytes),
            is_reply: record.is_reply,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            grpc: exchange.call.as_ref().map(|call| call.told()),
            attempts: record.attempts,
            is_tunnel: record.is_tunnel,
            started_at: cx.wall_clock_zero.saturating_add(record.stamps.began.as_nanos()),
            stages,
        });
    }
}

impl Exchanges {
    fn take_waiting(&mut self, key: ExchangeKey, now: Time) -> Option<QueuedRequest> {
        let exchange = self.get_mut(key)?;
        exchange.record.stamps.wait_ended = now;
        match std::mem::replace(&mut exchange.stage, Stage::Finishing) {
            Stage::Waiting { request } => Some(request),
            stage => {
                exchange.stage = stage;
                None
            }
        }
    }

    /// So many bytes of the request body came.
    pub(crate) fn count_request_data(&mut self, key: ExchangeKey, n: usize) {
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.record.request_bytes += n as u64;
        // Whoever sends the body does not wait for leave to do so any more.
        exchange.request.expects_continue = false;
    }

    /// So many bytes of the request body came: how long the next piece may take.
    pub(crate) fn await_request_data(
        &mut self,
        key: ExchangeKey,
        n: usize,
        now: Time,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        let (wait, timeout) = match exchange.stage {
            Stage::Responding { .. } => exchange.silence(),
            Stage::Gathering { .. } | Stage::Buffering { .. } => exchange.silence_of_client(),
            _ if exchange.is_conversation() => exchange.silence(),
            _ => exchange.silence_of_client(),
        };
        let deadline = match wait {
            Wait::RequestBody => {
                let rate_min = exchange.listener().http.request_rate_bytes_min;
                let (deadline, is_slow) = Rate { bytes_min: rate_min, timeout }.extend(
                    exchange.deadlines.get(wait),
                    n,
                    now,
                );
                exchange.is_request_slow = is_slow;
                deadline
            }
            _ => now + timeout,
        };
        self.set_deadline(key, wait, deadline, cx);
    }
}

impl Exchanges {
    /// A request for a connection that is its own.
    fn encode_whole(
        &self,
        key: ExchangeKey,
        head: &mut RequestHead<'_>,
        asks_upgrade: bool,
        connections: &Connections,
        cx: &mut Cx,
    ) -> QueuedRequest {
        // One that was parked reads as the request of HTTP/1 that it stands for.
        let comes_on_stream = self.get(key).is_some_and(|exchange| !exchange.downstream.is_whole());
        if asks_upgrade && comes_on_stream && is_websocket(head) {
            // The client of HTTP/2 has no key to send, and no use for the answer to one.
            head.set(b"sec-websocket-key", &websocket_key(cx.random.octets()));
        }
        if head.version() == Version::Http2
            && announces_trailers(head)
            && matches!(head.framing(), Framing::Length(_))
        {
            // Only the chunked coding has a place for them.
            head.set_framing(Framing::Chunked);
        }
        let encoder = BodyEncoder::new(head.framing());
        let send = if encoder.is_complete() { Send::Idle } else { Send::Body(encoder) };
        let mut outbox = Outbox::new();
        outbox.keep();
        let is_personal = self.push_proxy_header(key, &mut outbox, connections, cx);
        // Room for the body of a usual request too, so that all of it is in one buffer: one send,
        // and all of it there to be sent again.
        let body = match head.framing() {
            Framing::Length(n) => usize::try_from(n).unwrap_or(usize::MAX),
            _ => 0,
        };
        let bytes = head.encoded_len_max();
        let room = bytes.saturating_add(if body <= TOGETHER_BYTES_MAX { body } else { 0 });
        outbox.push_with(room, &mut cx.buffers, |buffer| {
            wire::h1::encode_request(head, connection_field(asks_upgrade), buffer);
        });
        QueuedRequest { outbox, form: Form::Whole { send, is_personal } }
    }

    /// The PROXY protocol header, for clusters that want one in front of each connection. Says
    /// whether there is one.
    pub(crate) fn push_proxy_header(
        &self,
        key: ExchangeKey,
        outbox: &mut Outbox,
        connections: &Connections,
        cx: &mut Cx,
    ) -> bool {
        let Some(exchange) = self.get(key) else { return false };
        let cluster = exchange.cluster();
        let Some(version) = cluster.and_then(|cluster| cluster.proxy_protocol) else {
            return false;
        };
        // In front of a handshake it is written where that begins.
        if cluster.is_some_and(|cluster| cluster.tls.is_none()) {
            self.write_proxy_header(key, version, outbox, connections, cx);
        }
        true
    }

    /// Writes the header of this version.
    pub(crate) fn write_proxy_header(
        &self,
        key: ExchangeKey,
        version: ProxyProtocolVersion,
        outbox: &mut Outbox,
        connections: &Connections,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get(key) else { return };
        let Some(connection) = connections.get(exchange.downstream.connection) else { return };
        // A client that a trusted hop named has no port that is known here.
        let client = exchange.record.client.map(|ip| SocketAddr::new(ip, 0));
        let source = client.or_else(|| connection.peer.socket_address());
        let addresses = source.zip(connection.local.socket_address());
        outbox.push_with(PROXY_HEADER_BYTES_MAX, &mut cx.buffers, |buffer| {
            match (version, addresses) {
                (ProxyProtocolVersion::V1, Some((source, destination))) => {
                    proxy_protocol::encode_v1(source, destination, buffer);
                }
                (ProxyProtocolVersion::V1, None) => proxy_protocol::encode_unknown_v1(buffer),
                (ProxyProtocolVersion::V2, Some((source, destination))) => {
                    proxy_protocol::encode_v2(source, destination, buffer);
                }
                (ProxyProtocolVersion::V2, None) => proxy_protocol::encode_local_v2(buffer),
            }
        });
    }
}

impl Exchanges {
    /// Makes an exchange wait for a connection.
    pub(crate) fn enqueue(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        now: Time,
        upstream: &mut Upstreams,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        let Some(cluster) = exchange.cluster() else { return };
        let (id, timeout) = (cluster.id, cluster.timeouts.pending);
        exchange.stage = Stage::Waiting { request };
        upstream.pools.wait(id, exchange.client, key);
        // Who left the queue in vain goes on waiting, not once more.
        if !exchange.deadlines.is_set(Wait::Connection) {
            exchange.record.stamps.wait_began = now;
            self.set_deadline(key, Wait::Connection, now + timeout, cx);
        }
        upstream.note_crowd(id);
    }
}

impl Exchanges {
    /// Takes an exchange out and tells what it was; returns its downstream connection.
    fn remove_exchange(
        &mut self,
        key: ExchangeKey,
        cause: Option<Cause>,
        now: Time,
        connections: &Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> Option<StreamKey> {
        let mut exchange = self.table.remove(key)?;
        exchange.let_go(&mut listen.clients, &mut self.stalls);
        listen.clients.remove(exchange.client, Part::Exchange);
        cx.timers.remove(exchange.timer);
        // What happened first is why; the rest follows from it.
        let cause = exchange.record.cause.or(cause);
        connections.tell(&exchange, cause, now, cx);
        let downstream = exchange.downstream;
        if let Some(text) = exchange.record.words.text.take() {
            cx.buffers.give_back(text);
        }
        cx.drop_bodies(&mut exchange);
        drop((exchange.snapshot, exchange.route));
        if cx.has_former_snapshots() {
            cx.retire_former();
        }
        Some(downstream)
    }
}

impl Proxy {
    // Routing.

    /// Hop 7: finds the rule and does what it says.
    pub(crate) fn route(&mut self, key: ExchangeKey, head: &mut RequestHead<'_>, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let snapshot = exchange.snapshot.clone();
        let asks_tunnel = head.method() == Method::Connect && !head.is_extended_connect();
        let downstream = self.connections.get(exchange.downstream.connection);
        let tls = downstream.and_then(|connection| connection.tls.as_deref());
        let client = tls.and_then(Tls::client_cert).map(|client| client.peer);
        let found = if asks_tunnel {
            route::find_tunnel(&snapshot, exchange.listener(), head.host(), client)
        } else {
            route::find(&snapshot, exchange.listener(), head.host(), head.path(), client)
        };
        let (table, place, rule) = match found {
            Ok(found) => found,
            Err(cause) => return self.fail(key, cause, now),
        };
        // A file of the largest size has fewer rules than that by far.
        let rule_place = u32::try_from(place).ok().map(|place| (table.id, place));
        let mut route = Route::new(rule_place, None);
        match &rule.action {
            Action::Forward(forward) => {
                route.cluster = Some(forward.cluster);
                exchange.route = Some(route);
                if asks_tunnel {
                    return self.open_tunnel(key, now);
                }
                self.forward(key, forward, head, now);
            }
            Action::Respond(respond) => {
                exchange.route = Some(route);
                self.respond(key, respond, now);
            }
            Action::Redirect(redirect) => {
                exchange.route = Some(route);
                self.redirect(key, redirect, &rule.path, head, now);
            }
        }
    }

    /// Hop 8 begins: encodes the request and asks for a connection.
    fn forward(
        &mut self,
        key: ExchangeKey,
        forward: &Forward,
        head: &mut RequestHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let asks_upgrade =
            head.upgrade().is_some_and(|value| route::allows_upgrade(&forward.upgrades, value));
        exchange.request.asks_upgrade = asks_upgrade;
        if exchange.request.is_extended_connect && !asks_upgrade {
            return self.fail(key, Cause::RequestNotImplemented, now);
        }
        let timeout = self.exchanges.bound_call(key, head, forward.timeout);
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let gathered = exchange.gathered.take();
        let is_complete = exchange.request.is_complete;
        let is_shared =
            exchange.cluster().is_some_and(|cluster| cluster.protocol == ClusterProtocol::Http2);
        if asks_upgrade && is_shared && exchange.downstream.is_whole() {
            let key = head.find(b"sec-websocket-key");
            exchange.handshake = head.upgrade().map(|protocol| {
                let (protocol, accept) = (protocol.into(), key.map(websocket_accept));
                Box::new(Handshake { protocol, accept })
            });
        }
        let mut request = if is_shared {
            // What follows a change of protocols belongs to the new one.
            self.cx.encode_for_stream(head, is_complete && !asks_upgrade)
        } else {
            self.exchanges.encode_whole(key, head, asks_upgrade, &self.connections, &mut self.cx)
        };
        if let Some(gathered) = gathered {
            self.cx.push_gathered(*gathered, is_complete, &mut request);
        }
        if let Some(timeout) = timeout {
            self.exchanges.set_deadline(key, Wait::Whole, now + timeout, &mut self.cx);
        }
        if self.exchanges.must_buffer(key, &self.upstream, &self.cx) {
            return self.exchanges.buffer_request(key, request, now, &mut self.cx);
        }
        self.ask(key, request, Some(head), now);
    }

    // The upstream side of an exchange.

    /// Finds a connection for a request and gives it to that, or queues it, or fails. `head` is the
    /// request's, where it is at hand. What is not from the queue goes through [`Proxy::ask`].
    pub(crate) fn attempt(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        let has_former = self.cx.has_former_snapshots();
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if has_former {
            exchange.follow_cluster(&self.cx.snapshot);
        }
        let Some(cluster) = exchange.cluster() else {
            return self.fail_queued(key, request, Cause::NoEndpoint, now);
        };
        let route = exchange.route.as_ref();
        let avoid = route
            .and_then(|route| route.endpoint)
            .and_then(|place| cluster.endpoints.get(place))
            .map(|endpoint| endpoint.id);
        let random = &mut self.cx.random;
        let connections = &mut self.connections;
        let id = cluster.id;
        let newest = self.cx.snapshot.cluster(id).unwrap_or(cluster);
        let sharing = match request.form {
            Form::Whole { is_personal: true, .. } => Sharing::Personal,
            Form::Whole { is_personal: false, .. } => Sharing::InTurn,
            Form::Stream { .. } => Sharing::Together,
        };
        if !self.upstream.pools.admits(newest, exchange.client, &self.listen.clients, now) {
            return if self.upstream.pools.has_room_to_wait(newest) {
                self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
            } else {
                self.enqueue_over(key, request, id, now);
            };
        }
        let at = (|| random.next(), now);
        let acquired = if cluster.original_destination.is_some() {
            match original::destination(connections, exchange.downstream.connection) {
                Some(to) => {
                    self.upstream.pools.acquire_to(to, cluster, newest, sharing, at, connections)
                }
                None => return self.fail_queued(key, request, Cause::NoOriginalDestination, now),
            }
        } else {
            self.upstream.pools.acquire(cluster, newest, avoid, sharing, at, connections)
        };
        match acquired {
            Acquired::Idle(connection, place) => self.exchanges.give(
                key,
                connection,
                place,
                request,
                now,
                &mut self.connections,
                &mut self.listen,
                &mut self.cx,
            ),
            Acquired::Shared(connection, place) => {
                self.give_stream(key, connection, place, request, head, now);
            }
            Acquired::Open(place) => {
                let cluster = Arc::clone(cluster);
                match self.find_spare(key, Some(place), &request) {
                    Some(spare) => self.exchanges.give_spare(
                        key,
                        spare,
                        request,
                        now,
                        &mut self.connections,
                        &mut self.listen,
                        &mut self.cx,
                    ),
                    None => self.open(key, &cluster, place, request, head, now),
                }
            }
            Acquired::Replace(idle, place) => {
                let cluster = Arc::clone(cluster);
                self.upstream.close_upstream(idle, None, now, &mut self.connections, &mut self.cx);
                self.open(key, &cluster, place, request, head, now);
            }
            Acquired::Wait => match self.find_spare(key, None, &request) {
                Some(spare) => self.exchanges.give_spare(
                    key,
                    spare,
                    request,
                    now,
                    &mut self.connections,
                    &mut self.listen,
                    &mut self.cx,
                ),
                None => self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx),
            },
            Acquired::Pause(until) => {
                self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
                self.exchanges.set_deadline(key, Wait::Pause, until, &mut self.cx);
            }
            Acquired::Overflow => self.enqueue_over(key, request, id, now),
            Acquired::NoEndpoint => self.fail_queued(key, request, Cause::NoEndpoint, now),
        }
    }

    /// The queue is full: an exchange takes the place of the newest of a client that has more there.
    fn enqueue_over(&mut self, key: ExchangeKey, request: QueuedRequest, id: ClusterId, now: Time) {
        let client = self.exchanges.get(key).map_or(ClientPlace::UNKNOWN, |it| it.client);
        let exchanges = &self.exchanges;
        let is_waiting = |key| is_waiting(exchanges.get(key));
        let Some(other) = self.upstream.pools.newest_of_longest(id, client, is_waiting) else {
            return self.fail_queued(key, request, Cause::PendingOverflow, now);
        };
        self.fail(other, Cause::PendingOverflow, now);
        self.exchanges.enqueue(key, request, now, &mut self.upstream, &mut self.cx);
    }

    pub(crate) fn fail_queued(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        cause: Cause,
        now: Time,
    ) {
        request.clear(&mut self.cx.buffers);
        self.fail(key, cause, now);
    }

    /// Gives connections to those that wait for one, as far as there are any.
    pub(crate) fn serve_waiting(&mut self, id: ClusterId, now: Time) {
        // Each has one chance: an exchange that cannot follow the newest configuration of the cluster
        // may not know the endpoint whose connection is idle, and then waits on.
        for _ in 0..self.upstream.pools.waiting_for(id) {
            let exchanges = &self.exchanges;
            let is_waiting = |key| is_waiting(exchanges.get(key));
            let Some(cluster) = self.cx.snapshot.cluster(id).map(Arc::clone) else {
                return self.fail_waiting(id, now);
            };
            if !self.upstream.pools.can_serve(&cluster) {
                return;
            }
            let next = self.upstream.pools.next_waiting(&cluster, &self.listen.clients, is_waiting);
            let Some(key) = next else { return };
            self.leave_queue(key, now);
        }
    }

    /// Gives the first that waits for a connection another try.
    pub(crate) fn serve_next(&mut self, id: ClusterId, now: Time) {
        let exchanges = &self.exchanges;
        let is_waiting = |key| is_waiting(exchanges.get(key));
        let Some(cluster) = self.cx.snapshot.cluster(id) else { return };
        let next = self.upstream.pools.next_waiting(cluster, &self.listen.clients, is_waiting);
        if let Some(key) = next {
            self.leave_queue(key, now);
        }
    }

    /// The cluster is gone; so is the hope of those that wait for it.
    fn fail_waiting(&mut self, id: ClusterId, now: Time) {
        loop {
            let exchanges = &self.exchanges;
            let next = self.upstream.pools.next_in_vain(id, |key| is_waiting(exchanges.get(key)));
            let Some(key) = next else { return };
            if let Some(request) = self.exchanges.take_waiting(key, now) {
                self.fail_queued(key, request, Cause::NoEndpoint, now);
            }
        }
    }

    /// An exchange that was taken out of the queue tries again.
    pub(crate) fn leave_queue(&mut self, key: ExchangeKey, now: Time) {
        if let Some(request) = self.exchanges.take_waiting(key, now) {
            self.attempt(key, request, None, now);
            self.exchanges.note_request(key, &mut self.cx);
        }
    }

    // Elements of the request.

    /// A piece of the request body.
    pub(crate) fn on_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        self.exchanges.count_request_data(key, data.len());
        let Some(exchange) = self.exchanges.get(key) else { return };
        let bytes_max = exchange.listener().http.body_bytes_max;
        if !exchange.record.is_tunnel
            && bytes_max.is_some_and(|max| exchange.record.request_bytes > max)
        {
            return self.fail(key, Cause::RequestBodyTooLarge, now);
        }
        if exchange.call.is_none() {
            return self.pass_request_data(key, data, now);
        }
        let pass = |proxy: &mut Self, data: &[u8]| proxy.pass_request_data(key, data, now);
        if let Err(cause) = self.translate_request(key, data, pass) {
            self.fail(key, cause, now);
        }
    }

    /// A piece of the request body as it goes on.
    fn pass_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.show_request_data(data);
        let is_gathering = matches!(exchange.stage, Stage::Gathering { .. });
        let is_buffering = matches!(exchange.stage, Stage::Buffering { .. });
        let upstream = exchange.upstream();
        if is_gathering || is_buffering || upstream.is_some() {
            self.exchanges.await_request_data(key, data.len(), now, &mut self.cx);
        }
        if is_buffering {
            return self.buffer_request_data(key, data, now);
        }
        if is_gathering {
            return self.gather_request_data(key, data, now);
        }
        let Some(upstream) = upstream else { return };
        if self.exchanges.get(key).is_some_and(Exchange::moves_on) {
            self.exchanges.restart_stall(key, now);
        }
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if connection.is_send_broken {
            // The upstream takes nothing more, but may have answered: the rest is dropped.
            return forget_request(connection, upstream, &mut self.cx.buffers);
        }
        self.connections.send_data(upstream, data, &mut self.cx);
    }

    /// The end of the request, with its trailer section.
    pub(crate) fn on_request_end(&mut self, key: ExchangeKey, trailers: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        exchange.request.is_complete = true;
        exchange.deadlines.clear(Wait::RequestBody);
        if !matches!(exchange.stage, Stage::Responding { .. }) {
            exchange.end_stall(&mut self.exchanges.stalls);
        }
        let is_tunnel = exchange.record.is_tunnel;
        if !is_tunnel && !matches!(exchange.stage, Stage::Responding { .. }) {
            exchange.deadlines.clear(Wait::TunnelIdle);
        }
        let upstream = exchange.upstream();
        let has_call = exchange.call.is_some();
        if let Some(downstream) = self.connections.get_mut(exchange.downstream.connection)
            && exchange.downstream.is_whole()
        {
            downstream.receive = Receive::Complete;
        }
        if has_call && let Err(cause) = self.exchanges.end_call_request(key) {
            return self.fail(key, cause, now);
        }
        let mut room = Vec::new();
        let trailers = match self.exchanges.screen_trailers(key, trailers, &mut room, &mut self.cx)
        {
            Ok(trailers) => trailers,
            Err(cause) => return self.fail(key, cause, now),
        };
        let Some(exchange) = self.exchanges.get(key) else { return };
        if matches!(exchange.stage, Stage::Gathering { .. }) {
            return self.on_request_gathered(key, trailers, now);
        }
        if matches!(exchange.stage, Stage::Buffering { .. }) {
            return self.on_request_buffered(key, trailers, now);
        }
        let Some(upstream) = upstream else { return };
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        if connection.is_send_broken {
            return forget_request(connection, upstream, &mut self.cx.buffers);
        }
        let is_connecting = connection.is_connecting();
        let is_sent = self.connections.send_end(upstream, trailers, &mut self.cx);
        if is_sent && !is_connecting && upstream.is_whole() {
            self.on_upstream_sent(upstream.connection, 0, 0, (now, now));
        }
        if is_tunnel {
            self.finish_tunnel(key, now);
        }
    }

    // Ends.

    /// The response is sent, or the reply is: the exchange is over.
    pub(crate) fn finish(&mut self, key: ExchangeKey, cause: Option<Cause>, now: Time) {
        let Some(downstream) = self.exchanges.remove_exchange(
            key,
            cause,
            now,
            &self.connections,
            &mut self.listen,
            &mut self.cx,
        ) else {
            return;
        };
        self.after_exchange(downstream, now);
    }

    /// Nobody is left to answer, or the response cannot be completed: the exchange and its
    /// connections end here.
    pub(crate) fn abort(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        self.drop_upstream(key, Some(cause), now);
        let Some(downstream) = self.exchanges.remove_exchange(
            key,
            Some(cause),
            now,
            &self.connections,
            &mut self.listen,
            &mut self.cx,
        ) else {
            return;
        };
        if !downstream.is_whole() {
            return self.drop_stream(downstream, code_of(cause), now);
        }
        let downstream = downstream.connection;
        if let Some(connection) = self.connections.get_mut(downstream)
            && let Some(role) = connection.downstream_mut()
        {
            role.exchange = None;
        }
        self.connections.close_downstream(
            downstream,
            Some(cause),
            now,
            &mut self.listen,
            &mut self.cx,
        );
    }

    /// The exchange cannot go on. If no response was begun, a reply says so; else the response
    /// breaks off where it is.
    pub(crate) fn fail(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        self.exchanges.take_reason(key, cause, &self.connections);
        self.drop_upstream(key, Some(cause), now);
        if self.exchanges.is_relay(key) {
            return self.abort(key, cause, now);
        }
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let has_responded = exchange.record.status != 0;
        match consequence(cause).status {
            Some(status) if !has_responded => self.reply_to_fault(key, status, cause, now),
            Some(_) => self.break_off(key, cause, now),
            None => self.abort(key, cause, now),
        }
    }

    /// What of the response is queued still goes out; then the connection closes, which tells the
    /// downstream that the rest is missing.
    fn break_off(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let at = exchange.downstream;
        let downstream = at.connection;
        let Some(connection) = self.connections.get_mut(downstream) else { return };
        if let Some(multiplex) = connection.multiplex.as_deref_mut() {
            let Some(stream) = multiplex.stream_mut(at.stream) else { return };
            if stream.outbox.is_empty() {
                return self.abort(key, cause, now);
            }
            stream.tail = Tail::Reset(code_of(cause).0);
        } else if connection.is_sent() || connection.would_end_early() {
            return self.abort(key, cause, now);
        }
        exchange.stage = Stage::Finishing;
        exchange.record.cause = Some(cause);
        if let Some(role) = connection.downstream_mut()
            && at.is_whole()
        {
            role.life = Life::CloseWhenSent;
        }
        // All that is waited for now is that the downstream takes what there is.
        exchange.deadlines = Deadlines::default();
        let timeout = exchange.listener().timeouts.response_write;
        self.exchanges.set_deadline(key, Wait::ResponseWrite, now + timeout, &mut self.cx);
        self.connections.discard_request(at, &self.cx);
        self.connections.queue_send(downstream, &mut self.cx);
    }

    /// The attempt on this exchange's connection failed before a byte of the response. Tries again
    /// where that is safe, else fails.
    pub(crate) fn fail_attempt(&mut self, key: ExchangeKey, cause: Cause, now: Time) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        let Some(upstream) = exchange.upstream() else { return self.fail(key, cause, now) };
        let Some(connection) = self.connections.get_mut(upstream.connection) else { return };
        let is_reused = connection.requests > 1;
        let is_connecting = connection.is_connecting();
        let (outbox, is_untouched) = if upstream.is_whole() {
            (&connection.outbox, connection.outbox.is_untouched())
        } else {
            let stream = connection.multiplex.as_ref().and_then(|all| all.stream(upstream.stream));
            let Some(stream) = stream.filter(|stream| stream.head.is_some()) else {
                return self.fail(key, cause, now);
            };
            // Its head may be in the kernel's hands from the moment on that there is a connection.
            // Before, frames have gone no further than the connection's queue, but of a long body
            // their bytes were not kept.
            let has_all = stream.outbox.is_keeping() || stream.outbox.is_untouched();
            (&stream.outbox, is_connecting && has_all)
        };
        let is_whole = outbox.is_keeping() || outbox.is_untouched();
        let may_retry = match consequence(cause).retry {
            Retry::Never => false,
            Retry::Unsent => is_untouched,
            Retry::Unprocessed => is_whole,
            Retry::IfIdempotent => {
                let is_replayable = is_whole && exchange.request.method.is_idempotent();
                // On a fresh connection it was not the end of an idle one that we met: the endpoint
                // fails, and only another one may do better. What asks for another protocol may have
                // begun a session there.
                let has_body = !exchange.request.is_complete
                    || exchange.record.request_bytes > 0
                    || exchange.request.asks_upgrade;
                let has_others = exchange.cluster().is_some_and(|it| it.endpoints.len() > 1);
                (is_reused && (is_replayable || is_untouched))
                    || (is_replayable && !has_body && has_others)
            }
        };
        let attempts_max = match cause {
            Cause::UpstreamGoingAway => ATTEMPTS_UNSEEN_MAX,
            _ => ATTEMPTS_MAX,
        };
        if !may_retry || exchange.record.attempts >= attempts_max {
            return self.fail(key, cause, now);
        }
        let Some(request) = take_request(connection, upstream) else { return };
        exchange.stage = Stage::Finishing;
        exchange.let_go(&mut self.listen.clients, &mut self.exchanges.stalls);
        for wait in [Wait::RequestWrite, Wait::ResponseHead, Wait::TunnelIdle] {
            exchange.deadlines.clear(wait);
        }
        let label = exchange.route.as_ref().and_then(|route| route.cluster).map(|id| label(id.0));
        if let Some(cluster) = label {
            self.cx.emitter.upstream_retried(&UpstreamRetried { cluster, cause });
        }
        if upstream.is_whole() {
            self.upstream.close_upstream(
                upstream.connection,
                Some(cause),
                now,
                &mut self.connections,
                &mut self.cx,
            );
        } else {
            self.drop_stream(upstream, ErrorCode::CANCEL, now);
        }
        self.exchanges.note_attempt(key, request, &mut self.cx);
    }

    /// Reads on, on a connection or a stream.
    pub(crate) fn resume_source(&mut self, source: StreamKey, now: Time) {
        if source.is_whole() {
            self.resume_inbox(source.connection, now);
        } else {
            self.resume_stream(source, now);
        }
    }

    /// Takes the upstream connection, or the place in a queue, from an exchange.
    fn drop_upstream(&mut self, key: ExchangeKey, cause: Option<Cause>, now: Time) {
        let Some(exchange) = self.exchanges.table.get_mut(key) else { return };
        exchange.let_go(&mut self.listen.clients, &mut self.exchanges.stalls);
        match std::mem::replace(&mut exchange.stage, Stage::Finishing) {
            Stage::Suspended { head, .. } | Stage::Gathering { head, .. } => {
                self.cx.buffers.give_back(head);
            }
            Stage::Buffering { request } | Stage::Retrying { request } => {
                request.clear(&mut self.cx.buffers);
            }
            Stage::Waiting { request } => {
                request.clear(&mut self.cx.buffers);
                let cluster = exchange.route.as_ref().and_then(|route| route.cluster);
                if let Some(cluster) = cluster {
                    let client = exchange.client;
                    let exchanges = &self.exchanges;
                    self.upstream
                        .pools
                        .give_up(cluster, client, |key| is_waiting(exchanges.get(key)));
                }
            }
            Stage::Attempting { upstream } | Stage::Responding { upstream } => {
                if upstream.is_whole() {
                    self.upstream.leave_upstream(
                        upstream.connection,
                        cause,
                        now,
                        &mut self.connections,
                        &mut self.cx,
                    );
                } else {
                    self.drop_stream(upstream, ErrorCode::CANCEL, now);
                }
            }
            Stage::Finishing => {}
        }
    }
}

/// Takes a request back from a connection, or stream, to be sent once more.
fn take_request(connection: &mut Connection, upstream: StreamKey) -> Option<QueuedRequest> {
    if upstream.is_whole() {
        let is_personal = connection.upstream().is_some_and(|upstream| upstream.is_personal);
        let mut outbox = std::mem::take(&mut connection.outbox);
        let send = std::mem::replace(&mut connection.send, Send::Shut);
        outbox.rewind();
        return Some(QueuedRequest { outbox, form: Form::Whole { send, is_personal } });
    }
    let stream = connection.multiplex.as_deref_mut()?.stream_mut(upstream.stream)?;
    let head = stream.head.take()?;
    let mut outbox = std::mem::take(&mut stream.outbox);
    outbox.rewind();
    let tail = std::mem::take(&mut stream.tail);
    Some(QueuedRequest { outbox, form: Form::Stream { head, tail } })
}

/// Some of a request was dropped: what is kept of it is not the request any more, and not to be sent
/// again.
fn forget_request(connection: &mut Connection, upstream: StreamKey, buffers: &mut Buffers) {
    if upstream.is_whole() {
        return connection.outbox.forget(buffers);
    }
    let multiplex = connection.multiplex.as_deref_mut();
    if let Some(stream) = multiplex.and_then(|all| all.stream_mut(upstream.stream)) {
        stream.outbox.forget(buffers);
    }
}

/// Whether trailers come behind a body whose length is known, which HTTP/2 allows.
pub(crate) fn announces_trailers<K>(head: &Head<'_, K>) -> bool {
    head.field(Known::Trailer).is_some()
}

fn is_websocket(head: &RequestHead<'_>) -> bool {
    head.upgrade().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

/// How a stream that ends for this cause is reset.
const fn code_of(cause: Cause) -> ErrorCode {
    match consequence(cause).side {
        Side::Downstream => ErrorCode::CANCEL,
        Side::Proxy | Side::Upstream => ErrorCode::INTERNAL_ERROR,
    }
}

const fn is_waiting(exchange: Option<&Exchange>) -> bool {
    matches!(exchange, Some(Exchange { stage: Stage::Waiting { .. }, .. }))
}

/// How an encoded request names what becomes of its connection.
pub(crate) const fn connection_field(asks_upgrade: bool) -> ConnectionField {
    if asks_upgrade { ConnectionField::Upgrade } else { ConnectionField::Default }
}
