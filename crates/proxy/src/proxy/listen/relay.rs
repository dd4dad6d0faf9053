//! Connections that are relayed as they come: listeners for TCP, and whatever an `auto` listener
//! does not know; before that, what the first bytes say.
//!
//! A relayed connection is an exchange whose head is the connection's facts. It begins before its
//! client has said a word, has an upstream connection of its own, and is a tunnel from then on: the
//! back-pressure, half-closes and idle timeout are those of every tunnel.

use std::sync::Arc;

use config::hash::hash_of_client;
use config::snapshot::{ClusterId, ClusterProtocol, Detected, ListenerProtocol, TlsMode};
use telemetry::cause::Cause;
use telemetry::events::DetectedProtocol;
use wire::detect::detect_late;
use wire::rpc::RpcName;
use wire::tls::ServerName;

use crate::agenda::Note;
use crate::connection::codec::Codec;
use crate::connection::codec::bytes::Bytes;
use crate::connection::{Connection, Life};
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::exchange::record::Words;
use crate::exchange::{ExchangeKind, Request, Route};
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::listen::relay::{FirstBytes, word_for};
use crate::proxy::Proxy;
use crate::tools::outbox::Outbox;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

impl Proxy {
    /// Begins with a connection's own bytes, once whatever precedes them is read.
    pub(in crate::proxy) fn begin_connection(&mut self, key: ConnKey, now: Time) {
        let Some(downstream) = self.connections.get(key).and_then(Connection::downstream) else {
            return;
        };
        let chains = &self.listen.listeners.get(downstream.listener).listener().chains;
        if chains.needs_bytes() {
            self.listen.await_first_bytes(key, now, &mut self.connections, &mut self.cx);
        } else if chains.is_empty()
            || self.listen.choose_chain(
                key,
                &FirstBytes::default(),
                now,
                &mut self.connections,
                &mut self.cx,
            )
        {
            self.begin_protocol(key, None, now);
        }
    }

    /// Goes on as the connection's chain says, with what the first bytes are if that is known.
    fn begin_protocol(&mut self, key: ConnKey, first: Option<&FirstBytes>, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_inside_tls = connection.tls.is_some();
        let Some(downstream) = connection.downstream_mut() else { return };
        // Only a head of HTTP/1 goes on with the bytes that were looked at.
        let began = std::mem::replace(&mut downstream.head_began, Time::NEVER);
        let listener = self.listen.listeners.get(downstream.listener).listener();
        let listener = listener.seen_by(downstream.chain);
        let has_relay = listener.relay.is_some();
        let detected = first.and_then(|first| first.protocol);
        if let Some(tls) = &listener.tls
            && !is_inside_tls
        {
            match (tls.mode, detected) {
                (TlsMode::Strict, _) | (TlsMode::Permissive, Some(Detected::Tls)) => {
                    let tls = Arc::clone(tls);
                    return self.connections.begin_tls(key, &tls, now, &self.listen, &mut self.cx);
                }
                (TlsMode::Permissive, None) => {
                    return self.listen.await_first_bytes(
                        key,
                        now,
                        &mut self.connections,
                        &mut self.cx,
                    );
                }
                (TlsMode::Permissive, Some(_)) => {}
            }
        }
        let protocol = listener.protocol;
        if protocol == ListenerProtocol::Auto {
            self.listen.count_detected(
                key,
                detected.map(word_for),
                now,
                &mut self.connections,
                &mut self.cx,
            );
        }
        match (protocol, detected) {
            (ListenerProtocol::Tcp, _) => self.begin_relay(key, first, now),
            (ListenerProtocol::Http1, _) => {
                self.listen.begin_http(key, began, now, &mut self.connections, &mut self.cx);
            }
            (ListenerProtocol::Http2, _) => {
                self.connections.begin_http2(key, now, &self.listen, &mut self.cx);
            }
            (ListenerProtocol::Rpc(name), _) => self.begin_rpc(key, name, now),
            (ListenerProtocol::Auto, None) if has_relay => {
                self.listen.await_first_bytes(key, now, &mut self.connections, &mut self.cx);
            }
            (ListenerProtocol::Auto, Some(Detected::Http2)) => {
                self.connections.begin_http2(key, now, &self.listen, &mut self.cx);
            }
            (ListenerProtocol::Auto, Some(Detected::Tls | Detected::Other)) if has_relay => {
                self.begin_relay(key, first, now);
            }
            // What is no HTTP either gets an answer that says so.
            (ListenerProtocol::Auto, _) => {
                self.listen.begin_http(key, began, now, &mut self.connections, &mut self.cx);
            }
        }
    }

    /// Goes on with a downstream connection as one of this RPC protocol.
    fn begin_rpc(&mut self, key: ConnKey, name: RpcName, now: Time) {
        let protocol = self.cx.snapshot.protocols.find(name);
        let protocol = protocol.expect("the configuration names protocols of its own table only");
        self.connections.begin_rpc(key, protocol, &self.listen, &mut self.cx);
        self.await_streams(key, now);
    }

    /// Begins with what is inside a connection of TLS, whose handshake may have shown what that is.
    pub(in crate::proxy) fn begin_inside_tls(
        &mut self,
        key: ConnKey,
        alpn: Option<&[u8]>,
        server_name: Option<&str>,
        now: Time,
    ) {
        let protocol = match alpn {
            Some(b"h2") => Some(Detected::Http2),
            Some(b"http/1.1" | b"http/1.0") => Some(Detected::Http1),
            _ => None,
        };
        let server_name = server_name.and_then(|name| ServerName::parse(name.as_bytes()));
        self.begin_protocol(
            key,
            Some(&FirstBytes { protocol, server_name, alpn: Vec::new() }),
            now,
        );
    }

    /// Looks at a connection's first bytes. Says whether they were enough.
    pub(in crate::proxy) fn on_first_bytes(
        &mut self,
        key: ConnKey,
        input: &[u8],
        now: Time,
    ) -> bool {
        let has_chains = self.listen.has_chains(key, &self.connections);
        let rpc = self.listen.looked_for(key, &self.connections);
        match FirstBytes::read(input, has_chains, rpc) {
            None => {
                let connection = self.connections.get_mut(key);
                if let Some(downstream) = connection.and_then(Connection::downstream_mut) {
                    downstream.head_began = downstream.head_began.min(now);
                }
                if has_chains && detect_late(input, rpc) == Detected::Tls {
                    self.listen.await_hello(key, now, &mut self.connections, &mut self.cx);
                }
                false
            }
            Some(first) => {
                self.on_told(key, &first, now);
                true
            }
        }
    }

    /// It is known what a connection's first bytes are.
    fn on_told(&mut self, key: ConnKey, first: &FirstBytes, now: Time) {
        self.listen.count_detected(
            key,
            first.protocol.map(word_for),
            now,
            &mut self.connections,
            &mut self.cx,
        );
        let is_inside_tls = self.connections.get(key).is_some_and(|it| it.tls.is_some());
        if is_inside_tls
            || !self.listen.has_chains(key, &self.connections)
            || self.listen.choose_chain(key, first, now, &mut self.connections, &mut self.cx)
        {
            self.begin_protocol(key, Some(first), now);
        }
    }

    /// The first bytes did not come, or not enough of them for a verdict.
    pub(in crate::proxy) fn on_detect_timeout(&mut self, key: ConnKey, now: Time) {
        let may_relay = self.listen.may_relay(key, &self.connections);
        let protocol = match self.listen.late(key, &self.connections) {
            // Only HTTP/1 could begin so, and its decoder says what is wrong.
            (Detected::Other, Some(b'A'..=b'Z' | b'a'..=b'z' | b'\r')) if !may_relay => {
                Detected::Http1
            }
            (protocol, _) => protocol,
        };
        if protocol == Detected::Other {
            self.listen.count_detected(
                key,
                Some(DetectedProtocol::Timeout),
                now,
                &mut self.connections,
                &mut self.cx,
            );
        }
        self.stop_detecting(key, protocol, now);
    }

    /// The client said no more than this; it may still want to hear something.
    pub(in crate::proxy) fn on_detect_end(&mut self, key: ConnKey, now: Time) {
        let protocol = match self.listen.late(key, &self.connections) {
            (protocol @ (Detected::Tls | Detected::Rpc(_)), _) => protocol,
            _ => Detected::Other,
        };
        self.stop_detecting(key, protocol, now);
    }

    fn stop_detecting(&mut self, key: ConnKey, protocol: Detected, now: Time) {
        self.on_told(key, &FirstBytes { protocol: Some(protocol), ..FirstBytes::default() }, now);
        // These bytes came before an end that the next event may report.
        self.consume_left(key, now);
        self.cx.agenda.push(Note::Resume(StreamKey::alone(key)));
    }

    /// Relays a connection from here on.
    fn begin_relay(&mut self, key: ConnKey, first: Option<&FirstBytes>, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.codec = Codec::Bytes(Bytes::new());
        self.cx.timers.arm(connection.timer, Time::NEVER);
        let Some(downstream) = connection.downstream_mut() else { return };
        downstream.life = Life::CloseWhenSent;
        if !downstream.head_began.is_set() {
            downstream.head_began = now;
        }
        let state = self.listen.listeners.get(downstream.listener);
        let random = self.cx.random.next();
        let listener = state.listener().seen_by(downstream.chain);
        let cluster = listener.relay.as_ref().and_then(|relay| relay.choose(random));
        let at = StreamKey::alone(key);
        let Some(exchange) = self.begin_exchange(at, Request::NONE, now) else { return };
        if let Some(exchange) = self.exchanges.get_mut(exchange) {
            let is_tls = first.is_some_and(|first| first.protocol == Some(Detected::Tls));
            exchange.kind = if is_tls { ExchangeKind::Tls } else { ExchangeKind::Tcp };
            if let Some(name) = first.and_then(|first| first.server_name.as_ref()) {
                exchange.record.words = Words::of_host(name.as_str(), &mut self.cx.buffers);
            }
        }
        self.start_relay(exchange, cluster, now);
    }

    fn start_relay(&mut self, key: ExchangeKey, cluster: Option<ClusterId>, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let mut route = Route::new(None, cluster);
        let is_by_hash = cluster.and_then(|id| exchange.snapshot.cluster(id));
        if is_by_hash.is_some_and(|cluster| cluster.balancer.is_by_hash()) {
            let connection = self.connections.get(exchange.downstream.connection);
            let ip = connection.and_then(|connection| connection.peer.ip());
            route.hash = exchange.record.client.or(ip).map(hash_of_client);
        }
        exchange.route = Some(route);
        self.exchanges.begin_tunnel(key, now, &mut self.cx);
        self.attempt_raw(key, now);
    }

    /// Hop 8 of a `CONNECT` that its route allows: the client is answered when the tunnel stands.
    pub(in crate::proxy) fn open_tunnel(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let protocol = exchange.cluster().map(|cluster| cluster.protocol);
        if protocol != Some(ClusterProtocol::Http1) {
            let words = "a CONNECT to a cluster whose protocol is not http1";
            return self.fail_with(key, Cause::RequestNotImplemented, &words, now);
        }
        exchange.kind = ExchangeKind::Connect;
        exchange.request.asks_upgrade = true;
        self.attempt_raw(key, now);
    }

    /// Asks for an upstream connection that carries bytes as they come.
    fn attempt_raw(&mut self, key: ExchangeKey, now: Time) {
        let mut outbox = Outbox::new();
        // Until the connection stands, another endpoint may be tried.
        outbox.keep();
        let Some(exchange) = self.exchanges.get(key) else { return };
        exchange.push_proxy_header(&mut outbox, &self.connections, &mut self.cx);
        let codec = Codec::Bytes(Bytes::new());
        let request = QueuedRequest { outbox, form: Form::Alone { codec, is_personal: true } };
        self.ask(key, request, None, now);
    }

    /// The upstream connection of a relay stands.
    pub(in crate::proxy) fn on_relay_connected(
        &mut self,
        key: ConnKey,
        exchange_key: ExchangeKey,
        now: Time,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.outbox.forget(&mut self.cx.buffers);
        let (is_sent, is_ending) = (connection.is_sent(), connection.is_ending());
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return };
        exchange.on_tunnel(&mut self.cx);
        exchange.begin_responding(StreamKey::alone(key));
        if exchange.check().is_some() {
            self.connections.queue_send(key, &mut self.cx);
            return self.exchanges.on_check_connected(exchange_key, &mut self.cx);
        }
        let downstream = exchange.downstream;
        if exchange.kind == ExchangeKind::Connect {
            self.grant_tunnel(exchange_key, now);
        }
        if is_sent && is_ending {
            // The client had nothing to say, and said so.
            self.on_upstream_sent(key, Sent::nothing(now), now);
        } else {
            self.connections.queue_send(key, &mut self.cx);
        }
        self.cx.agenda.push(Note::Resume(downstream));
    }

    /// Tells the client that its tunnel stands.
    fn grant_tunnel(&mut self, key: ExchangeKey, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.record.status = 200;
        exchange.progress.has_response = true;
        let was_complete = std::mem::take(&mut exchange.request.is_complete);
        let downstream = exchange.downstream;
        self.exchanges.begin_tunnel(key, now, &mut self.cx);
        self.connections.send_status(downstream, 200, &mut self.cx);
        self.connections.begin_bytes(downstream);
        if was_complete && !downstream.is_alone() {
            // The stream was ended by its head: its client has nothing to say.
            self.on_request_end(key, &[], now);
        }
    }
}
