//! What requests each criterion of a rule is met by.

use std::net::IpAddr;

use config::matching::{Asked, Searches};
use config::snapshot::RouteTable;
use wire::h1::{HeadLimits, Scan, decode_request};
use wire::head::HeadIndex;
use wire::path::Slashes;

use crate::sample::loader;

/// Hands the request with this head, as HTTP/1 has it, to `ask`.
pub(crate) fn asking<T>(head: &str, ask: impl FnOnce(&Asked<'_>) -> T) -> T {
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let limits = HeadLimits {
        request_line_bytes_max: 1 << 20,
        head_bytes_max: 1 << 20,
        fields_max: 1_000,
        slashes: Slashes::Keep,
    };
    let decoded = decode_request(head.as_bytes(), &mut scan, &limits, &mut index);
    let (head, _) = decoded.expect("a sound head").expect("a whole head");
    let source = Some(IpAddr::from([192, 0, 2, 7]));
    ask(&Asked { head: &head, source, client: None, die: 125_000 })
}

/// A table with these rules, each of which is answered here.
fn table(matches: &[&str]) -> std::sync::Arc<RouteTable> {
    let rules = matches.iter().map(|it| format!("{{ match: {{ {it} }}, respond: {{}} }}"));
    let text = format!(
        "listeners: [{{ name: l, address: '127.0.0.1:1', routes: r }}]\n\
         routes: [{{ name: r, rules: [{}] }}]\n",
        rules.collect::<Vec<_>>().join(", ")
    );
    let snapshot = loader().load("strait.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    let (_, table) = snapshot.route_tables.iter().next().expect("the table");
    std::sync::Arc::clone(table)
}

/// The place of the rule that this request meets.
fn found(table: &RouteTable, target: &str, fields: &str) -> Option<usize> {
    let (method, target) = target.split_once(' ').unwrap_or(("GET", target));
    let fields: String = fields.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    asking(&head, |asked| table.find(asked, &mut Searches::default()).map(|(place, _)| place))
}

#[test]
fn each_criterion_is_met_by_what_it_says_and_by_nothing_else() {
    for (criterion, requests) in [
        (
            "methods: [GET, PURGE]",
            &[
                ("GET /", "", true),
                ("PURGE /", "", true),
                ("HEAD /", "", false),
                ("get /", "", false),
            ][..],
        ),
        ("methods: { not: [POST] }", &[("GET /", "", true), ("POST /", "", false)]),
        (
            "headers: { x-a: b }",
            &[
                ("/", "", false),
                ("/", "x-a: b", true),
                ("/", "X-A:   b  ", true),
                ("/", "x-a: B", false),
                ("/", "x-a: bb", false),
                ("/", "x-a: b\nx-a: b", false),
                ("/", "x-a:", false),
                ("/", "x_a: b", false),
            ],
        ),
        (
            "headers: { x-a: { exact: 'b,c' } }",
            &[("/", "x-a: b\nx-a: c", true), ("/", "x-a: b,c", true), ("/", "x-a: b, c", false)],
        ),
        (
            "headers: { x-a: { exact: bc, case: insensitive } }",
            &[("/", "x-a: Bc", true), ("/", "x-a: bcd", false)],
        ),
        (
            "headers: { x-a: { prefix: ab } }",
            &[
                ("/", "x-a: abc", true),
                ("/", "x-a: ab", true),
                ("/", "x-a: a", false),
                ("/", "x-a: AB", false),
            ],
        ),
        (
            "headers: { x-a: { suffix: bc, case: insensitive } }",
            &[("/", "x-a: aBC", true), ("/", "x-a: c", false), ("/", "x-a: bcd", false)],
        ),
        (
            "headers: { x-a: { contains: bc } }",
            &[("/", "x-a: abcd", true), ("/", "x-a: aBCd", false), ("/", "x-a: b\nx-a: c", false)],
        ),
        (
            "headers: { x-a: { contains: bc, case: insensitive } }",
            &[("/", "x-a: aBCd", true), ("/", "x-a: b", false)],
        ),
        (
            "headers: { x-a: { regex: '[a-c]+' } }",
            &[
                ("/", "x-a: abc", true),
                ("/", "x-a: xabc", false),
                ("/", "x-a: abcx", false),
                ("/", "x-a:", false),
                ("/", "", false),
            ],
        ),
        (
            "headers: { x-a: { regex: 'a|bc' } }",
            &[("/", "x-a: a", true), ("/", "x-a: bc", true), ("/", "x-a: ac", false)],
        ),
        (
            "headers: { x-a: { regex: '(?x) a # no end of the expression' } }",
            &[("/", "x-a: a", true), ("/", "x-a: ab", false)],
        ),
        (
            "headers: { x-a: { regex: '\\d' } }",
            &[("/", "x-a: 7", true), ("/", "x-a: \u{664}", false)],
        ),
        (
            "headers: { x-a: { regex: 'ab', case: insensitive } }",
            &[("/", "x-a: aB", true), ("/", "x-a: b", false)],
        ),
        (
            "headers: { x-a: { range: [-2, 18] } }",
            &[
                ("/", "x-a: -2", true),
                ("/", "x-a: 17", true),
                ("/", "x-a: +3", true),
                ("/", "x-a: 18", false),
                ("/", "x-a: -3", false),
                ("/", "x-a: 1.5", false),
                ("/", "x-a: 0x1", false),
                ("/", "x-a: 99999999999999999999", false),
                ("/", "x-a:", false),
                ("/", "", false),
            ],
        ),
        ("headers: { x-a: { present: true } }", &[("/", "x-a:", true), ("/", "", false)]),
        ("headers: { x-a: { present: false } }", &[("/", "x-a:", false), ("/", "", true)]),
        (
            "headers: { x-a: { not: off } }",
            &[("/", "x-a: on", true), ("/", "x-a: off", false), ("/", "", false)],
        ),
        (
            "headers: { x-a: { not: off, missing_as_empty: true } }",
            &[("/", "x-a: on", true), ("/", "x-a: off", false), ("/", "", true)],
        ),
        (
            "headers: { x-a: { exact: '', missing_as_empty: true } }",
            &[("/", "", true), ("/", "x-a:", true), ("/", "x-a: b", false)],
        ),
        (
            "headers: { x-a: { not: { prefix: a } } }",
            &[("/", "x-a: b", true), ("/", "x-a: ab", false), ("/", "", false)],
        ),
        (
            "query: { page: { regex: '[0-9]+' } }",
            &[
                ("/?page=12", "", true),
                ("/?a&p%61ge=%31", "", true),
                ("/?page=x&page=1", "", false),
                ("/?page=", "", false),
                ("/?Page=1", "", false),
                ("/", "", false),
                ("/page=1", "", false),
            ],
        ),
        (
            "query: { a: 'b c' }",
            &[("/?a=b+c", "", true), ("/?a=b%20c", "", true), ("/?a=b%2Bc", "", false)],
        ),
        (
            "query: { a: { present: false } }",
            &[("/?b", "", true), ("/?a", "", false), ("/?%61", "", false)],
        ),
        (
            "cookies: { beta: yes }",
            &[
                ("/", "cookie: beta=yes", true),
                ("/", "cookie: a=b; beta=\"yes\"", true),
                ("/", "cookie: a=b\ncookie: beta=yes", true),
                ("/", "cookie: beta=no; beta=yes", false),
                ("/", "cookie: xbeta=yes", false),
                ("/", "", false),
            ],
        ),
        (
            "cookies: { beta: { present: false } }",
            &[("/", "cookie: a=b", true), ("/", "cookie: beta=", false)],
        ),
        ("sources: [192.0.2.0/24]", &[("/", "", true)]),
        ("sources: [10.0.0.0/8, 192.0.2.7]", &[("/", "", true)]),
        ("sources: [192.0.3.0/24]", &[("/", "", false)]),
        ("sources: { not: [192.0.2.0/24] }", &[("/", "", false)]),
        ("sources: { not: [10.0.0.0/8] }", &[("/", "", true)]),
        (
            "grpc: true",
            &[
                ("POST /", "content-type: application/grpc", true),
                ("POST /", "content-type: application/grpc+proto", true),
                ("POST /", "content-type: application/grpc-web", false),
                ("POST /", "content-type: application/grpcx", false),
                ("POST /", "", false),
            ],
        ),
        ("grpc: false", &[("POST /", "content-type: application/grpc", false), ("/", "", true)]),
        // The die is at 12.5 %.
        ("fraction: { percent: 12.5 }", &[("/", "", false)]),
        ("fraction: { percent: 12.5001 }", &[("/", "", true)]),
        ("fraction: { percent: 0 }", &[("/", "", false)]),
        ("fraction: { percent: 100% }", &[("/", "", true)]),
        (
            "methods: [GET], headers: { x-a: b }",
            &[("/", "x-a: b", true), ("/", "", false), ("POST /", "x-a: b", false)],
        ),
    ] {
        let table = table(&[&format!("prefix: /, {criterion}")]);
        for (target, fields, is_met) in requests {
            let found = found(&table, target, fields);
            assert_eq!(found.is_some(), *is_met, "{criterion}: {target:?} {fields:?}");
        }
    }
}

#[test]
fn a_path_is_compared_in_its_one_spelling_whatever_it_is_compared_with() {
    for (condition, paths) in [
        (
            "segments: /tenant",
            &[("/tenant", true), ("/tenant/", true), ("/tenant/x", true), ("/tenantx", false)][..],
        ),
        ("segments: /%74enant", &[("/tenant/x", true), ("/t%65nant/x", true)]),
        (
            "path: /Admin, case: insensitive",
            &[
                ("/admin", true),
                ("/ADMIN", true),
                ("/%61dmin", true),
                ("/a/../ADMIN", true),
                ("/admin/", false),
            ],
        ),
        ("prefix: /Api/, case: insensitive", &[("/aPI/x", true), ("/api", false)]),
        (
            "regex: '/users/([0-9]+)/orders'",
            &[
                ("/users/7/orders", true),
                ("/users/7/orders?x=/users", true),
                ("/x/../users/7/orders", true),
                ("/users/%37/orders", true),
                ("/users/7/orders/", false),
                ("/x/users/7/orders", false),
                ("/users//orders", false),
            ],
        ),
        // What is encoded is not what it stands for.
        ("regex: '/a[^/]b'", &[("/a%2Fb", false), ("/axb", true)]),
        ("regex: '(?i)/a+'", &[("/AaA", true), ("/b", false)]),
        ("regex: '/a|/b'", &[("/a", true), ("/b", true), ("/ab", false), ("/a/b", false)]),
        (
            "template: '/items/{id}/{rest=**}'",
            &[
                ("/items/7/a/b", true),
                ("/items/7/", true),
                ("/items/7", false),
                ("/items//a", false),
            ],
        ),
        (
            "template: '/v*/{name=a/*}'",
            &[("/v2/a/x", true), ("/v2/b/x", false), ("/v2/a/x/y", false)],
        ),
    ] {
        let table = table(&[condition]);
        for (path, is_met) in paths {
            assert_eq!(found(&table, path, "").is_some(), *is_met, "{condition}: {path}");
        }
    }
}

#[test]
fn rules_that_a_value_tells_apart_are_found_in_the_order_of_the_file() {
    let mut matches: Vec<String> = Vec::new();
    for n in 0..40 {
        matches.push(format!("prefix: /, headers: {{ x-a: v{n} }}"));
        matches.push(format!("prefix: /, cookies: {{ c: v{n} }}, methods: [GET]"));
    }
    matches.insert(30, "prefix: /, headers: { x-b: { present: true } }".to_owned());
    matches.push("prefix: /".to_owned());
    let matches: Vec<&str> = matches.iter().map(String::as_str).collect();
    let table = table(&matches);
    for (target, fields, place) in [
        ("/", "x-a: v3", 6),
        ("/", "cookie: c=v3", 7),
        ("/", "cookie: c=v3\nx-a: v3", 6),
        ("/", "cookie: c=v3\nx-a: v4", 7),
        ("POST /", "cookie: c=v3\nx-a: v4", 8),
        ("/", "x-a: v3\nx-a: v4", 81),
        ("/", "x-b: 1\nx-a: v3", 6),
        ("/", "x-b: 1\nx-a: v20", 30),
        ("/", "x-a: v20", 41),
        ("/", "", 81),
    ] {
        assert_eq!(found(&table, target, fields), Some(place), "{target} {fields}");
    }
}

#[test]
fn a_search_for_many_expressions_keeps_no_more_than_its_bound() {
    let matches: Vec<String> =
        (0..300).map(|n| format!("regex: '/[a-z]+/(x|y)*{n}/([0-9a-f]{{1,8}}-)+[a-z]*'")).collect();
    let matches: Vec<&str> = matches.iter().map(String::as_str).collect();
    let table = table(&matches);
    let mut searches = Searches::default();
    for n in 0..300 {
        let head = format!("GET /ab{n}/xyxy{n}/{n:x}-0a-z HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = head.replace(&format!("/ab{n}/"), "/ab/");
        let found = asking(&head, |asked| table.find(asked, &mut searches).map(|(place, _)| place));
        assert_eq!(found, Some(n));
    }
    let bytes = searches.memory_bytes();
    assert!(bytes <= config::matching::SEARCH_BYTES_MAX, "{bytes}");
}

#[test]
fn the_first_rule_in_the_order_of_the_file_wins_whatever_it_asks_for() {
    let table = table(&[
        "prefix: /api/, headers: { x-a: b }",
        "path: /api/x, query: { q: '1' }",
        "prefix: /, methods: [POST]",
        "prefix: /api/",
        "prefix: /, headers: { x-a: b }",
        "prefix: /",
    ]);
    for (target, fields, place) in [
        ("/api/x?q=1", "x-a: b", 0),
        ("/api/x?q=1", "", 1),
        ("POST /api/x?q=1", "", 1),
        ("POST /api/x", "", 2),
        ("/api/x", "", 3),
        ("/apix", "x-a: b", 4),
        ("POST /apix", "x-a: b", 2),
        ("/", "", 5),
    ] {
        assert_eq!(found(&table, target, fields), Some(place), "{target} {fields}");
    }
}

#[test]
fn values_of_any_size_are_bounded_work_and_no_panic() {
    let table = table(&[
        "prefix: /, headers: { x-a: { regex: '(a|b)*a(a|b){21}' } }",
        "prefix: /, headers: { x-a: { contains: 'aab', case: insensitive } }",
        "prefix: /, query: { page: '1' }",
        "prefix: /, cookies: { last: '1' }",
    ]);
    let long = "ab".repeat(30 << 10);
    assert_eq!(found(&table, "/", &format!("x-a: {long}")), Some(0));
    assert_eq!(found(&table, "/", &format!("x-a: {long}c")), None);
    assert_eq!(found(&table, &format!("/?{}page=1", "&".repeat(8 << 10)), ""), Some(2));
    let cookies: String = (0..100).map(|n| format!("c{n}={n}; ")).collect();
    assert_eq!(found(&table, "/", &format!("cookie: {cookies}last=1")), Some(3));
    assert_eq!(found(&table, "/", "x-a: \u{ff}\u{fe}\t\u{664}"), None);
}

#[test]
fn a_rule_that_was_passed_over_says_which_criterion_saw_what() {
    let table = table(&[
        "prefix: /, methods: [POST, PUT]",
        "prefix: /, headers: { x-a: { not: { prefix: b } } }",
        "prefix: /, query: { page: { regex: '[0-9]+' } }",
        "prefix: /, cookies: { beta: 'yes' }",
        "prefix: /, headers: { x-api-key: { not: { regex: s3cret } } }",
        "prefix: /, query: { page: { regex: \"\\e\" } }",
        "prefix: /, sources: [10.0.0.0/8, 172.16.0.0/12]",
        "prefix: /, client: ['*']",
        "prefix: /, grpc: true",
        "prefix: /, fraction: { percent: 5 }",
        "path: /other",
        "prefix: /",
    ]);
    let head = "GET /?page=x HTTP/1.1\r\nHost: a\r\nx-a: bc\r\n\r\n";
    let said: Vec<String> = asking(head, |asked| {
        let verdicts = table.explain(asked, &mut Searches::default());
        let said = verdicts.into_iter().map(|(_, verdict)| match verdict {
            config::explain::Verdict::PassedOver(why) => why.to_string(),
            verdict => format!("{verdict:?}"),
        });
        said.collect()
    });
    let expected = [
        "method POST or PUT does not match: \"GET\"",
        "header x-a not prefix \"b\" does not match: \"bc\"",
        "query page regex \"[0-9]+\" does not match: \"x\"",
        "cookie beta *** does not match: absent",
        "header x-api-key *** does not match: absent",
        "query page regex \"\\u{1b}\" does not match: \"x\"",
        "source 10.0.0.0/8 or 172.16.0.0/12 does not match: 192.0.2.7",
        "client * does not match: no certificate",
        "grpc does not match: no content-type",
        "fraction 5% does not match: the random number 12.5%",
        "the path is another one",
        "Matched",
    ];
    assert_eq!(said, expected);
}
