//! `mirror` of a rule: copies of requests for other clusters.

use std::time::Duration;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET /a HTTP/1.1\r\nHost: x.example:8080\r\n\r\n";
const COPY: &str = "GET /a HTTP/1.1\r\nhost: x.example-shadow:8080\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const OTHER: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nother";

pub(crate) fn config(mirror: &str) -> String {
    let to = format!("cluster: web, mirror: [{{ cluster: shadow{mirror} }}] }}]");
    let shadow = "  - name: shadow\n    endpoints: ['127.0.0.1:9100']\n";
    format!("{}{shadow}", CONFIG.replace("cluster: web }]", &to))
}

/// The connections to both clusters: the one of the request, and the one of its copy.
pub(crate) fn both(talk: &mut Talk<'_>) -> (Peer, Peer) {
    let (one, other) = (talk.upstream(), talk.upstream());
    match talk.address(one).to_string().ends_with(":9000") {
        true => (one, other),
        false => (other, one),
    }
}

fn count(talk: &mut Talk<'_>, name: &str, of: &str) -> u64 {
    talk.counted(name).get(of).copied().unwrap_or(0)
}

fn sent(talk: &mut Talk<'_>, class: &str) -> u64 {
    count(talk, "strait_upstream_mirrored_total", &format!("shadow {class}"))
}

fn dropped(talk: &mut Talk<'_>, reason: &str) -> u64 {
    count(talk, "strait_upstream_mirrors_dropped_total", &format!("shadow {reason}"))
}

#[test]
fn a_request_is_copied_and_the_copys_response_is_dropped() {
    hold(&config(""), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let (upstream, shadow) = both(talk);
        talk.hears(upstream, GET);
        let copy = talk.heard(shadow).to_ascii_lowercase();
        assert_eq!(copy, COPY.to_ascii_lowercase());
        talk.says(shadow, OTHER);
        talk.hears(client, "");
        talk.says(upstream, OK);
        talk.hears(client, OK);
        assert_eq!((sent(talk, "4xx"), sent(talk, "none")), (1, 0));
        assert_eq!(count(talk, "strait_upstream_exchanges_total", "shadow 4xx"), 0);
        assert_eq!(talk.log().lines().count(), 1, "a copy is in no access log");
        // Both connections are used again.
        talk.says(client, GET);
        talk.hears(upstream, GET);
        assert!(talk.heard(shadow).starts_with("GET /a "));
        assert!(!talk.is_connecting());
        // The copy's service is the slower one.
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(shadow, OK);
        assert_eq!(sent(talk, "2xx"), 1);
    });
}

#[test]
fn a_copy_is_sent_when_its_request_is_whole() {
    hold(&config(", host_suffix: ''"), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        talk.says(client, format!("{head}3\r\nabc\r\n"));
        let upstream = talk.upstream();
        talk.hears_about(upstream, "POST / HTTP/1.1\r\n", &[]);
        assert!(!talk.is_connecting(), "a slow client holds no connection of the other cluster");
        talk.says(client, "2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n");
        let shadow = talk.upstream();
        let copy = talk.heard(shadow);
        assert!(copy.starts_with("POST / HTTP/1.1\r\n") && copy.contains("x\r\n"), "{copy}");
        let letters = copy.split("\r\n\r\n").nth(1).map(|body| body.replace(['1', '2', '3'], ""));
        let letters = letters.map(|body| body.replace("\r\n", ""));
        assert!(letters.is_some_and(|body| body.starts_with("abcde")), "{copy}");
        assert!(copy.to_ascii_lowercase().ends_with("0\r\nx-sum: 5\r\n\r\n"), "{copy}");
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(shadow, OK);
        assert_eq!(sent(talk, "2xx"), 1);
    });
}

#[test]
fn a_copy_expects_no_continue() {
    hold(&config(""), |talk| {
        let client = talk.client();
        let head =
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        talk.says(client, head);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 100 Continue\r\n", &[]);
        talk.says(client, "hi");
        let shadow = talk.upstream();
        let copy = talk.heard(shadow).to_ascii_lowercase();
        assert!(!copy.contains("expect") && copy.ends_with("\r\n\r\nhi"), "{copy}");
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(shadow, OK);
    });
}

#[test]
fn a_request_that_ends_early_has_no_copy() {
    hold(&config(""), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
        let upstream = talk.upstream();
        assert!(talk.heard(upstream).ends_with("abc"));
        talk.breaks(client);
        assert!(!talk.is_connecting());
        assert_eq!((dropped(talk, "incomplete"), sent(talk, "none")), (1, 0));
    });
}

#[test]
fn an_answer_before_the_end_of_its_request_ends_the_copy() {
    hold(&config(""), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
        let upstream = talk.upstream();
        assert!(talk.heard(upstream).ends_with("abc"));
        talk.says(upstream, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 413 ", &[]);
        talk.says(client, "defghij");
        assert!(!talk.is_connecting());
        assert_eq!(dropped(talk, "incomplete"), 1);
    });
}

#[test]
fn copies_hold_no_more_than_their_bound() {
    let config = format!("{}limits: {{ mirrored_max: 32KiB }}\n", config(""));
    hold(&config, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        // One copy may have a quarter. It is dropped during its request, which goes on and may move.
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 12000\r\n\r\n");
        let upstream = talk.upstream();
        for _ in 0..3 {
            talk.says(client, "x".repeat(4_000));
        }
        let heard = talk.hears_about(upstream, "POST / HTTP/1.1\r\n", &[]);
        assert!(heard.ends_with(&"x".repeat(12_000)), "the request is whole");
        talk.says(upstream, OK);
        talk.hears(client, OK);
        assert!(!talk.is_connecting());
        assert_eq!(dropped(talk, "memory"), 1);
        // Those that are not answered keep the room of others.
        let mut shadows = Vec::new();
        while dropped(talk, "memory") == 1 {
            talk.says(client, GET);
            talk.hears(upstream, GET);
            if talk.is_connecting() {
                shadows.push(talk.upstream());
            }
            talk.says(upstream, OK);
            talk.hears(client, OK);
            assert!(shadows.len() < 20, "there is no bound");
        }
        assert!(shadows.len() > 4, "{} copies", shadows.len());
        for shadow in &shadows {
            assert!(talk.heard(*shadow).starts_with("GET /a "));
            talk.says(*shadow, OK);
        }
        talk.says(client, GET);
        talk.hears(upstream, GET);
        assert!(shadows.iter().any(|shadow| !talk.heard(*shadow).is_empty()), "there is room");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_service_that_stalls_delays_its_copy_alone() {
    hold(&config(""), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let (upstream, shadow) = both(talk);
        talk.says(upstream, OK);
        talk.heard(upstream);
        talk.hears(client, OK);
        talk.ends(client);
        talk.passes(Duration::from_millis(60_100));
        assert!(talk.is_closed(shadow));
        assert_eq!(sent(talk, "none"), 1);
    });
}

#[test]
fn a_copy_that_cannot_be_sent_changes_nothing_for_its_request() {
    hold(&config(""), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let mut upstream = None;
        while talk.is_connecting() {
            let peer = talk.connecting();
            if talk.address(peer).to_string().ends_with(":9000") {
                talk.establish(peer);
                upstream = Some(peer);
            } else {
                talk.refuse(peer);
            }
        }
        let upstream = upstream.expect("the request has a connection");
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        assert_eq!(sent(talk, "none"), 1);
        if talk.variant() == Variant::Moving {
            // A worker warns of its own failures.
            return talk.leave_out();
        }
        let warned = talk.warnings();
        let of: Vec<_> = warned.iter().map(|it| (it.of.to_string(), it.cause)).collect();
        assert_eq!(of, [("cluster shadow".to_owned(), "connect_failed")]);
    });
}

#[test]
fn streams_are_copied_to_a_cluster_of_http2() {
    let config = config("").replace("name: shadow\n", "name: shadow\n    protocol: http2\n");
    hold(&config, |talk| {
        talk.keeps_counts();
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, "POST /up HTTP/1.1\r\nHost: x\r\n\r\n", false);
        let upstream = talk.upstream();
        client.sends(talk, stream, b"hello", false);
        client.ends_with(talk, stream, "x-sum: 1\r\n");
        let mut shadow = Speaker::upstream(talk);
        let copy = shadow.hears(talk);
        assert!(copy.contains("POST /up; host: x-shadow"), "{copy}");
        assert!(copy.contains("data hello") && copy.contains("trailers x-sum: 1; END"), "{copy}");
        talk.heard(upstream);
        talk.says(upstream, OK);
        let answer = format!("{stream}: 200; content-length: 2\n{stream}: data ok END\n");
        assert_eq!(client.hears(talk), answer);
        shadow.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert_eq!(sent(talk, "2xx"), 1);
    });
}

#[test]
fn a_share_of_none_copies_nothing_and_a_connection_that_upgrades_is_not_copied() {
    hold(&config(", percent: 0, runtime: more"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        assert!(!talk.is_connecting());
        talk.says(upstream, OK);
        talk.heard(upstream);
        talk.hears(client, OK);
    });
    hold(&config(""), |talk| {
        let client = talk.client();
        let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        talk.says(client, upgrade);
        let upstream = talk.upstream();
        assert!(!talk.is_connecting());
        talk.heard(upstream);
        talk.breaks(client);
    });
}

#[test]
fn a_drain_waits_for_no_copy() {
    hold(&config(""), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let (upstream, shadow) = both(talk);
        talk.drains();
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["connection: close\r\n"]);
        assert!(!talk.is_closed(shadow));
        talk.ends(client);
        assert!(talk.is_closed(shadow), "the last client is gone");
    });
}
