//! Fields of a client that only a proxy may set are removed, in every spelling.

use crate::frames::Speaker;
use crate::kit::{Talk, hold};

const CONFIG: &str = "
listeners:
  - { name: web, address: 127.0.0.1:8080, routes: all, http: { forwarded: off, request_id: false } }
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: app }] }]
clusters: [{ name: app, endpoints: ['127.0.0.1:9000'] }]
";

fn with(options: &str) -> String {
    CONFIG.replace("request_id: false", &format!("request_id: false, {options}"))
}

/// The lines that go on of those that a client sends.
fn passed(talk: &mut Talk<'_>, lines: &[&str]) -> Vec<String> {
    let client = talk.client();
    let fields: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    talk.says(client, format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
    let upstream = talk.upstream();
    let heard = talk.heard(upstream);
    talk.says(upstream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    heard.lines().skip(2).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

const OURS: [&str; 6] = [
    "x_forwarded_for: 6.6.6.6",
    "X_Forwarded_Client_Cert: Hash=0",
    "X-Real_IP: 6.6.6.6",
    "x_request_id: mine",
    "Transfer_Encoding: chunked",
    "early_data: 0",
];

const FORWARDED: [&str; 6] = [
    "X-Forwarded-Prefix: /admin",
    "x-forwarded-scheme: https",
    "X-Forwarded-Ssl: on",
    "x-forwarded-user: root",
    "X-Forwarded-Server: a",
    "X_FORWARDED-whatever: a",
];

const OTHERS: [&str; 3] = ["my_field: 1", "X-Forwarder: 2", "x-forwarded: 3"];

#[test]
fn other_spellings_of_what_strait_says_are_dropped_and_counted() {
    hold(CONFIG, |talk| {
        talk.keeps_counts();
        assert_eq!(passed(talk, &[&OURS[..], &OTHERS].concat()), OTHERS);
        let counted = talk.counted("strait_downstream_headers_dropped_total");
        assert_eq!(counted.values().sum::<u64>(), 6, "{counted:?}");
    });
}

#[test]
fn fields_with_underscores_are_dropped_passed_or_refused_as_the_listener_says() {
    hold(&with("headers_with_underscores: drop"), |talk| {
        assert_eq!(passed(talk, &["my_field: 1", "my-field: 2"]), ["my-field: 2"]);
    });
    hold(&with("headers_with_underscores: pass"), |talk| {
        let lines = ["x_real_ip: 6.6.6.6", "my_field: 1"];
        assert_eq!(passed(talk, &lines), lines);
        // In the name of a proxy it is still not for a client to speak.
        assert_eq!(passed(talk, &["x_forwarded_for: 6.6.6.6"]), Vec::<String>::new());
    });
    hold(&with("headers_with_underscores: refuse"), |talk| {
        assert_eq!(passed(talk, &["my-field: 1"]), ["my-field: 1"]);
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nmy_field: 1\r\n\r\n");
        let heard = talk.heard(client);
        assert!(heard.starts_with("HTTP/1.1 400 "), "{heard}");
        assert!(heard.contains("request_header_underscore"), "{heard}");
    });
}

#[test]
fn what_only_proxies_say_is_not_taken_from_clients() {
    hold(CONFIG, |talk| {
        assert_eq!(passed(talk, &FORWARDED), Vec::<String>::new());
        assert_eq!(passed(talk, &OTHERS), OTHERS);
    });
    hold(&with("forwarded_allowed: [X-Forwarded-Prefix, x-forwarded-ssl]"), |talk| {
        let lines = [&FORWARDED[..], &["x_forwarded_prefix: /"]].concat();
        assert_eq!(passed(talk, &lines), ["X-Forwarded-Prefix: /admin", "X-Forwarded-Ssl: on"]);
    });
    hold(&with("trusted_hops: 1"), |talk| {
        let mut kept = FORWARDED.to_vec();
        kept.truncate(5);
        assert_eq!(passed(talk, &FORWARDED), kept);
    });
}

/// The trailers that go on of those that a client sends behind a body in chunks.
fn passed_trailers(talk: &mut Talk<'_>, lines: &[&str]) -> Vec<String> {
    let client = talk.client();
    talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
    let trailers: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    talk.says(client, format!("{trailers}\r\n"));
    let upstream = talk.upstream();
    let heard = talk.heard(upstream);
    talk.says(upstream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let (_, trailers) = heard.split_once("\r\n\r\n0\r\n").unwrap_or_else(|| panic!("{heard}"));
    trailers.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn trailers_of_a_request_follow_the_same_rule_as_its_head() {
    let lines = [&OURS[..], &FORWARDED, &OTHERS, &["x-request-id: mine"]].concat();
    hold(CONFIG, |talk| {
        talk.keeps_counts();
        assert_eq!(passed_trailers(talk, &lines), OTHERS);
        let counted = talk.counted("strait_downstream_headers_dropped_total");
        assert_eq!(counted.get("web forwarded"), Some(&9), "{counted:?}");
        assert_eq!(counted.get("web underscore"), Some(&4), "{counted:?}");
    });
    hold(&with("headers_with_underscores: drop"), |talk| {
        assert_eq!(passed_trailers(talk, &["my_field: 1", "my-field: 2"]), ["my-field: 2"]);
    });
    hold(&with("trusted_hops: 1, headers_with_underscores: pass"), |talk| {
        assert_eq!(passed_trailers(talk, &lines), lines);
    });
    hold(&with("headers_with_underscores: refuse"), |talk| {
        assert_eq!(passed_trailers(talk, &["my-field: 1"]), ["my-field: 1"]);
        let client = talk.client();
        let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        talk.says(client, format!("{head}0\r\nmy_field: 1\r\n\r\n"));
        let heard = talk.heard(client);
        assert!(heard.starts_with("HTTP/1.1 400 "), "{heard}");
        assert!(heard.contains("request_header_underscore"), "{heard}");
    });
}

#[test]
fn trailers_of_http2_follow_it_as_well() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, "POST / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        let trailers = "x_forwarded_for: 6.6.6.6\r\nx-forwarded-ssl: on\r\nmy_field: 1\r\n";
        client.ends_with(talk, stream, trailers);
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(heard.ends_with("\r\n\r\n0\r\nmy_field: 1\r\n\r\n"), "{heard}");
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
    });
}
