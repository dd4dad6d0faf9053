//! Handovers: what either process makes of any frames of the other, at any place of a conversation.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/handover/tests/checks/conversation.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
