//! HPACK (RFC 7541): header blocks ⇒ fields, and back.
//!
//! A field is handled as the line that it becomes in a head, `name: value` and a line end, from
//! the table on: whatever an index refers to is copied to the head in one piece. What a name
//! means, and whether name and value are valid, is found out once, when a field comes as a
//! literal, and remembered next to it in the table. So an indexed field costs a look-up and a
//! copy, however often it comes. So is the white space around a value, which is none of it: it is
//! trimmed when the literal comes, and the table still counts it, as the peer does.
//!
//! Both tables are plain data. They own no storage until something is entered.

mod decoder;
mod encoder;
mod fixed;
mod huffman;
mod integer;
mod table;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use decoder::{Decoder, Fields};
pub use encoder::{Encoder, Secrecy};

use crate::head::Known;
use crate::octets;

/// The size of a table before any SETTINGS (RFC 9113, section 6.5.2).
pub const TABLE_BYTES_DEFAULT: u32 = 4096;

/// A decoded field, as a line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// `name: value\r\n`
    pub(crate) bytes: &'a [u8],
    pub(crate) name_len: usize,
    pub(crate) name: Name,
    pub(crate) is_value_valid: bool,
    pub(crate) secrecy: Secrecy,
}

/// The separators of name and value in a line.
pub(crate) const COLON: &[u8] = b": ";
pub(crate) const LINE_END: &[u8] = b"\r\n";
const AROUND_LEN: usize = COLON.len() + LINE_END.len();

impl<'a> Line<'a> {
    /// The name, as it was received.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.bytes.get(..self.name_len).unwrap_or_default()
    }

    /// The value, as it was received.
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        let start = self.name_len + COLON.len();
        let end = self.bytes.len().saturating_sub(LINE_END.len());
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Whether it must not be entered into any table on the way (RFC 7541, section 7.1.3).
    #[must_use]
    pub fn secrecy(&self) -> Secrecy {
        self.secrecy
    }
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Name {
    /// It begins with a colon.
    Pseudo(Pseudo),
    /// A token in lower case.
    Field(Known),
    /// Not a token, or not in lower case.
    Invalid,
}

/// A pseudo field (RFC 9113, section 8.3, and RFC 8441, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pseudo {
    Authority,
    Method,
    Path,
    Protocol,
    Scheme,
    Status,
    Unknown,
}

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        if name.first() == Some(&b':') {
            return Self::Pseudo(Pseudo::new(name));
        }
        match Known::from_name(name) {
            Known::Other if is_lower_case_token(name) => Self::Field(Known::Other),
            Known::Other => Self::Invalid,
            known if name == known.name() => Self::Field(known),
            _ => Self::Invalid,
        }
    }
}

impl Pseudo {
    fn new(name: &[u8]) -> Self {
        match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            _ => Self::Unknown,
        }
    }
}

fn is_lower_case_token(name: &[u8]) -> bool {
    octets::NameScan::new(name).is_lower_case_token()
}

/// RFC 9113, section 8.2.1, and no other control either: heads go on in HTTP/1 too.
///
/// White space around a field's value was trimmed before (RFC 9110, section 5.5), so that only
/// pseudo fields can have it: a path or a method with a blank at an end is none.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
    octets::value_end(value, 0) == value.len()
        && !is_blank(value.first())
        && !is_blank(value.last())
}

/// Why a header block cannot be decoded. Nothing that follows it can be either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum HpackError {
    /// A string in the Huffman code that holds its end symbol, or is not padded as it must be.
    #[error("a string that is not in the Huffman code")]
    HuffmanInvalid,
    /// An index that no entry has.
    #[error("an index without an entry")]
    IndexInvalid,
    /// An integer of more octets than any that is needed.
    #[error("an integer out of range")]
    IntegerTooLarge,
    /// A change of the table's size behind a field.
    #[error("a table size update that is not at the start of its block")]
    SizeUpdateMisplaced,
    /// The table was to shrink, and the block does not say that it has.
    #[error("a table size update is missing")]
    SizeUpdateMissing,
    /// A table larger than what was allowed.
    #[error("a table larger than allowed")]
    SizeUpdateTooLarge,
    /// The block ends within a field.
    #[error("a header block that ends within a field")]
    Truncated,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified_once() {
        for (name, expected) in [
            (":path", Name::Pseudo(Pseudo::Path)),
            (":protocol", Name::Pseudo(Pseudo::Protocol)),
            (":Path", Name::Pseudo(Pseudo::Unknown)),
            (":", Name::Pseudo(Pseudo::Unknown)),
            ("cookie", Name::Field(Known::Cookie)),
            ("te", Name::Field(Known::Te)),
            ("x-a", Name::Field(Known::Other)),
            ("Cookie", Name::Invalid),
            ("TE", Name::Invalid),
            ("x-A", Name::Invalid),
            ("", Name::Invalid),
            ("x a", Name::Invalid),
            ("x:", Name::Invalid),
            ("x\r\ny", Name::Invalid),
        ] {
            assert_eq!(Name::new(name.as_bytes()), expected, "{name:?}");
        }
    }

    #[test]
    fn values_are_those_that_any_version_can_carry() {
        for (value, expected) in [
            (&b""[..], true),
            (b"a b\tc", true),
            (b"\xff\x80", true),
            (b" a", false),
            (b"a ", false),
            (b"\ta", false),
            (b"a\t", false),
            (b"a\0b", false),
            (b"a\r\nb", false),
            (b"a\x7f", false),
        ] {
            assert_eq!(is_value(value), expected, "{:?}", value.escape_ascii());
        }
    }
}
