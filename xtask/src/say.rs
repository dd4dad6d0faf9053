//! Messages of the commands, printed to stderr so that a command's own output stays apart.

#![expect(clippy::print_stderr, clippy::print_stdout, reason = "what this module is for")]

use std::fmt::Display;
use std::time::{Duration, Instant};

/// One line about what goes on.
pub(crate) fn line(text: impl Display) {
    eprintln!("{text}");
}

/// A plain command that is about to run.
pub(crate) fn command(text: impl Display) {
    eprintln!("\n$ {text}");
}

/// Why a command failed, causes included.
pub(crate) fn failure(error: &anyhow::Error) {
    eprintln!("\nxtask: {error:#}");
}

/// A closing line that programs read, too: to stdout.
pub(crate) fn result(text: impl Display) {
    println!("\n{text}");
}

/// Steps of a command: each says what it does and how far the command is; then where the time went.
#[derive(Debug)]
pub(crate) struct Steps {
    count: usize,
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    /// So many steps.
    pub(crate) fn new(count: usize) -> Self {
        Self { count, done: Vec::new() }
    }

    /// Does the next one.
    pub(crate) fn next<T>(&mut self, what: &'static str, step: impl FnOnce() -> T) -> T {
        line(format_args!("\n==== step {} of {}: {what}", self.done.len() + 1, self.count));
        let began = Stopwatch::start();
        let result = step();
        self.done.push((what, began.elapsed()));
        result
    }

    /// How long each took.
    pub(crate) fn summary(&self) {
        line("");
        for (what, took) in &self.done {
            line(format_args!("{:>6.0} s  {what}", took.as_secs_f64()));
        }
        let all: Duration = self.done.iter().map(|(_, took)| *took).sum();
        line(format_args!("{:>6.0} s  in all", all.as_secs_f64()));
    }
}

/// Time since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins now.
    #[expect(clippy::disallowed_methods, reason = "the clock of these commands")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the beginning.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
