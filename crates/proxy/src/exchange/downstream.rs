//! Hops 2 to 5 on the downstream side: bytes of a client become exchanges.

use config::snapshot::ListenerProtocol;
use telemetry::cause::Cause;
use telemetry::events::{DetectedProtocol, ExchangeStarted};
use wire::detect::resembles_http2;
use wire::h1::{
    BodyDecoder, BodyElement, BodyLimits, HeadError, HeadErrorKind, HeadLimits, Parsing,
    REFUSED_OCTETS_MAX, decode_request,
};
use wire::h2::PREFACE;
use wire::head::{Framing, Known, Method, RequestHead};
use wire::proxy_protocol;

use crate::connection::codec::http1::{Http1, Receive};
use crate::connection::codec::{Codec, Opening};
use crate::connection::connections::Connections;
use crate::connection::transport::Tls;
use crate::connection::{ConnKey, ExchangeKey, Role, StreamKey};
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::progress::Progress;
use crate::exchange::record::{Record, Stamps, Words, label};
use crate::exchange::{Deadlines, Exchange, Kind, Request, Stage, lookalikes, route};
use crate::filter::chain::{BodyObservers, ChainStep};
use crate::listen::Listen;
use crate::listen::accepting::of_client_bound;
use crate::listen::clients::Part;
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::pinned::Pinned;
use crate::tools::time::Time;

/// Bounds on what the chunked coding may add to a body.
pub(crate) const BODY_LIMITS: BodyLimits = BodyLimits {
    chunk_line_bytes_max: 256,
    trailers_bytes_max: 8 << 10,
    fields_max: 100,
    parsing: Parsing::Strict,
};

/// What consuming a piece came to.
pub(crate) enum Step {
    /// So many bytes were taken; go on behind them.
    Took(usize),
    /// So many bytes were taken; nothing more can be for now.
    Wait(usize),
}

impl Connections {
    /// Counts a connection for the client that its PROXY header named. Says whether that client may
    /// have another.
    fn count_proxied_client(&mut self, key: ConnKey, listen: &mut Listen, cx: &Cx) -> bool {
        let Some(connection) = self.get_mut(key) else { return false };
        let address = connection.peer.ip();
        let Some(downstream) = connection.downstream_mut() else { return false };
        let listener = listen.listeners.get(downstream.listener).listener();
        if listener.http.trusted_hops > 0 {
            return true;
        }
        let count;
        (downstream.client, count) = listen.clients.enter(address, Part::Connection);
        count <= cx.share.of(listener.connections_per_client_max.get())
    }
}

impl Exchanges {
    /// Puts an exchange on the connection, or stream, whose head was just read, or refused.
    pub(crate) fn begin_exchange(
        &mut self,
        at: StreamKey,
        snapshot: Pinned,
        place: usize,
        request: Request,
        now: Time,
        connections: &mut Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> ExchangeKey {
        let connection = connections.get_mut(at.connection).expect("its head was just read");
        let is_first = connection.requests == 0;
        connection.requests += 1;
        let opened = connection.opened;
        let downstream = connection.downstream_mut().expect("requests come from downstream");
        let client = downstream.client;
        listen.clients.add(client, Part::Exchange);
        let began = std::mem::replace(&mut downstream.head_began, Time::NEVER).min(now);
        let accepted = if is_first { opened } else { Time::NEVER };
        let stamps = Stamps { accepted, began, head_read: now, ..Stamps::NONE };
        let timer = cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let exchange = self.table.insert(Exchange {
            snapshot,
            listener: place,
            chain: downstream.chain,
            downstream: at,
            client,
            is_holding: false,
            stall: None,
            kind: Kind::Http,
            stage: Stage::Finishing,
            request,
            route: None,
            timer,
            deadlines: Deadlines::default(),
            slots: None,
            observers: BodyObservers::default(),
            gathered: None,
            held: None,
            progress: Progress::default(),
            record: Record::new(stamps),
            call: None,
            handshake: None,
            is_request_slow: false,
            is_response_slow: false,
        });
        cx.timers.set_owner(timer, TimerOwner::Exchange(exchange).into());
        if at.is_alone() {
            downstream.exchange = Some(exchange);
        }
        let listener = label(listen.listeners.get(downstream.listener).id.0);
        cx.emitter.exchange_started(&ExchangeStarted { listener });
        exchange
    }
}

impl Proxy {
    /// Consumes a downstream's bytes as far as possible.
    pub(crate) fn consume_downstream(&mut self, key: ConnKey, input: &[u8], now: Time) -> usize {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(connection) = self.connections.get_mut(key) else { return input.len() };
            if connection.is_lingering() {
                self.connections.on_lingering_bytes(key, rest);
                return input.len();
            }
            let step = match &connection.codec {
                Codec::Http2(_) => match self.consume_frames(key, rest, now) {
                    n if n == rest.len() => Step::Took(n),
                    n => Step::Wait(n),
                },
                Codec::Opening(Opening::ProxyHeader) => self.on_proxy_header(key, rest, now),
                // The transport's, once this returns.
                Codec::Opening(Opening::Handshake) => Step::Wait(0),
                Codec::Opening(Opening::Detect | Opening::Hello) => {
                    match self.on_first_bytes(key, rest, now) {
                        true => Step::Took(0),
                        false => Step::Wait(0),
                    }
                }
                Codec::Http1(Http1 { receive: Receive::Head(_), .. }) => {
                    self.on_request_head_bytes(key, rest, now)
                }
                Codec::Http1(Http1 { receive: Receive::Discard { .. }, .. }) => self
                    .connections
                    .on_discarded_bytes(key, rest, now, &mut self.listen, &mut self.cx),
                Codec::Http1(_) | Codec::Bytes(_) => self.on_request_body_bytes(key, rest, now),
            };
            match step {
                Step::Took(n) => at += n,
                Step::Wait(n) => return at + n,
            }
        }
        at
    }

    fn on_proxy_header(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        match proxy_protocol::decode(input) {
            Ok(None) => Step::Wait(0),
            Ok(Some((header, n))) => {
                if let proxy_protocol::Header::Proxied { source, destination } = header {
                    connection.peer = PeerAddress::from(source);
                    connection.local = PeerAddress::from(destination);
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

    fn on_request_head_bytes(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        let (is_first, is_secure) = (connection.requests == 0, connection.tls.is_some());
        let timer = connection.timer;
        let Codec::Http1(codec) = &mut connection.codec else { return Step::Wait(0) };
        let Receive::Head(mut scan) = codec.receive else { return Step::Wait(0) };
        let Role::Downstream(downstream) = &mut connection.role else { return Step::Wait(0) };
        if downstream.exchange.is_some() {
            return Step::Wait(0);
        }
        let state = self.listen.listeners.get(downstream.listener);
        let (snapshot, place) = state.pin();
        let listener = state.listener().seen_by(downstream.chain);
        let is_undecided = is_first && listener.protocol == ListenerProtocol::Auto;
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
        let step = match decode_request(input, &mut scan, &limits, &mut index) {
            Ok(None) => {
                codec.receive = Receive::Head(scan);
                Step::Wait(0)
            }
            Ok(Some((mut head, n))) => {
                let body = BodyDecoder::new(head.framing());
                let is_complete = body.is_complete();
                let request = Request::of(&head, is_complete);
                codec.receive = if is_complete { Receive::Complete } else { Receive::Body(body) };
                let at = StreamKey::alone(key);
                let exchange = self.begin_exchange(at, snapshot, place, request, now);
                if is_undecided {
                    self.listen.count_detected(
                        key,
                        Some(DetectedProtocol::Http1),
                        &mut self.connections,
                        &mut self.cx,
                    );
                    // Inside TLS it is ALPN that offers HTTP/2.
                    if is_complete && !is_secure && head.upgrade().is_some_and(offers_http2) {
                        self.exchanges.upgrade_to_http2(
                            exchange,
                            &head,
                            now,
                            &mut self.connections,
                            &mut self.cx,
                        );
                    }
                }
                self.on_request_head(exchange, &mut head, now);
                Step::Took(n)
            }
            Err(error) => self.on_head_refused(key, input, &error, is_undecided, now),
        };
        if is_first_byte && matches!(step, Step::Wait(_)) {
            self.cx.timers.arm(timer, deadline);
        }
        self.cx.request_index = Some(index);
        step
    }

    fn begin_detected_http2(&mut self, key: ConnKey, now: Time) -> Step {
        let protocol = Some(DetectedProtocol::Http2);
        self.listen.count_detected(key, protocol, &mut self.connections, &mut self.cx);
        self.connections.begin_http2(key, now, &self.listen, &mut self.cx);
        Step::Took(0)
    }

    /// Bytes that are no head of HTTP/1. `is_undecided`: they are the first of a connection that may speak
    /// HTTP/2.
    fn on_head_refused(
        &mut self,
        key: ConnKey,
        input: &[u8],
        error: &HeadError,
        is_undecided: bool,
        now: Time,
    ) -> Step {
        if is_undecided {
            match resembles_http2(input) {
                // A preface that is broken, or lost its beginning: an answer in HTTP/1 would be garbage
                // to this client, and GOAWAY says what is wrong.
                Some(true) => return self.begin_detected_http2(key, now),
                Some(false) => {
                    self.listen.count_refused(key, input, &mut self.connections, &mut self.cx);
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
        self.refuse_head(key, cause_of_request(error), Detail::of_head(*error, input), now);
        Step::Took(input.len())
    }

    /// Answers bytes that are no request head, or the lack of one, and ends the connection.
    pub(crate) fn refuse_head(&mut self, key: ConnKey, cause: Cause, detail: Detail, now: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let state = self.listen.listeners.get(downstream.listener);
        let (snapshot, place) = state.pin();
        let at = StreamKey::alone(key);
        let exchange = self.begin_exchange(at, snapshot, place, Request::NONE, now);
        self.exchanges.note_detail(exchange, || detail);
        self.fail(exchange, cause, now);
    }

    /// Hop 5: a whole request head.
    pub(crate) fn on_request_head(
        &mut self,
        key: ExchangeKey,
        head: &mut RequestHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(connection) = self.connections.get(exchange.downstream.connection) else {
            return;
        };
        let snapshot = exchange.snapshot.clone();
        let listener = exchange.listener();
        let facts = crate::exchange::forwarded::Facts {
            peer: &connection.peer,
            local: &connection.local,
            options: &listener.http,
            is_secure: connection.tls.is_some(),
            is_early: connection.tls.as_deref().is_some_and(Tls::is_early),
            client_cert: connection.tls.as_deref().and_then(Tls::client_cert),
        };
        // RFC 8470, section 4. What follows a change of protocols is not read here, and cannot be judged.
        let is_too_early = facts.is_early && !(head.method().is_safe() && head.upgrade().is_none());
        let is_misdirected = route::is_misdirected(exchange, connection, head);
        let listener_label = label(listener.id.0);
        let dropped = lookalikes::screen(head, &listener.http);
        let client = crate::exchange::forwarded::rewrite(
            head,
            &facts,
            &mut self.cx.random,
            &mut self.cx.scratch,
        );
        let body_bytes_max = listener.http.body_bytes_max.unwrap_or(u64::MAX);
        let exchanges_max = listener.exchanges_per_client_max;
        exchange.record.client = client;
        if client.is_some() {
            // The one that a trusted hop named.
            self.listen.clients.remove(exchange.client, Part::Exchange);
            (exchange.client, _) = self.listen.clients.enter(client, Part::Exchange);
        }
        let has_too_many = exchanges_max.is_some_and(|max| {
            self.listen.clients.exchanges_of(exchange.client) > self.cx.share.of(max.get())
        });
        if snapshot.access_log.stage_times || snapshot.access_log.output.is_some() {
            exchange.record.words = Words::take(head, &mut self.cx.buffers);
        }
        let has_unknown_expectation =
            head.field(Known::Expect).is_some() && !head.expects_continue();
        let is_too_large = matches!(head.framing(), Framing::Length(n) if n > body_bytes_max);
        let counts = dropped.unwrap_or_default();
        if counts != lookalikes::Dropped::default() {
            self.cx.count_dropped(listener_label, counts);
        }
        if let Err(cause) = dropped {
            self.fail(key, cause, now);
        } else if has_too_many {
            self.fail(key, Cause::ClientExchangesOverflow, now);
        } else if is_too_early {
            self.fail(key, Cause::RequestTooEarly, now);
        } else if is_misdirected {
            self.fail(key, Cause::RequestMisdirected, now);
        } else if has_unknown_expectation {
            self.fail(key, Cause::RequestExpectationUnknown, now);
        } else if is_too_large {
            self.fail(key, Cause::RequestBodyTooLarge, now);
        } else if is_last_hop(head) {
            self.reply_as_last(key, head.method(), now);
        } else {
            self.exchanges.begin_call(key, head);
            self.exchanges.begin_chain(key);
            self.run_chain(key, head, ChainStep::Head(0), now);
        }
    }

    fn on_request_body_bytes(&mut self, key: ConnKey, input: &[u8], now: Time) -> Step {
        let Some(connection) = self.connections.get_mut(key) else { return Step::Wait(0) };
        let exchange = connection.exchange();
        let Some(exchange_key) = exchange else { return Step::Wait(0) };
        let Some(exchange) = self.exchanges.get(exchange_key) else { return Step::Wait(0) };
        if !exchange.takes_request_data() {
            // The body waits in the socket, and what was read of it in the inbox, until there is
            // a connection to send it on.
            return Step::Wait(0);
        }
        match connection.codec.decode_body(input, &BODY_LIMITS) {
            Ok((n, BodyElement::NeedMore, _)) => Step::Wait(n),
            Ok((n, BodyElement::Data(data), is_complete)) => {
                self.on_request_data(exchange_key, data, now);
                if is_complete {
                    self.on_request_end(exchange_key, &[], now);
                }
                Step::Took(n)
            }
            Ok((n, BodyElement::End, _)) => {
                self.on_request_end(exchange_key, &[], now);
                Step::Took(n)
            }
            Ok((n, BodyElement::Trailers(trailers), _)) => {
                self.on_request_end(exchange_key, trailers, now);
                Step::Took(n)
            }
            Err(error) => {
                self.exchanges.note_detail(exchange_key, || Detail::of_body(error, input));
                self.fail(exchange_key, Cause::RequestBodyInvalid, now);
                Step::Took(input.len())
            }
        }
    }
}

/// Whether `Max-Forwards` ends the request's way here (RFC 9110, section 7.6.2). Counts it down
/// where it does not.
#[inline]
fn is_last_hop(head: &mut RequestHead<'_>) -> bool {
    matches!(head.method(), Method::Options | Method::Trace) && is_counted_down(head)
}

fn is_counted_down(head: &mut RequestHead<'_>) -> bool {
    let value = head.field(Known::MaxForwards).and_then(|value| std::str::from_utf8(value).ok());
    let Some(left) = value.and_then(|value| value.parse::<u32>().ok()) else { return false };
    if let Some(left) = left.checked_sub(1) {
        head.set_known(Known::MaxForwards, left.to_string().as_bytes());
    }
    left == 0
}

/// Whether a connection's first bytes are HTTP/2's, as far as its version.
fn is_preface(input: &[u8]) -> bool {
    const TOLD_BY: usize = b"PRI * HTTP/2.0".len();
    input.first() == Some(&b'P') && input.get(..TOLD_BY) == PREFACE.get(..TOLD_BY)
}

/// Whether `Upgrade` offers HTTP/2 without TLS (RFC 7540, section 3.2).
fn offers_http2(protocols: &[u8]) -> bool {
    let mut protocols = protocols.split(|octet| *octet == b',').map(<[u8]>::trim_ascii);
    protocols.any(|protocol| protocol.eq_ignore_ascii_case(b"h2c"))
}

/// What a refused head is called.
pub(crate) fn cause_of_request(error: &HeadError) -> Cause {
    match error.kind() {
        HeadErrorKind::Syntax => Cause::RequestInvalid,
        HeadErrorKind::Framing => Cause::RequestFramingInvalid,
        HeadErrorKind::Host => Cause::RequestHostInvalid,
        HeadErrorKind::Target => Cause::RequestTargetInvalid,
        HeadErrorKind::LineTooLong => Cause::RequestLineTooLong,
        HeadErrorKind::TooLarge => Cause::RequestHeadTooLarge,
        HeadErrorKind::NotImplemented => Cause::RequestNotImplemented,
        HeadErrorKind::Version => Cause::RequestVersionUnsupported,
    }
}
