//! Chunked bodies: decoding, every cut, saving in between, and sending on.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/h1_chunked.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
