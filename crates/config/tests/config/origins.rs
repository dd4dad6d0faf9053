//! Of each resource: where it comes from, since when it is as it is, and who refers to it.

use std::sync::Arc;

use config::outside::Memory;
use config::resource;
use config::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::sample::{self, Headers};

type Loaded = Arc<Snapshot<Headers>>;

const TEXT: &str = "include: [more.yaml]
listeners:
- name: edge
  address: 127.0.0.1:1
  routes: shop
  chains: [{ name: db, match: { server_names: [db.example] }, protocol: tcp, cluster: web }]
routes:
- { name: shop, rules: [{ match: { prefix: /a }, cluster: web }, { match: { prefix: / }, cluster: api }] }
clusters:
- { name: web, endpoints: ['10.0.0.1:80'] }
";
const MORE: &str = "clusters:\n\n - name: api\n   endpoints: [{ address: '10.0.0.2:80' }]\n";

fn outside(more: &str) -> Memory {
    let mut outside = sample::outside();
    outside.insert("more.yaml", more);
    outside
}

fn described(snapshot: &Loaded, name: &str) -> Value {
    resource(snapshot, &name.parse().unwrap()).unwrap()
}

#[test]
fn a_resource_says_where_it_stands_and_who_refers_to_it() {
    let mut loader = config::Loader::new(sample::kinds()).unwrap();
    let snapshot = loader.load_with("f.yaml", TEXT, &outside(MORE)).unwrap();
    for (name, file, line, column, path, users) in [
        ("listener/edge", "f.yaml", 3, 3, "listeners[0]", &[][..]),
        ("route/shop", "f.yaml", 8, 3, "routes[0]", &["listener/edge"]),
        ("cluster/web", "f.yaml", 10, 3, "clusters[0]", &["listener/edge, chain db", "route/shop"]),
        ("cluster/api", "more.yaml", 3, 4, "clusters[1]", &["route/shop"]),
    ] {
        let described = described(&snapshot, name);
        assert_eq!(described["resource"], name);
        let origin = json!({ "file": file, "line": line, "column": column, "path": path });
        assert_eq!(described["origin"], origin, "{name}");
        assert_eq!(described["referred_by"], json!(users), "{name}");
        assert_eq!(described["version"], 1);
    }
    let all = config::effective(&snapshot);
    assert_eq!(described(&snapshot, "cluster/api")["effective"], all["clusters"][1]);
    assert_eq!(described(&snapshot, "listener/edge")["effective"], all["listeners"][0]);
    assert_eq!(described(&snapshot, "route/shop")["effective"], all["routes"][0]);
    let missing = resource(&snapshot, &"cluster/wep".parse().unwrap()).unwrap_err();
    assert!(missing.starts_with("no cluster has this name in version 1 of the con"), "{missing}");
    assert!(missing.ends_with("; did you mean `web`?"), "{missing}");
}

#[test]
fn a_resource_has_the_version_in_which_it_changed_last() {
    let mut loader = config::Loader::new(sample::kinds()).unwrap();
    loader.load_with("f.yaml", TEXT, &outside(MORE)).unwrap();
    let names = ["listener/edge", "route/shop", "cluster/web", "cluster/api"];
    let mut versions = |text: &str, more: &str| {
        let snapshot = loader.load_with("f.yaml", text, &outside(more)).unwrap();
        names.map(|name| described(&snapshot, name)["version"].as_u64().unwrap())
    };
    let moved = format!("# a remark\n{TEXT}");
    assert_eq!(versions(&moved, MORE), [1; 4], "moved, and the same");
    let other = MORE.replace("10.0.0.2", "10.0.0.3");
    assert_eq!(versions(&moved, &other), [1, 1, 1, 3]);
    assert_eq!(versions(&moved.replace("prefix: /a", "prefix: /b"), &other), [1, 4, 1, 3]);
    assert_eq!(versions(&TEXT.replace("db.example", "db2.example"), MORE), [5, 5, 1, 5]);
    let hosts = TEXT.replace("name: shop, rules", "name: shop, hosts: [shop.example], rules");
    let versions = versions(&hosts.replace("db.example", "db2.example"), MORE);
    assert_eq!(versions, [5, 6, 1, 5], "hosts are the table's");
}

#[test]
fn a_resource_shows_no_secret() {
    let text = TEXT.replace("cluster: api }]", "respond: { headers: { authorization: abc } } }]");
    let mut loader = config::Loader::new(sample::kinds()).unwrap();
    let snapshot = loader.load_with("f.yaml", &text, &outside("clusters: []\n")).unwrap();
    let shown = described(&snapshot, "route/shop")["effective"]["rules"][1].to_string();
    assert!(shown.contains("\"authorization\":\"***\"") && !shown.contains("abc"), "{shown}");
}
