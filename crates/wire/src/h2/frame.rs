//! Frame headers (RFC 9113, section 4.1).

use crate::buffer::Buffer;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) len: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// Types of frames (RFC 9113, section 6).
pub(super) mod kind {
    pub(in crate::h2) const DATA: u8 = 0;
    pub(in crate::h2) const HEADERS: u8 = 1;
    pub(in crate::h2) const PRIORITY: u8 = 2;
    pub(in crate::h2) const RST_STREAM: u8 = 3;
    pub(in crate::h2) const SETTINGS: u8 = 4;
    pub(in crate::h2) const PUSH_PROMISE: u8 = 5;
    pub(in crate::h2) const PING: u8 = 6;
    pub(in crate::h2) const GOAWAY: u8 = 7;
    pub(in crate::h2) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::h2) const CONTINUATION: u8 = 9;
}

/// Flags of frames; which has which is said with each.
pub(super) mod flag {
    /// Of SETTINGS and PING.
    pub(in crate::h2) const ACK: u8 = 0x01;
    /// Of DATA and HEADERS.
    pub(in crate::h2) const END_STREAM: u8 = 0x01;
    /// Of HEADERS and CONTINUATION.
    pub(in crate::h2) const END_HEADERS: u8 = 0x04;
    /// Of DATA and HEADERS.
    pub(in crate::h2) const PADDED: u8 = 0x08;
    /// Of HEADERS.
    pub(in crate::h2) const PRIORITY: u8 = 0x20;
}

/// The largest number of 31 bits: of a stream, and of a window.
pub(super) const MAX_31: u32 = 0x7fff_ffff;

/// Frames that no setting forbids (RFC 9113, section 4.2).
pub(super) const PAYLOAD_LEN_MIN: u32 = 1 << 14;

/// The length field has 24 bits.
pub(super) const PAYLOAD_LEN_MAX: u32 = (1 << 24) - 1;

impl FrameHeader {
    /// Bytes a header takes on the wire.
    pub(super) const LEN: usize = 9;

    /// Reads a header from the front of `input`, or `None` if more bytes are needed.
    #[inline]
    pub(super) fn decode(input: &[u8]) -> Option<(Self, &[u8])> {
        let (&[a, b, c, kind, flags, s0, s1, s2, s3], rest) = input.split_first_chunk()?;
        let header = Self {
            len: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            // The top bit is reserved and must be ignored on receipt.
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_31,
        };
        Some((header, rest))
    }

    #[inline]
    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s0, s1, s2, s3]
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes a whole frame without flags.
pub(super) fn push_frame(kind: u8, stream: u32, payload: &[u8], out: &mut Buffer) {
    let len = crate::octets::narrow(payload.len());
    out.push(&FrameHeader { len, kind, flags: 0, stream }.encode());
    out.push(payload);
}

/// Reads 32 bits from the front of `input`.
pub(super) fn number(input: &[u8]) -> Option<u32> {
    input.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_input_asks_for_more() {
        let whole = FrameHeader { len: 1, kind: 0, flags: 0, stream: 1 }.encode();
        for n in 0..whole.len() {
            assert_eq!(FrameHeader::decode(&whole[..n]), None, "{n} bytes");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let header = FrameHeader { len: PAYLOAD_LEN_MAX, kind: 7, flags: 0x25, stream: MAX_31 };
        let mut bytes = header.encode().to_vec();
        bytes.push(b'x');
        assert_eq!(FrameHeader::decode(&bytes), Some((header, &b"x"[..])));
        bytes[5] |= 0x80;
        assert_eq!(FrameHeader::decode(&bytes), Some((header, &b"x"[..])), "a reserved bit");
        assert!(header.has(flag::END_HEADERS) && !header.has(flag::PADDED));
    }
}
