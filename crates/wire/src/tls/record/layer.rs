//! The connection: its state, getters and commands.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::control::{Pending, Writing};
use super::error::RecordError;
use super::keys::Keys;
use super::open::Reading;
use super::secrets::{Cipher, Protocol, Secrets, SecretsError, Suite};
use super::sizing::{RecordSize, Sizing};
use super::{KEY_RECORDS_MAX, KEY_RECORDS_NEAR_LIMIT};
use crate::tls::Alert;

/// One side of one connection, once its handshake is done. See the module's picture.
#[derive(Serialize, Deserialize)]
pub struct RecordLayer {
    pub(super) role: TlsRole,
    pub(super) suite: Suite,
    pub(super) receive: Keys,
    pub(super) send: Keys,
    pub(super) reading: Reading,
    pub(super) writing: Writing,
    pub(super) pending: Pending,
    /// Handshake messages that were received and not processed yet; the last may be incomplete.
    pub(super) message: Vec<u8>,
    /// Records that were no data, less what data has made up for.
    pub(super) idle_records: u8,
    /// Tickets that were handed out.
    pub(super) tickets: u8,
    pub(super) size: RecordSize,
}

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsRole {
    /// The side that opened the connection.
    Client,
    /// The side that accepted the connection.
    Server,
}

/// The size of an idle connection, secrets of both directions included: it has no other memory
/// while it has no contexts and no piece of a message.
const _: () = assert!(size_of::<RecordLayer>() <= 280);

/// The beginning.
impl RecordLayer {
    /// Goes on with a connection from the point at which `secrets` were taken out of what did its
    /// handshake. **Nothing else may seal or open a record of it from then on.**
    ///
    /// # Errors
    ///
    /// When the secrets cannot be those of a connection.
    pub fn new(role: TlsRole, secrets: &Secrets<'_>, sizing: Sizing) -> Result<Self, SecretsError> {
        let suite = secrets.suite;
        let receive = Keys::new(suite, &secrets.receive)?;
        let send = Keys::new(suite, &secrets.send)?;
        Ok(Self::with(role, suite, [receive, send], sizing))
    }

    /// Begins a connection of TLS 1.3 where its first keys do, with the traffic secrets that they come
    /// from: the peer's, then ours. **Nothing else may seal or open a record with them.**
    ///
    /// # Errors
    ///
    /// When a secret has not the length that the cipher's has.
    pub fn of_traffic_secrets(
        role: TlsRole,
        cipher: Cipher,
        [receive, send]: [&[u8]; 2],
        sizing: Sizing,
    ) -> Result<Self, SecretsError> {
        let suite = Suite { protocol: Protocol::Tls13, cipher };
        let receive = Keys::of_traffic_secret(cipher, receive)?;
        let send = Keys::of_traffic_secret(cipher, send)?;
        Ok(Self::with(role, suite, [receive, send], sizing))
    }

    fn with(role: TlsRole, suite: Suite, [receive, send]: [Keys; 2], sizing: Sizing) -> Self {
        Self {
            role,
            suite,
            receive,
            send,
            reading: Reading::Open,
            writing: Writing::Open,
            pending: Pending::default(),
            message: Vec::new(),
            idle_records: 0,
            tickets: 0,
            size: RecordSize::new(sizing),
        }
    }
}

/// Getters.
impl RecordLayer {
    /// Which side this is.
    #[must_use]
    pub fn role(&self) -> TlsRole {
        self.role
    }

    /// Version and cipher.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Whether the peer has said that nothing more comes. A TCP connection that ends without this
    /// was truncated, perhaps by an attacker.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.reading == Reading::Ended
    }

    /// Whether data can be sealed: not after [`RecordLayer::send_close`] or an error.
    #[must_use]
    pub fn is_open_for_data(&self) -> bool {
        self.writing == Writing::Open
    }

    /// Why the connection cannot be read on, if it cannot.
    #[must_use]
    pub fn failure(&self) -> Option<RecordError> {
        match self.reading {
            Reading::Failed(error) => Some(error),
            Reading::Open | Reading::Ended => None,
        }
    }

    /// Whether the connection should be given nothing new to send, because its key is nearly used up
    /// and TLS 1.2 has no other: 16 GiB in full records are left when this begins. TLS 1.3 sees to
    /// it itself.
    #[must_use]
    pub fn is_key_near_limit(&self) -> bool {
        let records_near_limit =
            self.key_records_max() - (KEY_RECORDS_MAX - KEY_RECORDS_NEAR_LIMIT);
        self.suite.protocol == Protocol::Tls12 && self.send.sequence() >= records_near_limit
    }

    /// Whether there are contexts to be released.
    #[must_use]
    pub fn has_contexts(&self) -> bool {
        self.receive.has_context() || self.send.has_context()
    }
}

/// Reports of the caller.
impl RecordLayer {
    /// Nothing was sent for [`IDLE_SECONDS`](super::IDLE_SECONDS), or nothing happened at all:
    /// what is sent next begins with small records again, and contexts are released.
    pub fn on_idle(&mut self) {
        self.size.on_idle();
        self.release_contexts();
    }
}

/// Commands.
impl RecordLayer {
    /// Lets go of the keys that were made ready, some 590 bytes each way. They are built again
    /// when they are needed, in 110 ns for AES: the price of a short record
    /// (`benches/tls_record.rs`).
    pub fn release_contexts(&mut self) {
        self.receive.release_context();
        self.send.release_context();
    }

    /// Says that nothing more will be sent, once [`RecordLayer::send_control`] writes it; reading
    /// goes on. Nothing happens if that was said, or there was an error.
    pub fn send_close(&mut self) {
        if self.writing == Writing::Open {
            self.writing = Writing::Closing(Alert::CloseNotify);
        }
    }

    /// Says why the connection is given up, once [`RecordLayer::send_control`] writes it, for a reason
    /// that its records do not know. It is not read on.
    pub fn send_failure(&mut self, alert: Alert) {
        self.reading = Reading::Ended;
        if self.writing == Writing::Open {
            self.writing = Writing::Closing(alert);
        }
    }
}

impl fmt::Debug for RecordLayer {
    /// No secrets, and of messages, which hold some, the length only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordLayer")
            .field("role", &self.role)
            .field("suite", &self.suite)
            .field("receive", &self.receive)
            .field("send", &self.send)
            .field("reading", &self.reading)
            .field("writing", &self.writing)
            .field("pending", &self.pending)
            .field("message_len", &self.message.len())
            .field("idle_records", &self.idle_records)
            .field("tickets", &self.tickets)
            .field("size", &self.size)
            .finish()
    }
}
