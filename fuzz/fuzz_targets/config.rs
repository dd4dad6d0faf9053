//! Configuration texts: an answer to each, and a way back from the good ones.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/config/tests/checks/text.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
