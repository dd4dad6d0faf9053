//! What gRPC adds to an exchange: deadlines, statuses, counted messages, and gRPC-Web.
//!
//! An exchange is a call if its request's `content-type` says so. Then faults become a `grpc-status`
//! with a message, since a client of gRPC reads nothing else; a `grpc-timeout` bounds the exchange
//! as the route's `timeout` does; and messages are counted as they pass. A call of gRPC-Web, on a
//! listener that takes such, goes upstream as one of gRPC, and its answer back as one of gRPC-Web.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;
use telemetry::events::GrpcCall;
use wire::buffer::Buffer;
use wire::grpc::{
    GrpcVariant, MessageCounter, Status, convert_content_type, encode_message, encode_timeout,
    is_grpc, parse_timeout, web,
};
use wire::h1::field_values;
use wire::head::{Framing, Known, RequestHead, ResponseHead};

use crate::connection::ExchangeKey;
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::fault::consequence;
use crate::proxy::Proxy;

/// Bytes of a body that are translated at a time.
const PIECE_BYTES: usize = 16 << 10;

/// What is known of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    kind: GrpcVariant,
    /// The client's own bound on the call.
    pub(crate) timeout: Option<Duration>,
    asked: MessageCounter,
    answered: MessageCounter,
    status: Option<u8>,
    web: Option<Translation>,
}

/// A call of gRPC-Web on its way to be one of gRPC, and back.
#[derive(Debug, Serialize, Deserialize)]
struct Translation {
    request: web::RequestDecoder,
    response: web::ResponseEncoder,
    /// Content type of the response.
    kind: GrpcVariant,
    /// The response has no body: its trailers are its head.
    is_head_all: bool,
    /// The response is none of gRPC, and passes as it is.
    is_foreign: bool,
}

impl Call {
    /// The call that a request is, if it is one; changes its head to that of gRPC if it is of
    /// gRPC-Web and the listener takes such.
    fn begin(head: &mut RequestHead<'_>, takes_web: bool) -> Option<Self> {
        let kind = is_grpc(head.field(Known::ContentType)?)?;
        let timeout = head.find(b"grpc-timeout").and_then(parse_timeout);
        let web = kind.web_encoding().filter(|_| takes_web).map(|encoding| {
            let accept = head.find(b"accept").unwrap_or_default();
            let answered = web::response_encoding(encoding, accept);
            Translation {
                request: web::RequestDecoder::new(encoding),
                response: web::ResponseEncoder::new(answered),
                kind: if answered == web::Encoding::Text {
                    GrpcVariant::WebText
                } else {
                    GrpcVariant::Web
                },
                is_head_all: false,
                is_foreign: false,
            }
        });
        if web.is_some() {
            let mut content_type = Vec::new();
            let given = head.field(Known::ContentType).unwrap_or_default();
            convert_content_type(given, GrpcVariant::Grpc, &mut content_type);
            head.set_known(Known::ContentType, &content_type);
            head.set_accepts_trailers();
            if kind == GrpcVariant::WebText && matches!(head.framing(), Framing::Length(1..)) {
                // How much it is without its encoding is known when it ends.
                head.set_framing(Framing::Chunked);
            }
        }
        let counter = MessageCounter::default;
        Some(Self { kind, timeout, asked: counter(), answered: counter(), status: None, web })
    }

    /// What is told when it is over.
    pub(crate) fn told(&self) -> GrpcCall {
        GrpcCall {
            status: self.status,
            request_messages: self.asked.messages(),
            response_messages: self.answered.messages(),
        }
    }

    /// Looks for the status among fields.
    fn on_status<'v>(&mut self, mut values: impl Iterator<Item = &'v [u8]>) {
        if let Some(value) = values.next() {
            // A client reads a code that is not defined as one of these.
            self.status = Some(Status::parse(value).unwrap_or(Status::Unknown).code());
        }
    }

    /// Content type of a reply to it.
    const fn content_type(&self) -> &'static [u8] {
        match (&self.web, self.kind) {
            (Some(Translation { kind: GrpcVariant::WebText, .. }), _)
            | (None, GrpcVariant::WebText) => b"application/grpc-web-text",
            (Some(_), _) | (None, GrpcVariant::Web) => b"application/grpc-web",
            (None, GrpcVariant::Grpc) => b"application/grpc",
        }
    }

    /// The fields of a reply to it.
    pub(crate) fn reply(&mut self, status: Status, reason: &[u8]) -> Vec<(&'static [u8], Vec<u8>)> {
        self.status = Some(status.code());
        let mut message = Vec::new();
        encode_message(reason, &mut message);
        vec![
            (&b"content-type"[..], self.content_type().to_vec()),
            (b"grpc-status", status.digits().as_bytes().to_vec()),
            (b"grpc-message", message),
        ]
    }
}

/// The status of a fault that a call met.
pub(crate) fn status_of(cause: Option<Cause>, http: u16) -> Status {
    match cause {
        Some(Cause::RequestTimeout | Cause::ResponseHeadTimeout | Cause::ResponseBodyTimeout) => {
            Status::DeadlineExceeded
        }
        Some(Cause::PendingOverflow) => Status::ResourceExhausted,
        Some(cause) => consequence(cause).status.map_or(Status::Unknown, Status::from_http),
        None => Status::from_http(http),
    }
}

impl Cx {
    /// The room for what is translated, with so many bytes at least.
    fn take_room(&mut self, bytes: usize) -> Buffer {
        let room = std::mem::replace(&mut self.translated, Buffer::new(0));
        if room.capacity() < bytes { Buffer::new(bytes) } else { room }
    }
}

impl Exchanges {
    /// Looks whether a request is a call.
    #[inline]
    pub(crate) fn begin_call(&mut self, key: ExchangeKey, head: &mut RequestHead<'_>) {
        let Some(exchange) = self.get_mut(key) else { return };
        let takes_web = exchange.listener().http.grpc_web;
        exchange.call = Call::begin(head, takes_web).map(Box::new);
    }

    /// The bound on a call that its route and its client allow, where the route sets `timeout`.
    pub(crate) fn bound_call(
        &self,
        key: ExchangeKey,
        head: &mut RequestHead<'_>,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        let call = self.get(key).and_then(|exchange| exchange.call.as_ref());
        let Some(call) = call else { return timeout };
        match (call.timeout, timeout) {
            (Some(asked), Some(allowed)) if allowed < asked => {
                head.set(b"grpc-timeout", encode_timeout(allowed).as_bytes());
                timeout
            }
            (Some(asked), _) => Some(asked),
            (None, _) => timeout,
        }
    }

    /// The end of a call's request body. An error is one of its encoding.
    pub(crate) fn end_call_request(&self, key: ExchangeKey) -> Result<(), Cause> {
        let call = self.get(key).and_then(|exchange| exchange.call.as_deref());
        let web = call.and_then(|call| call.web.as_ref());
        let result = web.map_or(Ok(()), |web| web.request.on_eof());
        result.map_err(|_| Cause::RequestBodyInvalid)
    }

    /// A response's head, of an exchange that may be a call; says how its body is delimited then.
    pub(crate) fn on_call_response(
        &mut self,
        key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        is_end: bool,
    ) -> Framing {
        let received = head.framing();
        let call = self.get_mut(key).and_then(|it| it.call.as_deref_mut());
        let Some(call) = call else { return received };
        // Without a body, the trailers are in the head.
        call.on_status(head.find_all(b"grpc-status"));
        let has_status = call.status.is_some();
        let Some(web) = &mut call.web else { return received };
        web.is_head_all = is_end;
        let given = head.field(Known::ContentType).unwrap_or_default();
        let mut content_type = Vec::new();
        if convert_content_type(given, web.kind, &mut content_type) {
            head.set_known(Known::ContentType, &content_type);
        } else if !has_status {
            // The client tells from its status what it means, as one of gRPC does.
            web.is_foreign = true;
            return received;
        }
        if is_end { received } else { Framing::Chunked }
    }
}

impl Proxy {
    /// A piece of a call's request body: counted, and given to `pass` as it goes upstream. An
    /// error is one of its encoding.
    pub(crate) fn translate_request(
        &mut self,
        key: ExchangeKey,
        data: &[u8],
        mut pass: impl FnMut(&mut Self, &[u8]),
    ) -> Result<(), Cause> {
        let Some(call) = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut()) else {
            return Ok(());
        };
        if call.web.is_none() {
            call.asked.on_data(data);
            pass(self, data);
            return Ok(());
        }
        for piece in data.chunks(PIECE_BYTES) {
            let mut room = self.cx.take_room(piece.len());
            let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
            let result = call.map_or(Ok(()), |call| {
                let Call { web, asked, .. } = call;
                let decoded = web.as_mut().map(|web| web.request.decode(piece, &mut room));
                asked.on_data(room.filled());
                decoded.unwrap_or(Ok(()))
            });
            if !room.is_empty() {
                pass(self, room.filled());
            }
            room.clear();
            self.cx.translated = room;
            result.map_err(|_| Cause::RequestBodyInvalid)?;
        }
        Ok(())
    }

    /// A piece of a call's response body: counted, and given to `pass` as it goes downstream.
    pub(crate) fn translate_response(
        &mut self,
        key: ExchangeKey,
        data: &[u8],
        mut pass: impl FnMut(&mut Self, &[u8]),
    ) {
        let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
        let Some(call) = call else { return };
        call.answered.on_data(data);
        if call.web.as_ref().is_none_or(|web| web.is_foreign) {
            return pass(self, data);
        }
        for piece in data.chunks(PIECE_BYTES) {
            self.encode_for_web(key, web::data_len_max(piece.len()), &mut pass, |encoder, room| {
                encoder.encode(piece, room);
                encoder.flush(room);
            });
        }
    }

    /// The end of a call's response: its trailers go into the body if it is of gRPC-Web. Says
    /// whether they did.
    pub(crate) fn end_call_response(
        &mut self,
        key: ExchangeKey,
        trailers: &[u8],
        mut pass: impl FnMut(&mut Self, &[u8]),
    ) -> bool {
        const NONE: &[u8] = b"grpc-status: 2\r\n";
        let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
        let Some(call) = call else { return false };
        call.on_status(field_values(trailers, b"grpc-status"));
        match &call.web {
            None => return false,
            Some(web) if web.is_foreign => return false,
            Some(web) if web.is_head_all => return true,
            Some(_) => {}
        }
        let section = if trailers.is_empty() { NONE } else { trailers };
        self.encode_for_web(key, web::trailers_len_max(section), &mut pass, |encoder, room| {
            encoder.encode_trailers(section, room);
        });
        true
    }

    fn encode_for_web(
        &mut self,
        key: ExchangeKey,
        bytes: usize,
        pass: &mut impl FnMut(&mut Self, &[u8]),
        encode: impl FnOnce(&mut web::ResponseEncoder, &mut Buffer),
    ) {
        let mut room = self.cx.take_room(bytes);
        let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
        if let Some(web) = call.and_then(|call| call.web.as_mut()) {
            encode(&mut web.response, &mut room);
        }
        pass(self, room.filled());
        room.clear();
        self.cx.translated = room;
    }
}
