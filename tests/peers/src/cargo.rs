//! Programs of cargo's registry, each in a version of its own, below the build folder.

use std::path::PathBuf;

/// The program in this version, if it is installed.
pub(crate) fn program(name: &str, version: &str) -> Option<PathBuf> {
    Some(root(name, version)?.join("bin").join(name)).filter(|path| path.is_file())
}

/// The arguments of cargo that build it.
pub(crate) fn install(name: &str, version: &str) -> Option<Vec<String>> {
    let root = root(name, version)?.to_string_lossy().into_owned();
    let words = ["install", "--locked", "--version", version, "--root", &root, name];
    Some(words.map(str::to_owned).to_vec())
}

/// The command that builds them.
pub(crate) fn how_to_install() -> String {
    "cargo xtask test peers (builds it)".to_owned()
}

/// Beside this program, so that it goes with the build folder.
fn root(name: &str, version: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let target = program.parent()?.parent()?;
    Some(target.join("peers-cargo").join(format!("{name}-{version}")))
}
