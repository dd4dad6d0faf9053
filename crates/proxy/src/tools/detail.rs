//! Why something failed, in words.
//!
//! Causes are a closed set, for metrics and for what follows from them. What a peer or the kernel
//! says about the same failure is the detail: the code and text of a GOAWAY, the error of a `connect`, why a
//! handshake of TLS came to nothing, which rule a message breaks. It goes to the access log and to
//! `/slow`, and never to a client.
//!
//! A detail is memory that only something that fails takes. An upstream connection keeps the last one
//! (`Upstream::reason`), since its exchanges may end later than it was said; an exchange takes a copy
//! when it fails because of its connection.

use std::fmt::{self, Write as _};
use std::time::Duration;

use wire::detect::{Detected, detect_late, detect_server};
use wire::h1::{BodyError, HeadError, REFUSED_OCTETS_MAX, refused_body_octets, refused_octets};
use wire::h2::ErrorCode;

/// Bytes of a detail; what is longer is cut. The name of a code and the text of a GOAWAY
/// (`wire::h2` hands out 128 bytes) fit.
pub(crate) const DETAIL_BYTES_MAX: usize = 160;

/// Why something failed. A peer may have chosen its bytes: the log and the admin interface escape them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detail(Box<[u8]>);

impl Detail {
    /// What an error says of itself.
    pub(crate) fn of(error: &impl fmt::Display) -> Self {
        let mut words = String::new();
        let written = write!(words, "{error}");
        debug_assert!(written.is_ok(), "memory takes all");
        Self::from_bytes(words.into_bytes())
    }

    /// Which rule a head breaks, and where: `white space before a colon: Host : x`.
    pub(crate) fn of_head(error: HeadError, input: &[u8]) -> Self {
        Self::of_place(&error, refused_octets(input, error))
    }

    /// Which rule a body breaks, and in which line of what frames it. Data is nothing for a log.
    pub(crate) fn of_body(error: BodyError, input: &[u8]) -> Self {
        Self::of_place(&error, refused_body_octets(input, error))
    }

    /// What is wrong, and the octets that are.
    pub(crate) fn of_place(error: &impl fmt::Display, octets: &[u8]) -> Self {
        let mut bytes = error.to_string().into_bytes();
        if !octets.is_empty() {
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(octets);
        }
        Self::from_bytes(bytes)
    }

    /// The option that bounds a time, and what it is: `timeouts.response_head of the cluster: 30s`.
    pub(crate) fn of_bound(option: &str, bound: Duration) -> Self {
        Self::of(&format_args!("{option}: {bound:?}"))
    }

    /// What an upstream that should speak `expected` begins with instead, if it is something else.
    pub(crate) fn of_other_protocol(expected: Detected, input: &[u8]) -> Option<Self> {
        let spoken = detect_server(input);
        if spoken == expected {
            return None;
        }
        Some(match protocol_name(spoken) {
            Some(spoken) => Self::of(&format_args!("the upstream speaks {spoken}")),
            None => {
                let expected = protocol_name(expected).unwrap_or_default();
                let octets = input.get(..REFUSED_OCTETS_MAX).unwrap_or(input);
                Self::of_place(&format_args!("the upstream does not speak {expected}"), octets)
            }
        })
    }

    /// What a client speaks, or begins with, that should speak TLS.
    pub(crate) fn of_client(input: &[u8]) -> Option<Self> {
        let words = match protocol_name(detect_late(input, &[])) {
            Some(spoken) => Self::of(&format_args!("the client speaks {spoken}")),
            None => {
                let octets = input.get(..REFUSED_OCTETS_MAX).unwrap_or(input);
                Self::of_place(&"the client does not speak TLS", octets)
            }
        };
        Some(words)
    }

    /// What a peer says when it resets a stream (RFC 9113, section 7): `INTERNAL_ERROR`.
    pub(crate) fn of_code(code: ErrorCode) -> Self {
        Self::from_bytes(format!("{code:?}").into_bytes())
    }

    /// What a peer says when it goes away (RFC 9113, section 6.8): `ENHANCE_YOUR_CALM: too_many_pings`.
    pub(crate) fn of_goaway(code: ErrorCode, debug: &[u8]) -> Self {
        let mut bytes = format!("{code:?}").into_bytes();
        if !debug.is_empty() {
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(debug);
        }
        Self::from_bytes(bytes)
    }

    /// Takes what was written down, or words that are bytes already.
    pub(crate) fn from_bytes(mut bytes: Vec<u8>) -> Self {
        bytes.truncate(DETAIL_BYTES_MAX);
        Self(bytes.into_boxed_slice())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A protocol's name.
pub(crate) const fn protocol_name(protocol: Detected) -> Option<&'static str> {
    match protocol {
        Detected::Http1 => Some("HTTP/1"),
        Detected::Http2 => Some("HTTP/2"),
        Detected::Tls => Some("TLS"),
        Detected::Rpc(_) | Detected::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_have_a_bound_and_keep_every_octet_below_it() {
        for (code, debug, expected) in [
            (ErrorCode::NO_ERROR, &b""[..], &b"NO_ERROR"[..]),
            (ErrorCode::ENHANCE_YOUR_CALM, b"too_many_pings", b"ENHANCE_YOUR_CALM: too_many_pings"),
            (ErrorCode(0x1f), b"\x00\"\n", b"0x1f: \x00\"\n"),
        ] {
            assert_eq!(Detail::of_goaway(code, debug).as_bytes(), expected);
        }
        let longest = Detail::of_goaway(ErrorCode::FLOW_CONTROL_ERROR, &[b'x'; 128]);
        assert!(longest.as_bytes().len() < DETAIL_BYTES_MAX, "it is not cut");
        let long = Detail::of(&"x".repeat(1_000));
        assert_eq!(long.as_bytes().len(), DETAIL_BYTES_MAX);
    }
}
