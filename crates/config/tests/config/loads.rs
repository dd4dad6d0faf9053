//! Good texts: what they become, what stays from one load to the next, and what it costs.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::matching::asking;
use crate::sample::{Headers, Loader, loader};
use config::explain::{Mismatch, Verdict};
use config::file::FdStore;
use config::matching::Searches;
use config::schedule::Schedule;
use config::snapshot::{
    Action, Address, Changes, ClusterId, EndpointId, ForwardedFields, HandoverOptions, ListenerId,
    RouteTableId, Snapshot, StartupOptions,
};
use config::{effective, effective_yaml};
use proptest::prelude::*;

const SHOP: &str = include_str!("../../../../examples/shop.yaml");

type Loaded = Arc<Snapshot<Headers>>;

fn load(loader: &mut Loader, text: &str) -> Loaded {
    loader.load("strait.yaml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

#[test]
fn the_shop_becomes_what_its_file_says() {
    let mut loader = loader();
    let snapshot = load(&mut loader, SHOP);
    assert_eq!(loader.warnings(), []);
    assert_eq!(
        snapshot.startup,
        StartupOptions {
            admin: Some(address("127.0.0.1:9901")),
            admin_mode: None,
            admin_hosts: Arc::new([]),
            metrics: None,
            workers: NonZeroU16::new(1),
            pins_workers: false,
            handover: HandoverOptions {
                socket: None,
                timeout: Duration::from_secs(60),
                probation: Duration::from_secs(30),
                users: Arc::new([]),
                fd_store: FdStore::Off,
            },
            state: None,
        }
    );
    let listener = &snapshot.listeners[0];
    assert_eq!((&*listener.name, &*listener.addresses), ("edge", &[address("127.0.0.1:8080")][..]));
    assert_eq!(listener.filters[0].request.set["x-edge"], "strait");
    assert_eq!(listener.filters[0].response.remove, ["x-powered-by"]);
    assert_eq!(listener.http.forwarded, ForwardedFields::XForwarded);
    assert_eq!(listener.timeouts.request_head, Duration::from_secs(10));

    let table_id = listener.hosts.find(b"a.shop.example.com").unwrap();
    assert_eq!(listener.hosts.find(b"other"), Some(table_id));
    let table = snapshot.route_table(table_id).unwrap();
    let cluster_at = |path: &str| {
        let rule = &table.rules[table.paths.find_plain(path.as_bytes()).unwrap()];
        let Action::Forward(forward) = &rule.action else { return None };
        let cluster = forward.target.clusters().next().unwrap();
        Some((snapshot.cluster(cluster).unwrap().name.to_string(), forward.timeout))
    };
    assert_eq!(cluster_at("/healthz"), None);
    assert_eq!(cluster_at("/api/x"), Some(("api".to_owned(), Some(Duration::from_secs(2)))));
    assert_eq!(cluster_at("/api"), Some(("web".to_owned(), Some(Duration::from_secs(3_600)))));

    let (_, api) = snapshot.clusters.iter().find(|(_, c)| &*c.name == "api").unwrap();
    assert_eq!(api.timeouts.connect, Duration::from_millis(500));
    let weights: Vec<_> = api.endpoints.iter().map(|e| e.weight).collect();
    assert_eq!(weights, [1, 2]);
    assert_eq!(*api.view.levels(None)[0].schedule(), Schedule::Cycle([1, 0, 1].into()));
}

#[test]
fn explain_says_of_each_rule_what_became_of_it() {
    let snapshot = load(&mut loader(), SHOP);
    let table = snapshot.route_table(snapshot.listeners[0].route_tables[0]).unwrap();
    let verdicts = |path: &str| -> Vec<Verdict> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        asking(&head, |asked| {
            let verdicts = table.explain(asked, &mut Searches::default());
            verdicts.into_iter().map(|(_, verdict)| verdict).collect()
        })
    };
    assert_eq!(
        verdicts("/api/x"),
        [
            Verdict::PassedOver(Mismatch::Path("the path is another one")),
            Verdict::Matched,
            Verdict::NotReached { would_match: true }
        ]
    );
    assert_eq!(
        verdicts("/healthz"),
        [
            Verdict::Matched,
            Verdict::NotReached { would_match: false },
            Verdict::NotReached { would_match: true }
        ]
    );
}

#[test]
fn what_did_not_change_is_the_same_and_keeps_its_id() {
    let mut loader = loader();
    let before = load(&mut loader, SHOP);
    let after = load(&mut loader, &SHOP.replace("127.0.0.1:9002", "127.0.0.1:9003"));
    assert_eq!((before.version, after.version), (1, 2));
    assert!(Arc::ptr_eq(&before.listeners[0], &after.listeners[0]));
    let clusters = |snapshot: &Loaded| -> BTreeMap<String, Arc<_>> {
        snapshot.clusters.iter().map(|(_, c)| (c.name.to_string(), Arc::clone(c))).collect()
    };
    let (old, new) = (clusters(&before), clusters(&after));
    assert!(Arc::ptr_eq(&old["api"], &new["api"]));
    assert!(!Arc::ptr_eq(&old["web"], &new["web"]));
    assert_eq!(old["web"].id, new["web"].id);
    assert_eq!(
        after.changes,
        Changes {
            clusters_changed: vec![new["web"].id],
            endpoints_added: vec![(new["web"].id, new["web"].endpoints[0].id)],
            endpoints_removed: vec![(old["web"].id, old["web"].endpoints[0].id)],
            ..Changes::default()
        }
    );
}

#[test]
fn a_changed_filter_gives_a_new_chain_and_keeps_the_rest() {
    let mut loader = loader();
    let before = load(&mut loader, SHOP);
    let same = load(&mut loader, &SHOP.replace("routes: shop", "routes: [shop]"));
    assert!(Arc::ptr_eq(&before.listeners[0], &same.listeners[0]), "only written otherwise");
    let after = load(&mut loader, &SHOP.replace("x-edge: strait", "x-edge: other"));
    assert!(!Arc::ptr_eq(&before.listeners[0].filters, &after.listeners[0].filters));
    assert_eq!(after.listeners[0].id, before.listeners[0].id);
    assert_eq!(after.changes.listeners_changed, [before.listeners[0].id]);
    let moved = load(&mut loader, &SHOP.replace("127.0.0.1:8080", "127.0.0.1:8081"));
    assert_eq!(moved.changes.listeners_removed, [before.listeners[0].id]);
    assert_eq!(moved.changes.listeners_added, [moved.listeners[0].id]);
}

#[test]
fn a_listener_with_another_address_keeps_its_chain() {
    let mut loader = loader();
    let before = load(&mut loader, SHOP);
    let after = load(&mut loader, &SHOP.replace("127.0.0.1:8080", "127.0.0.1:8081"));
    assert_ne!(before.listeners[0].id, after.listeners[0].id);
    assert!(Arc::ptr_eq(&before.listeners[0].filters, &after.listeners[0].filters));
}

#[test]
fn after_errors_a_loader_is_as_if_it_had_not_been_asked() {
    let mut loader = loader();
    let before = load(&mut loader, SHOP);
    loader.load("f", &SHOP.replace("name: web", "name: wide")).unwrap_err();
    loader.load("f", "").unwrap_err();
    let after = load(&mut loader, SHOP);
    assert_eq!(after.version, 2);
    assert_eq!(after.changes, Changes::default());
    assert!(Arc::ptr_eq(&before.listeners[0], &after.listeners[0]));
}

#[test]
fn what_was_prepared_and_not_kept_leaves_no_trace() {
    let mut loader = loader();
    let before = load(&mut loader, SHOP);
    let moved = SHOP.replace("127.0.0.1:8080", "127.0.0.1:8081");
    let unkept = loader.prepare("f", &moved).unwrap();
    assert_eq!(unkept.snapshot().changes.listeners_removed, [before.listeners[0].id]);
    let after = load(&mut loader, SHOP);
    assert_eq!((after.version, &after.changes), (2, &Changes::default()));
    let kept = loader.prepare("f", &moved).unwrap();
    let kept = loader.keep(kept);
    assert_eq!(kept.changes.listeners_removed, [before.listeners[0].id]);
    assert!(Arc::ptr_eq(loader.snapshot_latest().unwrap(), &kept));
}

#[test]
fn what_takes_a_restart_stays_with_a_warning() {
    let mut loader = loader();
    let before = load(&mut loader, SHOP);
    let text = SHOP
        .replace("127.0.0.1:9901", "127.0.0.1:9902, hosts: [a.example], metrics: '127.0.0.1:9903'")
        .replace("workers: 1", "workers: { count: 2, pin: true }\nstate: /var/lib/strait");
    let after = load(&mut loader, &text);
    assert_eq!(after.startup, before.startup);
    let warned: Vec<_> =
        loader.warnings().iter().map(|w| (w.path.as_str(), w.line, w.column)).collect();
    assert_eq!(
        warned,
        [
            ("admin.address", 6, 19),
            ("admin.hosts", 6, 42),
            ("admin.metrics", 6, 64),
            ("workers", 7, 10),
            ("state", 8, 8)
        ]
    );
    load(&mut loader, SHOP);
    assert_eq!(loader.warnings(), []);
}

#[test]
fn the_effective_configuration_is_a_configuration_with_the_same_meaning() {
    for text in [SHOP, crate::sample::EVERY_KEY] {
        let first = load(&mut loader(), text);
        let yaml = effective_yaml(&first);
        let mut loader = loader();
        let again = load(&mut loader, &yaml);
        assert_eq!(effective(&first), effective(&again), "{yaml}");
        let json = effective(&first).to_string();
        assert_eq!(effective(&load(&mut loader, &json)), effective(&first));
        assert_eq!(again.clusters.iter().count(), first.clusters.iter().count());
        for ((_, a), (_, b)) in first.clusters.iter().zip(again.clusters.iter()) {
            assert_eq!(a, b);
        }
        for ((_, a), (_, b)) in first.route_tables.iter().zip(again.route_tables.iter()) {
            assert_eq!(a, b);
        }
        for (a, b) in first.listeners.iter().zip(&again.listeners) {
            assert_eq!((&a.http, &a.timeouts, &a.socket), (&b.http, &b.timeouts, &b.socket));
            assert_eq!(a.filters, b.filters);
        }
        assert_eq!((first.limits, &first.access_log), (again.limits, &again.access_log));
        assert_eq!(first.startup, again.startup);
    }
}

#[test]
fn secrets_are_masked_in_what_is_shown_and_kept_in_what_is_used() {
    let text = SHOP
        .replace("{ x-edge: strait }", "{ Authorization: \"Bearer abc\", X-Internal-Token: abc }")
        .replace("{ status: 200, body: ok }", "{ headers: { set-cookie: \"id=abc\", x-a: b } }");
    let snapshot = load(&mut loader(), &text);
    assert_eq!(snapshot.listeners[0].filters[0].request.set["Authorization"], "Bearer abc");
    let shown = effective(&snapshot).to_string();
    assert!(!shown.contains("abc"), "{shown}");
    assert!(
        shown.contains(r#""Authorization":"***""#) && shown.contains(r#""x-a":"b""#),
        "{shown}"
    );
    assert!(shown.contains(r#""X-Internal-Token":"***""#), "{shown}");
    assert!(!format!("{:?}", snapshot.listeners[0].filter_sources).contains("abc"));
}

#[test]
fn words_of_json_in_text_stay_text_in_the_effective_yaml() {
    for body in
        ["true", "1", "1e3", "null", "~", "2s", "64", "a: b", "- x", "", " ", "#", "é\n\"", "0x1"]
    {
        let quoted = serde_json::Value::from(body).to_string();
        let text = SHOP.replace("body: ok", &format!("body: {quoted}"));
        let yaml = effective_yaml(&load(&mut loader(), &text));
        let again = load(&mut loader(), &yaml);
        let table = again.route_tables.iter().next().unwrap().1;
        let Action::Respond(respond) = &table.rules[0].action else { panic!() };
        assert_eq!(&*respond.body, body.as_bytes());
    }
}

/// A configuration with `count` clusters of two endpoints and a rule for each.
fn large(count: usize) -> String {
    let mut text = String::from(
        "listeners: [{ name: l, address: \"127.0.0.1:80\", routes: r }]\nroutes:\n  - name: r\n    rules:\n",
    );
    for n in 0..count {
        text.push_str(&format!("      - match: {{ prefix: /c{n}/ }}\n        cluster: c{n}\n"));
    }
    text.push_str("clusters:\n");
    for n in 0..count {
        let (a, b) = (n / 250, n % 250);
        text.push_str(&format!(
            "  - name: c{n}\n    endpoints:\n      - 10.0.{a}.{b}:80\n      - 10.1.{a}.{b}:80\n"
        ));
    }
    text
}

/// Run with `--nocapture` for the time of each load: on the machine this was written on, a release
/// build took 0.1 s for each.
#[test]
fn one_endpoint_among_ten_thousand_clusters_changes_one_cluster() {
    let mut loader = loader();
    let text = large(10_000);
    let timed = |loader: &mut Loader, text: &str| {
        #[expect(clippy::disallowed_methods, reason = "a figure to look at, nothing depends on it")]
        let begin = std::time::Instant::now();
        let snapshot = load(loader, text);
        println!("{} KiB loaded in {:?}", text.len() >> 10, begin.elapsed());
        snapshot
    };
    let before = timed(&mut loader, &text);
    let after = timed(&mut loader, &text.replace("- 10.0.20.77:80\n", "- 10.0.20.77:81\n"));
    let changed: Vec<ClusterId> = before
        .clusters
        .iter()
        .zip(after.clusters.iter())
        .filter(|((_, a), (_, b))| !Arc::ptr_eq(a, b))
        .map(|((_, a), _)| a.id)
        .collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(&*after.cluster(changed[0]).unwrap().name, "c5077");
    assert!(Arc::ptr_eq(&before.listeners[0], &after.listeners[0]));
    let table = before.listeners[0].route_tables[0];
    assert!(Arc::ptr_eq(before.route_table(table).unwrap(), after.route_table(table).unwrap()));
    assert_eq!(
        after.changes,
        Changes {
            clusters_changed: changed.clone(),
            endpoints_added: vec![(changed[0], after.cluster(changed[0]).unwrap().endpoints[0].id)],
            endpoints_removed: vec![(
                changed[0],
                before.cluster(changed[0]).unwrap().endpoints[0].id
            )],
            ..Changes::default()
        }
    );
}

/// What a worker keeps: the resources it knows under their ids.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Known {
    listeners: BTreeMap<ListenerId, usize>,
    tables: BTreeMap<RouteTableId, usize>,
    clusters: BTreeMap<ClusterId, usize>,
    endpoints: BTreeMap<EndpointId, ClusterId>,
}

fn pointer<T>(value: &Arc<T>) -> usize {
    Arc::as_ptr(value).addr()
}

impl Known {
    pub(crate) fn of(snapshot: &Loaded) -> Self {
        Self {
            listeners: snapshot.listeners.iter().map(|l| (l.id, pointer(l))).collect(),
            tables: snapshot.route_tables.iter().map(|(_, t)| (t.id, pointer(t))).collect(),
            clusters: snapshot.clusters.iter().map(|(_, c)| (c.id, pointer(c))).collect(),
            endpoints: snapshot
                .clusters
                .iter()
                .flat_map(|(_, c)| c.endpoints.iter().map(|e| (e.id, c.id)))
                .collect(),
        }
    }

    /// Takes up a change. Each list must say something that was not so before.
    pub(crate) fn apply(&mut self, snapshot: &Loaded) {
        let changes = &snapshot.changes;
        for id in &changes.listeners_removed {
            assert!(self.listeners.remove(id).is_some());
        }
        for id in &changes.route_tables_removed {
            assert!(self.tables.remove(id).is_some());
        }
        for id in &changes.clusters_removed {
            assert!(self.clusters.remove(id).is_some());
        }
        for (cluster, id) in &changes.endpoints_removed {
            assert_eq!(self.endpoints.remove(id), Some(*cluster));
        }
        for id in changes.listeners_added.iter().chain(&changes.listeners_changed) {
            let now = pointer(snapshot.listener(*id).unwrap().1);
            let before = self.listeners.insert(*id, now);
            assert_eq!(before.is_some(), changes.listeners_changed.contains(id));
        }
        for id in changes.route_tables_added.iter().chain(&changes.route_tables_changed) {
            let before = self.tables.insert(*id, pointer(snapshot.route_table(*id).unwrap()));
            assert_eq!(before.is_some(), changes.route_tables_changed.contains(id));
        }
        for id in changes.clusters_added.iter().chain(&changes.clusters_changed) {
            let before = self.clusters.insert(*id, pointer(snapshot.cluster(*id).unwrap()));
            assert_eq!(before.is_some(), changes.clusters_changed.contains(id));
        }
        for (cluster, id) in &changes.endpoints_added {
            assert_eq!(self.endpoints.insert(*id, *cluster), None);
        }
    }
}

#[test]
fn a_rule_has_a_name_by_which_another_table_knows_it() {
    let table = |rules: &[&str]| {
        let rules = rules
            .iter()
            .map(|asked| format!("{{ match: {{ {asked} }}, respond: {{ status: 200 }} }}"));
        let rules = rules.collect::<Vec<_>>().join(", ");
        let text = format!(
            "listeners: [{{ name: l, address: '127.0.0.1:1', routes: r }}]\n\
             routes: [{{ name: r, rules: [{rules}] }}]\n"
        );
        let snapshot = load(&mut loader(), &text);
        let (_, table) = snapshot.route_tables.iter().next().unwrap();
        Arc::clone(table)
    };
    let (a, a_alone) = ("prefix: /a", "path: /a");
    let (of_client, of_both) = ("prefix: /a, client: [x]", "prefix: /a, client: [x, y]");
    let before = table(&[a, a_alone, of_client, of_both, a]);
    let after = table(&[of_both, a, of_client, a, a_alone]);
    let places: Vec<_> = (0..5)
        .map(|place| {
            let (condition, nth) = before.name_of(place).unwrap();
            assert_eq!(before.place_named(&condition, nth), Some(place));
            after.place_named(&condition, nth)
        })
        .collect();
    assert_eq!(places, [Some(1), Some(4), Some(2), Some(0), Some(3)]);
    let (condition, nth) = before.name_of(4).unwrap();
    assert_eq!(table(&[a]).place_named(&condition, nth), None, "there is one such rule only");
}

#[test]
fn a_rule_without_a_name_shows_no_secret() {
    let text = "listeners: [{ name: edge, address: '127.0.0.1:80', routes: all }]
routes:
  - name: all
    rules:
      - match:
          prefix: /
          headers: { x-api-key: s3cret, x-edge: open, authorization: { present: true } }
          query: { access_token: s3cret, page: '1' }
          cookies: { session: s3cret }
        respond: {}
";
    let snapshot = load(&mut loader(), text);
    let (_, table) = snapshot.route_tables.iter().next().unwrap();
    let label = table.rules[0].label();
    assert!(!label.contains("s3cret") && label.matches("***").count() == 3, "{label}");
    assert!(label.contains("open") && label.contains("header authorization "), "{label}");
}

#[test]
fn a_rule_with_a_name_is_known_by_that_whatever_it_matches() {
    let table = |rules: &str| {
        let text = format!(
            "listeners: [{{ name: l, address: '127.0.0.1:1', routes: r }}]\n\
             routes: [{{ name: r, rules: [{rules}] }}]\n"
        );
        let snapshot = load(&mut loader(), &text);
        let (_, table) = snapshot.route_tables.iter().next().unwrap();
        Arc::clone(table)
    };
    let before = table(
        "{ name: a, match: { prefix: /a }, respond: {} }, { match: { prefix: /a, grpc: true }, respond: {} }",
    );
    let after = table(
        "{ match: { prefix: /a, grpc: true }, respond: {} }, { name: a, match: { path: /b }, respond: {} }",
    );
    let place = |place| {
        let (identity, nth) = before.name_of(place).unwrap();
        after.place_named(&identity, nth)
    };
    assert_eq!([place(0), place(1)], [Some(1), Some(0)]);
    // Without its name it is another rule.
    let unnamed = table("{ match: { prefix: /a }, respond: {} }");
    assert_eq!(unnamed.place_named(&before.name_of(0).unwrap().0, 0), None);
    assert_eq!(before.rules[0].label(), "a");
}

/// A small configuration, drawn from few names so that the next has much in common with it.
fn text() -> impl Strategy<Value = String> {
    let cluster = proptest::collection::btree_map(1u8..5, 1u8..4, 0..4);
    let clusters = proptest::collection::btree_map(0u8..5, cluster, 0..5);
    let listeners = proptest::collection::btree_map(0u8..3, (0u8..2, 0u8..2, 0u8..2), 0..3);
    (clusters, listeners).prop_map(|(clusters, listeners)| {
        let mut text = String::from("listeners:");
        text.push_str(if listeners.is_empty() { " []\n" } else { "\n" });
        for (name, (port, backlog, filter)) in &listeners {
            text.push_str(&format!(
                "  - name: l{name}\n    address: 127.0.0.1:{name}{port}\n    routes: r0\n    backlog: {}\n    \
                 filters: [headers: {{ request: {{ set: {{ a: \"{filter}\" }} }} }}]\n",
                backlog + 1,
            ));
        }
        text.push_str("routes:\n  - name: r0\n    rules: []\n");
        text.push_str("  - name: r1\n    rules:");
        text.push_str(if clusters.is_empty() { " []\n" } else { "\n" });
        for name in clusters.keys() {
            text.push_str(&format!("      - {{ match: {{ prefix: / }}, cluster: c{name} }}\n"));
        }
        text.push_str("clusters:");
        text.push_str(if clusters.is_empty() { " []\n" } else { "\n" });
        for (name, endpoints) in &clusters {
            let endpoints = endpoints.iter().map(|(port, weight)| {
                format!("{{ address: \"127.0.0.1:{port}\", weight: {weight} }}")
            });
            let endpoints: Vec<String> = endpoints.collect();
            text.push_str(&format!("  - name: c{name}\n    endpoints: [{}]\n", endpoints.join(", ")));
        }
        text
    })
}

proptest! {
    #[test]
    fn changes_applied_to_what_was_give_what_is(texts in proptest::collection::vec(text(), 1..8)) {
        let mut loader = loader();
        let mut known = Known::default();
        for text in &texts {
            let snapshot = load(&mut loader, text);
            known.apply(&snapshot);
            let fresh = Known::of(&snapshot);
            prop_assert_eq!(&known.listeners, &fresh.listeners);
            prop_assert_eq!(&known.tables, &fresh.tables);
            prop_assert_eq!(&known.clusters, &fresh.clusters);
            prop_assert_eq!(&known.endpoints, &fresh.endpoints);
            for (place, listener) in snapshot.listeners.iter().enumerate() {
                let found = snapshot.listener(listener.id);
                let found = found.map(|(place, found)| (place, pointer(found)));
                prop_assert_eq!(found, Some((place, pointer(listener))));
            }
            for id in &snapshot.changes.listeners_removed {
                prop_assert!(snapshot.listener(*id).is_none());
            }
        }
    }
}

#[test]
fn a_changed_error_page_changes_its_table_alone() {
    let text = "
listeners: [{ name: edge, address: 127.0.0.1:80, routes: [a, b], http: { error_pages: [{ file: 5xx.json }] } }]
routes:
  - { name: a, hosts: [a], rules: [], error_pages: [{ file: 404.html }] }
  - { name: b, hosts: [b], rules: [] }
";
    let mut loader = loader();
    loader.load("f", text).unwrap();
    loader.outside.insert("404.html", "<p>other</p>");
    let changes = loader.load("f", text).unwrap().changes.clone();
    assert_eq!((changes.route_tables_changed.len(), changes.listeners_changed.len()), (1, 0));
    loader.outside.insert("5xx.json", "{}");
    let changes = loader.load("f", text).unwrap().changes.clone();
    assert_eq!((changes.route_tables_changed.len(), changes.listeners_changed.len()), (0, 1));
}

/// What an operator may ask of routing and balancing, in one file.
const WHOLE: &str = r##"
runtime: { canary: 5 }
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: shop }]
routes:
  - name: shop
    hosts: ["shop.example.com", "*.shop.example.com", "shop.*", "*"]
    rules:
      - { name: health, match: { path: /healthz }, respond: { status: 200, body: ok } }
      - name: canary
        match:
          prefix: /api/
          methods: [GET, HEAD]
          headers: { x-team: { prefix: a }, x-debug: { present: false }, x-age: { range: [18, 99] }, x-mode: { not: off } }
          query: { page: { regex: "[0-9]+" } }
          cookies: { beta: "yes" }
          sources: [127.0.0.0/8]
          fraction: { percent: 10, runtime: canary }
        clusters: [{ cluster: api, weight: 90 }, { cluster: next, weight: 10, headers: { response: { set: { x-canary: v2 } } } }]
        sticky: { header: x-user }
        rewrite: { prefix: /v2/, host: api.internal }
        headers: { request: { set: { x-client: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" } } }
        mirror: [{ cluster: shadow, percent: 1 }]
      - { match: { regex: "/users/([0-9]+)/orders" }, rewrite: { regex: "^/users/([0-9]+)/orders$", with: '/orders?of=\1' }, cluster: api }
      - { match: { template: "/items/{id}/{rest=**}" }, rewrite: { template: "/v3/{rest}/of/{id}" }, cluster: api }
      - { match: { segments: /tenant }, cluster_header: x-cluster }
      - match: { prefix: / }
        cluster: web
        hash: [{ cookie: { name: sess, ttl: 1h, path: / } }, { header: x-user }, client_ip]
        subset: { version: v2, unit: { header: x-unit } }
clusters:
  - { name: api, balance: least_request, slow_start: { window: 30s, aggression: 1.0, weight_min: 10% }, endpoints: ["127.0.0.1:9000"] }
  - { name: next, balance: { peak_ewma: { decay: 10s } }, endpoints: ["127.0.0.1:9001"] }
  - { name: shadow, balance: random, endpoints: ["127.0.0.1:9002"] }
  - name: web
    balance: { maglev: { table: 65537 } }
    panic: 50%
    subsets: { by: [[version], [version, unit]], fallback: any }
    endpoints:
      - { address: "127.0.0.1:9003", weight: 2, metadata: { version: v2, unit: a }, locality: eu/a, priority: 0 }
      - { address: "127.0.0.1:9004", metadata: { version: v1 }, locality: eu/b, priority: 1 }
"##;

#[test]
fn a_file_with_all_of_routing_and_balancing_loads() {
    let mut loader = loader();
    let snapshot = loader.load("whole.yaml", WHOLE).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(snapshot.clusters.iter().count(), 4);
    let (_, table) = snapshot.route_tables.iter().next().unwrap();
    assert_eq!(table.rules.len(), 6);
}
