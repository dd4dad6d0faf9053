//! Heads: bytes ⇒ [`RequestHead`], [`ResponseHead`].
//!
//! One pass from left to right, and the first octet that is wrong decides the error, so that the
//! verdict on a head does not depend on how it was cut into pieces. What needs the whole head
//! (its framing, its host) is judged at its end.

use serde::{Deserialize, Serialize};

use super::error::{HeadError, Stop};
use super::field_line::{field, line_end};
use super::meaning::{Summary, finish_request, finish_response};
use super::scan::Scan;
use super::start_line::{request_line, status_line};
use crate::head::{Head, HeadIndex, Known, Method, RequestHead, ResponseHead};

/// Bounds on a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadLimits {
    /// Bytes of a request line, without its line end. Status lines have no bound of their own.
    pub request_line_bytes_max: u32,
    /// Bytes of a head, from the first that came to its last line end. A buffer of this capacity
    /// can hold every head that is accepted.
    pub head_bytes_max: u32,
    /// Fields of a head.
    pub fields_max: u16,
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
    if !scan.is_due(input) {
        return Ok(None);
    }
    index.clear();
    let result = response(window(input, limits), limits, index, to);
    conclude(result, input, scan, limits, &[limits.head_bytes_max as usize], index)
}

/// Nothing behind `head_bytes_max` has a say.
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
    let fields_start = match request_line(line_window, index) {
        Err(Stop::More) if block.len() >= line_max => return Err(HeadError::LineTooLong.into()),
        result => result?,
    };

    let mut summary = Summary::default();
    let end = fields(block, fields_start, limits, index, &mut summary)?;
    let block = block.get(..end).unwrap_or_default();
    finish_request(block, index, &summary)?;
    Ok(Extent { start, end: start + end })
}

fn response(
    window: &[u8],
    limits: &HeadLimits,
    index: &mut HeadIndex,
    to: Method,
) -> Result<Extent, Stop> {
    let fields_start = status_line(window, index)?;
    let mut summary = Summary::default();
    let end = fields(window, fields_start, limits, index, &mut summary)?;
    let block = window.get(..end).unwrap_or_default();
    finish_response(block, index, &summary, to)?;
    Ok(Extent { start: 0, end })
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
) -> Result<usize, Stop> {
    let mut left = limits.fields_max;
    loop {
        if block.get(at) == Some(&b'\r') {
            return line_end(block, at, HeadError::LineBreakInvalid);
        }
        let (field, next) = field(block, at)?;
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
        index.fields.push(field);
    }
}
