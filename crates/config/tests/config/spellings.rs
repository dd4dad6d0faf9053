//! Two spellings of one path meet the same rule, however that is spelled.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::path::{Slashes, normalise};

use crate::sample::loader;

/// A path by its meaning: segments of octets, each with whether it is encoded where that makes it
/// another one (RFC 3986, section 2.2).
type Meaning = Vec<Vec<(u8, bool)>>;

/// Few octets, of every kind, so that paths begin alike.
fn meaning() -> impl Strategy<Value = Meaning> {
    let octets = [
        (b'a', false),
        (b'.', false),
        (b'+', false),
        (b'+', true),
        (b'/', true),
        (b'{', true),
        (b'%', true),
        (0xc3, true),
    ];
    vec(vec(select(octets.to_vec()), 1..3), 1..3)
}

/// How octets and slashes are written, over and over.
type Hand = Vec<u8>;

fn hand() -> impl Strategy<Value = Hand> {
    vec(any::<u8>(), 1..9)
}

/// The meaning in a spelling of this hand; that of a rule goes no detours and has nothing that no URI
/// holds.
fn spelled(path: &Meaning, hand: &Hand, is_rule: bool, is_merged: bool) -> String {
    let mut text = String::new();
    let mut hows = hand.iter().copied().cycle();
    let mut how = || hows.next().unwrap();
    for segment in path {
        let detours = ["/", "/./", "/%2e/", "/a/.%2E/"];
        text.push_str(if is_rule { "/" } else { detours[usize::from(how() % 4)] });
        if is_merged && !is_rule && how() > 127 {
            text.push('/');
        }
        for &(octet, is_encoded) in segment {
            let how = how();
            let is_free = octet.is_ascii_alphanumeric() || octet == b'.';
            let may_be_raw = octet == b'{' && !is_rule;
            if (is_free || may_be_raw) && how & 1 == 0 || !is_free && !is_encoded {
                text.push(char::from(octet));
            } else if how & 2 == 0 {
                text.push_str(&format!("%{octet:02x}"));
            } else {
                text.push_str(&format!("%{octet:02X}"));
            }
        }
    }
    text
}

/// Whether the path has a segment of dots alone, which a rule cannot name.
fn has_dots(path: &Meaning) -> bool {
    path.iter().any(|segment| segment.iter().all(|(octet, _)| *octet == b'.'))
}

/// The place of the rule that each path meets.
fn met(rules: &[(String, bool)], paths: &[String], slashes: Slashes) -> Vec<Option<usize>> {
    let mut text = String::from(
        "listeners: [{ name: web, address: '127.0.0.1:80', routes: all }]\n\
         routes:\n- name: all\n  rules:\n",
    );
    for (path, is_prefix) in rules {
        let key = if *is_prefix { "prefix" } else { "path" };
        text.push_str(&format!("  - match: {{ {key}: '{path}' }}\n    respond: {{}}\n"));
    }
    let snapshot = loader().load("f", &text).unwrap_or_else(|errors| panic!("{text}{errors}"));
    let table = snapshot.route_tables.iter().next().unwrap().1;
    let met = |path: &String| {
        let mut normal = Vec::new();
        normalise(path.as_bytes(), slashes, &mut normal).unwrap();
        table.paths.find_plain(&normal)
    };
    paths.iter().map(met).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_spelling_of_a_path_meets_the_same_rule(
        rules in vec((meaning(), any::<bool>(), hand(), hand()), 1..5),
        paths in vec((meaning(), hand(), hand()), 1..5),
        is_merged in any::<bool>(),
    ) {
        let slashes = if is_merged { Slashes::Merge } else { Slashes::Keep };
        let rules: Vec<_> = rules.into_iter().filter(|(path, ..)| !has_dots(path)).collect();
        prop_assume!(!rules.is_empty());
        let rules_by = |which: fn(&(Meaning, bool, Hand, Hand)) -> &Hand| -> Vec<_> {
            rules.iter().map(|rule| (spelled(&rule.0, which(rule), true, false), rule.1)).collect()
        };
        // What a rule names is asked for, too.
        let named = rules.iter().map(|(path, _, one, other)| (path, one, other));
        let asked = paths.iter().map(|(path, one, other)| (path, one, other));
        let (mut ones, mut others) = (Vec::new(), Vec::new());
        for (path, one, other) in asked.chain(named) {
            ones.push(spelled(path, one, false, is_merged));
            others.push(spelled(path, other, false, is_merged));
        }
        let expected = met(&rules_by(|rule| &rule.2), &ones, slashes);
        prop_assert_eq!(&met(&rules_by(|rule| &rule.3), &others, slashes), &expected);
        for (place, rule) in rules.iter().enumerate() {
            let found = expected[paths.len() + place];
            prop_assert!(found.is_some_and(|found| found <= place), "{:?}: {:?}", rule, found);
        }
    }
}

#[test]
fn a_rule_with_slashes_in_a_row_is_warned_of_where_all_its_listeners_merge_them() {
    let text = "
listeners:
  - { name: one, address: '127.0.0.1:80', routes: all }
  - { name: two, address: '127.0.0.1:81', routes: all }
routes: [{ name: all, rules: [{ match: { prefix: //a///b }, respond: {} }] }]
";
    let mut loader = loader();
    loader.load("f", text).unwrap();
    let [warning] = loader.warnings() else { panic!("{:?}", loader.warnings()) };
    assert_eq!(warning.path, "routes[0].rules[0].match.prefix");
    assert!(warning.hint.contains("write \"/a/b\""), "{warning}");
    for (from, to) in [
        ("//a///b", "/a/b"),
        ("81', routes: all", "81', routes: all, http: { merge_slashes: false }"),
    ] {
        loader.load("f", &text.replace(from, to)).unwrap();
        assert_eq!(loader.warnings(), [], "{to}");
    }
}
