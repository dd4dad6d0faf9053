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
use wire::grpc::{
    GrpcVariant, MessageCounter, Status, convert_content_type, encode_message, is_grpc,
    parse_timeout, web,
};
use wire::head::{Framing, Known, RequestHead};

use crate::exchange::fault::consequence;

/// What is known of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    kind: GrpcVariant,
    /// The client's own bound on the call.
    pub(crate) timeout: Option<Duration>,
    pub(crate) asked: MessageCounter,
    pub(crate) answered: MessageCounter,
    pub(crate) status: Option<u8>,
    pub(crate) web: Option<Translation>,
}

/// A call of gRPC-Web on its way to be one of gRPC, and back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Translation {
    pub(crate) request: web::RequestDecoder,
    pub(crate) response: web::ResponseEncoder,
    /// Content type of the response.
    pub(crate) kind: GrpcVariant,
    /// The response has no body: its trailers are its head.
    pub(crate) is_head_all: bool,
    /// The response is none of gRPC, and passes as it is.
    pub(crate) is_foreign: bool,
}

impl Call {
    /// The call that a request is, if it is one; changes its head to that of gRPC if it is of
    /// gRPC-Web and the listener takes such.
    pub(crate) fn begin(head: &mut RequestHead<'_>, takes_web: bool) -> Option<Self> {
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

    /// What the log and metrics get when it is over.
    pub(crate) fn outcome(&self) -> GrpcCall {
        GrpcCall {
            status: self.status,
            request_messages: self.asked.messages(),
            response_messages: self.answered.messages(),
        }
    }

    /// Looks for the status among fields.
    pub(crate) fn on_status<'v>(&mut self, mut values: impl Iterator<Item = &'v [u8]>) {
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
        Some(Cause::PendingOverflow | Cause::RequestsOverflow | Cause::ConcurrencyLimited) => {
            Status::ResourceExhausted
        }
        Some(cause) => consequence(cause).status.map_or(Status::Unknown, Status::from_http),
        None => Status::from_http(http),
    }
}
