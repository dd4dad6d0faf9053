//! Classes of octets, and fast scans over them.
//!
//! Eight octets at a time in a plain 64-bit word: as fast as needed for heads of a few hundred
//! bytes (`benches/h1.rs`), the same on every machine, and without unsafe code.

/// May not stand in a token.
const NO_TOKEN: u8 = 1;
/// `_`
const UNDERSCORE: u8 = 2;
/// An upper-case letter.
const UPPER_CASE: u8 = 4;

/// The class of each octet in a token (RFC 9110, section 5.6.2).
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static TOKEN: [u8; 256] = {
    let mut table = [NO_TOKEN; 256];
    let mut octet = 0;
    while octet < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the loop ends at 255")]
        let byte = octet as u8;
        table[octet] = match byte {
            b'A'..=b'Z' => UPPER_CASE,
            b'_' => UNDERSCORE,
            b'a'..=b'z' | b'0'..=b'9' => 0,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' => 0,
            b'+' | b'-' | b'.' | b'^' | b'`' | b'|' | b'~' => 0,
            _ => NO_TOKEN,
        };
        octet += 1;
    }
    table
};

#[inline]
fn token_class(octet: u8) -> u8 {
    TOKEN.get(usize::from(octet)).copied().unwrap_or(NO_TOKEN)
}

/// The value of a hexadecimal digit, in either case.
pub(crate) const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Whether an octet may stand in a token.
#[inline]
pub(crate) fn is_token_octet(octet: u8) -> bool {
    token_class(octet) & NO_TOKEN == 0
}

/// The result of one scan over a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameScan(u8);

impl NameScan {
    #[inline]
    pub(crate) fn new(name: &[u8]) -> Self {
        let nothing = if name.is_empty() { NO_TOKEN } else { 0 };
        Self(name.iter().fold(nothing, |seen, &octet| seen | token_class(octet)))
    }

    /// Whether the name is a token: at least one octet, and only such octets.
    #[inline]
    pub(crate) const fn is_token(self) -> bool {
        self.0 & NO_TOKEN == 0
    }

    /// Whether the name is a token without upper-case letters (RFC 9113, section 8.2).
    #[inline]
    pub(crate) const fn is_lower_case_token(self) -> bool {
        self.0 & (NO_TOKEN | UPPER_CASE) == 0
    }

    /// Whether the name holds `_`.
    #[inline]
    pub(crate) const fn has_underscore(self) -> bool {
        self.0 & UNDERSCORE != 0
    }
}

/// Whether `bytes` are a token: at least one octet, and only such octets.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    NameScan::new(bytes).is_token()
}

/// The place of the first octet at or after `from` that is not of a token, or `bytes.len()`.
#[inline]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|&octet| !is_token_octet(octet)).unwrap_or(rest.len())
}

/// The place of the first `octet` at or after `from`.
#[inline]
pub(crate) fn find(bytes: &[u8], from: usize, octet: u8) -> Option<usize> {
    let mut at = from;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let without = u64::from_le_bytes(*word) ^ (ONES * u64::from(octet));
        let hits = without.wrapping_sub(ONES) & !without & TOPS;
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let tail = bytes.get(at..).unwrap_or_default();
    tail.iter().position(|&other| other == octet).map(|place| at + place)
}

/// Whether `octet` stands twice in a row.
#[inline]
pub(crate) fn has_pair(bytes: &[u8], octet: u8) -> bool {
    let pairs_at = |at: usize| {
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>);
            word.map(|word| u64::from_le_bytes(*word) ^ (ONES * u64::from(octet)))
        };
        let without = word(at)? | word(at + 1)?;
        Some(without.wrapping_sub(ONES) & !without & TOPS != 0)
    };
    // Eight pairs at a time, of nine octets; the last eight once more with what came before them.
    let Some(last) = bytes.len().checked_sub(9) else {
        return bytes.windows(2).any(|pair| pair == [octet, octet]);
    };
    let mut at = 0;
    while at < last {
        if pairs_at(at).unwrap_or_default() {
            return true;
        }
        at += 8;
    }
    pairs_at(last).unwrap_or_default()
}

/// The place of the first octet at or after `from` that may not stand in a field value, or
/// `bytes.len()`.
///
/// Refused are controls other than HTAB, and DEL; octets from 0x80 are allowed (`obs-text`).
#[inline]
pub(crate) fn value_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let hits = controls(u64::from_le_bytes(*word));
        if hits == 0 {
            at += 8;
            continue;
        }
        // The lowest hit is exact: borrows only run towards higher octets.
        at += (hits.trailing_zeros() / 8) as usize;
        if bytes.get(at) != Some(&b'\t') {
            return at;
        }
        at += 1;
    }
    let tail = bytes.get(at..).unwrap_or_default();
    at + tail.iter().position(|&octet| !is_value_octet(octet)).unwrap_or(tail.len())
}

/// Whether an octet may stand in a field value.
#[inline]
pub(crate) fn is_value_octet(octet: u8) -> bool {
    (octet >= 0x20 && octet != 0x7f) || octet == b'\t'
}

/// `bytes` without the spaces and tabs around them (`OWS`).
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, trimmed; empty ones are left out (RFC 9110, section
/// 5.6.1.2). Right for lists whose elements hold no quoted strings.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&octet| octet == b',').map(trim).filter(|element| !element.is_empty())
}

/// Offsets into a head fit 32 bits because its limit does.
#[inline]
pub(crate) fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// The top bit of each octet that is below 0x20 or is DEL; exact up to and with the lowest.
#[inline]
fn controls(word: u64) -> u64 {
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let without_del = word ^ (ONES * 0x7f);
    let del = without_del.wrapping_sub(ONES) & !without_del;
    (below_space | del) & TOPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_ends_a_value_exactly_when_it_is_a_control() {
        for octet in 0..=255u8 {
            let allowed = octet == b'\t' || (octet >= 0x20 && octet != 0x7f);
            for place in 0..20 {
                let mut bytes = *b"ab\tcdefghi\tjklmnopqr";
                bytes[place] = octet;
                let expected = if allowed { bytes.len() } else { place };
                assert_eq!(value_end(&bytes, 0), expected, "{octet:#x} at {place}");
                assert_eq!(value_end(&bytes, place), expected, "{octet:#x} from {place}");
            }
        }
    }

    #[test]
    fn an_octet_is_found_wherever_it_stands() {
        for place in 0..20 {
            let mut bytes = [b'9'; 20];
            bytes[place..].fill(b';');
            bytes[place] = b':';
            assert_eq!(find(&bytes, 0, b':'), Some(place));
            assert_eq!(find(&bytes, place, b':'), Some(place));
            assert_eq!(find(&bytes, place + 1, b':'), None);
        }
        assert_eq!(find(b"", 0, b':'), None);
    }

    #[test]
    fn a_pair_is_found_wherever_it_stands() {
        for len in 2..30 {
            let mut bytes: Vec<u8> = (0..len).map(|place| b"/.a"[place % 3]).collect();
            assert!(!has_pair(&bytes, b'/'), "{len}");
            for place in 0..len - 1 {
                let kept = bytes.clone();
                bytes[place] = b'/';
                bytes[place + 1] = b'/';
                assert!(has_pair(&bytes, b'/'), "{len} at {place}");
                bytes = kept;
            }
        }
        assert!(!has_pair(b"", b'/') && !has_pair(b"/", b'/'));
    }

    #[test]
    fn the_first_of_several_controls_is_found() {
        assert_eq!(value_end(b"abc\x00\x7f\x01\x20\x21", 0), 3);
        assert_eq!(value_end(b"\x20\x20\x7f\x00defghi", 0), 2);
        assert_eq!(value_end(b"", 0), 0);
        assert_eq!(value_end(b"abc", 3), 3);
    }

    #[test]
    fn tokens_hold_the_octets_of_the_grammar() {
        let allowed =
            b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        for octet in 0..=255u8 {
            assert_eq!(is_token_octet(octet), allowed.contains(&octet), "{octet:#x}");
        }
        assert!(!is_token(b""));
        assert!(is_token(b"x-1"));
        assert!(!is_token(b"x 1"));
        for (name, is_lower_case_token, has_underscore) in [
            ("", false, false),
            ("x-1", true, false),
            ("x_1", true, true),
            ("X_1", false, true),
            ("x 1", false, false),
            ("x\u{e9}", false, false),
        ] {
            let scan = NameScan::new(name.as_bytes());
            assert_eq!(scan.is_lower_case_token(), is_lower_case_token, "{name}");
            assert_eq!(scan.has_underscore(), has_underscore, "{name}");
        }
    }

    #[test]
    fn lists_skip_empty_elements_and_space() {
        let elements: Vec<&[u8]> = list(b" , a ,\tb,,c d ,").collect();
        assert_eq!(elements, [&b"a"[..], b"b", b"c d"]);
        assert_eq!(list(b" ").count(), 0);
    }
}
