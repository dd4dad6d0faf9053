//! Whole connections of HTTP/2: clients and services say and do anything, in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proxy/tests/checks/h2_exchange.rs"]
mod checks;
#[path = "../../crates/proxy/tests/conversations/frames.rs"]
#[expect(dead_code, reason = "conversations use all of it, this target some")]
mod frames;
#[path = "../../crates/proxy/tests/conversations/kit.rs"]
#[expect(dead_code, reason = "scripts use all of it, this target some")]
mod kit;

fuzz_target!(|data: &[u8]| checks::check(data));
