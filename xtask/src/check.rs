//! `cargo xtask check`: what should hold before each commit, in under a minute when warm.

use anyhow::Result;

use crate::Surroundings;
use crate::plain::Plain;

/// Formatting, lints, documentation, unit and conversation tests.
///
/// # Errors
///
/// At the first that fails.
pub(crate) fn run(at: &Surroundings) -> Result<()> {
    let root = &at.root;
    Plain::cargo(root, &["fmt", "--all", "--check"]).run()?;
    // A laptop sees warnings and goes on; CI does not let them in.
    let strictness: &[&str] = if at.is_ci { &["--", "-D", "warnings"] } else { &[] };
    let clippy = ["clippy", "--workspace", "--all-targets"];
    Plain::cargo(root, &[&clippy, strictness].concat()).run()?;
    Plain::cargo(root, &["doc", "--workspace", "--no-deps"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Plain::cargo(root, &["test", "--workspace", "--lib", "--bins"]).run()?;
    Plain::cargo(root, &["test", "--package", "proxy", "--tests"]).run()
}
