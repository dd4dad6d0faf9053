//! Records of TLS after the handshake (RFC 8446, section 5; RFC 5246, section 6.2): one connection
//! as a value.
//!
//! ```text
//!            ┌───────────────────────── RecordLayer ─────────────────────────┐
//!  input ──► │ open:  records ─► data                                        │ ──► Opened
//!            │           ├─► messages ─► tickets, KeyUpdate                  │
//!            │           └─► alerts         │ what has to be answered        │
//!            │                              ▼                                │
//!  output ◄─ │ send_control:  KeyUpdate, refusals, the last alert            │
//!  output ◄─ │ seal:  data ─► records                                        │ ◄── pieces
//!            └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! The handshake was done elsewhere, and has let go of the connection: two parties must not count
//! its records. Nothing here reads a socket or a clock. A connection can be saved between any two
//! calls and restored elsewhere, and its peer does not notice. Bytes of an incomplete record stay
//! with the caller; this type holds the secrets, the record numbers, and the received part of a
//! message that spans records. **Saved bytes hold the secrets too**: they are enough to read and
//! write the connection.
//!
//! Methods are of four kinds. Getters have no effect. `on_*` report what the caller saw. Commands
//! are [`RecordLayer::seal`], [`RecordLayer::send_close`] and so on; where output waits,
//! [`RecordLayer::has_control`] says so. And [`RecordLayer::open`] is what came from the wire.
//!
//! # From rustls 0.23
//!
//! The configuration needs `enable_secret_extraction = true`, and for TLS 1.3 a `key_log` of the
//! connection's own, since what rustls hands out then lacks the traffic secrets:
//!
//! 1. Feed the connection one record at a time, so that none of what comes behind the handshake
//!    goes into it, and keep the rest of the bytes. Write all that it wants to have written.
//! 2. Right when `is_handshaking` is false and `wants_write` too, call
//!    `dangerous_extract_secrets`, or `dangerous_into_kernel_connection` of an unbuffered client,
//!    which takes [`Opened::Ticket`] in `handle_new_session_ticket` as it is.
//! 3. `rx` and `tx` of `ExtractedSecrets` are [`Secrets::receive`] and [`Secrets::send`]. Each is a
//!    number, the [`sequence`](DirectionSecrets::sequence), and `ConnectionTrafficSecrets`, whose
//!    variant is the [`Cipher`] and whose `key` and `iv` go over as they are. In TLS 1.2 with GCM,
//!    that `iv` has 4 octets of salt, and 8 where the explicit part of nonces begins.
//! 4. `CLIENT_TRAFFIC_SECRET_0` and `SERVER_TRAFFIC_SECRET_0` of the key log are the
//!    [`traffic_secret`](DirectionSecrets::traffic_secret) of what the client, and the server, sends.
//!    [`RecordLayer::new`] refuses one that is not that of the key.
//!
//! # What was left out
//!
//! The peer is not asked for a KeyUpdate: it changes its own keys in time. Early data is under
//! other keys, and the handshake opens it. The handshake also refuses post-handshake authentication
//! and `max_fragment_length`. Records are not padded.

mod control;
mod error;
mod keys;
mod layer;
mod open;
mod seal;
mod secrets;
mod sizing;

pub use error::{RecordError, SealError};
pub use layer::{RecordLayer, TlsRole};
pub use open::Opened;
pub use seal::Sealed;
pub use secrets::{Cipher, DirectionSecrets, Protocol, Secrets, SecretsError, Suite};
pub use sizing::{IDLE_SECONDS, SMALL_BYTES, SMALL_FRAGMENT_LEN, Sizing};

/// Octets of a record's header.
pub const HEADER_LEN: usize = 5;

/// Bytes of data in one record (RFC 8446, section 5.1).
pub const FRAGMENT_LEN_MAX: usize = 1 << 14;

/// No record that is not refused is longer: with header, explicit nonce and tag.
pub const RECORD_LEN_MAX: usize = HEADER_LEN + 8 + FRAGMENT_LEN_MAX + 16;

/// Records that AES-GCM seals with one key: below the 2^24.5 after which it is no longer safe
/// (RFC 8446, section 5.5). Short ones count as full ones do.
pub const KEY_RECORDS_MAX: u64 = 1 << 24;

/// Records after which [`RecordLayer::is_key_near_limit`] says so: 2^20 before the last.
const KEY_RECORDS_NEAR_LIMIT: u64 = KEY_RECORDS_MAX - (1 << 20);

/// Bytes of a handshake message that comes after the handshake, without its header. Tickets have
/// a few hundred, and a few thousand with a client's certificates in them.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Tickets that are handed out on one connection; more are dropped. Servers send one or two.
pub const TICKETS_MAX: u8 = 8;

/// Records and messages without data that may come in a row: KeyUpdates, tickets, alerts without
/// effect, empty records. A record of data makes up for one, and one more for each 128 bytes, so
/// that the most expensive, a KeyUpdate, costs the peer some data in the long run.
/// BoringSSL and rustls allow as many KeyUpdates, OpenSSL as many empty records.
pub const IDLE_RECORDS_MAX: u8 = 32;
