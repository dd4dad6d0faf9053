//! Scenario `routes`: what many rules, and rules that use everything, cost a GET, beside the same in Envoy.
//!
//! All tables run at the same time, each in a process of its own, and take turns as the proxies of other scenarios do. The
//! request meets the last rule of its table. Clusters have one endpoint, so that what a choice among several costs is no
//! part of it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Options;
use super::binary::Binary;
use super::generator::Load;
use super::kinds::ProxyKind;
use super::lineup::{Lineup, Table};
use super::machine::Machine;
use super::report::{CellKey, Report, Target};
use super::setup::Setup;
use super::tools::Tools;

/// The rule of the file that all tables begin with.
const STRAIT_RULE: &str = "      - match: { prefix: / }\n        cluster: upstream\n";
const ENVOY_ROUTE: &str = "                        - match: { prefix: / }\n                          route: { cluster: upstream }\n";

/// What carries the requests to each table.
pub(crate) const SETUP: Setup = Setup::Routes;

/// A rule that uses all that rules can, for `METHOD`.
const EVERYTHING: &str = include_str!("../../../bench/configs/everything.yaml");

/// Measures all tables.
///
/// # Errors
///
/// If a proxy or the generator fails.
pub(crate) fn run(tools: &Tools, options: &Options) -> Result<Report> {
    let mut tables = Vec::new();
    for binary in tools.binaries_of(SETUP) {
        tables.extend(tables_of(&tools.root, binary)?);
    }
    let (mut report, key) = measure(tools, options, tables)?;
    let cpu = |ours: &str, theirs: &str| report.cpu_ratio((ours, theirs), key);
    report.targets = vec![
        Target::new("10,000 paths to 10", 1.2, cpu("strait: 10000 paths", "strait: 10 paths")),
        Target::new("1,000 headers to 10", 1.5, cpu("strait: 1000 headers", "strait: 10 headers")),
        Target::new("1,000 regexes to 10", 3.0, cpu("strait: 1000 regexes", "strait: 10 regexes")),
        Target::new("everything, to one prefix", 1.15, cpu("strait: everything", "strait")),
        Target::new("everything, not met, to one prefix", 1.03, cpu("strait: not met", "strait")),
        Target::new("100 routes, to Envoy", 0.30, cpu("strait: 100 routes", "envoy: 100 routes")),
    ];
    Ok(report)
}

/// Measures these, each in a process of its own, with the usual load.
///
/// # Errors
///
/// If a proxy or the generator fails.
pub(crate) fn measure(
    tools: &Tools,
    options: &Options,
    tables: Vec<Table>,
) -> Result<(Report, CellKey)> {
    let mut report = Report::new(options.scenario.name(), Machine::look(tools)?);
    let lineup = Lineup::of_tables(tools, options, SETUP, tables, &mut report.commands)?;
    let load = Load::usual(SETUP, options.seconds);
    report.cells.push(lineup.rounds(load, options.rounds, &mut report.commands)?);
    Ok((report, load.key()))
}

/// The tables of one proxy.
fn tables_of(root: &Path, binary: &Binary) -> Result<Vec<Table>> {
    let name = binary.kind.config().context("it has a configuration")?;
    let path = root.join("bench/configs/http1").join(name);
    let file = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let is_envoy = binary.kind == ProxyKind::Envoy;
    let rule = if is_envoy { ENVOY_ROUTE } else { STRAIT_RULE };
    anyhow::ensure!(file.contains(rule), "{} has another rule by now", path.display());
    let table = |what: &str, rules: &str| Table {
        binary: Binary { name: format!("{}{what}", binary.name), ..binary.clone() },
        text: file.replace(rule, &format!("{rules}{rule}")),
        // Before the rule that was there.
        met: match what {
            "" => 0,
            ": not met" => 1,
            _ => rules.matches("match:").count().saturating_sub(1),
        },
    };
    let two = |mut table: Table, balance: &str| {
        table.text = with_two_clusters(&table.text, balance, is_envoy);
        table
    };
    let hundred = weighted(&paths(100, is_envoy), is_envoy);
    let mut tables = vec![
        table("", ""),
        table(": 10 paths", &paths(10, is_envoy)),
        table(": 10000 paths", &paths(10_000, is_envoy)),
        two(
            table(": 100 routes", &hundred),
            if is_envoy { "LEAST_REQUEST" } else { "least_request" },
        ),
    ];
    if !is_envoy {
        tables.extend([
            table(": 10 headers", &headers(10)),
            table(": 1000 headers", &headers(1_000)),
            table(": 10 regexes", &regexes(10)),
            table(": 1000 regexes", &regexes(1_000)),
            two(table(": everything", &EVERYTHING.replace("METHOD", "GET")), "maglev"),
            two(table(": not met", &EVERYTHING.replace("METHOD", "PUT")), "maglev"),
        ]);
    }
    Ok(tables)
}

/// So many rules for one path each, of which the last is met.
fn paths(count: u32, is_envoy: bool) -> String {
    let others = (1..count).map(|number| format!("/service-{number}/items"));
    let mut text = String::new();
    for path in others.chain(["/bench".to_owned()]) {
        let _ = if is_envoy {
            writeln!(
                text,
                "                        - {{ match: {{ path: {path} }}, route: {{ cluster: upstream }} }}"
            )
        } else {
            writeln!(text, "      - {{ match: {{ path: {path} }}, cluster: upstream }}")
        };
    }
    text
}

/// The same rules to two clusters each.
fn weighted(rules: &str, is_envoy: bool) -> String {
    let (one, two) = if is_envoy {
        let clusters = "{ name: upstream, weight: 90 }, { name: other, weight: 10 }";
        ("cluster: upstream", format!("weighted_clusters: {{ clusters: [{clusters}] }}"))
    } else {
        let clusters = "{ cluster: upstream, weight: 90 }, { cluster: other, weight: 10 }";
        ("cluster: upstream", format!("clusters: [{clusters}]"))
    };
    rules.replace(one, &two)
}

/// So many rules for one path that differ by a header field, of which the last is met.
fn headers(count: u32) -> String {
    let values = (1..count).map(|number| 1_000 + number).chain([7]);
    let rule = |value| {
        format!(
            "      - {{ match: {{ path: /bench, headers: {{ x-user: \"{value}\" }} }}, cluster: upstream }}\n"
        )
    };
    values.map(rule).collect()
}

/// So many rules with an expression each, of which the last is met.
fn regexes(count: u32) -> String {
    let others = (1..count).map(|number| format!("/service-{number}/([0-9]+)/items"));
    let rule =
        |regex| format!("      - {{ match: {{ regex: \"{regex}\" }}, cluster: upstream }}\n");
    others.chain(["/ben(ch|ches)".to_owned()]).map(rule).collect()
}

/// A second cluster with the same endpoint, and both with this balancer.
fn with_two_clusters(text: &str, balance: &str, is_envoy: bool) -> String {
    let Some((before, cluster)) = text.split_once("  - name: upstream\n") else {
        return text.to_owned();
    };
    let balance = match is_envoy {
        true => format!("      lb_policy: {balance}\n"),
        false => format!("    balance: {balance}\n"),
    };
    // What is behind the clusters of Strait's file.
    let (cluster, rest) = match cluster.split_once("access_log:") {
        Some((cluster, rest)) => (cluster, format!("access_log:{rest}")),
        None => (cluster, String::new()),
    };
    let one = |name: &str| format!("  - name: {name}\n{balance}{cluster}");
    let indent = if is_envoy { "  " } else { "" };
    format!("{before}{}{indent}{}{rest}", one("upstream"), one("other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_ends_with_the_rule_that_is_met() {
        assert_eq!(paths(10, false).lines().count(), 10);
        assert!(paths(10, true).ends_with("{ path: /bench }, route: { cluster: upstream } }\n"));
        assert!(headers(3).ends_with("{ x-user: \"7\" } }, cluster: upstream }\n"));
        assert!(weighted(&paths(1, false), false).contains("cluster: other, weight: 10"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for kind in [ProxyKind::Strait, ProxyKind::Envoy] {
            let tables = tables_of(&root, &Binary::new(kind, "x".into())).unwrap();
            assert!(tables.iter().any(|table| table.text.contains("other")), "{kind:?}");
        }
    }
}
