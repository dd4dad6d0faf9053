//! Developer commands: `cargo xtask` lists them.
//!
//! Each command prints the plain commands that it runs, so that developers need not read this
//! program to know how something is done. A module per command; `plain` runs, `say` prints, `tidy`
//! reads.

#![forbid(unsafe_code)]

mod advisories;
mod bench;
mod check;
mod fuzz;
mod instructions;
mod mutants;
mod package;
mod peers;
mod plain;
mod profiling;
mod programs;
mod say;
mod sim;
mod test;
mod tidy;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};

use plain::Plain;

/// Developer commands of Strait.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Formatting, lints, documentation, unit and conversation tests: before each commit.
    Check,
    /// Every test, real peers included; or those of one crate (`peers` is one), or one by name.
    Test {
        /// Package to test.
        package: Option<String>,
        /// Only the tests whose name holds this.
        name: Option<String>,
    },
    /// Simulates whole workers under a seed; prints the seed.
    Sim(sim::Options),
    /// Runs one fuzz target from its corpus, until stopped; without a target, lists them.
    Fuzz {
        /// Target, a file of `fuzz/fuzz_targets`.
        target: Option<String>,
        /// Stops after this many seconds.
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// Tests against real programs: curl, nginx, HAProxy, wrk and others.
    Peers {
        /// Only the claims whose name holds this. `previous` builds the previous version first.
        name: Option<String>,
        /// Lists the claims and the programs that each needs.
        #[arg(long)]
        list: bool,
    },
    /// Measures Strait beside other proxies; needs them, wrk and two quiet cores.
    Bench(bench::Options),
    /// Counts the instructions of codecs and of a whole exchange; needs valgrind.
    Instructions(instructions::Options),
    /// Known vulnerabilities of what Strait depends on, where RustSec's database can be had.
    Advisories(advisories::Options),
    /// Which share of small deliberate defects the tests find; needs cargo-mutants.
    Mutants(mutants::Options),
    /// Builds the Debian packages, the program's and that of its symbols; needs cargo-deb.
    Package,
    /// What no lint checks: crate table, dependency list, documents, dead files.
    Tidy,
}

/// What a command may know of where it runs.
#[derive(Debug)]
struct Surroundings {
    /// The repository's root.
    root: PathBuf,
    /// Whether warnings and missing peers are failures.
    is_ci: bool,
    /// Where cargo and its companions keep what they fetch.
    cargo_home: Option<PathBuf>,
}

impl Surroundings {
    /// Where cargo builds.
    ///
    /// # Errors
    ///
    /// If cargo cannot say.
    fn target_directory(&self) -> Result<PathBuf> {
        let arguments = ["metadata", "--format-version=1", "--no-deps", "--offline"];
        let metadata: serde_json::Value =
            serde_json::from_str(&Plain::cargo(&self.root, &arguments).read()?)?;
        let directory = metadata.get("target_directory").and_then(serde_json::Value::as_str);
        Ok(directory.context("cargo metadata names no target_directory")?.into())
    }

    /// Checks another commit out below the target directory, for measurements, and says where.
    ///
    /// # Errors
    ///
    /// If there is no such commit.
    fn check_out(&self, reference: &str) -> Result<PathBuf> {
        self.check_out_at("bench/against", reference)
    }

    /// The same, in this folder.
    ///
    /// # Errors
    ///
    /// If there is no such commit.
    fn check_out_at(&self, folder: &str, reference: &str) -> Result<PathBuf> {
        let place = self.target_directory()?.join(folder);
        if place.join(".git").exists() {
            Plain::new(&place, "git", &["checkout", "--quiet", "--detach", reference]).run()?;
        } else {
            let add = Plain::new(&self.root, "git", &["worktree", "add", "--quiet", "--detach"]);
            add.arg(&place).arg(reference).run()?;
        }
        Ok(place)
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::failure(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let at = surroundings()?;
    match &arguments.command {
        None => list(),
        Some(Command::Check) => check::run(&at),
        Some(Command::Test { package, name }) => {
            test::run(&at, package.as_deref(), name.as_deref())
        }
        Some(Command::Sim(options)) => sim::run(&at, options),
        Some(Command::Fuzz { target, seconds }) => fuzz::run(&at, target.as_deref(), *seconds),
        Some(Command::Peers { name, list }) => peers::run(&at, name.as_deref(), *list),
        Some(Command::Bench(options)) => bench::run(&at, options),
        Some(Command::Instructions(options)) => instructions::run(&at, options),
        Some(Command::Advisories(options)) => advisories::run(&at, options),
        Some(Command::Mutants(options)) => mutants::run(&at, options),
        Some(Command::Package) => package::run(&at),
        Some(Command::Tidy) => tidy::run(&at),
    }
}

fn list() -> Result<()> {
    Arguments::command().print_help().context("printing the list")
}

#[expect(clippy::disallowed_methods, reason = "the entry point; below it, this is an argument")]
fn surroundings() -> Result<Surroundings> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent")?;
    let is_ci =
        std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
    let cargo_home = std::env::var("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|_| std::env::var("HOME").map(|home| Path::new(&home).join(".cargo")));
    Ok(Surroundings { root: root.to_path_buf(), is_ci, cargo_home: cargo_home.ok() })
}
