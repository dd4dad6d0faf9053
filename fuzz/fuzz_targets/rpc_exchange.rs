//! Whole connections of an RPC protocol: clients and services say and do anything, in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proxy/tests/checks/rpc_exchange.rs"]
mod checks;
#[path = "../../crates/proxy/tests/conversations/kit.rs"]
#[expect(dead_code, reason = "scripts use all of it, this target some")]
mod kit;

fuzz_target!(|data: &[u8]| checks::check(data));
