//! The machine and the programs of a result.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::tools::Tools;
use crate::plain::{Plain, find};
use crate::say;

/// Where and with what a run took place.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// Day of the run (UTC).
    pub(crate) date: String,
    /// Commit of the tree, with a mark if it had changes.
    pub(crate) commit: String,
    /// Model of the processor.
    pub(crate) processor: String,
    /// Number of cores.
    pub(crate) cores: usize,
    /// Version of the kernel.
    pub(crate) kernel: String,
    /// Threads that wanted to run in the minute before, on average: others disturb a run.
    pub(crate) load_before: f64,
    /// One line for each program that took part.
    pub(crate) versions: Vec<String>,
}

/// Above this, a warning says that the machine is not quiet.
const LOAD_QUIET_MAX: f64 = 0.5;

impl Machine {
    /// Looks at the machine.
    ///
    /// # Errors
    ///
    /// If one of the commands that it asks fails.
    pub(crate) fn look(tools: &Tools) -> Result<Self> {
        let read = |program: &str, arguments: &[&str]| -> Result<String> {
            Ok(Plain::new(&tools.root, program, arguments).read()?.trim().to_owned())
        };
        let processors = std::fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
        let models: Vec<&str> = processors
            .lines()
            .filter(|line| line.starts_with("model name"))
            .filter_map(|line| line.split_once(": ").map(|(_, model)| model))
            .collect();
        let mut versions = vec![read("rustc", &["--version"])?];
        for binary in &tools.binaries {
            let version = binary.version(&tools.root);
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        if find("wrk").is_some() {
            versions.push(first_line_with(&tools.root, "wrk", "-v", "wrk "));
        }
        let load_average = std::fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
        let load_before = load_average.split(' ').next().unwrap_or_default().parse()?;
        if load_before > LOAD_QUIET_MAX {
            say::line(format_args!("the machine is not quiet: load average {load_before}"));
        }
        Ok(Self {
            load_before,
            date: read("date", &["-u", "+%F"])?,
            commit: read("git", &["describe", "--always", "--dirty", "--abbrev=12"])?,
            processor: models.first().copied().unwrap_or("unknown").to_owned(),
            cores: models.len(),
            kernel: read("uname", &["-sr"])?,
            versions,
        })
    }
}

/// The first line that holds `mark` in what a program says of itself on either output, whatever it
/// exits with.
pub(crate) fn first_line_with(
    root: &Path,
    program: impl AsRef<Path>,
    argument: &str,
    mark: &str,
) -> String {
    let program = program.as_ref();
    let output = std::process::Command::new(program).arg(argument).current_dir(root).output();
    let text = output.map_or_else(
        |error| error.to_string(),
        |output| {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).into_owned()
        },
    );
    let line = text.lines().map(str::trim).find(|line| line.contains(mark));
    line.map_or_else(|| format!("{}: unknown version", program.display()), str::to_owned)
}
