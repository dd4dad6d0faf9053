//! `cargo xtask test`: every test there is, closed by one line of counts.
//!
//! Fuzz corpora and the simulation are ordinary tests of their packages. Real peers are not:
//! they need programs that `cargo test` knows nothing of.

use anyhow::{Result, bail};

use crate::plain::Counts;
use crate::programs::{self, Programs};
use crate::say::Steps;
use crate::{Surroundings, peers, say};

/// Runs the tests of `package`, or of all, whose names hold `name`.
///
/// # Errors
///
/// If one failed or could not be run.
pub(crate) fn run(at: &Surroundings, package: Option<&str>, name: Option<&str>) -> Result<()> {
    let counts = match package {
        None => everything(at, name)?,
        Some(peers::PACKAGE) => peers::test(at, name)?,
        Some(package) => {
            let words = ["build", "--package", package, "--bins", "--tests"];
            Programs::build(at, &words)?.run(name)?
        }
    };
    say::result(counts);
    if counts.failed > 0 {
        bail!("a test failed");
    }
    Ok(())
}

fn everything(at: &Surroundings, name: Option<&str>) -> Result<Counts> {
    let mut steps = Steps::new(5);
    let tests = steps.next("build", || Programs::build(at, &programs::EVERYTHING))?;
    // Strait and the program of the claims were built with the tests. First, since some of the other tests ask
    // promtool and openssl, and in CI fail without them.
    let built = at.target_directory()?.join("debug");
    steps.next("install what is missing of the real peers", || peers::install(at, &built))?;
    let mut counts = steps.next("test programs", || tests.run(name))?;
    counts += steps.next("tests in documentation", || tests.run_documentation())?;
    counts += steps.next("claims about real peers", || peers::claims(at, &built, name))?;
    steps.summary();
    Ok(counts)
}
