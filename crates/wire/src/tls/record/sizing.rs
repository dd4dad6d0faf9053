//! How much goes into one record.
//!
//! The receiver can use a record only when all of it has arrived. A full one spans twelve segments
//! of TCP, so that while a connection is young a browser waits a round trip or more for what the
//! first of them would have let it begin with, and any segment lost holds up all that are in the
//! record with it. Small ones cost three times as much to make (`benches/tls_record.rs`), and 2 %
//! more bytes. So a record fits a segment
//! until the connection has shown that it is about bulk, and again after a pause, when TCP starts
//! slowly again too (RFC 5681, section 4.1).

use serde::{Deserialize, Serialize};

use super::FRAGMENT_LEN_MAX;

/// How the size of records is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sizing {
    /// Small ones at first and after a pause, then full ones: towards clients, which may be far.
    Adaptive,
    /// Full ones: where round trips are short, as within a data centre.
    Full,
}

/// Bytes of data in a small record. With the most that is added to it (29) and the headers of TCP
/// and IPv6 (72 with time stamps) it fits a packet of 1,500 bytes, with 30 to spare for tunnels.
/// Cloudflare's patch for nginx has the same number.
pub const SMALL_FRAGMENT_LEN: usize = 1_369;

/// Bytes of data that go into small records before they become full ones: 48 segments. From 10,
/// a window of TCP has grown to that size within three round trips, and what a page needs to
/// begin is through. HAProxy, nginx with that patch (40 records) and Go (128 KiB) choose alike.
pub const SMALL_BYTES: usize = 48 * SMALL_FRAGMENT_LEN;

/// The pause after which to call [`RecordLayer::on_idle`](super::RecordLayer::on_idle): longer than
/// round trips and the time that a server takes to answer. HAProxy and the patch use the same
/// number.
pub const IDLE_SECONDS: u64 = 1;

/// The size of the next record.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct RecordSize {
    /// Bytes that are still to go into small records.
    small_left: u32,
    sizing: Sizing,
}

impl RecordSize {
    pub(super) fn new(sizing: Sizing) -> Self {
        let mut size = Self { small_left: 0, sizing };
        size.on_idle();
        size
    }

    /// The most data that the next record should have.
    pub(super) fn fragment_len(self) -> usize {
        if self.small_left > 0 { SMALL_FRAGMENT_LEN } else { FRAGMENT_LEN_MAX }
    }

    /// How many records `len` bytes take from here.
    pub(super) fn records(self, len: usize) -> usize {
        // The last small record begins before the small bytes end.
        let small_records = (self.small_left as usize).div_ceil(SMALL_FRAGMENT_LEN);
        let small_len = len.min(small_records * SMALL_FRAGMENT_LEN);
        small_len.div_ceil(SMALL_FRAGMENT_LEN) + (len - small_len).div_ceil(FRAGMENT_LEN_MAX)
    }

    pub(super) fn on_sealed(&mut self, len: usize) {
        self.small_left = self.small_left.saturating_sub(crate::octets::narrow(len));
    }

    pub(super) fn on_idle(&mut self) {
        self.small_left = match self.sizing {
            Sizing::Adaptive => crate::octets::narrow(SMALL_BYTES),
            Sizing::Full => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_as_they_will_be_made() {
        for sizing in [Sizing::Adaptive, Sizing::Full] {
            for sent in [0, 1, SMALL_FRAGMENT_LEN, SMALL_BYTES - 1, SMALL_BYTES] {
                for len in [0, 1, 1_368, 1_369, 1_370, 65_712, 65_713, 70_000, 82_097, 200_000] {
                    let mut size = RecordSize::new(sizing);
                    size.on_sealed(sent);
                    let expected = size.records(len);
                    let mut records = 0;
                    let mut left = len;
                    while left > 0 {
                        let fragment_len = left.min(size.fragment_len());
                        size.on_sealed(fragment_len);
                        left -= fragment_len;
                        records += 1;
                    }
                    assert_eq!(records, expected, "{sizing:?} {sent} {len}");
                }
            }
        }
    }

    #[test]
    fn records_grow_with_the_bytes_sent_and_shrink_in_a_pause() {
        let mut size = RecordSize::new(Sizing::Adaptive);
        for _ in 0..48 {
            assert_eq!(size.fragment_len(), SMALL_FRAGMENT_LEN);
            size.on_sealed(SMALL_FRAGMENT_LEN);
        }
        assert_eq!(size.fragment_len(), FRAGMENT_LEN_MAX);
        size.on_idle();
        assert_eq!(size.fragment_len(), SMALL_FRAGMENT_LEN);
        let mut full = RecordSize::new(Sizing::Full);
        full.on_idle();
        assert_eq!(full.fragment_len(), FRAGMENT_LEN_MAX);
    }
}
