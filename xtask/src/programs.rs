//! Test programs: all built by one command, then run one after the other, each test within its time.
//!
//! `cargo test` would run them, too, but a test that hangs would hang it, and it does not say how far
//! it is. That programs and tests come from one command also spares a second build of what they
//! share: cargo resolves the features of a package for each set of packages that it builds.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::Surroundings;
use crate::plain::{Counts, Plain};
use crate::say::{self, Stopwatch};
use crate::watch::{self, Watch};

/// Builds every test and program.
pub(crate) const EVERYTHING: [&str; 5] =
    ["build", "--workspace", "--bins", "--tests", "--examples"];

/// Built programs.
#[derive(Debug)]
pub(crate) struct Programs {
    root: PathBuf,
    tests: Vec<TestProgram>,
}

/// One test program.
#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    package: String,
    /// `lib`, `bin` or `test`.
    kind: String,
    name: String,
    executable: PathBuf,
    /// The package's folder, in which cargo would run it.
    folder: PathBuf,
}

/// How often the build says how far it is.
const BETWEEN_REPORTS: Duration = Duration::from_secs(10);

/// How long a look at a silent test program may be put off.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

impl Programs {
    /// Builds what cargo builds for these words.
    ///
    /// # Errors
    ///
    /// If something does not compile.
    pub(crate) fn build(at: &Surroundings, words: &[&str]) -> Result<Self> {
        let units = units(at, words);
        let arguments = [words, &["--message-format=json-render-diagnostics"]].concat();
        let mut tests = Vec::new();
        let (mut done, mut reports) = (0, Stopwatch::start());
        let total = units.map_or_else(String::new, |units| format!(" of {units}"));
        Plain::cargo(&at.root, &arguments).run_reading(|line| {
            let message: Value = serde_json::from_str(line).unwrap_or_default();
            match message.get("reason").and_then(Value::as_str) {
                Some("compiler-artifact") => tests.extend(TestProgram::of_message(&message)),
                Some("build-script-executed") => {}
                _ => return,
            }
            done += 1;
            if reports.elapsed() >= BETWEEN_REPORTS {
                say::line(format_args!("   built {done}{total}"));
                reports = Stopwatch::start();
            }
        })?;
        tests.sort_by(|a, b| (&a.package, &a.kind, &a.name).cmp(&(&b.package, &b.kind, &b.name)));
        Ok(Self { root: at.root.clone(), tests })
    }

    /// Runs the test programs, and counts.
    ///
    /// # Errors
    ///
    /// If one cannot be started.
    pub(crate) fn run(&self, name: Option<&str>) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut failed = Vec::new();
        let chosen = self.tests.iter().map(|program| Ok((program, program.names(name)?)));
        let chosen: Vec<_> = chosen.collect::<Result<_>>()?;
        let chosen: Vec<_> = chosen.into_iter().filter(|(_, names)| !names.is_empty()).collect();
        let total = chosen.len();
        for (n, (program, names)) in chosen.into_iter().enumerate() {
            let (n, tests) = (n + 1, names.len());
            say::line(format_args!("\n== test program {n} of {total}, {tests} tests: {program}"));
            let outcome = program.run(name, names, watch::TEST_MAX, &mut std::io::stdout())?;
            counts += outcome.counts;
            failed.extend(outcome.failed.iter().map(|test| program.again(test)));
        }
        for again in failed {
            say::line(format_args!("failed; again: {again}"));
        }
        Ok(counts)
    }

    /// The tests in documentation, which cargo alone knows how to run.
    ///
    /// # Errors
    ///
    /// If cargo cannot be started.
    pub(crate) fn run_documentation(&self) -> Result<Counts> {
        Plain::cargo(&self.root, &["test", "--workspace", "--doc", "--quiet"]).run_counting()
    }
}

/// How many steps the build has, those that are done already included. Only for the report, so
/// a cargo that does not say it does no harm.
fn units(at: &Surroundings, arguments: &[&str]) -> Option<usize> {
    let graph = [arguments, &["-Zunstable-options", "--unit-graph"]].concat();
    // The option is unstable; it changes nothing that is built.
    let graph = Plain::cargo(&at.root, &graph).env("RUSTC_BOOTSTRAP", "1").read_quietly().ok()?;
    let graph: Value = serde_json::from_str(&graph).ok()?;
    Some(graph.get("units")?.as_array()?.len())
}

/// The result of a test program.
#[derive(Debug, Default)]
struct Outcome {
    counts: Counts,
    failed: Vec<String>,
}

impl TestProgram {
    /// Of cargo's message about something that it built, if that is a test program.
    fn of_message(message: &Value) -> Option<Self> {
        if !message.pointer("/profile/test")?.as_bool()? {
            return None;
        }
        let text = |path| message.pointer(path)?.as_str();
        let manifest = Path::new(text("/manifest_path")?);
        let folder = manifest.parent()?;
        Some(Self {
            package: package_name(text("/package_id")?)?.to_owned(),
            kind: text("/target/kind/0")?.to_owned(),
            name: text("/target/name")?.to_owned(),
            executable: text("/executable")?.into(),
            folder: folder.to_path_buf(),
        })
    }

    /// Its tests whose names hold `name`.
    fn names(&self, name: Option<&str>) -> Result<Vec<String>> {
        let mut list = self.command();
        list.args(name).args(["--list", "--format", "terse"]);
        let output = list.output().with_context(|| format!("listing the tests of {self}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs it and passes on what it prints. A test that does not end is named with what it waits for, and ends the program.
    fn run(
        &self,
        name: Option<&str>,
        names: Vec<String>,
        limit: Duration,
        output: &mut dyn Write,
    ) -> Result<Outcome> {
        let mut command = self.command();
        let mut child = command
            .args(name)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", self.executable.display()))?;
        let printed = BufReader::new(child.stdout.take().context("stdout was piped")?);
        let (sender, lines) = mpsc::channel();
        // Ends with the program, whose output it reads.
        std::thread::spawn(move || watch::send_lines(printed, &sender));
        let began = Stopwatch::start();
        let mut watch = Watch::new(names, limit);
        let mut outcome = Outcome::default();
        let mut has_closing_line = false;
        loop {
            match lines.recv_timeout(BETWEEN_LOOKS) {
                Ok(line) => {
                    output.write_all(&line)?;
                    output.flush()?;
                    let line = String::from_utf8_lossy(&line);
                    if let Some(counts) = Counts::of_line(&line) {
                        outcome.counts += counts;
                        has_closing_line = true;
                    }
                    watch.on_line(&line, began.elapsed());
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Processes that it left running may hold its output open.
                    if child.try_wait()?.is_some() {
                        break;
                    }
                    if let Some(overdue) = watch.overdue(began.elapsed()) {
                        say::line(format_args!("\n{overdue} of {self} did not end; it waits:"));
                        for waiting in watch::end(child.id()) {
                            say::line(format_args!("   {waiting}"));
                        }
                        outcome.failed.extend(overdue.names);
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let succeeded = child.wait()?.success();
        let (passed, failed) = watch.finished();
        outcome.failed.splice(..0, failed.iter().cloned());
        if !has_closing_line {
            outcome.counts.passed = passed;
            outcome.counts.failed = outcome.failed.len() as u64;
        }
        if !succeeded && outcome.counts.failed == 0 {
            outcome.counts.failed = 1;
        }
        Ok(outcome)
    }

    /// In its package's folder, as cargo would.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// The command that runs one test of it.
    fn again(&self, test: &str) -> String {
        let target = match &*self.kind {
            "bin" => format!("--bin {}", self.name),
            "test" => format!("--test {}", self.name),
            _ => "--lib".to_owned(),
        };
        format!("cargo test -p {} {target} {test}", self.package)
    }
}

impl std::fmt::Display for TestProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.kind {
            "bin" | "test" => write!(f, "{}, {} {}", self.package, self.kind, self.name),
            _ => write!(f, "{}, its units", self.package),
        }
    }
}

/// `path+file:///x/crates/wire#0.1.0` and `path+file:///x/y#wire@0.1.0` are `wire`.
fn package_name(id: &str) -> Option<&str> {
    let (place, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that [`program`] writes, in the program's folder.
    const SCRIPT: &str = "script";

    /// A program that says what the harness would: a shell, which [`run`] gives the script to. Were the
    /// script itself executed, a test that forks at the same time could still have it open for writing
    /// (`ETXTBSY`).
    fn program(name: &str, script: &str) -> TestProgram {
        let folder = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(SCRIPT), script).unwrap();
        let [package, kind, name] = ["wire", "test", "h2"].map(str::to_owned);
        TestProgram { package, kind, name, executable: PathBuf::from("/bin/sh"), folder }
    }

    fn run(program: &TestProgram, names: &[&str], limit: Duration) -> Outcome {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let mut output = Vec::new();
        let outcome = program.run(Some(SCRIPT), names, limit, &mut output).unwrap();
        assert_eq!(output.is_empty(), outcome.counts.passed == 0);
        std::fs::remove_dir_all(&program.folder).unwrap();
        outcome
    }

    #[test]
    fn a_test_that_hangs_ends_and_counts_as_failed() {
        let hanging = program("hangs", "echo 'test a ... ok'; sleep 1000 & sleep 1000");
        let outcome = run(&hanging, &["a", "b"], Duration::from_secs(1));
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 1, skipped: 0 });
        assert_eq!(outcome.failed, ["b"]);
        assert_eq!(hanging.again("b"), "cargo test -p wire --test h2 b");
    }

    #[test]
    fn the_closing_line_counts_and_failed_tests_are_named() {
        let line = "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out";
        let script = format!("echo 'test a ... ok\ntest b ... FAILED\n\n{line}'; exit 101");
        let outcome = run(&program("fails", &script), &["a", "b"], watch::TEST_MAX);
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 1, skipped: 1 });
        assert_eq!(outcome.failed, ["b"]);
    }

    #[test]
    fn a_program_that_dies_without_a_closing_line_counts_as_a_failure() {
        let outcome = run(&program("dies", "exit 3"), &["a"], watch::TEST_MAX);
        assert_eq!(outcome.counts, Counts { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn what_a_program_leaves_running_does_not_hold_up_the_next() {
        let line = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let script = format!("echo '{line}'; sleep 3 & exit 0");
        let outcome = run(&program("leaves", &script), &["a"], watch::TEST_MAX);
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 0, skipped: 0 });
    }

    #[test]
    fn messages_of_cargo_name_test_programs() {
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///x/crates/wire#0.1.0",
            "manifest_path": "/x/crates/wire/Cargo.toml",
            "target": { "kind": ["test"], "name": "h2" },
            "profile": { "test": true },
            "executable": "/x/target/debug/deps/h2-1",
        });
        let program = TestProgram::of_message(&message).unwrap();
        assert_eq!(program.to_string(), "wire, test h2");
        assert_eq!(program.folder, Path::new("/x/crates/wire"));
        assert_eq!(package_name("path+file:///x/y#wire@0.1.0"), Some("wire"));
        let mut library = message;
        library["profile"]["test"] = false.into();
        assert_eq!(TestProgram::of_message(&library), None);
    }
}
