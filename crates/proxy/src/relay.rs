//! Connections that are relayed as they come: listeners for TCP, and whatever an `auto` listener
//! does not know.
//!
//! A relayed connection is an exchange whose head is the connection's facts. It begins before its
//! client has said a word, has an upstream connection of its own, and is a tunnel from then on: the
//! pump, its back-pressure, its half-closes and its idle timeout are those of every tunnel.

use config::snapshot::{ClusterId, ListenerProtocol};
use telemetry::events::TunnelStarted;
use wire::detect::{Detected, detect};
use wire::h1::{BodyDecoder, BodyEncoder, Scan};
use wire::head::Framing;

use crate::connection::{ConnKey, ExchangeKey, Life, Receive, Send, StreamKey};
use crate::exchange::{Form, Kind, Request, Route, Stage, Unbound, Wait};
use crate::outbox::Outbox;
use crate::proxy::Proxy;
use crate::record::label;
use crate::time::Time;

impl Proxy {
    /// Begins with a connection's own bytes, once whatever precedes them is read.
    pub(crate) fn begin_connection(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let listener = self.listeners.get(downstream.listener).listener();
        match (listener.protocol, &listener.relay) {
            (ListenerProtocol::Tcp, _) => self.begin_relay(key, now),
            (ListenerProtocol::Auto, Some(_)) => {
                let deadline = now + listener.timeouts.detect;
                connection.receive = Receive::Detect;
                self.timers.arm(connection.timer, deadline);
            }
            (ListenerProtocol::Http2, _) => self.begin_http2(key, now),
            (ListenerProtocol::Auto | ListenerProtocol::Http1, _) => {
                let deadline = now + listener.timeouts.request_head;
                connection.receive = Receive::Head(Scan::default());
                self.timers.arm(connection.timer, deadline);
            }
        }
    }

    /// Looks at a connection's first bytes. Says whether they were told.
    pub(crate) fn on_first_bytes(&mut self, key: ConnKey, input: &[u8], now: Time) -> bool {
        match detect(input) {
            None => false,
            Some(Detected::Http1) => {
                self.begin_http(key, now);
                true
            }
            Some(Detected::Http2) => {
                self.begin_http2(key, now);
                true
            }
            Some(Detected::Tls | Detected::Unknown) => {
                self.begin_relay(key, now);
                true
            }
        }
    }

    /// The first bytes did not come, or not enough of them to be told.
    pub(crate) fn on_detect_timeout(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get(key) else { return };
        // What may still become a request is left to those who can say what is wrong with it.
        let first = connection.inbox.as_ref().and_then(|inbox| inbox.filled().first());
        if first.is_some_and(|octet| octet.is_ascii_alphabetic() || *octet == b'\r') {
            self.begin_http(key, now);
        } else {
            self.begin_relay(key, now);
        }
        self.resume_inbox(key, now);
    }

    fn begin_http(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let listener = self.listeners.get(downstream.listener).listener();
        let deadline = now + listener.timeouts.request_head;
        connection.receive = Receive::Head(Scan::default());
        self.timers.arm(connection.timer, deadline);
    }

    /// Relays a connection from here on.
    pub(crate) fn begin_relay(&mut self, key: ConnKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.receive = Receive::Body(BodyDecoder::new(Framing::UntilClose));
        connection.send = Send::Body(BodyEncoder::new(Framing::UntilClose));
        self.timers.arm(connection.timer, Time::NEVER);
        let Some(downstream) = connection.downstream_mut() else { return };
        downstream.life = Life::CloseWhenSent;
        if !downstream.head_began.is_set() {
            downstream.head_began = now;
        }
        let state = self.listeners.get(downstream.listener);
        let (snapshot, place) = (state.snapshot.clone(), state.place);
        let random = self.random.next();
        let cluster = state.listener().relay.as_ref().and_then(|relay| relay.choose(random));
        let at = StreamKey::whole(key);
        let exchange = self.begin_exchange(at, snapshot, place, Request::NONE, now);
        self.start_relay(exchange, cluster, now);
    }

    fn start_relay(&mut self, key: ExchangeKey, cluster: Option<ClusterId>, now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.kind = Kind::Tcp;
        exchange.record.is_tunnel = true;
        exchange.route = Some(Route { rule: None, cluster, endpoint: None });
        let timeout = exchange.listener().timeouts.tunnel_idle;
        let listener = label(exchange.listener().id.0);
        self.emitter.tunnel_started(&TunnelStarted { listener });
        self.set_deadline(key, Wait::TunnelIdle, now + timeout);
        let mut outbox = Outbox::new();
        // Until the connection stands, another endpoint may be tried.
        outbox.keep();
        self.push_proxy_header(key, &mut outbox);
        let send = Send::Body(BodyEncoder::new(Framing::UntilClose));
        let request = Unbound { outbox, form: Form::Whole { send, is_personal: true } };
        self.attempt(key, request, None, now);
    }

    /// The upstream connection of a relay stands.
    pub(crate) fn on_relay_connected(&mut self, key: ConnKey, exchange: ExchangeKey, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.outbox.forget(&mut self.buffers);
        let (is_empty, is_ending) =
            (connection.outbox.is_empty(), matches!(connection.send, Send::Ending));
        let Some(exchange) = self.exchanges.get_mut(exchange) else { return };
        exchange.stage = Stage::Responding { upstream: StreamKey::whole(key) };
        let downstream = exchange.downstream.connection;
        if is_empty && is_ending {
            // The client had nothing to say, and said so.
            self.on_upstream_sent(key, 0, 0, (now, now));
        } else {
            self.queue_send(key);
        }
        self.resume_inbox(downstream, now);
    }

    /// Whether an exchange carries bytes of a protocol that is not read here, so that a reply would
    /// mean nothing to its client.
    pub(crate) fn is_relay(&self, key: ExchangeKey) -> bool {
        self.exchanges.get(key).is_some_and(|exchange| exchange.kind == Kind::Tcp)
    }
}
