//! `cargo xtask instructions`: what codecs and a whole exchange cost, in instructions.
//!
//! callgrind counts the same number every time, whatever else the machine does, so a difference of
//! one per cent is one. It says nothing about caches and the kernel: for those there is `bench`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::Surroundings;
use crate::plain::{Plain, find};
use crate::profiling;
use crate::say;

/// Operations of one count.
const COUNT: u32 = 1000;

/// What to compare with.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Also counts those of this commit, branch or tag.
    #[arg(long, value_name = "REF")]
    against: Option<String>,
}

/// Counts and prints.
///
/// # Errors
///
/// If valgrind is missing, or a program does not build or fails.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    let counter = Counter::build(at)?;
    let former = match &options.against {
        Some(reference) => {
            let place = at.check_out(reference)?;
            profiling::build(&place, &["--package", "bench", "--target-dir", "target"])?;
            Some(Counter::of(&place, &place.join("target")))
        }
        None => None,
    };
    let cases = Plain::new(&at.root, &counter.program, &["--case", "list"]).read()?;
    let mut rows = Vec::new();
    for case in cases.lines() {
        let new = counter.count(case, Counted::Operation)?;
        // A case that the other commit does not have is shown without it.
        let old = former.as_ref().and_then(|former| former.count(case, Counted::Operation).ok());
        rows.push((case, new, old));
    }
    let reference = options.against.as_deref().unwrap_or_default();
    say::line(format!("\n{:<20} {:>12} {reference:>12} {:>8}", "instructions", "now", ""));
    for (case, new, old) in rows {
        let (former, ratio) = match old {
            Some(old) => (format!("{old:.0}"), format!("{:.3}", new / old)),
            None => (String::new(), String::new()),
        };
        say::line(format!("{case:<20} {new:>12.0} {former:>12} {ratio:>8}"));
    }
    Ok(())
}

/// What of an operation is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    /// All of it.
    Operation,
    /// This function, with what it calls.
    Function(&'static str),
}

/// A program with cases, whose instructions are counted.
#[derive(Debug)]
pub(crate) struct Counter {
    root: PathBuf,
    program: PathBuf,
}

impl Counter {
    /// Builds that of this tree.
    ///
    /// # Errors
    ///
    /// If valgrind is missing, or it does not build.
    pub(crate) fn build(at: &Surroundings) -> Result<Self> {
        if find("valgrind").is_none() {
            bail!("valgrind is missing: apt-get install valgrind");
        }
        let target = at.target_directory()?;
        profiling::build(&at.root, &["--package", "bench"])?;
        Ok(Self::of(&at.root, &target))
    }

    fn of(root: &Path, target: &Path) -> Self {
        let program = profiling::program(target, "instructions");
        Self { root: root.to_owned(), program }
    }

    /// Instructions of one operation.
    ///
    /// # Errors
    ///
    /// If valgrind fails, or finds no such function.
    pub(crate) fn count(&self, case: &str, counted: Counted) -> Result<f64> {
        match counted {
            Counted::Operation => {
                Ok(self.collect("instructions::measured*", case, COUNT)? / f64::from(COUNT))
            }
            // Those of the operations before the measured ones are counted, too, and the same in both.
            Counted::Function(function) => {
                let (once, twice) = (
                    self.collect(function, case, COUNT)?,
                    self.collect(function, case, 2 * COUNT)?,
                );
                Ok((twice - once) / f64::from(COUNT))
            }
        }
    }

    fn collect(&self, function: &str, case: &str, count: u32) -> Result<f64> {
        let name = self.program.to_str().context("the program's path is not text")?;
        let toggle = format!("--toggle-collect={function}");
        let count = count.to_string();
        let arguments = [
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--collect-atstart=no",
            &toggle,
            name,
            "--case",
            case,
            "--count",
            &count,
        ];
        let printed = Plain::new(&self.root, "valgrind", &arguments).read_errors()?;
        let line = printed.lines().find_map(|line| line.split_once("Collected : "));
        let (_, collected) =
            line.with_context(|| format!("valgrind counted nothing:\n{printed}"))?;
        let collected: f64 = collected.trim().parse().context("valgrind's count is no number")?;
        if collected == 0.0 {
            bail!("valgrind found no function `{function}` in {name}");
        }
        Ok(collected)
    }
}
