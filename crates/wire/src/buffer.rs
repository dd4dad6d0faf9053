//! An owned buffer of fixed capacity: bytes enter at the end and leave at the front.
//!
//! ```text
//!  0          start             end            capacity
//!  ├──────────┼─────────────────┼──────────────┤
//!  │ consumed │ filled          │ spare        │
//! ```
//!
//! It never grows and never moves bytes by itself; [`Buffer::compact`] does, when the caller
//! decides that the room in front is worth a copy. Emptying it makes all of it spare again at no
//! cost, and that is the usual case.

use std::fmt;

/// Bytes in flight. See the module's picture.
#[derive(Default)]
pub struct Buffer {
    bytes: Box<[u8]>,
    start: u32,
    end: u32,
}

impl Buffer {
    /// A buffer with room for `capacity` bytes.
    ///
    /// # Panics
    ///
    /// When `capacity` is 4 GiB or more.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(u32::try_from(capacity).is_ok(), "a buffer is smaller than 4 GiB");
        Self { bytes: vec![0; capacity].into_boxed_slice(), start: 0, end: 0 }
    }

    /// All of its room, filled or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that have entered and not left.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The bytes that have entered and not left, to be changed.
    #[must_use]
    pub fn filled_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// How many bytes are filled.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether nothing is filled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The room behind the filled bytes.
    #[must_use]
    pub fn spare_len(&self) -> usize {
        self.bytes.len() - self.end as usize
    }

    /// The room behind the filled bytes, to be written to; then call [`Buffer::advance`].
    #[must_use]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.end as usize..).unwrap_or_default()
    }

    /// Takes the first `n` bytes of the spare room as filled.
    ///
    /// # Panics
    ///
    /// When there is less room than that.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.spare_len(), "filled more than the spare room");
        self.end = narrow(self.end as usize + n);
    }

    /// Removes the first `n` filled bytes.
    ///
    /// # Panics
    ///
    /// When fewer are filled.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "consumed more than was filled");
        self.start = narrow(self.start as usize + n);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Appends all of `bytes`.
    ///
    /// # Panics
    ///
    /// When they do not fit.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.spare_mut().get_mut(..bytes.len()).expect("the caller left enough room");
        room.copy_from_slice(bytes);
        self.end = narrow(self.end as usize + bytes.len());
    }

    /// Appends as many of `bytes` as fit and says how many those were.
    pub fn try_push_some(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.spare_len());
        self.push(bytes.get(..n).unwrap_or_default());
        n
    }

    /// Removes all filled bytes.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Moves the filled bytes to the front, so that all other room is spare.
    pub fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start as usize..self.end as usize, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
}

impl fmt::Debug for Buffer {
    /// Lengths only: what is inside belongs to a peer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("spare_len", &self.spare_len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// Offsets into a buffer fit 32 bits because its capacity does.
fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).expect("capacity was checked in `new`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_they_came() {
        let mut buffer = Buffer::new(8);
        buffer.push(b"abc");
        buffer.spare_mut()[..2].copy_from_slice(b"de");
        buffer.advance(2);
        assert_eq!(buffer.filled(), b"abcde");
        buffer.consume(2);
        assert_eq!((buffer.filled(), buffer.spare_len()), (&b"cde"[..], 3));
        buffer.compact();
        assert_eq!((buffer.filled(), buffer.spare_len()), (&b"cde"[..], 5));
    }

    #[test]
    fn an_emptied_buffer_has_all_its_room_again() {
        let mut buffer = Buffer::new(4);
        buffer.push(b"abcd");
        assert_eq!(buffer.spare_len(), 0);
        buffer.consume(3);
        assert_eq!(buffer.spare_len(), 0);
        buffer.consume(1);
        assert_eq!((buffer.len(), buffer.spare_len()), (0, 4));
    }

    #[test]
    fn a_push_of_some_takes_what_fits() {
        let mut buffer = Buffer::new(3);
        assert_eq!(buffer.try_push_some(b"ab"), 2);
        buffer.filled_mut().reverse();
        assert_eq!(buffer.filled(), b"ba");
        buffer.filled_mut().reverse();
        assert_eq!(buffer.try_push_some(b"cd"), 1);
        assert_eq!(buffer.try_push_some(b"d"), 0);
        assert_eq!(buffer.filled(), b"abc");
    }

    #[test]
    fn a_buffer_without_room_is_usable() {
        let mut buffer = Buffer::default();
        assert!(buffer.is_empty());
        assert_eq!(buffer.try_push_some(b"a"), 0);
        buffer.compact();
        buffer.consume(0);
        assert_eq!(buffer.filled(), b"");
    }

    #[test]
    #[should_panic = "the caller left enough room"]
    fn pushing_more_than_fits_is_a_bug() {
        Buffer::new(1).push(b"ab");
    }

    #[test]
    #[should_panic = "filled more than the spare room"]
    fn advancing_past_the_end_is_a_bug() {
        Buffer::new(1).advance(2);
    }

    #[test]
    #[should_panic = "consumed more than was filled"]
    fn consuming_what_is_not_there_is_a_bug() {
        let mut buffer = Buffer::new(4);
        buffer.push(b"ab");
        buffer.consume(3);
    }

    #[test]
    fn a_buffer_shows_no_contents() {
        let mut buffer = Buffer::new(16);
        buffer.push(b"secret");
        assert_eq!(format!("{buffer:?}"), "Buffer { len: 6, spare_len: 10, capacity: 16 }");
    }
}
