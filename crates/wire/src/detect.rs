//! What a connection speaks, told from its first bytes.
//!
//! Nothing is consumed: the verdict is asked for again with more bytes in front of it until there
//! is one. Protocols whose clients wait for the server to speak first send nothing to be told by;
//! how long to wait for them is the caller's to say.

use crate::h2::PREFACE;
use crate::octets;
use crate::tls::client_hello;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// A request line of HTTP/1.
    Http1,
    /// The preface of HTTP/2.
    Http2,
    /// The first record of a TLS handshake, which [`crate::tls::client_hello`] reads.
    Tls,
    /// None of these.
    Unknown,
}

/// Bytes in which a verdict is reached at the latest.
pub const DETECT_BYTES_MAX: usize = 8 << 10;

/// What `input`, the first bytes of a connection, belongs to, or `None` if more are needed.
#[must_use]
pub fn detect(input: &[u8]) -> Option<Detected> {
    if input.first() == Some(&client_hello::HANDSHAKE_RECORD) {
        let is_hello = client_hello::begins(input)?;
        return Some(if is_hello { Detected::Tls } else { Detected::Unknown });
    }
    let common = input.len().min(PREFACE_TOLD);
    if input.get(..common) == PREFACE.get(..common) && common > METHOD_OF_PREFACE {
        return (common == PREFACE_TOLD).then_some(Detected::Http2);
    }
    http1(input)
}

/// Bytes of HTTP/2's preface that nothing else begins with: up to its version.
const PREFACE_TOLD: usize = 14;

/// Bytes of the preface that another method may begin with.
const METHOD_OF_PREFACE: usize = 3;

/// A method, a target and a version. Empty lines before it are skipped, as the decoder does.
fn http1(input: &[u8]) -> Option<Detected> {
    let mut line = input;
    while let [b'\r', b'\n', rest @ ..] = line {
        line = rest;
    }
    if matches!(line, [] | [b'\r']) {
        return (input.len() >= DETECT_BYTES_MAX).then_some(Detected::Unknown);
    }
    let method_end = octets::token_end(line, 0);
    let target = match line.get(method_end..) {
        Some([b' ', target @ ..]) if method_end > 0 => target,
        Some([]) | None if method_end <= METHOD_BYTES_MAX => return None,
        _ => return Some(Detected::Unknown),
    };
    let end = target.iter().position(|octet| matches!(octet, b'\r' | b'\n'));
    let Some(end) = end else {
        // Whatever else a long line is, the decoder says what is wrong with it.
        return (input.len() >= DETECT_BYTES_MAX).then_some(Detected::Http1);
    };
    let target = target.get(..end).unwrap_or_default();
    let has_version = target
        .last_chunk::<9>()
        .is_some_and(|version| version.starts_with(b" HTTP/") && version.get(7) == Some(&b'.'));
    Some(if has_version { Detected::Http1 } else { Detected::Unknown })
}

/// Methods longer than this are nobody's.
const METHOD_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_apart_however_few_bytes_come_at_a_time() {
        for (input, expected) in [
            (&b"GET / HTTP/1.1\r"[..], Detected::Http1),
            (b"PRIX / HTTP/1.0\r", Detected::Http1),
            (b"\r\n\r\nOPTIONS * HTTP/1.1\r", Detected::Http1),
            (b"M-SEARCH http://x/ HTTP/1.1\n", Detected::Http1),
            (b"PRI * HTTP/2.0", Detected::Http2),
            (b"\x16\x03\x01\x02\x00\x01", Detected::Tls),
            (b"\x16\x03\x01\x02\x00\x02", Detected::Unknown),
            (b"\x16\x02", Detected::Unknown),
            (b"\x16\x03\x05", Detected::Unknown),
            (b"\x16\x03\x01\x00\x00", Detected::Unknown),
            (b"\x16\x03\x01\x40\x01", Detected::Unknown),
            (b"\x16\x03\x01\x40\x00\x01", Detected::Tls),
            (b"PING\r", Detected::Unknown),
            (b"GET key\r", Detected::Unknown),
            (b"GET /key\r", Detected::Unknown),
            (b"\x00", Detected::Unknown),
            (b"*1\r", Detected::Unknown),
            (b" ", Detected::Unknown),
        ] {
            for len in 0..input.len() {
                assert_eq!(detect(&input[..len]), None, "{:?} {len}", input.escape_ascii());
            }
            assert_eq!(detect(input), Some(expected), "{:?}", input.escape_ascii());
        }
    }

    #[test]
    fn a_verdict_is_reached_within_its_bound() {
        for (octet, expected) in
            [(b'\n', Detected::Unknown), (b'A', Detected::Unknown), (b'/', Detected::Unknown)]
        {
            assert_eq!(detect(&vec![octet; DETECT_BYTES_MAX]), Some(expected));
        }
        let mut long = b"GET /".to_vec();
        long.resize(DETECT_BYTES_MAX, b'x');
        assert_eq!(detect(&long[..DETECT_BYTES_MAX - 1]), None);
        assert_eq!(detect(&long), Some(Detected::Http1));
        let empty = b"\r\n".repeat(DETECT_BYTES_MAX / 2);
        assert_eq!(detect(&empty), Some(Detected::Unknown));
    }
}
