//! Hop 8: upstream connections, from their opening until they can carry requests.
//!
//! What they answer is in `proxy::response`, their end and their return to the pool in `proxy::end`.

use std::sync::Arc;

use config::priority::Priority;
use config::snapshot::{Address, Cluster};
use telemetry::cause::Cause;
use telemetry::events::UpstreamConnected;
use wire::h2::RequestForm;
use wire::head::RequestHead;

use crate::connection::check_target::CheckedPort;
use crate::connection::codec::Codec;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::codec::streams::{Stream, Tail};
use crate::connection::codec::watches::Watch;
use crate::connection::debug_log::Named;
use crate::connection::transport::Tls;
use crate::connection::{Connection, ConnectionRole, Upstream, UpstreamState};
use crate::exchange::Exchange;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::keys::{ConnKey, ExchangeKey, StreamKey, label};
use crate::ops::{ConnectFailure, ConnectOptions, Op};
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::sent::Sent;
use crate::tools::time::Time;
use crate::upstream::connecting::ConnectFault;

/// Where a connection goes.
pub(super) struct Way<'c> {
    pub(super) cluster: &'c Arc<Cluster>,
    /// Of its endpoint there.
    pub(super) place: usize,
    pub(super) address: Address,
    pub(super) peer: PeerAddress,
}

impl Proxy {
    /// Opens a connection to the endpoint at `place` for an exchange, or for all exchanges of its client.
    pub(super) fn open(
        &mut self,
        key: ExchangeKey,
        (cluster, place): (&Arc<Cluster>, usize),
        is_own: bool,
        request: QueuedRequest,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        let (endpoint, address, peer) = self.exchanges.way(key, cluster, place, &self.connections);
        let QueuedRequest { outbox, form } = request;
        let (state, is_personal, codec, stream) = match form {
            Form::Alone { codec, is_personal } => {
                let exchange = Some(key);
                let state = UpstreamState::Connecting { exchange, since: now, is_begun: false };
                (state, is_personal, codec, None)
            }
            Form::Stream { .. } => {
                let (state, codec) = self.cx.shared_connection(cluster, now);
                (state, false, codec, Some(form))
            }
        };
        let exchange = self.exchanges.get(key);
        let priority = exchange.map_or(Priority::Default, Exchange::priority);
        let check = exchange.and_then(Exchange::check);
        let checked_port = check.map(|check| CheckedPort(check.target().port));
        let client = exchange.map(|exchange| exchange.downstream.connection);
        let client = client.filter(|_| is_own);
        let role = Upstream {
            cluster: cluster.id,
            priority,
            endpoint,
            transport: cluster.transport_at(place).id,
            state,
            is_personal,
            checked_port,
            is_reusable: false,
            is_withheld: client.is_some(),
            reason: None,
        };
        let way = Way { cluster, place, address, peer };
        let upstream = self.begin_connecting(role, codec, way, Some(key), now);
        if let Some(client) = client {
            self.upstream.own.add(client, upstream);
        }
        match stream {
            None => {
                if let Some(connection) = self.connections.get_mut(upstream) {
                    connection.outbox = outbox;
                    connection.requests = 1;
                }
                self.exchanges.bind(
                    key,
                    StreamKey::alone(upstream),
                    place,
                    now,
                    &mut self.upstream.pools,
                    &mut self.listen,
                    &mut self.cx,
                );
            }
            Some(form) => {
                let request = QueuedRequest { outbox, form };
                self.give_stream(key, upstream, place, request, head, now);
            }
        }
    }

    /// Has the worker connect, for this exchange or for none yet.
    pub(super) fn begin_connecting(
        &mut self,
        role: Upstream,
        codec: Codec,
        Way { cluster, place, address, peer }: Way<'_>,
        exchange: Option<ExchangeKey>,
        now: Time,
    ) -> ConnKey {
        let (ids, is_for_checks) = (role.endpoint_key(), role.checked_port.is_some());
        let role = ConnectionRole::Upstream(role);
        let upstream = self.connections.insert_connection(role, codec, now, &mut self.cx);
        self.upstream.pools.on_open(ids, is_for_checks);
        if let Some(settings) = &cluster.transport_at(place).tls {
            let host = cluster.endpoints.get(place).and_then(|found| found.host());
            let is_raw = exchange.is_some_and(|exchange| self.exchanges.is_raw(exchange));
            let mut tls = Tls::waiting(settings, is_raw, host, &address, now);
            let version = cluster.proxy_protocol;
            if version.is_sent()
                && let Some(exchange) = exchange.and_then(|key| self.exchanges.get(key))
            {
                let connections = &self.connections;
                exchange.write_proxy_header(version, tls.preamble(), connections, &mut self.cx);
            }
            if let Some(connection) = self.connections.get_mut(upstream) {
                connection.tls = Some(Box::new(tls));
                self.connections.upstream_handshakes += 1;
            }
        }
        let connection = self.connections.get_mut(upstream).expect("it was inserted above");
        connection.peer = peer;
        if connection.multiplex().is_some() {
            self.connections.arm_watches(upstream, &mut self.cx);
        } else {
            self.cx.timers.arm(connection.timer, now + cluster.timeouts.connect);
        }
        let Cluster { keepalive, fast_open, mark, .. } = **cluster;
        // Without a request, there is nothing that could travel with the SYN.
        let fast_open = fast_open && exchange.is_some();
        let options = ConnectOptions { keepalive, fast_open, mark };
        self.cx.ops.push_back(Op::Connect { connection: upstream, address, options });
        upstream
    }

    /// Opens a stream for a request on a connection that has room for one.
    pub(super) fn give_stream(
        &mut self,
        key: ExchangeKey,
        upstream: ConnKey,
        place: usize,
        request: QueuedRequest,
        head: Option<&RequestHead<'_>>,
        now: Time,
    ) {
        let QueuedRequest { outbox, form: Form::Stream { head: mut parked, tail } } = request
        else {
            unreachable!("connections that are one exchange's are given whole");
        };
        let Some(exchange) = self.exchanges.get(key) else { return };
        let form =
            if exchange.request.asks_upgrade { RequestForm::Upgrade } else { RequestForm::Same };
        let multiplex = self.connections.get(upstream).and_then(|open| open.multiplex());
        let is_known = multiplex.is_some_and(Multiplex::has_peer_settings);
        let is_rpc = multiplex.is_some_and(|multiplex| multiplex.rpc().is_some());
        let is_upgrade = form == RequestForm::Upgrade;
        if !is_known
            && (is_upgrade || multiplex.is_some_and(|multiplex| !multiplex.streams.is_empty()))
        {
            // One may be sent with the preface. How many more it takes at a time, and whether it
            // takes an extended CONNECT, it will have said when it has said anything.
            let request = QueuedRequest { outbox, form: Form::Stream { head: parked, tail } };
            if self.upstream.offer(upstream, &mut self.connections, &mut self.cx).is_none()
                && is_upgrade
                && self.connections.is_of_former(upstream, &self.cx)
            {
                // No pool takes it, so that it would be opened again and again for this one, which
                // cannot follow the newest configuration of its cluster.
                return self.fail_queued(key, request, Cause::NoEndpoint, now);
            }
            // Were another endpoint chosen then, this connection might have to make room for one there.
            let endpoint = self.connections.get(upstream).and_then(Connection::upstream);
            let endpoint = endpoint.map(|upstream| upstream.endpoint);
            if let Some(route) = self.exchanges.get_mut(key).and_then(|it| it.route.as_mut()) {
                route.chosen = endpoint;
            }
            return self.enqueue_for_settings(key, upstream, request, now);
        }
        if is_upgrade && !multiplex.is_some_and(Multiplex::allows_extended_connect) {
            let request = QueuedRequest { outbox, form: Form::Stream { head: parked, tail } };
            let words = "the upstream speaks HTTP/2 and has not announced extended CONNECT";
            self.exchanges.note_detail(key, || Detail::of(&words));
            return self.fail_queued(key, request, Cause::RequestNotImplemented, now);
        }
        let is_end = !is_rpc && outbox.is_empty() && tail == Tail::End;
        let opened = match head {
            _ if is_rpc => self.connections.open_call(upstream, parked.filled_mut()),
            Some(head) => self.connections.open_stream(upstream, head, form, is_end, &mut self.cx),
            None => self
                .read_parked(&parked, |proxy, head| {
                    proxy.connections.open_stream(upstream, head, form, is_end, &mut proxy.cx)
                })
                .flatten(),
        };
        let Some(stream) = opened else {
            // Its slots are not what they seemed to be.
            self.upstream.withdraw(upstream, &mut self.connections);
            let request = QueuedRequest { outbox, form: Form::Stream { head: parked, tail } };
            return self.exchanges.note_attempt(key, request, &mut self.cx);
        };
        let mut stream = Stream::new(stream, key);
        if is_rpc {
            stream.form = self.exchanges.form_of(key, &self.connections);
        }
        (stream.outbox, stream.tail, stream.is_ended) = (outbox, tail, is_end);
        stream.head = Some(parked);
        let at = StreamKey { connection: upstream, slot: stream.slot() };
        let silence =
            self.connections.get(upstream).and_then(|open| self.listen.silence(open, &self.cx));
        let mut is_connecting = false;
        if let Some(connection) = self.connections.get_mut(upstream) {
            connection.requests += 1;
            is_connecting = connection.is_connecting();
            if let Some(multiplex) = connection.codec.multiplex_mut() {
                multiplex.streams.insert(stream);
                multiplex.watches.clear(Watch::Idle);
                if let Some(silence) = silence.filter(|_| !multiplex.watches.is_set(Watch::PingDue))
                {
                    multiplex.watches.set(Watch::PingDue, now + silence);
                }
            }
        }
        self.connections.arm_watches(upstream, &mut self.cx);
        let pools = &mut self.upstream.pools;
        self.exchanges.bind(key, at, place, now, pools, &mut self.listen, &mut self.cx);
        if !is_connecting {
            self.on_stream_opened(key, at, now);
        }
        self.upstream.offer(upstream, &mut self.connections, &mut self.cx);
        self.connections.queue_send(upstream, &mut self.cx);
    }

    /// The worker begins to connect.
    pub fn on_connecting(&mut self, key: ConnKey, now: Time) {
        let upstream = self.connections.get_mut(key).and_then(Connection::upstream_mut);
        if let Some(UpstreamState::Connecting { is_begun, .. }) = upstream.map(|it| &mut it.state) {
            *is_begun = true;
        }
        for exchange in self.connections.exchanges_on(key) {
            if let Some(exchange) = self.exchanges.get_mut(exchange) {
                exchange.record.stamps.on_connecting(now);
            }
        }
    }

    /// How connecting went.
    pub fn on_connected(&mut self, key: ConnKey, result: Result<(), ConnectFailure>, now: Time) {
        if let Err(failure) = &result
            && !failure.errno.is_empty()
        {
            self.connections.note_reason(key, || Detail::of(&failure.errno));
        }
        if result.is_err() || !self.begin_upstream_tls(key, now) {
            let result = result.map_err(|failure| ConnectFault {
                cause: failure.cause,
                reason: match failure.errno {
                    "" => failure.cause.as_str(),
                    errno => errno,
                },
            });
            self.on_established(key, result, now);
        }
        self.settle(now);
    }

    /// A connection can carry data, or cannot be established.
    pub(in crate::proxy) fn on_established(
        &mut self,
        key: ConnKey,
        result: Result<(), ConnectFault>,
        now: Time,
    ) {
        if self.cx.emitter.is_debug() {
            let reason = result.map_or_else(|fault| fault.reason, |()| "established");
            self.cx.debug(Named(key), format_args!("upstream {reason}"), now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let timer = connection.timer;
        let Some(upstream) = connection.upstream_mut() else { return };
        let cluster = label(upstream.cluster.0);
        let (exchange, since) = match &mut upstream.state {
            UpstreamState::Connecting { exchange, since, .. } => (*exchange, *since),
            UpstreamState::Shared { connecting_since: Some(since), .. } => {
                let since = *since;
                return self.on_shared_connected(key, since, result, now);
            }
            _ => return,
        };
        match result {
            Ok(()) => {
                connection.opened = now;
                let duration = now.nanos_since(since);
                self.cx.emitter.upstream_connected(&UpstreamConnected { cluster, duration });
                let Some(exchange) = exchange else {
                    return self.upstream.put_unused(key, now, &mut self.connections, &mut self.cx);
                };
                self.cx.timers.arm(timer, Time::NEVER);
                let upstream = self.connections.get_mut(key).and_then(Connection::upstream_mut);
                if let Some(upstream) = upstream {
                    upstream.state = UpstreamState::Busy { exchange };
                }
                if let Some(exchange) = self.exchanges.get_mut(exchange) {
                    exchange.record.stamps.connected = now;
                }
                if self.exchanges.is_raw(exchange) {
                    return self.on_relay_connected(key, exchange, now);
                }
                self.connections.queue_send(key, &mut self.cx);
            }
            Err(fault) => self.on_connect_failed(key, exchange, fault, now),
        }
    }

    /// A connection was not established in time: notes which time that is.
    pub(in crate::proxy) fn connect_timeout(&mut self, key: ConnKey) -> ConnectFault {
        let is_handshaking = self.connections.get(key).is_some_and(Connection::is_handshaking);
        let (option, reason) = match is_handshaking {
            true => ("connect_timeout of the cluster, during the TLS handshake", "tls_timeout"),
            false => ("connect_timeout of the cluster", "timeout"),
        };
        let upstream = self.connections.get(key).and_then(Connection::upstream);
        let cluster = upstream.and_then(|upstream| self.cx.snapshot.cluster(upstream.cluster));
        if let Some(bound) = cluster.map(|cluster| cluster.timeouts.connect) {
            self.connections.note_reason(key, || Detail::of_bound(option, bound));
        }
        ConnectFault { cause: Cause::ConnectTimeout, reason }
    }

    /// A connection to be, for this exchange or spare, cannot be established.
    pub(in crate::proxy) fn on_connect_failed(
        &mut self,
        key: ConnKey,
        exchange: Option<ExchangeKey>,
        fault: ConnectFault,
        now: Time,
    ) {
        let Some(upstream) = self.connections.get(key).and_then(Connection::upstream) else {
            return;
        };
        self.cx.count_connect_failure(upstream, fault, now);
        let cause = fault.cause;
        match exchange {
            Some(exchange) => self.fail_attempt(exchange, cause, now),
            None => self.close_upstream(key, Some(cause), now),
        }
    }

    /// As [`Proxy::on_established`], of a connection that exchanges have streams on already.
    fn on_shared_connected(
        &mut self,
        key: ConnKey,
        since: Time,
        result: Result<(), ConnectFault>,
        now: Time,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(upstream) = connection.upstream_mut() else { return };
        let (cluster, pool) = (label(upstream.cluster.0), upstream.pool());
        if let Err(fault) = result {
            let cause = fault.cause;
            self.cx.count_connect_failure(upstream, fault, now);
            self.end_streams(key, cause, now);
            return self.close_upstream(key, Some(cause), now);
        }
        if let UpstreamState::Shared { connecting_since, .. } = &mut upstream.state {
            *connecting_since = None;
        }
        connection.opened = now;
        if let Some(multiplex) = connection.codec.multiplex_mut() {
            multiplex.watches.clear(Watch::Opening);
        }
        let duration = now.nanos_since(since);
        self.cx.emitter.upstream_connected(&UpstreamConnected { cluster, duration });
        self.exchanges.on_awaited_connected(key, pool, now, &self.upstream, &mut self.cx);
        for key in self.connections.exchanges_on(key) {
            let Some(exchange) = self.exchanges.get_mut(key) else { continue };
            exchange.record.stamps.connected = now;
            let Some(at) = exchange.upstream() else { continue };
            self.on_stream_opened(key, at, now);
        }
        self.connections.queue_send(key, &mut self.cx);
        let multiplex = self.connections.get(key).and_then(Connection::multiplex);
        let is_for_none = multiplex.is_some_and(|it| it.streams.is_empty());
        let says_nothing_first = multiplex.is_some_and(Multiplex::has_peer_settings);
        // One of a former configuration is of no use, whatever its peer says first.
        if is_for_none && (says_nothing_first || self.connections.is_of_former(key, &self.cx)) {
            if let Some(pool) = self.upstream.offer(key, &mut self.connections, &mut self.cx) {
                self.upstream.note_room(pool, &mut self.cx);
            }
        } else if is_for_none {
            self.upstream.unheard.insert(key, &self.connections);
        }
        self.await_streams(key, now);
    }

    /// The head of a request goes to its stream, on a connection that is established. What is here of
    /// its body may wait for a window.
    fn on_stream_opened(&mut self, exchange_key: ExchangeKey, at: StreamKey, now: Time) {
        let Some(stream) = self.connections.stream_mut(at) else { return };
        let head = stream.head.as_ref().map_or(0, |head| head.len());
        let sent = Sent { bytes: head, left: stream.outbox.len(), began: now };
        self.on_request_sent(exchange_key, sent, false, now);
    }
}
