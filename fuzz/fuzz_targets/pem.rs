//! PEM: private keys, chains of certificates, authorities and lists of revoked certificates.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tls/tests/checks/pem.rs"]
mod checks;

fuzz_target!(|data: &[u8]| checks::check(data));
