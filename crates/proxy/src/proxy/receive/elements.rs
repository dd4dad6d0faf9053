//! Hop 5: what an element that a codec has read does to its exchange, whatever the codec.

use telemetry::cause::Cause;
use wire::detect::Detected;
use wire::h2::ErrorCode;
use wire::head::RequestHead;
use wire::head::ResponseHead;
use wire::head::Version;

use crate::connection::codec::elements::Element;
use crate::connection::codec::elements::Invalid;
use crate::connection::codec::streams::Tail;
use crate::exchange::Exchange;
use crate::exchange::ExchangeKind;
use crate::exchange::Request;
use crate::exchange::stage::Stage;
use crate::keys::ExchangeKey;
use crate::keys::StreamKey;
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

/// Where an element comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) at: StreamKey,
    /// Whether it is of a request, so that what comes is of a client.
    pub(super) is_downstream: bool,
    /// The exchange there, unless one begins with the element.
    pub(super) exchange: Option<ExchangeKey>,
}

/// What came with a head.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Following {
    /// Bytes that came behind it, on a connection that carries one exchange.
    pub(in crate::proxy) bytes: usize,
    /// Whether the message ends with the head.
    pub(in crate::proxy) is_end: bool,
}

/// What is no message, or breaks one off.
#[derive(Clone, Copy, Debug)]
struct InvalidInput<'a> {
    error: &'a Invalid,
    /// Where it was found.
    input: &'a [u8],
}

/// Who a piece of a body is for.
enum Taker {
    /// Its exchange, now.
    Exchange,
    /// Its exchange, later: the stream keeps it.
    Stream,
    /// Nothing any more.
    Dropped,
}

impl Proxy {
    /// Hands an element to its exchange, or begins one with it. `behind`: bytes that came behind it on a
    /// connection that carries one exchange.
    // Into the loops of the codecs, which know the element: a call would copy it, head and all.
    #[inline(always)]
    pub(super) fn on_element(
        &mut self,
        from: Source,
        element: Element<'_>,
        behind: usize,
        now: Time,
    ) {
        match (element, from.exchange) {
            (Element::Request { mut head, is_end }, _) => {
                self.on_request(from.at, &mut head, is_end, now);
            }
            (Element::Response { mut head, is_end }, Some(key)) => {
                self.on_response(from.at, key, &mut head, Following { bytes: behind, is_end }, now);
            }
            (Element::Data { bytes, is_end }, Some(key)) => {
                self.on_body_data(from, key, bytes, is_end, now);
                if is_end {
                    self.on_body_end(from, key, &[], behind, now);
                }
            }
            (Element::End { trailers }, Some(key)) => {
                self.on_body_end(from, key, trailers, behind, now);
            }
            (Element::Interim { head }, Some(key)) => self.on_interim_response(key, &head, now),
            (Element::Invalid { error, input, .. }, Some(key)) => {
                self.on_invalid(from, key, InvalidInput { error: &error, input }, now);
            }
            (Element::Invalid { error, input, is_end }, None) => {
                self.refuse(from.at, InvalidInput { error: &error, input }, is_end, now);
            }
            (Element::Reset { code }, Some(key)) => self.on_reset(from, key, code, now),
            // The peer gets its window back for what is thrown away.
            (Element::Data { bytes, .. }, None) => self.connections.take(from.at, bytes.len()),
            (
                Element::Response { .. }
                | Element::End { .. }
                | Element::Interim { .. }
                | Element::Reset { .. },
                None,
            ) => {}
        }
    }

    fn on_request(&mut self, at: StreamKey, head: &mut RequestHead<'_>, is_end: bool, now: Time) {
        let Some(key) = self.begin_exchange(at, Request::of(head, is_end), now) else { return };
        if at.is_alone() && is_end && head.upgrade().is_some_and(offers_http2) {
            self.upgrade_to_http2(key, head, now);
        }
        self.on_request_head(key, head, now);
    }

    /// Answers what is no request, or none that can be served.
    fn refuse(&mut self, at: StreamKey, invalid: InvalidInput<'_>, is_complete: bool, now: Time) {
        let InvalidInput { error, input } = invalid;
        // The codec has reset the stream: no answer arrives.
        if matches!(error, Invalid::Stream(_)) {
            return;
        }
        let version = if at.is_alone() { Version::Http11 } else { Version::Http2 };
        let request = Request { is_complete, version, ..Request::NONE };
        let Some(key) = self.begin_exchange(at, request, now) else { return };
        if let Invalid::Rpc(_) = error
            && let Some(exchange) = self.exchanges.get_mut(key)
        {
            exchange.kind = ExchangeKind::Rpc;
        }
        let bound = self.exchanges.get(key).and_then(|exchange| exchange.bound_of_head(error));
        self.exchanges.note_detail(key, || bound.unwrap_or_else(|| error.detail(input)));
        self.fail(key, error.cause_of_head(), now);
    }

    fn on_response(
        &mut self,
        upstream: StreamKey,
        key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        following: Following,
        now: Time,
    ) {
        let key = if self.exchanges.hedges > 0 {
            match self.choose_attempt(key, head, following.is_end, now) {
                Some(key) => key,
                None => return,
            }
        } else {
            key
        };
        let is_switching = match head.status() {
            101 => true,
            // Of a stream, any of these grants it (RFC 8441, section 5, and RFC 9110, section 9.3.6).
            200..=299 if !upstream.is_alone() && !following.is_end => {
                self.exchanges.get(key).is_some_and(|exchange| exchange.request.asks_upgrade)
            }
            _ => false,
        };
        if self.upstream.pools.has_checks
            && let Some(exchange) = self.exchanges.get_mut(key)
        {
            exchange.note_own_health(head, &mut self.cx);
        }
        if is_switching {
            self.on_switching_protocols(upstream, key, head, now);
        } else if (head.status() >= 400
            || following.is_end
            || self.exchanges.get(key).is_some_and(Exchange::retries_on_headers))
            && self.retries_response(upstream, key, head, following, now)
        {
            // Another takes its place.
        } else {
            self.on_response_head(upstream, key, head, following, now);
        }
    }

    #[inline]
    fn on_body_data(
        &mut self,
        from: Source,
        key: ExchangeKey,
        bytes: &[u8],
        is_last: bool,
        now: Time,
    ) {
        let at = from.at;
        if !from.is_downstream {
            self.on_response_data(key, bytes, is_last, now);
            return self.exchanges.pass_on(at, bytes.len(), &mut self.connections);
        }
        match self.taker_of(at, key) {
            Taker::Exchange => {
                self.on_request_data(key, bytes, now);
                self.exchanges.pass_on(at, bytes.len(), &mut self.connections);
            }
            Taker::Stream => self.connections.keep(at, bytes, Tail::Open, &mut self.cx),
            Taker::Dropped => self.connections.take(at, bytes.len()),
        }
    }

    #[inline]
    fn on_body_end(
        &mut self,
        from: Source,
        key: ExchangeKey,
        trailers: &[u8],
        behind: usize,
        now: Time,
    ) {
        let at = from.at;
        if !from.is_downstream {
            return self.on_response_end(at, key, trailers, behind == 0, now);
        }
        match self.taker_of(at, key) {
            Taker::Exchange => self.on_request_end(key, trailers, now),
            Taker::Stream => self.connections.keep(at, &[], Tail::of(trailers), &mut self.cx),
            Taker::Dropped => {
                if let Some(exchange) = self.exchanges.get_mut(key) {
                    exchange.request.is_complete = true;
                }
            }
        }
    }

    /// Who takes what comes of a request's body. A connection that carries one exchange is read when that
    /// takes it; one of streams is read for all of them.
    #[inline]
    fn taker_of(&mut self, from: StreamKey, key: ExchangeKey) -> Taker {
        if from.is_alone() {
            return Taker::Exchange;
        }
        let Some(exchange) = self.exchanges.get(key) else { return Taker::Dropped };
        if matches!(exchange.stage(), Stage::Finishing) {
            return Taker::Dropped;
        }
        let is_empty = self.connections.stream_mut(from).is_some_and(|it| it.inbox.is_none());
        if exchange.takes_request_data() && is_empty { Taker::Exchange } else { Taker::Stream }
    }

    fn on_invalid(&mut self, from: Source, key: ExchangeKey, invalid: InvalidInput<'_>, now: Time) {
        let InvalidInput { error, input } = invalid;
        self.exchanges.note_detail(key, || {
            let other = match error {
                Invalid::Head(_) => Detail::of_other_protocol(Detected::Http1, input),
                Invalid::Body(_) | Invalid::Message(_) | Invalid::Stream(_) | Invalid::Rpc(_) => {
                    None
                }
            };
            other.unwrap_or_else(|| match from.is_downstream {
                true => error.detail(input),
                false => error.detail_of_response(input),
            })
        });
        match (from.is_downstream, error) {
            // No answer arrives on a stream that was reset.
            (true, Invalid::Stream(_)) => self.abort(key, error.cause_of_request(), now),
            (true, _) => self.fail(key, error.cause_of_request(), now),
            (false, Invalid::Head(_) | Invalid::Rpc(_)) => {
                self.fail_attempt(key, error.cause_of_response(), now);
            }
            (false, _) => self.fail(key, error.cause_of_response(), now),
        }
    }

    fn on_reset(&mut self, from: Source, key: ExchangeKey, code: ErrorCode, now: Time) {
        if !from.is_downstream && code == ErrorCode::REFUSED_STREAM {
            return self.fail_attempt(key, Cause::StreamRefused, now);
        }
        self.exchanges.note_detail(key, || Detail::of_code(code));
        if from.is_downstream {
            self.abort(key, Cause::RequestCancelled, now);
        } else {
            self.lose_upstream(key, Cause::StreamReset, now);
        }
    }
}

/// Whether `Upgrade` offers HTTP/2 without TLS (RFC 7540, section 3.2).
fn offers_http2(protocols: &[u8]) -> bool {
    let mut protocols = protocols.split(|octet| *octet == b',').map(<[u8]>::trim_ascii);
    protocols.any(|protocol| protocol.eq_ignore_ascii_case(b"h2c"))
}
