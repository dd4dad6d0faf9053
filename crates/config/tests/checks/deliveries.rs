//! What holds for any deliveries of clusters between any texts: each has a verdict, and what comes of all of them is what
//! building from scratch gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::outside::Memory;
use config::{FilterKinds, Loader, Update, effective};
use serde_json::Value;

/// Steps of an input, at most.
const STEPS_MAX: usize = 64;

/// Each line of an input is a step. `t012ab` is a text with the clusters `c0`, `c1` and `c2`, and rules for `c0` and
/// `c1`; `1web=CONTENT` is what the source `1` says of `web`, and `1web` that it is gone.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Ok(input) = str::from_utf8(data) else { return };
    let mut loader = fresh();
    let mut latest = text("");
    loader.load("f", &latest).expect("a sound text");
    let mut delivered: BTreeMap<String, (String, String)> = BTreeMap::new();
    for step in input.lines().take(STEPS_MAX) {
        let mut rest = step.chars();
        match rest.next() {
            Some('t') => {
                latest = text(rest.as_str());
                loader.load("f", &latest).expect("a sound text");
                let file = effective(loader.snapshot_latest().expect("it was loaded"));
                delivered.retain(|name, _| named(&file, name) && !latest.contains(&own(name)));
            }
            Some(source) => {
                let (name, content) = match rest.as_str().split_once('=') {
                    Some((name, content)) => (name, Some(content)),
                    None => (rest.as_str(), None),
                };
                if deliver(&mut loader, &source.to_string(), name, content) {
                    match content {
                        None => drop(delivered.remove(name)),
                        Some(content) => {
                            let said = (source.to_string(), content.to_owned());
                            delivered.insert(name.to_owned(), said);
                        }
                    }
                }
            }
            None => {}
        }
    }
    let mut scratch = fresh();
    scratch.load("f", &latest).expect("a sound text");
    for (name, (source, content)) in &delivered {
        assert!(deliver(&mut scratch, source, name, Some(content)), "accepted once: {content}");
    }
    assert_eq!(seen(&loader), seen(&scratch));
}

fn fresh() -> Loader<()> {
    let mut loader = Loader::new(FilterKinds::new()).expect("the schema is sound");
    loader.expect_sources();
    loader
}

/// Whether it is accepted.
fn deliver(loader: &mut Loader<()>, source: &str, name: &str, content: Option<&str>) -> bool {
    let update =
        Update { name: name.into(), version: "1".into(), content: content.map(Into::into) };
    let read = loader.prepare_updates(&Arc::from(source), vec![update], &Memory::default());
    assert_eq!(read.verdicts.len(), 1, "one verdict for one update");
    let verdict = read.verdicts.first().expect("there is one");
    if let Some(errors) = &verdict.refused {
        assert!(read.prepared.is_none(), "a refused update changes nothing");
        assert!(errors.errors.iter().all(|it| !it.rule.is_empty() && !it.hint.is_empty()));
    }
    let is_accepted = verdict.refused.is_none();
    if let Some(prepared) = read.prepared {
        loader.keep(prepared);
    }
    is_accepted
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

fn named(shown: &Value, name: &str) -> bool {
    shown["clusters"].as_array().is_some_and(|all| all.iter().any(|it| it["name"] == name))
}

/// The clusters by name, with their endpoints as workers have them, and where rules lead.
fn seen(loader: &Loader<()>) -> BTreeMap<String, String> {
    let snapshot = loader.snapshot_latest().expect("it was loaded");
    let clusters = snapshot.clusters.iter().map(|(_, cluster)| {
        let endpoints =
            cluster.endpoints.iter().map(|it| format!("{:?} {}", it.address, it.weight));
        (cluster.name.to_string(), endpoints.collect::<Vec<_>>().join(" "))
    });
    let tables = snapshot.route_tables.iter().flat_map(|(_, table)| &table.rules);
    let rules = tables.enumerate().filter_map(|(place, rule)| {
        let config::snapshot::Action::Forward(forward) = &rule.action else { return None };
        let found = forward.target.clusters().map(|id| snapshot.cluster(id));
        let names = found.map(|it| it.map_or_else(String::new, |it| it.name.to_string()));
        Some((format!("rule {place}"), names.collect::<Vec<_>>().join(" ")))
    });
    clusters.chain(rules).collect()
}
