//! HTTP/2 connections as a peer sees them: bytes in, elements and frames out.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that finds nothing has failed"
)]

mod abuse;
mod draining;
mod flow;
#[path = "../checks/h2_kit.rs"]
mod kit;
mod messages;
mod rules;
mod saving;
mod together;
