//! Clusters that sources deliver between texts: what comes of any of them is what building from scratch gives.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/config/tests/checks/deliveries.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
