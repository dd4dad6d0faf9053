//! Hop 4: what a connection speaks, and what follows from it.
//!
//! ```text
//! downstream   Opening ─► Http1 ─► Bytes        (an upgrade, a CONNECT, a relayed connection)
//!                 ├─────► Http2                 (ALPN, its preface, `Upgrade: h2c`)
//!                 └─────► Bytes                 (relayed)
//! upstream     Http1, Http2 or Bytes, as its cluster says
//! ```
//!
//! Everything an exchange says goes to a [`StreamKey`](crate::keys::StreamKey), whose slot the
//! codec of the connection knows; nothing above this module has to know which protocol that is.
//! A protocol is a variant of [`Codec`], and a file that has its methods.

pub(crate) mod bytes;
pub(crate) mod elements;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod multiplex;
pub(crate) mod rpc;
pub(crate) mod streams;
pub(crate) mod watches;

use wire::h1::{ConnectionField, Parsing};
use wire::head::ResponseHead;

use crate::connection::codec::bytes::Bytes;
use crate::connection::codec::elements::{Answer, Element, Output, ReadEnd, WholeReply};
use crate::connection::codec::http1::Http1;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::codec::streams::Tail;
use crate::keys::Slot;

/// What a connection speaks, and where it stands in that.
// With a tag of its own, since every look at a connection asks for it: taken out of what the variants
// do not use, it costs 1 % of an exchange's instructions.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum Codec {
    /// What comes before a protocol is known.
    Opening(Opening),
    /// HTTP/1: one exchange after the other.
    Http1(Http1),
    /// HTTP/2 or an RPC protocol: exchanges beside each other.
    Shared(Box<Multiplex>),
    /// Bytes of a protocol that is not read here, as one exchange.
    Bytes(Bytes),
}

/// What comes before a protocol is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Opening {
    /// The PROXY protocol header comes first.
    ProxyHeader,
    /// The handshake of TLS.
    Handshake,
    /// The first bytes tell what follows.
    Detect,
    /// They begin a ClientHello, which is not there whole and names what the connection is to meet.
    Hello,
}

/// What is said to the peer. A slot that is gone takes nothing, and a connection of bytes no heads: it has
/// none to send, unless another process wrote down something wrong.
impl Codec {
    /// Begins a response, whose body comes next.
    #[inline]
    pub(crate) fn send_response(
        &mut self,
        slot: Slot,
        answer: &Answer<'_, '_>,
        out: &mut Output<'_>,
    ) {
        match self {
            Self::Http1(codec) => codec.send_response(answer, out),
            Self::Shared(codec) => codec.send_response(slot, answer, out),
            Self::Opening(_) | Self::Bytes(_) => {}
        }
    }

    /// Sends an interim response.
    pub(crate) fn send_interim(
        &mut self,
        slot: Slot,
        head: &ResponseHead<'_>,
        out: &mut Output<'_>,
    ) {
        match self {
            Self::Http1(_) => http1::send_interim(head, ConnectionField::Default, out),
            Self::Shared(codec) => codec.send_interim(slot, head, out),
            Self::Opening(_) | Self::Bytes(_) => {}
        }
    }

    /// Says that bytes of another protocol follow, as the head names it.
    pub(crate) fn send_switching(
        &mut self,
        slot: Slot,
        head: &ResponseHead<'_>,
        out: &mut Output<'_>,
    ) {
        match self {
            Self::Http1(_) => http1::send_interim(head, ConnectionField::Upgrade, out),
            Self::Shared(codec) => codec.send_interim(slot, head, out),
            Self::Opening(_) | Self::Bytes(_) => {}
        }
    }

    /// Sends a head without fields: 100 gives leave to send the body, 200 says that a tunnel stands.
    pub(crate) fn send_status(&mut self, slot: Slot, status: u16, out: &mut Output<'_>) {
        match self {
            Self::Http1(_) => http1::send_status(status, out),
            Self::Shared(codec) => codec.send_status(slot, status, out),
            Self::Opening(_) | Self::Bytes(_) => {}
        }
    }

    /// Sends a whole reply. Says whether all of it, its end included, left the codec at once, so that no
    /// later event reports its end.
    pub(crate) fn send_reply(
        &mut self,
        slot: Slot,
        reply: &WholeReply<'_>,
        out: &mut Output<'_>,
    ) -> bool {
        match self {
            Self::Http1(codec) => codec.send_reply(reply, out),
            Self::Shared(codec) => codec.send_reply(slot, reply, out),
            Self::Opening(_) | Self::Bytes(_) => true,
        }
    }

    /// Queues a piece of a body, in the framing that its head announced. Gives how many bytes wait in this
    /// slot, as [`Codec::queued`] does.
    #[inline]
    pub(crate) fn send_data(
        &mut self,
        slot: Slot,
        data: &[u8],
        out: &mut Output<'_>,
    ) -> Option<usize> {
        match self {
            Self::Http1(codec) => codec.send_data(data, out),
            Self::Shared(codec) => return Some(codec.send_data(slot, data, out)),
            Self::Bytes(codec) => codec.send_data(data, out),
            Self::Opening(_) => {}
        }
        None
    }

    /// Queues the end of a body, with its trailer section if it has one. Says whether the end was queued
    /// before, so that nothing is to do.
    #[inline]
    pub(crate) fn send_end(&mut self, slot: Slot, trailers: &[u8], out: &mut Output<'_>) -> bool {
        match self {
            Self::Http1(codec) => codec.send_end(trailers, out),
            Self::Shared(codec) => return codec.send_end(slot, trailers),
            Self::Bytes(codec) => codec.send_end(),
            Self::Opening(_) => {}
        }
        false
    }

    /// Bytes of a body that wait in this slot, or none if they wait in the connection's own queue.
    #[inline]
    pub(crate) fn queued(&self, slot: Slot) -> Option<usize> {
        match self {
            Self::Shared(codec) => Some(codec.queued(slot)),
            Self::Opening(_) | Self::Http1(_) | Self::Bytes(_) => None,
        }
    }

    /// Whether a body that was queued to its end has an end that was not sent.
    pub(crate) fn has_open_end(&self, slot: Slot) -> bool {
        let stream = self.multiplex().and_then(|multiplex| multiplex.streams.get(slot));
        stream.is_some_and(|stream| stream.tail != Tail::Open && !stream.is_ended)
    }

    /// Whether what is sent ends with the connection, and is queued to its end: our side is shut once the
    /// queue is empty.
    #[inline]
    pub(crate) const fn is_ending(&self) -> bool {
        match self {
            Self::Http1(codec) => matches!(codec.send, http1::Send::Ending),
            Self::Bytes(codec) => codec.is_ending(),
            Self::Opening(_) | Self::Shared(_) => false,
        }
    }

    /// Whether what is sent ends with the connection, and its end was not queued.
    pub(crate) fn is_open_ended(&self) -> bool {
        match self {
            Self::Http1(codec) => codec.is_open_ended(),
            Self::Bytes(codec) => codec.takes_data(),
            Self::Opening(_) | Self::Shared(_) => false,
        }
    }

    /// Whether data goes to the socket as it comes, without any framing.
    pub(crate) fn is_transparent(&self) -> bool {
        match self {
            Self::Http1(codec) => codec.is_transparent(),
            Self::Bytes(codec) => codec.takes_data(),
            Self::Opening(_) | Self::Shared(_) => false,
        }
    }

    /// Whether no message is being sent on a connection that carries one at a time.
    pub(crate) const fn is_between_sends(&self) -> bool {
        matches!(self, Self::Http1(Http1 { send: http1::Send::Idle, .. }))
    }

    /// So many bytes of a body went to the socket beside the queue.
    pub(crate) fn on_passed_through(&mut self, n: usize) {
        if let Self::Http1(codec) = self {
            codec.on_passed_through(n);
        }
    }
}

/// What the peer says.
impl Codec {
    /// Bytes that may be passed on without a look at them.
    pub(crate) const fn passthrough_max(&self) -> u64 {
        match self {
            Self::Http1(codec) => codec.passthrough_max(),
            Self::Bytes(codec) if !codec.is_read_complete => u64::MAX,
            Self::Bytes(_) | Self::Opening(_) | Self::Shared(_) => 0,
        }
    }

    /// So many bytes were passed on without a look at them.
    pub(crate) const fn on_passed(&mut self, n: u64) {
        if let Self::Http1(codec) = self {
            codec.on_passed(n);
        }
    }

    /// Whether the end of what is read is the end of the connection.
    pub(crate) const fn reads_to_end(&self) -> bool {
        match self {
            Self::Http1(codec) => codec.reads_to_end(),
            Self::Bytes(codec) => !codec.is_read_complete,
            Self::Opening(_) | Self::Shared(_) => false,
        }
    }

    /// Whether the next that comes is a head.
    #[inline]
    pub(crate) const fn awaits_head(&self) -> bool {
        matches!(self, Self::Http1(Http1 { receive: http1::Receive::Head(_), .. }))
    }

    /// Whether the head of a message has begun, and is not there whole. Of streams it is handed out whole.
    pub(crate) const fn is_amid_head(&self) -> bool {
        match self {
            Self::Http1(codec) => codec.is_amid_head(),
            Self::Opening(_) | Self::Shared(_) | Self::Bytes(_) => false,
        }
    }

    /// Between messages of HTTP/1: a head comes next.
    #[inline]
    pub(crate) fn await_head(&mut self) {
        match self {
            Self::Http1(codec) => *codec = Http1::new(),
            Self::Opening(_) | Self::Shared(_) | Self::Bytes(_) => {
                *self = Self::Http1(Http1::new());
            }
        }
    }

    /// Reads on in the body of the message that comes, or in the bytes of a tunnel. Without an element,
    /// more bytes are needed.
    #[inline]
    pub(crate) fn decode_body<'b>(
        &mut self,
        input: &'b [u8],
        parsing: Parsing,
    ) -> (usize, Option<Element<'b>>) {
        match self {
            Self::Http1(codec) => codec.decode_body(input, parsing),
            Self::Bytes(codec) => codec.decode(input),
            Self::Opening(_) | Self::Shared(_) => (0, None),
        }
    }

    /// Whether the body that is being read is in the chunked coding.
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self, Self::Http1(Http1 { receive: http1::Receive::Body(body), .. }) if body.is_chunked())
    }

    /// Whether the body of a message has begun, and its end was not seen.
    pub(crate) const fn is_amid_body(&self) -> bool {
        match self {
            Self::Http1(codec) => matches!(codec.receive, http1::Receive::Body(_)),
            Self::Bytes(codec) => !codec.is_read_complete,
            Self::Opening(_) | Self::Shared(_) => false,
        }
    }

    /// The peer sends nothing more.
    pub(crate) fn on_eof(&mut self) -> ReadEnd {
        match self {
            Self::Http1(codec) => codec.on_eof(),
            Self::Bytes(codec) if !codec.is_read_complete => ReadEnd::OfMessage,
            Self::Bytes(_) | Self::Opening(_) => ReadEnd::Between,
            Self::Shared(_) => ReadEnd::OfStreams,
        }
    }

    /// The message that comes is complete; what follows it waits for the end of the exchange.
    pub(crate) fn complete_read(&mut self) {
        match self {
            Self::Http1(codec) => codec.receive = http1::Receive::Complete,
            Self::Bytes(codec) => codec.is_read_complete = true,
            Self::Opening(_) | Self::Shared(_) => {}
        }
    }

    /// Whether the message that came is complete.
    pub(crate) const fn is_read_complete(&self) -> bool {
        match self {
            Self::Http1(codec) => matches!(codec.receive, http1::Receive::Complete),
            Self::Bytes(codec) => codec.is_read_complete,
            Self::Opening(_) | Self::Shared(_) => false,
        }
    }
}

/// Which it is.
impl Codec {
    pub(crate) const fn opening(&self) -> Option<Opening> {
        match self {
            Self::Opening(opening) => Some(*opening),
            Self::Http1(_) | Self::Shared(_) | Self::Bytes(_) => None,
        }
    }

    pub(crate) const fn http1(&self) -> Option<&Http1> {
        match self {
            Self::Http1(codec) => Some(codec),
            Self::Opening(_) | Self::Shared(_) | Self::Bytes(_) => None,
        }
    }

    pub(crate) const fn http1_mut(&mut self) -> Option<&mut Http1> {
        match self {
            Self::Http1(codec) => Some(codec),
            Self::Opening(_) | Self::Shared(_) | Self::Bytes(_) => None,
        }
    }

    #[inline]
    pub(crate) fn multiplex(&self) -> Option<&Multiplex> {
        match self {
            Self::Shared(codec) => Some(codec),
            Self::Opening(_) | Self::Http1(_) | Self::Bytes(_) => None,
        }
    }

    #[inline]
    pub(crate) fn multiplex_mut(&mut self) -> Option<&mut Multiplex> {
        match self {
            Self::Shared(codec) => Some(codec),
            Self::Opening(_) | Self::Http1(_) | Self::Bytes(_) => None,
        }
    }
}
