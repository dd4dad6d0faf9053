//! Watches a test program for tests that do not end, and ends it with what it waits for.
//!
//! The standard test harness has no limit of its own; after a minute it says that a test "has been
//! running for over 60 seconds". That line, and silence, are what is known from outside. Time is an
//! argument here: how long ago the program was started.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// How long one test may take. The longest takes 20 s on two quiet cores; machines that do much else
/// beside take several times as long, and a test that hangs hangs for ever.
pub(crate) const TEST_MAX: Duration = Duration::from_secs(240);

/// After how long the harness names a test that still runs.
const NAMED_AFTER: Duration = Duration::from_secs(60);

/// Of a program without a line for so long, tests that are named as possible causes.
const NAMED_MAX: usize = 10;

/// The state of a running test program.
#[derive(Debug)]
pub(crate) struct Watch {
    /// How long one test may take.
    limit: Duration,
    /// Tests that have not ended, begun or not.
    pending: BTreeSet<String>,
    passed: u64,
    failed: Vec<String>,
    /// Tests that the harness named as slow, and when they began.
    slow: BTreeMap<String, Duration>,
    /// When the last line came.
    heard: Duration,
}

/// Tests that did not end in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    /// One of these, if the harness did not say which.
    pub(crate) names: Vec<String>,
    /// How long was waited.
    after: Duration,
}

impl Watch {
    /// Of a program with these tests, when it is started.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, limit: Duration) -> Self {
        Self {
            limit,
            pending: names.into_iter().collect(),
            passed: 0,
            failed: Vec::new(),
            slow: BTreeMap::new(),
            heard: Duration::ZERO,
        }
    }

    /// A line of the program.
    pub(crate) fn on_line(&mut self, line: &str, now: Duration) {
        self.heard = now;
        let Some(line) = line.trim_end().strip_prefix("test ") else { return };
        if let Some((name, _)) = line.split_once(" has been running for over ") {
            self.slow.insert(name.to_owned(), now.saturating_sub(NAMED_AFTER));
        } else if let Some((name, result)) = line.split_once(" ... ") {
            let name = name.trim_end_matches(" - should panic");
            if !self.pending.remove(name) {
                return;
            }
            self.slow.remove(name);
            match result {
                result if result.starts_with("ok") => self.passed += 1,
                result if result.starts_with("FAILED") => self.failed.push(name.to_owned()),
                _ => {}
            }
        }
    }

    /// The tests that should have ended by now.
    pub(crate) fn overdue(&self, now: Duration) -> Option<Overdue> {
        let late = |began: &Duration| now.saturating_sub(*began) >= self.limit;
        let names: Vec<String> = self
            .slow
            .iter()
            .filter(|(_, began)| late(began))
            .map(|(name, _)| name.clone())
            .collect();
        if !names.is_empty() {
            return Some(Overdue { names, after: self.limit });
        }
        // With one thread the harness names nothing.
        late(&self.heard).then(|| Overdue {
            names: self.pending.iter().take(NAMED_MAX).cloned().collect(),
            after: self.limit,
        })
    }

    /// How many passed, and which did not.
    pub(crate) fn finished(&self) -> (u64, &[String]) {
        (self.passed, &self.failed)
    }
}

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.join(", ");
        match &*self.names {
            [_] => write!(f, "after {} s, test {names}", self.after.as_secs()),
            _ => write!(f, "after {} s, one of the tests {names}", self.after.as_secs()),
        }
    }
}

/// Sends each line of `output` until it ends, or until nothing listens. The last one need not be a
/// whole line: the harness says the name of a test before it runs it, where it has one thread.
pub(crate) fn send_lines(mut output: impl BufRead, lines: &Sender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match output.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if lines.send(line).is_err() => return,
            Ok(_) => {}
        }
    }
}

/// Ends a process and all that it started; says what each of their threads waited for.
pub(crate) fn end(process: u32) -> Vec<String> {
    let mut waiting = Vec::new();
    let mut processes = vec![process];
    let mut seen = 0;
    while let Some(&process) = processes.get(seen) {
        seen += 1;
        let folder = format!("/proc/{process}/task");
        for task in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            waiting.push(format!("process {process}, {}", what_it_waits_for(&task.path())));
            processes.extend(read(&task.path(), "children").split_whitespace().filter_map(number));
        }
    }
    // The signal, not a request: what hangs may not listen. Children last, or they would be started
    // again by those that look after them.
    let ids: Vec<String> = processes.iter().map(u32::to_string).collect();
    let mut kill = Command::new("kill");
    _ = kill.arg("-KILL").args(ids).stdin(Stdio::null()).stderr(Stdio::null()).status();
    waiting
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// `thread h2::a_stream, asleep in futex_do_wait`.
fn what_it_waits_for(task: &Path) -> String {
    let name = read(task, "comm");
    let stat = read(task, "stat");
    // Behind the name, which may hold anything.
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    let place = match read(task, "wchan") {
        place if place.is_empty() || place == "0" => String::new(),
        place => format!(" in {place}"),
    };
    let state = match state {
        Some('R') => "busy",
        Some('S') => "asleep",
        Some('D') => "asleep in the kernel",
        Some('Z') => "ended, not waited for",
        Some('T' | 't') => "stopped",
        _ => "in an unknown state",
    };
    format!("thread {name}: {state}{place}")
}

fn read(task: &Path, file: &str) -> String {
    std::fs::read_to_string(task.join(file)).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn watch(names: &[&str]) -> Watch {
        Watch::new(names.iter().map(|&name| name.to_owned()), TEST_MAX)
    }

    #[test]
    fn a_test_that_the_harness_calls_slow_is_overdue_at_the_limit_though_others_end() {
        let mut watch = watch(&["a", "b::c", "d"]);
        watch.on_line("test b::c has been running for over 60 seconds\n", 70 * SECOND);
        let limit = 10 * SECOND + TEST_MAX;
        watch.on_line("test a ... ok\n", limit - SECOND);
        assert_eq!(watch.overdue(limit - SECOND), None);
        let overdue = watch.overdue(limit).unwrap();
        assert_eq!(overdue.names, ["b::c"]);
        assert_eq!(overdue.to_string(), "after 240 s, test b::c");
    }

    #[test]
    fn a_slow_test_that_ends_is_forgotten() {
        let mut watch = watch(&["a", "b"]);
        watch.on_line("test a has been running for over 60 seconds\n", 60 * SECOND);
        watch.on_line("test a ... ok\n", 200 * SECOND);
        assert_eq!(watch.overdue(300 * SECOND), None);
        assert_eq!(watch.finished(), (1, &[][..]));
    }

    #[test]
    fn silence_names_all_that_has_not_ended() {
        let mut watch = watch(&["a", "b", "c - compile"]);
        watch.on_line("test a ... FAILED\n", SECOND);
        assert_eq!(watch.overdue(TEST_MAX), None);
        assert_eq!(watch.overdue(SECOND + TEST_MAX).unwrap().names, ["b", "c - compile"]);
        assert_eq!(watch.finished(), (0, &["a".to_owned()][..]));
    }

    #[test]
    fn what_a_test_prints_is_not_taken_for_its_result() {
        let mut watch = watch(&["a"]);
        watch.on_line("test of a rule ... ok\n", SECOND);
        watch.on_line("test a ... ignored, takes long\n", SECOND);
        watch.on_line("test a ... FAILED\n", SECOND);
        assert_eq!(watch.finished(), (0, &[][..]));
    }

    #[test]
    fn what_is_ended_says_what_it_waited_for_and_leaves_no_process() {
        let mut shell = Command::new("sh");
        let script = "sleep 1000 & sleep 1000";
        let mut shell = shell.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = shell.stdout.take().unwrap();
        let id = shell.id();
        let started = || read(&Path::new("/proc").join(format!("{id}/task/{id}")), "children");
        while started().split_whitespace().count() < 2 {
            std::thread::yield_now();
        }
        let waiting = end(id);
        assert!(!shell.wait().unwrap().success());
        assert_eq!(waiting.len(), 3, "{waiting:?}");
        assert!(waiting.iter().any(|line| line.contains("thread sh: ")), "{waiting:?}");
        // They had its output open; it ends with the last of them.
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
    }
}
