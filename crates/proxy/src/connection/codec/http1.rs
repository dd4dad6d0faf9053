//! A connection of HTTP/1 as the proxy has it: where it stands in the message that comes, and in the one
//! that goes. Both messages are of one exchange.
//!
//! ```text
//! downstream   Head ─► Body ─► Complete ─► Head …    (kept alive)
//!                        └──► Discard ─► Head …      (answered early)
//! upstream     Head ─► Body ─► Head …                (kept alive)
//! ```

use serde::{Deserialize, Serialize};
use wire::h1;
use wire::h1::{
    BodyDecoder, BodyElement, BodyEncoder, BodyLimits, ConnectionField, HeadLimits, Parsing, Scan,
    encode_reply, encode_response,
};
use wire::head::{Framing, HeadIndex, Method, ResponseHead, Version};
use wire::path::Slashes;

use crate::connection::codec::elements::{
    Answer, Element, Invalid, Output, ReadEnd, TOGETHER_BYTES_MAX, WholeReply,
};

/// Bounds on what the chunked coding may add to a body.
const BODY_LIMITS: BodyLimits = BodyLimits {
    chunk_line_bytes_max: 256,
    trailers_bytes_max: 8 << 10,
    fields_max: 100,
    parsing: Parsing::Strict,
};

/// Bounds on a response head. They are not an option: a service that needs more is broken.
pub(crate) const RESPONSE_HEAD: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 60 << 10,
    fields_max: 200,
    slashes: Slashes::Keep,
};

/// What a response answers, as far as its reading depends on that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) method: Method,
    /// How strictly the response is read.
    pub(crate) parsing: Parsing,
    /// Whether an interim response came before it.
    pub(crate) is_after_interim: bool,
}

/// A connection of HTTP/1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Http1 {
    pub(crate) receive: Receive,
    pub(crate) send: Send,
}

/// Where the message that comes stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Receive {
    /// A head, looked through this far.
    Head(Scan),
    Body(BodyDecoder),
    /// The message is complete; what follows waits for the exchange to end.
    Complete,
    /// A body that its exchange does not want, with the bytes of it that are read at most.
    Discard {
        body: BodyDecoder,
        left: u64,
    },
}

/// Where the message that goes stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Send {
    /// Between messages.
    Idle,
    /// A head was sent; its body follows.
    Body(BodyEncoder),
    /// The body ended, and ends with the connection: our side is shut once the outbox is empty.
    Ending,
}

/// What came of reading a body that its exchange does not want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    NeedMore,
    Some,
    Complete,
    /// It is longer than what is read of such a body, or its end cannot be found.
    TooMuch,
}

impl Http1 {
    /// Between messages: a head comes next.
    pub(crate) fn new() -> Self {
        Self { receive: Receive::Head(Scan::default()), send: Send::Idle }
    }

    /// A head comes next, and what is sent stands here.
    pub(crate) fn sending(send: Send) -> Self {
        Self { receive: Receive::Head(Scan::default()), send }
    }

    /// Reads on in a request's head: how many bytes are done with, and what they are. Without an element,
    /// more are needed.
    #[inline]
    pub(crate) fn decode_request<'b>(
        &mut self,
        input: &'b [u8],
        limits: &HeadLimits,
        index: &'b mut HeadIndex,
    ) -> (usize, Option<Element<'b>>) {
        let Receive::Head(scan) = &mut self.receive else { return (0, None) };
        match h1::decode_request(input, scan, limits, index) {
            Ok(None) => (0, None),
            Ok(Some((head, n))) => {
                let body = BodyDecoder::new(head.framing());
                let is_end = body.is_complete();
                self.receive = if is_end { Receive::Complete } else { Receive::Body(body) };
                (n, Some(Element::Request { head, is_end }))
            }
            Err(error) => (input.len(), Some(Element::invalid(Invalid::Head(error), input))),
        }
    }

    /// Reads on in a response's head, as in a request's.
    #[inline]
    pub(crate) fn decode_response<'b>(
        &mut self,
        input: &'b [u8],
        to: Answered,
        index: &'b mut HeadIndex,
    ) -> (usize, Option<Element<'b>>) {
        let Receive::Head(scan) = &mut self.receive else { return (0, None) };
        let how = (to.parsing, to.is_after_interim);
        match h1::decode_response_as(input, scan, &RESPONSE_HEAD, index, to.method, how) {
            Ok(None) => (0, None),
            Ok(Some((head, n))) if is_interim(head.status()) => {
                self.receive = Receive::Head(Scan::default());
                (n, Some(Element::Interim { head }))
            }
            Ok(Some((head, n))) => {
                let body = BodyDecoder::new(head.framing());
                let is_end = body.is_complete();
                self.receive = Receive::Body(body);
                (n, Some(Element::Response { head, is_end }))
            }
            Err(error) => (input.len(), Some(Element::invalid(Invalid::Head(error), input))),
        }
    }

    /// Reads on in a body, as in a head.
    #[inline]
    pub(super) fn decode_body<'b>(
        &mut self,
        input: &'b [u8],
        parsing: Parsing,
    ) -> (usize, Option<Element<'b>>) {
        let Receive::Body(body) = &mut self.receive else { return (0, None) };
        match body.decode(input, &BodyLimits { parsing, ..BODY_LIMITS }) {
            Ok((n, BodyElement::NeedMore)) => (n, None),
            Ok((n, BodyElement::Data(bytes))) => {
                (n, Some(Element::Data { bytes, is_end: body.is_complete() }))
            }
            Ok((n, BodyElement::End)) => (n, Some(Element::End { trailers: &[] })),
            Ok((n, BodyElement::Trailers(trailers))) => (n, Some(Element::End { trailers })),
            Err(error) => (input.len(), Some(Element::invalid(Invalid::Body(error), input))),
        }
    }

    /// Reads on in a body that its exchange does not want: how many bytes are done with, and whether the
    /// next request is to come.
    pub(crate) fn discard(&mut self, input: &[u8]) -> (usize, Discarded) {
        let Receive::Discard { body, left } = &mut self.receive else {
            return (0, Discarded::NeedMore);
        };
        let (n, is_complete) = match body.decode(input, &BODY_LIMITS) {
            Ok((n, BodyElement::NeedMore)) if n < input.len() => return (n, Discarded::NeedMore),
            Ok((n, BodyElement::NeedMore)) => (n, false),
            Ok((n, BodyElement::Data(_))) => (n, body.is_complete()),
            Ok((n, BodyElement::End | BodyElement::Trailers(_))) => (n, true),
            Err(_) => return (input.len(), Discarded::TooMuch),
        };
        *left = left.saturating_sub(n as u64);
        let is_over = *left == 0;
        if is_complete {
            self.receive = Receive::Complete;
            return (n, Discarded::Complete);
        }
        (n, if is_over { Discarded::TooMuch } else { Discarded::Some })
    }

    pub(super) fn send_response(&mut self, answer: &Answer<'_, '_>, out: &mut Output<'_>) {
        let Answer { head, version, framing, field, behind, .. } = *answer;
        let room = if behind <= TOGETHER_BYTES_MAX { behind } else { 0 };
        // Room for what came with it too, so that a usual response is one buffer and one send.
        out.push_with(head.encoded_len_max() + room, |buffer| {
            encode_response(head, version, framing, field, buffer);
        });
        self.send = Send::Body(BodyEncoder::new(framing));
    }

    pub(super) fn send_reply(&mut self, reply: &WholeReply<'_>, out: &mut Output<'_>) -> bool {
        let WholeReply { status, fields, length, body, field } = *reply;
        out.push_with(h1::reply_len_max(fields), |buffer| {
            encode_reply(status, fields, length, field, buffer);
        });
        out.push(body);
        self.send = Send::Idle;
        false
    }

    #[inline]
    pub(super) fn send_data(&mut self, data: &[u8], out: &mut Output<'_>) {
        if let Send::Body(encoder) = &mut self.send {
            let is_transparent = encoder.is_transparent();
            let Ok(framed) = encoder.begin(data.len()) else { return self.break_off() };
            if is_transparent {
                return out.push(data);
            }
            out.push(framed.prefix());
            out.push(data);
            out.push(framed.suffix());
        }
    }

    #[inline]
    pub(super) fn send_end(&mut self, trailers: &[u8], out: &mut Output<'_>) {
        if let Send::Body(encoder) = &mut self.send {
            let ends_with_close = encoder.ends_with_connection();
            let Ok(tail) = encoder.end() else { return self.break_off() };
            out.push(tail.before_trailers());
            if tail.takes_trailers() {
                out.push(trailers);
            }
            out.push(tail.after_trailers());
            self.send = if ends_with_close { Send::Ending } else { Send::Idle };
        }
    }

    /// The body is not as long as its head announced. Both sides of an exchange have the same framing, so that
    /// the decoder of the other side keeps to it; what another process wrote down may be damaged.
    #[cold]
    fn break_off(&mut self) {
        self.send = Send::Ending;
    }

    pub(super) fn is_open_ended(&self) -> bool {
        matches!(&self.send, Send::Body(encoder) if encoder.ends_with_connection())
    }

    pub(super) fn is_transparent(&self) -> bool {
        matches!(&self.send, Send::Body(encoder) if encoder.is_transparent())
    }

    pub(super) fn on_passed_through(&mut self, n: usize) {
        if let Send::Body(encoder) = &mut self.send
            && encoder.begin(n).is_err()
        {
            self.break_off();
        }
    }

    pub(super) const fn passthrough_max(&self) -> u64 {
        match &self.receive {
            Receive::Body(body) => body.passthrough_max(),
            Receive::Head(_) | Receive::Complete | Receive::Discard { .. } => 0,
        }
    }

    pub(super) const fn on_passed(&mut self, n: u64) {
        if let Receive::Body(body) = &mut self.receive {
            body.on_passed(n);
        }
    }

    /// Whether a head has begun, and is not there whole.
    pub(super) const fn is_amid_head(&self) -> bool {
        matches!(&self.receive, Receive::Head(scan) if scan.has_begun())
    }

    pub(super) fn on_eof(&mut self) -> ReadEnd {
        match &mut self.receive {
            Receive::Body(body) => match body.on_eof() {
                Ok(()) => ReadEnd::OfMessage,
                Err(_) => ReadEnd::AmidMessage,
            },
            Receive::Head(_) | Receive::Complete | Receive::Discard { .. } => ReadEnd::Between,
        }
    }

    pub(super) const fn reads_to_end(&self) -> bool {
        matches!(&self.receive, Receive::Body(body) if body.ends_with_connection())
    }
}

/// Whether another head follows this response's (RFC 9110, section 15.2); behind 101 come bytes of another
/// protocol.
const fn is_interim(status: u16) -> bool {
    matches!(status, 100 | 102..=199)
}

/// Sends a head behind which another follows, of whatever protocol.
pub(super) fn send_interim(head: &ResponseHead<'_>, field: ConnectionField, out: &mut Output<'_>) {
    out.push_with(head.encoded_len_max(), |buffer| {
        encode_response(head, Version::Http11, Framing::None, field, buffer);
    });
}

/// Sends 100, or the 200 of a tunnel, which has no body but what the tunnel carries.
pub(super) fn send_status(status: u16, out: &mut Output<'_>) {
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    const GRANTED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
    debug_assert!(matches!(status, 100 | 200), "{status}");
    out.push(if status == 100 { CONTINUE } else { GRANTED });
}
