//! Request lines and status lines (RFC 9112, sections 3 and 4).

use super::error::{HeadError, Stop};
use super::field_line::line_end;
use super::parsing::{CODE_SPACES_MAX, LineEnds, Parsing};
use super::target::TargetScan;
use crate::head::{HeadIndex, Method, Span, Version};
use crate::octets;
use crate::path::Slashes;

/// Reads the request line and says where the fields begin.
pub(super) fn request_line(
    line: &[u8],
    slashes: Slashes,
    index: &mut HeadIndex,
) -> Result<usize, Stop> {
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
    target.resolve(line, target_start, method, slashes, index)?;
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

/// The error of `rest`, which is not a supported version.
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

/// Reads the status line and says where the fields begin, and what ends their lines.
///
/// The space behind the code may be missing along with the reason, as some servers have it: there
/// is only one way to read that.
pub(super) fn status_line(
    block: &[u8],
    index: &mut HeadIndex,
    parsing: Parsing,
) -> Result<(usize, LineEnds), Stop> {
    let (version, version_end) = match block.first_chunk::<9>() {
        Some(b"HTTP/1.1 ") => (Version::Http11, 9),
        Some(b"HTTP/1.0 ") => (Version::Http10, 9),
        _ => return Err(other_status_version(block)),
    };
    let spaces_max = match parsing {
        Parsing::Strict => 1,
        Parsing::Tolerant => CODE_SPACES_MAX,
    };
    let behind = block.get(version_end..).unwrap_or_default();
    let more = behind.iter().take(spaces_max - 1).take_while(|octet| **octet == b' ').count();
    let code_start = version_end + more;
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
        Some(b'\r' | b'\n') => (code_end, false),
        Some(_) => return Err(HeadError::StatusLineInvalid.into()),
    };
    let reason_end = octets::value_end(block, reason_start);
    let ends = LineEnds::of(block.get(reason_end), parsing);
    let fields_start = line_end(block, reason_end, ends, HeadError::StatusLineInvalid)?;
    let facts = &mut index.response;
    facts.status = status;
    facts.version = version;
    facts.reason = Span::block(reason_start, reason_end);
    let is_plain = has_space && more == 0 && ends == LineEnds::CrLf;
    facts.line_end = is_plain.then(|| octets::narrow(fields_start));
    Ok((fields_start, ends))
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
