//! Heads between the versions: what comes as HTTP/2 and goes on as HTTP/1, and the other way.

use wire::buffer::Buffer;
use wire::h1::{
    ConnectionField, Scan, decode_request, decode_response, encode_request, encode_response,
};
use wire::h2::hpack::{Decoder, Secrecy};
use wire::h2::{
    Element, Http2, Limits, RequestForm, Scheme, head_len_max, reply_len_max, trailers_len_max,
};
use wire::head::{Framing, HeadIndex, Known, Method, RequestHead, ResponseHead, Version};

use super::kit::*;

/// The request of these lines, as HTTP/1.1 sends it on.
fn sent_on(flags: u8, lines: &[&str]) -> String {
    with_request(&headers(1, flags, lines), |head| {
        assert_eq!((head.version(), head.persistent()), (Version::Http2, true));
        let field = head.upgrade().map_or(ConnectionField::Default, |_| ConnectionField::Upgrade);
        let mut out = Buffer::new(head.encoded_len_max());
        encode_request(head, field, &mut out);
        String::from_utf8(out.filled().to_vec()).unwrap()
    })
}

fn with_request<T>(input: &[u8], see: impl FnOnce(&mut RequestHead<'_>) -> T) -> T {
    let mut side = Side::server();
    let found = side.h2.decode(input, &side.limits, &mut side.scratch);
    let Ok((_, Element::Request { mut head, .. })) = found else { panic!("{found:?}") };
    see(&mut head)
}

/// A request as HTTP/1 has it.
fn with_http1<T>(text: &str, see: impl FnOnce(&mut RequestHead<'_>) -> T) -> T {
    let mut index = HeadIndex::default();
    let limits = Limits::default().head;
    let head = decode_request(text.as_bytes(), &mut Scan::default(), &limits, &mut index);
    let (mut head, _) = head.unwrap().unwrap();
    see(&mut head)
}

/// The fields of the one header block in `frames`, and which of them are secret.
fn fields(frames: &[u8]) -> Vec<String> {
    let mut block = Vec::new();
    let mut rest = frames;
    while !rest.is_empty() {
        let len = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        block.extend_from_slice(&rest[9..9 + len]);
        rest = &rest[9 + len..];
    }
    let mut decoder = Decoder::new(4096);
    let (mut literal, mut fields) = (Vec::new(), decoder.fields(&block));
    let mut all = Vec::new();
    while let Some(line) = fields.next(&mut literal) {
        let secret = if line.secrecy() == Secrecy::Secret { " (secret)" } else { "" };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        all.push(format!("{}: {}{secret}", text(line.name()), text(line.value())));
    }
    all
}

/// What a client sends for this head.
fn asked(head: &RequestHead<'_>, form: RequestForm) -> Vec<String> {
    let mut side = Side::client();
    let mut out = Buffer::new(head_len_max(head));
    assert_eq!(side.h2.send_request(head, Scheme::Https, form, false, &mut out), Some(1));
    fields(out.filled())
}

#[test]
fn a_request_becomes_one_of_http_1() {
    assert_eq!(sent_on(END_STREAM, &GET), "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let lines = [
        ":method: PUT",
        ":path: /a/b?c=d",
        ":authority: Example.com:8080",
        ":scheme: https",
        "x-a: 1",
        "cookie: a=b",
        "accept: */*",
        "cookie: c=d",
        "x-a: 2",
        "cookie: e=f",
        "expect: 100-continue",
        "te: trailers",
        "proxy-authorization: secret",
    ];
    let expected = "PUT /a/b?c=d HTTP/1.1\r\nhost: Example.com:8080\r\nx-a: 1\r\naccept: */*\r\n\
        x-a: 2\r\nexpect: 100-continue\r\ncookie: a=b; c=d; e=f\r\ntransfer-encoding: chunked\r\n\
        connection: te\r\nte: trailers\r\n\r\n";
    assert_eq!(sent_on(0, &lines), expected);
    with_request(&headers(1, 0, &lines), |head| {
        assert_eq!((head.method(), head.path()), (Method::Put, &b"/a/b"[..]));
        assert_eq!(head.query(), Some(&b"c=d"[..]));
        assert_eq!(head.host(), b"example.com");
        assert_eq!(head.authority(), b"Example.com:8080");
        assert!(head.expects_continue() && head.accepts_trailers());
        assert_eq!(head.framing(), Framing::Chunked);
        assert_eq!(head.field(Known::Cookie), Some(&b"a=b; c=d; e=f"[..]));
    });
}

#[test]
fn paths_and_hosts_have_the_spelling_that_they_have_in_http_1() {
    for (path, authority, sent_path, sent_host) in [
        ("/g%c3%a9/%2f", "a", "/g%C3%A9/%2F", "a"),
        ("/{%7b}?{%c3", "a", "/%7B%7B%7D?{%c3", "a"),
        ("/%61/../b", "a", "/b", "a"),
        ("//a", "a", "//a", "a"),
        ("/", "Secret.Test.", "/", "Secret.Test"),
        ("/", "secret.test.:8443", "/", "secret.test:8443"),
        ("/", "[::1]:8443", "/", "[::1]:8443"),
    ] {
        let expected = format!("GET {sent_path} HTTP/1.1\r\nhost: {sent_host}\r\n\r\n");
        let head = [":method: GET", ":scheme: http", &format!(":path: {path}")].map(str::to_owned);
        for names in [
            vec![format!(":authority: {authority}")],
            vec![format!("host: {authority}")],
            vec![format!(":authority: {authority}"), format!("host: {authority}")],
            vec![format!(":authority: {authority}"), format!("host: {sent_host}")],
        ] {
            let lines: Vec<&str> = head.iter().chain(&names).map(String::as_str).collect();
            assert_eq!(sent_on(END_STREAM, &lines), expected, "{lines:?}");
            with_request(&headers(1, END_STREAM, &lines), |head| {
                let host = sent_host.trim_end_matches(":8443").to_lowercase();
                assert_eq!(head.host(), host.as_bytes());
            });
        }
    }
}

#[test]
fn empty_crumbs_of_a_cookie_add_nothing() {
    for (crumbs, cookie) in [
        (&["cookie: "][..], ""),
        (&["cookie: ", "cookie: "], ""),
        (&["cookie: ", "cookie: a=b"], " a=b"),
        (&["cookie: a=b", "cookie: "], " a=b"),
        (&["cookie: a=b", "cookie: ", "cookie: c=d"], " a=b; c=d"),
    ] {
        let sent = sent_on(END_STREAM, &[&GET[..], crumbs].concat());
        let expected = format!("GET / HTTP/1.1\r\nhost: a\r\ncookie:{cookie}\r\n\r\n");
        assert_eq!(sent.replace("cookie: \r", "cookie:\r"), expected, "{crumbs:?}");
    }
}

#[test]
fn the_length_of_a_body_is_kept() {
    let with_length = |flags, length: &str| {
        sent_on(flags, &[&POST[..], &[format!("content-length: {length}").as_str()]].concat())
    };
    let expected = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n";
    assert_eq!(with_length(0, "5"), expected);
    assert_eq!(with_length(END_STREAM, "0"), expected.replace('5', "0"));
    assert_eq!(sent_on(END_STREAM, &POST), "POST / HTTP/1.1\r\nhost: a\r\n\r\n");
}

#[test]
fn paths_have_one_spelling() {
    for (path, expected) in [
        ("/", "/"),
        ("/a/../b?c=/../d", "/b?c=/../d"),
        ("/%61%2f", "/a%2F"),
        ("/a/./b/", "/a/b/"),
        ("/index.html", "/index.html"),
        ("/?", "/?"),
    ] {
        let lines = [":method: GET", ":scheme: http", &format!(":path: {path}"), ":authority: a"];
        let expected = format!("GET {expected} HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(sent_on(END_STREAM, &lines), expected);
        with_request(&headers(1, END_STREAM, &lines), |head| {
            let sent = asked(head, RequestForm::Same);
            let line = expected.split(' ').nth(1).unwrap();
            assert!(sent.contains(&format!(":path: {line}")), "{sent:?}");
        });
    }
    let everything = [":method: OPTIONS", ":scheme: http", ":path: *", ":authority: a"];
    assert_eq!(sent_on(END_STREAM, &everything), "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n");
}

#[test]
fn what_cannot_be_served_is_distinct_from_what_is_malformed() {
    let [method, scheme, path, authority] = GET;
    for (lines, error) in [
        (vec![method, scheme, ":path: /\\", authority], "PathInvalid(Backslash)"),
        (vec![method, scheme, ":path: /%", authority], "PathInvalid(PercentInvalid)"),
        (vec![method, scheme, ":path: /%00", authority], "PathInvalid(EncodedNul)"),
        (vec![method, scheme, path, ":authority: user@a"], "HostInvalid"),
        (vec![method, scheme, path, ":authority: a b"], "HostInvalid"),
        (vec![method, scheme, path, "host: a,b"], "HostInvalid"),
        (vec![method, scheme, path], "HostMissing"),
    ] {
        let mut side = Side::server();
        let expected = format!("unacceptable 1 {error} end");
        assert_eq!(side.hear(&headers(1, END_STREAM, &lines)), Ok(vec![expected]));
        // It can be answered.
        assert!(side.answer(1, 400));
        assert_eq!(side.said().last().unwrap(), "HEADERS 1 1 end");
    }
}

#[test]
fn a_head_has_the_limits_of_http_1() {
    let at_most = |limits: &Limits, lines: &[&str]| {
        let mut side = Side::server_with(*limits);
        let mut heard = side.hear(&headers(1, END_STREAM, lines)).unwrap();
        let first = heard.remove(0);
        let next = side.hear(&get(3)).unwrap();
        assert_eq!(next, ["request 3 GET / end"], "the connection goes on");
        first
    };
    let mut limits = Limits::default();
    // GET / HTTP/1.1, host: a, and a line of 9 + x, and the empty one: 36 + x
    let of = |n: usize| format!("x-a-b: {}", "x".repeat(n));
    limits.head.head_bytes_max = 50;
    assert!(at_most(&limits, &[&GET[..], &[&of(14)]].concat()).starts_with("request 1 "));
    assert_eq!(
        at_most(&limits, &[&GET[..], &[&of(15)]].concat()),
        "unacceptable 1 HeadTooLarge end"
    );
    let crumbs = ["cookie: abcd", "cookie: abcdefgh"];
    assert!(at_most(&limits, &[&GET[..], &crumbs[..1]].concat()).starts_with("request 1 "));
    assert_eq!(at_most(&limits, &[&GET[..], &crumbs].concat()), "unacceptable 1 HeadTooLarge end");

    let mut limits = Limits::default();
    limits.head.fields_max = 3;
    let fields = ["x-a: 1", "cookie: a", "cookie: b", "cookie: c"];
    assert!(at_most(&limits, &[&GET[..], &fields].concat()).starts_with("request 1 "));
    let more = ["x-a: 1", "cookie: a", "te: trailers"];
    assert_eq!(at_most(&limits, &[&GET[..], &more].concat()), "unacceptable 1 FieldsTooMany end");

    let mut limits = Limits::default();
    limits.head.request_line_bytes_max = 20;
    let path = |n: usize| format!(":path: /{}", "x".repeat(n));
    let lines = |path: &str| [GET[0], GET[1], path, GET[3]].map(str::to_owned);
    let seven = lines(&path(6));
    assert!(at_most(&limits, &seven.each_ref().map(String::as_str)).starts_with("request 1 "));
    let eight = lines(&path(7));
    let over = at_most(&limits, &eight.each_ref().map(String::as_str));
    assert_eq!(over, "unacceptable 1 LineTooLong end");
}

#[test]
fn a_response_becomes_one_of_http_1() {
    // As the answer to this method: status line, fields, framing.
    for (method, flags, lines, expected, framing) in [
        ("GET", 0, &[":status: 200", "x-a: 1"][..], "200 OK\r\nx-a: 1\r\n", Framing::Chunked),
        ("GET", END_STREAM, &[":status: 404"], "404 Not Found\r\n", Framing::Length(0)),
        ("GET", END_STREAM, &[":status: 299"], "299 \r\n", Framing::Length(0)),
        (
            "GET",
            0,
            &[":status: 200", "content-length: 5"],
            "200 OK\r\ncontent-length: 5\r\n",
            Framing::Length(5),
        ),
        (
            "HEAD",
            END_STREAM,
            &[":status: 200", "content-length: 5"],
            "200 OK\r\ncontent-length: 5\r\n",
            Framing::None,
        ),
        ("HEAD", END_STREAM, &[":status: 200"], "200 OK\r\n", Framing::None),
        ("GET", END_STREAM, &[":status: 304"], "304 Not Modified\r\n", Framing::None),
        ("GET", END_STREAM, &[":status: 204"], "204 No Content\r\n", Framing::None),
    ] {
        let mut side = Side::client();
        with_http1(&format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n"), |head| {
            let form = RequestForm::Same;
            side.h2.send_request(head, Scheme::Http, form, true, &mut side.out).unwrap();
        });
        let input = headers(1, flags, lines);
        let found = side.h2.decode(&input, &side.limits, &mut side.scratch);
        let Ok((_, Element::Response { head, .. })) = found else { panic!("{found:?}") };
        assert_eq!((head.version(), head.framing()), (Version::Http2, framing));
        let mut out = Buffer::new(head.encoded_len_max());
        let field = ConnectionField::Default;
        encode_response(&head, Version::Http11, framing, field, &mut out);
        let own = match framing {
            Framing::Chunked => "transfer-encoding: chunked\r\n",
            Framing::Length(0) => "content-length: 0\r\n",
            _ => "",
        };
        let expected = format!("HTTP/1.1 {expected}{own}\r\n");
        assert_eq!(String::from_utf8_lossy(out.filled()), expected);
        // And as the answer of HTTP/1.0, with a line of its own.
        out.clear();
        encode_response(&head, Version::Http10, framing, field, &mut out);
        assert!(out.filled().starts_with(b"HTTP/1.0 "));
    }
}

#[test]
fn a_request_of_http_1_becomes_one_of_http_2() {
    let text = "POST /a?b=c HTTP/1.1\r\nHost: B:1\r\nConnection: close, x-gone\r\nX-Gone: 1\r\n\
        X-Mixed-Case: Value\r\nTE: trailers\r\nContent-Length: 5\r\nUpgrade: websocket\r\n\
        Authorization: Basic x\r\nCookie: a=b\r\nAccept:   spaced\r\n\r\n";
    let expected = [
        ":method: POST",
        ":scheme: https",
        ":path: /a?b=c",
        ":authority: B:1",
        "x-mixed-case: Value",
        "content-length: 5",
        "authorization: Basic x (secret)",
        "cookie: a=b (secret)",
        "accept: spaced",
        "te: trailers",
    ];
    with_http1(text, |head| assert_eq!(asked(head, RequestForm::Same), expected));
    // With changes, and a body that is not sent on as it came.
    with_http1(text, |head| {
        head.set_path(b"/x");
        head.set(b"X-Added", b"1");
        head.remove(b"authorization");
        head.set_authority(b"other");
        head.set_framing(Framing::Length(7));
        let expected = [
            ":method: POST",
            ":scheme: https",
            ":path: /x?b=c",
            ":authority: other",
            "x-mixed-case: Value",
            "cookie: a=b (secret)",
            "accept: spaced",
            "x-added: 1",
            "content-length: 7",
            "te: trailers",
        ];
        assert_eq!(asked(head, RequestForm::Same), expected);
    });
    with_http1("GET / HTTP/1.0\r\n\r\n", |head| {
        let expected = [":method: GET", ":scheme: https", ":path: /"];
        assert_eq!(asked(head, RequestForm::Same), expected);
    });
    with_http1("CONNECT b:1 HTTP/1.1\r\nHost: b:1\r\n\r\n", |head| {
        assert_eq!(asked(head, RequestForm::Same), [":method: CONNECT", ":authority: b:1"]);
    });
    let name = "X-".to_owned() + &"Long".repeat(50);
    with_http1(&format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: 1\r\n\r\n"), |head| {
        let sent = asked(head, RequestForm::Same);
        assert_eq!(sent[4], format!("{}: 1", name.to_lowercase()));
    });
}

#[test]
fn a_response_of_http_1_becomes_one_of_http_2() {
    let limits = Limits::default();
    let answered = |text: &str, is_end: bool| {
        let mut side = Side::server();
        side.hear(&get(1)).unwrap();
        let mut index = HeadIndex::default();
        let (head, mut scan) = (&limits.head, Scan::default());
        let head = decode_response(text.as_bytes(), &mut scan, head, &mut index, Method::Get);
        let (head, _) = head.unwrap().unwrap();
        let mut out = Buffer::new(head_len_max(&head));
        let framing = head.framing();
        assert!(side.h2.send_response(1, &head, framing, is_end, &mut out));
        fields(out.filled())
    };
    let text = "HTTP/1.1 200 Fine\r\nServer: X\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(answered(text, false), [":status: 200", "server: X", "content-length: 5"]);
    let chunked = "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=b\r\n\r\n";
    assert_eq!(answered(chunked, false), [":status: 404", "set-cookie: a=b (secret)"]);
    let until_close = "HTTP/1.0 200 OK\r\nX-A: 1\r\n\r\n";
    assert_eq!(answered(until_close, false), [":status: 200", "x-a: 1"]);
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut side = Side::server();
    side.hear(&post(1)).unwrap();
    let (h2, out) = (&mut side.h2, &mut side.out);
    assert!(h2.send_reply(1, 100, &[], None, false, out));
    assert!(h2.send_reply(1, 103, &[(b"link", b"</a>")], None, false, out));
    assert!(h2.begin_data(1, 0, false).is_none(), "not behind an interim one");
    assert!(h2.send_reply(1, 200, &[], Some(0), true, out));
    assert!(!h2.send_reply(1, 200, &[], Some(0), true, out), "one final response");
    assert!(h2.is_open(1), "the request goes on");
    side.hear(&data(1, END_STREAM, b"")).unwrap();
    assert!(!side.h2.is_open(1));
}

#[test]
fn websockets_change_their_form_between_versions() {
    let chat = [
        ":method: CONNECT",
        ":protocol: websocket",
        ":scheme: https",
        ":path: /chat?room=1",
        ":authority: a",
        "sec-websocket-version: 13",
    ];
    // Down in HTTP/2, up in HTTP/1.1.
    let expected = "GET /chat?room=1 HTTP/1.1\r\nhost: a\r\nsec-websocket-version: 13\r\n\
        connection: upgrade\r\nupgrade: websocket\r\n\r\n";
    assert_eq!(sent_on(0, &chat), expected);
    with_request(&headers(1, 0, &chat), |head| {
        assert!(head.is_extended_connect());
        assert_eq!((head.method(), head.upgrade()), (Method::Connect, Some(&b"websocket"[..])));
        assert_eq!((head.path(), head.query()), (&b"/chat"[..], Some(&b"room=1"[..])));
        assert_eq!(head.framing(), Framing::None);
        // Up in HTTP/2.
        let expected = [
            ":method: CONNECT",
            ":scheme: https",
            ":path: /chat?room=1",
            ":authority: a",
            ":protocol: websocket",
            "sec-websocket-version: 13",
        ];
        assert_eq!(asked(head, RequestForm::Same), expected);
    });
    // Down in HTTP/1.1, up in HTTP/2.
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n";
    with_http1(upgrade, |head| {
        let expected = [
            ":method: CONNECT",
            ":scheme: https",
            ":path: /chat",
            ":authority: a",
            ":protocol: websocket",
            "sec-websocket-version: 13",
        ];
        assert_eq!(asked(head, RequestForm::Upgrade), expected);
        assert_eq!(asked(head, RequestForm::Same)[0], ":method: GET");
    });
    // The answer of HTTP/1.1 to it.
    let mut side = Side::server();
    side.hear(&headers(1, 0, &chat)).unwrap();
    let text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Accept: y\r\nSec-WebSocket-Protocol: z\r\n\r\n";
    let (mut index, mut scan) = (HeadIndex::default(), Scan::default());
    let head =
        decode_response(text.as_bytes(), &mut scan, &side.limits.head, &mut index, Method::Get);
    let (head, _) = head.unwrap().unwrap();
    let mut out = Buffer::new(head_len_max(&head));
    assert!(side.h2.send_response(1, &head, Framing::None, false, &mut out));
    assert_eq!(fields(out.filled()), [":status: 200", "sec-websocket-protocol: z"]);
    // From here on it is a tunnel.
    assert_eq!(side.hear(&data(1, 0, b"frame")), Ok(lines(&["data 1 \"frame\""])));
    assert!(side.send_data(1, b"frame", true));
    assert_eq!(side.hear(&data(1, END_STREAM, b"")), Ok(lines(&["end 1"])));
    assert!(!side.h2.is_open(1));
}

#[test]
fn a_secret_stays_a_secret() {
    let mut block = block(&GET[..2]);
    for (name, value) in [(":path", "/token"), (":authority", "a"), ("x-key", "1"), ("x-b", "2")] {
        let mut field = Vec::new();
        literal(name, value, &mut field);
        field[0] = if name == ":authority" || name == "x-b" { 0x00 } else { 0x10 };
        block.extend(field);
    }
    let input = frame("HEADERS", END_HEADERS | END_STREAM, 1, &block);
    with_request(&input, |head| {
        let mut out = Buffer::new(head.encoded_len_max());
        encode_request(head, ConnectionField::Default, &mut out);
        let expected = b"GET /token HTTP/1.1\r\nhost: a\r\nx-key: 1\r\nx-b: 2\r\n\r\n";
        assert_eq!(out.filled(), expected, "HTTP/1 has no secrets");
        let expected = [
            ":method: GET",
            ":scheme: https",
            ":path: /token (secret)",
            ":authority: a",
            "x-key: 1 (secret)",
            "x-b: 2",
        ];
        assert_eq!(asked(head, RequestForm::Same), expected);
    });
}

#[test]
fn a_long_head_takes_as_many_frames_as_it_needs() {
    for len in [16_000, 16_380, 16_384, 20_000, 60_000] {
        // Octets that no code makes shorter.
        let value = "\u{c3}".repeat(len / 2);
        let mut out = Buffer::new(1 << 20);
        let mut client = Side::client();
        with_http1(&format!("GET / HTTP/1.1\r\nHost: a\r\nX-A: {value}\r\n\r\n"), |head| {
            let form = RequestForm::Same;
            client.h2.send_request(head, Scheme::Http, form, true, &mut out).unwrap();
            assert!(out.len() <= head_len_max(head));
        });
        let mut side = Side::server();
        let expected = format!("request 1 GET / x-a={value} end");
        assert_eq!(side.hear(out.filled()), Ok(vec![expected]));
        let frames = frames(out.filled());
        assert_eq!(frames.len(), (len + 30) / 16_384 + 1, "{frames:?}");
        assert!(frames.last().unwrap().ends_with(if frames.len() > 1 { "" } else { "end" }));

        // And so do replies and trailers.
        let mut out = Buffer::new(1 << 20);
        let fields: [(&[u8], &[u8]); 1] = [(b"x-a", value.as_bytes())];
        assert!(side.h2.send_reply(1, 200, &fields, None, false, &mut out));
        assert!(out.len() <= reply_len_max(&fields));
        let section = format!("x-b: {value}\r\n");
        let before = out.len();
        assert!(side.h2.send_trailers(1, section.as_bytes(), &mut out));
        assert!(out.len() - before <= trailers_len_max(section.as_bytes()));
        let expected = [format!("response 1 200 x-a={value}"), format!("trailers 1 {section:?}")];
        assert_eq!(client.hear(out.filled()), Ok(expected.to_vec()));
    }
}

#[test]
fn a_head_outlives_the_connection_that_it_came_from() {
    let mut side = Side::server();
    let input = headers_and(1, 0, &GET, &["cookie: a", "x-a: 1", "cookie: b"]);
    let found = side.h2.decode(&input, &side.limits, &mut side.scratch);
    assert!(matches!(found, Ok((_, Element::Request { .. }))));
    let (block, index) = (std::mem::take(&mut side.scratch.block), saved(&side.scratch.index));
    side.hear(&post(3)).unwrap();
    drop(side);
    let mut index = index;
    let head = RequestHead::resume(&block, &mut index);
    assert_eq!(head.field(Known::Cookie), Some(&b"a; b"[..]));
    assert_eq!(asked(&head, RequestForm::Same).len(), 6);
}

#[test]
fn a_request_that_was_upgraded_is_answered_on_stream_1() {
    let limits = Limits::default();
    // MAX_CONCURRENT_STREAMS 100, INITIAL_WINDOW_SIZE 65,535: as curl sends them.
    let h2 = Http2::upgraded_server(b"AAMAAABkAAQAAP__", &limits).unwrap();
    let mut side = Side::new(h2, limits);
    assert!(side.said()[0].starts_with("SETTINGS "));
    assert!(side.h2.send_reply(1, 200, &[], Some(2), false, &mut side.out));
    assert!(side.send_data(1, b"ok", true));
    assert_eq!(side.said(), ["HEADERS 1 5 end".replace(" end", ""), "DATA 1 2 end".to_owned()]);
    let hello = [&wire::h2::PREFACE[..], &settings(&[]), &ack(), &get(3)].concat();
    assert_eq!(side.hear(&hello), Ok(lines(&["settings", "request 3 GET / end"])));
    // The first stream is closed, as any other would be.
    assert_eq!(side.fails_with(&get(1)).1, wire::h2::ErrorCode::STREAM_CLOSED);
}

#[test]
fn the_answer_knows_what_was_asked_when_it_is_resumed() {
    let mut side = Side::client();
    with_http1("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", |head| {
        side.h2.send_request(head, Scheme::Http, RequestForm::Same, true, &mut side.out);
    });
    side.h2 = saved(&side.h2);
    let input = headers(1, END_STREAM, &[":status: 200", "content-length: 9"]);
    let found = side.h2.decode(&input, &side.limits, &mut side.scratch);
    let Ok((_, Element::Response { head, .. })) = found else { panic!("{found:?}") };
    let (block, mut index) = (head.block().to_vec(), saved(head.index()));
    let head = ResponseHead::resume(&block, &mut index);
    assert_eq!((head.status(), head.reason(), head.framing()), (200, &b"OK"[..], Framing::None));
}
