//! Figures with what they are to be at most, for scenarios that compare no proxies with each other.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Options;
use crate::Surroundings;
use crate::plain::Plain;
use crate::say;

/// A figure, with what it is to be at most.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) measured: f64,
    pub(crate) at_most: Option<f64>,
}

impl Row {
    /// Prints it, too.
    pub(crate) fn new(what: &str, unit: &'static str, measured: f64, at_most: Option<f64>) -> Self {
        let what = what.to_owned();
        let row = Self { what, unit, measured, at_most };
        say::line(row.line());
        row
    }

    /// As a row of a table.
    pub(crate) fn line(&self) -> String {
        let Self { what, unit, measured, at_most } = self;
        let (most, verdict) = match at_most {
            Some(most) => (most.to_string(), if measured <= most { "reached" } else { "missed" }),
            None => (String::new(), ""),
        };
        format!("| {what} | {measured:.3} {unit} | {most} | {verdict} |")
    }
}

/// Prints the rows and writes them down, below `target` unless all of them were measured.
///
/// # Errors
///
/// If `git` or `uname` fails, or a file cannot be written.
pub(crate) fn publish(
    at: &Surroundings,
    options: &Options,
    load_before: &str,
    intro: &str,
    rows: &[Row],
) -> Result<()> {
    let read = |program: &str, arguments: &[&str]| -> Result<String> {
        Ok(Plain::new(&at.root, program, arguments).read()?.trim().to_owned())
    };
    let date = read("date", &["-u", "+%F"])?;
    let commit = read("git", &["describe", "--always", "--dirty", "--abbrev=12"])?;
    let kernel = read("uname", &["-sr"])?;
    let load_before = load_before.split(' ').next().unwrap_or_default();
    let Options { seconds, rounds, .. } = options;
    let name = options.scenario.name();
    let mut text = format!(
        "# Benchmark `{name}`, {date}\n\n- {kernel}\n- load average before: {load_before}\n- commit {commit}\n\n{intro}\n\n\
         | what | measured | at most | |\n|---|---|---|---|\n"
    );
    for row in rows {
        writeln!(text, "{}", row.line())?;
    }
    writeln!(
        text,
        "\n## Commands\n\n```\ncargo xtask bench {name} --rounds {rounds} --seconds {seconds}\n```"
    )?;
    say::result(&text);
    let folder = match options.only {
        None => at.root.join("bench/results"),
        Some(_) => at.target_directory()?.join("bench/results"),
    };
    fs::create_dir_all(&folder)?;
    let json = json!({
        "scenario": name, "date": date, "commit": commit, "kernel": kernel, "load_before": load_before,
        "rounds": rounds, "seconds": seconds, "rows": rows,
    });
    let json = serde_json::to_string_pretty(&json)? + "\n";
    for (extension, content) in [("json", json), ("md", text)] {
        let path = folder.join(format!("{date}-{name}.{extension}"));
        fs::write(&path, content).with_context(|| path.display().to_string())?;
        say::line(format_args!("written: {}", path.display()));
    }
    Ok(())
}
