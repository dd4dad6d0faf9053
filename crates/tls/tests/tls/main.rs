//! Certificates, and handshakes: ours with ours, with plain rustls, and with `openssl`.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that finds nothing has failed"
)]

mod authority;
mod certificates;
mod choice;
mod early;
mod faults;
mod kit;
mod matrix;
mod openssl;
#[path = "../../examples/remote_signer/remote.rs"]
mod remote;
mod resumption;
mod signing;
mod splits;
mod trust;
