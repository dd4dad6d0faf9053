//! `cargo xtask package`: the Debian packages.
//!
//! `crates/strait/Cargo.toml` lists their files, under `package.metadata.deb`.

use anyhow::{Result, bail};

use crate::Surroundings;
use crate::plain::Plain;
use crate::profiling::PROFILE;
use crate::say;

/// Builds them below the target directory.
///
/// # Errors
///
/// If a tool is missing or fails.
pub(crate) fn run(at: &Surroundings) -> Result<()> {
    // Cargo finds what it has installed itself, too.
    if Plain::cargo(&at.root, &["deb", "--version"]).read_quietly().is_err() {
        bail!("cargo-deb is missing: cargo install --locked cargo-deb");
    }
    // Without it cargo-deb makes packages that depend on no library, and only warns.
    if Plain::new(&at.root, "dpkg-shlibdeps", &["--version"]).read_quietly().is_err() {
        bail!("dpkg-shlibdeps is missing: apt install dpkg-dev");
    }
    // Symbols go to a package of their own.
    let arguments = ["deb", "--package=strait", "--locked", "--dbgsym", "--profile", PROFILE];
    Plain::cargo(&at.root, &arguments).run()?;
    say::line(format_args!("\nin {}", at.target_directory()?.join("debian").display()));
    Ok(())
}
