//! Clusters that other sources deliver: each accepted or refused by itself, with the file before all of them.

use std::sync::Arc;

use config::snapshot::{ClusterId, Snapshot};
use config::{RESOURCES_MAX, ResourceKind, Update, Verdict};

use crate::sample::{self, Headers};

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

const TEXT: &str = "listeners: [{ name: edge, address: '127.0.0.1:1', routes: shop }]
routes: [{ name: shop, rules: [{ match: { prefix: /a }, cluster: web }, { match: { prefix: / }, cluster: own }] }]
clusters: [{ name: own, endpoints: ['10.0.0.1:80'] }]
";

pub(crate) fn fresh() -> Loader {
    let mut loader = Loader::new(sample::kinds()).unwrap();
    loader.expect_sources();
    loader
}

fn update(name: &str, version: &str, content: &str) -> Update {
    of(ResourceKind::Cluster, name, version, content)
}

/// What a source says of a resource; without content, it is gone.
pub(crate) fn of(kind: ResourceKind, name: &str, version: &str, content: &str) -> Update {
    let content = (!content.is_empty()).then(|| content.into());
    Update { kind, name: name.into(), version: version.into(), content }
}

pub(crate) fn deliver(
    loader: &mut Loader,
    source: &str,
    updates: Vec<Update>,
) -> (Option<Loaded>, Vec<String>) {
    let read = loader.prepare_updates(&source.into(), updates, &[], &sample::outside());
    let said = |verdict: &Verdict| match (&verdict.refused, &*verdict.waits_for) {
        (Some(errors), _) => errors.to_string(),
        (None, []) => "ok".to_owned(),
        (None, names) => {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            format!("waits for {}", names.join(" "))
        }
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
    assert!(before.listeners.is_shared(&now.listeners), "nothing else changes");
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
        "folder cluster/g version 2:2:13: endpoints[0]: \"db.internal:80\": a delivered cluster contains addresses",
        "folder cluster/h version 2:3:12: tls.ca: \"/etc/ca.pem\": a resource of another source names no files",
        "folder cluster/i version 2:2:13: endpoints[0]: \"${HOME}:80\"",
        "folder cluster/j k version 2:1:1: a name has 1 to",
        "folder cluster/own version 2:1:1: the file has a cluster of this name, at f:3, which has precedence",
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
    // Another source has no say in it, and may say that it does not have it.
    let updates = vec![update("b", "9", &good("b")), update("own", "9", "")];
    let (none, verdicts) = deliver(&mut loader, "etcd", updates);
    assert!(none.is_none());
    assert!(
        verdicts[0].contains("folder has delivered a cluster of this name, version 3"),
        "{verdicts:?}"
    );
    assert_eq!(verdicts[1], "ok");
    let (none, verdicts) = deliver(&mut loader, "etcd", vec![update("b", "10", "")]);
    assert!(none.is_none() && verdicts == ["ok"], "{verdicts:?}");
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
    assert!(verdicts.iter().all(|it| {
        it.contains("at most 100000 of a kind (resources_max), and has 100001 of cluster")
    }));
}
