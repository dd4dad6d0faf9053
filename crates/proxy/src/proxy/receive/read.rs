//! Hop 4: the bytes of a peer become elements, and these go to their exchange.
//!
//! A connection is read as far as its codec and its exchange take what comes; the rest waits in the
//! connection's inbox, and when that is full in the socket. What follows from an element is in
//! `elements`.

use std::mem;

use config::snapshot::ListenerProtocol;
use telemetry::cause::Cause;
use telemetry::events::DetectedProtocol;
use wire::detect::{Detected, resembles_http2};
use wire::h1::{HeadLimits, Parsing, REFUSED_OCTETS_MAX, allowed_trailers};
use wire::h2::PREFACE;
use wire::proxy_protocol;

use crate::connection::ConnectionRole;
use crate::connection::codec::elements::{Element, Invalid};
use crate::connection::codec::http1::{Answered, Http1, Receive};
use crate::connection::codec::{Codec, Opening};
use crate::connection::reading::Step;
use crate::exchange::{Exchange, Request};
use crate::keys::{ConnKey, StreamKey};
use crate::listen::accepting::of_client_bound;
use crate::proxy::Proxy;
use crate::proxy::receive::elements::Source;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;

impl Proxy {
    /// Consumes a peer's bytes as far as possible; returns how many.
    pub(in crate::proxy) fn consume(&mut self, key: ConnKey, input: &[u8], now: Time) -> usize {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            match self.read(key, rest, now) {
                Step::Took(n) => at += n,
                Step::Wait(n) => return at + n,
            }
        }
        at
    }

    fn read(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get(key) else { return Step::Took(input.len()) };
        if connection.is_lingering() {
            return self.connections.on_lingering_bytes(key, input);
        }
        match &connection.codec {
            Codec::Http1(Http1 { receive: Receive::Head(_), .. }) => match connection.role {
                ConnectionRole::Downstream(_) => self.read_request_head(key, input, now),
                ConnectionRole::Upstream(_) => self.read_response_head(key, input, now),
            },
            Codec::Http1(Http1 { receive: Receive::Discard { .. }, .. }) => {
                self.connections.on_discarded_bytes(key, input, now, &mut self.listen, &mut self.cx)
            }
            Codec::Http1(_) | Codec::Bytes(_) => self.read_body(key, input, now),
            Codec::Shared(multiplex) => {
                if multiplex.failure.is_some() && connection.upstream().is_some() {
                    return self.on_unasked(key, input, now);
                }
                match self.consume_frames(key, input, now) {
                    n if n == input.len() => Step::Took(n),
                    n => Step::Wait(n),
                }
            }
            Codec::Opening(Opening::ProxyHeader) => self.read_proxy_header(key, input, now),
            // The transport's, once this returns.
            Codec::Opening(Opening::Handshake) => Step::Wait(0),
            Codec::Opening(Opening::Detect | Opening::Hello) => {
                match self.on_first_bytes(key, input, now) {
                    true => Step::Took(0),
                    false => Step::Wait(0),
                }
            }
        }
    }

    fn read_proxy_header(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        match proxy_protocol::decode(input) {
            Ok(None) => Step::Wait(0),
            Ok(Some((header, n))) => {
                if let proxy_protocol::Header::Proxied { source, destination } = header {
                    let direct = mem::replace(&mut connection.peer, PeerAddress::from(source));
                    connection.local = PeerAddress::from(destination);
                    let downstream = connection.downstream_mut();
                    if let Some(downstream) = downstream
                        && self.listen.asks_direct_source(downstream)
                    {
                        downstream.keep_direct(direct);
                    }
                }
                if !self.connections.count_proxied_client(key, &mut self.listen, &self.cx) {
                    let cause = Cause::ClientConnectionsOverflow;
                    let max = self.listen.per_client_max(key, &self.connections);
                    let detail = || max.map_or_else(|| Detail::of(&""), of_client_bound);
                    self.log_failed(key, cause, detail, now);
                    self.close_downstream(key, Some(cause), now);
                    return Step::Took(input.len());
                }
                self.begin_connection(key, now);
                Step::Took(n)
            }
            Err(error) => {
                // There is no telling what the peer speaks, so nothing is said to it.
                let octets = input.get(..REFUSED_OCTETS_MAX).unwrap_or(input);
                let detail = || Detail::of_place(&error, octets);
                self.log_failed(key, Cause::ProxyProtocolInvalid, detail, now);
                self.close_downstream(key, Some(Cause::ProxyProtocolInvalid), now);
                Step::Took(input.len())
            }
        }
    }

    /// Reads on in a request's head. On a connection without TLS the first one may turn out to be HTTP/2.
    fn read_request_head(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        let timer = connection.timer;
        let Codec::Http1(codec) = &mut connection.codec else { return Step::Wait(0) };
        let ConnectionRole::Downstream(downstream) = &mut connection.role else {
            return Step::Wait(0);
        };
        if downstream.exchange.is_some() {
            return Step::Wait(0);
        }
        let listener = self.listen.listeners.get(downstream.listener).listener();
        let listener = listener.seen_by(downstream.chain);
        let is_undecided = connection.requests == 0 && listener.protocol == ListenerProtocol::Auto;
        if is_undecided && is_preface(input) {
            return self.begin_detected_http2(key, now);
        }
        let limits = HeadLimits {
            request_line_bytes_max: listener.http.request_line_bytes_max,
            head_bytes_max: listener.http.head_bytes_max,
            fields_max: listener.http.fields_max,
            slashes: listener.http.slashes,
        };
        let is_first_byte = !downstream.head_began.is_set();
        if is_first_byte {
            downstream.head_began = now;
        }
        let deadline = now + listener.timeouts.request_head;
        let mut index = self.cx.request_index.take().unwrap_or_default();
        let step = match codec.decode_request(input, &limits, &mut index) {
            (n, None) => Step::Wait(n),
            (_, Some(Element::Invalid { error, .. })) => {
                self.on_head_refused(key, input, error, is_undecided, now)
            }
            (n, Some(element)) => {
                if is_undecided {
                    let protocol = Some(DetectedProtocol::Http1);
                    let Self { listen, connections, cx, .. } = self;
                    listen.count_detected(key, protocol, now, connections, cx);
                }
                self.on_element(begun_by(key), element, input.len() - n, now);
                Step::Took(n)
            }
        };
        if is_first_byte && matches!(step, Step::Wait(_)) {
            self.cx.timers.arm(timer, deadline);
        }
        self.cx.request_index = Some(index);
        step
    }

    fn begin_detected_http2(&mut self, key: ConnKey, now: Time) -> Step {
        let protocol = Some(DetectedProtocol::Http2);
        self.listen.count_detected(key, protocol, now, &mut self.connections, &mut self.cx);
        self.connections.begin_http2(key, now, &self.listen, &mut self.cx);
        Step::Took(0)
    }

    /// Bytes that are no head of HTTP/1. `is_undecided`: they are the first of a connection that may speak
    /// HTTP/2.
    fn on_head_refused(
        &mut self,
        key: ConnKey,
        input: &[u8],
        error: Invalid,
        is_undecided: bool,
        now: Time,
    ) -> Step {
        if is_undecided {
            match resembles_http2(input) {
                // A preface that is broken, or lost its beginning: an answer in HTTP/1 would be garbage
                // to this client, and GOAWAY says what is wrong.
                Some(true) => return self.begin_detected_http2(key, now),
                Some(false) => {
                    self.listen.count_refused(key, input, now, &mut self.connections, &mut self.cx);
                }
                // More of it decides.
                None => {
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.codec.await_head();
                    }
                    return Step::Wait(0);
                }
            }
        }
        self.on_element(begun_by(key), Element::invalid(error, input), 0, now);
        Step::Took(input.len())
    }

    /// Answers the lack of a request head, and ends the connection.
    pub(in crate::proxy) fn refuse_head(
        &mut self,
        key: ConnKey,
        cause: Cause,
        detail: Detail,
        now: Time,
    ) {
        if let Some(exchange) = self.begin_exchange(StreamKey::alone(key), Request::NONE, now) {
            self.exchanges.note_detail(exchange, || detail);
            self.fail(exchange, cause, now);
        }
    }

    /// Bytes of an upstream that was not asked: the connection is not used again.
    fn on_unasked(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        self.close_upstream(key, Some(Cause::ResponseInvalid), now);
        Step::Took(input.len())
    }

    fn read_response_head(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        let Some(exchange_key) = connection.exchange() else {
            return self.on_unasked(key, input, now);
        };
        let Some(exchange) = self.exchanges.get_mut(exchange_key) else { return Step::Wait(0) };
        let Some(codec) = connection.codec.http1_mut() else { return Step::Wait(0) };
        if connection.outbox.is_untouched() {
            // Nothing was asked yet, so this is no answer; the request goes elsewhere.
            let other = Detail::of_other_protocol(Detected::Http1, input);
            self.connections.note_reason(key, || {
                other.unwrap_or_else(|| Detail::of(&"a response before any request"))
            });
            self.fail_attempt(exchange_key, Cause::ResponseUnasked, now);
            return Step::Took(input.len());
        }
        if !exchange.record.stamps.first_byte.is_set() {
            exchange.record.stamps.first_byte = now;
        }
        let answered = Answered {
            method: exchange.request.method,
            parsing: parsing_of(exchange),
            is_after_interim: exchange.progress.interim_responses > 0,
        };
        let at = StreamKey::alone(key);
        let from = Source { at, is_downstream: false, exchange: Some(exchange_key) };
        let mut index = self.cx.response_index.take().unwrap_or_default();
        let step = match codec.decode_response(input, answered, &mut index) {
            (n, None) => Step::Wait(n),
            (n, Some(element)) => {
                self.on_element(from, element, input.len() - n, now);
                Step::Took(n)
            }
        };
        self.cx.response_index = Some(index);
        step
    }

    /// Reads on in the body of the one message that comes, or in the bytes of a tunnel.
    fn read_body(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        let Some(exchange_key) = connection.exchange() else {
            return match connection.role {
                ConnectionRole::Downstream(_) => Step::Wait(0),
                ConnectionRole::Upstream(_) => self.on_unasked(key, input, now),
            };
        };
        let Some(exchange) = self.exchanges.get(exchange_key) else { return Step::Wait(0) };
        let at = StreamKey::alone(key);
        let is_downstream = matches!(connection.role, ConnectionRole::Downstream(_));
        // The body waits in the socket, and what was read of it in the inbox, until there is a
        // connection to send it on.
        if is_downstream && !exchange.takes_request_data() {
            return Step::Wait(0);
        }
        // Only what the chunked coding puts around data can be read in more than one way.
        let is_tolerant = !is_downstream && connection.codec.is_chunked();
        let parsing = if is_tolerant { parsing_of(exchange) } else { Parsing::Strict };
        let from = Source { at, is_downstream, exchange: Some(exchange_key) };
        let (n, element) = connection.codec.decode_body(input, parsing);
        let behind = input.len() - n;
        match element {
            None => return Step::Wait(n),
            Some(Element::End { trailers }) if !is_downstream => {
                let mut room = Vec::new();
                let trailers = allowed_trailers(trailers, &mut room);
                self.on_element(from, Element::End { trailers }, behind, now);
            }
            Some(element) => self.on_element(from, element, behind, now),
        }
        Step::Took(n)
    }
}

/// Of a request that begins on a connection which carries one at a time.
const fn begun_by(key: ConnKey) -> Source {
    Source { at: StreamKey::alone(key), is_downstream: true, exchange: None }
}

/// How strictly an exchange's response is read.
fn parsing_of(exchange: &Exchange) -> Parsing {
    exchange.cluster().map(|cluster| cluster.response_parsing).unwrap_or_default()
}

/// Whether a connection's first bytes are HTTP/2's, as far as its version.
fn is_preface(input: &[u8]) -> bool {
    const TOLD_BY: usize = b"PRI * HTTP/2.0".len();
    input.first() == Some(&b'P') && input.get(..TOLD_BY) == PREFACE.get(..TOLD_BY)
}
