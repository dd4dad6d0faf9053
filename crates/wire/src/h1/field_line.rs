//! Field lines (RFC 9112, section 5), of heads and of trailer sections.

use super::error::{HeadError, Stop};
use super::parsing::LineEnds;
use crate::head::{FieldEntry, Known, Spelling, lookalike};
use crate::octets::{self, NameScan};

/// The values of the fields of a valid section that have this name, in any case.
pub fn field_values<'s>(section: &'s [u8], name: &'s [u8]) -> impl Iterator<Item = &'s [u8]> {
    let mut at = 0;
    let fields = std::iter::from_fn(move || {
        let (entry, next) = field(section, at).ok()?;
        at = next;
        Some(entry)
    });
    let named = fields.filter(move |it| it.name().of(section).eq_ignore_ascii_case(name));
    named.map(|entry| entry.value().of(section))
}

/// Reads the field line at `at` and says where the next line begins.
#[inline]
pub(crate) fn field(block: &[u8], at: usize) -> Result<(FieldEntry, usize), Stop> {
    field_in(block, at, LineEnds::CrLf, &mut false)
}

/// As [`field`], of a line that ends so. `has_unusual` is set if a service may read the name as
/// another's.
#[inline]
pub(super) fn field_in(
    block: &[u8],
    at: usize,
    ends: LineEnds,
    has_unusual: &mut bool,
) -> Result<(FieldEntry, usize), Stop> {
    let (known, name_end) = name(block, at, has_unusual)?;
    let mut value_start = name_end + 1;
    while let Some(b' ' | b'\t') = block.get(value_start) {
        value_start += 1;
    }
    let text_end = octets::value_end(block, value_start);
    let next = line_end(block, text_end, ends, HeadError::FieldValueInvalid)?;
    let mut value_end = text_end;
    while value_end > value_start && matches!(block.get(value_end - 1), Some(b' ' | b'\t')) {
        value_end -= 1;
    }
    // A line that ends in a bare LF is rewritten.
    let is_canonical = value_end == text_end
        && ends == LineEnds::CrLf
        && match value_start - name_end {
            1 => true,
            2 => block.get(name_end + 1) == Some(&b' '),
            _ => false,
        };
    let entry = FieldEntry {
        name_start: octets::narrow(at),
        value_start: octets::narrow(value_start),
        value_len: octets::narrow(value_end - value_start),
        name_len: u16::try_from(name_end - at).map_err(|_| HeadError::HeadTooLarge)?,
        known,
        spelling: if is_canonical { Spelling::Canonical } else { Spelling::Spaced },
    };
    Ok((entry, next))
}

/// Reads the name at `at` up to its colon.
#[inline]
fn name(block: &[u8], at: usize, has_unusual: &mut bool) -> Result<(Known, usize), Stop> {
    // A name of the table is a token, whatever else may be wrong further on.
    if let Some(colon) = octets::find(block, at, b':') {
        let name = block.get(at..colon).unwrap_or_default();
        let known = Known::from_name(name);
        if known != Known::Other {
            return Ok((known, colon));
        }
        let scan = NameScan::new(name);
        if scan.is_token() {
            *has_unusual |= lookalike::is_unusual(name, scan);
            return Ok((known, colon));
        }
    }
    let end = octets::token_end(block, at);
    match block.get(end) {
        None => Err(Stop::More),
        Some(&octet) => Err(name_error(octet, end > at).into()),
    }
}

/// The error of a name that ends with `octet`.
#[cold]
fn name_error(octet: u8, has_begun: bool) -> HeadError {
    match octet {
        b' ' | b'\t' if has_begun => HeadError::FieldSpaceBeforeColon,
        b' ' | b'\t' => HeadError::LineFolded,
        b'\r' | b'\n' if !has_begun => HeadError::LineBreakInvalid,
        _ => HeadError::FieldNameInvalid,
    }
}

/// Reads the line end at `at` and says where the next line begins. Anything but a CR or LF there is
/// `otherwise`.
#[inline]
pub(super) fn line_end(
    block: &[u8],
    at: usize,
    ends: LineEnds,
    otherwise: HeadError,
) -> Result<usize, Stop> {
    match (block.get(at..).unwrap_or_default(), ends) {
        ([b'\r', b'\n', ..], LineEnds::CrLf) => Ok(at + 2),
        ([b'\n', ..], LineEnds::Lf) => Ok(at + 1),
        ([], _) | ([b'\r'], LineEnds::CrLf) => Err(Stop::More),
        ([b'\r' | b'\n', ..], _) => Err(HeadError::LineBreakInvalid.into()),
        _ => Err(otherwise.into()),
    }
}
