//! Runs plain commands, each printed first as one would type it.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::say;

/// One command line.
#[derive(Debug)]
pub(crate) struct Plain {
    command: Command,
}

/// Tests counted from the closing lines of test programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that ran and held.
    pub(crate) passed: u64,
    /// Tests that ran and did not hold.
    pub(crate) failed: u64,
    /// Tests that did not run.
    pub(crate) skipped: u64,
}

impl Plain {
    /// `program` with `arguments`, in `root`.
    pub(crate) fn new(root: &Path, program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root).stdin(Stdio::null());
        Self { command }
    }

    /// `cargo` with `arguments`, in `root`.
    pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Self {
        Self::new(root, "cargo", arguments)
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Sets one variable of the command's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    ///
    /// If it cannot be started or does not exit with 0.
    pub(crate) fn run(mut self) -> Result<()> {
        say::command(&self);
        let status = self.command.status().with_context(|| format!("starting `{self}`"))?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Runs it to its end, passes its output through, and counts the tests that it reports.
    /// A program that fails without a failed test counts as one.
    ///
    /// # Errors
    ///
    /// If it cannot be started or read.
    pub(crate) fn run_counting(mut self) -> Result<Counts> {
        say::command(&self);
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting `{self}`"))?;
        let mut counts = Counts::default();
        let mut stdout = std::io::stdout().lock();
        let mut output = BufReader::new(child.stdout.take().context("stdout was piped")?);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            stdout.write_all(&line)?;
            stdout.flush()?;
            counts += Counts::of_line(&String::from_utf8_lossy(&line)).unwrap_or_default();
            line.clear();
        }
        if !child.wait()?.success() && counts.failed == 0 {
            counts.failed = 1;
        }
        Ok(counts)
    }

    /// Runs it to its end and hands over each line of its output as it comes.
    ///
    /// # Errors
    ///
    /// If it cannot be started or read, or does not exit with 0.
    pub(crate) fn run_reading(mut self, mut on_line: impl FnMut(&str)) -> Result<()> {
        say::command(&self);
        let spawned = self.command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("starting `{self}`"))?;
        for line in BufReader::new(child.stdout.take().context("stdout was piped")?).lines() {
            on_line(&line?);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Runs it without printing and hands over what it wrote to stdout; what it says of errors is
    /// of no interest.
    ///
    /// # Errors
    ///
    /// As [`Plain::read`].
    pub(crate) fn read_quietly(self) -> Result<String> {
        self.read_with(Stdio::null())
    }

    /// Runs it without printing and hands over what it wrote to stdout.
    ///
    /// # Errors
    ///
    /// If it cannot be started, does not exit with 0 or does not write UTF-8.
    pub(crate) fn read(self) -> Result<String> {
        self.read_with(Stdio::inherit())
    }

    fn read_with(mut self, errors: Stdio) -> Result<String> {
        let output =
            self.command.stderr(errors).output().with_context(|| format!("starting `{self}`"))?;
        if !output.status.success() {
            bail!("`{self}` failed ({})", output.status);
        }
        String::from_utf8(output.stdout).with_context(|| format!("output of `{self}`"))
    }

    /// Its standard error, if it succeeds.
    ///
    /// # Errors
    ///
    /// If it cannot be started or fails; what it said is in the error.
    pub(crate) fn read_errors(mut self) -> Result<String> {
        let output = self.command.output().with_context(|| format!("starting `{self}`"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            bail!("`{self}` failed ({}):\n{text}", output.status);
        }
        Ok(text)
    }
}

/// The program of this name in the usual places (system programs are not on every user's path).
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .into_iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.command.get_envs() {
            if let Some(value) = value {
                write!(f, "{}={} ", name.display(), quoted(value))?;
            }
        }
        write!(f, "{}", self.command.get_program().display())?;
        for argument in self.command.get_args() {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into_owned();
    }
    let mut text = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => text.push_str("'\\''"),
            c => _ = text.write_char(c),
        }
    }
    text.push('\'');
    text
}

impl Counts {
    /// Reads the closing line of a Rust test program, or nothing from any other line:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let (_, numbers) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = Self::default();
        for part in numbers.split("; ") {
            match part.split_once(' ') {
                Some((n, "passed")) => counts.passed = n.parse().ok()?,
                Some((n, "failed")) => counts.failed = n.parse().ok()?,
                Some((n, "ignored")) => counts.skipped = n.parse().ok()?,
                _ => {}
            }
        }
        Some(counts)
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted_and_others_are_not() {
        let line = "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 7 filtered \
                    out; finished in 0.41s\n";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 12, failed: 1, skipped: 3 }));
        assert_eq!(Counts::of_line("test result of a rule ... ok"), None);
        assert_eq!(Counts::of_line("running 3 tests"), None);
    }

    #[test]
    fn a_program_that_dies_without_a_closing_line_counts_as_a_failure() {
        let plain = Plain::new(Path::new("/"), "sh", &["-c", "exit 3"]);
        let counts = plain.run_counting().unwrap();
        assert_eq!(counts, Counts { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_command_is_printed_as_one_would_type_it() {
        let plain = Plain::new(Path::new("/"), "cargo", &["test", "-p", "wire", "it's here"])
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            plain.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo test -p wire 'it'\''s here'"
        );
    }
}
