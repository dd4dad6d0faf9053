//! What this program prints, to stdout: it is a test program, and its lines are counted.

#![expect(clippy::print_stdout, reason = "printing is what this module is for")]

use std::fmt::Display;

/// One line.
pub(crate) fn line(text: impl Display) {
    println!("{text}");
}
