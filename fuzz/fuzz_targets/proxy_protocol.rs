//! PROXY protocol headers of both versions: decoding, and writing again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/proxy_protocol.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
