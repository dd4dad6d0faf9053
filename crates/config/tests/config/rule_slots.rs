//! The slots under which rules and their weighted clusters are counted, from one load to the next.

use std::sync::Arc;

use config::snapshot::Snapshot;

use crate::sample::{self, Headers};

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

fn loader() -> Loader {
    Loader::new(sample::kinds()).unwrap()
}

/// A snapshot whose table has these rules: what they match, with a name before it if they have one, and the clusters among
/// which they share requests.
fn load(loader: &mut Loader, rules: &[&str]) -> Loaded {
    let mut text = "listeners: [{ name: edge, address: '127.0.0.1:1', routes: shop }]
clusters: [{ name: a, endpoints: ['10.0.0.1:80'] }, { name: b, endpoints: ['10.0.0.2:80'] }, { name: c, endpoints: ['10.0.0.3:80'] }]
routes:
- name: shop
  rules:
"
    .to_owned();
    for rule in rules {
        let (rule, clusters) = rule.split_once(" to ").unwrap_or((rule, ""));
        let (name, path) = rule.split_once('=').map_or(("", rule), |(name, path)| (name, path));
        let name = if name.is_empty() { String::new() } else { format!("name: {name}, ") };
        let clusters = clusters.chars().map(|name| format!("{{ cluster: {name} }}"));
        let clusters = clusters.collect::<Vec<_>>().join(", ");
        let action = match &*clusters {
            "" => "respond: {}".to_owned(),
            clusters => format!("clusters: [{clusters}]"),
        };
        text.push_str(&format!("  - {{ {name}match: {{ path: {path} }}, {action} }}\n"));
    }
    loader.load("test", &text).unwrap()
}

fn slots(snapshot: &Loaded) -> Vec<u32> {
    let (_, table) = snapshot.route_tables.iter().next().unwrap();
    table.rules.iter().map(|rule| rule.slot.number()).collect()
}

fn weighted(snapshot: &Loaded) -> Vec<(u32, &str, u32)> {
    let (_, table) = snapshot.route_tables.iter().next().unwrap();
    let clusters = table.weighted_clusters();
    clusters.map(|(rule, share, slot)| (rule, &*share.cluster, slot.number())).collect()
}

#[test]
fn a_rule_keeps_its_slot_wherever_it_stands() {
    let mut loader = loader();
    let first = load(&mut loader, &["/a", "/twice", "/twice", "mine=/m"]);
    assert_eq!(slots(&first), [0, 1, 2, 3]);
    let moved = load(&mut loader, &["/new", "mine=/other", "/twice", "/a", "/twice", "/m"]);
    assert_eq!(slots(&moved), [4, 3, 1, 0, 2, 5]);
    // The same again, in which only another section differs.
    let same = load(&mut loader, &["/new", "mine=/other", "/twice", "/a", "/twice", "/m"]);
    assert_eq!(slots(&same), slots(&moved));
    let fewer = load(&mut loader, &["/twice", "/a"]);
    assert_eq!(slots(&fewer), [1, 0]);
}

#[test]
fn a_weighted_cluster_keeps_its_slot_with_its_rule() {
    let mut loader = loader();
    let first = load(&mut loader, &["/x", "/y to ab"]);
    assert_eq!(slots(&first), [0, 1]);
    assert_eq!(weighted(&first), [(1, "a", 2), (1, "b", 3)]);
    // A cluster that is named twice is counted once.
    let moved = load(&mut loader, &["/z to a", "/y to cbab", "/x"]);
    assert_eq!(slots(&moved), [4, 1, 0]);
    let expected = [(0, "a", 5), (1, "c", 6), (1, "b", 3), (1, "a", 2), (1, "b", 3)];
    assert_eq!(weighted(&moved), expected);
}

#[test]
fn a_slot_is_another_rules_once_no_table_is_left_that_had_the_first() {
    let mut loader = loader();
    let first = load(&mut loader, &["/a", "/b to a"]);
    let second = load(&mut loader, &["/b to a", "/a", "/c"]);
    assert_eq!((slots(&first), slots(&second)), (vec![0, 1], vec![1, 0, 3]));
    let third = load(&mut loader, &["/d"]);
    assert_eq!(slots(&third), [4], "tables with the other slots are there");
    drop(second);
    let fourth = load(&mut loader, &["/d", "/e", "/f to c"]);
    // Exchanges of the first one may name 0, 1 and 2.
    assert_eq!((slots(&fourth), weighted(&fourth)), (vec![4, 3, 5], vec![(2, "c", 6)]));
    drop(first);
    let fifth = load(&mut loader, &["/a", "/b", "/c", "/d", "/g", "/h"]);
    drop(third);
    assert_eq!(slots(&fifth), [0, 1, 2, 4, 7, 8]);
}

#[test]
fn a_table_that_changes_its_rules_for_ever_has_few_slots() {
    let mut loader = loader();
    let long_lived = load(&mut loader, &["/tunnel"]);
    let mut last = 0;
    for n in 0..500 {
        let rules = [format!("/{n}"), format!("/{n}/x to abc")];
        let now = load(&mut loader, &rules.each_ref().map(String::as_str));
        let of_clusters = weighted(&now).into_iter().map(|(.., slot)| slot);
        last = of_clusters.chain(slots(&now)).max().unwrap().max(last);
    }
    // That of the tunnel, five of the table, and five of the one before it.
    assert_eq!(last, 10);
    assert_eq!(slots(&long_lived), [0]);
}

#[test]
fn a_load_that_is_refused_takes_no_slots() {
    let mut loader = loader();
    load(&mut loader, &["/a"]);
    assert!(
        loader.load("test", "routes: [{ name: shop, rules: [{ match: { path: /x } }] }]").is_err()
    );
    assert_eq!(slots(&load(&mut loader, &["/b", "/a"])), [1, 0]);
}
