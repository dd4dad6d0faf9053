//! What this program prints, to stdout: it is a test program, and its lines are counted.

#![expect(clippy::print_stdout, reason = "printing is what this module is for")]

use std::fmt::Display;
use std::io::Write as _;

/// One line.
pub(crate) fn line(text: impl Display) {
    println!("{text}");
}

/// The beginning of a line that [`line()`] ends later.
pub(crate) fn begin(text: impl Display) {
    print!("{text}");
    // Whoever closed stdout does not want to know.
    _ = std::io::stdout().flush();
}
