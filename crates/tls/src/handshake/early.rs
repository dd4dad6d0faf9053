//! A handshake whose connection has begun before its end.
//!
//! ```text
//!  client   hello, data ──────────────────────► end of early data, Finished ──► data
//!  server                 hello … Finished, data ─────────────────────────────► ticket, data
//!                         └── our records begin here                            └── rustls ends here
//! ```
//!
//! A client that goes on from an earlier connection may send data right behind its hello (RFC 8446,
//! section 2.3), and be answered right behind the server's flight. What both sides seal data with is
//! known by then, so that our record layer begins, while rustls reads on what the client still owes:
//! the rest of its early data, which is under a key of its own, and its Finished.
//!
//! **Nothing that rustls seals from then on is sent**: it counts records with the same key, from 0
//! again. The ticket that it makes in the end is taken out of its record, to be sealed among ours.
//!
//! An attacker who recorded such a hello can send it again. Sessions that allow early data are
//! remembered and good for one hello (RFC 8446, section 8.1; `tickets::early`), so that it is taken
//! once, by whichever process; and until the client's Finished, which proves that it is there, what it sends is for safe
//! requests alone (RFC 8470).

use std::fmt;
use std::io::Read as _;

use rustls::ServerConnection;
use wire::tls::record::{Cipher, Opened, RecordLayer, Sizing, TlsRole};

use super::accepting::feed;
use super::error::HandshakeError;
use super::framing::next_record;
use crate::secrets::TrafficSecrets;

/// Bytes of early data that a client may send: what one read takes.
pub const EARLY_DATA_BYTES_MAX: u32 = 16 << 10;

/// Sessions that are remembered of a scope for clients that may send early data; the oldest are forgotten.
/// Each takes some 300 bytes, and more with a client's certificates.
pub(crate) const EARLY_SESSIONS_MAX: usize = 16 << 10;

/// The rest of a handshake whose connection has begun. See the module's picture.
///
/// Made by [`Handshake::into_early`](super::Handshake::into_early). What comes goes to
/// [`EarlyHandshake::on_bytes`] until it is done, and then to the connection.
pub struct EarlyHandshake {
    connection: Box<ServerConnection>,
    cipher: Cipher,
    secrets: TrafficSecrets,
    /// What rustls has sealed, which is never sent.
    sealed: Vec<u8>,
    /// Bytes of the client that were consumed, from the first one on.
    bytes: usize,
}

impl EarlyHandshake {
    pub(super) fn new(
        connection: Box<ServerConnection>,
        cipher: Cipher,
        secrets: TrafficSecrets,
        bytes: usize,
    ) -> Self {
        Self { connection, cipher, secrets, sealed: Vec::new(), bytes }
    }

    /// Consumes whole records, and returns how many bytes of `input` were consumed. Early data is
    /// appended to `data`, also what came before this began.
    ///
    /// # Errors
    ///
    /// When the handshake has failed. The connection has to be closed then: the client never proved
    /// that it is there. The caller sends the alert through the record layer.
    pub fn on_bytes(&mut self, input: &[u8], data: &mut Vec<u8>) -> Result<usize, HandshakeError> {
        self.take_data(data);
        let mut consumed = 0;
        while !self.is_done() {
            let rest = input.get(consumed..).unwrap_or_default();
            let Some(record) = next_record(rest, self.bytes)? else { break };
            feed(&mut self.connection, record, &mut self.sealed)?;
            self.take_data(data);
            self.bytes += record.len();
            consumed += record.len();
        }
        Ok(consumed)
    }

    /// Whether nothing more has to come.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Tickets that the client is to be given once this is done, as
    /// [`RecordLayer::send_ticket`] takes them.
    #[must_use]
    pub fn into_tickets(mut self) -> Vec<Vec<u8>> {
        // As the client would read them.
        let secrets = [self.secrets.server.octets(), self.secrets.client.octets()];
        let client =
            RecordLayer::of_traffic_secrets(TlsRole::Client, self.cipher, secrets, Sizing::Full);
        let (Ok(mut client), mut tickets) = (client, Vec::new()) else { return Vec::new() };
        let mut rest = self.sealed.as_mut_slice();
        while let Ok((n, Opened::Ticket(ticket))) = client.open(rest) {
            tickets.push(ticket);
            rest = rest.get_mut(n..).unwrap_or_default();
        }
        tickets
    }

    fn take_data(&mut self, data: &mut Vec<u8>) {
        if let Some(mut early) = self.connection.early_data() {
            early.read_to_end(data).expect("what is in memory can be read");
        }
    }
}

impl fmt::Debug for EarlyHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyHandshake").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
