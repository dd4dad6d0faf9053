//! No mistake hides another, and none is reported twice.
//!
//! A file with mistakes of meaning in every kind of entry is spoilt at every other place in turn:
//! each time, all of those mistakes are reported, and the new one, and nothing else.

use std::collections::BTreeSet;

use config::{FilterKinds, Loader};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sample::loader;

/// Wrong in what it means, not in its shape.
fn wrong() -> Value {
    json!({
        "admin": { "address": "127.0.0.1:9901" },
        "workers": { "count": 2, "pin": false },
        "listeners": [
            {
                "name": "edge",
                "address": "127.0.0.1:80",
                "filters": [{ "headers": { "request": { "set": { "x y": "z", "x-a": "b" } } } }],
                "routes": "shpo",
                "http": { "request_line_max": "2KiB", "head_max": "1KiB", "fields_max": 10 },
                "timeouts": { "idle": "5s" },
                "keepalive": { "idle": "1500ms", "probes": 3 },
                "connections_max": 100,
            },
            {
                "name": "edge",
                "address": "127.0.0.1:80",
                "proxy_protocol": true,
                "routes": ["shop", "plian"],
            },
            { "name": "sound", "address": "127.0.0.1:82", "routes": "shop" },
        ],
        "routes": [
            {
                "name": "shop",
                "hosts": ["shop.example", "SHOP.example", "other.example"],
                "rules": [
                    { "match": { "prefix": "/a/" }, "cluster": "apj", "timeout": "2s" },
                    { "match": { "path": "b" }, "redirect": { "host": "a:b", "status": 302 } },
                    { "match": { "path": "/c" }, "respond": { "status": 204, "body": "c" } },
                    { "match": { "path": "/d" }, "respond": { "headers": { "a": "1", "b": " " } } },
                    { "match": { "path": "/e" }, "cluster": "api", "upgrades": ["h2c", "x"] },
                ],
            },
            { "name": "shop", "rules": [{ "match": { "prefix": "/" }, "cluster": "wbe" }] },
        ],
        "clusters": [
            {
                "name": "api",
                "endpoints": [
                    "127.0.0.1:9000",
                    "127.0.0.1:9000",
                    { "address": "127.0.0.1:0", "weight": 2 },
                    { "address": "127.0.0.1:9001", "weight": 2 },
                ],
                "connect_timeout": "1s",
                "keepalive": { "interval": "1500ms", "idle": "1s" },
            },
            { "name": "api", "endpoints": ["127.0.0.1:0"], "pending_max": 1 },
        ],
        "limits": { "connections_max": 100 },
        "access_log": { "output": "stdot", "format": "json" },
    })
}

/// Where it is wrong, and which other place each mistake takes.
const MISTAKES: [(&str, Option<&str>); 20] = [
    ("/listeners/0/filters/0/headers/request/set/x y", None),
    ("/listeners/0/routes", None),
    ("/listeners/0/http/request_line_max", Some("/listeners/0/http/head_max")),
    ("/listeners/0/keepalive/idle", None),
    ("/listeners/1/name", Some("/listeners/0/name")),
    ("/listeners/1/address", Some("/listeners/0/address")),
    ("/listeners/1/routes/1", None),
    ("/routes/0/hosts/1", Some("/routes/0/hosts/0")),
    ("/routes/0/rules/0/cluster", None),
    ("/routes/0/rules/1/match/path", None),
    ("/routes/0/rules/1/redirect/host", None),
    ("/routes/0/rules/2/respond/body", Some("/routes/0/rules/2/respond/status")),
    ("/routes/0/rules/3/respond/headers/b", None),
    ("/routes/0/rules/4/upgrades/0", Some("/routes/0/rules/4/cluster")),
    ("/routes/1/name", Some("/routes/0/name")),
    ("/routes/1/rules/0/cluster", None),
    ("/clusters/0/endpoints/1", Some("/clusters/0/endpoints/0")),
    ("/clusters/0/endpoints/2/address", None),
    ("/clusters/0/keepalive/interval", None),
    ("/clusters/1/endpoints/0", None),
];

/// Those that take no other place.
const OTHERS: [(&str, Option<&str>); 2] =
    [("/clusters/1/name", Some("/clusters/0/name")), ("/access_log/output", None)];

/// `/listeners/0/name` as reports write it.
fn path_of(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        if step.parse::<usize>().is_ok() {
            path.push_str(&format!("[{step}]"));
        } else {
            let dot = if path.is_empty() { "" } else { "." };
            let step = if step.contains(' ') { format!("{step:?}") } else { step.to_owned() };
            path.push_str(&format!("{dot}{step}"));
        }
    }
    path
}

fn paths_told(file: &Value) -> Vec<String> {
    match loader().load("f", &file.to_string()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.errors.into_iter().map(|error| error.path).collect(),
    }
}

/// Every place below `value`.
fn places(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let mut below = |step: &str, value: &Value| {
        let pointer = format!("{pointer}/{step}");
        places(value, &pointer, found);
        found.push(pointer);
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(place, item)| below(&place.to_string(), item));
        }
        Value::Object(entries) => entries.iter().for_each(|(key, value)| below(key, value)),
        _ => {}
    }
}

/// Whether one of two places lies within the other.
fn touch(a: &str, b: &str) -> bool {
    let (a, b) = (format!("{a}/"), format!("{b}/"));
    a.starts_with(&b) || b.starts_with(&a)
}

/// The places that no mistake lies at, in or around.
fn other_places(file: &Value) -> Vec<String> {
    let mut all = Vec::new();
    places(file, "", &mut all);
    all.retain(|place| {
        let mut taken = MISTAKES.iter().chain(&OTHERS).flat_map(|(at, other)| [Some(*at), *other]);
        !taken.any(|taken| taken.is_some_and(|taken| touch(place, taken)))
    });
    all
}

fn mistakes() -> BTreeSet<String> {
    MISTAKES.iter().chain(&OTHERS).map(|(at, _)| path_of(at)).collect()
}

#[test]
fn the_file_has_the_mistakes_that_it_is_meant_to_have() {
    let reported = paths_told(&wrong());
    assert_eq!(reported.len(), mistakes().len());
    assert_eq!(reported.into_iter().collect::<BTreeSet<_>>(), mistakes());
}

#[test]
fn a_value_of_the_wrong_kind_anywhere_hides_nothing_and_is_told_once() {
    let places = other_places(&wrong());
    assert!(places.len() > 40, "{places:?}");
    for place in places {
        let mut file = wrong();
        let value = file.pointer_mut(&place).unwrap();
        *value = if value.is_array() { json!({}) } else { json!([[]]) };
        let reported = paths_told(&file);
        let expected = mistakes();
        assert_eq!(reported.len(), expected.len() + 1, "{place}: {reported:#?}");
        let reported = reported.into_iter().collect::<BTreeSet<_>>();
        // Of a list in place of a name, it is the item that is no name.
        let more: Vec<_> = reported.difference(&expected).collect();
        assert!(reported.is_superset(&expected), "{place}: {reported:#?}");
        assert!(
            matches!(&more[..], [path] if path.starts_with(&path_of(&place))),
            "{place}: {more:?}"
        );
    }
}

#[test]
fn a_key_that_is_missing_anywhere_hides_nothing_and_is_told_once_if_at_all() {
    for place in other_places(&wrong()) {
        let mut file = wrong();
        let (parent, key) = place.rsplit_once('/').unwrap();
        let Some(Value::Object(entries)) = file.pointer_mut(parent) else { continue };
        entries.remove(key).unwrap();
        let reported = paths_told(&file);
        let expected = mistakes();
        let more: Vec<_> = reported.iter().filter(|path| !expected.contains(*path)).collect();
        assert_eq!(reported.len() - more.len(), expected.len(), "{place}: {reported:#?}");
        assert!(more.len() <= 1, "{place}: {more:?}");
    }
}

/// A file's text and all that is reported of it.
#[test]
fn an_entry_whose_required_key_is_wrong_is_looked_at_all_the_same() {
    for (text, paths) in [
        (
            r#"
listeners:
  - { name: edge, address: "localhost:80", routes: shpo, http: { request_line_max: 60KiB, head_max: 1KiB } }
  - { name: edge, address: "127.0.0.1:99999", routes: [shop, shop] }
routes:
  - name: shop
    rules: [{ match: { prefix: / }, cluster: nope, timeout: 5 }]
clusters:
  - { name: api, connect_timeout: x, endpoints: [] }
"#,
            &[
                "listeners[0].address",
                "listeners[0].routes",
                "listeners[0].http.request_line_max",
                "listeners[1].name",
                "listeners[1].address",
                "listeners[1].routes[1]",
                "routes[0].rules[0].cluster",
                "routes[0].rules[0].timeout",
                "clusters[0].connect_timeout",
            ][..],
        ),
        // Neither the name that cannot be read nor the one that is missing is reported.
        (
            r#"
listeners:
  - { name: [a], address: "127.0.0.1:80", routes: shop, keepalive: { idle: 1ms } }
  - { address: "127.0.0.1:80", routes: shop }
routes:
  - { name: shop, rules: [{ match: { prefix: / }, respond: {} }] }
"#,
            &[
                "listeners[0].name",
                "listeners[0].keepalive.idle",
                "listeners[1].name",
                "listeners[1].address",
            ],
        ),
        // What is said of a rule does not depend on the rest of it.
        (
            r#"
listeners: []
routes:
  - name: a
    rules:
      - { cluster: nope }
      - { match: { path: a, prefix: / }, cluster: nope, respond: {} }
      - { match: { pattern: x }, clutser: a, timeout: 1s }
      - { match: { path: [] }, redirect: { prefix: /b, path: //c } }
      - { match: [], redirect: [] }
clusters: [{ name: b, endpoints: [{ weight: -1 }, { weight: -1, address: "127.0.0.1:0" }] }]
"#,
            &[
                "routes[0].rules[0].match",
                "routes[0].rules[0].cluster",
                "routes[0].rules[1]",
                "routes[0].rules[1].match",
                "routes[0].rules[1].match.path",
                "routes[0].rules[1].cluster",
                "routes[0].rules[2].match.pattern",
                "routes[0].rules[2].clutser",
                "routes[0].rules[3].match.path",
                "routes[0].rules[3].redirect",
                "routes[0].rules[3].redirect.path",
                "routes[0].rules[3].redirect.prefix",
                "routes[0].rules[4].match",
                "routes[0].rules[4].redirect",
                "clusters[0].endpoints[0].address",
                "clusters[0].endpoints[0].weight",
                "clusters[0].endpoints[1].weight",
                "clusters[0].endpoints[1].address",
            ],
        ),
        // A key and its value are two mistakes.
        (
            r#"
listeners: []
routes:
  - name: a
    rules:
      - { match: { prefix: / }, respond: { headers: { "x y": 1, date: [], X-A: b, x-a: 2 } } }
"#,
            &[
                "routes[0].rules[0].respond.headers.\"x y\"",
                "routes[0].rules[0].respond.headers.\"x y\"",
                "routes[0].rules[0].respond.headers.date",
                "routes[0].rules[0].respond.headers.date",
                "routes[0].rules[0].respond.headers.x-a",
                "routes[0].rules[0].respond.headers.x-a",
            ],
        ),
        // Hosts that could not be read, and sizes, are not taken for their defaults.
        (
            r#"
listeners:
  - { name: edge, address: "127.0.0.1:80", routes: [a, b], http: { request_line_max: 64KB, head_max: 1KiB } }
routes:
  - { name: a, hosts: 7, rules: [] }
  - { name: b, rules: [] }
"#,
            &["listeners[0].http.request_line_max", "routes[0].hosts"],
        ),
    ] {
        let Err(errors) = loader().load("f", text) else { panic!("errors are expected: {text}") };
        let mut reported: Vec<_> = errors.errors.iter().map(|error| error.path.as_str()).collect();
        let mut expected = paths.to_vec();
        reported.sort_unstable();
        expected.sort_unstable();
        assert_eq!(reported, expected, "{errors}");
    }
}

/// A type may accept less than its schema says, for instance no empty text.
#[test]
fn a_filters_type_that_refuses_the_stand_in_tells_no_second_mistake() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is said about it counts")]
    struct Limit {
        /// How many.
        rate: Rate,
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(try_from = "String")]
    struct Rate(#[expect(dead_code, reason = "only what is said about it counts")] String);
    impl TryFrom<String> for Rate {
        type Error = &'static str;
        fn try_from(text: String) -> Result<Self, Self::Error> {
            if text.ends_with("/s") { Ok(Self(text)) } else { Err("a rate ends with /s") }
        }
    }
    for (filter, rule) in [
        ("{ rate: 5 }", "text is needed here"),
        ("{}", "this key is missing"),
        ("7", "a map is needed here, not a whole number"),
        ("{ rate: \"5\" }", "a rate ends with /s"),
    ] {
        let mut kinds = FilterKinds::new();
        kinds.register("limit", |_: Limit| Ok(())).unwrap();
        let text = format!(
            "listeners: [{{ name: a, address: '127.0.0.1:0', routes: r, filters: [limit: {filter}] }}]
routes: [{{ name: r, rules: [] }}]"
        );
        let Err(errors) = Loader::new(kinds).unwrap().load("f", &text) else { panic!("{filter}") };
        let [error] = errors.errors.as_slice() else { panic!("{filter}: {errors}") };
        assert_eq!(error.rule, rule, "{filter}");
    }
}
