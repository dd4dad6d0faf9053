//! Bytes that are overwritten when they go: the state of connections, in which their keys are.
//!
//! A crate of its own, since `proxy` writes them, `handover` carries them, and neither may see the other. For a few keys there is
//! [`Zeroizing`], which overwrites one byte after the other; a group of thousands of connections has megabytes, which took a
//! tenth of the time of a handover so.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};

use zeroize::Zeroizing;

/// Bytes that are overwritten when this is dropped, with all the room that they had. Where the vector grows by itself, it leaves a
/// copy behind, so make room first where bytes are appended, and move those that are there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Wiped(Vec<u8>);

impl Wiped {
    /// None yet, with room for so many.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// The bytes, which are not overwritten any more.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<Zeroizing<Vec<u8>>> for Wiped {
    fn from(mut bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(std::mem::take(&mut *bytes))
    }
}

impl Deref for Wiped {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// How many there are: what they are is not for a log.
impl fmt::Debug for Wiped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wiped({} bytes)", self.0.len())
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        let capacity = self.0.capacity();
        self.0.clear();
        // There is room: nothing is allocated.
        self.0.resize(capacity, 0);
        zeroize::optimization_barrier(self.0.as_slice());
    }
}

/// Bytes in pieces, each as it was written: megabytes are neither copied as more come, nor to be in one place.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    first: Wiped,
    /// Most have none.
    more: Option<Box<More>>,
}

#[derive(Clone, Debug, Default)]
struct More {
    /// Where the bytes begin in the first piece.
    start: usize,
    others: Vec<Wiped>,
}

impl Pieces {
    /// Bytes that are moved rather than remembered where they begin.
    const MOVED_MAX: usize = 4 << 10;

    /// The bytes behind the first `start`.
    #[must_use]
    pub fn behind(start: usize, mut bytes: Wiped) -> Self {
        if bytes.len() > Self::MOVED_MAX {
            return Self { first: bytes, more: Some(Box::new(More { start, others: Vec::new() })) };
        }
        let start = start.min(bytes.len());
        bytes.drain(..start);
        Self { first: bytes, more: None }
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: Wiped) {
        if self.first.is_empty() {
            self.first = piece;
        } else {
            self.more.get_or_insert_default().others.push(piece);
        }
    }

    fn others(&self) -> &[Wiped] {
        self.more.as_ref().map(|more| more.others.as_slice()).unwrap_or_default()
    }

    /// A piece, counted from 0.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        match place.checked_sub(1) {
            None => self.first.get(self.more.as_ref().map_or(0, |more| more.start)..),
            Some(place) => self.others().get(place).map(|piece| piece.as_slice()),
        }
    }

    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..=self.others().len()).filter_map(|place| self.get(place))
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }

    /// The bytes in one place.
    #[must_use]
    pub fn join(&self) -> Wiped {
        let mut joined = Wiped::with_capacity(self.bytes_len());
        self.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(bytes: Vec<u8>) -> Self {
        Self { first: bytes.into(), more: None }
    }
}

/// Overwrites bytes that go on to be used.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    zeroize::optimization_barrier(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_the_length_alone() {
        assert_eq!(format!("{:?}", Wiped::from(b"secret".to_vec())), "Wiped(6 bytes)");
    }

    #[test]
    fn pieces_are_the_bytes_in_their_order() {
        let mut pieces = Pieces::default();
        assert_eq!((pieces.bytes_len(), pieces.join().as_slice()), (0, &b""[..]));
        for piece in ["one", " and", " two"] {
            pieces.push(piece.as_bytes().to_vec().into());
        }
        assert_eq!((pieces.bytes_len(), pieces.join().as_slice()), (11, &b"one and two"[..]));
        assert_eq!(pieces.get(1), Some(&b" and"[..]));
        assert_eq!(pieces.get(3), None);
        for len in [4, 40_000] {
            let bytes = [&b"head"[..], &vec![7; len]].concat();
            let mut behind = Pieces::behind(4, bytes.into());
            behind.push(b"tail".to_vec().into());
            let expected = [&vec![7; len][..], b"tail"].concat();
            assert!(*behind.join() == expected && behind.get(0) == expected.get(..len), "{len}");
            assert_eq!((behind.bytes_len(), behind.get(1)), (len + 4, Some(&b"tail"[..])));
        }
        assert_eq!(Pieces::behind(9, b"head".to_vec().into()).bytes_len(), 0);
    }

    #[test]
    fn what_is_taken_out_stays() {
        let mut bytes = Wiped::with_capacity(8);
        bytes.extend_from_slice(b"state");
        assert_eq!(bytes.clone(), Wiped::from(b"state".to_vec()));
        assert_eq!(bytes.into_vec(), b"state");
        let mut buffer = *b"secret and more";
        wipe(&mut buffer[..6]);
        assert_eq!(&buffer, b"\0\0\0\0\0\0 and more");
    }
}
