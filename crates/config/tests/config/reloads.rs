//! Reloads of a text of which most clusters stay as they are, with everything beside the text that decides about them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use config::outside::{EndpointsFile, Memory};
use config::snapshot::{Cluster, DnsAnswer, DnsName, Resolved, Snapshot};
use config::{Outside, Prepared};

use crate::sample::{self, CERTIFICATES, Headers};

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

const TEXT: &str = "
listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]
routes:
- name: all
  rules:
  - { match: { prefix: /a }, clusters: [{ cluster: checked }, { cluster: shows }, { cluster: listed }, { cluster: logical }] }
  - { match: { prefix: / }, clusters: [{ cluster: named }, { cluster: mixed }, { cluster: plain }, { cluster: old }] }
clusters:
- { name: checked, endpoints: ['10.0.0.1:443'], tls: { ca: ca.pem, crl: ca.crl, server_name: Checked.example } }
- { name: shows, endpoints: ['10.0.0.1:443'], tls: { server_name: a.example, certificate: { chain: client.pem, key: client.key } } }
- { name: old, endpoints: ['10.0.0.1:443'], tls: { server_name: a.example, max_version: '1.2' } }
- { name: listed, endpoints: { file: list.yaml }, tls: { ca: ca.pem, names: [a.example] } }
- { name: named, endpoints: { dns: 'named.internal:80' } }
- { name: logical, endpoints: { dns: 'logical.internal:80', mode: logical } }
- { name: mixed, endpoints: ['10.0.0.1:80', 'mixed.internal:80'], tls: { ca: ca.pem } }
- { name: plain, endpoints: ['10.0.0.1:80'] }
";

const ALL: usize = 8;

/// Files, and the paths that were asked for.
#[derive(Default)]
struct Asked {
    files: Memory,
    paths: RefCell<BTreeSet<PathBuf>>,
}

impl Outside for Asked {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        self.paths.borrow_mut().insert(path.to_owned());
        self.files.read(path)
    }

    fn read_endpoints(&self, path: &Path) -> std::io::Result<EndpointsFile> {
        self.paths.borrow_mut().insert(path.to_owned());
        self.files.read_endpoints(path)
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        self.files.mode(path)
    }

    fn system_roots(&self) -> Result<::tls::Roots, ::tls::RootsError> {
        self.files.system_roots()
    }

    fn now(&self) -> u64 {
        self.files.now()
    }
}

fn outside() -> Memory {
    let mut outside = sample::outside();
    outside.insert("list.yaml", "- 10.0.0.1:443\n");
    outside
}

fn answer(host: &str, address: &str) -> DnsAnswer {
    let (weight, address) = (std::num::NonZeroU16::MIN, address.parse().unwrap());
    [Resolved { address, weight, priority: 0, host: host.into() }].into_iter().collect()
}

fn name_of(snapshot: &Loaded, of: &str) -> Arc<DnsName> {
    Arc::clone(cluster(snapshot, of).endpoints_from.names().next().unwrap())
}

fn cluster<'s>(snapshot: &'s Loaded, name: &str) -> &'s Arc<Cluster> {
    snapshot.clusters.iter().find(|(_, cluster)| &*cluster.name == name).unwrap().1
}

fn addresses(snapshot: &Loaded, name: &str) -> Vec<String> {
    cluster(snapshot, name).endpoints.iter().map(|it| it.address.to_string()).collect()
}

/// A loader that has loaded the text, and has an answer for each name.
fn loaded(outside: &Memory) -> (Loader, Loaded) {
    let mut loader = Loader::new(sample::kinds()).unwrap();
    let first = loader.prepare("f", TEXT, outside).unwrap();
    assert_eq!(first.clusters_lowered(), ALL);
    let first = loader.keep(first);
    let answers = ["named", "logical", "mixed"].map(|of| {
        let name = name_of(&first, of);
        let answer = answer(&name.host, "10.0.1.1:80");
        (name, Some(answer))
    });
    let answered = loader.prepare_answers(answers.into()).unwrap();
    let answered = loader.keep(answered);
    (loader, answered)
}

fn names(prepared: &Prepared<Headers>) -> BTreeSet<String> {
    prepared.names().unwrap().map(ToString::to_string).collect()
}

#[test]
fn clusters_that_stay_are_not_lowered_again_and_ask_for_what_they_asked_for() {
    let asked = Asked { files: outside(), ..Asked::default() };
    let first = Loader::new(sample::kinds()).unwrap().prepare("f", TEXT, &asked).unwrap();
    let (of_first, first_paths) = (names(&first), asked.paths.take());
    assert_eq!((of_first.len(), first_paths.len()), (3, 5), "{first_paths:?}");

    let (mut loader, before) = loaded(&asked.files);
    asked.paths.take();
    let text = TEXT.replace("name: plain, endpoints: ['10", "name: plain, endpoints: ['11");
    let next = loader.prepare("f", &text, &asked).unwrap();
    assert_eq!(next.clusters_lowered(), 1);
    assert_eq!(names(&next), of_first);
    assert_eq!(asked.paths.take(), first_paths);
    assert_eq!(next.endpoints_read().len(), 1);
    assert_eq!(next.unanswered(), []);
    let next = loader.keep(next);
    assert_eq!(next.changes.clusters_changed, [cluster(&before, "plain").id]);
    for (_, cluster) in before.clusters.iter().filter(|(_, it)| &*it.name != "plain") {
        assert!(Arc::ptr_eq(cluster, next.cluster(cluster.id).unwrap()), "{}", cluster.name);
    }

    // They still have the endpoints that come later.
    let mut files = outside();
    files.insert("list.yaml", "- 10.0.0.2:443\n");
    let read = loader.prepare_endpoints(&[Arc::from("list.yaml")], &files).prepared.unwrap();
    let next = loader.keep(read);
    assert_eq!(addresses(&next, "listed"), ["10.0.0.2:443"]);
    for of in ["named", "logical", "mixed"] {
        let name = name_of(&next, of);
        let answers = vec![(Arc::clone(&name), Some(answer(&name.host, "10.0.2.2:80")))];
        let answered = loader.prepare_answers(answers).unwrap();
        let next = loader.keep(answered);
        assert_eq!(addresses(&next, of).last().unwrap(), "10.0.2.2:80", "{of}");
    }
    let same = loader.prepare("f", &text, &files).unwrap();
    assert_eq!((same.clusters_lowered(), same.snapshot().version), (0, 8));
}

#[test]
fn what_decides_about_a_cluster_beside_its_text_has_it_lowered_again() {
    let file = |name: &str| CERTIFICATES.iter().find(|(known, _)| *known == name).unwrap().1;
    let twice = |name: &str| format!("{0}{0}", file(name));
    let path = |at: &str| PathBuf::from(at);
    let renew = |it: &mut Memory| {
        it.insert("client.pem", file("site.pem"));
        it.insert("client.key", file("site.key"));
    };
    type Change<'a> = &'a dyn Fn(&mut Memory);
    for (change, lowered, changed) in [
        (&(|_: &mut Memory| ()) as Change<'_>, 0, &[][..]),
        (&|it| it.insert("ca.pem", twice("ca.pem")), 3, &["checked", "listed", "mixed"]),
        (&|it| it.insert("ca.crl", twice("ca.crl")), 1, &["checked"]),
        (&renew, 1, &["shows"]),
        (&|it| it.insert("list.yaml", "- 10.0.0.2:443\n"), 1, &["listed"]),
        // A remark is no other list, and one that is wrong keeps the last good one.
        (&|it| it.insert("list.yaml", "- 10.0.0.1:443 # here\n"), 1, &[]),
        (&|it| it.insert("list.yaml", "- nowhere\n"), 0, &[]),
        (&|it| it.remove(&path("list.yaml")), 0, &[]),
        // Warned about, each time.
        (&|it| it.set_mode("client.key", 0o644), 0, &[]),
    ] {
        let (mut loader, before) = loaded(&outside());
        let mut files = outside();
        change(&mut files);
        let next = loader.prepare("f", TEXT, &files).unwrap();
        assert_eq!(next.clusters_lowered(), lowered, "{changed:?}");
        let now = loader.keep(next);
        let mut names: Vec<&str> = now
            .changes
            .clusters_changed
            .iter()
            .map(|id| &*now.cluster(*id).unwrap().name)
            .collect();
        names.sort_unstable();
        assert_eq!(names, changed);
        assert_eq!(now.changes.transports_changed, [], "{changed:?}");
        for (_, cluster) in before.clusters.iter().filter(|(_, it)| !changed.contains(&&*it.name)) {
            assert!(Arc::ptr_eq(cluster, now.cluster(cluster.id).unwrap()), "{}", cluster.name);
        }
        // What is warned about is said again.
        let again = loader.prepare("f", TEXT, &files).unwrap();
        assert_eq!(again.clusters_lowered(), 0, "{changed:?}");
        assert_eq!(again.warnings(), loader.warnings());
    }
    let (loader, _) = loaded(&outside());
    let mut files = outside();
    files.set_mode("client.key", 0o644);
    let next = loader.prepare("f", TEXT, &files).unwrap();
    let is_about_key = |path: &str| path.ends_with("tls.certificate.key");
    assert!(next.warnings().iter().any(|it| is_about_key(&it.path)), "{:?}", next.warnings());
    // A file that is gone is a mistake of the text that names it.
    let (loader, _) = loaded(&outside());
    let mut files = outside();
    files.remove(&path("ca.pem"));
    let errors = loader.prepare("f", TEXT, &files).unwrap_err();
    let places: Vec<&str> = errors.errors.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(places, ["clusters[0].tls.ca", "clusters[3].tls.ca", "clusters[6].tls.ca"]);
}

#[test]
fn the_file_of_an_ocsp_response_that_is_named_now_is_read_though_it_holds_the_same() {
    let mut files = outside();
    let response = CERTIFICATES.iter().find(|(name, _)| *name == "site.ocsp").unwrap().1;
    files.insert("other.ocsp", response);
    let asked = Asked { files, ..Asked::default() };
    let text = |ocsp: &str| {
        let files = format!("{{ chain: site.pem, key: site.key, ocsp: {ocsp} }}");
        TEXT.replace("{ chain: client.pem, key: client.key }", &files)
    };
    let mut loader = Loader::new(sample::kinds()).unwrap();
    for text in [text("site.ocsp"), text("other.ocsp")] {
        let next = loader.prepare("f", &text, &asked).unwrap();
        loader.keep(next);
    }
    asked.paths.take();
    let same = loader.prepare("f", &text("other.ocsp"), &asked).unwrap();
    assert_eq!(same.clusters_lowered(), 0);
    let paths = asked.paths.take();
    let is_read = |name: &str| paths.contains(Path::new(name));
    assert!(is_read("other.ocsp") && !is_read("site.ocsp"), "{paths:?}");
}

#[test]
fn a_certificate_that_will_end_soon_is_warned_about_although_nothing_changed() {
    let (mut loader, before) = loaded(&outside());
    let source = cluster(&before, "shows").transports.own().tls.as_ref().unwrap();
    let end = source.source.certificate.as_ref().unwrap().certificate.not_after();
    let mut later = Memory::new(end - 86_400);
    for (name, content) in CERTIFICATES {
        later.insert(name, content);
    }
    later.insert("list.yaml", "- 10.0.0.1:443\n");
    let next = loader.prepare("f", TEXT, &later).unwrap();
    assert_eq!(next.clusters_lowered(), 0);
    let warned: Vec<&str> = next.warnings().iter().map(|it| it.path.as_str()).collect();
    assert!(warned.contains(&"clusters[1].tls.certificate.chain"), "{warned:?}");
    let now = loader.keep(next);
    assert!(Arc::ptr_eq(cluster(&before, "shows"), cluster(&now, "shows")));
}

/// Clusters that look like mistakes, each by itself.
const WARNED: &str = "
listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster_header: x-cluster }] }]
clusters:
- { name: plain, endpoints: ['10.0.0.1:80'] }
- { name: open, endpoints: ['10.0.0.1:443'], tls: { verify: off } }
- name: idle
  endpoints:
  - { address: '10.0.0.1:80', weight: 0 }
- name: both
  endpoints: ['10.0.0.1:443', { address: '10.0.0.2:443', metadata: { v: '1' } }]
  transports:
  - { name: other, match: { v: '2' } }
  - name: first
    match: { v: '1' }
    tls:
      verify: off
";

/// Where each warning stands.
fn places(prepared: &Prepared<Headers>) -> Vec<(&str, u32, &str)> {
    let warnings = prepared.warnings().iter();
    warnings.map(|it| (&*it.file, it.line, it.path.as_str())).collect()
}

#[test]
fn clusters_with_warnings_stay_and_are_warned_of_where_they_stand_now() {
    let mut loader = Loader::new(sample::kinds()).unwrap();
    let first = loader.prepare("f", WARNED, &outside()).unwrap();
    let at_first = [
        ("f", 6, "clusters[1].tls.verify"),
        ("f", 9, "clusters[2].endpoints"),
        ("f", 13, "clusters[3].transports[0].match"),
        ("f", 17, "clusters[3].transports[1].tls.verify"),
    ];
    assert_eq!(places(&first), at_first);
    let before = loader.keep(first);

    let mut files = outside();
    let (above, rest) = WARNED.split_once("- name: idle").unwrap();
    files.insert("more.yaml", format!("# idle and both\n\nclusters:\n- name: idle{rest}"));
    let remark = "\n# One remark,\n# and another.\n";
    let other = WARNED.replace("name: plain, endpoints: ['10", "name: plain, endpoints: ['11");
    let moved =
        other.replace("- name: idle", "- { name: new, endpoints: ['10.0.0.1:80'] }\n- name: idle");
    let wide = WARNED.replace("tls: { verify: off }", "tls: {\n    verify:   'off' }");
    for (text, lowered, lines, in_list) in [
        (WARNED.to_owned(), 0, [6, 9, 13, 17], [1, 2, 3]),
        (format!("{remark}{other}"), 1, [9, 12, 16, 20], [1, 2, 3]),
        (format!("{remark}{moved}"), 2, [9, 13, 17, 21], [1, 3, 4]),
        // Quotes are another text.
        (wide, 1, [7, 10, 14, 18], [1, 2, 3]),
    ] {
        let next = loader.prepare("f", &text, &outside()).unwrap();
        assert_eq!(next.clusters_lowered(), lowered, "{text}");
        let paths = [
            format!("clusters[{}].tls.verify", in_list[0]),
            format!("clusters[{}].endpoints", in_list[1]),
            format!("clusters[{}].transports[0].match", in_list[2]),
            format!("clusters[{}].transports[1].tls.verify", in_list[2]),
        ];
        let expected: Vec<_> =
            lines.iter().zip(&paths).map(|(line, path)| ("f", *line, path.as_str())).collect();
        assert_eq!(places(&next), expected, "{text}");
        let alone = Loader::new(sample::kinds()).unwrap().prepare("f", &text, &outside()).unwrap();
        assert_eq!(next.warnings(), alone.warnings(), "{text}");
        for name in ["idle", "both"] {
            assert!(Arc::ptr_eq(cluster(&before, name), cluster(next.snapshot(), name)), "{name}");
        }
    }

    // In another file.
    let text = format!("include: [more.yaml]{above}");
    let next = loader.prepare("f", &text, &files).unwrap();
    assert_eq!(next.clusters_lowered(), 0);
    let included = [
        ("f", 6, "clusters[1].tls.verify"),
        ("more.yaml", 6, "clusters[2].endpoints"),
        ("more.yaml", 10, "clusters[3].transports[0].match"),
        ("more.yaml", 14, "clusters[3].transports[1].tls.verify"),
    ];
    assert_eq!(places(&next), included);

    // And once more, of a snapshot for which none of them was lowered.
    let now = loader.keep(next);
    let next = loader.prepare("f", WARNED, &outside()).unwrap();
    assert_eq!((next.clusters_lowered(), places(&next)), (0, at_first.to_vec()));
    assert!(Arc::ptr_eq(cluster(&before, "both"), cluster(&now, "both")));
}

#[test]
fn clusters_beyond_the_bound_of_warnings_stay_and_are_warned_of_once_there_is_room() {
    const ALL: usize = config::FINDINGS_MAX + 3;
    let text = |first: usize| {
        let mut text = "clusters:\n".to_owned();
        for number in first..ALL {
            let _ = writeln!(
                text,
                "- {{ name: c{number}, endpoints: ['10.0.0.1:443'], tls: {{ verify: off }} }}"
            );
        }
        let rules = "[{ match: { prefix: / }, cluster_header: x-cluster }]";
        format!(
            "listeners: [{{ name: edge, address: '127.0.0.1:1', routes: all }}]\nroutes: [{{ name: all, rules: {rules} }}]\n{text}"
        )
    };
    let mut loader = Loader::new(sample::kinds()).unwrap();
    loader.load_with("f", &text(0), &outside()).unwrap();
    assert_eq!(loader.warnings().len(), config::FINDINGS_MAX);
    let again = loader.prepare("f", &text(0), &outside()).unwrap();
    assert_eq!((again.clusters_lowered(), again.warnings()), (0, loader.warnings()));
    loader.keep(again);
    let last = loader.prepare("f", &text(ALL - 1), &outside()).unwrap();
    assert_eq!(last.clusters_lowered(), 0);
    assert_eq!(places(&last), [("f", 4, "clusters[0].tls.verify")]);
}

#[test]
fn a_cluster_that_bytes_are_relayed_to_from_now_on_is_lowered_again() {
    let (mut loader, before) = loaded(&outside());
    let has_relay = |snapshot: &Loaded, name: &str| {
        cluster(snapshot, name).transports.own().tls.as_ref().unwrap().relay_context.is_some()
    };
    let relays = TEXT.replace(
        "routes: all }]",
        "routes: all }, { name: raw, address: '127.0.0.1:2', protocol: tcp, cluster: old }]",
    );
    for (text, is_relayed_to) in [(relays.as_str(), true), (TEXT, false)] {
        let next = loader.prepare("f", text, &outside()).unwrap();
        assert_eq!(next.clusters_lowered(), 1);
        let now = loader.keep(next);
        assert_eq!(has_relay(&now, "old"), is_relayed_to);
        // What it said without defaults is what counts.
        assert_eq!(cluster(&now, "old").source, cluster(&before, "old").source);
        assert_eq!(now.changes.transports_changed, []);
    }
}

#[test]
fn an_answer_that_was_not_kept_and_other_servers_count_with_the_next_text() {
    let (mut loader, before) = loaded(&outside());
    let name = name_of(&before, "named");
    let other = answer(&name.host, "10.0.3.3:80");
    drop(loader.prepare_answers(vec![(Arc::clone(&name), Some(other))]).unwrap());
    let text = format!("resolvers: {{ servers: ['127.0.0.1:5353'], timeout: 3s }}\n{TEXT}");
    let next = loader.prepare("f", &text, &outside()).unwrap();
    assert_eq!(next.clusters_lowered(), 1);
    assert_eq!(names(&next).len(), 3);
    let now = loader.keep(next);
    assert_eq!(addresses(&now, "named"), ["10.0.3.3:80"]);
    assert_eq!(now.resolvers.servers[..], ["127.0.0.1:5353".parse().unwrap()]);
    // A name that is asked for no more has no answer.
    assert!(loader.prepare_answers(vec![(name, None)]).is_none());
    let next = loader.prepare("f", &text, &outside()).unwrap();
    assert_eq!((next.clusters_lowered(), next.unanswered().len()), (1, 1));
}

#[test]
fn answers_that_wait_are_not_for_what_a_cluster_is_by_then() {
    let (mut loader, before) = loaded(&outside());
    let name = name_of(&before, "named");
    let other = answer(&name.host, "10.0.3.3:80");
    loader.note_answers(vec![(name, Some(other))]);
    let text = TEXT.replace("{ dns: 'named.internal:80' }", "['10.0.7.7:80']");
    let next = loader.prepare("f", &text, &outside()).unwrap();
    assert_eq!(addresses(&loader.keep(next), "named"), ["10.0.7.7:80"]);
}

#[test]
#[ignore = "a measurement: cargo test --release -p config --test config reload_of_5000 -- --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn a_reload_of_5000_clusters_with_tls_takes_as_long_as_it_says() {
    let with_files = "ca: ca.pem, certificate: { chain: client.pem, key: client.key }";
    for tls in [with_files, "verify: off"] {
        let mut clusters = String::new();
        for number in 0..5000 {
            let (a, b) = (number / 250, number % 250);
            let _ = writeln!(
                clusters,
                "- {{ name: c{number}, endpoints: ['10.0.{a}.{b}:443', '10.1.{a}.{b}:443'], \
                 tls: {{ server_name: c{number}.example, {tls} }} }}",
            );
        }
        let text = |last: &str| {
            format!(
                "listeners: [{{ name: edge, address: '127.0.0.1:1', routes: all }}]\n\
                 routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster_header: x-cluster }}] }}]\n\
                 clusters:\n{clusters}- {{ name: last, endpoints: ['{last}'] }}\n"
            )
        };
        let mut loader = Loader::new(sample::kinds()).unwrap();
        let mut times = Vec::new();
        for number in 1..=9 {
            let text = text(&format!("10.9.9.{number}:80"));
            let began = Instant::now();
            loader.load_with("f", &text, &outside()).unwrap();
            times.push(began.elapsed());
        }
        println!("{tls}: first {:?}, then {:?}", times[0], &times[1..]);
    }
}
