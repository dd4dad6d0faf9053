//! Rules and requests of any text: criteria, templates, expressions and rewrites.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/config/tests/checks/routes.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
