//! What passes between a codec and those that use it.

use wire::buffer::Buffer;
use wire::h1::ConnectionField;
use wire::head::{Framing, ResponseHead, Version};

use crate::tools::buffers::Buffers;
use crate::tools::outbox::Outbox;

/// A body of up to so many bytes gets room behind its head in the head's buffer.
pub(crate) const TOGETHER_BYTES_MAX: usize = 16 << 10;

/// Names an exchange on a connection. The codec of that connection chooses it, and nothing else reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Slot(pub(super) u32);

impl Slot {
    /// The one exchange of a connection that carries one at a time.
    pub(crate) const ONLY: Self = Self(0);

    /// Of a stream of HTTP/2: its number, which is never 0 and never used again.
    pub(crate) const fn of_stream(id: u32) -> Self {
        Self(id)
    }
}

/// Where the bytes that a codec writes go.
pub(crate) struct Output<'o> {
    pub(crate) outbox: &'o mut Outbox,
    pub(crate) buffers: &'o mut Buffers,
}

impl Output<'_> {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.outbox.push(bytes, self.buffers);
    }

    pub(super) fn push_with(&mut self, bytes_max: usize, write: impl FnOnce(&mut Buffer)) {
        self.outbox.push_with(bytes_max, self.buffers, write);
    }
}

/// A response's head, and how it is sent on.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'h, 'b> {
    pub(crate) head: &'h ResponseHead<'b>,
    /// The version that the client speaks.
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    pub(crate) field: ConnectionField,
    /// Bytes of the body that will follow at once.
    pub(crate) behind: usize,
    /// Whether nothing follows.
    pub(crate) is_end: bool,
}

/// A reply that is there whole.
#[derive(Clone, Copy)]
pub(crate) struct WholeReply<'r> {
    pub(crate) status: u16,
    pub(crate) fields: &'r [(&'r [u8], &'r [u8])],
    /// The length that its head announces, if it announces one.
    pub(crate) length: Option<u64>,
    pub(crate) body: &'r [u8],
    pub(crate) field: ConnectionField,
}

/// What the end of what the peer sends is to its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// None has begun, or it is complete.
    Between,
    /// The message ends with it.
    OfMessage,
    /// The message lacks its rest.
    AmidMessage,
    /// All streams end with it.
    OfStreams,
}
