//! Integers with a prefix (RFC 7541, section 5.1).

use super::HpackError;
use crate::buffer::Buffer;

/// Octets behind the prefix. Four hold any length that a block may have.
const OCTETS_MAX: u32 = 4;

/// Reads an integer with a prefix of `bits` from the front of `input`.
#[inline]
pub(super) fn decode(input: &mut &[u8], bits: u32) -> Result<u32, HpackError> {
    let (&first, rest) = input.split_first().ok_or(HpackError::Truncated)?;
    *input = rest;
    let prefix_max = (1u32 << bits) - 1;
    let prefix = u32::from(first) & prefix_max;
    if prefix < prefix_max { Ok(prefix) } else { decode_rest(input, prefix) }
}

fn decode_rest(input: &mut &[u8], prefix: u32) -> Result<u32, HpackError> {
    let mut value = prefix;
    for place in 0..OCTETS_MAX {
        let (&octet, rest) = input.split_first().ok_or(HpackError::Truncated)?;
        *input = rest;
        // Below 2^28 + 2^8 after the last octet: no overflow.
        value += u32::from(octet & 0x7f) << (7 * place);
        if octet & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(HpackError::IntegerTooLarge)
}

/// Writes `value` with a prefix of `bits`, behind the `pattern` in the bits above.
#[inline]
pub(super) fn encode(value: u32, bits: u32, pattern: u8, out: &mut Buffer) {
    let prefix_max = (1u32 << bits) - 1;
    if value < prefix_max {
        out.push(&[pattern | low_octet(value)]);
        return;
    }
    out.push(&[pattern | low_octet(prefix_max)]);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(&[low_octet(rest) | 0x80]);
        rest >>= 7;
    }
    out.push(&[low_octet(rest)]);
}

#[expect(clippy::cast_possible_truncation, reason = "the low octet is what is asked for")]
fn low_octet(value: u32) -> u8 {
    value as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_understood_and_written() {
        // RFC 7541, appendix C.1.
        for (bits, value, bytes) in
            [(5, 10, &[0x0a][..]), (5, 1337, &[0x1f, 0x9a, 0x0a]), (8, 42, &[0x2a])]
        {
            let mut input = bytes;
            assert_eq!(decode(&mut input, bits), Ok(value));
            assert!(input.is_empty());
            let mut out = Buffer::new(8);
            encode(value, bits, 0, &mut out);
            assert_eq!(out.filled(), bytes);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for bits in 4..=7 {
            for value in (0..300).chain([16_383, 16_384, 65_535, 1 << 21, (1 << 28) - 1]) {
                let mut out = Buffer::new(8);
                encode(value, bits, 0, &mut out);
                out.push(b"x");
                let mut input = out.filled();
                assert_eq!(decode(&mut input, bits), Ok(value), "{bits} bits");
                assert_eq!(input, b"x");
            }
        }
    }

    #[test]
    fn endless_integers_are_refused() {
        for (bytes, error) in [
            (&b""[..], HpackError::Truncated),
            (b"\xff", HpackError::Truncated),
            (b"\xff\x80", HpackError::Truncated),
            (b"\xff\xff\xff\xff\xff\x0f", HpackError::IntegerTooLarge),
            (b"\xff\x80\x80\x80\x80\x00", HpackError::IntegerTooLarge),
        ] {
            assert_eq!(decode(&mut { bytes }, 7), Err(error), "{bytes:?}");
        }
    }
}
