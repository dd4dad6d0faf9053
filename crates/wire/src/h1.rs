//! HTTP/1.1 and HTTP/1.0 (RFC 9112): heads, bodies, and back.
//!
//! Written here rather than taken from `httparse`, because a proxy has to be stricter than a
//! parser and say more: every refusal has a kind that becomes a status and a cause, the framing
//! is decided in one place, an unfinished head is not read again from its start for each byte
//! that comes, and what decoding learnt about each field serves routing and encoding.
//!
//! Strict in both directions. Input that two implementations are known to read differently is
//! refused: a bare CR or LF, a folded line, white space before a colon, two lengths, a length
//! next to a transfer coding, a transfer coding other than `chunked`.
//!
//! White space around a value is legal and dropped; where it is not a single space in front, the
//! encoder rewrites the field.

mod body;
mod decode;
mod encode;
mod error;
mod field_line;
mod meaning;
mod parsing;
mod refusal;
mod scan;
mod start_line;
mod target;

pub(crate) use encode::{Decimal, keeps_length};
pub(crate) use error::Stop;
pub(crate) use field_line::field;
pub use field_line::field_values;
pub(crate) use meaning::{content_length, finish_response_framing, is_continue};
pub(crate) use target::{SCHEMES, TargetScan};

pub use body::{
    BodyDecoder, BodyElement, BodyEncoder, BodyLimits, Framed, Tail, allowed_trailers,
    kept_trailers,
};
pub use decode::{HeadLimits, decode_request, decode_response, decode_response_as};
pub use encode::{
    ConnectionField, encode_reply, encode_request, encode_response, reason_phrase, reply_len_max,
};
pub use error::{BodyError, HeadError, HeadErrorKind, Truncated};
pub use parsing::Parsing;
pub use refusal::{REFUSED_OCTETS_MAX, refused_body_octets, refused_octets};
pub use scan::Scan;
