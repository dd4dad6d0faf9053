//! `cargo xtask peers`: builds Strait and the program that runs it against real peers.
//!
//! `tests/peers` defines peers, their installation and the claims.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::Surroundings;
use crate::plain::{Counts, Plain};

/// Package that holds the claims.
pub(crate) const PACKAGE: &str = "peers";

/// Runs the claims whose names hold `name`, with the programs that are installed; or lists them.
///
/// # Errors
///
/// If one failed or could not be run.
pub(crate) fn run(at: &Surroundings, name: Option<&str>, list: bool) -> Result<()> {
    let programs = build(at)?;
    if list {
        return Plain::new(&at.root, programs.join(PACKAGE), &["list"]).run();
    }
    match claims(at, &programs, name)? {
        Counts { failed: 0, .. } => Ok(()),
        counts => bail!("{counts}"),
    }
}

/// Installs what is missing where that is possible, then runs the claims.
///
/// # Errors
///
/// If the claims could not be run.
pub(crate) fn test(at: &Surroundings, name: Option<&str>) -> Result<Counts> {
    let programs = build(at)?;
    install(at, &programs)?;
    claims(at, &programs, name)
}

/// Installs what is missing, where that is possible, with the program of this folder.
///
/// # Errors
///
/// If it cannot be started.
pub(crate) fn install(at: &Surroundings, programs: &Path) -> Result<()> {
    Plain::new(&at.root, programs.join(PACKAGE), &["install"]).run()
}

/// Runs the claims whose names hold `name` with the programs of this folder.
///
/// # Errors
///
/// If they could not be run.
pub(crate) fn claims(at: &Surroundings, programs: &Path, name: Option<&str>) -> Result<Counts> {
    let mut plain = Plain::new(&at.root, programs.join(PACKAGE), &["run", "--strait"])
        .arg(programs.join("strait"));
    if at.is_ci {
        plain = plain.arg("--require-all");
    }
    if let Some(name) = name {
        plain = plain.arg(name);
    }
    plain.run_counting()
}

/// Builds both programs and says where they are.
fn build(at: &Surroundings) -> Result<PathBuf> {
    Plain::cargo(&at.root, &["build", "--package", "strait", "--package", PACKAGE]).run()?;
    Ok(at.target_directory()?.join("debug"))
}
