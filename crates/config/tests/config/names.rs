//! Host names among endpoints: what may be written, and what answers make of it.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::sample::{self, Headers};
use config::effective;
use config::snapshot::{Changes, Cluster, DnsAnswer, DnsName, Resolved, Snapshot};

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

fn fresh() -> Loader {
    Loader::new(sample::kinds()).unwrap()
}

/// A configuration with these clusters, each `NAME: ENDPOINTS`.
fn text(clusters: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]\n\
         routes:\n- name: all\n  rules:\n",
    );
    for (name, _) in clusters {
        text += &format!("  - {{ match: {{ prefix: /{name} }}, cluster: {name} }}\n");
    }
    text += "clusters:\n";
    for (name, endpoints) in clusters {
        text += &format!("- {{ name: {name}, endpoints: {endpoints} }}\n");
    }
    text
}

fn cluster<'s>(snapshot: &'s Loaded, name: &str) -> &'s Arc<Cluster> {
    snapshot.clusters.iter().find(|(_, cluster)| &*cluster.name == name).unwrap().1
}

/// `ADDRESS*WEIGHT HOST` of each endpoint.
fn shown(snapshot: &Loaded, name: &str) -> Vec<String> {
    let shown = cluster(snapshot, name).endpoints.iter().map(|it| {
        format!("{}*{} {}", it.address, it.weight, it.host().map_or("-", |host| &**host))
    });
    shown.collect()
}

fn answer(host: &str, addresses: &[&str]) -> DnsAnswer {
    let resolved = |text: &&str| Resolved {
        address: text.parse::<SocketAddr>().unwrap(),
        weight: NonZeroU16::MIN,
        priority: 0,
        host: host.into(),
    };
    addresses.iter().map(resolved).collect()
}

/// The only name of a cluster.
fn name_of(snapshot: &Loaded, cluster_name: &str) -> Arc<DnsName> {
    Arc::clone(cluster(snapshot, cluster_name).endpoints_from.names().next().unwrap())
}

fn take(loader: &mut Loader, name: &Arc<DnsName>, answer: DnsAnswer) -> Option<Loaded> {
    let prepared = loader.prepare_answers(vec![(Arc::clone(name), Some(answer))])?;
    Some(loader.keep(prepared))
}

#[test]
fn a_name_stands_for_no_endpoints_until_there_is_an_answer() {
    let mut loader = fresh();
    let text = text(&[("api", "{ dns: API.internal:8080 }"), ("other", "['10.0.0.9:80']")]);
    let prepared = loader.prepare("f", &text, &sample::outside()).unwrap();
    let unanswered: Vec<String> = prepared.unanswered().iter().map(ToString::to_string).collect();
    assert_eq!(unanswered, ["api.internal:8080"]);
    let before = loader.keep(prepared);
    assert_eq!(shown(&before, "api"), [""; 0]);
    let name = name_of(&before, "api");
    let first = answer("api.internal", &["10.0.0.1:8080", "10.0.0.2:8080"]);
    let now = take(&mut loader, &name, first).unwrap();
    assert_eq!(
        shown(&now, "api"),
        ["10.0.0.1:8080*1 api.internal", "10.0.0.2:8080*1 api.internal"]
    );
    assert!(Arc::ptr_eq(cluster(&before, "other"), cluster(&now, "other")));
    assert!(before.listeners.is_shared(&now.listeners));
    let stays = cluster(&now, "api").endpoints[1].id;
    let goes = cluster(&now, "api").endpoints[0].id;
    // An address that stays is the same endpoint, and the same answer is no change.
    let second = answer("api.internal", &["10.0.0.2:8080", "10.0.0.3:8080"]);
    let now = take(&mut loader, &name, Arc::clone(&second)).unwrap();
    let id = cluster(&now, "api").id;
    assert_eq!(cluster(&now, "api").endpoints[0].id, stays);
    let changes = Changes {
        clusters_changed: vec![id],
        endpoints_added: vec![(id, cluster(&now, "api").endpoints[1].id)],
        endpoints_removed: vec![(id, goes)],
        ..Changes::default()
    };
    assert_eq!(now.changes, changes);
    assert!(take(&mut loader, &name, second).is_none());
    // A load of the text goes on with the answer, and has nothing to wait for.
    let prepared = loader.prepare("f", &text, &sample::outside()).unwrap();
    assert_eq!(prepared.unanswered(), []);
    assert_eq!(prepared.snapshot().changes, Changes::default());
    // One that a name is asked for no more has none for.
    assert!(loader.prepare_answers(vec![(name, None)]).is_none());
    let prepared = loader.prepare("f", &text, &sample::outside()).unwrap();
    assert_eq!(prepared.unanswered().len(), 1);
}

#[test]
fn the_endpoint_of_a_logical_name_stays_the_same_while_its_address_changes() {
    let mut loader = fresh();
    let text = text(&[("api", "{ dns: 'api.internal:80', mode: logical }")]);
    let snapshot = loader.load("f", &text).unwrap();
    let name = name_of(&snapshot, "api");
    let first = take(&mut loader, &name, answer("api.internal", &["10.0.0.1:80"])).unwrap();
    let now = take(&mut loader, &name, answer("api.internal", &["10.0.0.2:80"])).unwrap();
    let id_of = |snapshot| cluster(snapshot, "api").endpoints[0].id;
    assert_eq!(id_of(&first), id_of(&now));
    assert_eq!(shown(&now, "api"), ["10.0.0.2:80*1 api.internal"]);
    let changes = Changes { clusters_changed: vec![cluster(&now, "api").id], ..Changes::default() };
    assert_eq!(now.changes, changes);
    // Another name is another endpoint, though it has the same address.
    let text = text.replace("api.internal", "db.internal");
    let snapshot = loader.load("f", &text).unwrap();
    let name = name_of(&snapshot, "api");
    let now = take(&mut loader, &name, answer("db.internal", &["10.0.0.2:80"])).unwrap();
    assert_ne!(id_of(&first), id_of(&now));
}

#[test]
fn an_address_that_a_logical_name_stood_for_last_is_another_endpoint_once_it_is_its_own() {
    // Connections to what the name stood for before are those of the logical endpoint, and in use as long as they are open.
    for then in ["{ dns: 'api.internal:80' }", "['api.internal:80']", "['10.0.0.2:80']"] {
        let mut loader = fresh();
        let logical = text(&[("api", "{ dns: 'api.internal:80', mode: logical }")]);
        let snapshot = loader.load("f", &logical).unwrap();
        let name = name_of(&snapshot, "api");
        let mut resolve = |address| take(&mut loader, &name, answer("api.internal", &[address]));
        resolve("10.0.0.1:80").unwrap();
        let former = resolve("10.0.0.2:80").unwrap();
        let mut now = loader.load("f", &text(&[("api", then)])).unwrap();
        if then.contains("api.internal") {
            let name = name_of(&now, "api");
            let taken = take(&mut loader, &name, answer("api.internal", &["10.0.0.2:80"]));
            now = taken.unwrap_or(now);
        }
        let id_of = |snapshot| cluster(snapshot, "api").endpoints[0].id;
        assert_ne!(id_of(&former), id_of(&now), "{then}");
    }
}

#[test]
fn an_address_behind_another_name_is_another_endpoint() {
    // TLS has asked for the former name there.
    let mut loader = fresh();
    let load = |loader: &mut Loader, host: &str| {
        let text = text(&[("api", &format!("{{ dns: '{host}:80' }}"))]);
        let snapshot = loader.load("f", &text).unwrap();
        let name = name_of(&snapshot, "api");
        let now = take(loader, &name, answer(host, &["10.0.0.1:80"])).unwrap();
        cluster(&now, "api").endpoints[0].id
    };
    assert_ne!(load(&mut loader, "a.internal"), load(&mut loader, "b.internal"));
}

#[test]
fn of_equal_addresses_that_of_the_list_counts_and_then_that_of_the_first_priority() {
    for (list, expected) in [
        (
            "[{ address: 'backup.internal:80', priority: 1 }, { address: 'primary.internal:80', weight: 3 }]",
            &["10.0.0.1:80*3 primary.internal 0", "10.0.0.2:80*1 backup.internal 1"][..],
        ),
        (
            "['backup.internal:80', { address: '10.0.0.1:80', weight: 0 }]",
            &["10.0.0.1:80*0 - 0", "10.0.0.2:80*1 backup.internal 0"],
        ),
        ("['primary.internal:80', 'mapped.internal:80']", &["10.0.0.1:80*1 primary.internal 0"]),
        (
            "['backup.internal:80', { address: 'primary.internal:80', weight: 9 }]",
            &["10.0.0.1:80*1 backup.internal 0", "10.0.0.2:80*1 backup.internal 0"],
        ),
    ] {
        let mut loader = fresh();
        let mut snapshot = loader.load("f", &text(&[("api", list)])).unwrap();
        let names: Vec<_> = cluster(&snapshot, "api").endpoints_from.names().cloned().collect();
        for name in names {
            let addresses = match &*name.to_string() {
                "backup.internal:80" => &["10.0.0.1:80", "10.0.0.2:80"][..],
                "primary.internal:80" => &["10.0.0.1:80"],
                _ => &["[::ffff:10.0.0.1]:80"],
            };
            let host = name.to_string();
            let answered = answer(host.strip_suffix(":80").unwrap(), addresses);
            snapshot = take(&mut loader, &name, answered).unwrap_or(snapshot);
        }
        let priorities = cluster(&snapshot, "api").endpoints.iter().map(|it| it.priority);
        let shown = shown(&snapshot, "api").into_iter().zip(priorities);
        let shown: Vec<_> = shown.map(|(shown, priority)| format!("{shown} {priority}")).collect();
        assert_eq!(shown, expected, "{list}");
    }
}

#[test]
fn a_list_may_have_names_among_addresses() {
    let mut loader = fresh();
    let list = "['10.0.0.9:80', { address: 'a.internal:80', weight: 3 }, 'b.internal:80']";
    let before = loader.load("f", &text(&[("api", list)])).unwrap();
    assert_eq!(shown(&before, "api"), ["10.0.0.9:80*1 -"]);
    let names: Vec<_> = cluster(&before, "api").endpoints_from.names().cloned().collect();
    let [a, b] = names.as_slice() else { panic!("{names:?}") };
    let of_a = answer("a.internal", &["10.0.0.1:80", "10.0.0.2:80"]);
    // Which of them answers first makes no difference; an address that was there before counts once.
    take(&mut loader, b, answer("b.internal", &["10.0.0.3:80", "10.0.0.2:80", "10.0.0.9:80"]))
        .unwrap();
    let now = take(&mut loader, a, of_a).unwrap();
    let expected = [
        "10.0.0.9:80*1 -",
        "10.0.0.1:80*3 a.internal",
        "10.0.0.2:80*3 a.internal",
        "10.0.0.3:80*1 b.internal",
    ];
    assert_eq!(shown(&now, "api"), expected);
    // What is shown is what is written, and loads again.
    let effective = effective(&now);
    assert_eq!(effective["clusters"][0]["endpoints"][1]["address"], "a.internal:80");
    let again = loader.load("f", &effective.to_string()).unwrap();
    assert_eq!(shown(&again, "api"), expected);
}

/// As many addresses, from `10.0.0.0` on.
fn many(host: &str, count: u32, weight: u16) -> DnsAnswer {
    let resolved = |n| Resolved {
        address: SocketAddr::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into(), 80),
        weight: NonZeroU16::new(weight).unwrap(),
        priority: 0,
        host: host.into(),
    };
    (0..count).map(resolved).collect()
}

#[test]
fn too_many_addresses_of_names_take_no_place_from_those_of_the_list() {
    let mut loader = fresh();
    // One of the list's own is among those of the first name, and one is not.
    let list =
        "['a.internal:80', 'b.internal:80', { address: '10.0.0.5:80', weight: 7 }, '127.0.0.1:80']";
    let before = loader.load("f", &text(&[("api", list)])).unwrap();
    let names: Vec<_> = cluster(&before, "api").endpoints_from.names().cloned().collect();
    let [a, b] = names.as_slice() else { panic!("{names:?}") };
    take(&mut loader, a, many("a.internal", 99_990, 1)).unwrap();
    let left_out = |snapshot: &Loaded| -> Vec<_> {
        let left_out = cluster(snapshot, "api").left_out.iter();
        left_out.map(|it| (it.name.to_string(), it.count)).collect()
    };
    // Ten more are new: 99,990 of the first name with one of the list, and the list's other one, leave room for nine.
    let now = take(&mut loader, b, many("b.internal", 100_000, 1)).unwrap();
    let shown_now = shown(&now, "api");
    assert_eq!(shown_now.len(), 100_000);
    assert_eq!(left_out(&now), [("b.internal:80".to_owned(), 1)]);
    assert_eq!(shown_now[5], "10.0.0.5:80*7 -");
    assert_eq!(shown_now[99_989], "10.1.134.149:80*1 a.internal");
    assert_eq!(shown_now[99_998], "10.1.134.158:80*1 b.internal");
    assert_eq!(shown_now[99_999], "127.0.0.1:80*1 -");
    // Another number is another state, though the endpoints are the same.
    let now = take(&mut loader, b, many("b.internal", 100_007, 1)).unwrap();
    assert_eq!(left_out(&now), [("b.internal:80".to_owned(), 8)]);
    assert_eq!(now.changes.endpoints_added, []);
    // A load of the text finds it as it is, and drained endpoints change nothing of it.
    let text = text(&[("api", list)]);
    assert_eq!(loader.load("f", &text).unwrap().changes, Changes::default());
    let now = take(&mut loader, b, many("b.internal", 2, 1)).unwrap();
    assert_eq!((left_out(&now), cluster(&now, "api").endpoints.len()), (vec![], 99_991));
}

#[test]
fn weights_that_answers_bring_are_halved_until_their_sum_is_within_its_bound() {
    for (count, weight, expected) in [(65_537, 65_535, 65_535), (65_538, 65_535, 32_768)] {
        let mut loader = fresh();
        let srv = text(&[("api", "{ dns: _http._tcp.internal, mode: srv }")]);
        let snapshot = loader.load("f", &srv).unwrap();
        let name = name_of(&snapshot, "api");
        let now = take(&mut loader, &name, many("a.internal", count, weight)).unwrap();
        let weights = cluster(&now, "api").endpoints.iter().map(|it| it.weight);
        assert!(weights.clone().all(|weight| weight == expected), "{count}");
        assert!(weights.map(u64::from).sum::<u64>() <= u64::from(u32::MAX));
    }
    // The list's own keep their shares, and what gets nothing goes on getting nothing.
    let list = "['10.0.0.1:80', { address: '127.0.0.1:80', weight: 0 }, { address: '127.0.0.2:80', weight: 200 }, { address: 'a.internal:80', weight: 65535 }]";
    let mut loader = fresh();
    let snapshot = loader.load("f", &text(&[("api", list)])).unwrap();
    let name = name_of(&snapshot, "api");
    let now = take(&mut loader, &name, many("a.internal", 70_000, 1)).unwrap();
    let weights: Vec<_> = cluster(&now, "api").endpoints.iter().map(|it| it.weight).collect();
    assert_eq!(weights[..4], [1, 0, 100, 32_768]);
}

#[test]
fn weights_of_a_list_have_the_bound_of_those_of_a_file() {
    let list = |count: u32| {
        let address = |n: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + n);
        let entry = |n| format!("{{ address: '{}:80', weight: 65535 }}, ", address(n));
        format!("[{}]", (0..count).map(entry).collect::<String>())
    };
    fresh().load("f", &text(&[("api", &list(65_537))])).unwrap();
    let error = fresh().load("f", &text(&[("api", &list(65_538))])).unwrap_err().to_string();
    assert!(error.contains("clusters[0].endpoints: the weights of a cluster come to"), "{error}");
}

#[test]
fn what_is_shown_of_a_name_loads_again() {
    let clusters = [
        (
            "a",
            "{ dns: 'a.internal:80', mode: strict, family: prefer_v6, ttl_min: 2s, ttl_max: 1m }",
        ),
        ("b", "{ dns: 'b.internal.:80', mode: logical }"),
        ("c", "{ dns: _http._tcp.c.internal, mode: srv, family: v4 }"),
    ];
    let resolvers = "resolvers: { servers: [10.0.0.2, '127.0.0.1:5353', '::1'], timeout: 1s, initial_fetch_timeout: 0s }\n";
    let first = fresh().load("f", &(resolvers.to_owned() + &text(&clusters))).unwrap();
    let again = fresh().load("f", &effective(&first).to_string()).unwrap();
    for (name, _) in clusters {
        assert_eq!(cluster(&first, name).endpoints_from, cluster(&again, name).endpoints_from);
    }
    assert_eq!(first.resolvers, again.resolvers);
    let servers: Vec<String> = first.resolvers.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.2:53", "127.0.0.1:5353", "[::1]:53"]);
}

#[test]
fn each_mistake_has_its_place_and_what_to_write() {
    for (endpoints, expected) in [
        (
            "{ dns: api.internal }",
            "clusters[0].endpoints.dns: \"api.internal\": the port is missing; write api.internal:80",
        ),
        (
            "{ dns: '10.0.0.1:80' }",
            "this is an address, which needs no DNS; write `endpoints: [\"10.0.0.1:80\"]`",
        ),
        ("{ dns: 'api.internal:0' }", "nothing can be reached at port 0"),
        (
            "{ dns: 'http://api.internal' }",
            "this is a URL, and a host with a port is needed here; write api.internal:80",
        ),
        (
            "{ dns: 'https://api.internal/', mode: logical }",
            "write api.internal:443, and add `tls: { }` to the cluster",
        ),
        (
            "{ dns: 'http://api.internal:80', mode: srv }",
            "the name of SRV records is needed here; write _http._tcp.api.internal, for instance",
        ),
        ("['http://api.internal:8080']", "this is a URL, and a host with a port is needed here"),
        ("{ dns: 'api..internal:80' }", "between the dots of a host name"),
        ("{ dns: \"a\\u0007b:80\" }", "between the dots of a host name"),
        ("{ dns: 'bücher.example:80' }", "letters of ASCII only; write its form for DNS"),
        (
            "{ dns: '_http._tcp.api:80', mode: srv }",
            "in mode `srv`, the records contain the port; write _http._tcp.api",
        ),
        (
            "{ dns: 'a:80', ttl_min: 2m, ttl_max: 1m }",
            "endpoints.ttl_min: \"2m\": `ttl_min` is greater",
        ),
        ("{ dns: 'a:80', ttl_min: 0s }", "at least 100ms is needed here"),
        ("{ dns: 'a:80', mode: first }", "one of these words is needed here: strict, logical, srv"),
        ("{ dns: 'a:80', file: a.yaml }", "exactly one of `file`, `dns` must be present"),
        ("{ dsn: 'a:80' }", "this key is unknown"),
        ("['api.internal']", "the port is missing; write api.internal:80"),
        ("['a.internal:80', 'A.internal:80']", "each endpoint of a cluster has its own address"),
    ] {
        let error = fresh().load("f", &text(&[("api", endpoints)])).unwrap_err().to_string();
        assert!(error.contains(expected), "{endpoints}: {error}");
    }
    for (resolvers, expected) in [
        (
            "{ servers: [dns.internal] }",
            "resolvers.servers[0]: \"dns.internal\": a DNS server is an IP address",
        ),
        ("{ servers: ['127.0.0.1:0'] }", "no server can be reached there"),
        ("{ servers: [0.0.0.0] }", "no server can be reached there"),
        ("{ servers: [10.0.0.1, '10.0.0.1:53'] }", "each server may occur once"),
        (
            "{ servers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8, 10.0.0.9] }",
            "at most 8 servers",
        ),
        ("{ timeout: 0s }", "at least 1ms"),
    ] {
        let error = fresh().load("f", &format!("listeners: []\nresolvers: {resolvers}\n"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{resolvers}: {error}");
    }
    // A file of endpoints is read by itself, and names are of the configuration.
    let mut outside = sample::outside();
    outside.insert("a.yaml", "- api.internal:80\n");
    let error =
        fresh().load_with("f", &text(&[("api", "{ file: a.yaml }")]), &outside).unwrap_err();
    assert!(error.to_string().contains("a.yaml:1:3: [0]"), "{error}");
    assert!(error.to_string().contains("write `endpoints: [\"api.internal:80\"]`"), "{error}");
}
