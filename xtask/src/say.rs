//! What the commands print: to stderr, so that a command's own output stays apart.

#![expect(clippy::print_stderr, clippy::print_stdout, reason = "what this module is for")]

use std::fmt::Display;

/// One line about what goes on.
pub(crate) fn line(text: impl Display) {
    eprintln!("{text}");
}

/// A plain command that is about to run.
pub(crate) fn command(text: impl Display) {
    eprintln!("\n$ {text}");
}

/// Why a command failed, causes included.
pub(crate) fn failure(error: &anyhow::Error) {
    eprintln!("\nxtask: {error:#}");
}

/// A closing line that programs read, too: to stdout.
pub(crate) fn result(text: impl Display) {
    println!("\n{text}");
}
