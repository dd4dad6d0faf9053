//! The metrics: for each area its counters, and the families that are read from them.
//!
//! A family is declared once, with its name, help, labels and the function that reads its
//! samples; the Prometheus text, `/stats` and `docs/METRICS.md` all come from that declaration.
//! Labels are names from the configuration or words of closed sets, never text of a peer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::block::{ListenerBlock, WorkerBlock};
use crate::cause::Cause;
use crate::cell::Counter;
use crate::counters::CauseTotals;
use crate::counters::endpoint::{EndpointTotals, REASONS_EXPLAINED};
use crate::counters::upstream::ClusterBlock;
use crate::histogram::{Histogram, HistogramTotals};
use crate::loops::{LoopTotals, WorkerLoop};
use crate::process::ProcessFacts;

use self::label_values::LabelValues;

pub(crate) mod config;
mod connection;
pub(crate) mod exchange;
mod health;
mod label_values;
mod process;
mod tls;
mod upstream;
mod worker;

/// Metrics with one name.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: MetricType,
    pub(crate) help: &'static str,
    pub(crate) labels: &'static [&'static str],
    /// Reads the samples, in the order of `labels`.
    pub(crate) samples: fn(&View<'_>, &mut dyn Samples),
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricType {
    /// Only up, from 0 at the start of the process.
    Counter,
    /// Up and down.
    Gauge,
    /// Counts of times up to each of some bounds, their sum and their number.
    Histogram,
}

impl MetricType {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Takes the samples of a family.
pub(crate) trait Samples {
    /// A whole number.
    fn number(&mut self, labels: &[&str], value: u64);
    /// A number with a fraction.
    fn decimal(&mut self, labels: &[&str], value: f64);
    /// What is there now, of what began and what ended. Either may be of another process, whose connections this
    /// one took over.
    fn level(&mut self, labels: &[&str], up: u64, down: u64) {
        self.number(labels, up.saturating_sub(down));
    }
    /// A histogram, with the bounds at which it is reported.
    fn histogram(&mut self, labels: &[&str], bounds: &[Bound], times: &HistogramTotals);
}

/// A bound of a reported histogram; always an edge of [`crate::histogram::EDGES`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) ns: u64,
    /// In seconds, as Prometheus wants it.
    pub(crate) text: &'static str,
}

const fn bound(ns: u64, text: &'static str) -> Bound {
    Bound { ns, text }
}

/// Bounds for the stages, some of which take a few microseconds.
pub(crate) const BOUNDS_FINE: [Bound; 22] = [
    bound(1_000, "0.000001"),
    bound(2_500, "0.0000025"),
    bound(5_000, "0.000005"),
    bound(10_000, "0.00001"),
    bound(25_000, "0.000025"),
    bound(50_000, "0.00005"),
    bound(100_000, "0.0001"),
    bound(250_000, "0.00025"),
    bound(500_000, "0.0005"),
    bound(1_000_000, "0.001"),
    bound(2_500_000, "0.0025"),
    bound(5_000_000, "0.005"),
    bound(10_000_000, "0.01"),
    bound(25_000_000, "0.025"),
    bound(50_000_000, "0.05"),
    bound(100_000_000, "0.1"),
    bound(250_000_000, "0.25"),
    bound(500_000_000, "0.5"),
    bound(1_000_000_000, "1"),
    bound(2_500_000_000, "2.5"),
    bound(5_000_000_000, "5"),
    bound(10_000_000_000, "10"),
];

/// Bounds for histograms of which there is one a cluster, and for lifetimes.
pub(crate) const BOUNDS_COARSE: [Bound; 14] = [
    bound(100_000, "0.0001"),
    bound(500_000, "0.0005"),
    bound(1_000_000, "0.001"),
    bound(5_000_000, "0.005"),
    bound(10_000_000, "0.01"),
    bound(50_000_000, "0.05"),
    bound(100_000_000, "0.1"),
    bound(250_000_000, "0.25"),
    bound(500_000_000, "0.5"),
    bound(1_000_000_000, "1"),
    bound(5_000_000_000, "5"),
    bound(10_000_000_000, "10"),
    bound(60_000_000_000, "60"),
    bound(600_000_000_000, "600"),
];

/// All families, in the order in which they are reported.
pub(crate) fn families() -> impl Iterator<Item = (&'static str, &'static Family)> {
    [
        ("Downstream connections", connection::FAMILIES),
        ("TLS", tls::FAMILIES),
        ("Exchanges, tunnels and routes", exchange::FAMILIES),
        ("Upstream", upstream::FAMILIES),
        ("Endpoints", upstream::ENDPOINT_FAMILIES),
        ("Health of endpoints", health::FAMILIES),
        ("Workers, buffers and the access log", worker::FAMILIES),
        ("Control", config::FAMILIES),
        ("Process", process::FAMILIES),
    ]
    .into_iter()
    .flat_map(|(area, families)| families.iter().map(move |family| (area, family)))
}

/// Up to so many clusters have their histograms from the start. Each is fifty lines of a scrape.
pub(crate) const CLUSTERS_MAX: usize = 100;
/// Rules are reported before they were taken where all tables together have no more.
pub(crate) const RULES_MAX: usize = 1_000;

/// What a rule has taken, or one of the clusters that it has by weight.
#[derive(Debug)]
pub(crate) struct RuleReading<'a> {
    pub(crate) route: &'a str,
    /// Its name, or what it matches.
    pub(crate) rule: &'a str,
    pub(crate) cluster: Option<&'a str>,
    pub(crate) count: u64,
}

/// Everything there is to read, gathered by name. Two configured things of one name would be one
/// series, so they are added up.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) workers: Vec<(String, &'a WorkerBlock)>,
    pub(crate) listeners: BTreeMap<&'a str, Vec<&'a ListenerBlock>>,
    pub(crate) clusters: BTreeMap<&'a str, Vec<&'a ClusterBlock>>,
    /// Route, rule, requests.
    pub(crate) rules: Vec<RuleReading<'a>>,
    /// Cluster, address, counts.
    pub(crate) endpoints: Vec<(&'a str, &'a str, EndpointTotals)>,
    /// Endpoints beyond these.
    pub(crate) endpoints_left_out: u64,
    pub(crate) control: &'a config::ControlCounters,
    /// See [`LoopTotals`].
    pub(crate) loops: &'a LoopTotals,
    pub(crate) process: &'a ProcessFacts,
    pub(crate) version: &'static str,
    pub(crate) commit: &'static str,
}

impl View<'_> {
    /// How much each worker's loop has done, by its label.
    pub(crate) fn worker_loops(&self) -> impl Iterator<Item = (&str, WorkerLoop)> {
        let labels = self.workers.iter().map(|(label, _)| label.as_str());
        labels.zip(self.loops.workers.iter().copied())
    }

    /// How long control's turns took.
    pub(crate) const fn control_turns(&self) -> &HistogramTotals {
        &self.loops.control_turns
    }

    /// The clusters whose histograms are reported.
    fn clusters_with_times(&self) -> impl Iterator<Item = (&&str, &Vec<&ClusterBlock>)> {
        let are_few = self.clusters.len() <= CLUSTERS_MAX;
        self.clusters.iter().filter(move |(_, blocks)| are_few || !blocks.is_empty())
    }

    /// One sample a cause, for those that can occur anywhere.
    fn each_cause(&self, out: &mut dyn Samples, of: impl Fn(&WorkerBlock) -> &CauseTotals) {
        for (place, cause) in Cause::ALL.iter().enumerate() {
            let count = self.workers.iter().map(|(_, block)| of(block).0.value(place)).sum();
            out.number(&[cause.as_str()], count);
        }
    }

    /// The sum over all workers.
    fn sum(&self, of: impl Fn(&WorkerBlock) -> Option<&Counter>) -> u64 {
        self.workers.iter().filter_map(|(_, block)| of(block)).map(Counter::value).sum()
    }

    /// One sample a worker.
    fn each_worker(&self, out: &mut dyn Samples, of: impl Fn(&WorkerBlock) -> &Counter) {
        for (worker, block) in &self.workers {
            out.number(&[worker], of(block).value());
        }
    }

    /// A counter of all workers together.
    fn worker_total(&self, of: impl Fn(&WorkerBlock) -> &Counter) -> u64 {
        self.workers.iter().map(|(_, block)| of(block).value()).sum()
    }

    /// A histogram of all workers together.
    fn times(&self, of: impl Fn(&WorkerBlock) -> &Histogram) -> HistogramTotals {
        self.times_of(|block| Some(of(block)))
    }

    /// A histogram of all workers together, if the worker has one.
    fn times_of(&self, of: impl Fn(&WorkerBlock) -> Option<&Histogram>) -> HistogramTotals {
        let mut times = HistogramTotals::default();
        for histogram in self.workers.iter().filter_map(|(_, block)| of(block)) {
            times.add(histogram);
        }
        times
    }
}

/// `docs/METRICS.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(REFERENCE_HEAD);
    let mut area_before = "";
    for (area, family) in families() {
        if area != area_before {
            let _ = write!(
                text,
                "\n## {area}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n"
            );
            area_before = area;
        }
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {}, {} | {} | {} |",
            family.name,
            family.kind.as_str(),
            unit(family.name),
            labels.join(", "),
            family.help
        );
    }
    text.push_str(LABELS_HEAD);
    for (_, family) in families() {
        for label in family.labels {
            match LabelValues::of(family, label) {
                None | Some(LabelValues::Open) => {}
                Some(values) => {
                    let _ = writeln!(text, "| `{}` | `{label}` | {values} |", family.name);
                }
            }
        }
    }
    text.push_str(REASONS_HEAD);
    for (reason, meaning) in REASONS_EXPLAINED {
        let _ = writeln!(text, "| `{reason}` | {meaning} |");
    }
    text.push_str("\n## Causes\n\n| cause | meaning |\n|---|---|\n");
    for cause in Cause::ALL {
        let _ = writeln!(text, "| `{}` | {} |", cause.as_str(), cause.meaning().trim());
    }
    text
}

const REFERENCE_HEAD: &str = "\
# Metrics

Generated from the declarations in `crates/telemetry/src/metrics/`; `BLESS=1 cargo test -p telemetry` rewrites it.

`/metrics` of the admin interface returns these metrics in the Prometheus text format. `/stats?filter=` returns them as plain
`name value` lines, with histograms as count, sum and quantiles; the filter is a part of the name, in which `*` is a wildcard.

Names of listeners, routes, rules and clusters come from the configuration. No label comes from a peer, so the size of a
scrape depends only on the configuration; of endpoints, at most `metrics.endpoints_max` are reported. Metrics of configured objects exist
from the start, with zeros, so that a rate includes the first event. Three kinds of series appear only with their first event: histograms of clusters, if there
are more than 100; rules, if there are more than 1,000 (a scrape would have megabytes of zeros); and values of large sets (status codes, gRPC
statuses, reasons of failures), for which the help says which exist from the start. When a new configuration removes an object, its
metrics disappear.

Each worker has its own counters, which only it writes. A scrape reads and adds them one after the
other. Two metrics of one scrape can therefore differ by events that happened meanwhile. A gauge that is the
difference of two counters is never negative.

Histograms have four buckets for each doubling, from 1 µs to 4,000 s. The reported bounds are edges of these
buckets, and therefore exact. Quantiles in `/stats` have an error of at most one eighth.
";

const LABELS_HEAD: &str = "
## Values of labels

All values of the labels whose values do not come from the configuration. `none` stands for no response, or no
status; `other` for all that has no value of its own.

| metric | label | values |
|---|---|---|
";

const REASONS_HEAD: &str = "
## Reasons

Why a connection to an upstream cannot be established, or a client's TLS handshake fails. The access log has the same as text, in `cause_detail`.

| reason | meaning |
|---|---|
";

/// The unit, from the name's end.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "seconds",
        Some("bytes") => "bytes",
        Some("ratio") => "ratio",
        _ => "number",
    }
}

/// A counter of several blocks together.
fn total<B>(blocks: &[&B], of: impl Fn(&B) -> &Counter) -> u64 {
    blocks.iter().map(|block| of(block).value()).sum()
}

/// A histogram of several blocks together.
fn times_of<B>(blocks: &[&B], of: impl Fn(&B) -> &Histogram) -> HistogramTotals {
    let mut times = HistogramTotals::default();
    for block in blocks {
        times.add(of(block));
    }
    times
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Seconds from ns.
#[expect(clippy::cast_precision_loss, reason = "microseconds stay exact for two hundred years")]
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::EDGES;

    #[test]
    fn every_bound_is_an_edge_and_says_what_it_is() {
        for bound in BOUNDS_FINE.iter().chain(&BOUNDS_COARSE) {
            assert!(EDGES.contains(&bound.ns), "{}", bound.text);
            let seconds: f64 = bound.text.parse().unwrap();
            assert!((seconds * 1e9 - super::seconds(bound.ns) * 1e9).abs() < 0.5, "{}", bound.text);
        }
        for bounds in [&BOUNDS_FINE[..], &BOUNDS_COARSE[..]] {
            assert!(bounds.is_sorted_by_key(|bound| bound.ns));
        }
    }

    #[test]
    fn every_family_has_a_name_of_its_own_in_the_agreed_form_and_a_sentence_of_help() {
        let mut names = BTreeMap::new();
        for (_, family) in families() {
            let name = family.name;
            assert!(names.insert(name, ()).is_none(), "{name} twice");
            assert!(name.starts_with("strait_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == MetricType::Counter, "{name}");
            assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{name}");
        }
    }
}
