//! The failures of docs/troubleshooting.md, provoked: each leaves the cause and the detail that the page has.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::kit::{Scratch, Strait, claim_port, read, until};

/// A service that gives each connection this answer when a head has come, and then waits or closes.
fn service(answer: &'static [u8], closes: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            // The first bytes of TLS have no end that it knows.
            while !head.ends_with(b"\r\n\r\n") && head != [0x16] {
                let Ok(1) = stream.read(&mut byte) else { break };
                head.push(byte[0]);
            }
            let _ = stream.write_all(answer);
            if !closes {
                kept.push(stream);
            }
        }
    });
    address
}

/// A port at which no program listens.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], claim_port()))
}

/// What the access log says of the last line.
fn last_line(file: &std::path::Path, before: usize) -> Value {
    until("a line of the access log", || {
        let text = read(file);
        let line = text.lines().nth(before)?;
        text.ends_with('\n').then(|| serde_json::from_str(line).unwrap())
    })
}

const HTTP2_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

#[test]
fn each_failure_leaves_the_cause_and_the_detail_that_the_page_has() {
    let page = include_str!("../../../../docs/troubleshooting.md");
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok";
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    let garbage = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    let long_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(70_000));
    let long_head = Box::leak(long_head.into_boxed_str()).as_bytes();
    let clusters = [
        ("refused", nowhere(), ""),
        ("silent", service(b"", false), ", timeouts: { response_head: 200ms }"),
        ("late", service(b"", false), ""),
        ("stops", service(half, false), ", timeouts: { response_body: 200ms }"),
        ("breaks-off", service(half, true), ""),
        ("closes", service(b"", true), ""),
        ("two-lengths", service(two, true), ""),
        ("garbage", service(garbage, false), ""),
        ("http2", service(HTTP2_SETTINGS, false), ""),
        ("http1", service(b"HTTP/1.1 400 Bad Request\r\n\r\n", true), ", protocol: http2"),
        ("plain", service(b"HTTP/1.1 400 Bad Request\r\n\r\n", true), ", tls: { verify: off }"),
        ("long", service(long_head, false), ""),
        ("none", service(ok, false), ""),
    ];
    let mut config = String::from(
        "workers: 1
listeners:
  - name: edge
    address: 127.0.0.1:0
    routes: all
    timeouts: { request_head: 300ms, request_body: 300ms }
    http: { body_max: 1KiB, head_max: 4KiB, request_line_max: 1KiB }
routes:
  - name: all
    hosts: [x]
    rules:
",
    );
    for (name, ..) in &clusters {
        let timeout = if *name == "late" { "200ms" } else { "10s" };
        let rule = format!(
            "      - {{ match: {{ path: /{name} }}, cluster: {name}, timeout: {timeout} }}\n"
        );
        config.push_str(&rule);
    }
    config.push_str("clusters:\n");
    for (name, address, more) in &clusters {
        let endpoints = match *name {
            "none" => format!("[{{ address: '{address}', weight: 0 }}]"),
            _ => format!("['{address}']"),
        };
        config.push_str(&format!("  - {{ name: {name}, endpoints: {endpoints}{more} }}\n"));
    }
    let scratch = Scratch::new();
    let file = scratch.path("access.log");
    config.push_str(&format!("access_log: {{ output: '{}', format: json }}\n", file.display()));
    let strait = Strait::run_in(scratch, &config);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let long = "a".repeat(6_000);
    let asks: [(String, &str, &str); 21] = [
        (get("/refused"), "connect_failed", "ECONNREFUSED"),
        (get("/silent"), "response_head_timeout", "timeouts.response_head of the cluster: 200ms"),
        (get("/late"), "request_timeout", "timeout of the rule: 200ms, waiting for the response"),
        (get("/stops"), "response_body_timeout", "timeouts.response_body of the cluster: 200ms"),
        (get("/breaks-off"), "response_truncated", "FIN"),
        (get("/closes"), "upstream_closed", "FIN"),
        (get("/two-lengths"), "response_invalid", "more than one content length"),
        (get("/garbage"), "response_invalid", "a chunk's size is not a number in range: zz"),
        (get("/http2"), "response_invalid", "the upstream speaks HTTP/2"),
        (get("/http1"), "response_invalid", "the upstream speaks HTTP/1"),
        (get("/plain"), "upstream_tls_failed", "the upstream speaks HTTP/1"),
        (get("/none"), "no_endpoint", "weight 0"),
        (get("/elsewhere"), "no_route", ""),
        ("GET / HTTP/1.1\r\nHost: y\r\n\r\n".into(), "no_host", ""),
        (
            "POST /silent HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n".into(),
            "request_body_too_large",
            "http.body_max",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"),
            "request_head_too_large",
            "http.head_max of the listener: 4096 bytes",
        ),
        (
            get(&format!("/{}", "a".repeat(2_000))),
            "request_line_too_long",
            "http.request_line_max of the listener: 1024",
        ),
        (get("/long"), "response_head_too_large", "the head is too long: more than 61440 bytes"),
        ("GET / HTTP/1.1\r\nHo".into(), "request_head_timeout", "timeouts.request_head"),
        (
            "POST /late HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".into(),
            "request_body_invalid",
            "a chunk's size is not a number in range: zz",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .into(),
            "request_framing_invalid",
            "a content length next to a transfer coding",
        ),
    ];
    for (place, (ask, cause, detail)) in asks.iter().enumerate() {
        let mut client = TcpStream::connect(strait.listener).unwrap();
        client.write_all(ask.as_bytes()).unwrap();
        let line = last_line(&file, place);
        assert_eq!(line["cause"], *cause, "{ask}: {line}");
        let found = line["cause_detail"].as_str().unwrap_or_default();
        assert!(found.contains(detail), "{ask}: {line}");
        let is_named = page.contains(&format!("`{cause}`")) || cause.starts_with("request_");
        assert!(is_named, "{cause} is in docs/troubleshooting.md");
    }
}

#[test]
fn the_words_of_the_page_are_those_of_the_program() {
    let page = include_str!("../../../../docs/troubleshooting.md");
    let known = concat!(
        include_str!("../../../../docs/METRICS.md"),
        include_str!("../../../../docs/access-log.md"),
        include_str!("../../../../docs/configuration/reference.md"),
        include_str!("../../../../docs/admin.md"),
        include_str!("../../../telemetry/src/counters/endpoint.rs"),
    );
    let words = page.split('`').skip(1).step_by(2);
    let is_word = |word: &&str| {
        word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let mut count = 0;
    for word in words.filter(is_word) {
        count += 1;
        let is_known = known.contains(word) || word.starts_with("process_");
        assert!(is_known, "{word} is in no other page");
    }
    assert!(count > 50, "{count} words are found");
}
