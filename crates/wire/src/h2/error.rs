//! Errors of a peer, and the error code that is sent for each.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::budget::Work;
use super::hpack::HpackError;

/// A code as it stands in RST_STREAM and GOAWAY (RFC 9113, section 7). Any number may come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Nothing is wrong.
    pub const NO_ERROR: Self = Self(0x0);
    /// A rule of the protocol was broken.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// The sender of the code made a mistake.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// More was sent than a window allowed.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame for a half-closed or closed stream.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame of a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was not processed at all; the request may be sent again.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is not needed any more.
    pub const CANCEL: Self = Self(0x8);
    /// The state of the compression is lost.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection behind a CONNECT failed.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// Too much was asked for.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// The request has to be sent over HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// The code's name, if it has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_ERROR => "NO_ERROR",
            Self::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            Self::INTERNAL_ERROR => "INTERNAL_ERROR",
            Self::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Self::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
            Self::STREAM_CLOSED => "STREAM_CLOSED",
            Self::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            Self::REFUSED_STREAM => "REFUSED_STREAM",
            Self::CANCEL => "CANCEL",
            Self::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            Self::CONNECT_ERROR => "CONNECT_ERROR",
            Self::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            Self::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
            Self::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
            _ => return None,
        })
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// Why a connection cannot go on (RFC 9113, section 5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ConnectionError {
    /// The peer keeps asking, and does not read the answers.
    #[error("the peer does not read the replies to its frames")]
    AnswersUndelivered,
    /// A frame other than CONTINUATION within a header block.
    #[error("a frame within a header block")]
    ContinuationExpected,
    /// CONTINUATION without a header block.
    #[error("a CONTINUATION frame without HEADERS")]
    ContinuationUnexpected,
    /// The first frame is not SETTINGS.
    #[error("a first frame that is not SETTINGS")]
    FirstFrameInvalid,
    /// A frame whose length is not that of its type.
    #[error("a frame whose length is not that of its type")]
    FrameSizeInvalid,
    /// A frame longer than was allowed.
    #[error("a frame longer than allowed")]
    FrameTooLarge,
    /// A header block that cannot be decoded.
    #[error("in a header block: {0}")]
    HeaderBlock(#[from] HpackError),
    /// A header block so long that it is not worth decoding.
    #[error("a header block over the limit")]
    HeaderBlockTooLarge,
    /// More padding than payload.
    #[error("more padding than payload")]
    PaddingInvalid,
    /// The bytes at the beginning are not the preface.
    #[error("a preface that is not one of HTTP/2")]
    PrefaceInvalid,
    /// A stream that is not open, and depends on itself.
    #[error("a priority that depends on itself")]
    PriorityOnItself,
    /// PUSH_PROMISE, which SETTINGS refused.
    #[error("a push, although pushes are disabled")]
    PushForbidden,
    /// A setting out of its range.
    #[error("a setting out of range")]
    SettingInvalid,
    /// An initial window that is too large.
    #[error("an initial window that is too large")]
    SettingWindowTooLarge,
    /// A header block or data on a stream that was closed.
    #[error("a frame on a closed stream")]
    StreamClosed,
    /// A number that no stream of the peer's can have now.
    #[error("a stream identifier that is out of place")]
    StreamIdInvalid,
    /// A frame on a stream that was never opened.
    #[error("a frame on an idle stream")]
    StreamIdle,
    /// More work than the budget of the connection allows.
    #[error("too much work: {0}")]
    TooMuchWork(Work),
    /// More data than the connection's window allowed.
    #[error("more data than the window of the connection")]
    WindowExceeded,
    /// An increment of nothing.
    #[error("a window increment of zero")]
    WindowIncrementZero,
    /// The connection's window would be too large.
    #[error("a window that grows too large")]
    WindowOverflow,
}

impl ConnectionError {
    /// The code for the peer.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::ContinuationExpected
            | Self::ContinuationUnexpected
            | Self::FirstFrameInvalid
            | Self::PaddingInvalid
            | Self::PrefaceInvalid
            | Self::PriorityOnItself
            | Self::PushForbidden
            | Self::SettingInvalid
            | Self::StreamIdInvalid
            | Self::StreamIdle
            | Self::WindowIncrementZero => ErrorCode::PROTOCOL_ERROR,
            Self::FrameSizeInvalid | Self::FrameTooLarge => ErrorCode::FRAME_SIZE_ERROR,
            Self::SettingWindowTooLarge | Self::WindowExceeded | Self::WindowOverflow => {
                ErrorCode::FLOW_CONTROL_ERROR
            }
            Self::StreamClosed => ErrorCode::STREAM_CLOSED,
            Self::HeaderBlock(_) => ErrorCode::COMPRESSION_ERROR,
            Self::AnswersUndelivered | Self::HeaderBlockTooLarge | Self::TooMuchWork(_) => {
                ErrorCode::ENHANCE_YOUR_CALM
            }
        }
    }
}

/// Why a single stream was reset from here (RFC 9113, section 5.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum StreamError {
    /// A frame behind the end of the peer's half.
    #[error("a frame behind the end of the stream")]
    Closed,
    /// PRIORITY of a wrong length.
    #[error("a frame whose length is not that of its type")]
    FrameSizeInvalid,
    /// The head of a response is over a limit.
    #[error("the head of a response is over a limit")]
    HeadTooLarge,
    /// A message that breaks a rule (section 8.1.1).
    #[error("a malformed message: {0}")]
    Malformed(#[from] MessageError),
    /// The stream depends on itself.
    #[error("a priority that depends on itself")]
    PriorityOnItself,
    /// One stream more than were allowed, or a new one after the last.
    #[error("more streams than allowed")]
    Refused,
    /// The trailer section is over a limit.
    #[error("the trailer section is over a limit")]
    TrailersTooLarge,
    /// More data than the stream's window allowed.
    #[error("more data than the window of the stream")]
    WindowExceeded,
    /// An increment of nothing.
    #[error("a window increment of zero")]
    WindowIncrementZero,
    /// The stream's window would be too large.
    #[error("a window that grows too large")]
    WindowOverflow,
}

impl StreamError {
    /// The code for the peer.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Closed => ErrorCode::STREAM_CLOSED,
            Self::FrameSizeInvalid => ErrorCode::FRAME_SIZE_ERROR,
            Self::HeadTooLarge | Self::TrailersTooLarge => ErrorCode::CANCEL,
            Self::Malformed(_) | Self::PriorityOnItself | Self::WindowIncrementZero => {
                ErrorCode::PROTOCOL_ERROR
            }
            Self::Refused => ErrorCode::REFUSED_STREAM,
            Self::WindowExceeded | Self::WindowOverflow => ErrorCode::FLOW_CONTROL_ERROR,
        }
    }
}

/// The rule that a malformed message breaks (RFC 9113, section 8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum MessageError {
    /// `:authority` holds what no authority may, or is missing in a CONNECT.
    #[error("an invalid authority")]
    AuthorityInvalid,
    /// A field about the connection, which HTTP/2 does not have.
    #[error("a field that is about the connection")]
    ConnectionField,
    /// `content-length` is not a number, or there are several.
    #[error("a content length that is not one number in range")]
    ContentLengthInvalid,
    /// More or less data than `content-length` says.
    #[error("a content length that is not that of the data")]
    ContentLengthWrong,
    /// Data before the head of a response, or behind one that has no body.
    #[error("data where none may be")]
    DataMisplaced,
    /// A second header block that does not end the stream.
    #[error("trailers that do not end the stream")]
    EndMissing,
    /// A field name that is not a token in lower case.
    #[error("a field name that is not a token in lower case")]
    FieldNameInvalid,
    /// A field value with a control octet in it or white space around it.
    #[error("an invalid field value")]
    FieldValueInvalid,
    /// `host` differs from `:authority`, or is there twice.
    #[error("more than one host")]
    HostRepeated,
    /// The method is not a token.
    #[error("a method that is not a token")]
    MethodInvalid,
    /// `:path` is not a path, or is there in a CONNECT, or missing in another request.
    #[error("an invalid path")]
    PathInvalid,
    /// A pseudo field behind a field, in trailers, or in the wrong kind of message.
    #[error("a pseudo field that is out of place")]
    PseudoFieldMisplaced,
    /// `:method`, `:scheme`, `:path` or `:status` is missing.
    #[error("a pseudo field that is missing")]
    PseudoFieldMissing,
    /// A pseudo field twice.
    #[error("a repeated pseudo field")]
    PseudoFieldRepeated,
    /// An undefined pseudo field.
    #[error("a pseudo field that is unknown")]
    PseudoFieldUnknown,
    /// `:scheme` is not a scheme.
    #[error("an invalid scheme")]
    SchemeInvalid,
    /// `:status` is not a status, or 101, which HTTP/2 does not have, or an interim one that ends
    /// the stream.
    #[error("an invalid status")]
    StatusInvalid,
    /// `te` says something else than `trailers`.
    #[error("transfer codings in HTTP/2")]
    TeInvalid,
    /// A trailer field that may stand in heads only.
    #[error("a trailer field that may stand in heads only")]
    TrailerForbidden,
}
