//! Sealing data for the peer.

use super::control::Writing;
use super::error::SealError;
use super::keys::kind;
use super::layer::RecordLayer;
use crate::buffer::Buffer;
use crate::tls::Alert;

/// The result of [`RecordLayer::seal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Bytes of the pieces that are in records now.
    pub taken: usize,
    /// Bytes that were appended to the buffer.
    pub written: usize,
}

/// A record is cut short for want of room only if it still has so much data, or is the first:
/// what is left over gets a record of its own in the next buffer, which costs as much as 2 KiB
/// more would (`benches/tls_record.rs`).
const CUT_LEN_MIN: usize = 4 << 10;

impl RecordLayer {
    /// How much room it takes to seal so many bytes of data, with what else there is to say.
    ///
    /// With as much room or more, [`RecordLayer::seal`] writes exactly this, whatever the pieces;
    /// less, where it fails.
    #[must_use]
    pub fn sealed_len(&self, len: usize) -> usize {
        let records = self.size.records(len);
        // A KeyUpdate resets the count.
        let sequence = if self.pending.key_update { 0 } else { self.send.sequence() };
        let last = sequence.saturating_add(u64::try_from(records).unwrap_or(u64::MAX));
        let is_exhausted = records > 0 && !self.pending.key_update && last > self.key_records_max();
        let key_update_len = if is_exhausted { self.key_update_len() } else { 0 };
        self.control_len() + key_update_len + len + records * self.suite.overhead()
    }

    /// Seals what waits to be said, and then as much of `pieces` as there is room for, in whole
    /// records. Pieces are one stream: a record may hold several, and a piece span several.
    ///
    /// Each byte is copied once, to the place in `out` where it is sealed.
    ///
    /// # Errors
    ///
    /// When there is data and sending is over. Control is written all the same.
    pub fn seal(&mut self, pieces: &[&[u8]], out: &mut Buffer) -> Result<Sealed, SealError> {
        let before = out.len();
        self.send_control(out);
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let taken = if len > 0 { self.seal_data(pieces, len, out)? } else { 0 };
        Ok(Sealed { taken, written: out.len() - before })
    }

    /// Seals `len` bytes in `pieces`, or fewer.
    fn seal_data(
        &mut self,
        pieces: &[&[u8]],
        len: usize,
        out: &mut Buffer,
    ) -> Result<usize, SealError> {
        if self.writing != Writing::Open {
            return Err(SealError::Closed);
        }
        let mut pieces = Pieces { rest: pieces, at: 0 };
        let mut taken = 0;
        while taken < len {
            if !self.keep_keys_fresh() {
                return self.on_key_exhausted(taken, out);
            }
            if self.has_control() {
                self.send_control(out);
            }
            let room = out.spare_len().saturating_sub(self.suite.overhead());
            let wanted = (len - taken).min(self.size.fragment_len());
            let is_room_worth_it = room >= wanted || taken == 0 || room >= CUT_LEN_MIN;
            if room == 0 || !is_room_worth_it || self.has_control() {
                break;
            }
            let fragment_len = wanted.min(room);
            self.push_data(&mut pieces, fragment_len, out);
            taken += fragment_len;
        }
        Ok(taken)
    }

    fn push_data(&mut self, pieces: &mut Pieces<'_>, len: usize, out: &mut Buffer) {
        let record_len = self.suite.overhead() + len;
        let data_at = self.suite.data_at();
        let record = out.spare_mut().get_mut(..record_len).expect("there is room for the record");
        pieces.copy_to(record.get_mut(data_at..data_at + len).expect("and for data in it"));
        self.send.seal(self.suite, kind::APPLICATION_DATA, record);
        self.size.on_sealed(len);
        out.advance(record_len);
    }

    /// There is no other key. What was taken goes out, and the next call fails.
    fn on_key_exhausted(&mut self, taken: usize, out: &mut Buffer) -> Result<usize, SealError> {
        if taken > 0 {
            return Ok(taken);
        }
        self.writing = Writing::Closing(Alert::CloseNotify);
        self.send_control(out);
        Err(SealError::KeyExhausted)
    }
}

/// Pieces of which some bytes are taken.
struct Pieces<'p> {
    rest: &'p [&'p [u8]],
    /// Bytes that are taken of the first.
    at: usize,
}

impl Pieces<'_> {
    /// Fills `room` with the next bytes, of which there are enough.
    fn copy_to(&mut self, mut room: &mut [u8]) {
        while !room.is_empty() {
            let (piece, rest) = self.rest.split_first().expect("there are enough bytes");
            let piece = piece.get(self.at..).unwrap_or_default();
            let n = piece.len().min(room.len());
            let (filled, left) = room.split_at_mut(n);
            filled.copy_from_slice(piece.get(..n).unwrap_or_default());
            room = left;
            self.at += n;
            if n == piece.len() {
                (self.rest, self.at) = (rest, 0);
            }
        }
    }
}
