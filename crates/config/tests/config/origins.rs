//! Of each resource: where it comes from, since when it is as it is, and who refers to it.

use std::sync::Arc;

use config::outside::Memory;
use config::resource;
use config::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::sample::{self, CERTIFICATES, Headers};

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

const FILES: &str = "
listeners:
- name: edge
  address: 127.0.0.1:1
  routes: shop
  tls:
    certificates: [{ chain: site.pem, key: site.key }]
    client:
      ca: ca.pem
      crl: ca.crl
routes: [{ name: shop, rules: [{ match: { prefix: / }, cluster: web }] }]
clusters:
- name: web
  endpoints: ['10.0.0.1:443']
  tls: { ca: ca.pem, certificate: { chain: client.pem, key: client.key } }
";

#[test]
fn a_file_that_tls_names_is_a_secret_of_the_configuration() {
    let mut loader = config::Loader::new(sample::kinds()).unwrap();
    let snapshot = loader.load_with("f.yaml", FILES, &sample::outside()).unwrap();
    let (edge, web) = ("listener/edge", "cluster/web");
    for (name, line, column, path, users) in [
        ("secret/site.pem", 7, 29, "listeners[0].tls.certificates[0].chain", &[edge][..]),
        ("secret/site.key", 7, 44, "listeners[0].tls.certificates[0].key", &[edge]),
        ("secret/ca.pem", 9, 11, "listeners[0].tls.client.ca", &[edge, web]),
        ("secret/ca.crl", 10, 12, "listeners[0].tls.client.crl", &[edge]),
        ("secret/client.key", 15, 61, "clusters[0].tls.certificate.key", &[web]),
    ] {
        let described = described(&snapshot, name);
        let origin = json!({ "file": "f.yaml", "line": line, "column": column, "path": path });
        let expected = json!({
            "resource": name, "origin": origin, "version": 1, "referred_by": users, "effective": null
        });
        assert_eq!(described, expected);
    }
    let missing = resource(&snapshot, &"secret/sito.pem".parse().unwrap()).unwrap_err();
    assert!(missing.ends_with("; did you mean `site.pem`?"), "{missing}");
    assert!(resource(&snapshot, &"secret/f.yaml".parse().unwrap()).is_err());
}

#[test]
fn a_file_that_tls_names_has_the_version_in_which_its_content_changed_last() {
    let mut loader = config::Loader::new(sample::kinds()).unwrap();
    let mut files = sample::outside();
    let names = ["secret/site.pem", "secret/ca.pem", "secret/client.pem", "secret/client.key"];
    let mut versions = |text: &str, files: &Memory| {
        let snapshot = loader.load_with("f.yaml", text, files).unwrap();
        names.map(|name| described(&snapshot, name)["version"].as_u64().unwrap())
    };
    assert_eq!(versions(FILES, &files), [1; 4]);
    assert_eq!(versions(&format!("# a remark\n{FILES}"), &files), [1; 4]);
    let file = |name: &str| CERTIFICATES.iter().find(|(known, _)| *known == name).unwrap().1;
    files.insert("client.pem", file("site.pem"));
    files.insert("client.key", file("site.key"));
    assert_eq!(versions(FILES, &files), [1, 1, 3, 3]);
    files.insert("ca.pem", format!("{0}{0}", file("ca.pem")));
    assert_eq!(versions(FILES, &files), [1, 4, 3, 3]);
}
