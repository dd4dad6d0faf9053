//! Base64 (RFC 4648, section 4) of a stream: cut anywhere, and padded anywhere between groups.
//!
//! Padding does not end a stream: a sender that flushes pads, and continues with a new group
//! (PROTOCOL-WEB, text-encoded streams). Decoding is strict otherwise, so that a body can be read
//! in one way only.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::buffer::Buffer;

/// Why a body is not base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// A character that stands for nothing; white space and line ends too.
    #[error("a character that is not of base64")]
    CharacterInvalid,
    /// The body ended within a group of four characters.
    #[error("a body that ends within four characters of base64")]
    GroupCut,
    /// Padding with nothing before it to be padded, or too little of it.
    #[error("padding out of place")]
    PaddingInvalid,
    /// Characters before padding that say more than fits the octets they stand for.
    #[error("non-zero bits in the base64 padding")]
    PaddingLosesBits,
}

/// Decodes base64.
///
/// An octet is written as soon as it is complete, with each character of a group but the first.
///
/// ```text
///  Start ──► One ──► Two ──► Three ──► Start
///                     │        └─ = ─► Start
///                     └─ = ─► Padding ─ = ─► Start
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Decoder {
    group: Group,
}

impl Decoder {
    /// Writes the octets that `input` completes, at most one for each character. An error is for
    /// good; what came before it is written.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut Buffer) -> Result<(), TextError> {
        let mut rest = input;
        loop {
            if self.group == Group::Start {
                rest = decode_whole_groups(rest, out);
            }
            let Some((&character, behind)) = rest.split_first() else {
                return Ok(());
            };
            let (group, octet) = self.group.on_character(character)?;
            self.group = group;
            if let Some(octet) = octet {
                out.push(&[octet]);
            }
            rest = behind;
        }
    }

    /// Whether the characters so far are whole groups.
    pub(super) fn on_eof(&self) -> Result<(), TextError> {
        if self.group == Group::Start { Ok(()) } else { Err(TextError::GroupCut) }
    }
}

/// Where in a group of four characters the decoder is, and the bits that are not written yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Group {
    #[default]
    Start,
    /// Behind one character, of six bits.
    One { bits: u8 },
    /// Behind two; four bits are left.
    Two { bits: u8 },
    /// Behind three; two bits are left.
    Three { bits: u8 },
    /// Behind the first of two `=`.
    Padding,
}

impl Group {
    /// The step that one character makes, and the octet that it completes.
    fn on_character(self, character: u8) -> Result<(Self, Option<u8>), TextError> {
        if character == b'=' {
            return match self {
                Self::Start | Self::One { .. } => Err(TextError::PaddingInvalid),
                Self::Two { bits: 0 } => Ok((Self::Padding, None)),
                Self::Three { bits: 0 } | Self::Padding => Ok((Self::Start, None)),
                Self::Two { .. } | Self::Three { .. } => Err(TextError::PaddingLosesBits),
            };
        }
        let value = value(character);
        if value == NO_VALUE {
            return Err(TextError::CharacterInvalid);
        }
        match self {
            Self::Start => Ok((Self::One { bits: value }, None)),
            Self::One { bits } => {
                Ok((Self::Two { bits: value & 0xf }, Some(bits << 2 | value >> 4)))
            }
            Self::Two { bits } => {
                Ok((Self::Three { bits: value & 0x3 }, Some(bits << 4 | value >> 2)))
            }
            Self::Three { bits } => Ok((Self::Start, Some(bits << 6 | value))),
            Self::Padding => Err(TextError::PaddingInvalid),
        }
    }
}

/// Decodes groups without padding, and says what is behind them.
fn decode_whole_groups<'i>(input: &'i [u8], out: &mut Buffer) -> &'i [u8] {
    let mut groups = 0;
    let room = out.spare_mut().as_chunks_mut::<3>().0;
    for (characters, octets) in input.as_chunks::<4>().0.iter().zip(room) {
        let values = characters.map(value);
        if values.contains(&NO_VALUE) {
            break;
        }
        let bits = values.iter().fold(0, |bits, &value| bits << 6 | u32::from(value));
        let [_, a, b, c] = bits.to_be_bytes();
        *octets = [a, b, c];
        groups += 1;
    }
    out.advance(groups * 3);
    input.get(groups * 4..).unwrap_or_default()
}

/// Encodes base64, and keeps octets that do not fill a group yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Encoder {
    kept: Kept,
}

/// Octets of a group that is not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Kept {
    #[default]
    None,
    One(u8),
    Two(u8, u8),
}

impl Encoder {
    /// Writes the groups that `data` completes.
    pub(super) fn encode(&mut self, data: &[u8], out: &mut Buffer) {
        let rest = self.complete(data, out);
        let (whole, tail) = rest.as_chunks::<3>();
        for (octets, characters) in whole.iter().zip(out.spare_mut().as_chunks_mut::<4>().0) {
            *characters = group(*octets);
        }
        out.advance(whole.len() * 4);
        match *tail {
            [a] => self.kept = Kept::One(a),
            [a, b] => self.kept = Kept::Two(a, b),
            _ => {}
        }
    }

    /// Completes the group that was begun, as far as `data` reaches, and says what is left of it.
    fn complete<'d>(&mut self, data: &'d [u8], out: &mut Buffer) -> &'d [u8] {
        match (self.kept, data) {
            (Kept::One(a), &[b, c, ref rest @ ..]) | (Kept::Two(a, b), &[c, ref rest @ ..]) => {
                out.push(&group([a, b, c]));
                self.kept = Kept::None;
                rest
            }
            (Kept::One(a), [b]) => {
                self.kept = Kept::Two(a, *b);
                &[]
            }
            _ => data,
        }
    }

    /// Writes what was kept, padded.
    pub(super) fn flush(&mut self, out: &mut Buffer) {
        match self.kept {
            Kept::None => {}
            Kept::One(a) => {
                let [first, second, ..] = group([a, 0, 0]);
                out.push(&[first, second, b'=', b'=']);
            }
            Kept::Two(a, b) => {
                let [first, second, third, _] = group([a, b, 0]);
                out.push(&[first, second, third, b'=']);
            }
        }
        self.kept = Kept::None;
    }
}

/// Four characters for three octets.
#[inline]
fn group([a, b, c]: [u8; 3]) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, a, b, c]);
    [18, 12, 6, 0].map(|shift| {
        let value = (bits >> shift & 0x3f) as usize;
        ALPHABET.get(value).copied().unwrap_or_default()
    })
}

/// The six bits that a character stands for, or [`NO_VALUE`].
#[inline]
fn value(character: u8) -> u8 {
    VALUES.get(usize::from(character)).copied().unwrap_or(NO_VALUE)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const NO_VALUE: u8 = 0xff;

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static VALUES: [u8; 256] = {
    let mut table = [NO_VALUE; 256];
    let mut value = 0;
    while value < 64 {
        table[ALPHABET[value as usize] as usize] = value;
        value += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of decoding `text`, cut at `cut`.
    fn decoded(text: &[u8], cut: usize) -> (Vec<u8>, Result<(), TextError>) {
        let mut decoder = Decoder::default();
        let mut out = Buffer::new(text.len());
        let (front, back) = text.split_at(cut);
        let result = decoder
            .decode(front, &mut out)
            .and_then(|()| decoder.decode(back, &mut out))
            .and_then(|()| decoder.on_eof());
        (out.filled().to_vec(), result)
    }

    #[test]
    fn the_examples_of_the_rfc_hold_wherever_they_are_cut() {
        // RFC 4648, section 10.
        for (octets, text) in [
            (&b""[..], &b""[..]),
            (b"f", b"Zg=="),
            (b"fo", b"Zm8="),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg=="),
            (b"fooba", b"Zm9vYmE="),
            (b"foobar", b"Zm9vYmFy"),
            (b"\xfb\xff\xfe\0", b"+//+AA=="),
        ] {
            for cut in 0..=text.len() {
                assert_eq!(decoded(text, cut), (octets.to_vec(), Ok(())), "{cut}");
            }
            for cut in 0..=octets.len() {
                let (front, back) = octets.split_at(cut);
                let mut encoder = Encoder::default();
                let mut out = Buffer::new(text.len());
                encoder.encode(front, &mut out);
                encoder.encode(back, &mut out);
                encoder.flush(&mut out);
                assert_eq!(
                    out.filled().escape_ascii().to_string(),
                    text.escape_ascii().to_string()
                );
                assert_eq!(encoder, Encoder::default(), "nothing is kept behind a flush");
            }
        }
    }

    #[test]
    fn padding_may_be_followed_by_more() {
        for cut in 0..=16 {
            assert_eq!(decoded(b"Zg==Zm8=Zg==Zm9v", cut), (b"ffoffoo".to_vec(), Ok(())));
        }
    }

    #[test]
    fn what_is_not_base64_is_refused_wherever_it_is_cut() {
        for (text, octets, error) in [
            (&b"Z"[..], &b""[..], TextError::GroupCut),
            (b"Zg", b"f", TextError::GroupCut),
            (b"Zg=", b"f", TextError::GroupCut),
            (b"Zm9", b"fo", TextError::GroupCut),
            (b"Zm9vZm8", b"foofo", TextError::GroupCut),
            (b"=", b"", TextError::PaddingInvalid),
            (b"Z===", b"", TextError::PaddingInvalid),
            (b"Zm9v=", b"foo", TextError::PaddingInvalid),
            (b"Zg===", b"f", TextError::PaddingInvalid),
            (b"Zg=v", b"f", TextError::PaddingInvalid),
            (b"Zm8==", b"fo", TextError::PaddingInvalid),
            (b"Zh==", b"f", TextError::PaddingLosesBits),
            (b"Zm9=", b"fo", TextError::PaddingLosesBits),
            (b"Zm9v Zm9v", b"foo", TextError::CharacterInvalid),
            (b"Zm9v\r\nZm9v", b"foo", TextError::CharacterInvalid),
            (b"Zm-_", b"f", TextError::CharacterInvalid),
            (b"Zg=\n", b"f", TextError::CharacterInvalid),
            (b"Zm9v\0AAA", b"foo", TextError::CharacterInvalid),
            (b"\xff", b"", TextError::CharacterInvalid),
        ] {
            for cut in 0..=text.len() {
                let expected = (octets.to_vec(), Err(error));
                assert_eq!(decoded(text, cut), expected, "{} at {cut}", text.escape_ascii());
            }
        }
    }
}
