//! Texts one after the other: whatever changed and whatever stayed, each is what it is to a loader that has seen no
//! other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU16;
use std::sync::{Arc, LazyLock};

use config::outside::Memory;
use config::snapshot::{DnsAnswer, DnsMode, DnsName, Resolved};
use proptest::prelude::*;

use crate::loads::Known;
use crate::sample::{self, CERTIFICATES, Headers};

type Loader = config::Loader<Headers>;

/// An entry by its name, in one of several forms.
type Entries = Vec<(u8, u8)>;

/// A text: its clusters and its tables, with the clusters that these name.
#[derive(Clone, Debug, Default)]
struct Text {
    clusters: Entries,
    tables: Vec<(u8, u8, u8)>,
    remark: bool,
    runtime: Option<u8>,
}

fn text() -> impl Strategy<Value = Text> {
    // Most forms are sound.
    let form = || prop_oneof![8 => 0u8..7, 1 => Just(7)];
    let of_cluster = prop_oneof![14 => 0u8..14, 1 => Just(14)];
    let clusters = proptest::collection::btree_map(0u8..4, of_cluster, 2..5);
    let tables = proptest::collection::btree_map(0u8..3, (form(), 0u8..4), 0..4);
    let runtime = proptest::option::of(0u8..2);
    (clusters, tables, any::<bool>(), runtime).prop_map(|(clusters, tables, remark, runtime)| {
        Text {
            runtime,
            clusters: clusters.into_iter().collect(),
            tables: tables
                .into_iter()
                .map(|(name, (form, cluster))| (name, form, cluster))
                .collect(),
            remark,
        }
    })
}

fn cluster(form: u8) -> &'static str {
    match form {
        0 | 1 => "endpoints: ['10.0.0.1:80']",
        2 => "endpoints: ['10.0.0.1:80', { address: '10.0.0.2:80', weight: 3 }]",
        // Warned about.
        3 => "endpoints: [{ address: '10.0.0.1:80', weight: 0 }]",
        4 => "endpoints: { file: list.yaml }",
        5 => "endpoints: ['10.0.0.1:80'], tls: { verify: off }",
        6 => "endpoints: ['${HOST}:80']",
        7 => "endpoints: { dns: 'a.internal:80' }",
        8 => "endpoints: ['10.0.0.1:80', 'b.internal:80'], tls: { ca: ca.pem }",
        9 => {
            "endpoints: ['10.0.0.1:80'], tls: { ca: ca.pem, server_name: a.example, max_version: '1.2' }"
        }
        10 => {
            "endpoints: { file: list.yaml }, tls: { certificate: { chain: client.pem, key: client.key } }"
        }
        11 => "endpoints: { dns: 'b.internal:80', mode: logical }, tls: { }",
        // Warned about by itself, and together with rules.
        12 => {
            "endpoints: ['10.0.0.1:80', { address: '10.0.0.2:80', metadata: { v: '1' } }], balance: maglev, tls: { verify: off }, \
             transports: [{ name: a, match: { v: '1' }, tls: { verify: off } }, { name: b, match: { v: '2' } }]"
        }
        13 => {
            "endpoints: [{ address: '10.0.0.1:80', weight: 0 }, { address: 'a.internal:80', weight: 0 }], \
             subsets: { by: [[v]] }, localities: { weights: { eu: 0 } }"
        }
        // Refused.
        _ => "endpoints: ['10.0.0.1:0']",
    }
}

/// What there is beside a text.
fn beside() -> impl Strategy<Value = [u8; 4]> {
    [0u8..2, 0u8..2, 0u8..2, 0u8..3]
}

/// Names with the answers that there are.
type Answers = Vec<(Arc<DnsName>, Option<DnsAnswer>)>;

/// The host names of clusters.
static NAMES: LazyLock<Vec<Arc<DnsName>>> = LazyLock::new(|| {
    let loader = Loader::new(sample::kinds()).unwrap();
    let names = [7, 8, 11].into_iter().flat_map(|form| {
        let text = write(&Text { clusters: vec![(0, form)], ..Text::default() });
        let prepared = loader.prepare("f", &text, &sample::outside()).unwrap();
        prepared.names().unwrap().map(Arc::clone).collect::<Vec<_>>()
    });
    names.collect()
});

/// The files in one of several forms each, and the answers that there are of names.
fn outside(beside: [u8; 4]) -> (Memory, Answers) {
    let [ca, client, list, answer] = beside;
    let mut outside = sample::outside();
    let file = |name: &str| CERTIFICATES.iter().find(|(known, _)| *known == name).unwrap().1;
    outside.insert("ca.pem", file("ca.pem").repeat(1 + usize::from(ca)));
    if client == 1 {
        outside.insert("client.pem", file("site.pem"));
        outside.insert("client.key", file("site.key"));
    }
    outside.insert("list.yaml", format!("- 10.0.0.{}:80\n", 7 + list));
    outside.set_mode("client.key", if list == 1 { 0o644 } else { 0o600 });
    outside.set_variable("HOST", "10.0.0.8");
    let answers = NAMES.iter().map(|name| {
        // All requests to a logical name go to one address.
        let all = match name.mode {
            DnsMode::Logical => answer.saturating_sub(1)..answer,
            DnsMode::Strict | DnsMode::Srv => 0..answer,
        };
        let resolved = all.map(|last| Resolved {
            address: format!("10.0.4.{last}:80").parse().unwrap(),
            weight: NonZeroU16::MIN,
            priority: 0,
            host: Arc::clone(&name.host),
        });
        (Arc::clone(name), Some(resolved.collect()))
    });
    let answers = answers.collect();
    (outside, answers)
}

fn rules(form: u8, cluster: u8) -> String {
    match form {
        0 | 1 => format!("[{{ match: {{ prefix: / }}, cluster: c{cluster} }}]"),
        2 => format!(
            "[{{ match: {{ path: /a }}, respond: {{}} }}, {{ match: {{ prefix: / }}, clusters: \
             [{{ cluster: c{cluster}, weight: 2 }}, {{ cluster: c0 }}] }}]"
        ),
        3 => "[{ match: { prefix: / }, cluster_header: x-cluster }]".to_owned(),
        // Warned about.
        4 => format!("[{{ match: {{ prefix: / }}, cluster: c{cluster}, upgrades: [websocked] }}]"),
        5 => {
            "[{ match: { prefix: /a, fraction: { percent: 10, runtime: canary } }, respond: {} }, \
             { match: { prefix: / }, redirect: { scheme: https } }]"
                .to_owned()
        }
        6 => format!(
            "[{{ match: {{ regex: '/x.*', headers: {{ a: {{ regex: 'b+' }} }} }}, cluster: c{cluster}, upgrades: [connect] }}]"
        ),
        // Refused.
        _ => "[{ match: { prefix: a }, respond: {} }]".to_owned(),
    }
}

fn write(text: &Text) -> String {
    let mut out = if text.remark { "# remark\n".to_owned() } else { String::new() };
    if let Some(value) = text.runtime {
        let _ = writeln!(out, "runtime: {{ canary: {value} }}");
    }
    let names: Vec<String> = text.tables.iter().map(|(name, ..)| format!("t{name}")).collect();
    match names.is_empty() {
        true => out.push_str("listeners: []\n"),
        false => {
            let routes = names.join(", ");
            let _ = writeln!(
                out,
                "listeners: [{{ name: l, address: '127.0.0.1:1', routes: [{routes}] }}]"
            );
        }
    }
    out.push_str("routes:\n");
    for (name, form, cluster) in &text.tables {
        let rules = rules(*form, *cluster);
        let _ = writeln!(out, "- {{ name: t{name}, hosts: [t{name}.example], rules: {rules} }}");
    }
    if text.tables.is_empty() {
        out = out.replace("routes:\n", "");
    }
    out.push_str(if text.clusters.is_empty() { "" } else { "clusters:\n" });
    for (name, form) in &text.clusters {
        let _ = writeln!(out, "- {{ name: c{name}, {} }}", cluster(*form));
    }
    out
}

/// What is seen of a configuration, whatever its ids are: entries by name.
pub(crate) fn seen(loader: &Loader) -> BTreeMap<String, String> {
    let Some(snapshot) = loader.snapshot_latest() else { return BTreeMap::new() };
    let shown = config::effective(snapshot);
    let mut seen = BTreeMap::new();
    for section in ["listeners", "routes", "clusters"] {
        for entry in shown[section].as_array().unwrap() {
            seen.insert(format!("{section} {}", entry["name"]), entry.to_string());
        }
    }
    for (_, table) in snapshot.route_tables.iter() {
        let name = |id| match snapshot.cluster(id) {
            Some(cluster) => cluster.name.to_string(),
            None => "none".to_owned(),
        };
        let rules = table.rules.iter().map(|rule| match &rule.action {
            config::snapshot::Action::Forward(it) => {
                let mut names: Vec<_> = it.target.clusters().map(name).collect();
                names.sort();
                names.join(" ")
            }
            _ => String::new(),
        });
        for used in &table.runtime {
            let value = format!("{:?} {:?}", used.value(), snapshot.runtime.iter().next());
            seen.insert(format!("runtime {} of {}", used.cell.name(), table.name), value);
        }
        seen.insert(format!("targets {}", table.name), rules.collect::<Vec<_>>().join(";"));
    }
    for (_, cluster) in snapshot.clusters.iter() {
        let endpoints = cluster
            .endpoints
            .iter()
            .map(|it| format!("{:?} {} {}", it.address, it.weight, it.is_drained));
        let endpoints: Vec<_> = endpoints.collect();
        seen.insert(format!("endpoints {}", cluster.name), endpoints.join(";"));
        let tls = cluster.transports.tls().map(|tls| {
            let roots = tls.source.roots.as_ref().map(|it| it.roots.len());
            let certificate = tls.source.certificate.as_ref();
            let shown = certificate.map(|it| it.certificate.fingerprint());
            format!("{roots:?} {shown:?} {}", tls.relay_context.is_some())
        });
        seen.insert(format!("tls {}", cluster.name), tls.collect());
    }
    seen
}

proptest! {
    #[test]
    fn any_sequence_of_texts_gives_what_each_gives_alone(
        steps in proptest::collection::vec((text(), beside(), any::<bool>()), 1..8)
    ) {
        let mut loader = Loader::new(sample::kinds()).unwrap();
        let mut known = Known::default();
        for (text, beside, is_kept) in steps {
            let text = write(&text);
            let (outside, answers) = outside(beside);
            let mut alone = Loader::new(sample::kinds()).unwrap();
            prop_assert!(alone.prepare_answers(answers.clone()).is_none());
            // An answer counts with the next text where it could not be taken up.
            if let Some(prepared) = loader.prepare_answers(answers)
                && is_kept
            {
                known.apply(&loader.keep(prepared));
            }
            let alone_loaded = alone.load_with("f", &text, &outside);
            match (loader.load_with("f", &text, &outside), alone_loaded) {
                (Ok(snapshot), Ok(_)) => {
                    known.apply(&snapshot);
                    prop_assert_eq!(&known, &Known::of(&snapshot));
                    prop_assert_eq!(seen(&loader), seen(&alone), "{}", text);
                    prop_assert_eq!(loader.warnings(), alone.warnings(), "{}", text);
                }
                (now, alone) => {
                    prop_assert_eq!(now.err(), alone.err(), "{}", text);
                }
            }
        }
    }
}
