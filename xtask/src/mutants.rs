//! `cargo xtask mutants`: which share of small deliberate defects the tests find.
//!
//! cargo-mutants changes one function or operator at a time, builds, and runs the tests of the
//! package; a change that no test objects to is missed. All of them would take days, so this takes a
//! sample: which ones follows from a seed, so that a run can be repeated.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::plain::Plain;
use crate::{Surroundings, say};

/// What to change.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Packages to change, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "wire,proxy")]
    packages: Vec<String>,
    /// How many changes to try.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Which ones: another number, another sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ends after so many minutes with what was tried until then.
    #[arg(long, default_value_t = 120)]
    minutes: u32,
}

/// How long the tests of one changed program may take: a change may make them hang.
const TEST_SECONDS: u32 = 300;

/// Tries and says the share.
///
/// # Errors
///
/// If cargo-mutants is missing or fails otherwise than by missing a change.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    if Plain::cargo(&at.root, &["mutants", "--version"]).read_quietly().is_err() {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    let list = packages(Plain::cargo(&at.root, &["mutants", "--list"]), options).read()?;
    let all: Vec<&str> = list.lines().collect();
    let chosen = sample(&all, options.sample as usize, options.seed);
    say::line(format_args!("{} of {} changes, seed {}", chosen.len(), all.len(), options.seed));
    let output = at.target_directory()?.join("mutants");
    std::fs::create_dir_all(&output).context("creating a folder for what is found")?;
    // Gently: an interrupt lets it finish its lists.
    let (minutes, seconds) = (format!("{}m", options.minutes), TEST_SECONDS.to_string());
    let words = ["--signal=INT", &minutes, "cargo", "mutants", "--baseline=skip", "--colors=never"];
    let plain = Plain::new(&at.root, "timeout", &words).arg("--timeout").arg(seconds);
    let plain = chosen.iter().fold(plain, |plain, name| plain.arg("--re").arg(exactly(name)));
    let plain = packages(plain, options).arg("--output").arg(&output);
    // It fails if a change was missed; what its lists say counts.
    let outcome = plain.run();
    let counts = Counts::read(&output.join("mutants.out"))?;
    if counts.tried() == 0 {
        outcome.context("nothing was tried")?;
    }
    let missed = std::fs::read_to_string(output.join("mutants.out/missed.txt"))?;
    for name in missed.lines() {
        say::line(format_args!("missed: {name}"));
    }
    say::result(format_args!(
        "{counts} ({} of {}, seed {})",
        counts.tried(),
        all.len(),
        options.seed
    ));
    Ok(())
}

fn packages(plain: Plain, options: &Options) -> Plain {
    let add = |plain: Plain, package: &String| plain.arg("--package").arg(package);
    options.packages.iter().fold(plain, add)
}

/// A regular expression for this text.
fn exactly(text: &str) -> String {
    let mut pattern = String::from("^");
    for c in text.chars() {
        // No others: before some, a backslash means something.
        if r"\.+*?()|[]{}^$".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "$"
}

/// So many of `all`, in their order; which ones follows from the seed.
fn sample<'a>(all: &[&'a str], count: usize, seed: u64) -> Vec<&'a str> {
    let mut state = seed;
    let mut ranked: Vec<(u64, usize)> = (0..all.len()).map(|n| (next(&mut state), n)).collect();
    ranked.sort_unstable();
    ranked.truncate(count);
    ranked.sort_unstable_by_key(|(_, n)| *n);
    ranked.into_iter().filter_map(|(_, n)| all.get(n).copied()).collect()
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The results of the changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    caught: usize,
    missed: usize,
    /// Does not compile: says nothing of the tests.
    unviable: usize,
}

impl Counts {
    /// What cargo-mutants listed. A change whose tests hang is found, too.
    fn read(folder: &Path) -> Result<Self> {
        let lines = |name: &str| -> Result<usize> {
            let text = std::fs::read_to_string(folder.join(name))
                .with_context(|| format!("cargo-mutants left no {name}"))?;
            Ok(text.lines().count())
        };
        Ok(Self {
            caught: lines("caught.txt")? + lines("timeout.txt")?,
            missed: lines("missed.txt")?,
            unviable: lines("unviable.txt")?,
        })
    }

    fn tried(&self) -> usize {
        self.caught + self.missed + self.unviable
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let viable = self.caught + self.missed;
        let share = (self.caught * 100).checked_div(viable).unwrap_or(0);
        write!(
            f,
            "{} of {viable} changes found, {share} %; {} did not compile",
            self.caught, self.unviable
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_follows_from_its_seed_and_keeps_the_order() {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let one = sample(&all, 3, 1);
        assert_eq!(one.len(), 3);
        assert!(one.is_sorted());
        assert_eq!(one, sample(&all, 3, 1));
        assert!((2..9).any(|seed| sample(&all, 3, seed) != one));
        assert_eq!(sample(&all, 100, 1), all);
    }

    #[test]
    fn a_change_is_found_by_its_name_alone() {
        let name = "crates/a.rs:1:2: replace x -> Option<&[u8]> with None";
        let pattern = r"^crates/a\.rs:1:2: replace x -> Option<&\[u8\]> with None$";
        assert_eq!(exactly(name), pattern);
    }

    #[test]
    fn the_share_is_of_what_compiles() {
        let counts = Counts { caught: 43, missed: 8, unviable: 5 };
        assert_eq!(counts.to_string(), "43 of 51 changes found, 84 %; 5 did not compile");
        assert_eq!(Counts::default().to_string(), "0 of 0 changes found, 0 %; 0 did not compile");
    }
}
