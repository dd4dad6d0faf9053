//! Claims and how they are run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use anyhow::{Result, anyhow};

use crate::folder::Folder;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::wait::Stopwatch;
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
    /// Whether a missing program is a failure.
    pub(crate) require_all: bool,
}

impl Run {
    /// Runs the claims whose names hold `name`; whether all held. The closing line is that of a
    /// Rust test program, so that whoever counts those can count these.
    pub(crate) fn all(&self, name: Option<&str>) -> Result<bool> {
        let wanted = |claim: &&&Claim| name.is_none_or(|name| claim.name().contains(name));
        let everything = claims::all();
        let chosen: Vec<&&Claim> = everything.iter().filter(wanted).collect();
        let stopwatch = Stopwatch::start();
        let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
        say::line(format_args!("\nrunning {} claims", chosen.len()));
        for claim in &chosen {
            say::begin(format_args!("claim {} ... ", claim.name()));
            let missing = claim.needs.iter().find(|peer| !peer.is_installed());
            if let Some(peer) = missing {
                let reason = format!("{} is missing: {}", peer.name(), peer.how_to_install());
                if self.require_all {
                    say::line(format_args!("FAILED ({reason})"));
                    failed.push((claim.name(), anyhow!(reason)));
                } else {
                    say::line(format_args!("skipped ({reason})"));
                    skipped += 1;
                }
                continue;
            }
            let one = Stopwatch::start();
            match self.one(claim) {
                Ok(()) => {
                    say::line(format_args!("ok ({:.1} s)", one.elapsed().as_secs_f64()));
                    passed += 1;
                }
                Err(error) => {
                    say::line(format_args!("FAILED ({:.1} s)", one.elapsed().as_secs_f64()));
                    failed.push((claim.name(), error));
                }
            }
        }
        for (name, error) in &failed {
            say::line(format_args!("\n---- {name}\n{error:#}"));
        }
        let result = if failed.is_empty() { "ok" } else { "FAILED" };
        say::line(format_args!(
            "\ntest result: {result}. {passed} passed; {} failed; {skipped} ignored; 0 measured; \
             {} filtered out; finished in {:.2}s\n",
            failed.len(),
            everything.len() - chosen.len(),
            stopwatch.elapsed().as_secs_f64(),
        ));
        Ok(failed.is_empty())
    }

    /// Tries one claim; a panic is a failure like any other.
    fn one(&self, claim: &Claim) -> Result<()> {
        let mut lab = Lab { strait: self.strait.clone(), folder: Folder::new(claim.name())? };
        let result = catch_unwind(AssertUnwindSafe(|| (claim.holds)(&lab)))
            .unwrap_or_else(|panic| Err(anyhow!("panic: {}", panic_text(&*panic))));
        result.map_err(|error| {
            lab.folder.keep();
            error.context(format!("what was written is kept in {}", lab.folder().display()))
        })
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}
