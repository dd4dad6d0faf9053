//! Records of TLS after a handshake: what a peer with the right keys may send, and what others may put
//! in its place, every cut, moving in between, and what is said back.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/tls_record.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
