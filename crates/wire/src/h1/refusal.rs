//! Where a head that is refused is wrong, for the log.
//!
//! Decoding keeps no place of what it refuses: this looks for it again, in one pass over the head, once it is
//! known what is wrong. Values of fields that hold credentials are left out.

use super::error::{BodyError, HeadError, Stop};
use super::field_line::field;

/// Octets that are shown of a refused line, at most.
pub const REFUSED_OCTETS_MAX: usize = 64;

/// Octets shown before one that may not stand where it does, in a line that is too long to be shown whole.
const OCTETS_BEFORE: usize = 32;

/// Fields whose values are nothing for a log.
const CREDENTIALS: &[&[u8]] = &[b"authorization", b"proxy-authorization", b"cookie", b"set-cookie"];

/// The part of `input`, a head that was refused with `error`, that is wrong: [`REFUSED_OCTETS_MAX`] octets of
/// a line at most, as they came. Empty if something is missing, or there is too much of something.
#[must_use]
pub fn refused_octets(input: &[u8], error: HeadError) -> &[u8] {
    let start = input.iter().take_while(|octet| matches!(octet, b'\r' | b'\n')).count();
    let head = input.get(start..).unwrap_or_default();
    let line = match error {
        HeadError::ConnectWithContent => first_line(head),
        HeadError::ConnectionInvalid => named(head, b"connection"),
        HeadError::ContentLengthInvalid | HeadError::ContentLengthRepeated => {
            named(head, b"content-length")
        }
        HeadError::ContentLengthWithTransferEncoding
        | HeadError::TransferEncodingInHttp10
        | HeadError::TransferEncodingInvalid
        | HeadError::TransferEncodingUnknown => named(head, b"transfer-encoding"),
        HeadError::HostInvalid | HeadError::HostRepeated => named(head, b"host"),
        HeadError::FieldNameInvalid
        | HeadError::FieldSpaceBeforeColon
        | HeadError::FieldValueInvalid
        | HeadError::LineBreakInvalid => broken_line(head).1,
        // What is folded is a part of the value before it.
        HeadError::LineFolded => name_of(broken_line(head).0),
        HeadError::MethodInvalid
        | HeadError::PathInvalid(_)
        | HeadError::RequestLineInvalid
        | HeadError::StatusLineInvalid
        | HeadError::TargetInvalid
        | HeadError::VersionInvalid
        | HeadError::VersionUnsupported => first_line(head),
        HeadError::EmptyLinesTooMany
        | HeadError::FieldsTooMany
        | HeadError::HeadTooLarge
        | HeadError::HostMissing
        | HeadError::LineTooLong => &[],
    };
    shown(line)
}

/// The part of `input` that is wrong, the rest of a body that was refused with `error`: the line of a chunk's
/// size, and nothing of data and trailers.
#[must_use]
pub fn refused_body_octets(input: &[u8], error: BodyError) -> &[u8] {
    let start = input.iter().take_while(|octet| matches!(octet, b'\r' | b'\n')).count();
    match error {
        BodyError::ChunkExtensionInvalid
        | BodyError::ChunkLineTooLong
        | BodyError::ChunkSizeInvalid => shown(first_line(input.get(start..).unwrap_or_default())),
        BodyError::ChunkLineBreakInvalid
        | BodyError::TooLong
        | BodyError::TooShort
        | BodyError::TrailerForbidden
        | BodyError::TrailerInvalid(_)
        | BodyError::TrailersTooLarge => &[],
    }
}

/// The octets of a line up to its end.
fn first_line(input: &[u8]) -> &[u8] {
    let line = input.split(|octet| *octet == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// As much of a line as goes into a log.
fn shown(line: &[u8]) -> &[u8] {
    let name = name_of(line);
    if CREDENTIALS.iter().any(|field| name.trim_ascii().eq_ignore_ascii_case(field)) {
        return name;
    }
    let wrong = line.iter().position(|octet| octet.is_ascii_control() && *octet != b'\t');
    let start = match wrong {
        Some(wrong) if wrong >= REFUSED_OCTETS_MAX => wrong - OCTETS_BEFORE,
        _ => 0,
    };
    let line = line.get(start..).unwrap_or_default();
    line.get(..REFUSED_OCTETS_MAX).unwrap_or(line)
}

/// What stands before the colon of a field line.
fn name_of(line: &[u8]) -> &[u8] {
    line.split(|octet| *octet == b':').next().unwrap_or_default()
}

/// The last line with a field of this name.
fn named<'i>(head: &'i [u8], name: &[u8]) -> &'i [u8] {
    let lines = head.split(|octet| *octet == b'\n').skip(1);
    let lines = lines.take_while(|line| !matches!(line, [] | [b'\r']));
    let line = lines.filter(|line| name_of(line).eq_ignore_ascii_case(name)).last();
    first_line(line.unwrap_or_default())
}

/// The first field line that is none, behind the line before it. The start line if there is no such field.
fn broken_line(head: &[u8]) -> (&[u8], &[u8]) {
    let start_line = first_line(head);
    let mut before = start_line;
    let mut at = head.iter().position(|octet| *octet == b'\n').map_or(head.len(), |end| end + 1);
    loop {
        let rest = head.get(at..).unwrap_or_default();
        match field(head, at) {
            _ if matches!(rest, [b'\r', b'\n', ..]) => return (&[], start_line),
            Ok((_, next)) => (before, at) = (first_line(rest), next),
            Err(Stop::Wrong(_)) => return (before, first_line(rest)),
            Err(Stop::More) => return (&[], start_line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::{HeadLimits, Scan, decode_request};
    use crate::head::HeadIndex;
    use crate::path::Slashes;

    const LIMITS: HeadLimits = HeadLimits {
        request_line_bytes_max: 400,
        head_bytes_max: 1_000,
        fields_max: 4,
        slashes: Slashes::Keep,
    };

    /// What is shown of a request that is refused.
    fn shown_of(head: &str) -> String {
        let mut index = HeadIndex::default();
        let input = head.as_bytes();
        let refused = decode_request(input, &mut Scan::default(), &LIMITS, &mut index);
        let error = refused.expect_err("it is refused");
        refused_octets(input, error).escape_ascii().to_string()
    }

    #[test]
    fn the_line_that_is_wrong_is_shown() {
        let host = "GET / HTTP/1.1\r\nHost: x\r\n";
        for (head, expected) in [
            ("G@T / HTTP/1.1\r\n\r\n".to_owned(), "G@T / HTTP/1.1"),
            ("\r\nGET / HTTP/3.0\r\n\r\n".to_owned(), "GET / HTTP/3.0"),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(), "Host: a b"),
            (format!("{host}Host: y\r\n\r\n"), "Host: y"),
            (
                format!("{host}a: b\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n"),
                "content-length: 2",
            ),
            (
                format!("{host}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
                "Transfer-Encoding: chunked",
            ),
            (format!("{host}a: b\r\nc : d\r\ne: f\r\n\r\n"), "c : d"),
            (format!("{host}a b\r\n\r\n"), "a b"),
            (format!("{host}a\u{1}: b\r\n\r\n"), r"a\x01: b"),
            (format!("{host}a: b\u{0}\r\nc: d\r\n\r\n"), r"a: b\x00"),
            (format!("{host}a: b\rc: d\r\n\r\n"), r"a: b\rc: d"),
            (format!("{host}secret: one\r\n two\r\n\r\n"), "secret"),
            ("GET / HTTP/1.1\nHost: x\r\n\r\n".to_owned(), "GET / HTTP/1.1"),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), ""),
            (format!("{host}a: b\r\na: b\r\na: b\r\na: b\r\n\r\n"), ""),
        ] {
            assert_eq!(shown_of(&head), expected, "{}", head.escape_debug());
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_octet_that_is_wrong() {
        let long = "x".repeat(100);
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\na: {long}\u{7f}{long}\r\n\r\n");
        let expected = format!(r"{}\x7f{}", &long[..32], &long[..31]);
        assert_eq!(shown_of(&head), expected);
        let head = format!("GET /{long} HTTP/1.2\r\n\r\n");
        assert_eq!(shown_of(&head), format!("GET /{}", &long[..59]));
    }

    #[test]
    fn of_a_body_the_line_of_a_size_is_shown_and_no_data() {
        let of = |input: &'static [u8], error| refused_body_octets(input, error);
        assert_eq!(of(b"\r\nxyz\r\ndata", BodyError::ChunkSizeInvalid), b"xyz");
        assert_eq!(of(b"5;a=\x01\ndata", BodyError::ChunkExtensionInvalid), b"5;a=\x01");
        assert_eq!(of(b"data", BodyError::ChunkLineBreakInvalid), b"");
    }

    #[test]
    fn credentials_are_not_shown() {
        for name in ["Authorization", "PROXY-AUTHORIZATION", "cookie", "Set-Cookie"] {
            for (line, expected) in [
                (format!("{name}: secret\u{1}"), name.to_owned()),
                (format!("{name} : secret"), format!("{name} ")),
                (format!("{name}: sec\r\n ret"), name.to_owned()),
            ] {
                let head = format!("GET / HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n");
                assert_eq!(shown_of(&head), expected, "{line:?}");
            }
        }
    }
}
