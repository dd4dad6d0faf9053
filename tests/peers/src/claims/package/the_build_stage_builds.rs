//! What the Dockerfile's first stage says, done in a copy of the tree with the toolchain that is here, leaves the
//! program where the last stage takes it from.
//!
//! No container engine is needed: the stage's lines are read and done in a folder. Without optimization, which
//! changes neither the commands nor the paths. Built again from nothing it takes minutes, so this
//! one is tried only if it is asked for by name.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{packaging, repository};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::process::Process;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

/// A build of everything, without optimization.
const PATIENCE: Duration = Duration::from_secs(280);

/// What is changed of the release profile.
const QUICK: [&str; 4] = [
    "CARGO_PROFILE_RELEASE_LTO=off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL=0",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16",
    "CARGO_PROFILE_RELEASE_DEBUG=0",
];

fn holds(lab: &Lab) -> Result<()> {
    let dockerfile = std::fs::read_to_string(packaging("Dockerfile"))?;
    let (_, stages) = dockerfile.split_once("\nFROM ").context("a stage")?;
    let (build, last) = stages.split_once("\nFROM ").context("two stages")?;
    let mut lines = build.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    is_our_version(lines.next().context("an image")?)?;
    let root = lab.folder().join("build");
    let (mut at, mut variables) = (root.clone(), QUICK.map(str::to_owned).to_vec());
    for line in lines {
        match line.split_once(' ').context("an instruction")? {
            ("WORKDIR", path) => at = inside(&root, path),
            ("COPY", ". .") => copy_tree(lab, &at)?,
            ("ARG", variable) => variables.push(variable.to_owned()),
            ("RUN", command) => {
                let at = at.to_string_lossy();
                let variables = variables.iter().map(String::as_str);
                let shell = ["sh", "-c", command];
                let words = ["--chdir", &*at].into_iter().chain(variables).chain(shell);
                let words: Vec<&str> = words.collect();
                Process::run(lab.folder(), "env", &words, PATIENCE)?.ok()?;
            }
            (other, _) => anyhow::bail!("{other} is not known here"),
        }
    }
    let taken = last.lines().find_map(|line| line.strip_prefix("COPY --from=build "));
    let (program, _) = taken.and_then(|paths| paths.split_once(' ')).context("what is taken")?;
    let program = inside(&root, program);
    let said = lab.run(&program.to_string_lossy(), &["--version"])?.ok()?;
    ensure!(said.starts_with("strait "), "{said}");
    Ok(())
}

/// The image has the version of Rust that the repository asks for.
fn is_our_version(image: &str) -> Result<()> {
    let toolchain = std::fs::read_to_string(repository().join("rust-toolchain.toml"))?;
    let image_version = image.strip_prefix("rust:").and_then(|rest| rest.split('-').next());
    let version = image_version.with_context(|| format!("{image} is no image of Rust"))?;
    ensure!(toolchain.contains(&format!("channel = \"{version}")), "{version}: {toolchain}");
    Ok(())
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// As `COPY . .` does, without what `.dockerignore` names. What is built is kept for the next time.
fn copy_tree(lab: &Lab, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let from = repository();
    let ignored = std::fs::read_to_string(from.join(".dockerignore"))?;
    ensure!(ignored.lines().any(|line| line == "target"), "{ignored}");
    let mut tar = String::from("tar --create --anchored");
    for line in ignored.lines() {
        tar.push_str(&format!(" --exclude='./{line}'"));
    }
    let copy = format!("{tar} --directory=\"$1\" . | tar --extract --directory=\"$2\"");
    lab.run("sh", &["-c", &copy, "sh", &from.to_string_lossy(), &to.to_string_lossy()])?.ok()?;
    let built = lab.strait.parent().and_then(Path::parent).context("a target folder")?;
    let built = std::path::absolute(built)?.join("peers-image");
    // Only what this build makes may be found there.
    std::fs::create_dir_all(&built)?;
    let program = built.join("release/strait");
    if program.exists() {
        std::fs::remove_file(program)?;
    }
    symlink(built, to.join("target"))?;
    Ok(())
}
