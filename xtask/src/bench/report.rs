//! The result of a run: compared, printed, and written to `bench/results`.
//!
//! Every figure is a median over rounds; every ratio is the median of the rounds' ratios, as both
//! sides of a ratio were measured within seconds of each other.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::Options;
use super::generator::{Load, Method};
use super::machine::Machine;
use super::sample::{Sample, median, median_ratio};
use super::setup::Setup;
use super::tools::Tools;
use crate::say;

/// The result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    scenario: &'static str,
    machine: Machine,
    /// Commands that were run, without this machine's places.
    pub(crate) commands: Vec<String>,
    /// Cells, where loads are measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cells: Vec<Cell>,
    /// System calls each request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) system_calls: Vec<SystemCalls>,
    /// Series, where memory is measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) memory: Vec<MemorySeries>,
    /// The targets.
    pub(crate) targets: Vec<Target>,
}

/// One kind of load, on all proxies.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    /// For people.
    pub(crate) name: String,
    setup: Setup,
    method: Method,
    connections: u32,
    /// Requests each second that were asked for, or none for as many as were answered.
    rate: Option<u64>,
    /// What the generator reaches without a proxy: no proxy can show more.
    pub(crate) direct_requests_per_second: Option<f64>,
    /// A series for each proxy.
    pub(crate) series: Vec<Series>,
}

/// All rounds of one proxy in one cell.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    proxy: String,
    /// One for each round.
    pub(crate) samples: Vec<Sample>,
}

/// The system calls of one proxy under one load.
#[derive(Debug, Serialize)]
pub(crate) struct SystemCalls {
    /// Name of the load.
    pub(crate) load: String,
    /// Name of the proxy.
    pub(crate) proxy: String,
    /// System calls for each request.
    pub(crate) each: f64,
}

/// All rounds of one proxy whose memory is measured.
#[derive(Debug, Serialize)]
pub(crate) struct MemorySeries {
    /// Name of the proxy.
    pub(crate) proxy: String,
    /// One for each round.
    pub(crate) samples: Vec<MemorySample>,
}

/// Memory of one proxy in one round.
#[derive(Debug, Serialize)]
pub(crate) struct MemorySample {
    /// Which of the rounds, from 1.
    pub(crate) round: u32,
    /// Connections that do nothing.
    pub(crate) connections: u32,
    /// Resident memory after the warm-up.
    pub(crate) rss_before_kib: u64,
    /// Resident memory with the connections.
    pub(crate) rss_after_kib: u64,
}

/// A figure that is to be reached.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    what: String,
    at_most: f64,
    measured: Option<f64>,
}

/// What is spoken, what is asked, on how many connections, and whether at a fixed rate.
pub(crate) type CellKey = (Setup, Method, u32, bool);

/// The proxies that all are compared with.
const REFERENCES: [&str; 4] = ["haproxy", "nginx", "envoy", "relay"];

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(scenario: &'static str, machine: Machine) -> Self {
        Self {
            scenario,
            machine,
            commands: Vec::new(),
            cells: Vec::new(),
            system_calls: Vec::new(),
            memory: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// The median of the rounds' ratios of `proxies.0` to `proxies.1`.
    pub(crate) fn ratio(
        &self,
        proxies: (&str, &str),
        cell: CellKey,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        let (ours, theirs) = (self.find(proxies.0, cell)?, self.find(proxies.1, cell)?);
        median_ratio(&ours.samples, &theirs.samples, value)
    }

    /// The same of what a request costs.
    pub(crate) fn cpu_ratio(&self, proxies: (&str, &str), cell: CellKey) -> Option<f64> {
        self.ratio(proxies, cell, |sample| Some(sample.cpu_us()))
    }

    /// The median over the rounds of `proxy`.
    pub(crate) fn median(
        &self,
        proxy: &str,
        cell: CellKey,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        median(self.find(proxy, cell)?.samples.iter().filter_map(value))
    }

    /// Prints the result, and writes it to files.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub(crate) fn publish(&self, tools: &Tools, options: &Options) -> Result<()> {
        let text = self.markdown()?;
        std::io::stdout().write_all(text.as_bytes())?;
        let directory = if options.is_complete() {
            tools.root.join("bench/results")
        } else {
            tools.target.join("bench/results")
        };
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let stem = directory.join(format!("{}-{}", self.machine.date, self.scenario));
        let json = serde_json::to_string_pretty(self)? + "\n";
        for (extension, content) in [("json", json), ("md", text)] {
            let path = stem.with_extension(extension);
            fs::write(&path, content).with_context(|| path.display().to_string())?;
            say::line(format_args!("written: {}", path.display()));
        }
        Ok(())
    }

    /// The series of `proxy` in `cell`.
    pub(crate) fn find(&self, proxy: &str, cell: CellKey) -> Option<&Series> {
        let cell = self.cells.iter().find(|measured| {
            let Cell { setup, method, connections, rate, .. } = **measured;
            (setup, method, connections, rate.is_some()) == cell
        })?;
        cell.series.iter().find(|series| series.proxy == proxy)
    }

    fn markdown(&self) -> Result<String, std::fmt::Error> {
        let mut text = format!("# Benchmark `{}`, {}\n\n", self.scenario, self.machine.date);
        self.machine.write(&mut text)?;
        for cell in &self.cells {
            cell.write(&mut text)?;
        }
        self.write_system_calls(&mut text)?;
        self.write_memory(&mut text)?;
        self.write_targets(&mut text)?;
        writeln!(text, "\n## Commands\n\n```")?;
        for command in &self.commands {
            writeln!(text, "{command}")?;
        }
        writeln!(text, "```")?;
        Ok(text)
    }

    fn write_system_calls(&self, text: &mut String) -> std::fmt::Result {
        if self.system_calls.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n## System calls each request\n")?;
        writeln!(text, "| load | proxy | system calls |\n|---|---|---|")?;
        for SystemCalls { load, proxy, each } in &self.system_calls {
            writeln!(text, "| {load} | {proxy} | {each:.2} |")?;
        }
        Ok(())
    }

    fn write_memory(&self, text: &mut String) -> std::fmt::Result {
        if self.memory.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n## Memory of connections that do nothing\n")?;
        writeln!(
            text,
            "| proxy | connections | RSS before, KiB | RSS with them, KiB | bytes each |"
        )?;
        writeln!(text, "|---|---|---|---|---|")?;
        for series in &self.memory {
            let of = |value: fn(&MemorySample) -> f64| {
                figure(median(series.samples.iter().map(value)), 0)
            };
            writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                series.proxy,
                of(|sample| f64::from(sample.connections)),
                of(|sample| kib(sample.rss_before_kib)),
                of(|sample| kib(sample.rss_after_kib)),
                of(MemorySample::bytes_each)
            )?;
        }
        Ok(())
    }

    fn write_targets(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## To reach\n\n| what | at most | measured | |\n|---|---|---|---|")?;
        for target in &self.targets {
            let Target { what, at_most, measured } = target;
            let digits = if *at_most >= 100.0 { 0 } else { 2 };
            let measured = figure(*measured, digits);
            writeln!(text, "| {what} | {at_most:.digits$} | {measured} | {} |", target.verdict())?;
        }
        Ok(())
    }
}

impl Machine {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "- {}, {} cores, {}", self.processor, self.cores, self.kernel)?;
        writeln!(text, "- load average before: {}", self.load_before)?;
        writeln!(text, "- commit {}", self.commit)?;
        for version in &self.versions {
            writeln!(text, "- {version}")?;
        }
        Ok(())
    }
}

impl Cell {
    /// A cell without samples.
    pub(crate) fn new(load: Load) -> Self {
        let Load { setup, method, connections, rate, .. } = load;
        Self {
            name: load.name(),
            setup,
            method,
            connections,
            rate,
            direct_requests_per_second: None,
            series: Vec::new(),
        }
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## {}\n", self.name)?;
        let unit = self.setup.unit();
        if let Some(rate) = self.direct_requests_per_second {
            writeln!(text, "Without a proxy the generator reaches {rate:.0} {unit}s/s.\n")?;
        }
        writeln!(
            text,
            "| proxy | {unit}s/s | p50 µs | p99 µs | CPU µs/{unit} | user | system | core busy % | \
             RSS MiB | errors | CPU to HAProxy | to nginx | to Envoy | to the relay | \
             p99 to HAProxy |"
        )?;
        writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        self.series.iter().try_for_each(|series| self.write_series(text, series))
    }

    fn write_series(&self, text: &mut String, series: &Series) -> std::fmt::Result {
        let samples = &series.samples;
        let of = |value: fn(&Sample) -> Option<f64>, digits| {
            figure(median(samples.iter().filter_map(value)), digits)
        };
        let to = |reference: &str, value: fn(&Sample) -> Option<f64>| {
            let theirs = self.series.iter().find(|series| series.proxy == reference);
            figure(theirs.and_then(|theirs| median_ratio(samples, &theirs.samples, value)), 2)
        };
        let cpu_us = |sample: &Sample| Some(sample.cpu_us());
        let [haproxy, nginx, envoy, relay] = REFERENCES.map(|name| to(name, cpu_us));
        let rss_mib = |sample: &Sample| Some(kib(sample.rss_kib) / 1024.0);
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {haproxy} | {nginx} | {envoy} | \
             {relay} | {} |",
            series.proxy,
            of(|sample| Some(sample.requests_per_second), 0),
            of(|sample| sample.p50_us, 0),
            of(|sample| sample.p99_us, 0),
            of(cpu_us, 2),
            of(|sample| Some(sample.user_us), 2),
            of(|sample| Some(sample.system_us), 2),
            of(|sample| Some(sample.busy()), 0),
            of(rss_mib, 1),
            samples.iter().map(|sample| sample.errors).sum::<u64>(),
            to("haproxy", |sample| sample.p99_us)
        )
    }
}

impl Series {
    /// A series without samples.
    pub(crate) fn new(proxy: &str) -> Self {
        Self { proxy: proxy.to_owned(), samples: Vec::new() }
    }
}

impl MemorySeries {
    /// A series without samples.
    pub(crate) fn new(proxy: &str) -> Self {
        Self { proxy: proxy.to_owned(), samples: Vec::new() }
    }
}

impl MemorySample {
    /// Memory of the process per connection.
    pub(crate) fn bytes_each(&self) -> f64 {
        let growth = kib(self.rss_after_kib) - kib(self.rss_before_kib);
        growth * 1024.0 / f64::from(self.connections)
    }
}

impl Target {
    /// A figure that is to be at most `at_most`.
    pub(crate) fn new(what: impl Into<String>, at_most: f64, measured: Option<f64>) -> Self {
        Self { what: what.into(), at_most, measured }
    }

    fn verdict(&self) -> &'static str {
        match self.measured {
            Some(measured) if measured <= self.at_most => "reached",
            Some(_) => "**missed**",
            None => "not measured",
        }
    }
}

fn kib(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = count as f64;
    count
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            date: "2000-01-01".to_owned(),
            commit: "abc".to_owned(),
            processor: "model".to_owned(),
            cores: 2,
            kernel: "Linux 1".to_owned(),
            load_before: 0.1,
            versions: vec!["haproxy 9".to_owned()],
        }
    }

    fn series(proxy: &str, cpu: [f64; 3]) -> Series {
        let of = |(round, user_us)| Sample { round, user_us, errors: 1, ..Sample::default() };
        Series { proxy: proxy.to_owned(), samples: (1..).zip(cpu).map(of).collect() }
    }

    fn report() -> Report {
        let mut report = Report::new("h1", machine());
        let mut cell = Cell::new(Load::usual(Setup::Http1, 1));
        cell.series = vec![series("strait", [8.0, 9.0, 40.0]), series("haproxy", [10.0; 3])];
        report.cells.push(cell);
        report
    }

    #[test]
    fn a_cell_is_found_by_what_it_measured_and_compared_by_medians() {
        let report = report();
        let cpu_us = |sample: &Sample| Some(sample.cpu_us());
        let cell = (Setup::Http1, Method::Get, 64, false);
        assert_eq!(report.ratio(("strait", "haproxy"), cell, cpu_us), Some(0.9));
        assert_eq!(report.median("strait", cell, cpu_us), Some(9.0));
        assert_eq!(report.median("strait", cell, |sample| sample.p99_us), None);
        for other in [
            (Setup::Tcp, Method::Get, 64, false),
            (Setup::Http1, Method::Post, 64, false),
            (Setup::Http1, Method::Get, 1, false),
            (Setup::Http1, Method::Get, 64, true),
        ] {
            assert_eq!(report.ratio(("strait", "haproxy"), other, cpu_us), None);
        }
        assert_eq!(report.ratio(("strait", "envoy"), cell, cpu_us), None);
    }

    #[test]
    fn the_table_shows_medians_ratios_and_the_sum_of_errors() {
        let text = report().markdown().unwrap();
        let row = text.lines().find(|line| line.starts_with("| strait")).unwrap();
        assert_eq!(
            row,
            "| strait | 0 | – | – | 9.00 | 9.00 | 0.00 | 0 | 0.0 | 3 | 0.90 | – | – | – | – |"
        );
    }

    #[test]
    fn a_target_is_reached_at_its_bound_missed_above_and_open_without_a_figure() {
        assert_eq!(Target::new("x", 1.5, Some(1.5)).verdict(), "reached");
        assert_eq!(Target::new("x", 1.5, Some(1.51)).verdict(), "**missed**");
        assert_eq!(Target::new("x", 1.5, None).verdict(), "not measured");
    }

    #[test]
    fn a_connection_costs_what_it_added() {
        let sample =
            MemorySample { round: 1, connections: 1000, rss_before_kib: 500, rss_after_kib: 1000 };
        assert_eq!(sample.bytes_each(), 512.0);
    }
}
