use wire::h1::{HeadLimits, Scan, decode_request, decode_response};
use wire::head::{HeadIndex, Method};
use wire::path::Slashes;

use super::operators::{Fact, OperatorFacts};
use super::*;

const LIMITS: HeadLimits = HeadLimits {
    request_line_bytes_max: 64 << 10,
    head_bytes_max: 128 << 10,
    fields_max: 64,
    slashes: Slashes::Keep,
};

type Pairs<'p> = &'p [(&'p str, &'p str)];

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn built(file: &EditsKey, side: Side, editor: Editor) -> Result<Edits, Vec<EditError>> {
    let mut errors = Vec::new();
    let edits = Edits::new(file, side, editor, &mut errors);
    if errors.is_empty() { Ok(edits) } else { Err(errors) }
}

fn edits(
    side: Side,
    set: Pairs<'_>,
    append: Pairs<'_>,
    remove: &[&str],
) -> Result<Edits, Vec<EditError>> {
    let remove = remove.iter().map(|name| (*name).into()).collect();
    let file = EditsKey { set: map(set), append: map(append), remove, ..EditsKey::default() };
    built(&file, side, Editor::Filter)
}

/// Edits of a rule that set fields.
fn setting(side: Side, set: Pairs<'_>) -> Result<Edits, Vec<EditError>> {
    built(&EditsKey { set: map(set), ..EditsKey::default() }, side, Editor::Route)
}

/// Every fact has this text.
struct Same<'t>(&'t [u8]);

impl OperatorFacts for Same<'_> {
    fn push(&self, _fact: Fact, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    fn start_nanos(&self) -> u64 {
        1_700_000_000_123_000_000
    }
}

fn lines<K>(head: &Head<'_, K>) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    head.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
}

/// The fields of an edited request, its host, and what was kept for `response`.
fn edited(
    edits: &Edits,
    bytes: &[u8],
    fact: &[u8],
    response: &Edits,
) -> (Vec<String>, String, Vec<u8>) {
    let (mut index, mut scan) = (HeadIndex::default(), Scan::default());
    let (mut head, _) = decode_request(bytes, &mut scan, &LIMITS, &mut index).unwrap().unwrap();
    edits.apply_to_request(&mut head, &Same(fact), &mut Vec::new());
    let mut kept = Vec::new();
    response.keep(&head, &mut kept);
    (lines(&head), String::from_utf8(head.host().to_vec()).unwrap(), kept)
}

fn edited_request(edits: &Edits, bytes: &[u8]) -> (Vec<String>, String) {
    let (lines, host, _) = edited(edits, bytes, b"fact", &Edits::default());
    (lines, host)
}

fn edited_response(edits: &Edits, bytes: &[u8], kept: &[u8]) -> Vec<String> {
    let (mut index, mut scan) = (HeadIndex::default(), Scan::default());
    let decoded = decode_response(bytes, &mut scan, &LIMITS, &mut index, Method::Get).unwrap();
    let (mut head, _) = decoded.unwrap();
    edits.apply_to_response(&mut head, kept, &Same(b"fact"), &mut Vec::new());
    lines(&head)
}

#[test]
fn fields_are_removed_then_set_then_appended() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\n\r\n";
    for (set, append, remove, want) in [
        (&[][..], &[][..], &[][..], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3"][..]),
        (&[("x-a", "9")], &[], &[], &["Host: a", "x-a: 9", "X-B: 2"]),
        (&[("x-c", "9")], &[], &[], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3", "x-c: 9"]),
        (&[], &[("x-b", "9")], &[], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3", "x-b: 9"]),
        (&[], &[], &["x-a"], &["Host: a", "X-B: 2"]),
        (&[("x-a", "s")], &[("X-A", "t")], &["X-a"], &["Host: a", "X-B: 2", "x-a: s", "x-a: t"]),
        (&[], &[], &["x-none"], &["Host: a", "X-A: 1", "X-B: 2", "X-A: 3"]),
        (&[("x-e", "")], &[], &["x-a", "x-b"], &["Host: a", "x-e: "]),
    ] {
        let edits = edits(Side::Request, set, append, remove).unwrap();
        assert_eq!(edited_request(&edits, request).0, want, "{edits:?}");
    }
}

#[test]
fn some_edits_depend_on_what_is_there() {
    let file = EditsKey {
        remove: vec!["x-c".into()],
        set_if_present: map(&[("x-a", "9"), ("x-none", "9"), ("x-c", "9")]),
        append_if_absent: map(&[("x-a", "7"), ("x-new", "7"), ("x-c", "7")]),
        ..EditsKey::default()
    };
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-A: 3\r\nx-c: 1\r\n\r\n";
    for editor in [Editor::Filter, Editor::Route] {
        let edits = built(&file, Side::Request, editor).unwrap();
        let (fields, _) = edited_request(&edits, request);
        assert_eq!(fields, ["Host: a", "x-a: 9", "x-c: 7", "x-new: 7"]);
    }
}

#[test]
fn what_is_set_or_removed_has_no_other_spelling() {
    let edits = edits(Side::Request, &[("x-user", "none")], &[], &["x-role"]).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nx_user: root\r\nX-User: root\r\n\
        X_Role: admin\r\nx-role: admin\r\na_b: 1\r\n\r\n";
    let (fields, _) = edited_request(&edits, request);
    assert_eq!(fields, ["Host: a", "x-user: none", "a_b: 1"]);
}

#[test]
fn a_host_that_a_filter_sets_is_the_one_that_routes() {
    let edits = edits(Side::Request, &[("Host", "Shop.example:81")], &[], &[]).unwrap();
    let (fields, host) = edited_request(&edits, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((fields, host.as_str()), (vec!["host: Shop.example:81".into()], "shop.example"));
    assert!(setting(Side::Request, &[("Host", "shop.example")]).is_err(), "rules rewrite it");
}

#[test]
fn responses_are_edited_likewise() {
    let edits = edits(Side::Response, &[("server", "edge")], &[], &["x-powered-by"]).unwrap();
    let bytes = b"HTTP/1.1 200 OK\r\nServer: a\r\nX-Powered-By: b\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(edited_response(&edits, bytes, b""), ["server: edge", "Content-Length: 0"]);
}

#[test]
fn names_that_are_straits_own_are_refused() {
    for name in [
        "connection",
        "Keep-Alive",
        "proxy-connection",
        "TE",
        "transfer-encoding",
        "Upgrade",
        "content-length",
        "http2-settings",
        ":path",
        ":status",
    ] {
        for side in [Side::Request, Side::Response] {
            assert!(edits(side, &[(name, "x")], &[], &[]).is_err(), "set {name}");
            assert!(edits(side, &[], &[(name, "x")], &[]).is_err(), "append {name}");
            assert!(edits(side, &[], &[], &[name]).is_err(), "remove {name}");
            assert!(setting(side, &[(name, "x")]).is_err(), "set {name}");
        }
    }
    assert!(edits(Side::Request, &[("expect", "x")], &[], &[]).is_err());
    assert!(edits(Side::Request, &[], &[("host", "x")], &[]).is_err());
    assert!(edits(Side::Request, &[], &[], &["host"]).is_err());
    assert!(edits(Side::Response, &[], &[], &["host", "expect"]).is_ok());
}

#[test]
fn names_that_are_no_tokens_are_refused() {
    for name in ["", "a b", "a:", "a\r", "ä", "a(b)", &"n".repeat(129)] {
        assert!(edits(Side::Request, &[(name, "x")], &[], &[]).is_err(), "{name:?}");
    }
    assert!(edits(Side::Request, &[(&"n".repeat(128), "x")], &[], &[]).is_ok());
    assert!(edits(Side::Request, &[("!#$%&'*+-.^_`|~09azAZ", "x")], &[], &[]).is_ok());
}

#[test]
fn values_that_would_break_a_head_are_refused() {
    for value in ["a\r\nb: c", "a\n", "a\0b", "a\x7fb", " a", "a\t", &"v".repeat(8193)] {
        assert!(edits(Side::Request, &[("x", value)], &[], &[]).is_err(), "{value:?}");
        assert!(setting(Side::Request, &[("x", value)]).is_err(), "{value:?}");
    }
    for value in ["", "a b\tc", "é", &"v".repeat(8192), "100%"] {
        assert!(edits(Side::Request, &[("x", value)], &[], &[]).is_ok(), "{value:?}");
    }
    for value in ["", "a b", "user@a", "a:99999"] {
        assert!(edits(Side::Request, &[("host", value)], &[], &[]).is_err(), "{value:?}");
    }
}

#[test]
fn the_same_name_twice_is_refused_in_any_case() {
    assert!(edits(Side::Request, &[("x-a", "1"), ("X-A", "2")], &[], &[]).is_err());
    assert!(edits(Side::Request, &[], &[], &["x-a", "X-A"]).is_err());
    assert!(edits(Side::Request, &[("x-a", "1")], &[("x-a", "2")], &["x-a"]).is_ok());
}

#[test]
fn all_errors_are_reported_each_with_its_place() {
    let bad = [("a b", "x"), ("te", "x"), ("ok", "x"), ("x-v", "a\n")];
    let errors = edits(Side::Response, &bad, &[], &["ok", "upgrade"]).unwrap_err();
    let places: Vec<_> = errors.iter().map(|error| (error.verb, error.at.clone())).collect();
    let name = |name: &str| EditPlace::Name(name.into());
    assert_eq!(
        places,
        [
            ("remove", EditPlace::Index(1)),
            ("set", name("a b")),
            ("set", name("te")),
            ("set", name("x-v")),
        ]
    );
}

#[test]
fn operators_stand_for_what_the_request_has() {
    let request = b"POST /a/b?c=d HTTP/1.1\r\nHost: Shop:81\r\nX-A: 1\r\nX-A: 2\r\nX-B: bee\r\n\
        x-request-id: id\r\n\r\n";
    for (value, want) in [
        ("%REQ(x-a)%", Some("1")),
        ("%REQ(X-None?X-B)%", Some("bee")),
        ("%REQ(x-none?x-none2)%", None),
        ("<%REQ(x-none)%>", Some("<>")),
        ("%REQ(x-b):2%", Some("be")),
        ("%REQ(:path)%", Some("/a/b?c=d")),
        ("%REQ(:METHOD)% %REQ(:authority)%", Some("POST Shop:81")),
        ("%REQ(host)% %REQ(:scheme)%", Some("Shop:81 fact")),
        ("%STREAM_ID%", Some("id")),
        ("100%%, %%REQ(x-a)%%", Some("100%, %REQ(x-a)%")),
        ("%PROTOCOL%%ROUTE_NAME%", Some("factfact")),
        ("a %REQ(x-none)%", Some("a")),
        ("%START_TIME%", Some("2023-11-14T22:13:20.123Z")),
        ("%START_TIME()%", Some("2023-11-14T22:13:20.123Z")),
        ("%START_TIME(%s.%6f)%", Some("1700000000.123000")),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT:2%", Some("fa")),
    ] {
        let edits = setting(Side::Request, &[("x-v", value)]).unwrap();
        let (fields, _) = edited_request(&edits, request);
        let found = fields.iter().find_map(|line| line.strip_prefix("x-v: "));
        assert_eq!(found, want, "{value}");
    }
}

#[test]
fn values_see_the_head_before_any_field_is_written() {
    let file = EditsKey {
        remove: vec!["x-gone".into()],
        set: map(&[("x-a", "new"), ("x-old", "%REQ(x-a)%"), ("x-none", "<%REQ(x-gone)%>")]),
        append: map(&[("x-b", "%REQ(x-old)% %REQ(x-a)%")]),
        ..EditsKey::default()
    };
    let edits = built(&file, Side::Request, Editor::Route).unwrap();
    let (lines, _) =
        edited_request(&edits, b"GET / HTTP/1.1\r\nHost: a\r\nx-a: 1\r\nx-gone: 2\r\n\r\n");
    assert_eq!(lines, ["Host: a", "x-a: new", "x-none: <>", "x-old: 1", "x-b: 1"]);
}

#[test]
fn a_field_that_is_set_to_nothing_is_not_the_clients_either() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nx-id: root\r\nx_id: root\r\n\r\n";
    for value in ["%REQ(x-none)%", "%PROTOCOL%"] {
        let edits = setting(Side::Request, &[("x-id", value)]).unwrap();
        let (fields, ..) = edited(&edits, request, b"", &Edits::default());
        assert_eq!(fields, ["Host: a"], "{value}");
    }
    let file = EditsKey { append: map(&[("x-id", "%REQ(x-none)%")]), ..EditsKey::default() };
    let appended = built(&file, Side::Request, Editor::Route).unwrap();
    assert_eq!(edited_request(&appended, request).0, ["Host: a", "x-id: root", "x_id: root"]);
}

#[test]
fn no_value_can_end_its_line() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let edits = setting(Side::Request, &[("x-v", "[%DOWNSTREAM_PEER_SUBJECT%]")]).unwrap();
    for (fact, want) in [
        (&b"CN=a"[..], "x-v: [CN=a]"),
        (b"CN=a\r\nx-admin: 1", "x-v: []"),
        (b"a\n", "x-v: []"),
        (b"\0", "x-v: []"),
        (b"a\x7f", "x-v: []"),
        ("é\t ".as_bytes(), "x-v: [é\t ]"),
    ] {
        let (fields, ..) = edited(&edits, request, fact, &Edits::default());
        assert_eq!(fields, ["Host: a", want], "{fact:?}");
    }
    let long = vec![b'x'; 8192 + 1];
    let (fields, ..) = edited(&edits, request, &long, &Edits::default());
    assert_eq!(fields, ["Host: a", "x-v: []"], "what is too long is left out as a whole");
    let (fields, ..) = edited(&edits, request, &long[2..], &Edits::default());
    assert_eq!(fields, ["Host: a"], "with what stands around it the value is too long");
}

#[test]
fn responses_may_have_what_was_kept_of_their_requests() {
    let set = [
        ("x-a", "%REQ(x-a)%|%REQ(x-a?x-b)%"),
        ("x-none", "%REQ(x-none)%"),
        ("x-path", "%REQ(:path)% %RESP(server)% %RESP(x-none?x-r)% %RESP(:status)%"),
        ("x-host", "%UPSTREAM_HOST%"),
    ];
    let edits = setting(Side::Response, &set).unwrap();
    let request = b"GET /p HTTP/1.1\r\nHost: a\r\nx-a: 1\r\nx-b: 2\r\n\r\n";
    let (_, _, kept) = edited(&Edits::default(), request, b"", &edits);
    let response = b"HTTP/1.1 200 OK\r\nServer: s\r\nx-r: r\r\nx-none: n\r\n\r\n";
    // `x-none` of the response is asked for before it goes.
    let want = ["Server: s", "x-r: r", "x-a: 1|1", "x-host: fact", "x-path: /p s n fact"];
    assert_eq!(edited_response(&edits, response, &kept), want);
    // What was damaged on its way is not taken for anything.
    for end in 0..kept.len() {
        edited_response(&edits, response, &kept[..end]);
        let mut garbled = kept.clone();
        garbled[end] ^= 0xff;
        edited_response(&edits, response, &garbled);
    }
}

#[test]
fn no_more_is_kept_than_its_bound() {
    let names: Vec<String> = (0..20).map(|n| format!("x-{n}")).collect();
    let set: Vec<(String, String)> =
        names.iter().map(|name| (name.clone(), format!("%REQ({name})%"))).collect();
    let set: Vec<_> = set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let edits = setting(Side::Response, &set).unwrap();
    let fields: String =
        names.iter().map(|name| format!("{name}: {}\r\n", "v".repeat(5_000))).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let (_, _, kept) = edited(&Edits::default(), request.as_bytes(), b"", &edits);
    assert!(kept.len() <= operators::KEPT_BYTES_MAX && kept.len() > 60_000, "{}", kept.len());
}

#[test]
fn what_is_no_operator_is_refused_with_what_was_meant() {
    for (value, rule, hint) in [
        ("%PROTOCL%", "no operator %PROTOCL%", "did you mean `PROTOCOL`?"),
        ("%DOWNSTREAM_REMOTE_ADRESS%", "no operator", "did you mean `DOWNSTREAM_REMOTE_ADDRESS`?"),
        ("%DOWNSTREAM_REMOTE_IP%", "no operator", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
        ("%REMOTE_ADDR%", "no operator", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
        ("%protocol%", "no operator", "did you mean `PROTOCOL`?"),
        ("%XXXXXXXX%", "no operator", "known are: "),
        ("100%", "begins an operator", "`%%`"),
        ("50% off", "begins an operator", "`%%`"),
        ("%REQ(x-a%", "begins an operator", "`%%`"),
        ("%REQ(x-a)", "begins an operator", "`%%`"),
        ("%%%", "begins an operator", "`%%`"),
        ("%(x)%", "begins an operator", "`%%`"),
        ("%REQ%", "needs the name", "(x-user)"),
        ("%REQ()%", "no field name", "%REQ(x-user)%"),
        ("%REQ(a b)%", "no field name", "%REQ(x-user)%"),
        ("%REQ(a?b?c)%", "no field name", "%REQ(x-user)%"),
        ("%REQ(:status)%", "no field name", "%REQ(x-user)%"),
        ("%REQ(x):0%", "maximum number of bytes", "%REQ(x-user):32%"),
        ("%REQ(x):%", "maximum number of bytes", "%REQ(x-user):32%"),
        ("%REQ(x):99999%", "maximum number of bytes", "%REQ(x-user):32%"),
        ("%PROTOCOL(x)%", "no argument", "remove the parentheses"),
        ("%STREAM_ID(x)%", "no argument", "remove the parentheses"),
        ("%START_TIME(%Q)%", "no part of a time", "%Y"),
        ("%RESP(x)%", "once there is a response", "under `response`"),
        ("%UPSTREAM_HOST%", "once there is a response", "under `response`"),
        ("%DURATION%", "once there is a response", "under `response`"),
        (&"%PROTOCOL%".repeat(33), "at most 32 operators", "several fields"),
    ] {
        let errors = setting(Side::Request, &[("x-v", value)]).unwrap_err();
        let [EditError { verb: "set", problem, .. }] = errors.as_slice() else {
            panic!("{value}: {errors:?}")
        };
        assert!(problem.rule.contains(rule) && problem.hint.contains(hint), "{value}: {problem:?}");
    }
}
