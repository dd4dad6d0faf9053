//! What passes between a codec and those that use it.

use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::h1::{BodyError, ConnectionField, HeadError, HeadErrorKind, HeadLimits};
use wire::h2::{ErrorCode, MessageError, StreamError};
use wire::head::{Framing, RequestHead, ResponseHead, Version};
use wire::rpc::RpcError;

use crate::connection::codec::http1::RESPONSE_HEAD;
use crate::tools::buffers::Buffers;
use crate::tools::detail::Detail;
use crate::tools::outbox::Outbox;

/// A body of up to so many bytes gets room behind its head in the head's buffer.
pub(crate) const TOGETHER_BYTES_MAX: usize = 16 << 10;

/// What a codec read of one exchange's message.
#[derive(Debug)]
pub(crate) enum Element<'b> {
    /// A request, with which an exchange begins.
    Request {
        head: RequestHead<'b>,
        /// Whether nothing follows.
        is_end: bool,
    },
    /// An interim response (1xx).
    Interim { head: ResponseHead<'b> },
    /// The final response, or the one behind which bytes of another protocol follow.
    Response {
        head: ResponseHead<'b>,
        /// Whether nothing follows.
        is_end: bool,
    },
    /// A piece of a body.
    Data { bytes: &'b [u8], is_end: bool },
    /// The end of a body, with the lines of its trailer section.
    End { trailers: &'b [u8] },
    /// The peer gives the exchange up.
    Reset { code: ErrorCode },
    /// A message breaks a rule, and is not read on. If it is a request's head, an exchange begins with it
    /// all the same, since it is answered.
    Invalid {
        error: Invalid,
        /// The bytes that were read when it was found, if they are at hand.
        input: &'b [u8],
        is_end: bool,
    },
}

impl<'b> Element<'b> {
    /// Of a message that goes on: nothing more is read of it.
    pub(crate) const fn invalid(error: Invalid, input: &'b [u8]) -> Self {
        Self::Invalid { error, input, is_end: false }
    }
}

/// Which rule a message breaks, and which part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Invalid {
    /// Its head, as any version has it.
    Head(HeadError),
    /// The body of HTTP/1.
    Body(BodyError),
    /// A message of HTTP/2, of which the codec resets the stream behind the answer.
    Message(MessageError),
    /// A stream of HTTP/2, which the codec has reset.
    Stream(StreamError),
    /// A message of an RPC protocol, of which nothing more is read.
    Rpc(RpcError),
}

impl Invalid {
    /// Which rule it is, and where in `input` it is broken.
    pub(crate) fn detail(&self, input: &[u8]) -> Detail {
        match self {
            Self::Head(error) => Detail::of_head(*error, input),
            Self::Body(error) => Detail::of_body(*error, input),
            Self::Message(error) => Detail::of(error),
            Self::Stream(error) => Detail::of(error),
            Self::Rpc(error) => Detail::of(error),
        }
    }

    /// The bound that the head of a response goes beyond, if that is its rule: it is no option.
    pub(crate) fn detail_of_response(&self, input: &[u8]) -> Detail {
        let HeadLimits { head_bytes_max, fields_max, .. } = RESPONSE_HEAD;
        match self {
            Self::Head(error @ HeadError::HeadTooLarge) => {
                Detail::of(&format_args!("{error}: more than {head_bytes_max} bytes"))
            }
            Self::Head(error @ HeadError::FieldsTooMany) => {
                Detail::of(&format_args!("{error}: more than {fields_max}"))
            }
            _ => self.detail(input),
        }
    }

    /// What a request is called whose head breaks this rule.
    pub(crate) fn cause_of_head(&self) -> Cause {
        match self {
            Self::Head(error) => cause_of_request_head(error.kind()),
            Self::Message(error) => cause_of_malformed(*error),
            Self::Rpc(error) => cause_of_call(*error),
            Self::Body(_) | Self::Stream(_) => Cause::RequestInvalid,
        }
    }

    /// What a request is called that breaks a rule behind its head.
    pub(crate) const fn cause_of_request(&self) -> Cause {
        match self {
            Self::Stream(_) => Cause::RequestInvalid,
            Self::Rpc(error) => cause_of_call(*error),
            Self::Head(_) | Self::Body(_) | Self::Message(_) => Cause::RequestBodyInvalid,
        }
    }

    /// What a response is called that breaks this rule.
    pub(crate) fn cause_of_response(&self) -> Cause {
        match self {
            Self::Head(error) => match error.kind() {
                HeadErrorKind::LineTooLong | HeadErrorKind::TooLarge => Cause::ResponseHeadTooLarge,
                HeadErrorKind::Syntax
                | HeadErrorKind::Framing
                | HeadErrorKind::Host
                | HeadErrorKind::Target
                | HeadErrorKind::NotImplemented
                | HeadErrorKind::Version => Cause::ResponseInvalid,
            },
            Self::Stream(StreamError::HeadTooLarge) | Self::Rpc(RpcError::HeadTooLarge) => {
                Cause::ResponseHeadTooLarge
            }
            Self::Rpc(RpcError::BodyTooLarge) => Cause::ResponseBodyTooLarge,
            Self::Body(_) | Self::Message(_) | Self::Stream(_) | Self::Rpc(_) => {
                Cause::ResponseInvalid
            }
        }
    }
}

const fn cause_of_request_head(kind: HeadErrorKind) -> Cause {
    match kind {
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

/// What a call of RPC that cannot be taken is called.
const fn cause_of_call(error: RpcError) -> Cause {
    match error {
        RpcError::BodyTooLarge => Cause::RequestBodyTooLarge,
        RpcError::HeadTooLarge => Cause::RequestHeadTooLarge,
        RpcError::GoingAway => Cause::DrainTimeout,
        RpcError::RequestsTooMany => Cause::ClientExchangesOverflow,
        RpcError::Malformed(_) | RpcError::Unexpected => Cause::RequestInvalid,
    }
}

/// What a head of HTTP/2 that breaks a rule is called, in the words of HTTP/1.
const fn cause_of_malformed(error: MessageError) -> Cause {
    match error {
        MessageError::AuthorityInvalid | MessageError::HostRepeated => Cause::RequestHostInvalid,
        MessageError::PathInvalid => Cause::RequestTargetInvalid,
        MessageError::ContentLengthInvalid
        | MessageError::ContentLengthWrong
        | MessageError::TeInvalid => Cause::RequestFramingInvalid,
        MessageError::ConnectionField
        | MessageError::DataMisplaced
        | MessageError::EndMissing
        | MessageError::FieldNameInvalid
        | MessageError::FieldValueInvalid
        | MessageError::MethodInvalid
        | MessageError::PseudoFieldMisplaced
        | MessageError::PseudoFieldMissing
        | MessageError::PseudoFieldRepeated
        | MessageError::PseudoFieldUnknown
        | MessageError::SchemeInvalid
        | MessageError::StatusInvalid
        | MessageError::TrailerForbidden => Cause::RequestInvalid,
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
