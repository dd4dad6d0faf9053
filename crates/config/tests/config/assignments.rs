//! Endpoints that sources deliver apart from their clusters.

use std::sync::Arc;

use config::ResourceKind::{Assignment, Cluster};
use config::health::HealthStatus::{Degraded, Healthy, Unhealthy};
use config::snapshot::{self, Snapshot};
use config::{ResourceName, Update};

use crate::sample::{self, Headers};
use crate::sources::{deliver, fresh, of};

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

const TEXT: &str = "listeners: [{ name: edge, address: '127.0.0.1:1', routes: shop }]
routes: [{ name: shop, rules: [{ match: { prefix: /a }, cluster: web }, { match: { prefix: / }, cluster: own }] }]
clusters: [{ name: own }]
";

fn loaded() -> Loader {
    let mut loader = fresh();
    loader.load("f", TEXT).unwrap();
    loader
}

fn assignment(name: &str, endpoints: &str) -> Update {
    of(Assignment, name, "1", &format!("{{ name: {name}, endpoints: [{endpoints}] }}"))
}

fn one(loader: &mut Loader, update: Update) -> (Option<Loaded>, String) {
    let (now, mut verdicts) = deliver(loader, "folder", vec![update]);
    (now, verdicts.remove(0))
}

fn cluster<'s>(snapshot: &'s Loaded, name: &str) -> Option<&'s Arc<snapshot::Cluster>> {
    snapshot.clusters.iter().map(|(_, it)| it).find(|it| &*it.name == name)
}

/// The endpoints of a cluster that serves, each with its weight.
fn endpoints(loader: &Loader, name: &str) -> Vec<String> {
    let latest = loader.snapshot_latest().unwrap();
    let endpoints = cluster(latest, name).into_iter().flat_map(|cluster| &cluster.endpoints);
    let shown = endpoints.map(|it| match &it.address {
        snapshot::Address::Tcp(address) => format!("{address} {}", it.weight),
        snapshot::Address::Unix(_) => panic!(),
    });
    shown.collect()
}

#[test]
fn a_cluster_without_endpoints_has_those_that_a_source_assigns_to_its_name() {
    let errors = config::Loader::new(sample::kinds()).unwrap().load("f", TEXT).unwrap_err();
    assert!(errors.to_string().contains("a cluster has `endpoints`"), "the file alone: {errors}");
    let mut loader = fresh();
    let prepared = loader.prepare("f", TEXT, &sample::outside()).unwrap();
    let wanted: Vec<String> = prepared.wanted().iter().map(ToString::to_string).collect();
    assert_eq!(wanted, ["cluster/web", "assignment/own"]);
    loader.keep(prepared);
    assert!(endpoints(&loader, "own").is_empty());
    let (now, said) = one(&mut loader, assignment("own", "'10.0.0.1:80', '10.0.0.2:80'"));
    let now = now.unwrap();
    assert_eq!(said, "ok");
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.1:80 1", "10.0.0.2:80 1"]);
    let id = cluster(&now, "own").unwrap().id;
    let kept = cluster(&now, "own").unwrap().endpoints[1].id;
    assert_eq!(now.changes.clusters_changed, [id]);
    // An endpoint is its cluster and its address, and nothing else changes.
    let (next, _) = one(&mut loader, assignment("own", "'10.0.0.2:80', '10.0.0.3:80'"));
    let next = next.unwrap();
    assert_eq!(cluster(&next, "own").unwrap().endpoints[0].id, kept);
    assert!(now.listeners.is_shared(&next.listeners));
    assert_eq!((next.changes.endpoints_added.len(), next.changes.endpoints_removed.len()), (1, 1));
    assert!(next.changes.route_tables_changed.is_empty());
    // The same is no change; what is gone leaves the endpoints of before, after a reload, too.
    assert!(one(&mut loader, assignment("own", "'10.0.0.2:80', '10.0.0.3:80'")).0.is_none());
    assert!(one(&mut loader, of(Assignment, "own", "2", "")).0.is_none());
    loader.load("f", &format!("# more\n{TEXT}")).unwrap();
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.2:80 1", "10.0.0.3:80 1"]);
    one(&mut loader, assignment("own", ""));
    assert!(endpoints(&loader, "own").is_empty(), "an empty list is one");
}

#[test]
fn a_cluster_of_the_file_that_leaves_its_endpoints_to_a_source_serves_with_its_own_until_then() {
    let listed = TEXT.replace("{ name: own }", "{ name: own, endpoints: ['10.0.0.7:80'] }");
    assert_ne!(listed, TEXT);
    let mut loader = fresh();
    loader.load("f", &listed).unwrap();
    loader.load("f", TEXT).unwrap();
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.7:80 1"]);
    // However often the file is read until then.
    loader
        .load(
            "f",
            &format!(
                "# more\n{}",
                TEXT.replace("{ name: own }", "{ name: own, connections_max: 7 }")
            ),
        )
        .unwrap();
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.7:80 1"]);
    one(&mut loader, assignment("own", "'10.0.0.1:80'"));
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.1:80 1"]);
    loader.load("f", &listed).unwrap();
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.7:80 1"]);
    loader.load("f", TEXT).unwrap();
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.1:80 1"], "it is there already");
}

#[test]
fn a_delivered_cluster_serves_once_it_has_an_assignment_and_no_other_has_a_say() {
    let mut loader = loaded();
    let (none, said) = one(&mut loader, of(Cluster, "web", "1", "{ name: web }"));
    assert!(none.is_none() && said == "waits for assignment/web");
    let (now, said) = one(&mut loader, assignment("web", "'10.0.0.1:80'"));
    let id = cluster(&now.unwrap(), "web").unwrap().id;
    assert_eq!((said.as_str(), loader.waiting().count()), ("ok", 0));
    // Both at once, in any order; a cluster with a list of its own has no use for it.
    let both = vec![of(Cluster, "two", "1", "{ name: two }"), assignment("two", "'10.0.0.2:80'")];
    assert_eq!(deliver(&mut loader, "folder", both).1, ["ok", "ok"]);
    assert_eq!(endpoints(&loader, "two"), ["10.0.0.2:80 1"]);
    one(&mut loader, of(Cluster, "web", "2", "{ name: web, endpoints: ['10.0.0.9:80'] }"));
    assert!(one(&mut loader, assignment("web", "'10.0.0.3:80'")).0.is_none());
    assert_eq!(endpoints(&loader, "web"), ["10.0.0.9:80 1"]);
    let (now, _) = one(&mut loader, of(Cluster, "web", "3", "{ name: web }"));
    assert_eq!(endpoints(&loader, "web"), ["10.0.0.3:80 1"]);
    assert_eq!(cluster(&now.unwrap(), "web").unwrap().id, id);
    // Without it the cluster waits, and serves as it did.
    assert_eq!(one(&mut loader, of(Assignment, "web", "4", "")).1, "ok");
    assert_eq!(loader.waiting().count(), 1);
    assert_eq!(endpoints(&loader, "web"), ["10.0.0.3:80 1"]);
    one(&mut loader, assignment("web", "'10.0.0.4:80'"));
    assert_eq!(endpoints(&loader, "web"), ["10.0.0.4:80 1"]);
    assert_eq!(loader.waiting().count(), 0);
    let (_, said) = deliver(&mut loader, "other", vec![assignment("web", "")]);
    assert!(said[0].contains("folder has delivered"), "{said:?}");
    // A wait ends, without endpoints.
    one(&mut loader, of(Cluster, "late", "1", "{ name: late }"));
    let waited = [ResourceName::new(Cluster, "late")].into();
    let done = loader.prepare_waited(&waited, &[], &sample::outside());
    loader.keep(done.prepared.unwrap());
    assert!(cluster(loader.snapshot_latest().unwrap(), "late").unwrap().endpoints.is_empty());
    one(&mut loader, assignment("late", "'10.0.0.5:80'"));
    assert_eq!(endpoints(&loader, "late"), ["10.0.0.5:80 1"]);
}

#[test]
fn what_is_said_of_an_endpoint_is_kept_and_one_that_is_not_healthy_gets_nothing_new() {
    let mut loader = loaded();
    let said = "{ address: '10.0.0.1:80', weight: 7, locality: { region: eu, zone: b }, \
                metadata: { version: v2 }, host: a.example }, \
                { address: '10.0.0.2:80', weight: 5, health: unhealthy }, \
                { address: '10.0.0.3:80', priority: 1, health: draining }, '10.0.0.4:80', \
                { address: '10.0.0.5:80', health: timeout }, \
                { address: '10.0.0.6:80', health: degraded }, \
                { address: '10.0.0.7:80', health: unknown }";
    let (now, verdict) = one(&mut loader, assignment("own", said));
    assert_eq!(verdict, "ok");
    let own = cluster(loader.snapshot_latest().unwrap(), "own").unwrap();
    let served = own.endpoints.iter().map(|it| (it.weight, it.status())).collect::<Vec<_>>();
    let expected = [(7, Healthy), (5, Unhealthy), (0, Unhealthy), (1, Healthy), (1, Unhealthy)];
    assert_eq!(served[..5], expected);
    assert_eq!(served[5..], [(1, Degraded), (1, Healthy)]);
    let name: ResourceName = "assignment/own".parse().unwrap();
    let shown = config::resource(&now.unwrap(), &name).unwrap().to_string();
    for part in [
        "\"referred_by\":[\"cluster/own\"]",
        "\"locality\":{\"region\":\"eu\",\"zone\":\"b\"}",
        "\"health\":\"unhealthy\"",
        "\"host\":\"a.example\"",
        "\"version\":\"v2\"",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let other: ResourceName = "assignment/web".parse().unwrap();
    assert!(config::resource(loader.snapshot_latest().unwrap(), &other).is_err());
}

#[test]
fn each_mistake_of_an_assignment_is_refused_by_its_rule_and_the_one_before_stays() {
    let mut loader = loaded();
    one(&mut loader, assignment("own", "'10.0.0.1:80'"));
    let many = |count: usize, weight: u32| -> String {
        let endpoint = |n: usize| {
            let (a, b, c) = (n >> 16, n >> 8 & 255, n & 255);
            format!("{{ address: '10.{a}.{b}.{c}:80', weight: {weight} }}, ")
        };
        (0..count).map(endpoint).collect()
    };
    let (heavy, long) = (many(65_538, 65_535), many(100_001, 1));
    for (endpoints, place, rule) in [
        ("'10.0.0.1:80', '10.0.0.1:80'", "[1]", "each endpoint of a cluster has its own address"),
        ("'10.0.0.1:0'", "[0]", "nothing can be reached at port 0"),
        ("{ address: 'a.example:80' }", "[0].address", "not host names"),
        ("'unix:/run/a.sock'", "[0]", "cannot name unix sockets of this machine"),
        ("{ address: '10.0.0.1:80', host: 'a b' }", "[0].host", "host"),
        ("{ address: '10.0.0.1:80', health: ill }", "[0].health", "healthy"),
        ("{ address: '10.0.0.1:80', weight: 65536 }", "[0].weight", "65535"),
        (
            "'10.0.0.1:80', { address: '10.0.0.2:80', priority: 2 }",
            "[1].priority",
            "priority 1 has no endpoints, and 2 has some",
        ),
        (
            "{ address: '10.0.0.2:80', priority: 1 }",
            "[0].priority",
            "priority 0 has no endpoints, and 1 has some",
        ),
        (
            "'10.0.0.1:80', '[::ffff:10.0.0.1]:80'",
            "[1]",
            "each endpoint of a cluster has its own address",
        ),
        ("'0.0.0.0:80'", "[0]", "every address of a machine"),
        (
            "{ address: '10.0.0.1:80', locality: { region: eu, zone: \"a\\nb\" } }",
            "[0].locality",
            "a locality contains no control characters",
        ),
        (
            "{ address: '10.0.0.1:80', metadata: { unit: \"a\\tb\" } }",
            "[0].metadata.unit",
            "metadata contains no control characters",
        ),
        (&heavy, "", "come to at most 4294967295"),
        (&long, "", "at most 100000 endpoints"),
    ] {
        let (none, said) = one(&mut loader, assignment("own", endpoints));
        assert!(none.is_none(), "{rule}");
        let path = format!(": endpoints{place}: ");
        assert!(said.starts_with("folder assignment/own version 1:1:"), "{said}");
        assert!(said.contains(&path) && said.contains(rule), "{said}\n{path}{rule}");
    }
    for name in ["a b", &"a".repeat(1025)] {
        let said = one(&mut loader, of(Assignment, name, "1", "{ name: x, endpoints: [] }")).1;
        assert!(said.contains("a name has 1 to"), "{said}");
    }
    let said = one(&mut loader, of(Assignment, "a\u{7}", "1", "{ name: x, endpoints: [] }")).1;
    assert!(said.contains("a name has no control characters"), "{said}");
    assert_eq!(endpoints(&loader, "own"), ["10.0.0.1:80 1"]);
}
