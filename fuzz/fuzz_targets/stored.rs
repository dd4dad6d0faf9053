//! Connections that the service manager kept: what a process makes of any file and any queue under their name.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/handover/tests/checks/stored.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
