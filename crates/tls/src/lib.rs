//! TLS handshakes, certificates and trusted CAs.
//!
//! ```text
//!  PEM ──► Certificate ──┐                            ┌──► RecordLayer (wire::tls::record)
//!  PEM ──► Roots ────────┼──► ServerContext ──┐       │
//!                        └──► ClientContext ──┴─► Handshake ─► Established ─► HandshakeFacts
//! ```
//!
//! A handshake is rustls', for as long as it lasts. Right behind it, its secrets go over into a
//! record layer of ours, and the connection is a plain value that can be written down. Contexts
//! are immutable and shared. Nothing here touches a socket; the only clock is rustls' own, which
//! it asks whether a peer's certificate or a ticket is still good.
//!
//! A certificate's key may be held by a signing provider, for which the handshake waits: see
//! [`signing`].
//!
//! This crate holds unsafe code, besides `io`, in two private modules that each say what makes it
//! sound. Vector instructions may only run where the processor has them, and the compiler cannot know
//! that: it is one call, in `batch::processor`. A handshake that waits is left from within rustls,
//! through which no reference can be handed: it is one access, in `handshake::coroutine`.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod alert;
pub mod batch;
mod certificate;
mod client;
mod context;
mod facts;
mod handshake;
pub mod key_log;
mod names;
mod parameters;
pub mod pem;
mod residue;
mod roots;
mod secrets;
mod server;
pub mod signing;
mod tickets;
mod x509;

pub use alert::Alert;
pub use certificate::{Certificate, CertificateError, CertificatePart, KeyKind};
pub use client::{ClientContext, ClientOptions, Verify};
pub use context::ContextError;
pub use facts::{HandshakeFacts, PeerCertificate};
pub use handshake::{
    CertificateFault, EARLY_DATA_BYTES_MAX, EarlyHandshake, Established, HANDSHAKE_BYTES_MAX,
    Handshake, HandshakeError, TicketKeeper,
};
pub use parameters::{CipherSuite, Group, NameUnknown, Version};
pub use residue::wipe_stacks;
pub use roots::{Roots, RootsError};
pub use server::{ClientAuth, Resumption, ServerContext, ServerOptions};
pub use tickets::{
    EarlyMemory, EarlySessions, OwnTickets, ProcessSessions, SharedTickets, TICKET_SECONDS_MAX,
    TICKET_SECRET_BYTES_MAX, TICKET_SECRET_BYTES_MIN, TICKET_SKEW_SECONDS_MAX, TicketKey,
    TicketKeyError, TicketRing,
};
