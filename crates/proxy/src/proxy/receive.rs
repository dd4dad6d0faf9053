//! Hop 4: what peers send becomes elements, and these reach their exchange.

pub(in crate::proxy) mod elements;
mod frames;
pub(crate) mod handshake;
mod lingering;
pub(crate) mod passthrough;
mod read;
mod signers;
mod streams;
mod tls_records;
mod turns;
