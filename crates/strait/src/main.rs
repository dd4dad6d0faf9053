//! Strait without extensions.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    strait::run(strait::as_it_is)
}
