//! Endpoints in files of their own: what they become, what they cost, and what mistakes in them do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::loads::Known;
use crate::sample::{self, Headers};
use config::drained::DrainChange;
use config::effective;
use config::outside::Memory;
use config::snapshot::{Changes, Cluster, Snapshot};
use proptest::prelude::*;

type Loaded = Arc<Snapshot<Headers>>;
type Loader = config::Loader<Headers>;

fn fresh() -> Loader {
    Loader::new(sample::kinds()).unwrap()
}

/// A configuration in which these clusters have their endpoints in `NAME.yaml`.
fn text(clusters: &[&str]) -> String {
    let mut text = String::from(
        "listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]\n\
         routes:\n- name: all\n  rules:\n",
    );
    for name in clusters {
        let _ = writeln!(text, "  - {{ match: {{ prefix: /{name} }}, cluster: {name} }}");
    }
    text.push_str("clusters:\n");
    for name in clusters {
        let _ = writeln!(text, "- {{ name: {name}, endpoints: {{ file: {name}.yaml }} }}");
    }
    text
}

fn outside(files: &[(&str, &str)]) -> Memory {
    let mut memory = sample::outside();
    files.iter().for_each(|(path, content)| memory.insert(*path, *content));
    memory
}

fn cluster<'s>(snapshot: &'s Loaded, name: &str) -> &'s Arc<Cluster> {
    snapshot.clusters.iter().find(|(_, cluster)| &*cluster.name == name).unwrap().1
}

fn addresses(snapshot: &Loaded, name: &str) -> Vec<String> {
    let endpoints = &cluster(snapshot, name).endpoints;
    endpoints.iter().map(|it| format!("{:?} {}", it.address, it.weight)).collect()
}

#[test]
fn a_file_that_is_missing_is_reported_once_however_many_clusters_name_it() {
    let text = text(&["a", "b"]) + "- { name: c, endpoints: { file: a.yaml } }\n";
    let files = outside(&[("b.yaml", "[]")]);
    let error = fresh().load_with("f", &text, &files).unwrap_err();
    assert_eq!(error.errors.len(), 1, "{error}");
    assert_eq!(error.errors[0].path, "clusters[0].endpoints.file");
}

/// Reads the file of endpoints again, and keeps what comes of it.
fn take(loader: &mut Loader, file: &str, outside: &Memory) -> Result<Option<Loaded>, String> {
    let mut read = loader.prepare_endpoints(&[Arc::from(file)], outside);
    if let Some(refused) = read.outcomes.pop().and_then(|outcome| outcome.refused) {
        return Err(refused.to_string());
    }
    Ok(read.prepared.map(|prepared| loader.keep(prepared)))
}

#[test]
fn errors_of_a_file_behind_a_link_out_of_its_folder_have_places_and_rules_and_no_text() {
    let mut loader = fresh();
    let text = text(&["web"]);
    loader.load_with("strait.yaml", &text, &outside(&[("web.yaml", "[]")])).unwrap();
    for (content, place, rule) in [
        ("- hunter2", "web.yaml:1:3: [0]: ", "the port is missing"),
        ("hunter2:$6$abc:19000:0:99999:7:::\n", "web.yaml:1:1: ", "a list is needed"),
        ("- { address: '10.0.0.1:80', hunter2: x }", "web.yaml:1:29: [0]: ", "is unknown"),
        ("- { address: '10.0.0.1:80', weight: hunter2 }", "web.yaml:1:37: [0]: ", "a whole number"),
        ("- 10.0.0.1:80\n- ${hunter2}", "web.yaml:2:3: [1]: ", "environment variables"),
        ("- '10.0.0.1:80'\n- 'hunter2.test:80'", "web.yaml:2:3: [1]: ", "addresses only"),
        ("- 10.0.0.1:80\n- 10.0.0.1:80 # hunter2", "web.yaml:2:3: [1]: ", "its own address"),
        ("- 'hunter2", "web.yaml:1:3", "not YAML"),
        ("- { hunter2: ${hunter2}, a: b }", "web.yaml:1:14: [0]: ", "environment variables"),
        ("hunter2: [ { a: 1, a: 2 } ]", "web.yaml:1:1: ", "only once"),
    ] {
        let mut memory = outside(&[("web.yaml", content)]);
        memory.link("web.yaml");
        let reported = take(&mut loader, "web.yaml", &memory).unwrap_err();
        assert!(reported.starts_with(place) && reported.contains(rule), "{content}: {reported}");
        assert!(!reported.contains("hunter2"), "{content}: {reported}");
        assert!(reported.contains("its content is not shown"), "{reported}");
        let of_a_file = take(&mut loader, "web.yaml", &outside(&[("web.yaml", content)]));
        assert!(of_a_file.unwrap_err().contains("hunter2"), "{content}");
    }
}

#[test]
fn a_file_of_endpoints_is_what_a_list_of_them_is() {
    let list = "- 10.0.0.1:80\n- { address: 10.0.0.2:80, weight: 3 }\n- 'unix:/run/a.sock'\n";
    let mut of_file = fresh();
    let files = outside(&[("a.yaml", list)]);
    let in_file = of_file.load_with("f", &text(&["a"]), &files).unwrap();
    let listed = text(&["a"]).replace(
        "{ file: a.yaml }",
        "['10.0.0.1:80', { address: '10.0.0.2:80', weight: 3 }, 'unix:/run/a.sock']",
    );
    let listed = fresh().load("f", &listed).unwrap();
    assert_eq!(addresses(&in_file, "a"), addresses(&listed, "a"));
    assert_eq!(cluster(&in_file, "a").view, cluster(&listed, "a").view);
    // JSON is YAML, and the file may be empty in either.
    let json = outside(&[("a.yaml", "[\"10.0.0.1:81\"]")]);
    let now = take(&mut of_file, "a.yaml", &json).unwrap().unwrap();
    assert_eq!(cluster(&now, "a").endpoints.len(), 1);
    let now = take(&mut of_file, "a.yaml", &outside(&[("a.yaml", "[]")])).unwrap().unwrap();
    assert_eq!(cluster(&now, "a").endpoints, []);
    // What is shown is where they come from.
    assert_eq!(effective(&now)["clusters"][0]["endpoints"]["file"], "a.yaml");
}

#[test]
fn a_changed_file_changes_its_clusters_and_nothing_else() {
    let mut loader = fresh();
    let files = |b: &str| outside(&[("a.yaml", "- 10.0.0.1:80\n"), ("b.yaml", b)]);
    let text = text(&["a", "b"]) + "- { name: c, endpoints: { file: b.yaml } }\n";
    let before = files("- 10.0.0.1:80\n- 10.0.0.2:80\n");
    let before = loader.load_with("f", &text, &before).unwrap();
    let after = files("- 10.0.0.2:80\n- 10.0.0.3:80\n");
    let after = take(&mut loader, "b.yaml", &after).unwrap().unwrap();
    assert_eq!(after.version, before.version + 1);
    assert!(Arc::ptr_eq(cluster(&before, "a"), cluster(&after, "a")));
    assert!(before.listeners.is_shared(&after.listeners));
    let ids = |snapshot: &Loaded, name: &str, place: usize| {
        let cluster = cluster(snapshot, name);
        (cluster.id, cluster.endpoints[place].id)
    };
    assert_eq!(ids(&before, "b", 1), ids(&after, "b", 0), "an endpoint is its address");
    let changes = Changes {
        clusters_changed: ["b", "c"].map(|name| cluster(&after, name).id).into(),
        endpoints_added: ["b", "c"].map(|name| ids(&after, name, 1)).into(),
        endpoints_removed: ["b", "c"].map(|name| ids(&before, name, 0)).into(),
        ..Changes::default()
    };
    assert_eq!(after.changes, changes);
    // A load of the text gives the same again, and the same file is no change.
    let files = files("- 10.0.0.2:80\n- 10.0.0.3:80\n");
    assert!(take(&mut loader, "b.yaml", &files).unwrap().is_none());
    let again = loader.load_with("f", &text, &files).unwrap();
    assert_eq!(again.changes, Changes::default());
    assert!(Arc::ptr_eq(cluster(&again, "b"), cluster(&after, "b")));
}

#[test]
fn an_endpoint_stays_drained_whatever_its_sources_say_until_it_is_taken_back() {
    let mut loader = fresh();
    let list = "- { address: 10.0.0.1:80, weight: 3 }\n- 10.0.0.2:80\n";
    let files = outside(&[("a.yaml", list), ("b.yaml", list)]);
    let before = loader.load_with("f", &text(&["a", "b"]), &files).unwrap();
    let change = |cluster: &str, is_drained| DrainChange {
        cluster: cluster.into(),
        endpoint: "10.0.0.1:80".parse().unwrap(),
        is_drained,
    };
    let weights = |snapshot: &Loaded| {
        let endpoints = &cluster(snapshot, "a").endpoints;
        endpoints.iter().map(|it| (it.weight, it.is_drained)).collect::<Vec<_>>()
    };
    // Other clusters have the same address, and a cluster that is not there may come.
    let changes = [change("a", true), change("later", true)];
    let prepared = loader.prepare_drained(&changes).unwrap();
    let drained = loader.keep(prepared);
    assert_eq!(weights(&drained), [(0, true), (1, false)]);
    assert_eq!(cluster(&drained, "a").endpoints[0].id, cluster(&before, "a").endpoints[0].id);
    assert!(Arc::ptr_eq(cluster(&drained, "b"), cluster(&before, "b")));
    let changed =
        Changes { clusters_changed: vec![cluster(&drained, "a").id], ..Changes::default() };
    assert_eq!(drained.changes, changed);
    assert!(loader.prepare_drained(&changes).is_none(), "they are drained already");
    // The file of endpoints, and then the text, say something else.
    let files = outside(&[("a.yaml", "- 10.0.0.3:80\n- { address: 10.0.0.1:80, weight: 5 }\n")]);
    let now = take(&mut loader, "a.yaml", &files).unwrap().unwrap();
    assert_eq!(weights(&now), [(1, false), (0, true)]);
    let files = outside(&[("a.yaml", list), ("b.yaml", list), ("later.yaml", list)]);
    let now = loader.load_with("f", &text(&["a", "b", "later"]), &files).unwrap();
    assert_eq!(weights(&now), [(0, true), (1, false)]);
    assert_eq!(cluster(&now, "later").endpoints[0].weight, 0);
    let prepared = loader.prepare_drained(&[change("a", false)]).unwrap();
    assert_eq!(weights(&loader.keep(prepared)), [(3, false), (1, false)]);
}

#[test]
fn a_mistake_keeps_the_last_good_list_and_is_told_with_its_place() {
    let mut loader = fresh();
    let good = outside(&[("a.yaml", "- 10.0.0.1:80\n")]);
    let before = loader.load_with("f", &text(&["a"]), &good).unwrap();
    for (content, expected) in [
        (Some("- 10.0.0.1:80\n- 10.0.0.1:80\n"), "a.yaml:2:3: [1]: \"10.0.0.1:80\": each endpoint"),
        (Some("- 10.0.0.1:0\n"), "a.yaml:1:3: [0]: \"10.0.0.1:0\": nothing can be reached"),
        (
            Some("- 10.0.0.1:80\n- '[::ffff:10.0.0.1]:80'\n"),
            "a.yaml:2:3: [1]: \"[::ffff:10.0.0.1]:80\": each endpoint",
        ),
        (Some("- '[::]:80'\n"), "a.yaml:1:3: [0]: \"[::]:80\": this is every address"),
        (
            Some("- 10.0.0.1:80\n- { address: 10.0.0.2:80, priority: 2 }\n"),
            "a.yaml:2:37: [1].priority: 2: priority 1 has no endpoints, and 2 has some",
        ),
        (
            Some("- { address: 10.0.0.1:80, locality: \"eu\\u0007\" }\n"),
            "a locality contains no control characters",
        ),
        (Some("- { address: 10.0.0.1:80, weight: -1 }\n"), "a.yaml:1:35: [0].weight"),
        (Some("- 10.0.0.1\n- example.com:80\n"), "a.yaml:2:3: [1]"),
        (Some("endpoints: []\n"), "a.yaml:1:1"),
        (Some(""), "the file is empty; write `- 127.0.0.1:8080`"),
        (Some("- [\n"), "this is not YAML"),
        (Some("[\n  \"10.0.0.1:80\"\n"), "this is neither JSON nor YAML"),
        (None, "a.yaml:1:1: there is no such file"),
    ] {
        let files = match content {
            Some(content) => outside(&[("a.yaml", content)]),
            None => sample::outside(),
        };
        let error = take(&mut loader, "a.yaml", &files).unwrap_err();
        assert!(error.contains(expected), "{content:?}: {error}");
        // Read with the text, too.
        let prepared = loader.prepare("f", &text(&["a"]), &files).unwrap();
        assert_eq!(prepared.snapshot().changes, Changes::default());
        let [refused] = prepared.endpoints_read() else { panic!("{content:?}") };
        assert!(refused.refused.as_ref().unwrap().to_string().contains(expected), "{content:?}");
        // Without a last good list, the text is refused.
        let error = fresh().load_with("f", &text(&["a"]), &files).unwrap_err();
        let place = if content.is_some() { expected } else { "f:7:33: clusters[0].endpoints.file" };
        assert!(error.to_string().contains(place), "{error}");
    }
    assert!(Arc::ptr_eq(loader.snapshot_latest().unwrap(), &before));
}

#[test]
fn a_file_that_is_no_text_is_refused_at_the_same_place_in_both_ways() {
    let good = outside(&[("a.yaml", "- 10.0.0.1:80\n")]);
    let mut wrong = sample::outside();
    wrong.insert("a.yaml", b"- 10.0.0.1:80\n- \xc3\xbc\xff\n".as_slice());
    let expected = "a.yaml:2:4: this is not UTF-8; write the file in UTF-8";
    let mut loader = fresh();
    loader.load_with("f", &text(&["a"]), &good).unwrap();
    assert_eq!(take(&mut loader, "a.yaml", &wrong).unwrap_err(), expected);
    let error = fresh().load_with("f", &text(&["a"]), &wrong).unwrap_err().to_string();
    assert_eq!(error, expected);
}

#[test]
fn a_pattern_names_no_file_of_endpoints_unless_one_is_called_so() {
    let with_pattern = text(&["a"]).replace("a.yaml", "'*.yaml'");
    let files = outside(&[("a.yaml", "[]")]);
    let error = fresh().load_with("f", &with_pattern, &files).unwrap_err().to_string();
    assert!(error.contains("endpoints.file: \"*.yaml\": this is a pattern, and one"), "{error}");
    let files = outside(&[("*.yaml", "- 10.0.0.1:80\n")]);
    fresh().load_with("f", &with_pattern, &files).unwrap();
}

#[test]
fn another_content_with_the_same_mistake_is_another_refusal() {
    let mut loader = fresh();
    let good = outside(&[("a.yaml", "- 10.0.0.1:80\n")]);
    loader.load_with("f", &text(&["a"]), &good).unwrap();
    let refused = |content: &str| {
        let files = outside(&[("a.yaml", content)]);
        let with_text = loader.prepare("f", &text(&["a"]), &files).unwrap();
        let alone = loader.prepare_endpoints(&["a.yaml".into()], &files).outcomes;
        assert_eq!(with_text.endpoints_read(), alone);
        (alone[0].refused.clone().map(|it| it.to_string()), alone[0].refused_digest)
    };
    let (first, of_first) = refused("- 10.0.0.1:0\n- 10.0.0.2:1\n");
    let (second, of_second) = refused("- 10.0.0.1:0\n- 10.0.0.2:2\n");
    assert!(first.is_some() && first == second && of_first.is_some());
    assert_ne!(of_first, of_second);
    assert_eq!(refused("- 10.0.0.1:80\n"), (None, None));
}

#[test]
fn of_each_file_it_is_known_whether_it_is_new_when_the_text_is_read_and_when_it_is() {
    let mut loader = fresh();
    let files = |b: &str| outside(&[("a.yaml", "- 10.0.0.1:80\n"), ("b.yaml", b)]);
    let text = text(&["b", "a"]);
    let outcomes = |read: &[config::EndpointsOutcome]| -> Vec<_> {
        read.iter().map(|it| (it.file.to_string(), it.is_new, it.refused.is_some())).collect()
    };
    let of = |a: (bool, bool), b: (bool, bool)| {
        [("a.yaml".to_owned(), a.0, a.1), ("b.yaml".to_owned(), b.0, b.1)]
    };
    let (fresh, same, refused) = ((true, false), (false, false), (false, true));
    for (content, a, b) in [
        ("- 10.0.0.2:80\n", fresh, fresh),
        ("- 10.0.0.2:80\n", same, same),
        ("- 10.0.0.3:80\n", same, fresh),
        ("- 10.0.0.3:0\n", same, refused),
    ] {
        let prepared = loader.prepare("f", &text, &files(content)).unwrap();
        assert_eq!(outcomes(prepared.endpoints_read()), of(a, b), "{content}");
        loader.keep(prepared);
    }
    let names = ["a.yaml", "b.yaml"].map(Arc::from);
    let read = loader.prepare_endpoints(&names, &files("- 10.0.0.4:80\n"));
    assert_eq!(outcomes(&read.outcomes), of(same, fresh));
}

/// Who writes it decides about endpoints alone, and could have the environment sent to one of them.
#[test]
fn a_file_of_endpoints_has_no_environment() {
    let mut files = outside(&[("a.yaml", "['10.0.0.1:80']")]);
    files.set_variable("PASSWORD", "hunter2");
    let mut loader = fresh();
    loader.load_with("f", &text(&["a"]), &files).unwrap();
    for content in [
        "['${PASSWORD}']",
        "[{ address: '10.0.0.1:80', host: '${PASSWORD}' }]",
        "[{ address: '10.0.0.1:80', metadata: { a: '${PASSWORD}' } }]",
        "['10.0.0.1:80', '$${PASSWORD}']",
    ] {
        files.insert("a.yaml", content);
        let said = take(&mut loader, "a.yaml", &files).unwrap_err();
        assert!(
            said.contains("environment variables are replaced in the configuration file only"),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_file_has_bounds_of_endpoints_and_of_their_weights() {
    let list = |count: u32, weight: u16| {
        let address = |n: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + n);
        let entry = |n| format!("- {{ address: '{}:80', weight: {weight} }}\n", address(n));
        (0..count).map(entry).collect::<String>()
    };
    for (count, weight, expected) in [
        (65_537, 65_535, None),
        (65_538, 65_535, Some("come to at most 4294967295")),
        (100_000, 1, None),
        (100_001, 1, Some("at most 100000 endpoints")),
    ] {
        let files = outside(&[("a.yaml", &list(count, weight))]);
        let error = fresh().load_with("f", &text(&["a"]), &files).err().map(|it| it.to_string());
        match (expected, error) {
            (None, None) => {}
            (Some(expected), Some(error)) if error.contains(expected) => {}
            (_, error) => panic!("{count} of {weight}: {error:?}"),
        }
    }
}

#[test]
fn a_unix_socket_needs_a_name_for_tls_in_a_file_too() {
    let unix = outside(&[("a.yaml", "- 'unix:/run/a.sock'\n")]);
    let text = |tls: &str| {
        text(&["a"]).replace("{ file: a.yaml } }", &format!("{{ file: a.yaml }}, tls: {tls} }}"))
    };
    let needs = text("{ verify: off }").replace("verify: off", "ca: ca.pem");
    let error = fresh().load_with("f", &needs, &unix).unwrap_err().to_string();
    assert!(
        error.contains("clusters[0].endpoints.file") && error.contains("no host name"),
        "{error}"
    );
    let mut loader = fresh();
    let tcp = outside(&[("a.yaml", "- 10.0.0.1:80\n")]);
    loader.load_with("f", &needs, &tcp).unwrap();
    let error = take(&mut loader, "a.yaml", &unix).unwrap_err();
    assert!(error.contains("a.yaml:1:3: [0]") && error.contains("no host name"), "{error}");
    fresh().load_with("f", &text("{ verify: off }"), &unix).unwrap();
}

#[test]
fn what_was_read_and_not_kept_leaves_no_trace() {
    let mut loader = fresh();
    let before = outside(&[("a.yaml", "- 10.0.0.1:80\n")]);
    loader.load_with("f", &text(&["a"]), &before).unwrap();
    let files = outside(&[("a.yaml", "- 10.0.0.2:80\n")]);
    let unkept = loader.prepare_endpoints(&[Arc::from("a.yaml")], &files).prepared.unwrap();
    let kept = take(&mut loader, "a.yaml", &files).unwrap().unwrap();
    assert_eq!(unkept.snapshot().changes, kept.changes);
    assert_eq!(unkept.snapshot().version, kept.version);
    // A file that the text does not name is none of ours.
    let read = loader.prepare_endpoints(&[Arc::from("b.yaml")], &files);
    assert!(read.prepared.is_none() && read.outcomes.is_empty());
}

/// What comes next: the text with these clusters, or other endpoints of one of them.
#[derive(Clone, Debug)]
enum Step {
    Text(Vec<u8>),
    File(u8, Vec<u8>),
    Mistake(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let ports = || proptest::collection::btree_set(1u8..9, 0..6);
    prop_oneof![
        proptest::collection::btree_set(0u8..4, 0..4)
            .prop_map(|names| Step::Text(names.into_iter().collect())),
        (0u8..4, ports()).prop_map(|(name, ports)| Step::File(name, ports.into_iter().collect())),
        (0u8..4).prop_map(Step::Mistake),
    ]
}

/// What is seen of a snapshot, whatever its ids are.
fn seen(snapshot: &Loaded) -> BTreeMap<String, Vec<String>> {
    let names = snapshot.clusters.iter().map(|(_, cluster)| cluster.name.to_string());
    names.map(|name| (name.clone(), addresses(snapshot, &name))).collect()
}

proptest! {
    #[test]
    fn any_changes_give_what_building_from_scratch_gives(
        steps in proptest::collection::vec(step(), 1..20)
    ) {
        let mut loader = fresh();
        let mut known = Known::default();
        // Of the files: what stands there, and what stood there last that is good.
        let mut files = Memory::default();
        let mut good = Memory::default();
        for name in 0..4 {
            files.insert(format!("c{name}.yaml"), "- 10.0.0.1:80\n");
            good.insert(format!("c{name}.yaml"), "- 10.0.0.1:80\n");
        }
        let mut names: Vec<String> = Vec::new();
        let text = |names: &[String]| match names {
            [] => "listeners: []\n".to_owned(),
            _ => text(&names.iter().map(String::as_str).collect::<Vec<_>>()),
        };
        known.apply(&loader.load_with("f", &text(&names), &files).unwrap());
        for step in steps {
            match step {
                Step::Text(clusters) => {
                    let next: Vec<_> = clusters.iter().map(|name| format!("c{name}")).collect();
                    if let Ok(snapshot) = loader.load_with("f", &text(&next), &files) {
                        known.apply(&snapshot);
                        names = next;
                    }
                }
                Step::Mistake(name) => {
                    let path = format!("c{name}.yaml");
                    files.insert(path.clone(), "- nothing\n");
                    let is_refused = take(&mut loader, &path, &files).is_err();
                    let is_named = names.iter().any(|it| path.starts_with(it.as_str()));
                    prop_assert_eq!(is_refused, is_named);
                }
                Step::File(name, ports) => {
                    let list: String = ports.iter().map(|port| format!("- 10.0.0.1:{port}\n")).collect();
                    let list = if list.is_empty() { "[]".to_owned() } else { list };
                    let path = format!("c{name}.yaml");
                    files.insert(path.clone(), list);
                    if let Some(snapshot) = take(&mut loader, &path, &files).unwrap() {
                        known.apply(&snapshot);
                    }
                }
            }
            // A name's last good list is what it had when it was read last.
            for name in &names {
                let path = format!("{name}.yaml");
                let content = config::Outside::read(&files, Path::new(&path)).unwrap();
                if content != b"- nothing\n" {
                    good.insert(path, content);
                }
            }
            let snapshot = loader.snapshot_latest().unwrap();
            let scratch = fresh().load_with("f", &text(&names), &good).unwrap();
            prop_assert_eq!(seen(snapshot), seen(&scratch));
            prop_assert_eq!(&known, &Known::of(snapshot));
            for (_, cluster) in snapshot.clusters.iter() {
                for (place, endpoint) in cluster.endpoints.iter().enumerate() {
                    prop_assert_eq!(cluster.place_of(endpoint.id), Some(place));
                }
            }
        }
    }
}
