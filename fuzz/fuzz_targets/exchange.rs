//! Whole exchanges: a client and its upstreams say and do anything, in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proxy/tests/checks/exchange.rs"]
mod checks;
#[path = "../../crates/proxy/tests/conversations/kit.rs"]
#[expect(dead_code, reason = "scripts use all of it, this target some")]
mod kit;

fuzz_target!(|data: &[u8]| checks::check(data));
