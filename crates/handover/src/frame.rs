//! Frames: the number of a kind in two bytes, big-endian, then its body in postcard's encoding.
//!
//! A frame is one packet, so its length is the packet's. A kind from [`IGNORABLE`] on may be skipped by
//! a reader that does not know it; any other unknown kind is an error. Bytes behind a body are skipped,
//! so that a later version can add fields.

use postcard::ser_flavors::Size;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wiped::Wiped;

/// Bytes of a frame, at most.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// Descriptors that go with a frame, at most (`SCM_MAX_FD`).
pub const DESCRIPTORS_MAX: usize = 253;

/// Kinds from here on may be skipped.
pub(crate) const IGNORABLE: u16 = 0x8000;

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Its body is not what its kind says.
    #[error("its body is damaged")]
    Body,
    /// More than [`FRAME_BYTES_MAX`] bytes.
    #[error("it is too long")]
    TooLong,
    /// Fewer bytes than the kind takes.
    #[error("it is too short")]
    TooShort,
    /// A kind that may not be skipped.
    #[error("kind {0} is unknown")]
    UnknownKind(u16),
}

/// The frame of a kind and a body.
pub(crate) fn encode(kind: u16, body: &impl Serialize) -> Wiped {
    let kind = kind.to_be_bytes();
    let len = postcard::serialize_with_flavor(body, Size::default()).unwrap_or_default();
    // It may have keys in it: where a vector grows, it leaves a copy behind.
    let mut frame = Vec::with_capacity(kind.len() + len);
    frame.extend_from_slice(&kind);
    let frame = postcard::to_extend(body, frame).expect("memory is the only thing it needs");
    Wiped::from(frame)
}

/// A frame that is written value by value, in the same encoding.
pub(crate) struct FrameWriter(Wiped);

impl FrameWriter {
    /// A frame of a kind, with room for what is to come: it may have keys in it, and where a vector grows, it leaves a copy
    /// behind.
    pub(crate) fn new(kind: u16, bytes_max: usize) -> Self {
        let mut frame = Wiped::with_capacity(size_of_val(&kind) + bytes_max);
        frame.extend_from_slice(&kind.to_be_bytes());
        Self(frame)
    }

    /// A number: seven bits in each byte, the lowest first, and the eighth where more follow.
    pub(crate) fn number(&mut self, mut number: u32) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            let is_last = number == 0;
            self.0.push(if is_last { low & 0x7f } else { low | 0x80 });
            if is_last {
                return;
            }
        }
    }

    /// Bytes, whose length went before.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn finish(self) -> Wiped {
        self.0
    }
}

/// The kind of a frame, and its body.
pub(crate) fn split(frame: &[u8]) -> Result<(u16, &[u8]), FrameError> {
    if frame.len() > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong);
    }
    let (kind, body) = frame.split_first_chunk().ok_or(FrameError::TooShort)?;
    Ok((u16::from_be_bytes(*kind), body))
}

/// A body; what stands behind it is skipped.
pub(crate) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    postcard::from_bytes(bytes).map_err(|_| FrameError::Body)
}
