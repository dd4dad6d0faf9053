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
