//! Edits of header fields: operators of any text, with facts of any octets.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/config/tests/checks/edits.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
