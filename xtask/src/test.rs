//! `cargo xtask test`: every test there is, closed by one line of counts.
//!
//! Fuzz corpora and the simulation are ordinary tests of their packages. Real peers are not:
//! they need programs that `cargo test` knows nothing of, and they run one after the other.

use anyhow::{Result, bail};

use crate::plain::{Counts, Plain};
use crate::{Surroundings, peers, say};

/// Runs the tests of `package`, or of all, whose names hold `name`.
///
/// # Errors
///
/// If one failed or could not be run.
pub(crate) fn run(at: &Surroundings, package: Option<&str>, name: Option<&str>) -> Result<()> {
    let mut counts = Counts::default();
    if package != Some(peers::PACKAGE) {
        counts += packages(at, package, name)?;
    }
    if matches!(package, None | Some(peers::PACKAGE)) {
        counts += peers::test(at, name)?;
    }
    say::result(counts);
    if counts.failed > 0 {
        bail!("a test failed");
    }
    Ok(())
}

fn packages(at: &Surroundings, package: Option<&str>, name: Option<&str>) -> Result<Counts> {
    let mut arguments = vec!["test", "--no-fail-fast"];
    match package {
        Some(package) => arguments.extend(["--package", package]),
        None => arguments.push("--workspace"),
    }
    if let Some(name) = name {
        arguments.extend(["--", name]);
    }
    Plain::cargo(&at.root, &arguments).run_counting()
}
