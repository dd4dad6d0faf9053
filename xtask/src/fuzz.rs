//! `cargo xtask fuzz`: one target, from the corpus that is checked in.

use anyhow::{Context as _, Result};

use crate::plain::Plain;
use crate::{Surroundings, say};

/// Fuzzes `target` until stopped or for `seconds`, or lists the targets.
///
/// # Errors
///
/// If an input fails or the fuzzer cannot be started.
pub(crate) fn run(at: &Surroundings, target: Option<&str>, seconds: Option<u64>) -> Result<()> {
    if Plain::cargo(&at.root, &["fuzz", "--version"]).read().is_err() {
        anyhow::bail!("the fuzzer is missing: cargo install --locked cargo-fuzz");
    }
    // The sanitizers that cargo-fuzz turns on are unstable options of the compiler.
    let fuzz = |arguments: &[&str]| {
        Plain::cargo(&at.root, &[&["fuzz"], arguments].concat()).env("RUSTC_BOOTSTRAP", "1")
    };
    let Some(target) = target else {
        return fuzz(&["list"]).run();
    };
    // What the fuzzer finds goes into the first folder; the corpus that is checked in is only read.
    let found = format!("fuzz/target/found/{target}");
    std::fs::create_dir_all(at.root.join(&found)).context("creating a folder for what is found")?;
    let corpus = format!("fuzz/corpus/{target}");
    let bound = seconds.map(|seconds| format!("-max_total_time={seconds}"));
    let mut arguments = vec!["run", target, &found, &corpus, "--"];
    arguments.extend(bound.as_deref());
    fuzz(&arguments).run().with_context(|| {
        say::line(
            "replay the input that failed: cargo fuzz run TARGET fuzz/artifacts/TARGET/INPUT",
        );
        format!("fuzzing {target}")
    })
}
