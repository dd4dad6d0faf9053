//! `cargo xtask check`: what should hold before each commit, in under a minute when warm.

use anyhow::{Result, bail};

use crate::Surroundings;
use crate::plain::Plain;
use crate::programs::Programs;
use crate::say::Steps;

/// Units of all packages, and conversations. One that is not there any more is an error of cargo's.
const QUICK: [&str; 9] = [
    "test",
    "--workspace",
    "--no-run",
    "--lib",
    "--bins",
    "--test",
    "causes",
    "--test",
    "conversations",
];

/// Formatting, lints, documentation, unit and conversation tests.
///
/// # Errors
///
/// At the first that fails.
pub(crate) fn run(at: &Surroundings) -> Result<()> {
    let root = &at.root;
    let mut steps = Steps::new(5);
    steps.next("formatting", || Plain::cargo(root, &["fmt", "--all", "--check"]).run())?;
    // A laptop sees warnings and goes on; CI does not let them in.
    let strictness: &[&str] = if at.is_ci { &["--", "-D", "warnings"] } else { &[] };
    let clippy = ["clippy", "--workspace", "--all-targets"];
    steps.next("lints", || Plain::cargo(root, &[&clippy, strictness].concat()).run())?;
    steps.next("documentation", || {
        Plain::cargo(root, &["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings")
            .run()
    })?;
    let programs = steps.next("build of the quick tests", || Programs::build(at, &QUICK))?;
    let counts = steps.next("unit and conversation tests", || programs.run(None))?;
    steps.summary();
    if counts.failed > 0 {
        bail!("{counts}");
    }
    Ok(())
}
