//! What a change costs in a large configuration: CPU time of the thread that builds snapshots.
//!
//! `scale --clusters 10000 --endpoints 5 --rules 10000` builds a configuration of that size, which is also
//! the default, makes one change after the other, and prints the median of each kind in microseconds. The
//! endpoints of one cluster stand in a file of their own: `file` is a change of one of them there. A source delivers one
//! route table of a hundred rules, in YAML or in JSON: `delivered rule` is a change of one of these.
//! Nothing is served: what a worker does with a snapshot is in `instructions`, rows `change-*`.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::sync::Arc;

use bench::arguments::Arguments;
use config::outside::Memory;
use config::{FilterKinds, Loader, ResourceKind, Update};
use rustix::time::{ClockId, clock_gettime};

/// The file with the endpoints of one cluster.
const FILE: &str = "apart.yaml";

/// Rules of a route table.
const TABLE_RULES: usize = 100;

/// How a delivered route table is written.
#[derive(Clone, Copy)]
enum Syntax {
    Yaml,
    Json,
}

/// How large the configuration is.
#[derive(Clone, Copy)]
struct Size {
    clusters: usize,
    /// Of each cluster.
    endpoints: usize,
    rules: usize,
}

/// What differs from the configuration as it was at first.
#[derive(Clone, Copy, Default)]
struct Change {
    /// Port of the first endpoint of the cluster in the middle.
    port: u16,
    /// `connections_max` of that cluster.
    connections: u16,
    /// Timeout of the first rule of the table in the middle, in seconds.
    timeout: u16,
}

fn main() -> io::Result<()> {
    let names = ["clusters", "endpoints", "rules", "rounds"];
    let arguments = Arguments::read(std::env::args().skip(1), &names)?;
    let size = Size {
        clusters: arguments.find("clusters")?.unwrap_or(10_000),
        endpoints: arguments.find("endpoints")?.unwrap_or(5),
        rules: arguments.find("rules")?.unwrap_or(10_000),
    };
    let rounds = arguments.find::<u16>("rounds")?.unwrap_or(9);
    let mut loader = Loader::<()>::new(FilterKinds::new()).map_err(io::Error::other)?;
    let mut stdout = io::stdout();
    loader.expect_sources();
    let mut outside = Memory::default();
    outside.insert(FILE, endpoints(size, size.clusters, 0));
    let (bytes, first) = load(&mut loader, size, Change::default(), &outside)?;
    writeln!(stdout, "{}", line("first", bytes, &mut [first]))?;
    for kind in ["nothing", "endpoint", "cluster", "rule"] {
        let mut times = Vec::new();
        let mut bytes = 0;
        for round in 1..=rounds {
            let change = Change::new(kind, round);
            let (length, time) = load(&mut loader, size, change, &outside)?;
            bytes = length;
            times.push(time);
        }
        writeln!(stdout, "{}", line(kind, bytes, &mut times))?;
    }
    let mut times = Vec::new();
    for round in 1..=rounds {
        outside.insert(FILE, endpoints(size, size.clusters, round));
        times.push(load_endpoints(&mut loader, &outside)?);
    }
    let bytes = endpoints(size, size.clusters, rounds).len();
    writeln!(stdout, "{}", line("file", bytes, &mut times))?;
    for (form, syntax) in [("yaml", Syntax::Yaml), ("json", Syntax::Json)] {
        let table = |round: u16| table(size, form, round_of(round), syntax);
        let mut times = Vec::new();
        // The listener comes with the first.
        load_delivered(&mut loader, form, 0, table(0), &outside)?;
        for round in 1..=rounds {
            times.push(load_delivered(&mut loader, form, round, table(round), &outside)?);
        }
        let bytes = table(rounds).len();
        writeln!(stdout, "{}", line(&format!("delivered rule {form}"), bytes, &mut times))?;
    }
    Ok(())
}

impl Change {
    fn new(kind: &str, round: u16) -> Self {
        let none = Self::default();
        match kind {
            "endpoint" => Self { port: round, ..none },
            "cluster" => Self { connections: round, ..none },
            "rule" => Self { timeout: round, ..none },
            _ => none,
        }
    }
}

/// The length of the text in bytes, and the time that it takes to build a snapshot of it.
fn load(
    loader: &mut Loader<()>,
    size: Size,
    change: Change,
    outside: &Memory,
) -> io::Result<(usize, u64)> {
    let text = text(size, change);
    let began = cpu_ns();
    let snapshot = loader.load_with("scale.yaml", &text, outside).map_err(io::Error::other)?;
    drop(black_box(snapshot));
    Ok((text.len(), cpu_ns() - began))
}

/// The time that it takes to build a snapshot after a change of the file of endpoints.
fn load_endpoints(loader: &mut Loader<()>, outside: &Memory) -> io::Result<u64> {
    let file = [Arc::from(FILE)];
    let began = cpu_ns();
    let prepared = loader.prepare_endpoints(&file, outside).prepared;
    let prepared = prepared.ok_or_else(|| io::Error::other("nothing changed"))?;
    drop(black_box(loader.keep(prepared)));
    Ok(cpu_ns() - began)
}

/// The time that it takes to build a snapshot after a source has delivered a route table with one changed rule.
fn load_delivered(
    loader: &mut Loader<()>,
    name: &str,
    round: u16,
    table: String,
    outside: &Memory,
) -> io::Result<u64> {
    let update = |kind, content: String| Update {
        kind,
        name: name.into(),
        version: round.to_string().into(),
        content: Some(content.into()),
    };
    let mut updates = vec![update(ResourceKind::Route, table)];
    if round == 0 {
        let listener = format!("name: {name}\naddress: unix:/run/{name}.sock\nroutes: {name}\n");
        updates.push(update(ResourceKind::Listener, listener));
    }
    let source = Arc::from("source");
    let began = cpu_ns();
    let updates = loader.prepare_updates(&source, updates, &[], outside);
    let refused = updates.verdicts.iter().find_map(|verdict| verdict.refused.as_ref());
    let prepared = match (refused, updates.prepared) {
        (Some(refused), _) => return Err(io::Error::other(format!("refused: {refused:?}"))),
        (None, prepared) => prepared.ok_or_else(|| io::Error::other("nothing changed"))?,
    };
    drop(black_box(loader.keep(prepared)));
    Ok(cpu_ns() - began)
}

/// The timeout of the changed rule in seconds.
const fn round_of(round: u16) -> u16 {
    30 + round
}

/// A route configuration with one virtual host of [`TABLE_RULES`] rules; `timeout` is that of one of them.
fn table(size: Size, name: &str, timeout: u16, syntax: Syntax) -> String {
    let mut text = match syntax {
        Syntax::Yaml => format!(
            "name: {name}\nvirtual_hosts:\n- name: all\n  hosts: [{name}.example.com]\n  rules:\n"
        ),
        Syntax::Json => format!(
            r#"{{"name":"{name}","virtual_hosts":[{{"name":"all","hosts":["{name}.example.com"],"rules":["#
        ),
    };
    for rule in 0..TABLE_RULES.min(size.clusters) {
        let timeout = if rule == TABLE_RULES / 2 { timeout } else { 30 };
        let _ = match syntax {
            Syntax::Yaml => writeln!(
                text,
                "  - match: {{ prefix: /service-{rule}/ }}\n    cluster: cluster-{rule}\n    timeout: {timeout}s"
            ),
            Syntax::Json => write!(
                text,
                r#"{}{{"match":{{"prefix":"/service-{rule}/"}},"cluster":"cluster-{rule}","timeout":"{timeout}s"}}"#,
                if rule == 0 { "" } else { "," }
            ),
        };
    }
    if let Syntax::Json = syntax {
        text.push_str("]}]}");
    }
    text
}

/// CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or_default()
}

fn line(kind: &str, bytes: usize, times: &mut [u64]) -> String {
    times.sort_unstable();
    let at = |place: usize| times.get(place).copied().unwrap_or_default() / 1000;
    let (least, median, most) = (at(0), at(times.len() / 2), at(times.len().saturating_sub(1)));
    format!("{kind:<20} {bytes:>9} bytes {median:>9} us (from {least} to {most})")
}

fn text(size: Size, change: Change) -> String {
    let mut text = String::from("listeners:\n- name: edge\n  address: 127.0.0.1:8080\n  routes:\n");
    let tables = size.rules.div_ceil(TABLE_RULES);
    for table in 0..tables {
        let _ = writeln!(text, "  - table-{table}");
    }
    text.push_str("  - apart\nroutes:\n");
    for table in 0..tables {
        let _ =
            write!(text, "- name: table-{table}\n  hosts: [shop-{table}.example.com]\n  rules:\n");
        for rule in (0..size.rules).skip(table * TABLE_RULES).take(TABLE_RULES) {
            let timeout =
                if table == tables / 2 && rule % TABLE_RULES == 0 { change.timeout } else { 0 };
            let _ = writeln!(
                text,
                "  - match: {{ prefix: /service-{rule}/ }}\n    cluster: cluster-{}\n    timeout: {}s",
                rule % size.clusters,
                30 + timeout
            );
        }
    }
    text.push_str("- name: apart\n  hosts: [apart.example.com]\n  rules:\n");
    text.push_str("  - match: { prefix: / }\n    cluster: apart\n");
    let _ = write!(text, "clusters:\n- name: apart\n  endpoints: {{ file: {FILE} }}\n");
    for cluster in 0..size.clusters {
        let is_changed = cluster == size.clusters / 2;
        let connections = if is_changed { change.connections } else { 0 };
        let _ = write!(
            text,
            "- name: cluster-{cluster}\n  connections_max: {}\n  endpoints:\n",
            1024 + u32::from(connections)
        );
        let port = if is_changed { change.port } else { 0 };
        text.push_str(&endpoints(size, cluster, port));
    }
    text
}

/// The endpoints of a cluster as a list, the first with its port changed by so much.
fn endpoints(size: Size, cluster: usize, port: u16) -> String {
    let (high, low) = (cluster / 250, cluster % 250);
    let mut text = String::new();
    for endpoint in 0..size.endpoints {
        let port = if endpoint == 0 { port } else { 0 };
        let _ = writeln!(text, "  - 10.{endpoint}.{high}.{low}:{}", 8080 + port);
    }
    text
}
