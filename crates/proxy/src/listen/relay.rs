//! First bytes: what a listener takes them for, and which of its chains a connection meets.

use config::chains::ConnectionFacts;
use telemetry::cause::Cause;
use telemetry::events::{ConnectionDetected, DetectedProtocol};
use wire::buffer::Buffer;
use wire::detect::{Detected, RpcProtocols, detect, detect_late};
use wire::tls::{ServerName, client_hello};

use crate::connection::codec::Codec;
use crate::connection::codec::Opening;
use crate::connection::connections::Connections;
use crate::connection::debug_log::Named;
use crate::connection::{Connection, Downstream};
use crate::cx::Cx;
use crate::keys::{ConnKey, label};
use crate::listen::Listen;
use crate::tools::detail::{Detail, protocol_name};
use crate::tools::time::Time;

/// What a connection's first bytes say.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes {
    pub(crate) protocol: Option<Detected>,
    pub(crate) server_name: Option<ServerName>,
    pub(crate) alpn: Vec<Box<[u8]>>,
}

impl FirstBytes {
    /// Reads them, what a TLS client asks for included if that matters; none for more, please.
    pub(crate) fn read(input: &[u8], has_chains: bool, rpc: RpcProtocols<'_>) -> Option<Self> {
        let protocol = detect(input, rpc)?;
        let mut this = Self { protocol: Some(protocol), ..Self::default() };
        if protocol == Detected::Tls && has_chains {
            // What is wrong with it is for those to say who read all of it.
            if let Ok(hello) = client_hello::decode(input, &mut Vec::new()).transpose()? {
                this.server_name = hello.server_name;
                this.alpn = hello.alpn().map(Box::from).collect();
            }
        }
        Some(this)
    }
}

/// What it is counted as.
pub(crate) const fn word_for(protocol: Detected) -> DetectedProtocol {
    match protocol {
        Detected::Http1 => DetectedProtocol::Http1,
        Detected::Http2 => DetectedProtocol::Http2,
        Detected::Tls => DetectedProtocol::Tls,
        Detected::Rpc(_) => DetectedProtocol::Rpc,
        Detected::Other => DetectedProtocol::Other,
    }
}

impl Listen {
    /// What the first bytes are taken for if no more come, and the first of them.
    pub(crate) fn late(&self, key: ConnKey, connections: &Connections) -> (Detected, Option<u8>) {
        let inbox = connections.get(key).and_then(|connection| connection.inbox.as_ref());
        let input = inbox.map(Buffer::filled).unwrap_or_default();
        (detect_late(input, self.looked_for(key, connections)), input.first().copied())
    }

    /// The RPC protocols that the chains of a connection's listener ask for.
    pub(crate) fn looked_for(&self, key: ConnKey, connections: &Connections) -> RpcProtocols<'_> {
        let downstream = connections.get(key).and_then(Connection::downstream);
        downstream.map_or(&[], |downstream| {
            self.listeners.get(downstream.listener).listener().chains.rpc_protocols()
        })
    }

    /// Looks at the first bytes before anything else.
    pub(crate) fn await_first_bytes(
        &self,
        key: ConnKey,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let Some(connection) = connections.get_mut(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let listener = self.listeners.get(downstream.listener).listener();
        let deadline = now + listener.timeouts.detect;
        connection.codec = Codec::Opening(Opening::Detect);
        cx.timers.arm(connection.timer, deadline);
    }

    /// The first bytes are those of a ClientHello, and the others decide which filter chain it meets:
    /// from here on the client has as long as for any handshake, instead of the time of those that
    /// say nothing.
    pub(crate) fn await_hello(
        &self,
        key: ConnKey,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let Some(connection) = connections.get_mut(key) else { return };
        if connection.opening() != Some(Opening::Detect) || connection.tls.is_some() {
            return;
        }
        let Some(downstream) = connection.downstream() else { return };
        let listener = self.listeners.get(downstream.listener).listener();
        let deadline = now + listener.timeouts.tls_handshake;
        connection.codec = Codec::Opening(Opening::Hello);
        cx.timers.arm(connection.timer, deadline);
        self.count_detected(key, Some(DetectedProtocol::Tls), now, connections, cx);
    }

    pub(crate) fn has_chains(&self, key: ConnKey, connections: &Connections) -> bool {
        let downstream = connections.get(key).and_then(Connection::downstream);
        downstream.is_some_and(|downstream| {
            !self.listeners.get(downstream.listener).listener().chains.is_empty()
        })
    }

    /// Counts what a connection speaks, the first time that it is known.
    pub(crate) fn count_detected(
        &self,
        key: ConnKey,
        protocol: Option<DetectedProtocol>,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let connection = connections.get_mut(key);
        let downstream = connection.and_then(Connection::downstream_mut);
        if let (Some(downstream), Some(protocol)) = (downstream, protocol)
            && !std::mem::replace(&mut downstream.is_detected, true)
        {
            let listener = label(self.listeners.get(downstream.listener).id.0);
            cx.emitter.connection_detected(&ConnectionDetected { listener, protocol });
            if cx.emitter.is_debug() {
                let word = DetectedProtocol::NAMES.get(protocol as usize).copied();
                let words = format_args!("first bytes: {}", word.unwrap_or_default());
                cx.debug(Named(key), words, now);
            }
        }
    }

    /// Counts what first bytes belong to that are no head of a request.
    pub(crate) fn count_refused(
        &self,
        key: ConnKey,
        input: &[u8],
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let protocol = word_for(detect_late(input, &[]));
        self.count_detected(key, Some(protocol), now, connections, cx);
    }

    /// Whether a connection may be relayed, by its listener or a chain of it.
    pub(crate) fn may_relay(&self, key: ConnKey, connections: &Connections) -> bool {
        let downstream = connections.get(key).and_then(Connection::downstream);
        downstream.is_some_and(|downstream| {
            let listener = self.listeners.get(downstream.listener).listener();
            listener.relay.is_some() || listener.chains.may_relay()
        })
    }

    /// Goes on as HTTP/1, of which the first byte came then; `NEVER` if none was looked at.
    pub(crate) fn begin_http(
        &self,
        key: ConnKey,
        began: Time,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) {
        let Some(connection) = connections.get_mut(key) else { return };
        let Some(downstream) = connection.downstream_mut() else { return };
        // A head that was looked at has begun, and has no more time than another.
        downstream.head_began = began;
        let listener = self.listeners.get(downstream.listener).listener();
        let deadline = began.min(now) + listener.timeouts.request_head;
        connection.codec.await_head();
        cx.timers.arm(connection.timer, deadline);
    }
}

impl Listen {
    /// Whether a chain asks who connected, for a connection whose client a PROXY header names.
    pub(crate) fn asks_direct_source(&self, downstream: &Downstream) -> bool {
        let listener = self.listeners.get(downstream.listener).listener();
        listener.http.proxy_protocol.is_some() && listener.chains.asks_direct_source()
    }

    /// Chooses the chain that a connection meets. Says whether there is anything for it.
    pub(crate) fn choose_chain(
        &mut self,
        key: ConnKey,
        first: &FirstBytes,
        now: Time,
        connections: &mut Connections,
        cx: &mut Cx,
    ) -> bool {
        let Some(connection) = connections.get_mut(key) else { return false };
        let alpn: Vec<&[u8]> = first.alpn.iter().map(|name| &**name).collect();
        let facts = ConnectionFacts {
            protocol: first.protocol,
            server_name: first.server_name.as_ref().map(ServerName::as_str),
            alpn: &alpn,
            ..connection.address_facts()
        };
        let Some(downstream) = connection.downstream() else { return false };
        let listener = self.listeners.get(downstream.listener).listener();
        let chain = listener.chains.choose(&facts).map(|chain| chain.id);
        if chain.is_none() && !listener.has_default {
            let detail = || of_unmatched(&facts);
            let server_name = facts.server_name.unwrap_or_default();
            if let Some(mut failed) = connections.failed(key, Cause::NoChain, self) {
                failed.server_name = server_name;
                cx.log_failed_connection(&failed, detail, now);
            }
            connections.close_downstream(key, Some(Cause::NoChain), now, self, cx);
            return false;
        }
        if let Some(downstream) = connection.downstream_mut() {
            downstream.chain = chain;
        }
        true
    }
}

/// What no chain is for, and the names of a ClientHello, if there was one.
fn of_unmatched(facts: &ConnectionFacts<'_>) -> Detail {
    let server_name = facts.server_name.map_or("none", |name| name);
    let alpn = facts.alpn.iter().map(|name| name.escape_ascii().to_string());
    let alpn = alpn.collect::<Vec<_>>().join(",");
    let alpn = if alpn.is_empty() { "none" } else { &*alpn };
    let protocol = facts.protocol.and_then(protocol_name).unwrap_or("unknown");
    let to = facts.destination.map_or_else(|| "a unix socket".to_owned(), |to| to.to_string());
    let words =
        format_args!("to {to}, protocol {protocol}, server name {server_name}, ALPN {alpn}");
    Detail::of(&words)
}
