//! Early data that is refused, and has to be read over (RFC 8446, section 4.2.10).
//!
//! A client that offers early data sends it before it knows whether it is taken. Where it is not,
//! the server skips it: after a HelloRetryRequest every record of application data, and otherwise
//! those that are not sealed with the client's handshake key. rustls counts a skipped record again
//! with each record behind it, so that what is skipped never reaches it.

use wire::tls::client_hello;
use wire::tls::record::{Cipher, HEADER_LEN, RecordError, RecordLayer, Sizing, TlsRole};

use super::early::EARLY_DATA_BYTES_MAX;
use crate::secrets::TrafficSecrets;

/// Bytes of a TLS 1.3 record besides data and padding: its inner type and its tag.
const OVERHEAD: usize = 1 + 16;

/// Records that are skipped: as many as it takes to send all of it octet by octet. Empty ones count too.
const SKIPPED_RECORDS_MAX: u32 = EARLY_DATA_BYTES_MAX;

/// The state of a client's refused early data.
pub(super) struct RefusedEarlyData {
    offer: Offer,
    /// Bytes of data that may still be skipped. Padding counts as data: they look the same.
    bytes_left: usize,
    records_left: u32,
}

/// Whether the client has offered any.
enum Offer {
    /// Its hello is still being read: these are its records so far, if they are more than one.
    Reading(Vec<u8>),
    /// The client offers early data. Ends with the first record that is sealed with the handshake
    /// key.
    Made,
    Absent,
}

impl RefusedEarlyData {
    pub(super) const fn new() -> Self {
        Self {
            offer: Offer::Reading(Vec::new()),
            bytes_left: EARLY_DATA_BYTES_MAX as usize,
            records_left: SKIPPED_RECORDS_MAX,
        }
    }

    /// Sees a record of the client's first flight, until its hello is there.
    pub(super) fn on_hello_record(&mut self, record: &[u8]) {
        let Offer::Reading(before) = &mut self.offer else { return };
        if !before.is_empty() {
            before.extend_from_slice(record);
        }
        let input = if before.is_empty() { record } else { before.as_slice() };
        let offer = match client_hello::decode(input, &mut Vec::new()) {
            Ok(Some(hello)) if hello.offers_early_data => Offer::Made,
            Ok(None) => {
                if before.is_empty() {
                    before.extend_from_slice(record);
                }
                return;
            }
            // rustls reports its errors.
            Ok(Some(_)) | Err(_) => Offer::Absent,
        };
        self.offer = offer;
    }

    /// Whether early data may still come.
    pub(super) const fn is_possible(&self) -> bool {
        matches!(self.offer, Offer::Made)
    }

    /// The client's second flight has begun: no more of it comes.
    pub(super) fn end(&mut self) {
        self.offer = Offer::Absent;
    }

    /// Skips a record. Says whether that was still allowed.
    pub(super) fn skip(&mut self, record: &[u8]) -> bool {
        let len = record.len().saturating_sub(HEADER_LEN + OVERHEAD);
        let left = self.bytes_left.checked_sub(len).zip(self.records_left.checked_sub(1));
        if let Some(left) = left {
            (self.bytes_left, self.records_left) = left;
        }
        left.is_some()
    }
}

/// Whether a record is the first that a client has sealed with its handshake key.
pub(super) fn is_of_handshake(record: &[u8], cipher: Cipher, secrets: &TrafficSecrets) -> bool {
    let secrets = [secrets.client_handshake.octets(), secrets.server.octets()];
    let mut record = record.to_vec();
    RecordLayer::of_traffic_secrets(TlsRole::Server, cipher, secrets, Sizing::Full)
        .is_ok_and(|mut layer| !matches!(layer.open(&mut record), Err(RecordError::BadRecord)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_counted_without_what_seals_it_and_records_are_bounded() {
        for (len, expected) in [(16_384, 1), (8_192, 2), (512, 32), (1, 16_384), (0, 16_384)] {
            let mut refused = RefusedEarlyData::new();
            let record = vec![0; HEADER_LEN + OVERHEAD + len];
            let skipped = (0..20_000).take_while(|_| refused.skip(&record)).count();
            assert_eq!(skipped, expected, "{len}");
        }
    }
}
