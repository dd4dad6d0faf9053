//! Several changes at a time: they are linked together, and each keeps its own verdict.

use config::snapshot::{DnsName, Resolved};
use config::{FilterKinds, Loader, ResourceKind};

use super::*;
use crate::scratch::Scratch;

const CONFIG: &str = "
listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, clusters: [{ cluster: named }, { cluster: web }, { cluster: listed }] }] }]
clusters:
- { name: named, endpoints: { dns: 'a.internal:80' } }
- { name: web, endpoints: ['10.0.0.1:80', '10.0.0.2:80'] }
- { name: listed, endpoints: { file: list.yaml } }
";

/// A builder of a process that serves the text, its answers, and the file's folder.
fn start(scratch: &Scratch) -> (Builder<()>, mpsc::Receiver<Built<()>>, Arc<DnsName>) {
    std::fs::write(scratch.0.join("strait.yaml"), CONFIG).unwrap();
    std::fs::write(scratch.0.join("list.yaml"), "['10.0.5.1:80']").unwrap();
    let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
    loader.expect_sources();
    let mut file = ConfigFile::new(&scratch.0.join("strait.yaml"), loader);
    let candidate = file.load().unwrap();
    let name = candidate.host_names().into_iter().next().unwrap();
    file.keep(candidate);
    let (builder, built) = Builder::start(file).unwrap();
    (builder, built, name)
}

fn answer(name: &Arc<DnsName>, address: &str) -> Vec<Change> {
    let (weight, address) = (std::num::NonZeroU16::MIN, address.parse().unwrap());
    let resolved = Resolved { address, weight, priority: 0, host: Arc::clone(&name.host) };
    vec![(Arc::clone(name), Some([resolved].into()))]
}

fn drain(endpoint: &str) -> Vec<DrainChange> {
    vec![DrainChange {
        cluster: "web".into(),
        endpoint: endpoint.parse().unwrap(),
        is_drained: true,
    }]
}

/// What a cluster of this name, and one that is wrong, are said to be.
fn updates(name: &str) -> Vec<Update> {
    let of = |name: &str, content: String| Update {
        kind: ResourceKind::Cluster,
        name: name.into(),
        version: "1".into(),
        content: Some(content.as_str().into()),
    };
    vec![
        of(name, format!("{{ name: {name}, endpoints: ['10.0.9.1:80'] }}")),
        of("wrong", "{ name: wrong, endpoints: ['10.0.9.1:0'] }".to_owned()),
    ]
}

/// The addresses of all clusters, those that are drained in brackets.
fn shown(snapshot: &Snapshot<()>) -> String {
    let clusters = snapshot.clusters.iter().map(|(_, cluster)| {
        let endpoints = cluster.endpoints.iter().map(|it| match it.is_drained {
            true => format!("({})", it.address),
            false => it.address.to_string(),
        });
        format!("{}: {}", cluster.name, endpoints.collect::<Vec<_>>().join(" "))
    });
    let mut clusters: Vec<String> = clusters.collect();
    clusters.sort();
    clusters.join("; ")
}

fn endpoints(built: Option<Built<()>>) -> Endpoints<()> {
    match built {
        Some(Built::Endpoints(endpoints)) => endpoints,
        other => panic!("{other:?}"),
    }
}

#[test]
fn changes_that_come_at_a_time_are_one_snapshot_and_each_has_its_verdict() {
    let scratch = Scratch::new("builder-noted");
    let (mut builder, mut built, name) = start(&scratch);
    builder.note_answers(answer(&name, "10.0.1.1:80"));
    builder.note_drained(drain("10.0.0.2:80"));
    builder.updates("source".into(), updates("new").into(), Vec::new());
    let Endpoints { candidate, delivered, .. } = endpoints(built.blocking_recv());
    let verdicts = delivered.unwrap().verdicts;
    let accepted = verdicts.iter().map(|it| (&*it.name.name, it.refused.is_none()));
    assert_eq!(accepted.collect::<Vec<_>>(), [("new", true), ("wrong", false)]);
    let candidate = candidate.unwrap();
    let (snapshot, web) = (Arc::clone(candidate.snapshot()), "10.0.0.1:80 (10.0.0.2:80)");
    let all = format!("listed: 10.0.5.1:80; named: 10.0.1.1:80; new: 10.0.9.1:80; web: {web}");
    assert_eq!((snapshot.version, shown(&snapshot)), (2, all));
    assert_eq!(snapshot.changes.clusters_changed.len(), 2);
    assert_eq!(
        (snapshot.changes.clusters_added.len(), snapshot.changes.endpoints_added.len()),
        (1, 2)
    );

    // It could not be bound: what was noted counts with the next one.
    drop(candidate);
    builder.on_answered();
    assert!(builder.has_noted());
    std::fs::write(scratch.0.join("list.yaml"), "['10.0.5.2:80']").unwrap();
    builder.read_files(std::iter::once(OsString::from("list.yaml")).collect());
    let read = endpoints(built.blocking_recv());
    assert_eq!(read.outcomes.len(), 1);
    let candidate = read.candidate.unwrap();
    let all = format!("listed: 10.0.5.2:80; named: 10.0.1.1:80; web: {web}");
    assert_eq!((candidate.snapshot().version, shown(candidate.snapshot())), (2, all));
    builder.keep_endpoints(candidate);
    assert!(!builder.has_noted());
    builder.on_answered();
    builder.link_noted();
    assert!(!builder.is_busy(), "there is nothing more");
}

#[test]
fn a_text_that_is_refused_leaves_what_was_noted_and_one_that_is_good_has_it() {
    let scratch = Scratch::new("builder-noted-text");
    let (mut builder, mut built, name) = start(&scratch);
    let write = |text: &str| std::fs::write(scratch.0.join("strait.yaml"), text).unwrap();
    write("listeners: 1");
    builder.note_answers(answer(&name, "10.0.1.1:80"));
    builder.note_drained(drain("10.0.0.1:80"));
    builder.read(Reading::Anyway);
    assert!(matches!(built.blocking_recv(), Some(Built::Read(Err(_), _))));
    builder.on_answered();
    builder.link_noted();
    let noted = endpoints(built.blocking_recv());
    assert!(!noted.is_dns && noted.delivered.is_none());
    let candidate = noted.candidate.unwrap();
    let all = "listed: 10.0.5.1:80; named: 10.0.1.1:80; web: (10.0.0.1:80) 10.0.0.2:80";
    assert_eq!((candidate.snapshot().version, &*shown(candidate.snapshot())), (2, all));
    builder.keep_endpoints(candidate);
    builder.on_answered();

    write(&format!("{CONFIG}# more"));
    builder.note_answers(answer(&name, "10.0.1.2:80"));
    builder.note_drained(drain("10.0.0.2:80"));
    builder.read(Reading::Anyway);
    let Some(Built::Read(Ok(candidate), _)) = built.blocking_recv() else { panic!() };
    let all = "listed: 10.0.5.1:80; named: 10.0.1.2:80; web: (10.0.0.1:80) (10.0.0.2:80)";
    assert_eq!((candidate.snapshot().version, &*shown(candidate.snapshot())), (3, all));
    assert_eq!(candidate.snapshot().changes.clusters_changed.len(), 2);
    builder.keep(candidate);
    builder.on_answered();
    builder.link_noted();
    assert!(!builder.is_busy(), "there is nothing more");
}

#[test]
fn answers_alone_are_said_to_be_that_and_the_same_ones_are_no_change() {
    let scratch = Scratch::new("builder-answers");
    let (mut builder, mut built, name) = start(&scratch);
    builder.note_answers(answer(&name, "10.0.1.1:80"));
    builder.link_noted();
    let noted = endpoints(built.blocking_recv());
    assert!(noted.is_dns);
    builder.keep_endpoints(noted.candidate.unwrap());
    builder.on_answered();
    builder.note_answers(answer(&name, "10.0.1.1:80"));
    builder.link_noted();
    assert!(matches!(built.blocking_recv(), Some(Built::Same)));
    builder.on_answered();
    assert!(!builder.has_noted());
}
