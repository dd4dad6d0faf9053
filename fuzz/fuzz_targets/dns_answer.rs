//! Answers of DNS: what is made of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/control/tests/checks/dns_answer.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
