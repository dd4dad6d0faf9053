//! Frames of HTTP/2 (RFC 9113, section 4.1), for peers that are known. Written apart from `wire`,
//! so that Strait is not measured against its own idea of the protocol.

use crate::messages::Malformed;

/// What a client sends before its first frame (RFC 9113, section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113, section 6).
#[expect(missing_docs, reason = "the names say it")]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
}

/// Of SETTINGS and PING.
pub const ACK: u8 = 0x01;
/// Of DATA and HEADERS.
pub const END_STREAM: u8 = 0x01;
/// Of HEADERS.
pub const END_HEADERS: u8 = 0x04;
/// Of DATA and HEADERS.
pub const PADDED: u8 = 0x08;

/// Longest payload that a peer may send without asking.
const PAYLOAD_BYTES_MAX: usize = 1 << 14;
const HEADER_BYTES: usize = 9;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// One of [`kind`].
    pub kind: u8,
    /// Depends on the kind.
    pub flags: u8,
    /// 0 for the connection.
    pub stream: u32,
    /// The frame's payload.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Appends the frame to `out`.
    ///
    /// # Panics
    ///
    /// If the payload is longer than a peer has to take.
    pub fn push(&self, out: &mut Vec<u8>) {
        assert!(self.payload.len() <= PAYLOAD_BYTES_MAX, "our own frames are short");
        let [.., a, b, c] = self.payload.len().to_be_bytes();
        out.extend_from_slice(&[a, b, c, self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(self.payload);
    }

    /// Whether `flag` is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload as a number of 32 bits (of WINDOW_UPDATE).
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.payload.try_into().ok().map(u32::from_be_bytes)
    }

    /// The frame at the front of `bytes` and what follows, or none if it is not all there.
    fn split(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Malformed> {
        let Some((&[a, b, c, kind, flags, s0, s1, s2, s3], rest)) =
            bytes.split_first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > PAYLOAD_BYTES_MAX {
            return Err(Malformed);
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        Ok(Some((Self { kind, flags, stream, payload }, rest)))
    }
}

/// A byte stream of frames, cut anywhere.
#[derive(Debug, Default)]
pub struct Frames {
    /// The beginning of a frame whose end has not come yet.
    partial: Vec<u8>,
}

impl Frames {
    /// Takes the next `bytes` and shows each frame that ended in them.
    ///
    /// # Errors
    ///
    /// A frame that is longer than any setting allowed, or one that `on_frame` refuses.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut on_frame: impl FnMut(Frame<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut whole = std::mem::take(&mut self.partial);
        let mut rest = bytes;
        if !whole.is_empty() {
            whole.extend_from_slice(bytes);
            rest = &whole;
        }
        while let Some((frame, behind)) = Frame::split(rest)? {
            on_frame(frame)?;
            rest = behind;
        }
        self.partial = rest.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written_however_the_stream_is_cut() {
        let frames = [
            Frame { kind: kind::HEADERS, flags: END_HEADERS, stream: 1, payload: b"block" },
            Frame { kind: kind::SETTINGS, flags: ACK, stream: 0, payload: b"" },
            Frame { kind: kind::DATA, flags: END_STREAM, stream: u32::MAX >> 1, payload: b"x" },
        ];
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.push(&mut stream));
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let mut reader = Frames::default();
                let mut seen = 0;
                for part in [&stream[..first], &stream[first..second], &stream[second..]] {
                    let read = reader.feed(part, |frame| {
                        assert_eq!(frame, frames[seen], "cut at {first} and {second}");
                        seen += 1;
                        Ok(())
                    });
                    assert_eq!(read, Ok(()));
                }
                assert_eq!(seen, 3, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn a_frame_longer_than_allowed_or_refused_is_an_error() {
        let long = [0, 0x40, 1, kind::DATA, 0, 0, 0, 0, 1];
        assert_eq!(Frames::default().feed(&long, |_| Ok(())), Err(Malformed));
        let empty = [0, 0, 0, kind::DATA, 0, 0, 0, 0, 1];
        assert_eq!(Frames::default().feed(&empty, |_| Err(Malformed)), Err(Malformed));
    }
}
