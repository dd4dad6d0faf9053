//! Header blocks: decoding as another decoder does, block after block, and writing again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/hpack.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
