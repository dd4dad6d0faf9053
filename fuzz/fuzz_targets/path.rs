//! Paths in any spelling: one normal form each, and the same for equivalent ones.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/path.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
