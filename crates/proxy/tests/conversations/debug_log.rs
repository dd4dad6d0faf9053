//! The debug log tells the life of a connection, one line an event.

use std::time::Duration;

use crate::frames::Speaker;
use crate::kit::{Talk, Variant, hold};

const CONFIG: &str = "
# debug log
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: shop
    connections_per_client_max: 2
    timeouts: { idle: 5s }
routes:
  - name: shop
    rules:
      - match: { path: /healthz }
        respond: { status: 200 }
      - match: { prefix: / }
        cluster: api
clusters:
  - name: api
    endpoints: ['127.0.0.1:9000']
";

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The lines, with `K` for names of connections.
fn lines(talk: &mut Talk<'_>) -> Vec<String> {
    let lines = talk.debug_lines().into_iter();
    let plain = |line: String| {
        let words = line.split(' ').map(|word| match word.split_once('.') {
            Some((slot, _)) if slot.parse::<u32>().is_ok() && word.matches('.').count() == 1 => {
                let tail = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                format!("K{tail}")
            }
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    lines.map(plain).collect()
}

#[test]
fn a_connection_is_told_from_accept_to_close() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        let secret = "GET /a/b?token=secret HTTP/1.1\r\nHost: x\r\nAuthorization: secret\r\nCookie: secret\r\n\r\n";
        talk.says(client, secret);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.heard(client);
        talk.passes(Duration::from_secs(6));
        let all = lines(talk);
        assert!(!all.iter().any(|line| line.contains("secret")), "{all:#?}");
        let want = [
            "connection K: accepted from 192.0.2.7:",
            "connection K: first bytes: http1",
            "connection K: request GET /a/b HTTP/1.1, host \"x\"",
            "connection K: rule 1 of route table shop",
            "connection K: endpoint 127.0.0.1:9000 of cluster api over connection K, attempt 1",
            "connection K: upstream established",
            "connection K: response 200 over connection K",
            "connection K: end: done, status 200, ",
            "connection K: client closed: idle_timeout, after ",
        ];
        let mut rest = all.iter();
        for line in want {
            assert!(rest.any(|found| found.starts_with(line)), "{line}: {all:#?}");
        }
    });
}

#[test]
fn failures_and_refusals_are_told_with_their_reason() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        while talk.is_connecting() {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        talk.heard(client);
        let other = talk.client();
        talk.says(other, "GET / HTTP/1.1\r\nHost : x\r\n\r\n");
        if talk.variant() != Variant::Moving {
            assert!(talk.try_client().is_none());
        }
        let all = lines(talk);
        let mut want = vec![
            "connection K: upstream ECONNREFUSED",
            "connection K: upstream closed: connect_failed, after ",
            "connection K: end: connect_failed, status 503, ",
            "connection K: end: request_invalid, status 400, ",
        ];
        if talk.variant() != Variant::Moving {
            want.push("refused from 192.0.2.7:");
        }
        for line in want {
            assert!(all.iter().any(|found| found.starts_with(line)), "{line}: {all:#?}");
        }
    });
}

#[test]
fn requests_on_streams_are_told_apart() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        for _ in 0..2 {
            client.asks(talk, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", true);
            client.hears(talk);
        }
        let all = lines(talk);
        for line in [
            "connection K stream 1: request GET /healthz HTTP/2, host \"x\"",
            "connection K stream 3: rule 0 of route table shop",
            "connection K stream 3: end: done, status 200, ",
        ] {
            assert!(all.iter().any(|found| found.starts_with(line)), "{line}: {all:#?}");
        }
    });
}

#[test]
fn without_the_level_there_is_nothing() {
    hold(&CONFIG.replace("# debug log", ""), |talk| {
        let client = talk.client();
        talk.says(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.heard(client);
        assert_eq!(talk.debug_lines(), Vec::<String>::new());
    });
}
