//! The profile `profiling`: optimised programs that have their symbols.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::plain::Plain;

/// Its name, which is also that of its folder below the target directory.
pub(crate) const PROFILE: &str = "profiling";

/// Builds in `place` what `arguments` of `cargo build` name.
///
/// # Errors
///
/// If it does not build.
pub(crate) fn build(place: &Path, arguments: &[&str]) -> Result<()> {
    let all = [&["build", "--profile", PROFILE], arguments].concat();
    // A commit from before the profile has the same under `release`.
    Plain::cargo(place, &all).env("CARGO_PROFILE_PROFILING_INHERITS", "release").run()
}

/// Where a program of it is.
pub(crate) fn program(target: &Path, name: &str) -> PathBuf {
    target.join(PROFILE).join(name)
}
