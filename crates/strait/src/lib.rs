//! Strait: the program, as a library, so that a binary of another crate may add filters, route handlers and protocols.
//!
//! Reads the command line, puts the crates together and starts the threads. What a newcomer may
//! look for here: `filter_list` names every filter there is, `data_path` starts workers and is
//! control's view of them, `serve` is the order in which a process starts. `examples/unit-routing` is a binary with an
//! extension.
#![forbid(unsafe_code)]

mod activation;
mod admin_client;
mod arguments;
mod check;
mod control_groups;
mod cores;
mod crypto_thread;
mod data_path;
mod demo;
mod descriptors;
mod explain;
mod filter_list;
mod handover;
mod init;
mod logging;
mod manual;
mod message_queue;
mod moves;
mod protocol_list;
mod ready;
mod secrecy;
mod serve;
mod top;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use config::SchemaError;
use config::filters::FilterKinds;
use proxy::filter::Filter;

use crate::arguments::{Arguments, Command};

/// Version of the program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from; `build.rs` asks git.
const COMMIT: &str = env!("STRAIT_COMMIT");

/// Registers what a binary adds to Strait.
pub type Extend = fn(&mut FilterKinds<Box<dyn Filter>>) -> Result<(), SchemaError>;

/// Strait's own parts, and nothing else.
///
/// # Errors
///
/// None.
pub const fn as_it_is(_: &mut FilterKinds<Box<dyn Filter>>) -> Result<(), SchemaError> {
    Ok(())
}

/// Runs the program with the arguments of this process, to be called by `main` before anything else. `extend` registers
/// what the configuration may name beside Strait's own parts: under a name of these, it takes their place.
#[must_use]
pub fn run(extend: Extend) -> ExitCode {
    // Before anything takes memory.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|it| it == init::INIT) {
        let successor = arguments.next().and_then(|it| it.to_str()?.parse().ok());
        return ExitCode::from(::io::init::be_init(successor.unwrap_or(0)));
    }
    // Wrong arguments end the process here, with status 2.
    let Arguments { command } = Arguments::parse();
    filter_list::extend(extend);
    let result = match command {
        Command::Run(run) => serve::run(&run),
        Command::Upgrade(upgrade) => handover::upgrade::upgrade(&upgrade),
        Command::Check(check) => check::check(&check),
        Command::Explain(explain) => explain::explain(&explain),
        Command::Top(options) => top::top(&options),
        Command::Ready(options) => ready::ready(&options),
        Command::Schema => check::schema(),
        Command::Demo(demo) => demo::demo(&demo),
        Command::Completions { shell } => arguments::completions(shell),
        Command::Man { dir } => arguments::man(dir.as_deref()),
    };
    match result {
        Ok(()) => {
            logging::finish(None);
            ExitCode::SUCCESS
        }
        // `strait schema | head` is no failure.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(Failure::Reported) => {
            logging::finish(None);
            ExitCode::FAILURE
        }
        Err(failure) => {
            logging::finish(Some(&failure.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// Why a command failed: what it says to the operator.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The configuration cannot be taken up.
    #[error("the configuration is refused\n{0}")]
    Config(control::Refused),
    /// No listener of that name.
    #[error("{0}")]
    Explain(String),
    /// There is nothing to show.
    #[error("{0}")]
    Top(String),
    /// The process does not serve, or not the one that was asked for.
    #[error("not ready: {0}")]
    NotReady(String),
    /// Standard output, or the file, cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A filter's configuration type has a schema that files cannot follow: our own mistake.
    #[error("a filter cannot be offered (please report this): {0}")]
    Filters(SchemaError),
    /// Something that has to be there to start.
    #[error("cannot start: {0}")]
    Start(String),
    /// What is wrong was printed as the command was asked to.
    #[error("the configuration is refused")]
    Reported,
    /// It ran, and ended other than by a drain.
    #[error("{0}")]
    Ended(String),
}
