//! Clusters that other sources deliver: each accepted or refused by itself, with the file before all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::snapshot::{ClusterId, Snapshot};
use config::{RESOURCES_MAX, Update, Verdict};
use proptest::prelude::*;

use crate::loads::Known;
use crate::sample::{self, Headers};
use crate::unchanged::seen;

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

const TEXT: &str = "listeners: [{ name: edge, address: '127.0.0.1:1', routes: shop }]
routes: [{ name: shop, rules: [{ match: { prefix: /a }, cluster: web }, { match: { prefix: / }, cluster: own }] }]
clusters: [{ name: own, endpoints: ['10.0.0.1:80'] }]
";

fn fresh() -> Loader {
    let mut loader = Loader::new(sample::kinds()).unwrap();
    loader.expect_sources();
    loader
}

fn update(name: &str, version: &str, content: &str) -> Update {
    let content = (!content.is_empty()).then(|| content.into());
    Update { name: name.into(), version: version.into(), content }
}

fn deliver(
    loader: &mut Loader,
    source: &str,
    updates: Vec<Update>,
) -> (Option<Loaded>, Vec<String>) {
    let read = loader.prepare_updates(&source.into(), updates, &sample::outside());
    let said = |verdict: &Verdict| {
        verdict.refused.as_ref().map_or_else(|| "ok".to_owned(), ToString::to_string)
    };
    let verdicts = read.verdicts.iter().map(said).collect();
    (read.prepared.map(|prepared| loader.keep(prepared)), verdicts)
}

/// The cluster that a rule of the first table leads to.
fn target(snapshot: &Loaded, place: usize) -> ClusterId {
    let (_, table) = snapshot.route_tables.iter().next().unwrap();
    let config::snapshot::Action::Forward(forward) = &table.rules[place].action else { panic!() };
    forward.target.clusters().next().unwrap()
}

#[test]
fn a_rule_names_a_cluster_that_comes_goes_and_comes_again() {
    let errors = Loader::new(sample::kinds()).unwrap().load("f", TEXT).unwrap_err();
    assert!(errors.to_string().contains("no cluster has this name"), "the file alone: {errors}");
    let mut loader = fresh();
    let before = loader.load("f", TEXT).unwrap();
    let id = target(&before, 0);
    assert!(before.cluster(id).is_none() && id != target(&before, 1));
    let web = "{ name: web, endpoints: ['10.0.0.2:80'] }";
    let (now, verdicts) = deliver(&mut loader, "folder", vec![update("web", "1", web)]);
    let now = now.unwrap();
    assert_eq!(verdicts, ["ok"]);
    assert_eq!(now.cluster(id).unwrap().name.as_ref(), "web");
    assert!(Arc::ptr_eq(&before.listeners, &now.listeners), "nothing else changes");
    assert_eq!(
        (&*now.changes.clusters_added, &*now.changes.route_tables_changed),
        (&[id][..], &[][..])
    );
    assert!(deliver(&mut loader, "folder", vec![update("web", "2", web)]).0.is_none(), "the same");
    // A reload leaves it.
    let reloaded = loader.load("f", &TEXT.replace("10.0.0.1", "10.0.0.9")).unwrap();
    assert!(Arc::ptr_eq(reloaded.cluster(id).unwrap(), now.cluster(id).unwrap()));
    let gone = deliver(&mut loader, "folder", vec![update("web", "3", "")]).0.unwrap();
    assert!(gone.cluster(id).is_none());
    let again = deliver(&mut loader, "folder", vec![update("web", "4", web)]).0.unwrap();
    assert_eq!(again.cluster(id).unwrap().id, id, "rules find it again");
    // A name that nothing names any more gives its id back.
    loader.load("f", &TEXT.replace("cluster: web", "cluster: own")).unwrap();
    deliver(&mut loader, "folder", vec![update("web", "5", "")]).0.unwrap();
    let other = "{ name: other, endpoints: ['10.0.0.2:80'] }";
    let other = deliver(&mut loader, "folder", vec![update("other", "1", other)]).0.unwrap();
    assert_ne!(other.changes.clusters_added, [id], "the slot has another generation");
    assert_eq!(other.clusters.iter().count(), 2);
}

#[test]
fn each_is_accepted_or_refused_by_itself_and_a_refused_one_keeps_its_former_version() {
    let mut loader = fresh();
    loader.load("f", TEXT).unwrap();
    let good = |name: &str| format!("{{ name: {name}, endpoints: ['10.0.0.2:80'] }}");
    deliver(&mut loader, "folder", vec![update("a", "1", &good("a"))]);
    let before = loader.snapshot_latest().unwrap().clone();
    let updates = vec![
        update("a", "2", "name: a\nendpoints: ['10.0.0.2:0']"),
        update("b", "2", &good("b")),
        update("c", "2", "name: d\nendpoints: []"),
        update("e", "2", "name: e\nendpoints: { file: /etc/passwd }"),
        update("g", "2", "name: g\nendpoints: [db.internal:80]"),
        update("h", "2", "name: h\nendpoints: []\ntls: { ca: /etc/ca.pem }"),
        update("i", "2", "name: i\nendpoints: ['${HOME}:80']"),
        update("j k", "2", "name: j\nendpoints: []"),
        update("own", "2", &good("own")),
        update("b", "3", &good("b").replace("0.2", "0.3")),
    ];
    let (now, verdicts) = deliver(&mut loader, "folder", updates);
    let now = now.unwrap();
    for (verdict, said) in verdicts.iter().zip([
        "folder cluster/a version 2:2:13: endpoints[0]: \"10.0.0.2:0\": nothing can be reached at port 0",
        "ok",
        "folder cluster/c version 2:1:7: name: \"d\": the source delivers it under another name; write c",
        "folder cluster/e version 2:2:12: endpoints: a delivered cluster has a list of endpoints",
        "folder cluster/g version 2:2:13: endpoints[0]: \"db.internal:80\": a delivered cluster has addresses",
        "folder cluster/h version 2:3:12: tls.ca: \"/etc/ca.pem\": a delivered cluster names no files",
        "folder cluster/i version 2:2:13: endpoints[0]: \"${HOME}:80\"",
        "folder cluster/j k version 2:1:1: a name has 1 to",
        "folder cluster/own version 2:1:1: the file has a cluster of this name, at f:3, and goes first",
    ]) {
        assert!(verdict.starts_with(said), "{verdict}\n{said}");
    }
    assert_eq!(verdicts.len(), 9, "of each the last");
    let names = |snapshot: &Loaded| -> Vec<String> {
        snapshot.clusters.iter().map(|(_, cluster)| cluster.name.to_string()).collect()
    };
    assert_eq!(
        (names(&before), names(&now)),
        (vec!["own".into(), "a".into()], vec!["own".into(), "a".into(), "b".into()])
    );
    let a = now.clusters.iter().find(|(_, it)| &*it.name == "a").unwrap().1;
    assert!(before.clusters.iter().any(|(_, it)| Arc::ptr_eq(it, a)), "the former version");
    // Another source has no say in it.
    let (none, verdicts) =
        deliver(&mut loader, "etcd", vec![update("b", "9", ""), update("own", "9", "")]);
    assert!(none.is_none());
    assert!(
        verdicts[0].contains("folder has delivered a cluster of this name, version 3"),
        "{verdicts:?}"
    );
}

#[test]
fn the_file_takes_a_name_and_the_source_may_have_it_again() {
    let mut loader = fresh();
    loader.load("f", TEXT).unwrap();
    let web = |port: u16| format!("{{ name: web, endpoints: ['10.0.0.2:{port}'] }}");
    deliver(&mut loader, "folder", vec![update("web", "1", &web(80))]);
    let own = TEXT.replace("clusters: [", &format!("clusters: [{}, ", web(81)));
    let now = loader.load("f", &own).unwrap();
    let port = |snapshot: &Loaded| seen_port(snapshot, "web");
    assert_eq!(port(&now), "10.0.0.2:81");
    let (none, verdicts) = deliver(&mut loader, "folder", vec![update("web", "2", &web(82))]);
    assert!(
        none.is_none() && verdicts[0].contains("the file has a cluster of this name"),
        "{verdicts:?}"
    );
    let now = loader.load("f", TEXT).unwrap();
    assert!(now.cluster(target(&now, 0)).is_none());
    let now = deliver(&mut loader, "folder", vec![update("web", "3", &web(82))]).0.unwrap();
    assert_eq!(port(&now), "10.0.0.2:82");
}

fn seen_port(snapshot: &Loaded, name: &str) -> String {
    let cluster = snapshot.clusters.iter().find(|(_, cluster)| &*cluster.name == name).unwrap().1;
    cluster.endpoints[0].address.to_string()
}

#[test]
fn more_than_the_bound_is_refused_as_a_whole() {
    let mut loader = fresh();
    loader.load("f", TEXT).unwrap();
    let content = "endpoints: []";
    let updates = (0..=RESOURCES_MAX).map(|n| update(&n.to_string(), "1", content)).collect();
    let (none, verdicts) = deliver(&mut loader, "folder", updates);
    assert!(none.is_none());
    assert!(verdicts.iter().all(|it| it.contains("at most 100000 clusters (resources_max)")));
}

/// What comes next: a text with these clusters and rules for those, or what a source says of one.
#[derive(Clone, Debug)]
enum Step {
    Text(Vec<u8>, Vec<u8>),
    Update(u8, u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let names = || proptest::collection::btree_set(0u8..4, 0..4);
    prop_oneof![
        1 => (names(), names()).prop_map(|(clusters, rules)| Step::Text(
            clusters.into_iter().collect(),
            rules.into_iter().collect()
        )),
        3 => (0u8..2, 0u8..4, 0u8..6).prop_map(|(source, name, form)| Step::Update(source, name, form)),
    ]
}

fn text(clusters: &[u8], rules: &[u8]) -> String {
    let rule = |name: &u8| format!("{{ match: {{ prefix: /{name}/ }}, cluster: c{name} }}");
    let rules: Vec<_> = rules.iter().map(rule).collect();
    let cluster = |name: &u8| format!("{{ name: c{name}, endpoints: ['10.0.1.{name}:80'] }}");
    let clusters: Vec<_> = clusters.iter().map(cluster).collect();
    format!(
        "listeners: [{{ name: l, address: '127.0.0.1:1', routes: r }}]\n\
         routes: [{{ name: r, rules: [{}] }}]\nclusters: [{}]\n",
        rules.join(", "),
        clusters.join(", ")
    )
}

/// A delivered cluster; none for one that is gone.
fn form(name: u8, form: u8) -> String {
    match form {
        0 => String::new(),
        // Refused.
        1 => format!("{{ name: c{name}, endpoints: ['10.0.2.1:0'] }}"),
        2 => format!("{{ name: c{name}, endpoints: ['10.0.2.1:80'], tls: {{ verify: off }} }}"),
        _ => format!("{{ name: c{name}, endpoints: ['10.0.2.{form}:80', '10.0.2.9:80'] }}"),
    }
}

proptest! {
    #[test]
    fn any_deliveries_and_texts_give_what_building_from_scratch_gives(
        steps in proptest::collection::vec(step(), 1..16)
    ) {
        let mut loader = fresh();
        let mut known = Known::default();
        let mut latest = text(&[], &[]);
        // What sources have delivered and was accepted.
        let mut delivered: BTreeMap<u8, (u8, u8)> = BTreeMap::new();
        known.apply(&loader.load("f", &latest).unwrap());
        for step in steps {
            match step {
                Step::Text(clusters, rules) => {
                    latest = text(&clusters, &rules);
                    known.apply(&loader.load("f", &latest).unwrap());
                    delivered.retain(|name, _| !clusters.contains(name));
                }
                Step::Update(source, name, kind) => {
                    let is_other = delivered.get(&name).is_some_and(|(owner, _)| *owner != source);
                    let is_of_file = latest.contains(&format!("{{ name: c{name}, "));
                    let updates = vec![update(&format!("c{name}"), "1", &form(name, kind))];
                    let (now, verdicts) = deliver(&mut loader, &source.to_string(), updates);
                    let is_refused = is_other || is_of_file || kind == 1;
                    prop_assert_eq!(verdicts[0] != "ok", is_refused, "{:?}", verdicts);
                    match kind {
                        _ if is_refused => {}
                        0 => drop(delivered.remove(&name)),
                        kind => drop(delivered.insert(name, (source, kind))),
                    }
                    if let Some(now) = now {
                        known.apply(&now);
                    }
                }
            }
            let mut scratch = fresh();
            scratch.load("f", &latest).unwrap();
            for (name, (source, kind)) in &delivered {
                let updates = vec![update(&format!("c{name}"), "1", &form(*name, *kind))];
                deliver(&mut scratch, &source.to_string(), updates);
            }
            prop_assert_eq!(seen(&loader), seen(&scratch));
            prop_assert_eq!(&known, &Known::of(loader.snapshot_latest().unwrap()));
        }
    }
}
