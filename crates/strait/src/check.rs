//! `strait check` and `strait schema`.

use std::io::{self, Write};

use config::Finding;
use config::snapshot::Snapshot;
use proxy::filter::Filter;
use serde_json::json;

use crate::Failure;
use crate::arguments::{Check, CheckFormat};
use crate::filter_list::filter_kinds;
use crate::filter_list::loader;
use crate::serve::worker_count;

/// Checks a file and prints the result; binds no address and writes no file.
pub(crate) fn check(check: &Check) -> Result<(), Failure> {
    let mut loader = loader()?;
    let name = check.config.display().to_string();
    let snapshot = control::read_text(&check.config).and_then(|text| {
        let files = control::Files::beside(&check.config);
        loader.load_with(&name, &text, &files).map_err(control::Refused::Invalid)
    });
    if check.format == CheckFormat::Json {
        print_json(&name, snapshot.as_ref().err(), loader.warnings())?;
        let is_refused = snapshot.is_err() || check.deny_warnings && !loader.warnings().is_empty();
        return if is_refused { Err(Failure::Reported) } else { Ok(()) };
    }
    let snapshot = snapshot.map_err(Failure::Config)?;
    for warning in loader.warnings() {
        writeln!(io::stderr(), "warning: {warning}")?;
    }
    if check.deny_warnings && !loader.warnings().is_empty() {
        let count = counted(loader.warnings().len(), "warning");
        return Err(Failure::Ended(format!("{name}: {count}, and --deny-warnings")));
    }
    print_result(check, &name, &snapshot)
}

fn print_result(
    check: &Check,
    name: &str,
    snapshot: &Snapshot<Box<dyn Filter>>,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if check.print {
        out.write_all(config::effective_yaml(snapshot).as_bytes())?;
        if snapshot.startup.workers.is_none() {
            let workers = worker_count(snapshot)?;
            writeln!(out, "# workers: auto is {} here: {workers}", workers.count)?;
        }
        return Ok(());
    }
    let tables = snapshot.route_tables.iter().count();
    let clusters = snapshot.clusters.iter().count();
    Ok(writeln!(
        out,
        "{name}: ok ({}, {}, {})",
        counted(snapshot.listeners.len(), "listener"),
        counted(tables, "route table"),
        counted(clusters, "cluster"),
    )?)
}

/// Prints what was found as one JSON array, errors first. A file that cannot be read is an error at its beginning.
fn print_json(
    name: &str,
    refused: Option<&control::Refused>,
    warnings: &[Finding],
) -> io::Result<()> {
    let mut findings = Vec::new();
    match refused {
        Some(control::Refused::Invalid(errors)) => {
            findings.extend(errors.errors.iter().map(|error| finding("error", error)));
        }
        Some(other) => findings.push(json!({
            "file": name, "line": 1, "column": 1, "path": "", "level": "error",
            "rule": "the file can be read", "message": other.to_string(), "hint": "",
        })),
        None => findings.extend(warnings.iter().map(|warning| finding("warning", warning))),
    }
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &findings).map_err(io::Error::from)?;
    writeln!(out)
}

fn finding(level: &str, found: &Finding) -> serde_json::Value {
    let Finding { file, line, column, path, value, rule, hint, .. } = found;
    let message = if value.is_empty() { rule.clone() } else { format!("{value}: {rule}") };
    json!({
        "file": file, "line": line, "column": column, "path": path, "level": level,
        "rule": rule, "message": message, "hint": hint,
    })
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Prints the JSON Schema of the file.
pub(crate) fn schema() -> Result<(), Failure> {
    let schema = config::schema(&filter_kinds()?);
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &schema).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}
