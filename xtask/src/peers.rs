//! `cargo xtask peers`: builds Strait and the program that runs it against real peers.
//!
//! `tests/peers` defines peers, their installation and the claims.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::Surroundings;
use crate::plain::{Counts, Plain};

/// Package that holds the claims.
pub(crate) const PACKAGE: &str = "peers";

/// The name of the claim about the previous version, which is built for it alone; and of the file that names its commit.
const PREVIOUS: &str = "previous";

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
    let previous = if name == Some(PREVIOUS) { Some(build_previous(at)?) } else { None };
    match run_claims(at, &programs, previous.as_deref(), name)? {
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
    run_claims(at, programs, None, name)
}

fn run_claims(
    at: &Surroundings,
    programs: &Path,
    previous: Option<&Path>,
    name: Option<&str>,
) -> Result<Counts> {
    let mut plain = Plain::new(&at.root, programs.join(PACKAGE), &["run", "--strait"])
        .arg(programs.join("strait"));
    if let Some(previous) = previous {
        plain = plain.arg("--previous").arg(previous);
    }
    if at.is_ci {
        plain = plain.arg("--require-all");
    }
    if let Some(name) = name {
        plain = plain.arg(name);
    }
    plain.run_counting()
}

/// Builds the version that `tests/peers/previous` names, below the target directory, and says where its program is.
fn build_previous(at: &Surroundings) -> Result<PathBuf> {
    let file = at.root.join("tests/peers").join(PREVIOUS);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let commit = text.lines().find(|line| !line.starts_with('#')).context("a commit")?;
    let place = at.check_out_at(PREVIOUS, commit.trim())?;
    Plain::cargo(&place, &["build", "--package", "strait", "--target-dir", "target"]).run()?;
    Ok(place.join("target/debug/strait"))
}

/// Builds both programs and says where they are.
fn build(at: &Surroundings) -> Result<PathBuf> {
    Plain::cargo(&at.root, &["build", "--package", "strait", "--package", PACKAGE]).run()?;
    Ok(at.target_directory()?.join("debug"))
}
