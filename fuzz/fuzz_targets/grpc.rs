//! gRPC: values of its fields, messages in a body, and gRPC-Web both ways, at every cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/checks/grpc.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
