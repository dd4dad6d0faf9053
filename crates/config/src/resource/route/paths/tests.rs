use proptest::prelude::*;
use wire::h1::{HeadLimits, Scan, decode_request};
use wire::head::HeadIndex;
use wire::path::Slashes;

use super::*;
use crate::resource::route::matching::{Criterion, Patterns, Place, Template, Value};
use crate::snapshot::{Action, Respond, RuleSlot};

fn rules(paths: Vec<PathMatch>) -> Vec<Rule> {
    let respond = Respond { status: 200, body: [].into(), fields: Vec::new() };
    let action = Action::Respond(respond);
    let rule = |path| Rule {
        name: None,
        path,
        also: [].into(),
        action: action.clone(),
        edits: None,
        slot: RuleSlot::default(),
    };
    paths.into_iter().map(rule).collect()
}

fn table(paths: Vec<PathMatch>) -> PathTable {
    PathTable::new(&rules(paths), Arc::default())
}

fn of(text: &str, how: PathKind) -> PathMatch {
    PathMatch { text: text.into(), how, case: Case::Sensitive }
}

fn exact(text: &str) -> PathMatch {
    of(text, PathKind::Exact)
}

fn prefix(text: &str) -> PathMatch {
    of(text, PathKind::Prefix)
}

fn segments(text: &str) -> PathMatch {
    of(text, PathKind::Segments)
}

fn any_case(path: PathMatch) -> PathMatch {
    PathMatch { case: Case::Insensitive, ..path }
}

#[test]
fn the_first_rule_of_the_file_wins_not_the_longest() {
    let table = table(vec![
        exact("/healthz"),
        prefix("/api/"),
        prefix("/a"),
        prefix("/api/v2/"),
        exact("/a/b"),
    ]);
    for (path, rule) in [
        ("/healthz", Some(0)),
        ("/healthz/", None),
        ("/health", None),
        ("/api/", Some(1)),
        ("/api/v2/x", Some(1)),
        ("/api", Some(2)),
        ("/a/b", Some(2)),
        ("/b", None),
        ("/", None),
        ("", None),
        ("*", None),
    ] {
        assert_eq!(table.find_plain(path.as_bytes()), rule, "{path:?}");
    }
}

#[test]
fn of_rules_on_one_path_the_first_wins_whatever_its_kind() {
    let kinds = [exact, prefix, segments];
    for (first, one) in kinds.iter().enumerate() {
        for other in &kinds[first + 1..] {
            for paths in [vec![one("/a"), other("/a")], vec![other("/a"), one("/a")]] {
                assert_eq!(table(paths.clone()).find_plain(b"/a"), Some(0), "{paths:?}");
                let any_case = table(paths.clone().into_iter().map(any_case).collect());
                assert_eq!(any_case.find_plain(b"/A"), Some(0), "{paths:?}");
            }
        }
    }
}

#[test]
fn segments_end_at_a_slash_or_with_the_path() {
    let table = table(vec![segments("/tenant"), any_case(segments("/Shop/x"))]);
    for (path, rule) in [
        ("/tenant", Some(0)),
        ("/tenant/", Some(0)),
        ("/tenant/x", Some(0)),
        ("/tenantx", None),
        ("/tenan", None),
        ("/Tenant", None),
        ("/tenant%2Fx", None),
        ("/SHOP/X", Some(1)),
        ("/shop/x/y", Some(1)),
        ("/shop/xy", None),
        ("*", None),
    ] {
        assert_eq!(table.find_plain(path.as_bytes()), rule, "{path:?}");
    }
}

#[test]
fn the_asterisk_is_matched_by_itself_and_by_the_root_prefix_alone() {
    let table_of = table(vec![exact("/"), prefix("/a"), prefix("/"), exact("*")]);
    assert_eq!(table_of.find_plain(b"*"), Some(2));
    let table = table(vec![exact("*"), prefix("/")]);
    assert_eq!(table.find_plain(b"*"), Some(0));
    assert_eq!(table.find_plain(b"/*"), Some(1));
}

#[test]
fn an_empty_table_finds_nothing() {
    assert_eq!(table(Vec::new()).find_plain(b"/"), None);
    assert_eq!(table(Vec::new()).find_plain(b"*"), None);
}

#[test]
fn a_chain_of_ever_longer_prefixes_needs_no_stack() {
    let texts: Vec<String> = (1..5_000).map(|len| format!("/{}", "a".repeat(len))).collect();
    let paths: Vec<PathMatch> = texts.iter().rev().map(|text| prefix(text)).collect();
    let last = paths.len() - 1;
    let table = table(paths);
    assert_eq!(table.find_plain(b"/a"), Some(last));
    assert_eq!(table.find_plain(format!("/{}", "a".repeat(6_000)).as_bytes()), Some(0));
}

#[test]
fn a_rule_covers_what_it_matches_all_of() {
    for (covering, path, is_covered) in [
        (prefix("/a"), prefix("/ab"), true),
        (prefix("/ab"), prefix("/a"), false),
        (prefix("/a"), exact("/ab"), true),
        (exact("/a"), exact("/a"), true),
        (exact("/a"), prefix("/a"), false),
        (segments("/a"), segments("/a/b"), true),
        (segments("/a"), segments("/a"), true),
        (segments("/a"), prefix("/a/"), true),
        (segments("/a"), prefix("/a"), false),
        (segments("/a"), exact("/a"), true),
        (prefix("/a"), segments("/a"), true),
        (prefix("/a/"), segments("/a"), false),
        (exact("/a"), segments("/a"), false),
        (any_case(prefix("/A")), prefix("/a"), true),
        (prefix("/a"), any_case(prefix("/a")), false),
        (any_case(exact("/A")), any_case(exact("/a")), true),
        (any_case(exact("/A")), exact("/a"), true),
        (prefix("/"), of("/.*", PathKind::Regex(0)), true),
        (prefix("/a"), of("/.*", PathKind::Regex(0)), false),
    ] {
        let found = table(vec![covering.clone()]).find_covering(&path);
        assert_eq!(found.is_some(), is_covered, "{covering} over {path}");
    }
}

fn path() -> impl Strategy<Value = String> {
    // Few letters, so that texts share beginnings.
    prop_oneof![9 => "/[abA/]{0,6}", 1 => Just(String::from("*"))]
}

/// A path's text and kind, the latter as a number.
fn path_match() -> impl Strategy<Value = (String, u8, bool)> {
    (path(), 0..5_u8, any::<bool>())
}

/// Whether a rule asks for a value of `x-a`, or of the method, or for another thing.
fn asked_for() -> impl Strategy<Value = (Option<u8>, Option<u8>, bool)> {
    (proptest::option::of(0..12_u8), proptest::option::of(0..12_u8), any::<bool>())
}

/// The condition on a path that is described by a text and a number.
fn path_of(text: &str, kind: u8, in_any_case: bool, patterns: &mut Patterns) -> PathMatch {
    let is_path = text.starts_with('/');
    let path = match kind {
        0 => exact(text),
        1 if is_path && text.trim_end_matches('/').len() > 1 => {
            segments(text.trim_end_matches('/'))
        }
        2 if is_path => {
            let text = format!("{text}[ab]*");
            let place = patterns.add(&text, Case::Sensitive).unwrap();
            return of(&text, PathKind::Regex(place));
        }
        3 if is_path => {
            let text = format!("{text}{{x}}");
            let template = Arc::new(Template::parse(&text).unwrap());
            let place = patterns.add_template(&text, &template).unwrap();
            return of(&text, PathKind::Template(place, template));
        }
        _ if is_path => prefix(text),
        _ => exact(text),
    };
    if in_any_case { any_case(path) } else { path }
}

fn criteria((header, method, is_call): (Option<u8>, Option<u8>, bool)) -> Box<[Criterion]> {
    let header = header.map(|value| {
        Criterion::Value(Place::Header("x-a".into()), Value::exactly(&format!("v{value}")))
    });
    let method = method.map(|value| Criterion::Methods {
        methods: [format!("M{value}").into(), "GET".into()].into(),
        is_inverted: false,
    });
    let call = is_call.then_some(Criterion::Grpc(true));
    header.into_iter().chain(method).chain(call).collect()
}

proptest! {
    #[test]
    fn the_index_finds_what_a_scan_of_the_rules_finds(
        described in proptest::collection::vec((path_match(), asked_for()), 0..40),
        requests in proptest::collection::vec(
            (path(), 0..12_u8, 0..14_u8, any::<bool>()), 1..16,
        ),
    ) {
        let mut patterns = Patterns::default();
        let paths = described.iter().map(|((text, kind, in_any_case), _)| {
            // Most share one path, so that look-ups are made.
            let text = if *kind == 4 { "/" } else { text };
            path_of(text, *kind, *in_any_case, &mut patterns)
        });
        let mut rules = rules(paths.collect());
        for (rule, (_, asked)) in rules.iter_mut().zip(&described) {
            rule.also = criteria(*asked);
        }
        let regexes = patterns.compile(None).unwrap();
        let table = PathTable::new(&rules, Arc::clone(&regexes));
        let (values, mut searches) = (Arc::default(), Searches::default());
        for (path, value, method, is_call) in requests {
            let method = if method > 11 { "GET".to_owned() } else { format!("M{method}") };
            let method = if path == "*" { "OPTIONS".to_owned() } else { method };
            let call = if is_call { "content-type: application/grpc\r\n" } else { "" };
            let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nx-a: v{value}\r\n{call}\r\n");
            let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
            let limits = HeadLimits {
                request_line_bytes_max: 1_000,
                head_bytes_max: 1_000,
                fields_max: 9,
                slashes: Slashes::Keep,
            };
            let (head, _) = decode_request(head.as_bytes(), &mut scan, &limits, &mut index).unwrap().unwrap();
            let asked = Asked { head: &head, source: None, client: None, die: 0 };
            let scanned = rules.iter().position(|rule| {
                rule.path.matches(head.path(), &regexes, &mut searches)
                    && rule.meets(&asked, &values, &mut searches)
            });
            let found = table.find(&rules, &asked, &values, &mut searches);
            prop_assert_eq!(found, scanned, "{} {}", method, path);
        }
    }
}
