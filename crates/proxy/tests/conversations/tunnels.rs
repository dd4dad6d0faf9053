//! Upgrades, and the bytes that belong to neither head.

use std::time::Duration;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, hold};

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

pub(crate) fn tunnel(talk: &mut Talk<'_>) -> (Peer, Peer) {
    let client = talk.client();
    talk.says(client, ASK);
    let upstream = talk.upstream();
    talk.hears_about(
        upstream,
        "GET /chat HTTP/1.1\r\n",
        &["connection: upgrade\r\n", "upgrade: websocket\r\n", "Sec-WebSocket-Key: k\r\n"],
    );
    talk.says(upstream, SWITCH);
    talk.hears_about(
        client,
        "HTTP/1.1 101 Switching Protocols\r\n",
        &["connection: upgrade\r\n", "upgrade: websocket\r\n"],
    );
    (client, upstream)
}

#[test]
fn after_the_switch_bytes_go_both_ways_as_they_are() {
    hold(CONFIG, |talk| {
        let (client, upstream) = tunnel(talk);
        talk.says(client, "\x01GET / HTTP/1.1\r\n\r\n");
        talk.hears(upstream, "\x01GET / HTTP/1.1\r\n\r\n");
        talk.says(upstream, "\x02\r\n0\r\n\r\n");
        talk.hears(client, "\x02\r\n0\r\n\r\n");
    });
}

#[test]
fn bytes_that_came_with_the_heads_are_not_lost() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, format!("{ASK}early"));
        let upstream = talk.upstream();
        assert!(!talk.heard(upstream).contains("early"));
        talk.says(upstream, format!("{SWITCH}hello"));
        talk.hears(upstream, "early");
        assert!(talk.heard(client).ends_with("\r\n\r\nhello"));
    });
}

#[test]
fn each_side_may_end_on_its_own() {
    hold(CONFIG, |talk| {
        let (client, upstream) = tunnel(talk);
        talk.says(client, "last");
        talk.ends(client);
        talk.hears(upstream, "last");
        assert!(talk.is_shut(upstream) && !talk.is_closed(upstream));
        talk.says(upstream, "answer");
        talk.hears(client, "answer");
        assert!(!talk.is_closed(client));
        talk.ends(upstream);
        assert!(talk.is_closed(client) && talk.is_closed(upstream));

        let (client, upstream) = tunnel(talk);
        talk.ends(upstream);
        assert!(talk.is_shut(client) && !talk.is_closed(client));
        talk.says(client, "still here");
        talk.hears(upstream, "still here");
        talk.ends(client);
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
    });
}

#[test]
fn a_reset_on_either_side_ends_both() {
    hold(CONFIG, |talk| {
        let (client, upstream) = tunnel(talk);
        talk.breaks(client);
        assert!(talk.is_closed(upstream));
        let (client, upstream) = tunnel(talk);
        talk.breaks(upstream);
        assert!(talk.is_closed(client));
    });
}

#[test]
fn a_tunnel_without_a_byte_is_closed_in_the_end() {
    let config = CONFIG.replace("http: {", "timeouts: { tunnel_idle: 1m }\n    http: {");
    hold(&config, |talk| {
        let (client, upstream) = tunnel(talk);
        for _ in 0..3 {
            talk.passes(Duration::from_secs(50));
            talk.says(upstream, ".");
        }
        talk.passes(Duration::from_secs(50));
        assert!(!talk.is_closed(client));
        talk.passes(Duration::from_secs(11));
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
        assert!(talk.log().contains("tunnel_idle_timeout"));
    });
}

#[test]
fn a_refused_upgrade_is_an_exchange_like_others() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, ASK);
        let upstream = talk.upstream();
        let refusal = "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno";
        talk.says(upstream, refusal);
        talk.hears(client, refusal);
        assert!(!talk.is_closed(client) && !talk.is_closed(upstream));
    });
}

#[test]
fn protocols_that_the_route_does_not_allow_are_not_offered() {
    hold(CONFIG, |talk| {
        for offer in ["h2c", "websocket, h2c", "TLS/1.0"] {
            let client = talk.client();
            talk.says(
                client,
                format!(
                    "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                     Upgrade: {offer}\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
                ),
            );
            let upstream = talk.upstream();
            talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            talk.breaks(client);
        }
    });
}

#[test]
fn a_slow_side_stops_the_other() {
    hold(CONFIG, |talk| {
        let (client, upstream) = tunnel(talk);
        talk.takes(client, 0);
        for _ in 0..10 {
            talk.says(upstream, vec![b'x'; 40_000]);
        }
        assert!(talk.unread(upstream) >= 200_000);
        talk.says(client, "the other way is open");
        talk.hears(upstream, "the other way is open");
        talk.takes(client, usize::MAX);
        assert_eq!(talk.heard(client).len(), 400_000);
    });
}

#[test]
fn an_upstream_may_not_change_to_a_protocol_that_the_route_does_not_allow() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(
            upstream,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: evil/1.0\r\n\r\n",
        );
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[]);
        assert!(talk.is_closed(upstream));
    });
}

pub(crate) const CONNECT: &str = "
listeners: [{ name: web, address: 127.0.0.1:8080, routes: site }]
routes:
- name: site
  rules:
  - { match: { prefix: / }, respond: { status: 204 } }
  - { match: { prefix: / }, cluster: db, upgrades: [connect] }
clusters: [{ name: db, endpoints: ['127.0.0.1:9000'] }]
";

#[test]
fn connect_opens_a_tunnel_where_a_route_allows_it() {
    hold(CONNECT, |talk| {
        let client = talk.client();
        talk.says(client, "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n");
        let db = talk.connecting();
        talk.hears(client, "");
        talk.establish(db);
        talk.hears(client, "HTTP/1.1 200 OK\r\n\r\n");
        talk.says(client, "select");
        talk.hears(db, "select");
        talk.says(db, "rows");
        talk.ends(db);
        talk.hears(client, "rows");
        assert!(talk.is_shut(client));
        talk.says(client, "bye");
        talk.ends(client);
        talk.hears(db, "bye");
        assert!(talk.is_closed(client) && talk.is_closed(db));
        assert!(talk.log().contains("\"tunnel\":true"));
    });
}

#[test]
fn connect_on_a_stream_is_a_tunnel_beside_others() {
    hold(CONNECT, |talk| {
        let mut client = Speaker::client(talk);
        let head = "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n";
        let tunnel = client.asks(talk, head, false);
        client.sends(talk, tunnel, b"early", false);
        let db = talk.upstream();
        assert_eq!(client.hears(talk), format!("{tunnel}: 200\n"));
        talk.hears(db, "early");
        let other = client.gets(talk, "/");
        assert!(client.hears(talk).starts_with(&format!("{other}: 204;")));
        talk.says(db, "rows");
        assert_eq!(client.hears(talk), format!("{tunnel}: data rows\n"));
        client.sends(talk, tunnel, b"", true);
        assert!(talk.is_shut(db));
        talk.ends(db);
        assert_eq!(client.hears(talk), format!("{tunnel}: END\n"));
        assert!(!talk.is_closed(client.peer));
    });
}

#[test]
fn connect_on_a_stream_may_end_what_it_says_at_once() {
    hold(CONNECT, |talk| {
        let mut client = Speaker::client(talk);
        let head = "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n";
        let tunnel = client.asks(talk, head, true);
        let db = talk.upstream();
        assert_eq!(client.hears(talk), format!("{tunnel}: 200\n"));
        assert!(talk.is_shut(db));
        talk.says(db, "bye");
        talk.ends(db);
        assert_eq!(client.hears(talk), format!("{tunnel}: data bye END\n"));
        assert!(talk.is_closed(db) && !talk.is_closed(client.peer));
    });
}

#[test]
fn a_tunnel_that_cannot_be_opened_is_answered() {
    hold(CONNECT, |talk| {
        let client = talk.client();
        talk.says(client, "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n");
        for _ in 0..3 {
            let db = talk.connecting();
            talk.refuse(db);
        }
        // Bytes behind the request were for the tunnel, and are not a request.
        talk.says(client, "GET /secret HTTP/1.1\r\nHost: x\r\n\r\n");
        let lines = ["connect_failed", "connection: close\r\n"];
        let heard = talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &lines);
        assert!(!heard.contains("204"), "{heard}");
        assert!(talk.is_shut(client));
    });
    hold(&CONNECT.replace("upgrades: [connect]", "timeout: 1s"), |talk| {
        let client = talk.client();
        talk.says(client, "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 501 Not Implemented\r\n", &[]);
    });
}

#[test]
fn a_service_that_requires_an_upgrade_says_to_what() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET /ws HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(
            upstream,
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Content-Length: 0\r\n\r\n",
        );
        let head = "HTTP/1.1 426 Upgrade Required\r\n";
        talk.hears_about(client, head, &["connection: upgrade\r\n", "upgrade: websocket\r\n"]);
        // Nothing changed: the next request is one of HTTP/1.
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        talk.heard(upstream);
        talk.says(
            upstream,
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: a, b\r\nConnection: upgrade\r\n\
             Content-Length: 0\r\n\r\n",
        );
        talk.hears_about(client, head, &["connection: close, upgrade\r\n", "upgrade: a, b\r\n"]);
    });
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.gets(talk, "/ws");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(
            upstream,
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Content-Length: 0\r\n\r\n",
        );
        assert_eq!(client.hears(talk), format!("{stream}: 426; content-length: 0 END\n"));
    });
}
