//! Claims and how they are run.

use std::any::Any;
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use crate::folder::Folder;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::wait::{self, Stopwatch};
use crate::{claims, say};

/// Something that is true of Strait beside certain programs.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Its module's path: the claim as a sentence.
    pub(crate) module: &'static str,
    /// Programs without which it cannot be tried.
    pub(crate) needs: &'static [Peer],
    /// Tries it.
    pub(crate) holds: fn(&Lab) -> Result<()>,
}

impl Claim {
    /// `curl::head_has_no_body`.
    fn name(&self) -> &'static str {
        self.module.strip_prefix("peers::claims::").unwrap_or(self.module)
    }
}

/// Prints what there is.
pub(crate) fn list() {
    for claim in claims::all() {
        let needs: Vec<&str> = claim.needs.iter().map(|peer| peer.name()).collect();
        say::line(format_args!("{} ({})", claim.name(), needs.join(", ")));
    }
}

/// How claims are run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Strait's program.
    pub(crate) strait: PathBuf,
    /// The program of the previous version, if it was built.
    pub(crate) previous: Option<PathBuf>,
    /// Whether a missing program is a failure.
    pub(crate) require_all: bool,
}

/// How long one claim may take. testssl.sh takes half a minute on two quiet cores and has four; what
/// takes longer hangs, and says what it waits for.
const CLAIM_MAX: Duration = Duration::from_secs(300);

/// Claims that run at a time, but for those that are alone.
const LANES: usize = 2;

/// The claim that is left out where the previous version was not built.
const PREVIOUS: &str = "::the_previous_version_and_this_one_replace_each_other";

/// The results of the claims so far.
#[derive(Debug, Default)]
struct Results {
    passed: usize,
    skipped: usize,
    failed: Vec<(&'static str, String)>,
    /// Of all that are to run.
    total: usize,
}

impl Run {
    /// Runs the claims whose names hold `name`; whether all held. The closing line is that of a
    /// Rust test program, so that a program that counts those can count these.
    pub(crate) fn all(&self, name: Option<&str>) -> Result<bool> {
        let wanted = |claim: &&Claim| name.is_none_or(|name| claim.name().contains(name));
        let beside: Vec<&Claim> = claims::beside_another().into_iter().filter(wanted).collect();
        let asked = claims::if_asked().into_iter().filter(|_| name.is_some()).filter(wanted);
        let asked = asked.filter(|it| self.previous.is_some() || !it.name().ends_with(PREVIOUS));
        let alone: Vec<&Claim> = claims::alone().into_iter().filter(wanted).chain(asked).collect();
        let total = alone.len() + beside.len();
        let stopwatch = Stopwatch::start();
        say::line(format_args!("\nrunning {total} claims"));
        let results = Mutex::new(Results { total, ..Results::default() });
        self.run(&alone, 1, &results)?;
        self.run(&beside, LANES, &results)?;
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (name, error) in &results.failed {
            say::line(format_args!("\n---- {name}\n{error}"));
        }
        let is_ok = results.failed.is_empty();
        say::line(format_args!(
            "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; \
             finished in {:.2}s\n",
            if is_ok { "ok" } else { "FAILED" },
            results.passed,
            results.failed.len(),
            results.skipped,
            claims::all().len() - total,
            stopwatch.elapsed().as_secs_f64(),
        ));
        Ok(is_ok)
    }

    /// Runs these, so many at a time.
    fn run(&self, claims: &[&'static Claim], lanes: usize, results: &Mutex<Results>) -> Result<()> {
        let next = AtomicUsize::new(0);
        let lane = || -> Result<()> {
            while let Some(claim) = claims.get(next.fetch_add(1, Ordering::Relaxed)) {
                let stopwatch = Stopwatch::start();
                let outcome = self.look_at(claim)?;
                let took = stopwatch.elapsed().as_secs_f64();
                results.lock().unwrap_or_else(PoisonError::into_inner).add(claim, outcome, took);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            #[expect(clippy::needless_collect, reason = "all run before one is joined")]
            let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
            lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or(Ok(())))
        })
    }

    /// Whether a claim holds, in a process of its own: what hangs there can be ended, and takes with
    /// it all that it started.
    fn look_at(&self, claim: &Claim) -> Result<Outcome> {
        if let Some(peer) = claim.needs.iter().find(|peer| !peer.is_installed()) {
            let reason = format!("{} is missing: {}", peer.name(), peer.how_to_install());
            let failed = self.require_all;
            return Ok(if failed { Outcome::Failed(reason) } else { Outcome::Skipped(reason) });
        }
        let output = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(std::env::current_exe()?)
            .args(["claim", claim.name(), "--strait"])
            .arg(&self.strait)
            .args(
                self.previous.iter().flat_map(|path| [OsStr::new("--previous"), path.as_os_str()]),
            )
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("starting a process for the claim")?;
        if output.status.success() {
            return Ok(Outcome::Held);
        }
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        let silent = said.is_empty();
        Ok(Outcome::Failed(if silent { output.status.to_string() } else { said }))
    }
}

/// The result of one claim.
enum Outcome {
    Held,
    Failed(String),
    Skipped(String),
}

impl Results {
    fn add(&mut self, claim: &Claim, outcome: Outcome, seconds: f64) {
        let verdict = match outcome {
            Outcome::Held => {
                self.passed += 1;
                format!("ok ({seconds:.1} s)")
            }
            Outcome::Failed(reason) => {
                self.failed.push((claim.name(), reason));
                format!("FAILED ({seconds:.1} s)")
            }
            Outcome::Skipped(reason) => {
                self.skipped += 1;
                format!("skipped ({reason})")
            }
        };
        let done = self.passed + self.failed.len() + self.skipped;
        say::line(format_args!("{done} of {}: claim {} ... {verdict}", self.total, claim.name()));
    }
}

/// Tries one claim in this process, which is there for nothing else; a panic is a failure like any
/// other. One that does not end ends the process.
///
/// # Errors
///
/// If it does not hold.
pub(crate) fn holds(name: &str, strait: PathBuf, previous: Option<PathBuf>) -> Result<()> {
    let named = |claim: &&Claim| claim.name() == name;
    let claim = claims::all().into_iter().find(named).context("no claim has this name")?;
    let mut lab = Lab { strait, previous, folder: Folder::new(claim.name())? };
    let kept = format!("what was written is kept in {}", lab.folder().display());
    wait::end_process_after(CLAIM_MAX, &kept);
    let result = catch_unwind(AssertUnwindSafe(|| (claim.holds)(&lab)))
        .unwrap_or_else(|panic| Err(anyhow!("panic: {}", panic_text(&*panic))));
    result.map_err(|error| {
        lab.folder.keep();
        error.context(kept)
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}
