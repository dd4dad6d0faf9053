//! `strait check` and `strait schema`.

use std::io::{self, Write};

use crate::Failure;
use crate::arguments::Check;
use crate::filter_list::filter_kinds;
use crate::serve::{loader, worker_count};

/// Checks a file and prints the result; binds no address and writes no file.
pub(crate) fn check(check: &Check) -> Result<(), Failure> {
    let mut loader = loader()?;
    let snapshot = control::read_text(&check.config).and_then(|text| {
        let name = check.config.display().to_string();
        let files = control::Files::beside(&check.config);
        loader.load_with(&name, &text, &files).map_err(control::Refused::Invalid)
    });
    let snapshot = snapshot.map_err(Failure::Config)?;
    for warning in loader.warnings() {
        writeln!(io::stderr(), "warning: {warning}")?;
    }
    let mut out = io::stdout().lock();
    if check.print {
        out.write_all(config::effective_yaml(&snapshot).as_bytes())?;
        if snapshot.startup.workers.is_none() {
            let workers = worker_count(&snapshot)?;
            writeln!(out, "# workers: auto is {} here: {workers}", workers.count)?;
        }
        return Ok(());
    }
    let tables = snapshot.route_tables.iter().count();
    let clusters = snapshot.clusters.iter().count();
    Ok(writeln!(
        out,
        "{}: ok ({}, {}, {})",
        check.config.display(),
        counted(snapshot.listeners.len(), "listener"),
        counted(tables, "route table"),
        counted(clusters, "cluster"),
    )?)
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
