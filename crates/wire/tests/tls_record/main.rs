//! Connections of TLS after their handshake: with rustls on the other side, and with a peer that
//! seals whatever the test asks for.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that finds nothing has failed"
)]

mod kit;
mod rules;
mod talk;

#[path = "../checks/tls_record.rs"]
mod checks;
