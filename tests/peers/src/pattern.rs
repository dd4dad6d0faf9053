//! Bytes that can be made and checked at any offset, without keeping them.
//!
//! A block of noise whose length is a prime, over and over: what is missing, doubled or moved shows
//! at the next byte, which it would not with a short period or a power of two.

use std::io::{Read, Write};

use anyhow::{Result, ensure};

const PERIOD: usize = 65_521;

/// The pattern from its beginning.
#[derive(Debug)]
pub(crate) struct Pattern {
    block: Box<[u8]>,
    offset: usize,
}

impl Pattern {
    pub(crate) fn new() -> Self {
        // Xorshift: any noise does.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let block = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        });
        Self { block: block.take(PERIOD).collect(), offset: 0 }
    }

    /// Takes the next bytes, at most `len` and at least one.
    fn next(&mut self, len: usize) -> &[u8] {
        let (_, rest) = self.block.split_at(self.offset);
        let (taken, _) = rest.split_at(len.min(rest.len()));
        self.offset = (self.offset + taken.len()) % PERIOD;
        taken
    }

    /// Writes the next `len` bytes.
    pub(crate) fn write(&mut self, to: &mut dyn Write, mut len: usize) -> std::io::Result<()> {
        while len > 0 {
            let piece = self.next(len);
            to.write_all(piece)?;
            len -= piece.len();
        }
        Ok(())
    }

    /// Whether `bytes` are the next ones.
    pub(crate) fn is_next(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let piece = self.next(bytes.len());
            let (front, rest) = bytes.split_at(piece.len());
            if front != piece {
                return false;
            }
            bytes = rest;
        }
        true
    }
}

/// Checks that `from` holds the first `len` bytes of the pattern and no more.
pub(crate) fn check(mut from: impl Read, len: usize) -> Result<()> {
    let mut pattern = Pattern::new();
    let mut buffer = vec![0; 1 << 16];
    let mut read = 0;
    loop {
        let n = from.read(&mut buffer)?;
        if n == 0 {
            ensure!(read == len, "{read} bytes instead of {len}");
            return Ok(());
        }
        let (piece, _) = buffer.split_at(n);
        ensure!(pattern.is_next(piece), "other bytes between {read} and {}", read + n);
        read += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        Pattern::new().write(&mut bytes, len).unwrap();
        bytes
    }

    #[test]
    fn the_pattern_is_recognised_and_nothing_else_is() {
        let len = 3 * PERIOD + 1;
        let whole = bytes(len);
        check(&*whole, len).unwrap();
        assert!(check(&whole[..len - 1], len).is_err(), "a byte short");
        assert!(check(&whole[1..], len - 1).is_err(), "a byte missing in front");
        let mut doubled = whole;
        doubled.insert(70_000, doubled[70_000]);
        assert!(check(&*doubled, len + 1).is_err(), "a byte twice");
    }
}
