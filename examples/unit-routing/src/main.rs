//! Strait, with the route handler `unit` beside its own parts.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    strait::run(unit_routing::register)
}
