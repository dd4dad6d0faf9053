//! ClientHellos: reading, however they are cut into records.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/client_hello.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
