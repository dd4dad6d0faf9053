//! Which endpoints a request may go to: by subset, and there by priority.

use std::sync::Arc;

use config::matching::Searches;
use config::snapshot::{Action, Cluster};
use config::subsets::SubsetHash;

use crate::matching::asking;
use crate::sample::loader;

const ENDPOINTS: &str = "
      - { address: '127.0.0.1:9000', metadata: { version: v1, unit: a } }
      - { address: '127.0.0.1:9001', metadata: { version: v2, unit: a } }
      - { address: '127.0.0.1:9002', metadata: { version: v2, unit: b }, priority: 1 }
      - { address: '127.0.0.1:9003', priority: 1 }
      - { address: '127.0.0.1:9004', weight: 0, metadata: { version: v3 } }
";

fn text(subset: &str, subsets: &str) -> String {
    format!(
        "listeners: [{{ name: l, address: '127.0.0.1:1', routes: r }}]\n\
         routes: [{{ name: r, rules: [{{ match: {{ prefix: / }}, cluster: c, subset: {subset} }}] }}]\n\
         clusters:\n  - name: c\n    subsets: {subsets}\n    endpoints:{ENDPOINTS}"
    )
}

/// The cluster, and what a request with these fields asks it for.
fn asked(subset: &str, subsets: &str, fields: &str) -> (Arc<Cluster>, Option<SubsetHash>) {
    let mut loader = loader();
    let loaded = loader.load("strait.yaml", &text(subset, subsets));
    let snapshot = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    let (_, table) = snapshot.route_tables.iter().next().unwrap();
    let Action::Forward(forward) = &table.rules[0].action else { panic!("it forwards") };
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let hash = asking(&head, |asked| {
        forward.subset.as_ref().unwrap().hash(asked, &mut Searches::default())
    });
    (Arc::clone(snapshot.clusters.iter().next().unwrap().1), hash)
}

/// The ports of the endpoints that a request may go to, by priority.
fn ports(subset: &str, subsets: &str, fields: &str) -> Vec<Vec<usize>> {
    let (cluster, hash) = asked(subset, subsets, fields);
    let levels = cluster.view.levels(hash).iter();
    levels
        .map(|group| (0..group.len()).map(|at| 9000 + group.place(at).unwrap()).collect())
        .collect()
}

#[test]
fn a_request_goes_to_endpoints_with_the_values_that_it_asks_for() {
    let by = "{ by: [[version], [unit, version]], fallback: FALLBACK }";
    let all = vec![vec![9000, 9001, 9004], vec![9002, 9003]];
    let unit = "{ version: v2, unit: { header: x-unit } }";
    for (subset, fallback, fields, expected) in [
        ("{ version: v1 }", "none", "", vec![vec![9000]]),
        ("{ version: v2 }", "none", "", vec![vec![9001], vec![9002]]),
        (unit, "none", "", vec![vec![9001], vec![9002]]),
        (unit, "none", "x-unit: a\r\n", vec![vec![9001]]),
        (unit, "none", "X-Unit: b\r\n", vec![vec![9002]]),
        // Several of one name are one value, which no endpoint has.
        (unit, "none", "x-unit: a\r\nx-unit: b\r\n", vec![]),
        (unit, "none", "x-unit: c\r\n", vec![]),
        (unit, "any", "x-unit: c\r\n", all.clone()),
        ("{ version: v9 }", "any", "", all.clone()),
        // Endpoints without a weight are no subset.
        ("{ version: v3 }", "none", "", vec![]),
        ("{ version: v3 }", "any", "", all),
        // Values of one key are not those of another.
        ("{ version: a }", "none", "", vec![]),
    ] {
        let found = ports(subset, &by.replace("FALLBACK", fallback), fields);
        assert_eq!(found, expected, "{subset} {fallback} {fields:?}");
    }
    let default = by.replace("FALLBACK", "default, default: { unit: b }");
    assert_eq!(ports("{ version: v9 }", &default, ""), [[9002]]);
    assert_eq!(ports("{ version: v1 }", &default, ""), [[9000]]);
}

#[test]
fn groups_have_numbers_of_their_own_and_know_their_endpoints() {
    let (cluster, hash) = asked("{ version: v2 }", "{ by: [[version]], fallback: any }", "");
    let levels = [None, hash].map(|hash| cluster.view.levels(hash));
    let mut numbers: Vec<_> = levels.iter().flat_map(|it| it.iter()).map(|it| it.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    for group in levels.into_iter().flatten() {
        let inner = |place| group.inner(place);
        let found = (0..group.len()).map(|at| inner(group.place(at).unwrap()));
        assert!(found.eq((0..group.len()).map(Some)));
        let members = (0..cluster.endpoints.len()).filter_map(inner).count();
        assert_eq!((members, group.place(group.len())), (group.len(), None));
    }
}

#[test]
fn a_subset_that_no_endpoint_or_no_rule_has_is_warned_of() {
    for (subset, subsets, path, rule) in [
        (
            "{ version: v1 }",
            "{ by: [[zone]] }",
            "clusters[0].subsets.by",
            "no endpoint has the keys",
        ),
        (
            "{ version: v1 }",
            "{ by: [[version]], fallback: default, default: { unit: c } }",
            "clusters[0].subsets.default",
            "no endpoint has these values",
        ),
        (
            "{ unit: a }",
            "{ by: [[version]] }",
            "routes[0].rules[0].subset",
            "no cluster of this rule",
        ),
    ] {
        let mut loader = loader();
        loader.load("strait.yaml", &text(subset, subsets)).unwrap();
        let found = loader.warnings().iter().find(|it| it.path == path);
        assert!(found.is_some_and(|it| it.rule.contains(rule)), "{:?}", loader.warnings());
    }
    let mut loader = loader();
    let keys = "{ version: v1, unit: { header: x-unit } }";
    loader.load("strait.yaml", &text(keys, "{ by: [[version]] }")).unwrap();
    assert_eq!(loader.warnings(), []);
}

#[test]
fn subsets_that_cannot_be() {
    for (subsets, path, rule) in [
        ("{ by: [[version], [version]] }", "clusters[0].subsets.by[1]", "twice"),
        ("{ by: [[version, version]] }", "clusters[0].subsets.by[0]", "twice"),
        ("{ by: [[]] }", "clusters[0].subsets.by[0]", "a key at least"),
        (
            "{ by: [[version]], fallback: default }",
            "clusters[0].subsets.fallback",
            "needs `default`",
        ),
        (
            "{ by: [[version]], default: { a: b } }",
            "clusters[0].subsets.default",
            "`fallback: default`",
        ),
    ] {
        let errors = loader().load("strait.yaml", &text("{ version: v1 }", subsets)).unwrap_err();
        let found = errors.errors.iter().find(|it| it.path == path);
        assert!(found.is_some_and(|it| it.rule.contains(rule)), "{subsets}: {errors}");
    }
}
