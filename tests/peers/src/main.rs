//! Strait against real programs: what other people's clients, servers and attack tools see of it.
//!
//! `cargo xtask peers` builds and runs this; `peers list` says what is claimed. A claim is one
//! file under `claims/`, named by what it claims, and can be read on its own: it starts what it
//! needs on free ports, in a folder of its own, and everything it started ends with it, however it
//! ends. Each runs in a process of its own, which has a time limit; two run at a time, but for those
//! that look at load.

#![forbid(unsafe_code)]

mod cargo;
mod claim;
mod claims;
mod client;
mod container;
mod folder;
mod go;
mod haproxy;
mod java;
mod lab;
mod network;
mod nginx;
mod node;
mod openssl;
mod origin;
mod pattern;
mod peer;
mod pki;
mod ports;
mod process;
mod python;
mod say;
mod strait;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Strait against real programs.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the claims and the programs that each needs.
    List,
    /// Installs missing programs where that is possible; says how where it is not.
    Install,
    /// Runs the claims.
    Run {
        /// Strait's program.
        #[arg(long)]
        strait: PathBuf,
        /// The program of the previous version, for the claim that needs it.
        #[arg(long)]
        previous: Option<PathBuf>,
        /// A missing program is a failure.
        #[arg(long)]
        require_all: bool,
        /// Only the claims whose name holds this.
        name: Option<String>,
    },
    /// Tries one claim, in this process.
    #[command(hide = true)]
    Claim {
        /// Its whole name.
        name: String,
        /// Strait's program.
        #[arg(long)]
        strait: PathBuf,
        /// The program of the previous version.
        #[arg(long)]
        previous: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            say::line(format_args!("peers: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List => {
            claim::list();
            Ok(ExitCode::SUCCESS)
        }
        Command::Install => {
            peer::install();
            Ok(ExitCode::SUCCESS)
        }
        Command::Claim { name, strait, previous } => {
            claim::holds(&name, strait, previous)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { strait, previous, require_all, name } => {
            let previous = previous.map(|path| path.canonicalize()).transpose()?;
            let run = claim::Run { strait: strait.canonicalize()?, previous, require_all };
            Ok(if run.all(name.as_deref())? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
