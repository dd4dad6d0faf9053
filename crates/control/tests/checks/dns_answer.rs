//! What holds of any answer of DNS.

/// The least that a record takes: the pointer to a name, kind, class, time to live, a length.
const RECORD_BYTES_MIN: usize = 12;

/// The first byte chooses what was asked for; the others are a message.
pub(crate) fn check(data: &[u8]) {
    if let Some(records) = control::records_of_dns_answer(data) {
        assert!(records <= data.len() / RECORD_BYTES_MIN, "{records} of {} bytes", data.len());
    }
}
