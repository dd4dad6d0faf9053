//! Resources of all kinds that other sources deliver: what they wait for, who goes first, and what each change touches.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

use config::ResourceKind::{Assignment, Cluster, Listener, Route, Secret};
use config::drained::DrainChange;
use config::snapshot::{CertificateSource, DnsAnswer, DnsName, Resolved, RootsSource, Snapshot};
use config::{
    NamesChanged, RESOURCES_MAX, ResourceKind, ResourceName, Text, UPDATES_WAITING_MAX, Unbound,
    Update, Verdict, Waits,
};
use proptest::prelude::*;

use crate::loads::Known;
use crate::sample::{self, CERTIFICATES, Headers};
use crate::sources::{deliver, fresh, of};
use crate::unchanged::seen;

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

const TEXT: &str = "listeners: [{ name: edge, address: '127.0.0.1:1', routes: own }]
routes: [{ name: own, hosts: [own.example], rules: [{ match: { prefix: / }, cluster: web }] }]
clusters: [{ name: web, endpoints: ['10.0.0.1:80'] }]
";

const LISTENER: &str = "{ name: rim, address: '127.0.0.1:2', routes: shop }";

/// A route configuration with these hosts, each of which has a virtual host with a rule for `prefix`.
fn routes(hosts: &[&str], prefix: &str) -> String {
    let host = |host: &&str| {
        format!(
            "{{ name: {host}, hosts: [{host}], rules: [{{ match: {{ prefix: {prefix} }}, cluster: api }}] }}"
        )
    };
    let hosts: Vec<String> = hosts.iter().map(host).collect();
    format!("{{ name: shop, virtual_hosts: [{}] }}", hosts.join(", "))
}

/// A secret of these parts, each a file of the sample.
fn secret(name: &str, parts: &[(&str, &str)]) -> String {
    let mut text = format!("name: {name}\n");
    for (part, file) in parts {
        let pem = CERTIFICATES.iter().find(|(known, _)| known == file).unwrap().1;
        let lines: String = pem.lines().map(|line| format!("  {line}\n")).collect();
        text.push_str(&format!("{part}: |\n{lines}"));
    }
    text
}

fn listener<'s>(
    snapshot: &'s Loaded,
    name: &str,
) -> Option<&'s Arc<config::snapshot::Listener<Headers>>> {
    snapshot.listeners.iter().find(|listener| &*listener.name == name)
}

fn loaded() -> Loader {
    let mut loader = fresh();
    loader.load("f", TEXT).unwrap();
    loader
}

/// What becomes of one update: what is linked, if anything is, and what is said.
fn one(
    loader: &mut Loader,
    kind: ResourceKind,
    name: &str,
    content: &str,
) -> (Option<Loaded>, String) {
    let (now, mut verdicts) = deliver(loader, "folder", vec![of(kind, name, "1", content)]);
    (now, verdicts.remove(0))
}

fn taken(loader: &mut Loader, kind: ResourceKind, name: &str, content: &str) -> Loaded {
    let (now, said) = one(loader, kind, name, content);
    assert_eq!(said, "ok");
    now.expect("something differs")
}

#[test]
fn a_listener_waits_for_its_route_configuration_and_its_former_version_serves() {
    let mut loader = loaded();
    let (now, said) = one(&mut loader, Listener, "rim", LISTENER);
    assert!(now.is_none(), "nothing serves yet");
    assert_eq!(said, "waits for route/shop");
    let waiting: Vec<String> = loader.waiting().map(|(name, _)| name.to_string()).collect();
    assert_eq!(waiting, ["listener/rim"]);
    let now = taken(&mut loader, Route, "shop", &routes(&["a.example"], "/"));
    assert_eq!(loader.waiting().count(), 0);
    let rim = listener(&now, "rim").unwrap();
    let table = now.route_table(rim.hosts.find(b"a.example").unwrap()).unwrap();
    assert_eq!((&*table.name, table.rules.len()), ("shop/a.example", 1));
    assert_eq!(now.changes.listeners_added, [rim.id]);
    assert_eq!(now.changes.route_tables_added, [table.id]);
    let edge = |snapshot: &Loaded| Arc::as_ptr(listener(snapshot, "edge").unwrap());
    // A rule changes its virtual host alone.
    let two = taken(&mut loader, Route, "shop", &routes(&["a.example", "b.example"], "/"));
    let next = taken(&mut loader, Route, "shop", &routes(&["a.example", "b.example"], "/x"));
    assert!(two.listeners.is_shared(&next.listeners));
    assert_eq!(next.changes.route_tables_changed.len(), 2);
    assert_eq!(two.changes.listeners_changed, [rim.id], "another host is another listener");
    assert_eq!(two.changes.route_tables_added.len(), 1);
    assert_eq!(edge(&two), edge(&now));
    // Its next version names what is not there.
    let (now, said) = one(&mut loader, Listener, "rim", &LISTENER.replace("shop", "[shop, later]"));
    assert!(now.is_none());
    assert_eq!(said, "waits for route/later");
    let latest = loader.snapshot_latest().unwrap();
    assert!(Arc::ptr_eq(listener(latest, "rim").unwrap(), listener(&next, "rim").unwrap()));
    let later = "{ name: later, virtual_hosts: [] }";
    let now = taken(&mut loader, Route, "later", later);
    assert_eq!(now.changes.listeners_changed, [rim.id], "with the socket that it has");
    // Without what it names it waits again, and serves as it did.
    let (none, said) = one(&mut loader, Route, "later", "");
    assert!(none.is_none() && said == "ok");
    let waiting: Vec<_> = loader.waiting().collect();
    let missing = ResourceName::new(Route, "later");
    assert_eq!(waiting, [(&ResourceName::new(Listener, "rim"), &[missing][..])]);
    assert!(one(&mut loader, Route, "later", later).0.is_none(), "it is what it was");
    assert_eq!(loader.waiting().count(), 0);
    // With another address it is another socket.
    let moved = taken(&mut loader, Listener, "rim", &LISTENER.replace(":2", ":3"));
    assert_eq!(moved.changes.listeners_removed, [rim.id]);
    assert_eq!(moved.changes.listeners_added.len(), 1);
    let gone = taken(&mut loader, Listener, "rim", "");
    assert_eq!((gone.changes.listeners_removed.len(), gone.listeners.len()), (1, 1));
}

/// A source may lose its data: what is gone serves those that name it until they are others.
#[test]
fn a_removed_route_configuration_stays_with_the_listeners_that_have_it() {
    let table = |snapshot: &Loaded| {
        let rim = listener(snapshot, "rim").expect("it serves");
        let id = rim.hosts.find(b"a.example").expect("it has a table");
        snapshot.route_table(id).map(|table| table.rules[0].path.text.to_string())
    };
    let begin = || {
        let mut loader = loaded();
        taken(&mut loader, Route, "shop", &routes(&["a.example"], "/"));
        let now = taken(&mut loader, Listener, "rim", LISTENER);
        assert_eq!(table(&now).as_deref(), Some("/"));
        let (none, said) = one(&mut loader, Route, "shop", "");
        assert!(none.is_none() && said == "ok", "nothing changes: {said}");
        assert_eq!(loader.waiting().count(), 1, "a next version waits");
        loader
    };
    // Neither the file nor another version that waits is its end.
    let mut loader = begin();
    let now = loader.load("f", &TEXT.replace("10.0.0.1", "10.0.0.3")).unwrap();
    assert_eq!(table(&now).as_deref(), Some("/"));
    let later = LISTENER.replace("shop", "[shop, later]");
    assert_eq!(one(&mut loader, Listener, "rim", &later).1, "waits for route/later route/shop");
    assert_eq!(table(loader.snapshot_latest().unwrap()).as_deref(), Some("/"));
    // It comes again: with the same listener, and the version that waits for another one goes on waiting.
    let now = taken(&mut loader, Route, "shop", &routes(&["a.example"], "/x"));
    assert_eq!(table(&now).as_deref(), Some("/x"));
    assert_eq!(now.changes.route_tables_changed.len(), 1);
    assert_eq!(loader.waiting().count(), 1);
    // A listener that has others, or is gone, was the last that had it.
    let mut loader = begin();
    let now = taken(&mut loader, Listener, "rim", &LISTENER.replace("shop", "own"));
    assert_eq!((now.changes.route_tables_removed.len(), now.route_tables.iter().count()), (1, 1));
    let mut loader = begin();
    let now = taken(&mut loader, Listener, "rim", "");
    assert_eq!((now.changes.route_tables_removed.len(), now.route_tables.iter().count()), (1, 1));
    // Together with the listener it goes at once.
    let mut loader = loaded();
    taken(&mut loader, Route, "shop", &routes(&["a.example"], "/"));
    taken(&mut loader, Listener, "rim", LISTENER);
    let gone = vec![of(Route, "shop", "2", ""), of(Listener, "rim", "2", "")];
    let (now, _) = deliver(&mut loader, "folder", gone);
    assert_eq!(now.unwrap().route_tables.iter().count(), 1);
    // The file has a table of its name: the listener has that.
    let mut loader = begin();
    let text = TEXT.replace("routes: [{", "routes: [{ name: shop, hosts: [a.example], rules: [{ match: { prefix: /f }, cluster: web }] }, {");
    let now = loader.load("f", &text).unwrap();
    assert_eq!(table(&now).as_deref(), Some("/f"));
    assert_eq!(now.route_tables.iter().count(), 2);
}

/// A listener whose next version waits goes on with the hosts that it has, whatever becomes of their names.
#[test]
fn a_removed_virtual_host_stays_with_the_listeners_that_have_it() {
    let path = |snapshot: &Loaded| {
        let rim = listener(snapshot, "rim").expect("it serves");
        let id = rim.hosts.find(b"a.example").expect("it has a table");
        snapshot.route_table(id).map(|table| table.rules[0].path.text.to_string())
    };
    let renamed = |name: &str, path: &str| {
        routes(&["a.example"], path).replacen("name: a.example", &format!("name: {name}"), 1)
    };
    let mut loader = loaded();
    taken(&mut loader, Route, "shop", &routes(&["a.example"], "/"));
    taken(&mut loader, Listener, "rim", LISTENER);
    let later = LISTENER.replace("shop", "[shop, later]");
    assert_eq!(one(&mut loader, Listener, "rim", &later).1, "waits for route/later");
    for (name, way) in [("other", "/x"), ("again", "/y")] {
        let now = taken(&mut loader, Route, "shop", &renamed(name, way));
        assert_eq!(path(&now).as_deref(), Some("/"), "the version that serves has the former one");
    }
    // So it is where the file is read again, and where the configuration goes as a whole.
    let now = loader.load("f", &TEXT.replace("10.0.0.1", "10.0.0.3")).unwrap();
    assert_eq!(path(&now).as_deref(), Some("/"));
    let (_, said) = one(&mut loader, Route, "shop", "");
    assert_eq!((said.as_str(), path(loader.snapshot_latest().unwrap())), ("ok", Some("/".into())));
    let (_, said) = one(&mut loader, Route, "shop", &renamed("again", "/y"));
    assert_eq!((said.as_str(), path(loader.snapshot_latest().unwrap())), ("ok", Some("/".into())));
    // What it waited for comes: it has the new one, and the former one goes.
    let now = taken(&mut loader, Route, "later", "{ name: later, virtual_hosts: [] }");
    assert_eq!(path(&now).as_deref(), Some("/y"));
    assert_eq!(now.route_tables.iter().count(), 2, "the file's and this one");
}

#[test]
fn rules_of_a_removed_route_configuration_follow_the_values_that_they_ask_for() {
    let percent = |snapshot: &Loaded| {
        let id = listener(snapshot, "rim").unwrap().hosts.find(b"a.example").unwrap();
        format!("{:?}", snapshot.route_table(id).unwrap().rules[0])
    };
    let with = |value: u32| format!("runtime: {{ canary: {value} }}\n{TEXT}");
    let table = "{ name: shop, virtual_hosts: [{ name: all, hosts: [a.example], rules: [\
                 { match: { prefix: /, fraction: { percent: 10, runtime: canary } }, respond: {} }] }] }";
    let mut loader = loaded();
    loader.load("f", &with(20)).unwrap();
    taken(&mut loader, Route, "shop", table);
    let before = percent(&taken(&mut loader, Listener, "rim", LISTENER));
    let (none, said) = one(&mut loader, Route, "shop", "");
    assert!(none.is_none() && said == "ok", "nothing changes: {said}");
    let now = loader.load("f", &with(30)).unwrap();
    assert_ne!(percent(&now), before);
    assert_eq!(now.changes.route_tables_changed.len(), 1);
    assert_eq!(percent(&loader.load("f", &with(20)).unwrap()), before);
    assert_eq!(loader.load("f", &with(20)).unwrap().changes.route_tables_changed.len(), 0);
    // The last listener goes, and they with it.
    let now = taken(&mut loader, Listener, "rim", "");
    assert_eq!((now.changes.route_tables_removed.len(), now.route_tables.iter().count()), (1, 1));
}

#[test]
fn a_wait_ends_without_the_route_configuration() {
    let mut loader = loaded();
    let text = LISTENER
        .replace("}", ", tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] } }");
    for (name, content) in [("rim", LISTENER.to_owned()), ("tls", text.replace("rim", "tls"))] {
        one(&mut loader, Listener, name, &content);
    }
    let names = ["rim", "tls"].map(|name| ResourceName::new(Listener, name));
    let done = loader.prepare_waited(&names.into(), &[], &sample::outside());
    let (shop, site) = (ResourceName::new(Route, "shop"), ResourceName::new(Secret, "site"));
    let said = |verdict: &Verdict| {
        let errors = verdict.refused.as_ref().map(ToString::to_string);
        (verdict.name.name.to_string(), verdict.missing.clone(), errors.unwrap_or_default())
    };
    let late: Vec<_> = done.late.iter().map(|(_, verdict)| said(verdict)).collect();
    assert_eq!(late[0], ("rim".to_owned(), vec![shop], String::new()));
    let (name, missing, errors) = &late[1];
    assert_eq!((&**name, &missing[..]), ("tls", &[site][..]), "nothing replaces a key");
    let rule = "secret/site did not arrive within resolvers.initial_fetch_timeout";
    assert!(errors.contains(rule), "{errors}");
    let now = loader.keep(done.prepared.unwrap());
    let rim = listener(&now, "rim").expect("it serves without");
    assert_eq!(rim.hosts.find(b"a.example"), None);
    assert!(listener(&now, "tls").is_none());
    assert_eq!(loader.waiting().count(), 0);
    let now = taken(&mut loader, Route, "shop", &routes(&["a.example"], "/"));
    assert!(listener(&now, "rim").unwrap().hosts.find(b"a.example").is_some());
}

/// Ends the waits of a listener, and says what is said of it.
fn waited(loader: &mut Loader, name: &str) -> Vec<Verdict> {
    let names = [ResourceName::new(Listener, name)].into();
    let done = loader.prepare_waited(&names, &[], &sample::outside());
    if let Some(prepared) = done.prepared {
        loader.keep(prepared);
    }
    done.late.into_iter().map(|(_, verdict)| verdict).collect()
}

const SECURE: &str = "{ name: rim, address: '127.0.0.1:2', routes: own, tls: { \
                      certificates: [{ chain: 'secret:site', key: 'secret:site' }], client: { ca: 'secret:trust' } } }";

#[test]
fn a_listener_that_is_refused_for_its_secrets_is_so_until_all_are_there() {
    let mut loader = loaded();
    one(&mut loader, Listener, "rim", SECURE);
    let said = waited(&mut loader, "rim");
    let secrets = ["site", "trust"].map(|name| ResourceName::new(Secret, name));
    assert_eq!((said.len(), &said[0].missing[..]), (1, &secrets[..]));
    let site = secret("site", &[("chain", "site.pem"), ("key", "site.key")]);
    let update = of(Secret, "site", "1", &site);
    let said = late(&mut loader, update);
    assert!(said[0].contains("secret/trust did not arrive"), "{said:?}");
    assert!(listener(&loader.snapshot_latest().unwrap().clone(), "rim").is_none());
    let trust = secret("trust", &[("ca", "ca.pem")]);
    let said = late(&mut loader, of(Secret, "trust", "1", &trust));
    assert_eq!(said, ["listener/rim 1: ok []"]);
    assert!(listener(&loader.snapshot_latest().unwrap().clone(), "rim").is_some());
    // What goes later is waited for as if it were new.
    one(&mut loader, Listener, "rim", &SECURE.replace("own", "shop"));
    assert_eq!(loader.waiting().count(), 1);
}

#[test]
fn a_listener_whose_next_version_is_refused_for_a_secret_keeps_the_routes_that_are_removed() {
    let mut loader = loaded();
    one(&mut loader, Listener, "rim", LISTENER);
    taken(&mut loader, Route, "shop", &routes(&["a.example"], "/"));
    one(&mut loader, Listener, "rim", SECURE);
    assert_eq!(waited(&mut loader, "rim").len(), 1);
    one(&mut loader, Route, "shop", "");
    let now = loader.snapshot_latest().unwrap().clone();
    let table = listener(&now, "rim").unwrap().hosts.find(b"a.example").expect("it serves");
    assert!(now.route_table(table).is_some(), "with its rules");
}

#[test]
fn listeners_and_clusters_wait_for_secrets_and_follow_renewed_ones() {
    let mut loader = loaded();
    let text = "{ name: rim, address: '127.0.0.1:2', routes: own, \
                tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] } }";
    let api = "{ name: api, endpoints: ['10.0.0.2:443'], tls: { ca: 'secret:trust' } }";
    assert_eq!(one(&mut loader, Listener, "rim", text).1, "waits for secret/site");
    assert_eq!(one(&mut loader, Cluster, "api", api).1, "waits for secret/trust");
    assert_eq!(loader.snapshot_latest().unwrap().clusters.iter().count(), 1);
    let site = secret("site", &[("chain", "site.pem"), ("key", "site.key")]);
    let now = taken(&mut loader, Secret, "site", &site);
    let rim = listener(&now, "rim").unwrap().clone();
    let host = rim.hosts.find(b"own.example").unwrap();
    assert_eq!(&*now.route_table(host).unwrap().name, "own", "a table of the file");
    let now = taken(&mut loader, Secret, "trust", &secret("trust", &[("ca", "ca.pem")]));
    let cluster = now.clusters.iter().find(|(_, it)| &*it.name == "api").unwrap().1.clone();
    assert_eq!(now.changes.clusters_added, [cluster.id]);
    // The same again is no change; another is one of the listener alone.
    assert!(one(&mut loader, Secret, "site", &site).0.is_none());
    let other = secret("site", &[("chain", "tenants.pem"), ("key", "tenants.key")]);
    let now = taken(&mut loader, Secret, "site", &other);
    assert_eq!(now.changes.listeners_changed, [rim.id]);
    let tls = listener(&now, "rim").unwrap().tls.clone().unwrap();
    assert!(!Arc::ptr_eq(&tls.context, &rim.tls.as_ref().unwrap().context));
    assert!(now.clusters.iter().any(|(_, it)| Arc::ptr_eq(it, &cluster)));
    // One without what the listener names leaves what serves, and is said of the listener.
    let updates = vec![of(Secret, "site", "9", &secret("site", &[("ca", "ca.pem")]))];
    let done = loader.prepare_updates(&"folder".into(), updates, &[], &sample::outside());
    assert!(done.prepared.is_none() && done.verdicts[0].refused.is_none());
    let (source, verdict) = &done.late[0];
    assert_eq!((&**source, verdict.name.to_string()), ("folder", "listener/rim".to_owned()));
    let errors = verdict.refused.as_ref().unwrap().to_string();
    assert!(errors.starts_with("folder listener/rim version 1:1:"), "{errors}");
}

#[test]
fn a_secret_that_is_wrong_in_itself_leaves_the_one_before_in_its_place() {
    let mut loader = loaded();
    let site = secret("site", &[("chain", "site.pem"), ("key", "site.key")]);
    one(&mut loader, Secret, "site", &site);
    one(&mut loader, Secret, "trust", &secret("trust", &[("ca", "ca.pem")]));
    let rim = |connections: u32| {
        format!(
            "{{ name: rim, address: '127.0.0.1:2', routes: own, connections_max: {connections}, \
               tls: {{ certificates: [{{ chain: 'secret:site', key: 'secret:site' }}], \
               client: {{ ca: 'secret:trust' }} }} }}"
        )
    };
    let before = listener(&taken(&mut loader, Listener, "rim", &rim(7)), "rim").unwrap().clone();
    let other_key = secret("site", &[("chain", "site.pem"), ("key", "tenants.key")]);
    for (name, content, at, rule) in [
        ("site", other_key, "key", "the key does not fit the certificate"),
        ("site", site.replace("MII", "M*I"), "chain", ""),
        ("trust", "name: trust\nca: x\n".to_owned(), "ca", "there is no CA certificate"),
        (
            "trust",
            format!("{}crl: x\n", secret("trust", &[("ca", "ca.pem")])),
            "crl",
            "there is no",
        ),
        ("site", format!("{site}crl: x\n"), "crl", "there is no certificate revocation list"),
        ("new", format!("name: new\nticket_key: {}", ticket_key("Zm9v", 5)), "ticket_key", "bytes"),
    ] {
        let updates = vec![of(Secret, name, "9", &content)];
        let done = loader.prepare_updates(&"folder".into(), updates, &[], &sample::outside());
        assert!(done.prepared.is_none() && done.late.is_empty(), "{name} {at}: {done:?}");
        let refused = done.verdicts[0].refused.as_ref().expect(rule).to_string();
        let origin = format!("folder secret/{name} version 9:");
        assert!(refused.starts_with(&origin) && refused.contains(rule), "{refused}");
        assert!(refused.contains(at), "{refused}");
        assert!(!refused.contains("PRIVATE") && !format!("{done:?}").contains("PRIVATE"));
    }
    // What names them goes on to change.
    let after = listener(&taken(&mut loader, Listener, "rim", &rim(8)), "rim").unwrap().clone();
    let source = |of: &config::snapshot::Listener<Headers>| {
        Arc::clone(&of.tls.as_ref().unwrap().source.certificates[0])
    };
    assert!(Arc::ptr_eq(&source(&before), &source(&after)));
}

#[test]
fn what_is_made_of_a_secret_is_in_memory_once_for_all_who_name_it() {
    let mut loader = loaded();
    one(&mut loader, Secret, "trust", &secret("trust", &[("ca", "ca.pem")]));
    let site = secret("site", &[("chain", "site.pem"), ("key", "site.key")]);
    one(&mut loader, Secret, "site", &site);
    let tls =
        "tls: { ca: 'secret:trust', certificate: { chain: 'secret:site', key: 'secret:site' } }";
    let now = (0..3).map(|number| {
        let text = format!("{{ name: c{number}, endpoints: ['10.0.0.2:443'], {tls} }}");
        taken(&mut loader, Cluster, &format!("c{number}"), &text)
    });
    let now = now.last().unwrap();
    let sources = |now: &Loaded| -> Vec<_> {
        let named = now.clusters.iter().filter(|(_, it)| it.name.starts_with('c'));
        let sources = named.map(|(_, it)| {
            let source = &it.transports.tls().next().unwrap().source;
            (source.roots.clone().unwrap(), source.certificate.clone().unwrap())
        });
        sources.collect()
    };
    let is_shared = |of: &[(Arc<RootsSource>, Arc<CertificateSource>)]| {
        let [first, others @ ..] = of else { return false };
        others.iter().all(|it| Arc::ptr_eq(&it.0, &first.0) && Arc::ptr_eq(&it.1, &first.1))
    };
    let before = sources(&now);
    assert!(before.len() == 3 && is_shared(&before));
    // So it is when it is renewed.
    let now = taken(&mut loader, Secret, "trust", &secret("trust", &[("ca", "tenants.pem")]));
    let after = sources(&now);
    assert!(is_shared(&after) && !Arc::ptr_eq(&before[0].0, &after[0].0));
    assert!(Arc::ptr_eq(&before[0].1, &after[0].1), "the certificate is as it was");
}

/// An answer that has its end, as `dated.ocsp`.
const OCSP: &str = "
  -----BEGIN OCSP RESPONSE-----
  MIIBGAoBAKCCAREwggENBgkrBgEFBQcwAQEEgf8wgfwwgaKhFjAUMRIwEAYDVQQD
  DAlvY3NwLXRlc3QYDzIwMjYxMTIyMjAzOTU4WjB3MHUwTTAJBgUrDgMCGgUABBRt
  9yh/CuE9TkZJeFXwl99RsaBG7gQUM4m84ufCyO+Jm4pC7Lx5X2e+sNUCFHQKGQDK
  d7jh+lK2f1BqmR+Gy/p1gAAYDzIwMjYxMTIyMjAzOTU4WqARGA8yMDMzMDUxODE1
  MzI1OFowCgYIKoZIzj0EAwIDSQAwRgIhAKF++7VJSM6p/hYB7N4XvHKOsvqmD3W2
  a2jZuWMWl/plAiEA3Y9ftfeo12NNBxW30QH5VeKu3d+SWoL8O+unYvX3wZE=
  -----END OCSP RESPONSE-----
";

/// A key of tickets, of so many times three octets.
fn ticket_key(octets: &str, times: usize) -> String {
    format!(
        "|\n  -----BEGIN TICKET KEY-----\n  {}\n  -----END TICKET KEY-----\n",
        octets.repeat(times)
    )
}

#[test]
fn stapled_answers_and_keys_of_tickets_are_delivered_and_renewed() {
    let mut loader = loaded();
    let text = "{ name: rim, address: '127.0.0.1:2', routes: own, tls: { \
                certificates: [{ chain: 'secret:site', key: 'secret:site', ocsp: 'secret:site' }], \
                session_ticket_files: ['secret:new', 'secret:old'] } }";
    let waits = "waits for secret/new secret/old secret/site";
    assert_eq!(one(&mut loader, Listener, "rim", text).1, waits);
    let site = secret("site", &[("chain", "tenants.pem"), ("key", "tenants.key")]);
    let stapled = format!("{site}ocsp: |{OCSP}");
    one(&mut loader, Secret, "site", &stapled);
    let named = |name: &str, key: &str| format!("name: {name}\nticket_key: {key}");
    one(&mut loader, Secret, "old", &named("old", &ticket_key("Zm9v", 11)));
    let now = taken(&mut loader, Secret, "new", &named("new", &ticket_key("YmFy", 27)));
    let tls = listener(&now, "rim").unwrap().tls.clone().unwrap();
    assert_eq!(tls.source.certificates[0].certificate.ocsp_ends(), Some(2_000_043_178));
    assert_eq!(tls.source.ticket_keys.len(), 2);
    // A renewed key changes the listener alone; the certificate stays.
    let now = taken(&mut loader, Secret, "new", &named("new", &ticket_key("YmFz", 27)));
    let renewed = listener(&now, "rim").unwrap().tls.clone().unwrap();
    let keys = |tls: &config::snapshot::ListenerTls| -> Vec<_> {
        tls.source.ticket_keys.iter().map(|it| Arc::clone(&it.key)).collect()
    };
    assert!(!Arc::ptr_eq(&keys(&tls)[0], &keys(&renewed)[0]));
    assert!(Arc::ptr_eq(&tls.source.certificates[0], &renewed.source.certificates[0]));
    // Without the answer, what serves stays, and its listener hears why.
    let said = late(&mut loader, of(Secret, "site", "2", &site));
    assert!(said[0].contains("secret site has no `ocsp`"), "{said:?}");
    for (content, rule) in [
        (format!("name: site\nocsp: |{OCSP}"), "there is no certificate here"),
        (stapled.replace("MII", "M*I"), "base64 between `BEGIN OCSP RESPONSE`"),
        (named("site", "Zm9v"), "base64 between `BEGIN TICKET KEY`"),
    ] {
        let said = one(&mut loader, Secret, "site", &content).1;
        assert!(said.contains(rule), "{rule} in {said}");
        assert!(!said.contains("Zm9v"), "{said}");
    }
}

/// What is said of other resources after one was delivered.
fn late(loader: &mut Loader, update: Update) -> Vec<String> {
    let done = loader.prepare_updates(&"folder".into(), vec![update], &[], &sample::outside());
    assert!(done.verdicts[0].refused.is_none(), "{:?}", done.verdicts);
    let said = done.late.iter().map(|(_, verdict)| match &verdict.refused {
        Some(errors) => format!("{} {}: {errors}", verdict.name, verdict.version),
        None => format!("{} {}: ok {:?}", verdict.name, verdict.version, verdict.waits_for),
    });
    let said = said.collect();
    if let Some(prepared) = done.prepared {
        loader.keep(prepared);
    }
    said
}

#[test]
fn what_was_refused_later_is_accepted_again_once_it_goes_with_what_it_names() {
    let mut loader = loaded();
    let good = [("chain", "site.pem"), ("key", "site.key")];
    let site = |parts: &[_]| of(Secret, "site", "1", &secret("site", parts));
    assert!(late(&mut loader, site(&good)).is_empty());
    let text = "{ name: rim, address: '127.0.0.1:2', routes: own, \
                tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] } }";
    taken(&mut loader, Listener, "rim", text);
    // It is good, and not what the listener needs.
    let bare = [("ca", "ca.pem")];
    let refused = late(&mut loader, site(&bare));
    assert!(
        refused[0].starts_with("listener/rim 1: folder listener/rim version 1:1:"),
        "{refused:?}"
    );
    // A version that is wrong in itself changes nothing of that.
    assert!(one(&mut loader, Listener, "rim", "{ name: rim, address: x }").1 != "ok");
    assert_eq!(late(&mut loader, site(&good)), ["listener/rim 1: ok []"]);
    let other = secret("other", &bare);
    assert!(late(&mut loader, of(Secret, "other", "1", &other)).is_empty());
    assert!(late(&mut loader, site(&good)).is_empty(), "it is said once");
    // One that has to wait is accepted, and says for what.
    assert_eq!(late(&mut loader, site(&bare)).len(), 1);
    assert_eq!(loader.waiting().count(), 0, "what is refused waits for nothing");
    let gone = late(&mut loader, of(Secret, "site", "2", ""));
    assert!(gone[0].starts_with("listener/rim 1: ok [") && gone[0].contains("site"), "{gone:?}");
    assert_eq!(loader.waiting().count(), 1);
}

#[test]
fn each_kind_is_accepted_or_refused_by_itself_with_origin_rule_and_hint() {
    let mut loader = loaded();
    let updates = vec![
        of(Listener, "a", "1", "{ name: a, address: '127.0.0.1:0x', routes: own }"),
        of(Listener, "b", "1", "{ name: b, address: '127.0.0.1:3', routes: own }"),
        of(
            Listener,
            "c",
            "1",
            "{ name: c, address: '127.0.0.1:4', routes: own, tls: { certificates: [{ chain: /etc/a.pem, key: 'secret:site' }] } }",
        ),
        of(Listener, "edge", "1", "{ name: edge, address: '127.0.0.1:5', routes: own }"),
        of(Route, "own", "1", "{ name: own, virtual_hosts: [] }"),
        of(Route, "d", "1", "name: d\nvirtual_hosts:\n- { name: x/y, rules: [] }"),
        of(
            Route,
            "e",
            "1",
            "name: e\nvirtual_hosts:\n- { name: x, rules: [{ match: { prefix: / }, cluster_header: to }] }",
        ),
        of(
            Route,
            "g",
            "1",
            "name: g\nvirtual_hosts: [{ name: x, error_pages: [{ file: /etc/passwd, content_type: a/b, status: ['503'] }], rules: [] }]",
        ),
        of(Secret, "h", "1", "{ name: h, key: x }"),
        of(Secret, "i", "1", "{ name: i }"),
        of(Route, "shop", "1", &routes(&["a.example"], "/")),
    ];
    let (now, verdicts) = deliver(&mut loader, "folder", updates);
    for (verdict, said) in verdicts.iter().zip([
        "folder listener/a version 1:1:21: address: ",
        "ok",
        "folder listener/c version 1:1:80: tls.certificates[0].chain: \"/etc/a.pem\": a resource of another source names no files",
        "folder listener/edge version 1:1:1: the file has a listener of this name, at f:1, which has precedence",
        "folder route/own version 1:1:1: the file has a route of this name, at f:2, which has precedence",
        "folder route/d version 1:3:11: virtual_hosts[0].name: \"x/y\": `/` separates",
        "folder route/e version 1:3:62: virtual_hosts[0].rules[0].cluster_header: \"to\": the set of clusters is not known",
        "folder route/g version 1:2:",
        "folder secret/h version 1:1:1: a certificate and its key belong together",
        "folder secret/i version 1:1:1: this secret is empty",
        "ok",
    ]) {
        assert!(verdict.starts_with(said), "{verdict}\n{said}");
    }
    let now = now.unwrap();
    let names: Vec<&str> = now.listeners.iter().map(|listener| &*listener.name).collect();
    assert_eq!(names, ["edge", "b"]);
    assert_eq!(now.route_tables.iter().count(), 2);
}

#[test]
fn tunnels_and_clusters_of_http2_do_not_meet_whichever_comes_first() {
    let api = |protocol: &str| {
        format!("{{ name: api, endpoints: ['10.0.0.2:80'], protocol: {protocol} }}")
    };
    let tunnel = |upgrade: &str| {
        format!(
            "{{ name: shop, virtual_hosts: [{{ name: a, rules: [{{ match: {{ prefix: / }}, cluster: api, upgrades: [{upgrade}] }}] }}] }}"
        )
    };
    let mut loader = loaded();
    taken(&mut loader, Cluster, "api", &api("http2"));
    let said = one(&mut loader, Route, "shop", &tunnel("CONNECT")).1;
    let refused = "virtual_hosts[0].rules[0].upgrades[0]: \"CONNECT\": a tunnel needs a connection";
    assert!(said.contains(refused), "{said}");
    assert_eq!(one(&mut loader, Route, "shop", &tunnel("websocket")).1, "ok");
    // Together they are looked at as they are to be.
    let both = |protocol: &str, upgrade: &str| {
        vec![of(Route, "shop", "2", &tunnel(upgrade)), of(Cluster, "api", "2", &api(protocol))]
    };
    assert_eq!(deliver(&mut loader, "folder", both("http1", "connect")).1, ["ok", "ok"]);
    let said = one(&mut loader, Cluster, "api", &api("http2")).1;
    let origin = "folder cluster/api version 1:1:1: folder route/shop version 2 opens tunnels";
    assert!(said.starts_with(origin), "{said}");
    let (_, verdicts) = deliver(&mut loader, "folder", both("http2", "connect"));
    assert!(verdicts[0] == "ok" && verdicts[1].contains("route/shop version 2"), "{verdicts:?}");
    // A version that is refused ends no tunnels, whether it is wrong or of a source that has no say.
    let wrong = "{ name: shop, virtual_hosts: [{ name: a, rules: [{ match: { regex: '(' }, cluster: api }] }] }";
    for (source, routes) in [("folder", wrong), ("other", &*tunnel("websocket"))] {
        let updates = vec![of(Route, "shop", "3", routes), of(Cluster, "api", "3", &api("http2"))];
        let (now, verdicts) = deliver(&mut loader, source, updates);
        assert!(now.is_none(), "{verdicts:?}");
        let verdict = if source == "folder" { &verdicts[1] } else { &verdicts[0] };
        assert!(
            verdict.contains("route/shop version 2") || verdict.contains("folder has delivered"),
            "{verdicts:?}"
        );
    }
    // Nor does one that opens tunnels to another cluster that becomes one of HTTP/2 with it.
    let other = |protocol| api(protocol).replace("name: api", "name: b");
    taken(&mut loader, Cluster, "b", &other("http1"));
    let updates = vec![
        of(Cluster, "api", "4", &api("http2")),
        of(Cluster, "b", "4", &other("http2")),
        of(Route, "shop", "4", &tunnel("connect").replace("cluster: api", "cluster: b")),
    ];
    let (_, verdicts) = deliver(&mut loader, "folder", updates);
    assert!(verdicts[0].contains("route/shop version 2"), "{verdicts:?}");
    assert!(verdicts[1] == "ok" && verdicts[2].contains("a tunnel needs"), "{verdicts:?}");
    let updates = vec![
        of(Cluster, "mine", "1", &api("http1").replace("name: api", "name: mine")),
        of(
            Route,
            "own-tunnel",
            "1",
            &tunnel("connect").replace("api", "mine").replace("name: shop", "name: own-tunnel"),
        ),
    ];
    assert_eq!(deliver(&mut loader, "folder", updates).1, ["ok", "ok"]);
    let updates = vec![
        of(Route, "own-tunnel", "2", ""),
        of(Cluster, "mine", "2", &api("http2").replace("name: api", "name: mine")),
    ];
    assert_eq!(deliver(&mut loader, "folder", updates).1.last().unwrap(), "ok", "the tunnel goes");
    assert_eq!(deliver(&mut loader, "folder", both("http2", "websocket")).1, ["ok", "ok"]);
    // The same with the file on either side.
    let rules = TEXT.replace("cluster: web }", "cluster: api, upgrades: [connect] }");
    let errors = loader.load("f", &rules).unwrap_err().to_string();
    assert!(errors.contains("routes[0].rules[0].upgrades[0]: "), "{errors}");
    taken(&mut loader, Cluster, "api", &api("http1"));
    loader.load("f", &rules).unwrap();
    let said = one(&mut loader, Cluster, "api", &api("http2")).1;
    assert!(said.contains("a rule of the file opens tunnels to this cluster"), "{said}");
    loader.load("f", TEXT).unwrap();
    assert_eq!(one(&mut loader, Cluster, "api", &api("http2")).1, "ok");
    assert_eq!(deliver(&mut loader, "folder", both("http1", "connect")).1, ["ok", "ok"]);
    let own = TEXT.replace("clusters: [", &format!("clusters: [{}, ", api("http2")));
    let errors = loader.load("f", &own).unwrap_err().to_string();
    let origin = "clusters[0].protocol: \"http2\": folder route/shop version 2 opens tunnels";
    assert!(errors.contains(origin), "{errors}");
}

#[test]
fn a_listener_that_cannot_be_bound_is_refused_alone() {
    let mut loader = loaded();
    let text = |name: u8| format!("{{ name: l{name}, address: '127.0.0.1:1{name}', routes: own }}");
    let updates = || (0..10).map(|it| of(Listener, &format!("l{it}"), "1", &text(it))).collect();
    let unbound = [Unbound {
        name: ResourceName::new(Listener, "l3"),
        reason: "cannot listen on 127.0.0.1:13: it is in use".to_owned(),
    }];
    let outside = sample::outside();
    let done = loader.prepare_updates(&"folder".into(), updates(), &unbound, &outside);
    let refused = done.verdicts.iter().filter_map(|it| it.refused.as_ref());
    let refused: Vec<String> = refused.map(ToString::to_string).collect();
    assert_eq!(refused.len(), 1);
    let said = "folder listener/l3 version 1:1:1: cannot listen on 127.0.0.1:13: it is in use; ";
    assert!(refused[0].starts_with(said), "{refused:?}");
    let now = loader.keep(done.prepared.unwrap());
    assert_eq!((now.listeners.len(), now.changes.listeners_added.len()), (10, 9));
}

#[test]
fn listeners_follow_the_tables_of_the_file_and_the_file_goes_first() {
    let mut loader = loaded();
    let text = "{ name: rim, address: '127.0.0.1:2', routes: [own, shop] }";
    taken(&mut loader, Route, "shop", &routes(&["a.example"], "/"));
    let now = taken(&mut loader, Listener, "rim", text);
    let hosts = |snapshot: &Loaded, name: &str| {
        let rim = listener(snapshot, "rim").unwrap();
        rim.hosts.find(name.as_bytes()).is_some()
    };
    assert!(hosts(&now, "own.example") && hosts(&now, "a.example"));
    let same = loader.load("f", &format!("# more\n{TEXT}")).unwrap();
    assert!(Arc::ptr_eq(listener(&now, "rim").unwrap(), listener(&same, "rim").unwrap()));
    let now = loader.load("f", &TEXT.replace("own.example", "new.example")).unwrap();
    assert!(hosts(&now, "new.example") && !hosts(&now, "own.example"));
    // The file takes a host that the listener has: the listener stays as it was, and that is said.
    let claimed =
        loader.prepare("f", &TEXT.replace("own.example", "a.example"), &sample::outside()).unwrap();
    let (_, verdict) = &claimed.late()[0];
    assert!(verdict.refused.as_ref().unwrap().to_string().contains("both contain the host"));
    // The file takes the names.
    let text = TEXT.replace("name: edge", "name: rim").replace("routes: own", "routes: shop");
    let text = text.replace("name: own", "name: shop");
    let now = loader.load("f", &text).unwrap();
    assert_eq!((now.listeners.len(), now.route_tables.iter().count()), (1, 1));
    let said = one(&mut loader, Route, "shop", &routes(&["a.example"], "/")).1;
    assert!(said.contains("the file has a route of this name"), "{said}");
}

#[test]
fn a_listener_that_waited_for_the_file_leads_to_the_clusters_that_come_with_it() {
    let mut loader = loaded();
    let chain = "{ name: raw, match: { sources: [10.0.0.0/8] }, protocol: tcp, cluster: new }";
    let text = format!("{{ name: rim, address: '127.0.0.1:2', routes: late, chains: [{chain}] }}");
    assert_eq!(one(&mut loader, Listener, "rim", &text).1, "waits for route/late");
    let more = TEXT
        .replace("routes: [{", "routes: [{ name: late, hosts: [late.example], rules: [] }, {")
        .replace("clusters: [", "clusters: [{ name: new, endpoints: ['10.0.0.2:80'] }, ");
    let now = loader.load("f", &more).unwrap();
    let rim = listener(&now, "rim").expect("what it waited for is there");
    let chain = rim.chains.iter().next().unwrap();
    let relay = chain.listener.relay.as_ref().expect("it relays");
    let (cluster, _) = relay.clusters[0];
    assert_eq!(now.cluster(cluster).map(|it| &*it.name), Some("new"));
}

#[test]
fn a_drain_that_waits_for_the_next_text_counts_for_a_delivered_cluster() {
    let mut loader = loaded();
    taken(&mut loader, Cluster, "api", "{ name: api, endpoints: ['10.0.0.2:80'] }");
    for is_drained in [true, false] {
        let endpoint = "10.0.0.2:80".parse().unwrap();
        loader.note_drained(&[DrainChange { cluster: "api".into(), endpoint, is_drained }]);
        let now = loader.load_with("f", TEXT, &sample::outside()).unwrap();
        let (_, api) = now.clusters.iter().find(|(_, it)| &*it.name == "api").unwrap();
        assert_eq!(api.endpoints[0].is_drained, is_drained);
        assert_eq!(now.changes.clusters_changed, [api.id]);
        assert!(!loader.has_noted());
    }
}

#[test]
fn sources_go_before_each_other_in_their_order_whichever_came_first() {
    let mut loader = loaded();
    loader.order_sources(vec!["first".into(), "second".into()]);
    let api = |port: u8| format!("{{ name: api, endpoints: ['10.0.0.2:{port}'] }}");
    let mut say = |source: &str, version: &str, text: &str| {
        let updates = vec![of(Cluster, "api", version, text)];
        let done = loader.prepare_updates(&source.into(), updates, &[], &sample::outside());
        let said = done.verdicts[0].refused.as_ref().map(ToString::to_string);
        let late = done
            .late
            .iter()
            .map(|(source, it)| format!("{source} hears {}", it.refused.as_ref().unwrap()));
        let late: Vec<String> = late.collect();
        if let Some(prepared) = done.prepared {
            loader.keep(prepared);
        }
        let latest = loader.snapshot_latest().unwrap();
        let api = latest.clusters.iter().find(|(_, it)| &*it.name == "api");
        let port = api.map(|(_, it)| it.endpoints[0].address.to_string());
        (said, late, port.unwrap_or_default())
    };
    assert_eq!(say("other", "1", &api(1)), (None, vec![], "10.0.0.2:1".into()));
    let (said, late, port) = say("second", "2", &api(2));
    assert_eq!((said, port.as_str()), (None, "10.0.0.2:2"));
    let hears = "other hears other cluster/api version 1:1:1: second has delivered a cluster of this name, version 2, which has precedence";
    assert!(late[0].starts_with(hears), "{late:?}");
    // One that is wrong takes nothing.
    let (said, late, port) = say("first", "3", "{ name: api, endpoints: ['10.0.0.2:0'] }");
    assert!(said.is_some() && late.is_empty() && port == "10.0.0.2:2", "{said:?} {late:?}");
    // To say that it is not there is no mistake, and takes nothing of another's away.
    assert_eq!(say("first", "3", ""), (None, vec![], "10.0.0.2:2".into()));
    assert_eq!(say("other", "3", ""), (None, vec![], "10.0.0.2:2".into()));
    let (said, late, port) = say("first", "4", &api(4));
    assert!(said.is_none() && late.len() == 1 && port == "10.0.0.2:4", "{said:?} {late:?}");
    let (said, late, _) = say("second", "5", &api(5));
    assert!(said.unwrap().contains("first has delivered a cluster of this name, version 4"));
    assert!(late.is_empty());
    assert_eq!(say("first", "6", "").2, "");
    assert_eq!(say("second", "7", &api(7)).2, "10.0.0.2:7");
    // What the file has is its own, and the source hears that, too.
    let text = TEXT.replace("clusters: [", &format!("clusters: [{}, ", api(8)));
    let prepared = loader.prepare("f", &text, &sample::outside()).unwrap();
    let (source, verdict) = &prepared.late()[0];
    let errors = verdict.refused.as_ref().unwrap().to_string();
    let said = "second cluster/api version 7:1:1: the file has a cluster of this name, at f:3, which has precedence";
    assert!(&**source == "second" && errors.starts_with(said), "{errors}");
}

#[test]
fn the_bounds_are_of_each_source_and_kind_and_more_is_refused_as_a_whole() {
    let mut loader = loaded();
    for kind in ResourceKind::ALL {
        let name = |n: usize| n.to_string();
        let updates: Vec<Update> =
            (0..=RESOURCES_MAX).map(|n| of(kind, &name(n), "1", "x: y")).collect();
        let (none, verdicts) = deliver(&mut loader, "folder", updates);
        assert!(none.is_none());
        let word = kind.word();
        let said = format!("(resources_max), and has {} of {word}", RESOURCES_MAX + 1);
        assert!(verdicts.iter().all(|it| it.contains(&said)), "{}", verdicts[0]);
    }
    // The three share their text.
    let text = Text::from("#".repeat(100 << 20));
    let large = |name: &str| Update { content: Some(text.clone()), ..of(Cluster, name, "1", "") };
    let good = of(Cluster, "good", "1", "{ name: good, endpoints: [] }");
    let updates = vec![large("a"), good.clone(), large("b"), large("c")];
    let (none, verdicts) = deliver(&mut loader, "folder", updates);
    assert!(none.is_none());
    assert!(verdicts.iter().all(|it| it.contains("at most 256 MiB (resource_bytes_max)")));
    let many = vec![of(Cluster, "gone", "1", ""); UPDATES_WAITING_MAX + 1];
    let (none, verdicts) = deliver(&mut loader, "folder", many);
    assert!(none.is_none() && verdicts.len() == 1);
    assert!(verdicts[0].contains("updates waiting (updates_waiting_max)"), "{verdicts:?}");
    assert_eq!(deliver(&mut loader, "folder", vec![good]).1, ["ok"]);
    // What goes is refused with what comes, and taken by itself.
    let gone = of(Cluster, "good", "2", "");
    let updates = vec![gone.clone(), large("a"), large("b"), large("c")];
    let (none, verdicts) = deliver(&mut loader, "folder", updates);
    assert!(none.is_none() && verdicts[0].contains("resource_bytes_max"), "{verdicts:?}");
    let (now, verdicts) = deliver(&mut loader, "folder", vec![gone]);
    assert_eq!((now.unwrap().clusters.iter().count(), verdicts), (1, vec!["ok".to_owned()]));
}

#[test]
fn a_version_is_one_line_of_at_most_a_kibibyte() {
    let good = "{ name: good, endpoints: [] }";
    let versions = |version: &str| {
        let updates = [good, ""].map(|content| of(Cluster, "good", version, content));
        updates.map(|update| deliver(&mut loaded(), "folder", vec![update]).1.remove(0))
    };
    for version in ["", "a b/c", &"7".repeat(1_024)] {
        assert_eq!(versions(version), ["ok", "ok"], "{version}");
    }
    for said in versions(&"7".repeat(1_025)) {
        let rule = "a version has at most 1024 bytes, and this one has 1025";
        assert!(said.contains(rule) && said.len() < 1_400, "{said}");
    }
    for said in versions("1\n2026 ERROR forged") {
        assert!(said.contains("a version has no control characters"), "{said}");
        assert!(
            said.starts_with("folder cluster/good version 1\\n2026 ERROR forged:1:1: "),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
    }
}

#[test]
fn a_refused_name_begins_no_line_of_a_log() {
    let mut loader = loaded();
    let name = "web\n2026-03-01T10:00:00Z ERROR forged";
    let said = one(&mut loader, Cluster, name, "{ name: x, endpoints: [] }").1;
    assert!(
        said.starts_with("folder cluster/web\\n2026-03-01T10:00:00Z ERROR forged version 1:1:1: "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let shown = ResourceName::new(Cluster, name).to_string();
    assert_eq!(shown, "cluster/web\\n2026-03-01T10:00:00Z ERROR forged");
}

#[test]
fn what_is_named_and_not_in_the_file_is_wanted() {
    let mut loader = fresh();
    let prepared =
        loader.prepare("f", &TEXT.replace("name: web", "name: other"), &sample::outside());
    let prepared = prepared.unwrap();
    let names = |wanted: &BTreeSet<ResourceName>| -> Vec<String> {
        wanted.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(prepared.wanted()), ["cluster/web"]);
    loader.keep(prepared);
    let mut wanted = |kind, name: &str, content: &str| {
        let updates = vec![of(kind, name, "1", content)];
        let done = loader.prepare_updates(&"folder".into(), updates, &[], &sample::outside());
        drop(done.prepared.map(|prepared| loader.keep(prepared)));
        let NamesChanged { new, gone } = done.wanted;
        [new, gone].map(|changed| names(&changed.into_iter().collect()))
    };
    let text = "{ name: rim, address: '127.0.0.1:2', routes: [own, shop], cluster: raw, \
                tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] } }";
    let all = ["route/shop", "cluster/raw", "secret/site"].map(str::to_owned);
    let none = || [Vec::<String>::new(), Vec::new()];
    let api = || vec!["cluster/api".to_owned()];
    assert_eq!(wanted(Listener, "rim", text), [all.to_vec(), vec![]]);
    assert_eq!(wanted(Listener, "rim", text), none(), "as before");
    let routes_to_api = routes(&["a.example"], "/");
    assert_eq!(wanted(Route, "shop", &routes_to_api), [api(), vec![]]);
    assert_eq!(wanted(Listener, "rim", ""), [vec![], all.to_vec()]);
    // The file names it, so that nothing changes with those that do.
    assert_eq!(wanted(Route, "shop", &routes_to_api.replace("api", "web")), [vec![], api()]);
    assert_eq!(wanted(Route, "shop", ""), none());
}

/// What comes next: a text with these clusters and the table of some, what a source says, or an endpoint that an operator drains or
/// takes back.
#[derive(Clone, Debug)]
enum Step {
    /// Linked at once, or with what comes next.
    Drained(DrainChange, bool),
    Text {
        clusters: Vec<u8>,
        rules: Vec<u8>,
        has_table: bool,
        canary: u8,
    },
    Updates(u8, Vec<(ResourceKind, u8, u8)>),
    /// DNS answers for the cluster of the text that has a name, in the same way.
    Answers(u8, bool),
    /// Nothing waits any longer.
    Waited,
}

fn step() -> impl Strategy<Value = Step> {
    let names = || proptest::collection::btree_set(0u8..4, 0..4);
    let text = (names(), names(), any::<bool>(), 0u8..2);
    let kind = prop_oneof![
        2 => Just(Assignment),
        3 => Just(Cluster),
        3 => Just(Route),
        3 => Just(Listener),
        2 => Just(Secret)
    ];
    // What names each other has to meet: few names, and many that go.
    let update = (kind, 0u8..2, prop_oneof![1 => Just(0u8), 3 => 0u8..7]);
    prop_oneof![
        1 => text.prop_map(|(clusters, rules, has_table, canary)| Step::Text {
            clusters: clusters.into_iter().collect(),
            rules: rules.into_iter().collect(),
            has_table,
            canary,
        }),
        4 => (0u8..2, proptest::collection::vec(update, 1..4))
            .prop_map(|(source, updates)| Step::Updates(source, updates)),
        1 => (drain(), any::<bool>()).prop_map(|(change, at_once)| Step::Drained(change, at_once)),
        1 => (0u8..3, any::<bool>()).prop_map(|(form, at_once)| Step::Answers(form, at_once)),
        1 => Just(Step::Waited),
    ]
}

/// The name of the text's only cluster with one, and one of several answers for it.
fn answer(form: u8) -> (Arc<DnsName>, Option<DnsAnswer>) {
    let prepared = fresh().prepare("f", &text(&[3], &[], false, 0), &sample::outside()).unwrap();
    let name = Arc::clone(prepared.names().unwrap().next().unwrap());
    let resolved = (0..form).map(|last| Resolved {
        address: format!("10.0.4.{last}:80").parse().unwrap(),
        weight: NonZeroU16::MIN,
        priority: 0,
        host: "n3.internal".into(),
    });
    (name, Some(resolved.collect()))
}

/// Takes note of what serves without what it has waited for.
fn note_missing(missing: &mut BTreeSet<ResourceName>, waits: Vec<Waits>) {
    for wait in waits {
        match wait.missing.is_empty() {
            true => drop(missing.remove(&wait.name)),
            false => drop(missing.insert(wait.name)),
        }
    }
}

/// An endpoint that some of the clusters have, in some of their forms.
fn drain() -> impl Strategy<Value = DrainChange> {
    let address = proptest::sample::select(vec!["10.0.1.1:80", "10.0.2.9:80", "10.0.3.1:80"]);
    (0u8..2, address, any::<bool>()).prop_map(|(cluster, address, is_drained)| DrainChange {
        cluster: format!("n{cluster}").into(),
        endpoint: address.parse().unwrap(),
        is_drained,
    })
}

fn text(clusters: &[u8], rules: &[u8], has_table: bool, canary: u8) -> String {
    let rule = |name: &u8| format!("{{ match: {{ prefix: /{name}/ }}, cluster: n{name} }}");
    let rules: Vec<_> = rules.iter().map(rule).collect();
    let cluster = |name: &u8| match name {
        3 => "{ name: n3, endpoints: { dns: 'n3.internal:80' } }".to_owned(),
        _ => format!("{{ name: n{name}, endpoints: ['10.0.1.{name}:80'] }}"),
    };
    let clusters: Vec<_> = clusters.iter().map(cluster).collect();
    let table = if has_table {
        "{ name: n0, hosts: [f.example], rules: [] }, { name: n1/v0, hosts: [g.example], rules: [] }, "
    } else {
        ""
    };
    format!(
        "runtime: {{ canary: {canary} }}\n\
         listeners: [{{ name: n2, address: '127.0.0.1:1', routes: r }}]\n\
         routes: [{table}{{ name: r, rules: [{}] }}]\nclusters: [{}]\n",
        rules.join(", "),
        clusters.join(", ")
    )
}

/// A resource in one of several forms; none for one that is gone.
fn form(kind: ResourceKind, name: u8, form: u8) -> String {
    let site = || "{ chain: 'secret:n0', key: 'secret:n0' }";
    match (kind, form) {
        (_, 0) => String::new(),
        // Refused.
        (_, 1) => "{ name: other }".to_owned(),
        (Cluster, 2) => {
            format!("{{ name: n{name}, endpoints: ['10.0.2.1:80'], tls: {{ verify: off }} }}")
        }
        (Cluster, 3) => {
            format!("{{ name: n{name}, endpoints: ['10.0.2.1:80'], tls: {{ ca: 'secret:n1' }} }}")
        }
        (Cluster, 5) => format!("{{ name: n{name} }}"),
        (Cluster, 6) => format!("{{ name: n{name}, tls: {{ ca: 'secret:n1' }} }}"),
        (Assignment, 2) => format!("{{ name: n{name}, endpoints: [] }}"),
        (Assignment, 3) => format!(
            "{{ name: n{name}, endpoints: [{{ address: '10.0.3.1:80', health: unhealthy }}, '10.0.3.4:80'] }}"
        ),
        (Assignment, form) => {
            format!("{{ name: n{name}, endpoints: ['10.0.3.1:80', '10.0.3.2{form}:80'] }}")
        }
        (Cluster, form) => {
            format!("{{ name: n{name}, endpoints: ['10.0.2.{form}:80', '10.0.2.9:80'] }}")
        }
        (Secret, form) => match form {
            2 | 3 => secret(
                &format!("n{name}"),
                &[("chain", "site.pem"), ("key", "site.key"), ("ca", "ca.pem")],
            ),
            4 => secret(&format!("n{name}"), &[("chain", "tenants.pem"), ("key", "tenants.key")]),
            _ => secret(&format!("n{name}"), &[("ca", "ca.pem")]),
        },
        (Route, form) => {
            let host = |host: u8, rule: &str| {
                format!("{{ name: v{host}, hosts: [h{host}.n{name}.example], rules: [{rule}] }}")
            };
            let forward = format!("{{ match: {{ prefix: / }}, cluster: n{} }}", form % 4);
            let canary =
                "{ match: { prefix: /, fraction: { percent: 10, runtime: canary } }, respond: {} }";
            let hosts = match form {
                2 => vec![],
                3 => vec![host(0, &forward)],
                4 => vec![host(0, canary), host(1, &forward)],
                _ => vec![host(1, &forward)],
            };
            format!("{{ name: n{name}, virtual_hosts: [{}] }}", hosts.join(", "))
        }
        (Listener, form) => {
            let address = format!("address: '127.0.0.1:{}'", 10 + name + 10 * (form / 5));
            let tls = format!("tls: {{ certificates: [{}] }}", site());
            match form {
                2 => format!("{{ name: n{name}, {address}, routes: n0 }}"),
                3 => format!("{{ name: n{name}, {address}, routes: [n0, n1], {tls} }}"),
                4 => format!(
                    "{{ name: n{name}, {address}, chains: [{{ name: a, match: {{ server_names: [a.example] }}, routes: n1, {tls} }}] }}"
                ),
                5 => format!("{{ name: n{name}, {address}, protocol: tcp, cluster: n1 }}"),
                _ => format!("{{ name: n{name}, {address}, routes: r }}"),
            }
        }
    }
}

/// What is seen of a configuration but for what waits: that serves as something that was before, perhaps with virtual hosts that are
/// none of `tables` any more. A cluster without the assignment that is `missing` goes on with the endpoints that it had.
fn settled(
    loader: &Loader,
    tables: &BTreeSet<String>,
    missing: &BTreeSet<ResourceName>,
) -> BTreeMap<String, String> {
    let waiting = loader.waiting().map(|(name, _)| match name.kind {
        Listener => format!("listeners \"{}\"", name.name),
        _ => format!("clusters \"{}\"", name.name),
    });
    let waiting: BTreeSet<String> = waiting.collect();
    let mut seen = seen(loader);
    // Where rules lead and what endpoints a cluster has is not said for those either.
    let names: BTreeSet<String> = waiting
        .iter()
        .filter_map(|it| Some(it.strip_prefix("clusters \"")?.trim_end_matches('"').to_owned()))
        .collect();
    let is_of = |key: &str, name: &str| {
        key.strip_prefix("endpoints ").or_else(|| key.strip_prefix("tls ")) == Some(name)
    };
    let is_missing = |key: &str| {
        let cluster = key.strip_prefix("endpoints ");
        cluster.is_some_and(|it| missing.contains(&ResourceName::new(Cluster, it)))
    };
    seen.retain(|key, _| {
        !waiting.contains(key) && !is_missing(key) && !names.iter().any(|name| is_of(key, name))
    });
    if !names.is_empty() {
        seen.retain(|key, _| !key.starts_with("targets "));
    }
    if waiting.iter().any(|key| key.starts_with("listeners ")) {
        seen.retain(|key, _| {
            let of_table = key.strip_prefix("routes \"").or_else(|| key.strip_prefix("targets "));
            let of_value = || Some(key.strip_prefix("runtime ")?.split_once(" of ")?.1);
            let of_table = of_table.or_else(of_value);
            let table = of_table.map(|table| table.trim_end_matches('"'));
            table.is_none_or(|table| !table.contains('/') || tables.contains(table))
        });
    }
    seen
}

/// Takes note of what turned out not to go with something else, and of what does again.
fn note_late(late: &mut BTreeSet<ResourceName>, verdicts: &[(Arc<str>, Verdict)]) {
    for (_, verdict) in verdicts {
        match verdict.refused {
            // It is another's now.
            Some(ref errors) if errors.to_string().contains("has precedence") => {}
            Some(_) => drop(late.insert(verdict.name.clone())),
            None => drop(late.remove(&verdict.name)),
        }
    }
}

/// How many cases: `PROPTEST_CASES` says so for this property, too, which is dear.
#[expect(
    clippy::disallowed_methods,
    reason = "as proptest does for properties without a number of their own"
)]
fn cases(usual: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(96)))]
    #[test]
    fn any_deliveries_and_texts_give_what_building_from_scratch_gives(
        steps in proptest::collection::vec(step(), 1..14)
    ) {
        let mut loader = fresh();
        loader.order_sources(vec!["1".into(), "0".into()]);
        let mut known = Known::default();
        let mut latest = text(&[], &[], false, 0);
        known.apply(&loader.load("f", &latest).unwrap());
        // What was accepted, by the order in which it came.
        let mut delivered: Vec<(u8, Update)> = Vec::new();
        let mut late = BTreeSet::new();
        let mut wanted = BTreeSet::new();
        let mut missing = BTreeSet::new();
        let mut drained: Vec<DrainChange> = Vec::new();
        let mut answered = None;
        for step in steps {
            match step {
                Step::Drained(change, at_once) => {
                    loader.note_drained(std::slice::from_ref(&change));
                    if at_once && let Some(prepared) = loader.prepare_noted() {
                        known.apply(&loader.keep(prepared));
                    }
                    drained.push(change);
                }
                Step::Answers(form, at_once) => {
                    loader.note_answers(vec![answer(form)]);
                    if at_once && let Some(prepared) = loader.prepare_noted() {
                        known.apply(&loader.keep(prepared));
                    }
                    answered = Some(form);
                }
                Step::Waited => {
                    let names = loader.waiting().map(|(name, _)| name.clone()).collect();
                    let done = loader.prepare_waited(&names, &[], &sample::outside());
                    note_late(&mut late, &done.late);
                    note_missing(&mut missing, done.waits);
                    let NamesChanged { new, gone } = done.wanted;
                    prop_assert!(gone.iter().all(|name| wanted.remove(name)));
                    wanted.extend(new);
                    if let Some(prepared) = done.prepared {
                        known.apply(&loader.keep(prepared));
                    }
                    prop_assert_eq!(loader.waiting().count(), 0);
                }
                Step::Text { clusters, rules, has_table, canary } => {
                    latest = text(&clusters, &rules, has_table, canary);
                    let prepared = loader.prepare("f", &latest, &sample::outside()).unwrap();
                    note_late(&mut late, prepared.late());
                    note_missing(&mut missing, prepared.waits());
                    wanted.clone_from(prepared.wanted());
                    known.apply(&loader.keep(prepared));
                    delivered.retain(|(_, it)| match it.kind {
                        Cluster => !latest.contains(&format!("{{ name: {}, endpoints", it.name)),
                        Route => !has_table
                            || &*it.name != "n0"
                                && !(&*it.name == "n1" && it.content.as_ref().is_some_and(|it| it.contains("name: v0"))),
                        Listener => &*it.name != "n2",
                        Assignment | Secret => true,
                    });
                }
                Step::Updates(source, updates) => {
                    let updates: Vec<Update> = updates
                        .into_iter()
                        .map(|(kind, name, it)| of(kind, &format!("n{name}"), "1", &form(kind, name, it)))
                        .collect();
                    let done = loader.prepare_updates(
                        &source.to_string().into(), updates.clone(), &[], &sample::outside(),
                    );
                    note_late(&mut late, &done.late);
                    note_missing(&mut missing, done.waits);
                    let NamesChanged { new, gone } = done.wanted;
                    prop_assert!(new.iter().all(|name| !wanted.contains(name)));
                    prop_assert!(gone.iter().all(|name| wanted.remove(name)));
                    wanted.extend(new);
                    for verdict in done.verdicts.iter().filter(|it| it.refused.is_none()) {
                        let is_it = |it: &Update| it.kind == verdict.name.kind && *it.name == *verdict.name.name;
                        let last = updates.iter().rfind(|it| is_it(it)).unwrap();
                        let is_anothers = delivered.iter().any(|(of, it)| is_it(it) && *of != source);
                        if last.content.is_none() && is_anothers {
                            continue;
                        }
                        delivered.retain(|(_, it)| !is_it(it));
                        late.remove(&verdict.name);
                        delivered.extend(last.content.is_some().then(|| (source, last.clone())));
                    }
                    if let Some(prepared) = done.prepared {
                        known.apply(&loader.keep(prepared));
                    }
                }
            }
            prop_assert_eq!(&known, &Known::of(loader.snapshot_latest().unwrap()));
        }
        if let Some(prepared) = loader.prepare_noted() {
            known.apply(&loader.keep(prepared));
            prop_assert_eq!(&known, &Known::of(loader.snapshot_latest().unwrap()));
        }
        let same = loader.prepare("f", &latest, &sample::outside()).unwrap();
        prop_assert_eq!(&wanted, same.wanted());
        // Of what turned out to be wrong together with something else, a former version serves.
        if late.is_empty() {
            let mut scratch = fresh();
            scratch.load("f", &latest).unwrap();
            if let Some(prepared) = scratch.prepare_drained(&drained) {
                scratch.keep(prepared);
            }
            let answers = answered.into_iter().map(answer).collect();
            if let Some(prepared) = scratch.prepare_answers(answers) {
                scratch.keep(prepared);
            }
            for (source, update) in &delivered {
                let (_, verdicts) = deliver(&mut scratch, &source.to_string(), vec![update.clone()]);
                prop_assert!(verdicts[0] == "ok" || verdicts[0].starts_with("waits"), "{}", verdicts[0]);
            }
            if let Some(prepared) = scratch.prepare_waited(&missing, &[], &sample::outside()).prepared {
                scratch.keep(prepared);
            }
            let tables = scratch.snapshot_latest().unwrap().route_tables.iter();
            let tables: BTreeSet<String> = tables.map(|(_, it)| it.name.to_string()).collect();
            prop_assert_eq!(settled(&loader, &tables, &missing), settled(&scratch, &tables, &missing));
            let waiting = |loader: &Loader| -> Vec<ResourceName> {
                loader.waiting().map(|(name, _)| name.clone()).collect()
            };
            prop_assert_eq!(waiting(&loader), waiting(&scratch));
        }
    }
}
