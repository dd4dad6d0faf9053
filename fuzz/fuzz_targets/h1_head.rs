//! Heads of requests and responses: decoding, every cut, and sending on.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/h1_head.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
