//! A program that runs until its handle is dropped.
//!
//! Dropping kills it and whatever it started in its group, also when the claim panics. `setpriv`
//! makes the kernel kill it when this program itself is killed.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal};

use crate::wait;

/// A running program; its output goes to a file.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    output: PathBuf,
}

/// What a program left behind that ran to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// Stdout and stderr, as they came.
    pub(crate) output: String,
    /// The same in a file, for what is not text.
    pub(crate) file: PathBuf,
}

impl Process {
    /// Starts `program`; what it prints is kept in `folder`.
    pub(crate) fn start(
        folder: &Path,
        program: impl AsRef<Path>,
        arguments: &[&str],
    ) -> Result<Self> {
        Self::spawn(folder, program.as_ref(), arguments, Stdio::null())
    }

    /// Starts `program`, with a pipe to what it reads.
    pub(crate) fn start_with_input(
        folder: &Path,
        program: impl AsRef<Path>,
        arguments: &[&str],
    ) -> Result<(Self, ChildStdin)> {
        let mut this = Self::spawn(folder, program.as_ref(), arguments, Stdio::piped())?;
        let input = this.child.stdin.take().context("a pipe")?;
        Ok((this, input))
    }

    fn spawn(folder: &Path, program: &Path, arguments: &[&str], input: Stdio) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (output, file) = output_file(folder, &name)?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(input)
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child, output })
    }

    /// Runs `program` to its end, which must come within `patience`.
    pub(crate) fn run(
        folder: &Path,
        program: impl AsRef<Path>,
        arguments: &[&str],
        patience: Duration,
    ) -> Result<Finished> {
        let mut process = Self::start(folder, program, arguments)?;
        let status = process.wait(patience)?;
        Ok(Finished { status, output: process.output(), file: process.output.clone() })
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        wait::for_some(&format!("the end of {}", self.name), patience, || {
            self.child.try_wait().transpose()
        })?
        .with_context(|| format!("waiting for {}", self.name))
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until `is_ready`, or until it ended, which is an error that shows its output.
    pub(crate) fn ready(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<()> {
        let name = self.name.clone();
        let state = wait::for_some(&format!("{name} to be ready"), wait::SOON, || {
            if !self.is_running() {
                return Some(false);
            }
            is_ready().then_some(true)
        });
        match state {
            Ok(true) => Ok(()),
            Ok(false) => bail!("{name} ended at once:\n{}", self.output()),
            Err(error) => bail!("{error}:\n{}", self.output()),
        }
    }

    /// What it printed so far.
    pub(crate) fn output(&self) -> String {
        let bytes = std::fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The file with what it printed.
    pub(crate) fn output_file(&self) -> &Path {
        &self.output
    }

    /// Its process id: `setpriv` becomes the program.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        rustix::process::kill_process(self.pid()?, signal)
            .with_context(|| format!("signalling {}", self.name))
    }

    /// Its resident memory in bytes (`VmRSS`).
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .and_then(|line| line.trim().strip_suffix(" kB"))
            .and_then(|kib| kib.trim().parse().ok())
            .context("VmRSS in /proc")?;
        Ok(kib * 1024)
    }

    /// Bytes that it read and wrote so far, as the kernel counts them.
    pub(crate) fn moved_bytes(&self) -> Result<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        Ok(text.lines().take(2).collect())
    }

    fn pid(&self) -> Result<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a process id")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(pid) = self.pid() {
            // It leads its group. What is gone already needs no kill.
            _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        _ = self.child.wait();
    }
}

impl Finished {
    /// The output of a program that exited with 0.
    pub(crate) fn ok(self) -> Result<String> {
        if !self.status.success() {
            bail!("{}:\n{}", self.status, self.output);
        }
        Ok(self.output)
    }
}

/// A file of its own for each program of a claim.
fn output_file(folder: &Path, name: &str) -> Result<(PathBuf, File)> {
    (0_u32..)
        .find_map(|n| {
            let path = folder.join(format!("{name}-{n}.output"));
            match File::create_new(&path) {
                Ok(file) => Some(Ok((path, file))),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
                Err(error) => Some(Err(error).context("creating a file for output")),
            }
        })
        .context("numbers do not run out")?
}
