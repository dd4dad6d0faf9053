//! A large configuration: what changes cost the loader alone (the program `scale`, of this commit and another), and what it
//! costs a process, beside Envoy ([`live`]).

mod configs;
mod live;

use std::fs;

use anyhow::{Context as _, Result};

use self::live::Programs;
use super::{Options, ProxyKind, rows};
use crate::Surroundings;
use crate::plain::{Plain, find};
use crate::profiling;
use crate::say;

/// Builds and runs it, in turns with that of the other commit if there is one.
///
/// # Errors
///
/// If it does not build, or fails.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    const PACKAGE: [&str; 4] = ["--package", "bench", "--bin", "scale"];
    profiling::build(&at.root, &PACKAGE)?;
    let mut programs = vec![("now", profiling::program(&at.target_directory()?, "scale"))];
    if let Some(reference) = &options.against {
        let place = at.check_out(reference)?;
        profiling::build(&place, &[&PACKAGE[..], &["--target-dir", "target"]].concat())?;
        programs.push((reference, profiling::program(&place.join("target"), "scale")));
    }
    for _ in 0..options.rounds {
        for (name, program) in &programs {
            say::line(format!("\n{name}"));
            Plain::new(&at.root, program, &[]).run()?;
        }
    }
    run_live(at, options)
}

fn run_live(at: &Surroundings, options: &Options) -> Result<()> {
    profiling::build(&at.root, &["--package", "strait", "--bin", "strait"])?;
    profiling::build(&at.root, &["--package", "bench", "--bins"])?;
    let target = at.target_directory()?;
    let envoy = target.join("bench/envoy/envoy/_bin/envoy");
    let envoy = if envoy.is_file() { Some(envoy) } else { find("envoy") };
    let is_wanted = options.only.as_ref().is_none_or(|only| only.contains(&ProxyKind::Envoy));
    if envoy.is_none() && is_wanted {
        anyhow::bail!(
            "envoy is missing: {} (--only strait leaves it out)",
            super::tools::ENVOY_INSTALL
        );
    }
    let scratch = target.join("bench/scale");
    fs::create_dir_all(&scratch).context("making target/bench/scale")?;
    let programs = Programs {
        strait: profiling::program(&target, "strait"),
        envoy: envoy.filter(|_| is_wanted),
        upstream: profiling::program(&target, "upstream"),
        load: profiling::program(&target, "load"),
        wakes: profiling::program(&target, "wakes"),
        scratch,
    };
    let load_before = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let rows = live::run(&programs, options.rounds, options.seconds)?;
    let intro = "10,000 clusters, 50,000 endpoints, 10,000 rules; one worker.";
    rows::publish(at, options, &load_before, intro, &rows)
}
