//! Heads: bytes ⇒ [`RequestHead`], [`ResponseHead`].
//!
//! One pass from left to right, and the first octet that is wrong decides the error, so that the
//! verdict on a head does not depend on how it was cut into pieces. What needs the whole head
//! (its framing, its host) is judged at its end.

use serde::{Deserialize, Serialize};

use super::error::{HeadError, Stop};
use super::field_line::{field_in, line_end};
use super::meaning::{Summary, finish_request, finish_response};
use super::parsing::{LineEnds, Parsing};
use super::scan::Scan;
use super::start_line::{request_line, status_line};
use crate::head::{Head, HeadIndex, Known, Method, RequestHead, ResponseHead};
use crate::path::Slashes;

/// Bounds on a head, and how its path is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadLimits {
    /// Bytes of a request line, without its line end. Status lines have no bound of their own.
    pub request_line_bytes_max: u32,
    /// Bytes of a head, from the first that came to its last line end. A buffer of this capacity
    /// can hold every head that is accepted.
    pub head_bytes_max: u32,
    /// Fields of a head.
    pub fields_max: u16,
    /// How several slashes in a row in a path are read.
    pub slashes: Slashes,
}

/// Reads the head of a request from the front of `input`, together with how many bytes it takes,
/// or `None` if more are needed.
///
/// `scan` belongs to the unfinished head: pass the same one with the same bytes and more behind
/// them, until there is a result. It is then ready for the next head.
///
/// # Errors
///
/// When the bytes that are there cannot begin an acceptable head. It is found at the latest when
/// the head ends or crosses a limit, and no matter in which pieces it came.
pub fn decode_request<'b>(
    input: &'b [u8],
    scan: &mut Scan,
    limits: &HeadLimits,
    index: &'b mut HeadIndex,
) -> Result<Option<(RequestHead<'b>, usize)>, HeadError> {
    if !scan.is_due(input) {
        return Ok(None);
    }
    index.clear();
    let mut line_len_max = usize::MAX;
    let result = request(window(input, limits), limits, index, &mut line_len_max);
    let lengths = [line_len_max, limits.head_bytes_max as usize];
    conclude(result, input, scan, limits, &lengths, index)
}

/// Reads the head of a response to a request of method `to` from the front of `input`; otherwise
/// as [`decode_request`].
///
/// # Errors
///
/// When the bytes that are there cannot begin an acceptable head.
pub fn decode_response<'b>(
    input: &'b [u8],
    scan: &mut Scan,
    limits: &HeadLimits,
    index: &'b mut HeadIndex,
    to: Method,
) -> Result<Option<(ResponseHead<'b>, usize)>, HeadError> {
    decode_response_as(input, scan, limits, index, to, (Parsing::Strict, false))
}

/// As [`decode_response`], and as strictly as `parsing` says. `is_after_interim`: an interim response
/// came before it, to the same request.
///
/// # Errors
///
/// When the bytes that are there cannot begin an acceptable head.
pub fn decode_response_as<'b>(
    input: &'b [u8],
    scan: &mut Scan,
    limits: &HeadLimits,
    index: &'b mut HeadIndex,
    to: Method,
    (parsing, is_after_interim): (Parsing, bool),
) -> Result<Option<(ResponseHead<'b>, usize)>, HeadError> {
    if !scan.is_due(input) {
        return Ok(None);
    }
    index.clear();
    let how = (parsing, is_after_interim);
    let result = response(window(input, limits), limits, index, to, how);
    conclude(result, input, scan, limits, &[limits.head_bytes_max as usize], index)
}

/// Bytes behind `head_bytes_max` are not looked at.
fn window<'b>(input: &'b [u8], limits: &HeadLimits) -> &'b [u8] {
    input.get(..limits.head_bytes_max as usize).unwrap_or(input)
}

fn conclude<'b, K>(
    result: Result<Extent, Stop>,
    input: &'b [u8],
    scan: &mut Scan,
    limits: &HeadLimits,
    due_lens: &[usize],
    index: &'b mut HeadIndex,
) -> Result<Option<(Head<'b, K>, usize)>, HeadError> {
    let error = match result {
        Ok(Extent { start, end }) => {
            scan.on_finished();
            let block = input.get(start..end).unwrap_or_default();
            return Ok(Some((Head::resume(block, index), end)));
        }
        Err(Stop::More) if input.len() < limits.head_bytes_max as usize => {
            scan.on_unfinished(input, due_lens);
            return Ok(None);
        }
        Err(Stop::More) => HeadError::HeadTooLarge,
        Err(Stop::Wrong(error)) => error,
    };
    scan.on_finished();
    Err(error)
}

/// Where a head lies in the input.
struct Extent {
    start: usize,
    end: usize,
}

/// Empty lines that a client may send before a request (RFC 9112, section 2.2): old ones sent one
/// behind a body.
const EMPTY_LINES_MAX: usize = 4;

fn request(
    window: &[u8],
    limits: &HeadLimits,
    index: &mut HeadIndex,
    line_len_max: &mut usize,
) -> Result<Extent, Stop> {
    let start = skip_empty_lines(window)?;
    let block = window.get(start..).unwrap_or_default();

    // The line and its end have to be in this much of the block.
    let line_max = (limits.request_line_bytes_max as usize).saturating_add(2);
    *line_len_max = line_max.saturating_add(start);
    let line_window = block.get(..line_max).unwrap_or(block);
    let fields_start = match request_line(line_window, limits.slashes, index) {
        Err(Stop::More) if block.len() >= line_max => return Err(HeadError::LineTooLong.into()),
        result => result?,
    };

    let mut summary = Summary::default();
    let end = fields(block, fields_start, limits, index, &mut summary, LineEnds::CrLf)?;
    let block = block.get(..end).unwrap_or_default();
    finish_request(block, index, &summary)?;
    Ok(Extent { start, end: start + end })
}

fn response(
    window: &[u8],
    limits: &HeadLimits,
    index: &mut HeadIndex,
    to: Method,
    (parsing, is_after_interim): (Parsing, bool),
) -> Result<Extent, Stop> {
    let start = match parsing {
        Parsing::Tolerant if is_after_interim => skip_empty_line(window)?,
        Parsing::Strict | Parsing::Tolerant => 0,
    };
    let block = window.get(start..).unwrap_or_default();
    let (fields_start, ends) = status_line(block, index, parsing)?;
    let mut summary = Summary::default();
    let end = fields(block, fields_start, limits, index, &mut summary, ends)?;
    let block = block.get(..end).unwrap_or_default();
    // Services may read a name as another, as CGI does; clients do not.
    index.has_unusual_names = false;
    finish_response(block, index, &summary, to, parsing)?;
    Ok(Extent { start, end: start + end })
}

/// An empty line that some services have behind the one that ends an interim response.
fn skip_empty_line(window: &[u8]) -> Result<usize, Stop> {
    match window {
        [] | [b'\r'] => Err(Stop::More),
        [b'\r', b'\n', ..] => Ok(2),
        [b'\n', ..] => Ok(1),
        _ => Ok(0),
    }
}

fn skip_empty_lines(window: &[u8]) -> Result<usize, Stop> {
    let mut start = 0;
    loop {
        match window.get(start..).unwrap_or_default() {
            [] | [b'\r'] => return Err(Stop::More),
            [b'\r', b'\n', ..] if start == 2 * EMPTY_LINES_MAX => {
                return Err(HeadError::EmptyLinesTooMany.into());
            }
            [b'\r', b'\n', ..] => start += 2,
            [b'\r' | b'\n', ..] => return Err(HeadError::LineBreakInvalid.into()),
            _ => return Ok(start),
        }
    }
}

/// Reads field lines from `at` on into the index and says where the head ends.
fn fields(
    block: &[u8],
    mut at: usize,
    limits: &HeadLimits,
    index: &mut HeadIndex,
    summary: &mut Summary,
    ends: LineEnds,
) -> Result<usize, Stop> {
    let mut left = limits.fields_max;
    loop {
        if let Some(b'\r' | b'\n') = block.get(at) {
            return line_end(block, at, ends, HeadError::LineBreakInvalid);
        }
        let (field, next) = field_in(block, at, ends, &mut index.has_unusual_names)?;
        left = left.checked_sub(1).ok_or(HeadError::FieldsTooMany)?;
        at = next;
        match field.known {
            Known::Host => {
                summary.is_host_repeated |= summary.host.is_some();
                summary.host = Some(field.value());
            }
            Known::ContentLength => {
                summary.is_content_length_repeated |= summary.content_length.is_some();
                summary.content_length = Some(field.value());
            }
            Known::Expect => summary.expect = Some(field.value()),
            known if known.is_hop_by_hop() => {
                index.hop_by_hop.push(field);
                continue;
            }
            _ => {}
        }
        index.push(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        request_line_bytes_max: 20,
        head_bytes_max: 64,
        fields_max: 3,
        slashes: Slashes::Keep,
    };

    fn length(input: &str, limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        let mut index = HeadIndex::default();
        let head = decode_request(input.as_bytes(), &mut Scan::default(), limits, &mut index);
        head.map(|head| head.map(|(_, len)| len))
    }

    #[test]
    fn a_request_line_may_be_as_long_as_its_limit() {
        let of_20 = "GET /234567 HTTP/1.1\r\n";
        assert_eq!(of_20.len(), 22);
        let longer = of_20.replace("/234567", "/2345678");
        let fields = "Host: a\r\n\r\n";
        assert_eq!(length(&format!("{of_20}{fields}"), &LIMITS), Ok(Some(33)));
        assert_eq!(length(of_20, &LIMITS), Ok(None));
        assert_eq!(length(&format!("\r\n{of_20}{fields}"), &LIMITS), Ok(Some(35)));
        assert_eq!(length(&format!("{longer}{fields}"), &LIMITS), Err(HeadError::LineTooLong));
        // The error is found before the line ends.
        assert_eq!(length(&longer[..22], &LIMITS), Err(HeadError::LineTooLong));
        assert_eq!(length(&"A".repeat(21), &LIMITS), Ok(None));
        assert_eq!(length(&"A".repeat(22), &LIMITS), Err(HeadError::LineTooLong));
    }

    #[test]
    fn a_head_may_be_as_long_as_its_limit() {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        for (value_len, expected) in [(32, Ok(Some(64))), (33, Err(HeadError::HeadTooLarge))] {
            let head = format!("{start}{}\r\n\r\n", "y".repeat(value_len));
            assert_eq!(length(&head, &LIMITS), expected);
        }
        // Whatever follows: a head that fills the limit without an end is too long.
        let endless = format!("{start}{}", "y".repeat(100));
        assert_eq!(length(&endless[..63], &LIMITS), Ok(None));
        assert_eq!(length(&endless[..64], &LIMITS), Err(HeadError::HeadTooLarge));
        assert_eq!(length(&endless, &LIMITS), Err(HeadError::HeadTooLarge));
    }

    #[test]
    fn a_head_may_have_as_many_fields_as_its_limit() {
        let start = "GET / HTTP/1.1\r\nHost: a\r\n";
        // Fields that go no further count too.
        assert_eq!(length(&format!("{start}TE: a\r\nX: 1\r\n\r\n"), &LIMITS), Ok(Some(40)));
        let more = format!("{start}TE: a\r\nX: 1\r\nY: 2\r\n\r\n");
        assert_eq!(length(&more, &LIMITS), Err(HeadError::FieldsTooMany));
        assert_eq!(HeadError::FieldsTooMany.kind(), super::super::HeadErrorKind::TooLarge);
    }

    #[test]
    fn what_cannot_become_a_request_is_refused_at_its_first_octet() {
        for (input, error) in [
            ("\u{16}", HeadError::MethodInvalid),
            ("\u{0}", HeadError::MethodInvalid),
            ("\n", HeadError::LineBreakInvalid),
            ("GET\t", HeadError::MethodInvalid),
            ("GET  ", HeadError::RequestLineInvalid),
            ("GET /\t", HeadError::RequestLineInvalid),
            ("GET / G", HeadError::VersionInvalid),
            ("GET / HTTP/1.1\n", HeadError::LineBreakInvalid),
            ("GET / HTTP/1.1\rx", HeadError::LineBreakInvalid),
            ("GET / HTTP/1.1x", HeadError::RequestLineInvalid),
            ("GET / HTTP/1.1\r\n ", HeadError::LineFolded),
            ("GET / HTTP/1.1\r\nA ", HeadError::FieldSpaceBeforeColon),
            ("GET / HTTP/1.1\r\nA: \u{0}", HeadError::FieldValueInvalid),
        ] {
            let input = input.as_bytes();
            for len in 0..input.len() {
                let short = std::str::from_utf8(&input[..len]).unwrap();
                assert_eq!(length(short, &LIMITS), Ok(None), "{short:?}");
            }
            let text = std::str::from_utf8(input).unwrap();
            assert_eq!(length(text, &LIMITS), Err(error), "{text:?}");
        }
    }

    #[test]
    fn storage_is_used_again() {
        let input =
            b"GET /%61 HTTP/1.1\r\nHost: A\r\nConnection: x\r\nX: 1\r\nTE: trailers\r\n\r\n";
        let wide = HeadLimits { head_bytes_max: 1000, fields_max: 10, ..LIMITS };
        let mut index = HeadIndex::default();
        let mut storage = None;
        for _ in 0..3 {
            decode_request(input, &mut Scan::default(), &wide, &mut index).unwrap().unwrap();
            let now = (
                index.fields.as_ptr(),
                index.hop_by_hop.as_ptr(),
                index.added.as_ptr(),
                index.fields.capacity(),
                index.hop_by_hop.capacity(),
                index.added.capacity(),
            );
            assert_eq!(*storage.get_or_insert(now), now);
        }
    }

    #[test]
    fn a_head_leaves_nothing_to_the_next_on_its_connection() {
        let input = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n";
        let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
        assert!(decode_request(&input[..20], &mut scan, &LIMITS, &mut index).unwrap().is_none());
        let (head, len) = decode_request(input, &mut scan, &LIMITS, &mut index).unwrap().unwrap();
        assert_eq!((head.host(), head.persistent()), (&b"a"[..], false));
        assert_eq!(scan, Scan::default());
        let (head, rest) =
            decode_request(&input[len..], &mut scan, &LIMITS, &mut index).unwrap().unwrap();
        assert_eq!((head.host(), head.persistent()), (&b"b"[..], true));
        assert_eq!(len + rest, input.len());
    }
}
