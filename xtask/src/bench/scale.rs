//! A large configuration: what changes cost the loader alone (the program `scale`, of this commit and another), and what it
//! costs a process, beside Envoy ([`live`]).

mod configs;
mod live;

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::json;

use self::live::{Programs, Row};
use super::{Options, ProxyKind};
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
        scratch,
    };
    let load_before = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let rows = live::run(&programs, options.rounds, options.seconds)?;
    publish(at, options, &load_before, &rows)
}

/// Prints the rows and writes them down, below `target` unless all of them were measured.
fn publish(at: &Surroundings, options: &Options, load_before: &str, rows: &[Row]) -> Result<()> {
    let read = |program: &str, arguments: &[&str]| -> Result<String> {
        Ok(Plain::new(&at.root, program, arguments).read()?.trim().to_owned())
    };
    let date = read("date", &["-u", "+%F"])?;
    let commit = read("git", &["describe", "--always", "--dirty", "--abbrev=12"])?;
    let kernel = read("uname", &["-sr"])?;
    let load_before = load_before.split(' ').next().unwrap_or_default();
    let seconds = options.seconds;
    let rounds = options.rounds;
    let mut text = format!(
        "# Benchmark `scale`, {date}\n\n- {kernel}\n- load average before: {load_before}\n- commit {commit}\n\n\
         10,000 clusters, 50,000 endpoints, 10,000 rules; one worker.\n\n\
         | what | measured | at most | |\n|---|---|---|---|\n"
    );
    for row in rows {
        writeln!(text, "{}", row.line())?;
    }
    writeln!(
        text,
        "\n## Commands\n\n```\ncargo xtask bench scale --rounds {rounds} --seconds {seconds}\n```"
    )?;
    say::result(&text);
    let folder = match options.only {
        None => at.root.join("bench/results"),
        Some(_) => at.target_directory()?.join("bench/results"),
    };
    fs::create_dir_all(&folder)?;
    let json = json!({
        "scenario": "scale", "date": date, "commit": commit, "kernel": kernel, "load_before": load_before,
        "rounds": rounds, "seconds": seconds, "rows": rows,
    });
    let json = serde_json::to_string_pretty(&json)? + "\n";
    for (extension, content) in [("json", json), ("md", text)] {
        let path = folder.join(format!("{date}-scale.{extension}"));
        fs::write(&path, content).with_context(|| path.display().to_string())?;
        say::line(format_args!("written: {}", path.display()));
    }
    Ok(())
}
