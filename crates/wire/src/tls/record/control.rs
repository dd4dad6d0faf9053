//! Control records: KeyUpdates and alerts, and the order in which they are sent.
//!
//! Each thing to say has a producer, and the producers stand in a list: the first that has
//! something to say writes first. At most one of each waits, whatever the peer does.

use serde::{Deserialize, Serialize};

use super::keys::{SEQUENCE_MAX, kind};
use super::layer::RecordLayer;
use super::open::{MESSAGE_HEADER_LEN, message::NEW_SESSION_TICKET};
use super::secrets::Protocol;
use super::{FRAGMENT_LEN_MAX, KEY_RECORDS_MAX};
use crate::buffer::Buffer;
use crate::tls::Alert;

/// Whether more can be sent.
///
/// ```text
///  Open ── send_close, or an error ──► Closing ── its alert is written ──► Closed
///    └─────────────────── an alert that ends the connection came ───────────►
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Writing {
    Open,
    /// This alert waits to be written, and is the last that will be.
    Closing(Alert),
    Closed,
}

/// Control records that wait to be written, beside the last alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    /// The peer asked for other keys, or these have sealed enough. Several requests have one
    /// answer (RFC 8446, section 4.6.3).
    pub(super) key_update: bool,
    /// The peer asked for a renegotiation.
    pub(super) no_renegotiation: bool,
}

/// Everything has been written, or the buffer is full.
type Produced = Result<(), Full>;

/// The buffer has no room for another record.
struct Full;

/// In order. A KeyUpdate comes first because it has to come before any other data (RFC 8446,
/// section 4.6.3), and the last alert last because nothing may follow it.
const PRODUCERS: [fn(&mut RecordLayer, &mut Buffer) -> Produced; 3] = [
    RecordLayer::send_key_update,
    RecordLayer::send_no_renegotiation,
    RecordLayer::send_last_alert,
];

/// A KeyUpdate with `update_not_requested` (RFC 8446, section 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Octets of an alert.
const ALERT_LEN: usize = 2;

/// Levels of alerts (RFC 8446, section 6).
pub(super) mod level {
    pub(crate) const WARNING: u8 = 1;
    pub(crate) const FATAL: u8 = 2;
}

/// Writing control records.
impl RecordLayer {
    /// Whether [`RecordLayer::send_control`] has something to write.
    #[must_use]
    pub fn has_control(&self) -> bool {
        self.control_len() > 0
    }

    /// Writes waiting control records; as many as there is room for. [`RecordLayer::seal`] begins
    /// with them.
    pub fn send_control(&mut self, out: &mut Buffer) {
        for produce in PRODUCERS {
            if let Err(Full) = produce(self, out) {
                break;
            }
        }
    }

    /// Room that [`RecordLayer::send_ticket`] takes.
    #[must_use]
    pub fn ticket_len(&self, ticket: &[u8]) -> usize {
        self.suite.overhead() + MESSAGE_HEADER_LEN + ticket.len()
    }

    /// Writes a NewSessionTicket of TLS 1.3, which is as [`Opened::Ticket`](super::Opened::Ticket) has
    /// it, in one record: whether it did. There has to be room for it, and sending not be over.
    pub fn send_ticket(&mut self, ticket: &[u8], out: &mut Buffer) -> bool {
        let Ok(len) = u16::try_from(ticket.len()) else { return false };
        let [high, low] = len.to_be_bytes();
        let message = [&[NEW_SESSION_TICKET, 0, high, low], ticket].concat();
        let is_sealable = self.suite.protocol == Protocol::Tls13
            && self.writing == Writing::Open
            && message.len() <= FRAGMENT_LEN_MAX;
        is_sealable && self.push_record(kind::HANDSHAKE, &message, out).is_ok()
    }

    /// How much [`RecordLayer::send_control`] writes, with enough room.
    pub(super) fn control_len(&self) -> usize {
        let Pending { key_update, no_renegotiation } = self.pending;
        let key_update_len = if key_update { self.key_update_len() } else { 0 };
        let alerts = usize::from(no_renegotiation)
            + usize::from(matches!(self.writing, Writing::Closing(_)));
        key_update_len + alerts * (self.suite.overhead() + ALERT_LEN)
    }

    pub(super) fn key_update_len(&self) -> usize {
        self.suite.overhead() + KEY_UPDATE.len()
    }

    /// Queues a KeyUpdate if the key has sealed as much as it may. Returns false if there is no
    /// next key.
    pub(super) fn keep_keys_fresh(&mut self) -> bool {
        if self.send.sequence() < self.key_records_max() {
            return true;
        }
        self.pending.key_update = self.suite.protocol == Protocol::Tls13;
        self.pending.key_update
    }

    pub(super) fn key_records_max(&self) -> u64 {
        use super::secrets::Cipher::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        match self.suite.cipher {
            Aes128Gcm | Aes256Gcm => KEY_RECORDS_MAX,
            // RFC 8446, section 5.5: the numbers run out before.
            Chacha20Poly1305 => SEQUENCE_MAX,
        }
    }

    fn send_key_update(&mut self, out: &mut Buffer) -> Produced {
        if self.pending.key_update {
            self.push_record(kind::HANDSHAKE, &KEY_UPDATE, out)?;
            self.pending.key_update = false;
            self.send.update(self.suite.cipher);
        }
        Ok(())
    }

    fn send_no_renegotiation(&mut self, out: &mut Buffer) -> Produced {
        if self.pending.no_renegotiation {
            self.push_record(kind::ALERT, &[level::WARNING, Alert::NoRenegotiation.code()], out)?;
            self.pending.no_renegotiation = false;
        }
        Ok(())
    }

    fn send_last_alert(&mut self, out: &mut Buffer) -> Produced {
        if let Writing::Closing(alert) = self.writing {
            let level = match alert {
                Alert::CloseNotify => level::WARNING,
                _ => level::FATAL,
            };
            self.push_record(kind::ALERT, &[level, alert.code()], out)?;
            self.writing = Writing::Closed;
        }
        Ok(())
    }

    /// Seals a record that holds `content`.
    fn push_record(&mut self, kind: u8, content: &[u8], out: &mut Buffer) -> Produced {
        let record_len = self.suite.overhead() + content.len();
        let record = out.spare_mut().get_mut(..record_len).ok_or(Full)?;
        let data_at = self.suite.data_at();
        let room = record.get_mut(data_at..data_at + content.len());
        room.expect("a record has room for its content").copy_from_slice(content);
        self.send.seal(self.suite, kind, record);
        out.advance(record_len);
        Ok(())
    }
}
