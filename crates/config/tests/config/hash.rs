//! What a request is hashed by, and the tables that hashes lead through.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::hash::{Hashed, Hashing, hash_of, hash_of_client};
use config::matching::Searches;
use config::snapshot::{Action, Cluster};
use config::view::Group;

use crate::matching::asking;
use crate::sample::loader;

fn text(hash: &str, balance: &str, endpoints: &str) -> String {
    format!(
        "listeners: [{{ name: l, address: '127.0.0.1:1', routes: r }}]\n\
         routes: [{{ name: r, rules: [{{ match: {{ prefix: / }}, cluster: c, hash: [{hash}] }}] }}]\n\
         clusters: [{{ name: c, balance: {balance}, endpoints: [{endpoints}] }}]\n"
    )
}

fn hashing(hash: &str) -> Hashing {
    let snapshot = loader().load("strait.yaml", &text(hash, "maglev", "'127.0.0.1:2'")).unwrap();
    let (_, table) = snapshot.route_tables.iter().next().unwrap();
    let Action::Forward(forward) = &table.rules[0].action else { panic!("it forwards") };
    Hashing::clone(forward.hashing.as_ref().unwrap())
}

/// The hash of a request with these fields, where a cookie that is made has the value 1.
fn hashed(hash: &str, target: &str, fields: &str) -> Hashed {
    let hashing = hashing(hash);
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    asking(&head, |asked| hashing.hash(asked, &mut Searches::default(), || 1))
}

#[test]
fn a_request_is_hashed_by_the_values_that_it_has() {
    let value = |text: &str| hash_of(text.as_bytes());
    let both = |one: u64, other: u64| one.rotate_left(1) ^ other;
    let client = hash_of_client("192.0.2.7".parse().unwrap()).get();
    assert_eq!(client, value("192.0.2.7"));
    assert_eq!(hash_of_client("::ffff:192.0.2.7".parse().unwrap()).get(), client);
    for (hash, target, fields, expected) in [
        ("{ header: x-user }", "/", "", None),
        ("{ header: x-user }", "/", "X-User: ann\r\n", Some(value("ann"))),
        ("{ header: x-user }", "/", "x-user: a\r\nx-user: b\r\n", Some(value("a,b"))),
        ("{ query: u }", "/?a&u=b%20c&u=d", "", Some(value("b c"))),
        ("{ query: u }", "/?a", "", None),
        ("{ cookie: { name: s } }", "/", "cookie: a=b; s=\"x\"\r\n", Some(value("x"))),
        ("{ cookie: { name: s } }", "/", "", None),
        ("{ cookie: { name: s, ttl: 1h } }", "/", "cookie: s=x\r\n", Some(value("x"))),
        ("client_ip", "/", "", Some(client)),
        ("{ constant: one }", "/", "", Some(value("one"))),
        ("{ header: x-user }, client_ip", "/", "", Some(client)),
        ("{ header: x-user }, client_ip", "/", "x-user: a\r\n", Some(both(value("a"), client))),
        ("{ header: x-user, terminal: true }, client_ip", "/", "x-user: a\r\n", Some(value("a"))),
        ("{ header: x-user, terminal: true }, client_ip", "/", "", Some(client)),
        // Twice the same is not none.
        ("{ constant: a }, { constant: a }", "/", "", Some(both(value("a"), value("a")))),
    ] {
        let found = hashed(hash, target, fields);
        assert_eq!(found.hash.map(u64::from), expected, "{hash}: {target} {fields:?}");
        assert_eq!(found.cookie, None, "{hash}");
    }
}

#[test]
fn a_cookie_that_is_made_leads_where_it_leads_when_it_comes_back() {
    let hash = "{ cookie: { name: s, ttl: 90m, path: /a } }, client_ip";
    let first = hashed(hash, "/", "cookie: other=x\r\n");
    let mut field = Vec::new();
    let hashing = hashing(hash);
    let made = hashing.made_cookie().unwrap();
    made.with_text(first.cookie.unwrap(), &mut Searches::default(), |text| field.extend(text));
    let field = String::from_utf8(field).unwrap();
    assert_eq!(field, "s=0000000000000001; Max-Age=5400; Path=/a; HttpOnly");
    let pair = field.split(';').next().unwrap();
    let second = hashed(hash, "/", &format!("cookie: {pair}\r\n"));
    assert_eq!((second.hash, second.cookie), (first.hash, None));
    // One for as long as the browser runs, wherever it was made.
    let hashing = self::hashing("{ cookie: { name: s, ttl: 0s } }");
    let made = hashing.made_cookie().unwrap();
    made.with_text(first.cookie.unwrap(), &mut Searches::default(), |text| {
        assert_eq!(text, b"s=0000000000000001; HttpOnly");
    });
}

fn group(cluster: &Cluster) -> &Group {
    &cluster.view.levels(None)[0]
}

#[test]
fn a_table_is_kept_while_addresses_and_weights_are_the_same() {
    let mut loader = loader();
    let mut cluster = |balance: &str, endpoints: &str| -> Arc<Cluster> {
        let text = text("client_ip", balance, endpoints);
        let snapshot = loader.load("strait.yaml", &text).unwrap();
        Arc::clone(snapshot.clusters.iter().next().unwrap().1)
    };
    let two = "'127.0.0.1:2', '127.0.0.1:3'";
    let table = |cluster: &Arc<Cluster>| Arc::clone(group(cluster).hash_table().unwrap());
    let before = table(&cluster("{ maglev: { table: 251 } }", two));
    let bounded = table(&cluster("{ maglev: { table: 251, load_max: 120 } }", two));
    assert!(Arc::ptr_eq(&before, &bounded));
    let heavier = "{ address: '127.0.0.1:2', weight: 3 }, '127.0.0.1:3'";
    assert_ne!(before, table(&cluster("{ maglev: { table: 251 } }", heavier)));
    let larger = table(&cluster("{ maglev: { table: 257 } }", heavier));
    let ring = table(&cluster("ring_hash", heavier));
    assert_ne!(larger, ring);
    assert!(group(&cluster("random", heavier)).hash_table().is_none());
    // An endpoint that goes takes its part with it.
    let all: BTreeSet<_> = (0..1_000).filter_map(|hash| ring.place(hash << 54, 0)).collect();
    assert_eq!(all, BTreeSet::from([0, 1]));
    let one = table(&cluster("ring_hash", "'127.0.0.1:2'"));
    assert!((0..1_000).all(|hash| one.place(hash << 54, 0) == Some(0)));
}

#[test]
fn a_hash_that_nothing_goes_by_and_a_balancer_without_one_are_warned_of() {
    let warnings = |text: &str| -> Vec<(String, String)> {
        let mut loader = loader();
        loader.load("strait.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
        let warnings = loader.warnings().iter();
        warnings.map(|it| (it.path.clone(), it.rule.to_string())).collect()
    };
    let two = "'127.0.0.1:2', '127.0.0.1:3'";
    assert_eq!(warnings(&text("client_ip", "maglev", two)), []);
    for (text, path, rule) in [
        (text("client_ip", "random", two), "routes[0].rules[0].hash", "no cluster of this rule"),
        (
            text("client_ip", "maglev", two).replace(", hash: [client_ip]", ""),
            "clusters[0].balance",
            "no rule has `hash`",
        ),
        (
            text("client_ip", "maglev", two).replace("balance:", "connections_max: 1, balance:"),
            "clusters[0].connections_max",
            "fewer connections than endpoints",
        ),
    ] {
        let found = warnings(&text);
        let [(at, what)] = &found[..] else { panic!("one warning is expected: {found:?}") };
        assert!(at == path && what.contains(rule), "{found:?}");
    }
}

/// The endpoints that Envoy 1.40.0 sent the requests of `user-0` to `user-63` to, with `hash_policy` for two header
/// fields of which each third request has the second one, too; `RING_HASH` and `MAGLEV` with defaults.
#[test]
fn a_request_goes_where_envoy_sends_it() {
    let weights = [1, 1, 2, 1, 3].iter().zip(19_101..);
    let endpoints: Vec<String> = weights
        .map(|(weight, port)| format!("{{ address: '127.0.0.1:{port}', weight: {weight} }}"))
        .collect();
    for (balance, expected) in [
        ("ring_hash", "0444344214423103402444014142413403432024002041212334423442041020"),
        ("maglev", "4242200414434423131201344422102402222444102302024442244140010104"),
    ] {
        let text = text("{ header: x-user }, { header: x-b }", balance, &endpoints.join(", "));
        let snapshot = loader().load("strait.yaml", &text).unwrap();
        let (_, cluster) = snapshot.clusters.iter().next().unwrap();
        let (_, table) = snapshot.route_tables.iter().next().unwrap();
        let Action::Forward(forward) = &table.rules[0].action else { panic!("it forwards") };
        let hashing = forward.hashing.as_ref().unwrap();
        let chosen = (0..64).map(|user| {
            let second = if user % 3 == 0 { format!("x-b: b{user}\r\n") } else { String::new() };
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nx-user: user-{user}\r\n{second}\r\n");
            let hash = asking(&head, |asked| {
                hashing.hash(asked, &mut Searches::default(), || 1).hash.unwrap()
            });
            group(cluster).hash_table().unwrap().place(hash.get(), 0).unwrap().to_string()
        });
        assert_eq!(chosen.collect::<String>(), expected, "{balance}");
    }
}
