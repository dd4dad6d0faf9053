//! RPC protocols whose messages are frames with a number: what the proxy asks of each.
//!
//! ```text
//!  ┌────────────── head ───────────────┬── body ──┐
//!  │ kind, number, lengths │ fields    │          │
//!  └───────────────────────┴───────────┴──────────┘
//! ```
//!
//! A protocol is a value without state, in a table of the program: it reads the head of a frame, and writes
//! one. What a connection remembers (the calls under way, the frame that is being read) is the proxy's, the
//! same for each protocol, and so are routes, retries, timeouts, logs and saving. A body is passed on as it
//! is, and is never shown to a protocol. docs/new-protocol.md adds one step by step.

pub mod bolt;
mod builder;
mod error;
mod name;
mod parked;

use std::fmt;

pub use builder::{Call, HeadBuilder};
pub use error::RpcError;
pub use name::RpcName;
pub use parked::{is_parked, park, parked_len, unpark_request, unpark_response};

use crate::buffer::Buffer;
use crate::head::{Head, RequestHead, ResponseHead};

/// An RPC protocol. No method keeps anything between two calls.
pub trait RpcProtocol: fmt::Debug + Send + Sync {
    /// What the configuration, logs and metrics call it: 1 to 15 lower-case letters and digits.
    fn name(&self) -> &'static str;

    /// Reads what a frame begins with, or `None` if more bytes are needed. It asks for more of those
    /// bytes only that tell the kind, the number and the lengths.
    ///
    /// # Errors
    ///
    /// If the bytes begin no frame: where the next one begins cannot be known, so the connection ends.
    fn frame(&self, input: &[u8]) -> Result<Option<Frame>, RpcError>;

    /// Whether a client of this protocol may begin with `input`, for listeners that detect it; `None` if
    /// more bytes are needed. With more bytes, an answer does not change. It is what
    /// [`RpcProtocol::frame`] says, unless a protocol can be known by less or has to be by more.
    fn begins(&self, input: &[u8]) -> Option<bool> {
        match self.frame(input) {
            Ok(frame) => frame.map(|frame| frame.kind.is_of_client()),
            Err(_) => Some(false),
        }
    }

    /// Reads the head of a request, whose [`Frame::head_len`] bytes `head` has.
    ///
    /// # Errors
    ///
    /// If the head breaks a rule. The request is answered, and the connection goes on.
    fn decode_request<'b>(
        &self,
        frame: &Frame,
        head: HeadBuilder<'b>,
    ) -> Result<RequestHead<'b>, RpcError>;

    /// Reads the head of a response, as [`RpcProtocol::decode_request`] does that of a request.
    ///
    /// # Errors
    ///
    /// If the head breaks a rule. The response is not passed on, and the connection goes on.
    fn decode_response<'b>(
        &self,
        frame: &Frame,
        head: HeadBuilder<'b>,
    ) -> Result<ResponseHead<'b>, RpcError>;

    /// Writes the head of a request with a body of `body_len` bytes, and any number: before it is sent,
    /// [`RpcProtocol::set_id`] changes that. It may write [`head_len_max`] bytes.
    ///
    /// # Errors
    ///
    /// If the protocol has no room for so long a field, or so many.
    fn encode_request(
        &self,
        head: &RequestHead<'_>,
        body_len: u64,
        out: &mut Buffer,
    ) -> Result<(), RpcError>;

    /// Changes the number in the head of a request that [`RpcProtocol::encode_request`] wrote.
    fn set_id(&self, head: &mut [u8], id: u64);

    /// Writes the head of a response with a body of `body_len` bytes. It may write [`head_len_max`] bytes.
    ///
    /// # Errors
    ///
    /// As those of [`RpcProtocol::encode_request`].
    fn encode_response(
        &self,
        asked: Asked,
        head: &ResponseHead<'_>,
        body_len: u64,
        out: &mut Buffer,
    ) -> Result<(), RpcError>;

    /// Writes a whole response of the proxy's own. It may write [`REPLY_BYTES_MAX`] bytes.
    fn encode_reply(&self, asked: Asked, reply: &Reply<'_>, out: &mut Buffer);

    /// Bytes at the end of a body that are a checksum over all of its frame, of one with this encoded head.
    fn checksum_len(&self, _head: &[u8]) -> usize {
        0
    }

    /// Changes the checksum of a frame that came with the form `form`, and goes on with this encoded head.
    /// `content_len` is the length of its body without the checksum. What was damaged before must not
    /// become whole by that.
    fn amend_checksum(&self, _form: u64, _head: &[u8], _content_len: u64, _checksum: &mut [u8]) {}

    /// Answers a heartbeat. It may write [`CONTROL_BYTES_MAX`] bytes.
    fn encode_heartbeat_answer(&self, asked: Asked, out: &mut Buffer);
}

/// Bytes of a whole reply at most.
pub const REPLY_BYTES_MAX: usize = 1 << 10;

/// Bytes of a [`Reply::reason`] at most.
pub const REASON_BYTES_MAX: usize = 256;

/// Bytes of a checksum at most.
pub const CHECKSUM_BYTES_MAX: usize = 8;

/// Bytes of a frame about the connection at most.
pub const CONTROL_BYTES_MAX: usize = 128;

/// The encoding of a head takes at most so many bytes: 12 beside each field, and 1 KiB.
#[must_use]
pub fn head_len_max<K>(head: &Head<'_, K>) -> usize {
    const OWN_BYTES_MAX: usize = 1 << 10;
    let fields: usize = head.iter().map(|(name, value)| name.len() + value.len() + 12).sum();
    head.block().len() + fields + OWN_BYTES_MAX
}

/// What a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// What an answer to it has to agree with.
    pub asked: Asked,
    /// Bytes up to its body, these included. At least one.
    pub head_len: usize,
    /// Bytes of its body.
    pub body_len: u64,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A request, whose answer has its number.
    Request,
    /// A request without an answer.
    OneWay,
    /// The answer to a request.
    Response,
    /// It asks whether the connection is alive, and has no body.
    Heartbeat,
    /// The answer to that. It has no body.
    HeartbeatAnswer,
    /// The sender takes no further requests. It has no body.
    GoAway,
}

impl FrameKind {
    /// Whether a client may begin its connection with such a frame.
    const fn is_of_client(self) -> bool {
        match self {
            Self::Request | Self::OneWay | Self::Heartbeat => true,
            Self::Response | Self::HeartbeatAnswer | Self::GoAway => false,
        }
    }
}

/// What the answer to a frame has to agree with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Asked {
    /// The number of the frame.
    pub id: u64,
    /// What else a protocol wants to know of it: a version, a serialization.
    pub form: u64,
}

/// A response of the proxy's own.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'r> {
    /// What it is as a status of HTTP (RFC 9110, section 15), from which a protocol takes its own.
    pub status: u16,
    /// Why, in words: [`REASON_BYTES_MAX`] bytes of UTF-8 at most.
    pub reason: &'r str,
}
