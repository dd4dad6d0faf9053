//! Connections that another process wrote down: the bytes may be anything.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proxy/tests/checks/saved.rs"]
mod checks;
#[path = "../../crates/proxy/tests/conversations/kit.rs"]
#[expect(dead_code, reason = "scripts use all of it, this target some")]
mod kit;

fuzz_target!(|data: &[u8]| checks::check(data));
