//! Errors in heads and bodies.

use thiserror::Error;

/// Why a head is refused. [`HeadError::kind`] says what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// `Connection` is not a list of names, or nominates too many.
    #[error("connection options that are no list of names, or too many of them")]
    ConnectionInvalid,
    /// A `CONNECT` with content: what follows its head is for the tunnel.
    #[error("a CONNECT request with content")]
    ConnectWithContent,
    /// `Content-Length` is not a number, or no body can be that long.
    #[error("a content length that is not a number in range")]
    ContentLengthInvalid,
    /// More than one `Content-Length`, even of the same value.
    #[error("more than one content length")]
    ContentLengthRepeated,
    /// Both `Content-Length` and `Transfer-Encoding`.
    #[error("a content length next to a transfer coding")]
    ContentLengthWithTransferEncoding,
    /// More empty lines before a request than a client may send by mistake.
    #[error("too many empty lines before the request")]
    EmptyLinesTooMany,
    /// A field name that is not a token.
    #[error("a field name that is not a token")]
    FieldNameInvalid,
    /// White space between a field name and its colon.
    #[error("white space before a colon")]
    FieldSpaceBeforeColon,
    /// A control octet in a field value.
    #[error("a control octet in a field value")]
    FieldValueInvalid,
    /// More fields than `fields_max`.
    #[error("too many fields")]
    FieldsTooMany,
    /// More bytes than `head_bytes_max`, or a name longer than the index can hold.
    #[error("the head is too long")]
    HeadTooLarge,
    /// `Host` is not a host and a port.
    #[error("a host that is not a host")]
    HostInvalid,
    /// An HTTP/1.1 request without `Host`.
    #[error("no host")]
    HostMissing,
    /// More than one `Host`.
    #[error("more than one host")]
    HostRepeated,
    /// A CR or an LF that is not part of a CRLF.
    #[error("a bare CR or LF")]
    LineBreakInvalid,
    /// A field line that begins with white space.
    #[error("a folded line")]
    LineFolded,
    /// A request line longer than `request_line_bytes_max`.
    #[error("the request line is too long")]
    LineTooLong,
    /// The method is not a token.
    #[error("a method that is not a token")]
    MethodInvalid,
    /// The path cannot be brought into its normal form.
    #[error("{0}")]
    PathInvalid(#[from] crate::path::PathError),
    /// The request line does not have three parts with a single space between them.
    #[error("a request line that has not three parts")]
    RequestLineInvalid,
    /// The status line has no code of three digits, or a control octet in its reason.
    #[error("an invalid status line")]
    StatusLineInvalid,
    /// The target is of no form that the method allows, or holds an octet that no URI holds.
    #[error("an invalid target, or one that this method does not allow")]
    TargetInvalid,
    /// A transfer coding in HTTP/1.0, where none exists.
    #[error("a transfer coding in HTTP/1.0")]
    TransferEncodingInHttp10,
    /// Transfer codings that are no list, or do not end in one `chunked`.
    #[error("transfer codings that do not end in one `chunked`")]
    TransferEncodingInvalid,
    /// A transfer coding other than `chunked`.
    #[error("a transfer coding that is not implemented")]
    TransferEncodingUnknown,
    /// Not a version at all.
    #[error("an invalid version")]
    VersionInvalid,
    /// A version of HTTP that is not 1.0 or 1.1.
    #[error("a version that is not supported")]
    VersionUnsupported,
}

/// Classes of refused heads, each with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadErrorKind {
    /// The length or the transfer coding is ambiguous: 400.
    Framing,
    /// `Host` is missing, repeated or wrong: 400.
    Host,
    /// The request line is too long: 414.
    LineTooLong,
    /// A transfer coding is not implemented: 501.
    NotImplemented,
    /// The bytes are not HTTP/1: 400.
    Syntax,
    /// The target is not one, or its path is refused: 400.
    Target,
    /// Too many bytes or fields: 431.
    TooLarge,
    /// Another version of HTTP: 505.
    Version,
}

impl HeadError {
    /// The class, which determines the status.
    #[must_use]
    pub fn kind(self) -> HeadErrorKind {
        match self {
            Self::ConnectWithContent
            | Self::ContentLengthInvalid
            | Self::ContentLengthRepeated
            | Self::ContentLengthWithTransferEncoding
            | Self::TransferEncodingInHttp10
            | Self::TransferEncodingInvalid => HeadErrorKind::Framing,
            Self::HostInvalid | Self::HostMissing | Self::HostRepeated => HeadErrorKind::Host,
            Self::LineTooLong => HeadErrorKind::LineTooLong,
            Self::TransferEncodingUnknown => HeadErrorKind::NotImplemented,
            Self::ConnectionInvalid
            | Self::EmptyLinesTooMany
            | Self::FieldNameInvalid
            | Self::FieldSpaceBeforeColon
            | Self::FieldValueInvalid
            | Self::LineBreakInvalid
            | Self::LineFolded
            | Self::MethodInvalid
            | Self::RequestLineInvalid
            | Self::StatusLineInvalid
            | Self::VersionInvalid => HeadErrorKind::Syntax,
            Self::PathInvalid(_) | Self::TargetInvalid => HeadErrorKind::Target,
            Self::FieldsTooMany | Self::HeadTooLarge => HeadErrorKind::TooLarge,
            Self::VersionUnsupported => HeadErrorKind::Version,
        }
    }
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// A chunk extension holds a control octet.
    #[error("a control octet in a chunk extension")]
    ChunkExtensionInvalid,
    /// The data of a chunk, or its size line, does not end in CRLF.
    #[error("a chunk that does not end in CRLF")]
    ChunkLineBreakInvalid,
    /// The line with a chunk's size is longer than `chunk_line_bytes_max`.
    #[error("a chunk's size line is too long")]
    ChunkLineTooLong,
    /// A chunk's size is not a hexadecimal number, or no body can be that long.
    #[error("a chunk's size is not a number in range")]
    ChunkSizeInvalid,
    /// More data than the declared length, or data where there is no body.
    #[error("more data than declared")]
    TooLong,
    /// Less data than the declared length.
    #[error("less data than declared")]
    TooShort,
    /// The trailer section has a field that may stand in heads only.
    #[error("a trailer field that may stand in heads only")]
    TrailerForbidden,
    /// A line of the trailer section is refused as it would be in a head.
    #[error("in the trailer section: {0}")]
    TrailerInvalid(HeadError),
    /// The trailer section is longer than `trailers_bytes_max`.
    #[error("the trailer section is too long")]
    TrailersTooLarge,
}

/// The peer closed before the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the body was cut off")]
pub struct Truncated;

/// Why reading stopped before the end of a head or a trailer section.
pub(crate) enum Stop {
    More,
    Wrong(HeadError),
}

impl<E: Into<HeadError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Wrong(error.into())
    }
}
