//! Heads: bytes ⇒ [`RequestHead`], [`ResponseHead`].
//!
//! One pass from left to right, and the first octet that is wrong decides the error, so that the
//! verdict on a head does not depend on how it was cut into pieces. What needs the whole head
//! (its framing, its host) is judged at its end.

use serde::{Deserialize, Serialize};

use super::error::HeadError;
use super::scan::Scan;
use crate::head::{
    FieldEntry, Framing, Head, HeadIndex, Known, Method, Place, RequestHead, ResponseHead, Span,
    Spelling, Version,
};
use crate::host::Authority;
use crate::{octets, path};

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

/// Why reading stopped before the end of the head.
pub(super) enum Stop {
    More,
    Wrong(HeadError),
}

impl<E: Into<HeadError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Wrong(error.into())
    }
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

// The request line (RFC 9112, section 3).

/// Reads the request line and says where the fields begin.
fn request_line(line: &[u8], index: &mut HeadIndex) -> Result<usize, Stop> {
    let method_end = octets::token_end(line, 0);
    match line.get(method_end) {
        None => return Err(Stop::More),
        Some(b' ') if method_end > 0 => {}
        Some(_) => return Err(HeadError::MethodInvalid.into()),
    }
    let target_start = method_end + 1;
    let target = TargetScan::new(line, target_start)?;
    let (version, fields_start) = version(line, target.end + 1)?;

    let method_span = Span::block(0, method_end);
    let method = Method::from_bytes(line.get(..method_end).unwrap_or_default());
    let facts = &mut index.request;
    facts.method = method;
    facts.method_span = method_span;
    facts.version = version;
    facts.line_end = (version == Version::Http11).then(|| octets::narrow(fields_start));
    target.resolve(line, target_start, method, index)?;
    Ok(fields_start)
}

/// Reads a version and the line end behind it, and says where the next line begins.
#[inline]
fn version(line: &[u8], at: usize) -> Result<(Version, usize), Stop> {
    let rest = line.get(at..).unwrap_or_default();
    match rest.first_chunk::<10>() {
        Some(b"HTTP/1.1\r\n") => Ok((Version::Http11, at + 10)),
        Some(b"HTTP/1.0\r\n") => Ok((Version::Http10, at + 10)),
        _ => Err(other_version(rest)),
    }
}

/// What `rest` is if it is not a version that is spoken here.
#[cold]
fn other_version(rest: &[u8]) -> Stop {
    for (place, &octet) in rest.iter().enumerate().take(10) {
        let error = match (place, octet) {
            (5 | 7, octet) if octet.is_ascii_digit() => continue,
            (8, b'\r') | (9, b'\n') => continue,
            (8, b'\n') | (9, _) => HeadError::LineBreakInvalid,
            (8, _) => HeadError::RequestLineInvalid,
            (place, octet) if b"HTTP/_._".get(place) == Some(&octet) => continue,
            _ => HeadError::VersionInvalid,
        };
        return error.into();
    }
    if rest.len() < 10 { Stop::More } else { HeadError::VersionUnsupported.into() }
}

/// What one look over a target found.
struct TargetScan {
    end: usize,
    question: Option<usize>,
    /// Whether the part before the first `?` holds what only [`path::normalise`] can judge.
    is_suspect: bool,
}

/// Ends a target, or may not stand in one.
const STOP: u8 = 1;
/// `?`
const QUESTION: u8 = 2;
/// `%` or `\`, which make a path suspect.
const SUSPECT: u8 = 4;
/// `.`, which makes it suspect behind a slash.
const DOT: u8 = 8;

/// What each octet is in a target.
///
/// A target is made of visible ASCII. `#` is refused, because a fragment is never sent and those
/// who accept it disagree on whether it belongs to the path. Other octets that no URI holds, such
/// as `|` and `{`, are accepted as they are: browsers send them, and nobody is misled.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static TARGET: [u8; 256] = {
    let mut table = [STOP; 256];
    let mut octet = 0x21;
    while octet < 0x7f {
        table[octet] = 0;
        octet += 1;
    }
    table[b'#' as usize] = STOP;
    table[b'?' as usize] = QUESTION;
    table[b'%' as usize] = SUSPECT;
    table[b'\\' as usize] = SUSPECT;
    table[b'.' as usize] = DOT;
    table
};

fn target_class(octet: u8) -> u8 {
    TARGET.get(usize::from(octet)).copied().unwrap_or(STOP)
}

impl TargetScan {
    fn new(line: &[u8], start: usize) -> Result<Self, Stop> {
        let rest = line.get(start..).unwrap_or_default();
        let mut seen = 0;
        let path_len = rest.iter().position(|&octet| {
            let class = target_class(octet);
            seen |= class;
            class & (STOP | QUESTION) != 0
        });
        let path_len = path_len.ok_or(Stop::More)?;
        let has_dot_segment = seen & DOT != 0
            && path::has_dot_segment_start(rest.get(..path_len).unwrap_or_default());
        let is_suspect = seen & SUSPECT != 0 || has_dot_segment;

        let query_len = if seen & QUESTION == 0 {
            0
        } else {
            let query = rest.get(path_len..).unwrap_or_default();
            query.iter().position(|&octet| target_class(octet) == STOP).ok_or(Stop::More)?
        };
        let end = start + path_len + query_len;
        match line.get(end) {
            Some(b' ') if end > start => {}
            Some(b' ' | b'\t' | b'\r' | b'\n') => return Err(HeadError::RequestLineInvalid.into()),
            _ => return Err(HeadError::TargetInvalid.into()),
        }
        Ok(Self { end, question: (query_len > 0).then_some(start + path_len), is_suspect })
    }

    /// Sets path, query and, if the target names one, the host.
    fn resolve(
        &self,
        line: &[u8],
        start: usize,
        method: Method,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        let path_end = self.question.unwrap_or(self.end);
        if let Some(question) = self.question {
            index.request.query = Some(Span::block(question + 1, self.end));
        }
        match line.get(start..path_end).unwrap_or_default() {
            _ if method == Method::Connect => self.resolve_authority_form(line, start, index),
            [b'/', ..] => self.resolve_path(line, start, path_end, index),
            b"*" if method == Method::Options && self.question.is_none() => {
                index.request.path = Span::block(start, path_end);
                Ok(())
            }
            _ => self.resolve_absolute_form(line, start, path_end, method, index),
        }
    }

    fn resolve_path(
        &self,
        line: &[u8],
        start: usize,
        end: usize,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        if !self.is_suspect {
            index.request.path = Span::block(start, end);
            return Ok(());
        }
        let path = line.get(start..end).unwrap_or_default();
        let normal_start = index.added.len();
        path::normalise(path, &mut index.added)?;
        if index.added.get(normal_start..) == Some(path) {
            index.added.truncate(normal_start);
            index.request.path = Span::block(start, end);
        } else {
            index.request.path = index.added_from(normal_start);
            index.request.line_end = None;
        }
        Ok(())
    }

    fn resolve_authority_form(
        &self,
        line: &[u8],
        start: usize,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        index.request.line_end = None;
        index.request.query = None;
        resolve_authority(line, start, self.end, index)
    }

    fn resolve_absolute_form(
        &self,
        line: &[u8],
        start: usize,
        path_end: usize,
        method: Method,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        index.request.line_end = None;
        let target = line.get(start..path_end).unwrap_or_default();
        let scheme_len = SCHEMES
            .iter()
            .find(|scheme| {
                target.get(..scheme.len()).is_some_and(|front| front.eq_ignore_ascii_case(scheme))
            })
            .ok_or(HeadError::TargetInvalid)?
            .len();
        let authority_start = start + scheme_len;
        let rest = line.get(authority_start..path_end).unwrap_or_default();
        let authority_len = rest.iter().position(|&octet| octet == b'/').unwrap_or(rest.len());
        let path_start = authority_start + authority_len;
        resolve_authority(line, authority_start, path_start, index)?;
        if path_start < path_end {
            return self.resolve_path(line, path_start, path_end, index);
        }
        // RFC 9112, sections 3.2.1 and 3.2.4.
        let whole_server = method == Method::Options && self.question.is_none();
        index.request.path = index.add(if whole_server { b"*" } else { b"/" });
        Ok(())
    }
}

/// Schemes of targets in absolute form. Those of WebSocket are what some clients write where they
/// mean the ones of HTTP.
const SCHEMES: [&[u8]; 4] = [b"http://", b"https://", b"ws://", b"wss://"];

/// Takes the host from the target, which overrules `Host` (RFC 9112, section 3.2.2). Here it may
/// not be empty.
fn resolve_authority(
    line: &[u8],
    start: usize,
    end: usize,
    index: &mut HeadIndex,
) -> Result<(), HeadError> {
    let authority = line.get(start..end).unwrap_or_default();
    match Authority::parse(authority) {
        Some(Authority { host, .. }) if !host.is_empty() => {
            index.host = Span::block(start, end);
            Ok(())
        }
        _ => Err(HeadError::TargetInvalid),
    }
}

// The status line (RFC 9112, section 4).

/// Reads the status line and says where the fields begin.
///
/// The space behind the code may be missing along with the reason, as some servers have it: there
/// is only one way to read that.
fn status_line(block: &[u8], index: &mut HeadIndex) -> Result<usize, Stop> {
    let (version, code_start) = match block.first_chunk::<9>() {
        Some(b"HTTP/1.1 ") => (Version::Http11, 9),
        Some(b"HTTP/1.0 ") => (Version::Http10, 9),
        _ => return Err(other_status_version(block)),
    };
    let mut status = 0;
    for place in code_start..code_start + 3 {
        let digit = block.get(place).ok_or(Stop::More)?.wrapping_sub(b'0');
        if digit > 9 || (place == code_start && digit == 0) {
            return Err(HeadError::StatusLineInvalid.into());
        }
        status = status * 10 + u16::from(digit);
    }
    let code_end = code_start + 3;
    let (reason_start, has_space) = match block.get(code_end) {
        None => return Err(Stop::More),
        Some(b' ') => (code_end + 1, true),
        Some(b'\r') => (code_end, false),
        Some(b'\n') => return Err(HeadError::LineBreakInvalid.into()),
        Some(_) => return Err(HeadError::StatusLineInvalid.into()),
    };
    let reason_end = octets::value_end(block, reason_start);
    let fields_start = line_end(block, reason_end, HeadError::StatusLineInvalid)?;
    let facts = &mut index.response;
    facts.status = status;
    facts.version = version;
    facts.reason = Span::block(reason_start, reason_end);
    facts.line_end = has_space.then(|| octets::narrow(fields_start));
    Ok(fields_start)
}

#[cold]
fn other_status_version(block: &[u8]) -> Stop {
    for (place, &octet) in block.iter().enumerate().take(9) {
        let is_right = match place {
            5 | 7 => octet.is_ascii_digit(),
            _ => b"HTTP/_._ ".get(place) == Some(&octet),
        };
        if !is_right {
            return HeadError::VersionInvalid.into();
        }
    }
    if block.len() < 9 { Stop::More } else { HeadError::VersionUnsupported.into() }
}

// Fields (RFC 9112, section 5).

/// What was seen of the fields that decide about a message as a whole.
#[derive(Default)]
struct Summary {
    host: Option<Span>,
    is_host_repeated: bool,
    content_length: Option<Span>,
    is_content_length_repeated: bool,
    expect: Option<Span>,
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

/// Reads the field line at `at` and says where the next line begins.
#[inline]
pub(super) fn field(block: &[u8], at: usize) -> Result<(FieldEntry, usize), Stop> {
    let name_end = octets::token_end(block, at);
    match block.get(name_end) {
        None => return Err(Stop::More),
        Some(b':') if name_end > at => {}
        Some(&octet) => return Err(name_error(octet, name_end > at).into()),
    }
    let mut value_start = name_end + 1;
    while let Some(b' ' | b'\t') = block.get(value_start) {
        value_start += 1;
    }
    let text_end = octets::value_end(block, value_start);
    let next = line_end(block, text_end, HeadError::FieldValueInvalid)?;
    let mut value_end = text_end;
    while value_end > value_start && matches!(block.get(value_end - 1), Some(b' ' | b'\t')) {
        value_end -= 1;
    }
    let is_canonical = value_end == text_end
        && match value_start - name_end {
            1 => true,
            2 => block.get(name_end + 1) == Some(&b' '),
            _ => false,
        };
    let name = block.get(at..name_end).unwrap_or_default();
    let field = FieldEntry {
        name_start: octets::narrow(at),
        value_start: octets::narrow(value_start),
        value_len: octets::narrow(value_end - value_start),
        name_len: u16::try_from(name.len()).map_err(|_| HeadError::HeadTooLarge)?,
        known: Known::from_name(name),
        spelling: if is_canonical { Spelling::Canonical } else { Spelling::Spaced },
    };
    Ok((field, next))
}

/// What is wrong with a name that ends with `octet`.
#[cold]
fn name_error(octet: u8, has_begun: bool) -> HeadError {
    match octet {
        b' ' | b'\t' if has_begun => HeadError::FieldSpaceBeforeColon,
        b' ' | b'\t' => HeadError::LineFolded,
        b'\r' | b'\n' if !has_begun => HeadError::LineBreakInvalid,
        _ => HeadError::FieldNameInvalid,
    }
}

/// Reads the CRLF at `at` and says where the next line begins. Anything but a CR or LF there is
/// `otherwise`.
#[inline]
fn line_end(block: &[u8], at: usize, otherwise: HeadError) -> Result<usize, Stop> {
    match block.get(at..).unwrap_or_default() {
        [b'\r', b'\n', ..] => Ok(at + 2),
        [] | [b'\r'] => Err(Stop::More),
        [b'\r' | b'\n', ..] => Err(HeadError::LineBreakInvalid.into()),
        _ => Err(otherwise.into()),
    }
}

// What the fields say together.

fn finish_request(block: &[u8], index: &mut HeadIndex, summary: &Summary) -> Result<(), HeadError> {
    let version = index.request.version;
    let hop_by_hop = HopByHop::read(block, index)?;
    index.request.framing =
        declared_framing(block, version, &hop_by_hop, summary)?.unwrap_or_default();
    index.request.persistent = hop_by_hop.is_persistent(version);
    index.request.accepts_trailers = hop_by_hop.accepts_trailers && version == Version::Http11;
    index.upgrade = hop_by_hop.offered_upgrade(version);
    finish_host(block, index, summary)?;
    finish_expect(block, index, summary);
    Ok(())
}

fn finish_response(
    block: &[u8],
    index: &mut HeadIndex,
    summary: &Summary,
    to: Method,
) -> Result<(), HeadError> {
    let version = index.response.version;
    let hop_by_hop = HopByHop::read(block, index)?;
    let declared = declared_framing(block, version, &hop_by_hop, summary)?;
    // RFC 9112, section 6.3. What may not declare a length loses the field that did.
    index.response.framing = match (index.response.status, to) {
        (100..=199 | 204, _) | (200..=299, Method::Connect) => {
            let name = Known::ContentLength.name();
            index.remove_from(0, block, Known::ContentLength, name);
            Framing::None
        }
        (304, _) | (_, Method::Head) => Framing::None,
        _ => declared.unwrap_or(Framing::UntilClose),
    };
    index.response.persistent =
        hop_by_hop.is_persistent(version) && index.response.framing != Framing::UntilClose;
    index.upgrade = hop_by_hop.offered_upgrade(version);
    Ok(())
}

/// RFC 9110, section 7.2, and RFC 9112, section 3.2.
fn finish_host(block: &[u8], index: &mut HeadIndex, summary: &Summary) -> Result<(), HeadError> {
    if summary.is_host_repeated {
        return Err(HeadError::HostRepeated);
    }
    if summary.host.is_none() && index.request.version == Version::Http11 {
        return Err(HeadError::HostMissing);
    }
    let in_target = index.host;
    let in_field = summary.host.unwrap_or_default();
    if !index.on_host_set(in_field.of(block), in_field) {
        return Err(HeadError::HostInvalid);
    }
    if in_target != Span::default() && in_target.of(block) != in_field.of(block) {
        index.set(block, Known::Host, Known::Host.name(), in_target.of(block));
    }
    Ok(())
}

/// RFC 9110, section 10.1.1: HTTP/1.0 knows no expectations, and one that was ignored here must
/// not come to life in the HTTP/1.1 request that goes on.
fn finish_expect(block: &[u8], index: &mut HeadIndex, summary: &Summary) {
    let Some(expect) = summary.expect else { return };
    if index.request.version == Version::Http10 {
        index.remove_from(0, block, Known::Expect, Known::Expect.name());
    } else {
        index.request.expects_continue = expect.of(block).eq_ignore_ascii_case(b"100-continue");
    }
}

/// The framing that the fields declare, if any, on the terms of RFC 9112, section 6.
fn declared_framing(
    block: &[u8],
    version: Version,
    hop_by_hop: &HopByHop,
    summary: &Summary,
) -> Result<Option<Framing>, HeadError> {
    match (hop_by_hop.codings, summary.content_length) {
        (None, None) => Ok(None),
        (None, Some(_)) if summary.is_content_length_repeated => {
            Err(HeadError::ContentLengthRepeated)
        }
        (None, Some(length)) => content_length(length.of(block)).map(Framing::Length).map(Some),
        (Some(_), Some(_)) => Err(HeadError::ContentLengthWithTransferEncoding),
        (Some(_), None) if version == Version::Http10 => Err(HeadError::TransferEncodingInHttp10),
        (Some(Codings::Chunked), None) => Ok(Some(Framing::Chunked)),
        (Some(Codings::Invalid), None) => Err(HeadError::TransferEncodingInvalid),
        (Some(Codings::Unknown | Codings::UnknownThenChunked), None) => {
            Err(HeadError::TransferEncodingUnknown)
        }
    }
}

/// A length as digits and nothing else. It fits 63 bits, since some of those who read it after us
/// have signed integers.
fn content_length(digits: &[u8]) -> Result<u64, HeadError> {
    let length = digits.iter().try_fold(0u64, |length, &digit| {
        let value = digit.checked_sub(b'0').filter(|&value| value <= 9)?;
        length.checked_mul(10)?.checked_add(u64::from(value))
    });
    length
        .filter(|&length| !digits.is_empty() && i64::try_from(length).is_ok())
        .ok_or(HeadError::ContentLengthInvalid)
}

/// Names that one head may nominate in `Connection`, those with a meaning of their own aside. Each
/// costs a pass over the fields.
const NOMINATED_MAX: u8 = 32;

/// What the fields for the next hop only say.
#[derive(Default)]
struct HopByHop {
    has_close: bool,
    has_keep_alive: bool,
    nominates_upgrade: bool,
    accepts_trailers: bool,
    upgrade: Option<Span>,
    codings: Option<Codings>,
    nominated: u8,
}

/// The transfer codings, in order over all fields.
#[derive(Clone, Copy)]
enum Codings {
    Chunked,
    Invalid,
    Unknown,
    UnknownThenChunked,
}

impl HopByHop {
    /// Reads the fields that [`fields`] put aside, and removes those that they nominate.
    fn read(block: &[u8], index: &mut HeadIndex) -> Result<Self, HeadError> {
        let mut this = Self::default();
        let entries = std::mem::take(&mut index.hop_by_hop);
        let mut result = Ok(());
        for entry in &entries {
            let value = entry.value().of(block);
            match entry.known {
                Known::Connection if result.is_ok() => {
                    result = this.on_connection(value, block, index);
                }
                Known::Te => this.accepts_trailers |= has_trailers(value),
                Known::TransferEncoding => this.on_codings(value),
                Known::Upgrade => this.upgrade = Some(joined(this.upgrade, entry, block, index)),
                _ => {}
            }
        }
        // The storage goes back to be used again.
        index.hop_by_hop = entries;
        index.hop_by_hop.clear();
        result.map(|()| this)
    }

    fn on_connection(
        &mut self,
        value: &[u8],
        block: &[u8],
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        for option in octets::list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.has_close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.has_keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.nominates_upgrade = true;
            } else if !octets::is_token(option) {
                return Err(HeadError::ConnectionInvalid);
            } else if Known::from_name(option).is_removable_by_nomination() {
                self.nominated += 1;
                if self.nominated > NOMINATED_MAX {
                    return Err(HeadError::ConnectionInvalid);
                }
                index.remove_from(0, block, Known::Other, option);
            }
        }
        Ok(())
    }

    /// Elements are not trimmed of emptiness as other lists are: whoever reads one coding too
    /// many or too few here disagrees about where the message ends.
    fn on_codings(&mut self, value: &[u8]) {
        for coding in value.split(|&octet| octet == b',').map(octets::trim) {
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.codings = Some(match self.codings {
                _ if !octets::is_token(coding) => Codings::Invalid,
                None if is_chunked => Codings::Chunked,
                Some(Codings::Unknown) if is_chunked => Codings::UnknownThenChunked,
                None | Some(Codings::Unknown) => Codings::Unknown,
                Some(Codings::Chunked | Codings::Invalid | Codings::UnknownThenChunked) => {
                    Codings::Invalid
                }
            });
        }
    }

    /// RFC 9112, section 9.3.
    fn is_persistent(&self, version: Version) -> bool {
        !self.has_close && (version == Version::Http11 || self.has_keep_alive)
    }

    fn offered_upgrade(&self, version: Version) -> Option<Span> {
        self.upgrade.filter(|_| self.nominates_upgrade && version == Version::Http11)
    }
}

/// Whether `trailers` is among the codings of a `TE` field (RFC 9110, section 10.1.4).
fn has_trailers(value: &[u8]) -> bool {
    octets::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// The list of `before`, if any, continued by the value of `entry`.
fn joined(before: Option<Span>, entry: &FieldEntry, block: &[u8], index: &mut HeadIndex) -> Span {
    let Some(before) = before else { return entry.value() };
    let start = index.added.len();
    match before.place {
        Place::Block => index.added.extend_from_slice(before.of(block)),
        Place::Added => {
            let before = before.start as usize..(before.start + before.len) as usize;
            index.added.extend_from_within(before);
        }
    }
    index.added.extend_from_slice(b", ");
    index.added.extend_from_slice(entry.value().of(block));
    index.added_from(start)
}
