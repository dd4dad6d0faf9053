//! States of tunnels and relayed connections, and of connections whose protocol is not known yet.

use super::{GET, OK, keep};
use crate::chains::{self, client_hello};
use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::relays::{AUTO, TCP};
use crate::tunnels::{CONNECT, tunnel};

#[test]
fn tunnels() {
    keep("tunnel", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(
            client,
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.says(
            upstream,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        talk.heard(client);
        talk.heard(upstream);
        kept.here(talk, client);
        talk.says(client, "\x01\x02");
        talk.hears(upstream, "\x01\x02");
        talk.says(upstream, "\x03");
        talk.hears(client, "\x03");
    });
    keep("tunnel-half-closed", CONFIG, |talk, kept| {
        let (client, upstream) = tunnel(talk);
        talk.says(client, "last");
        talk.ends(client);
        talk.hears(upstream, "last");
        kept.here(talk, client);
        assert!(talk.is_shut(upstream));
        talk.says(upstream, "answer");
        talk.hears(client, "answer");
        talk.ends(upstream);
        assert!(talk.is_shut(client));
    });
    keep("tunnel-undelivered", CONFIG, |talk, kept| {
        let (client, upstream) = tunnel(talk);
        talk.takes(client, 3);
        talk.says(upstream, "six oc");
        talk.says(client, "other");
        talk.hears(upstream, "other");
        kept.here(talk, client);
        talk.takes(client, usize::MAX);
        talk.hears(client, "six oc");
    });
    keep("connect-connecting", CONNECT, |talk, kept| {
        let client = talk.client();
        talk.says(client, "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n");
        let db = talk.connecting();
        kept.here(talk, client);
        talk.establish(db);
        talk.hears(client, "HTTP/1.1 200 OK\r\n\r\n");
        talk.says(client, "select");
        talk.hears(db, "select");
    });
    keep("connect-tunnel", CONNECT, |talk, kept| {
        let client = talk.client();
        talk.says(client, "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n");
        let db = talk.upstream();
        talk.heard(client);
        kept.here(talk, client);
        talk.says(client, "select");
        talk.hears(db, "select");
        talk.says(db, "rows");
        talk.ends(db);
        talk.hears(client, "rows");
    });
}

#[test]
fn tunnels_on_streams() {
    keep("http2-connect", CONNECT, |talk, kept| {
        let mut client = Speaker::client(talk);
        let head = "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n";
        let stream = client.asks(talk, head, false);
        client.sends(talk, stream, b"early", false);
        let db = talk.upstream();
        assert_eq!(client.hears(talk), format!("{stream}: 200\n"));
        talk.hears(db, "early");
        kept.here(talk, client.peer);
        talk.says(db, "rows");
        assert_eq!(client.hears(talk), format!("{stream}: data rows\n"));
        client.sends(talk, stream, b"", true);
        assert!(talk.is_shut(db));
    });
    keep("http2-websocket", TO_HTTP2, |talk, kept| {
        let client = talk.client();
        talk.says(
            client,
            "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        // The answer to the client's key is still to be sent.
        kept.here(talk, client);
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        talk.hears_about(
            client,
            "HTTP/1.1 101 Switching Protocols\r\n",
            &["upgrade: websocket\r\n", "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"],
        );
        talk.says(client, "ping");
        assert_eq!(upstream.hears(talk), "1: data ping\n");
    });
}

#[test]
fn relayed_connections() {
    keep("relay-connecting", &format!("{TCP}    proxy_protocol: v2\n"), |talk, kept| {
        let client = talk.client();
        talk.says(client, "early");
        let upstream = talk.connecting();
        kept.here(talk, client);
        talk.establish(upstream);
        let heard = talk.heard_bytes(upstream);
        assert!(
            heard.starts_with(b"\r\n\r\n\0\r\nQUIT\n") && heard.ends_with(b"early"),
            "{heard:?}"
        );
    });
    keep("relay", TCP, |talk, kept| {
        let client = talk.client();
        let upstream = talk.upstream();
        talk.says(upstream, "220 ready\r\n");
        talk.hears(client, "220 ready\r\n");
        kept.here(talk, client);
        talk.says(client, "EHLO x\r\n");
        talk.hears(upstream, "EHLO x\r\n");
        talk.ends(client);
        talk.ends(upstream);
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
        let log = talk.log();
        assert!(
            log.contains("\"request_bytes\":8") && log.contains("\"response_bytes\":11"),
            "{log}"
        );
    });
    keep("relay-half-closed", TCP, |talk, kept| {
        let client = talk.client();
        let upstream = talk.upstream();
        talk.ends(upstream);
        kept.here(talk, client);
        assert!(talk.is_shut(client));
        talk.says(client, "more");
        talk.hears(upstream, "more");
        talk.ends(client);
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
    });
    keep("relay-undelivered", TCP, |talk, kept| {
        let client = talk.client();
        let upstream = talk.upstream();
        talk.takes(upstream, 3);
        talk.says(client, "six oc");
        talk.ends(client);
        kept.here(talk, client);
        assert!(!talk.is_shut(upstream));
        talk.takes(upstream, usize::MAX);
        talk.hears(upstream, "six oc");
        assert!(talk.is_shut(upstream));
    });
}

#[test]
fn protocols_that_are_not_known_yet() {
    for (name, first, last) in [
        ("detection-awaited", "", GET),
        ("detection-half", "GE", "T / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ] {
        keep(name, AUTO, |talk, kept| {
            let client = talk.client();
            talk.says(client, first);
            assert!(!talk.is_connecting());
            kept.here(talk, client);
            talk.says(client, last);
            let web = talk.upstream();
            talk.hears(web, GET);
            talk.says(web, OK);
            talk.hears(client, OK);
        });
    }
    let hello = client_hello("shop.example");
    for (name, len) in [("tls-passthrough-half", 30), ("tls-passthrough", hello.len())] {
        keep(name, chains::CONFIG, |talk, kept| {
            let client = talk.client();
            talk.says(client, &hello[..len]);
            let is_whole = len == hello.len();
            let early = is_whole.then(|| talk.upstream());
            kept.here(talk, client);
            talk.says(client, &hello[len..]);
            let shop = early.unwrap_or_else(|| talk.upstream());
            assert!(talk.address(shop).to_string().ends_with(":9001"));
            assert_eq!(talk.heard_bytes(shop), hello);
            talk.says(shop, b"\x16\x03\x03");
            assert_eq!(talk.heard_bytes(client), b"\x16\x03\x03");
        });
    }
}
