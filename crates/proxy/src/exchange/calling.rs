//! Where an exchange becomes a call of gRPC, and what its call learns of heads and trailers.

use std::time::Duration;

use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::grpc::{convert_content_type, encode_timeout};
use wire::head::{Framing, Known, RequestHead, ResponseHead};

use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::calls::Call;
use crate::exchange::exchanges::Exchanges;
use crate::keys::ExchangeKey;

impl Cx {
    /// The room for what is translated, with so many bytes at least.
    pub(crate) fn take_room(&mut self, bytes: usize) -> Buffer {
        let room = std::mem::replace(&mut self.translated, Buffer::new(0));
        if room.capacity() < bytes { Buffer::new(bytes) } else { room }
    }
}

impl Exchange {
    /// Looks whether a request is a call.
    #[inline]
    pub(crate) fn begin_call(&mut self, head: &mut RequestHead<'_>) {
        let takes_web = self.listener().http.grpc_web;
        self.call = Call::begin(head, takes_web).map(Box::new);
    }

    /// The bound on a call that its route and its client allow, where the route sets `timeout`.
    #[inline]
    pub(crate) fn bound_call(
        &self,
        head: &mut RequestHead<'_>,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        let Some(call) = &self.call else { return timeout };
        match (call.timeout, timeout) {
            (Some(asked), Some(allowed)) if allowed < asked => {
                head.set(b"grpc-timeout", encode_timeout(allowed).as_bytes());
                timeout
            }
            (Some(asked), _) => Some(asked),
            (None, _) => timeout,
        }
    }

    /// A response's head, of an exchange that may be a call; says how its body is delimited then.
    #[inline]
    pub(crate) fn on_call_response(
        &mut self,
        head: &mut ResponseHead<'_>,
        is_end: bool,
    ) -> Framing {
        let received = head.framing();
        let Some(call) = self.call.as_deref_mut() else { return received };
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

impl Exchanges {
    /// The end of a call's request body. An error is one of its encoding.
    pub(crate) fn end_call_request(&self, key: ExchangeKey) -> Result<(), Cause> {
        let call = self.get(key).and_then(|exchange| exchange.call.as_deref());
        let web = call.and_then(|call| call.web.as_ref());
        let result = web.map_or(Ok(()), |web| web.request.on_eof());
        result.map_err(|_| Cause::RequestBodyInvalid)
    }
}
