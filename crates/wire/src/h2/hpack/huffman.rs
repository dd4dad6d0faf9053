//! The Huffman code of strings (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: the lengths of its words say what the words are. So all there is to
//! write down is lengths, and the compiler makes the tables from them.

use super::HpackError;
use crate::buffer::Buffer;

/// The length of each octet's word, and last that of the end symbol, in bits.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

const LENGTH_MAX: u32 = 30;
const END_SYMBOL: u16 = 256;

/// The shortest word has five bits: no string decodes to more octets than this.
const fn decoded_len_max(len: usize) -> usize {
    len.saturating_mul(8) / 5
}

/// Appends what `input` says to `out`.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let start = out.len();
    out.resize(start + decoded_len_max(input.len()), 0);
    let room = out.get_mut(start..).unwrap_or_default();
    let written = decode_to(input, room)?;
    out.truncate(start + written);
    Ok(())
}

/// Bits that were read and not used yet, the next one on top.
struct Bits<'i> {
    word: u64,
    count: u32,
    rest: &'i [u8],
}

impl Bits<'_> {
    /// Takes in what fits, so that there are at least 56 bits while there are that many.
    ///
    /// Below the counted bits may be some of the octet that is next in `rest`; they are the same
    /// when it is taken in.
    #[inline]
    fn fill(&mut self) {
        if let Some(octets) = self.rest.first_chunk::<8>() {
            self.word |= u64::from_be_bytes(*octets) >> self.count;
            let taken = (63 - self.count) / 8;
            self.count += taken * 8;
            self.rest = self.rest.get(taken as usize..).unwrap_or_default();
            return;
        }
        while self.count <= 56 {
            let Some((&octet, rest)) = self.rest.split_first() else { return };
            self.word |= u64::from(octet) << (56 - self.count);
            self.count += 8;
            self.rest = rest;
        }
    }

    #[inline]
    fn take(&mut self, len: u32) {
        self.word <<= len;
        self.count -= len;
    }

    /// Whether what is left is padding: less than an octet, and the beginning of the end symbol.
    fn is_padding(&self) -> bool {
        self.count < 8 && self.word.leading_ones() >= self.count
    }
}

/// Writes the symbols of `input` to `out` and says how many they are.
fn decode_to(input: &[u8], out: &mut [u8]) -> Result<usize, HpackError> {
    let mut bits = Bits { word: 0, count: 0, rest: input };
    let mut slots = out.iter_mut();
    let mut written = 0;
    loop {
        bits.fill();
        // The last bits are used up; before, there are enough for the longest word.
        let is_last = bits.rest.is_empty();
        while is_last || bits.count >= LENGTH_MAX {
            let (symbol, len) = next_symbol(bits.word);
            if len > bits.count {
                break;
            }
            let symbol = u8::try_from(symbol).map_err(|_| HpackError::HuffmanInvalid)?;
            bits.take(len);
            if let Some(slot) = slots.next() {
                *slot = symbol;
            }
            written += 1;
        }
        if is_last {
            return if bits.is_padding() { Ok(written) } else { Err(HpackError::HuffmanInvalid) };
        }
    }
}

/// The symbol that `word` begins with, and the length of its code word.
#[inline]
fn next_symbol(word: u64) -> (u16, u32) {
    let front = (word >> 56) as u8;
    match SHORT.get(usize::from(front)) {
        Some(&(symbol, len)) if len > 0 => (u16::from(symbol), u32::from(len)),
        _ => long_symbol(word),
    }
}

/// [`next_symbol`] for words of more than eight bits.
#[cold]
fn long_symbol(word: u64) -> (u16, u32) {
    for row in &LONG {
        let code = word >> (64 - row.len);
        if let Some(place) = code.checked_sub(row.first)
            && place < row.count
        {
            let at = usize::from(row.start) + usize::try_from(place).unwrap_or_default();
            return (SORTED.get(at).copied().unwrap_or(END_SYMBOL), row.len);
        }
    }
    (END_SYMBOL, LENGTH_MAX)
}

/// How many octets [`encode`] writes for `bytes`.
#[inline]
pub(super) fn encoded_len(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|&octet| usize::from(word_of(octet).1)).sum();
    bits.div_ceil(8)
}

/// Writes `bytes` in the code.
pub(super) fn encode(bytes: &[u8], out: &mut Buffer) {
    let mut word = 0u64;
    let mut count = 0u32;
    for &octet in bytes {
        let (code, len) = word_of(octet);
        word = (word << len) | u64::from(code);
        count += u32::from(len);
        // At most 31 bits stay and at most 30 come: it fits.
        if count >= 32 {
            count -= 32;
            out.push(&low_word(word >> count));
        }
    }
    // Padded with the beginning of the end symbol, which is all ones.
    let padding = (8 - count % 8) % 8;
    word = (word << padding) | ((1 << padding) - 1);
    count += padding;
    let last = low_word(word << (32 - count));
    out.push(last.get(..(count / 8) as usize).unwrap_or_default());
}

#[expect(clippy::cast_possible_truncation, reason = "the low word is what is asked for")]
fn low_word(word: u64) -> [u8; 4] {
    (word as u32).to_be_bytes()
}

#[inline]
fn word_of(octet: u8) -> (u32, u8) {
    WORDS.get(usize::from(octet)).copied().unwrap_or_default()
}

/// The words of one length: neighbours in value, and so are their symbols in [`SORTED`].
#[derive(Clone, Copy)]
struct Row {
    len: u32,
    first: u64,
    count: u64,
    start: u16,
}

/// Word and length of each octet.
static WORDS: [(u32, u8); 256] = TABLES.words;
/// Symbol and length for each octet that words of up to eight bits may begin; length 0 for others.
static SHORT: [(u8, u8); 256] = TABLES.short;
/// Symbols by the value of their words.
static SORTED: [u16; 257] = TABLES.sorted;
/// Rows of words of more than eight bits.
static LONG: [Row; 22] = TABLES.long;

struct Tables {
    words: [(u32, u8); 256],
    short: [(u8, u8); 256],
    sorted: [u16; 257],
    long: [Row; 22],
}

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated by the compiler"
)]
const TABLES: Tables = {
    let mut tables = Tables {
        words: [(0, 0); 256],
        short: [(0, 0); 256],
        sorted: [0; 257],
        long: [Row { len: LENGTH_MAX, first: 0, count: 0, start: 0 }; 22],
    };
    let mut code = 0u32;
    let mut sorted = 0;
    let mut len = 1;
    while len <= LENGTH_MAX {
        let (first, start) = (code, sorted);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as u32 == len {
                if symbol < 256 {
                    tables.words[symbol] = (code, len as u8);
                }
                if len <= 8 {
                    let mut front = code << (8 - len);
                    while front < (code + 1) << (8 - len) {
                        tables.short[front as usize] = (symbol as u8, len as u8);
                        front += 1;
                    }
                }
                tables.sorted[sorted] = symbol as u16;
                sorted += 1;
                code += 1;
            }
            symbol += 1;
        }
        if len > 8 {
            tables.long[len as usize - 9] =
                Row { len, first: first as u64, count: (code - first) as u64, start: start as u16 };
        }
        if len < LENGTH_MAX {
            code <<= 1;
        }
        len += 1;
    }
    assert!(code == 1 << LENGTH_MAX, "the code is complete");
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = b"kept".to_vec();
        decode(input, &mut out)?;
        assert!(out.starts_with(b"kept"));
        Ok(out.split_off(4))
    }

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Buffer::new(encoded_len(bytes));
        encode(bytes, &mut out);
        out.filled().to_vec()
    }

    #[test]
    fn the_strings_of_the_rfc_are_understood_and_written() {
        // RFC 7541, appendix C.4 and C.6.
        for (text, bytes) in [
            ("www.example.com", &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
            ("no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            ("custom-key", b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f"),
            ("302", b"\x64\x02"),
            ("private", b"\xae\xc3\x77\x1a\x4b"),
            (
                "Mon, 21 Oct 2013 20:13:21 GMT",
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\
                \x1b\xff",
            ),
        ] {
            assert_eq!(decoded(bytes).unwrap(), text.as_bytes());
            assert_eq!(encoded(text.as_bytes()), bytes);
        }
    }

    #[test]
    fn every_octet_is_written_and_read_in_any_place() {
        for octet in 0..=255u8 {
            for before in 0..9 {
                let mut text = vec![b'0'; before];
                text.extend_from_slice(&[octet, b'a', octet, octet]);
                assert_eq!(decoded(&encoded(&text)).unwrap(), text, "{octet} behind {before}");
            }
        }
        let all: Vec<u8> = (0..=255).rev().cycle().take(2000).collect();
        assert_eq!(decoded(&encoded(&all)).unwrap(), all);
        assert_eq!(decoded(b""), Ok(Vec::new()));
    }

    #[test]
    fn padding_is_the_beginning_of_the_end_symbol_and_short() {
        // "a" is 00011, then three ones.
        assert_eq!(decoded(b"\x1f").unwrap(), b"a");
        for bytes in [
            // Padding of eight bits and more.
            &b"\x1f\xff"[..],
            b"\xff",
            b"\x1f\xff\xff\xff",
            // Zeros, and other bits that are not ones.
            b"\x18",
            b"\x1e",
            b"\x1b",
            // The end symbol, alone and behind a letter.
            b"\xff\xff\xff\xff",
            b"\x1f\xff\xff\xff\xff\xff",
            // A word that is cut off.
            b"\xff\xfe",
        ] {
            assert_eq!(decoded(bytes), Err(HpackError::HuffmanInvalid), "{bytes:x?}");
        }
    }
}
