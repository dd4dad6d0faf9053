//! Connections of HTTP/2, of either role: frames in any order, every cut, moving in between, and heads
//! sent on.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/h2_connection.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
