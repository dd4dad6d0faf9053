//! What holds for any deliveries of resources between any texts: each has a verdict, and what comes of all of them is what
//! building from scratch gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::outside::Memory;
use config::snapshot::Action;
use config::{FilterKinds, Loader, ResourceKind, ResourceName, Update};

/// Steps of an input, at most.
const STEPS_MAX: usize = 64;

/// Each line of an input is a step. `t012ab` is a text with the clusters `c0`, `c1` and `c2`, and rules for `c0` and
/// `c1`; `1web=CONTENT` is what the source `1` says of the cluster `web`, and `1web` that it is gone. Resources of other
/// kinds have theirs before their names: `1route/shop=CONTENT`. What a line says that begins with `+`, as in `+api=CONTENT`,
/// comes in one batch with the line before.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Ok(input) = str::from_utf8(data) else { return };
    let mut loader = fresh();
    let mut latest = text("");
    loader.load("f", &latest).expect("a sound text");
    // In the order in which they were accepted.
    let mut delivered: Vec<(ResourceName, String, String)> = Vec::new();
    let mut has_late = false;
    let lines: Vec<&str> = input.lines().take(STEPS_MAX).collect();
    for step in lines.chunk_by(|_, next| next.starts_with('+')) {
        let Some((first, more)) = step.split_first() else { continue };
        let mut rest = first.chars();
        match rest.next() {
            Some('t') => {
                latest = text(rest.as_str());
                let prepared = loader.prepare("f", &latest, &Memory::default());
                let prepared = prepared.expect("a sound text");
                has_late |= !prepared.late().is_empty();
                loader.keep(prepared);
                let is_in_file = |name: &ResourceName| {
                    name.kind == ResourceKind::Cluster
                        && latest.contains(&format!("{{ {} endpoints", own(&name.name)))
                };
                delivered.retain(|(name, ..)| !is_in_file(name));
            }
            Some(source) => {
                let more = more.iter().filter_map(|line| line.strip_prefix('+'));
                let all: Vec<_> = [rest.as_str()].into_iter().chain(more).map(said_of).collect();
                let said = deliver(&mut loader, &source.to_string(), &all);
                has_late |= said.has_late;
                for (name, content) in said.accepted {
                    let is_anothers = |(known, source_of, _): &(_, String, _)| {
                        *known == name && *source_of != source.to_string()
                    };
                    // To say that it is not there takes nothing of another's away.
                    if content.is_none() && delivered.iter().any(is_anothers) {
                        continue;
                    }
                    delivered.retain(|(known, ..)| *known != name);
                    delivered.extend(content.map(|it| (name, source.to_string(), it)));
                }
            }
            None => {}
        }
    }
    // Of what turned out to be wrong together with something else, a former version serves.
    if has_late {
        return;
    }
    let mut scratch = fresh();
    scratch.load("f", &latest).expect("a sound text");
    for (name, source, content) in &delivered {
        let all = [(name.clone(), Some(content.clone()))];
        let said = deliver(&mut scratch, source, &all);
        assert_eq!(said.accepted, all, "accepted once");
    }
    assert_eq!(seen(&loader), seen(&scratch));
}

/// A resource, with what is said of it; none if it is gone.
type Of = (ResourceName, Option<String>);

/// What a line says, behind its source.
fn said_of(line: &str) -> Of {
    let (name, content) = match line.split_once('=') {
        Some((name, content)) => (name, Some(content.to_owned())),
        None => (line, None),
    };
    let name = name.parse().unwrap_or_else(|_| ResourceName::new(ResourceKind::Cluster, name));
    (name, content)
}

/// What became of a batch.
struct Said {
    accepted: Vec<Of>,
    has_late: bool,
}

fn fresh() -> Loader<()> {
    let mut loader = Loader::new(FilterKinds::new()).expect("the schema is sound");
    loader.expect_sources();
    loader
}

fn deliver(loader: &mut Loader<()>, source: &str, all: &[Of]) -> Said {
    // Of several that are about one resource, the last counts.
    let last: BTreeMap<&ResourceName, &Option<String>> =
        all.iter().map(|(name, content)| (name, content)).collect();
    let updates = all.iter().map(|(name, content)| {
        let content = content.as_deref().map(Into::into);
        Update { kind: name.kind, name: Arc::from(&*name.name), version: "1".into(), content }
    });
    let (source, outside) = (Arc::from(source), Memory::default());
    let read = loader.prepare_updates(&source, updates.collect(), &[], &outside);
    assert_eq!(read.verdicts.len(), last.len(), "one verdict for each resource");
    let mut accepted = Vec::new();
    for verdict in &read.verdicts {
        match &verdict.refused {
            Some(errors) => {
                assert!(errors.errors.iter().all(|it| !it.rule.is_empty() && !it.hint.is_empty()));
            }
            None => {
                let content = last.get(&verdict.name).expect("it was delivered");
                accepted.push((verdict.name.clone(), (*content).clone()));
            }
        }
    }
    if accepted.is_empty() {
        assert!(read.prepared.is_none(), "what is refused changes nothing");
    }
    let said = Said { accepted, has_late: !read.late.is_empty() };
    if let Some(prepared) = read.prepared {
        loader.keep(prepared);
    }
    said
}

fn text(entries: &str) -> String {
    let entry = |it: &char| format!("{{ {} endpoints: ['10.0.0.1:80'] }}", own(&format!("c{it}")));
    let mut digits: Vec<char> = entries.chars().filter(char::is_ascii_digit).collect();
    digits.sort_unstable();
    digits.dedup();
    let clusters: Vec<String> = digits.iter().map(entry).collect();
    let letters = entries.bytes().filter(|byte| (b'a'..=b'j').contains(byte));
    let mut letters: Vec<u8> = letters.collect();
    letters.sort_unstable();
    letters.dedup();
    let rules = letters.iter().map(|letter| {
        let number = letter - b'a';
        format!("{{ match: {{ prefix: /{number}/ }}, cluster: c{number} }}")
    });
    let rules: Vec<String> = rules.collect();
    format!(
        "listeners: [{{ name: l, address: '127.0.0.1:1', routes: r }}]\n\
         routes: [{{ name: r, rules: [{}] }}]\nclusters: [{}]\n",
        rules.join(", "),
        clusters.join(", ")
    )
}

/// The beginning of an entry of the text.
fn own(name: &str) -> String {
    format!("name: {name},")
}

/// The clusters by name with their endpoints, where rules lead, and the hosts of listeners, as workers have them: but
/// for what waits, and serves as something that was before.
fn seen(loader: &Loader<()>) -> BTreeMap<String, String> {
    let snapshot = loader.snapshot_latest().expect("it was loaded");
    let waiting: BTreeSet<String> = loader.waiting().map(|(name, _)| name.to_string()).collect();
    let clusters = snapshot.clusters.iter().map(|(_, cluster)| {
        let endpoints =
            cluster.endpoints.iter().map(|it| format!("{:?} {}", it.address, it.weight));
        (format!("cluster/{}", cluster.name), endpoints.collect::<Vec<_>>().join(" "))
    });
    let named = |id| match snapshot.cluster(id).map(|it| format!("cluster/{}", it.name)) {
        Some(name) if !waiting.contains(&name) => name,
        Some(_) | None => String::new(),
    };
    let rules = snapshot.route_tables.iter().flat_map(|(_, table)| {
        table.rules.iter().enumerate().filter_map(move |(place, rule)| {
            let Action::Forward(forward) = &rule.action else { return None };
            let names: Vec<_> = forward.target.clusters().map(named).collect();
            Some((format!("rule {place} of {}", table.name), names.join(" ")))
        })
    });
    let listeners = snapshot.listeners.iter().map(|listener| {
        let tables = listener.route_tables.iter().map(|id| {
            let table = snapshot.route_table(*id).expect("tables that are named are there");
            format!("{} {:?}", table.name, table.hosts)
        });
        let tables: Vec<String> = tables.collect();
        let is_tls = listener.tls.is_some();
        let said = format!("{:?} {is_tls} {}", listener.addresses, tables.join(" "));
        (format!("listener/{}", listener.name), said)
    });
    // One that waits may name tables that are gone.
    let listeners: BTreeMap<String, String> = match waiting.is_empty() {
        true => listeners.collect(),
        false => BTreeMap::new(),
    };
    let all = clusters.chain(rules).chain(listeners);
    all.filter(|(name, _)| !waiting.contains(name)).collect()
}
