//! HTTP/2 (RFC 9113), for both roles: one connection as a value.
//!
//! ```text
//!            ┌───────────────────────────── Http2 ─────────────────────────────┐
//!  input ──► │ decode:  frames ─► header blocks ─► heads, trailers             │ ──► Element
//!            │             └─► data ─► windows                                 │
//!            │                    │ what has to be answered                    │
//!            │                    ▼                                            │
//!  output ◄─ │ send_control:  SETTINGS, GOAWAY, PING, RST_STREAM, WINDOW_UPDATE│
//!  output ◄─ │ send_*:        heads, data, trailers                            │ ◄── commands
//!            └─────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing here reads a socket or a clock. A connection can be written down between any two calls
//! and read back elsewhere, in the middle of a header block or of a DATA frame too. What an idle
//! one holds is little: tables, queues and lists have no storage until they are needed.
//!
//! Methods are of four kinds. Getters have no effect. `on_*` report what the caller did or saw:
//! bytes passed on, time gone by. `send_*` write frames to a buffer, whose room the `*_len_max`
//! functions name; they and the other commands ([`Http2::reset`], [`Http2::ping`], …) are void for
//! a stream that is closed, since the peer may close one at any time. And [`Http2::decode`] is what
//! came from the wire. **Before anything else is sent, [`Http2::send_control`] has to be called**:
//! the order of what it writes and what follows matters to the peer.
//!
//! Written here rather than taken from the `h2` crate: that one hides its state in tasks and
//! locks, so that it cannot be saved, and its heads are maps that have to be built and converted
//! again.
//!
//! What was left out, and why: server push (unused in practice; it is refused), and priorities (RFC
//! 9113 removed them; frames are checked and ignored). Deadlines are the caller's: a peer that
//! never acknowledges, never opens its window or stops within a header block costs nothing here but
//! what it holds.

mod budget;
mod connection;
mod control;
mod error;
mod frame;
pub mod hpack;
mod limits;
mod message;
mod receive;
mod send;
mod settings;
mod stream;
mod upgrade;

pub use budget::{BYTES_EARNING_ONE, DATA_EARNS, REQUEST_EARNS, TINY_LEN, Work};
pub use connection::{Element, Http2, Http2Role, INPUT_LEN_MIN};
pub use error::{ConnectionError, ErrorCode, MessageError, StreamError};
pub use limits::Limits;
pub use message::Scratch;
pub use send::{
    DATA_HEADER_LEN, RequestForm, Scheme, head_len_max, reply_len_max, trailers_len_max,
};
pub use stream::place_of;
pub use upgrade::UpgradeError;

/// What a client sends before its first frame (RFC 9113, section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
