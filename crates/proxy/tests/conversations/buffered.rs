//! Bytes that all clients of a listener hold in buffers, and which connections are closed beyond
//! the bound.

use std::time::Duration;

use wire::h2::Limits;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Talk, Variant, hold};
use crate::slow::serves;
use crate::tls::{self, Secure, trusting_anybody};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Longer than the time between two looks.
const LOOK: Duration = Duration::from_millis(300);

/// Bytes that [`half_head`] holds in a buffer.
const KIB_16: u64 = 16 << 10;

/// A listener whose clients may hold so much, and another beside it.
fn with_buffered_max(bound: &str) -> String {
    let second = "
  - name: second
    address: 127.0.0.1:8081
    http: { request_id: false, forwarded: off }
    routes: all
routes:
";
    let bound = format!("    buffered_max: {bound}\n    routes: all");
    CONFIG.replacen("    routes: all", &bound, 1).replacen("\nroutes:\n", second, 1)
}

/// A head that is not whole and stands in a buffer of 16 KiB.
fn half_head() -> String {
    format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "a".repeat(5_000))
}

#[test]
fn the_client_that_holds_the_most_and_stood_still_for_longest_ends_beyond_the_bound_and_not_at_it()
{
    hold(&with_buffered_max("64KiB"), |talk| {
        let crowd: Vec<_> = (0..4)
            .map(|_| {
                let client = talk.client();
                talk.says(client, half_head());
                talk.passes(LOOK);
                client
            })
            .collect();
        assert!(crowd.iter().all(|client| !talk.is_closed(*client)), "they are at the bound");
        let last = talk.client();
        talk.says(last, half_head());
        talk.passes(LOOK);
        assert!(talk.is_closed(crowd[0]) && !talk.is_closed(last));
        assert!(crowd[1..].iter().all(|client| !talk.is_closed(*client)));
        // Those that are left go on.
        talk.says(last, "\r\n\r\n");
        let upstream = talk.upstream();
        talk.heard(upstream);
        serves(talk, upstream, last);
    });
}

#[test]
fn a_client_that_holds_little_outlives_those_that_hold_much_though_it_is_older() {
    hold(&with_buffered_max("64KiB"), |talk| {
        let little = talk.client();
        talk.says(little, "GET / HTTP/1.1\r\nHost:");
        talk.passes(Duration::from_secs(1));
        let crowd: Vec<_> = (0..4).map(|_| talk.client()).collect();
        crowd.iter().for_each(|client| talk.says(*client, half_head()));
        talk.passes(LOOK);
        let closed = crowd.iter().filter(|client| talk.is_closed(**client)).count();
        assert_eq!((closed, talk.is_closed(little)), (1, false));
    });
}

#[test]
fn clients_of_one_listener_cost_those_of_another_nothing() {
    hold(&with_buffered_max("128KiB"), |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let others: Vec<_> = (0..12).map(|_| talk.client_of(1)).collect();
        others.iter().for_each(|other| talk.says(*other, half_head()));
        let slow: Vec<_> = (0..3).map(|_| talk.client()).collect();
        for client in &slow {
            talk.takes(*client, 100);
            talk.says(*client, GET);
            let upstream = talk.upstream();
            talk.hears(upstream, GET);
            talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            talk.says(upstream, "a".repeat(200_000));
        }
        talk.passes(LOOK);
        assert!(slow.iter().any(|client| talk.is_closed(*client)));
        assert!(others.iter().all(|other| !talk.is_closed(*other)));
        let log = talk.log();
        assert!(log.contains("buffered_overflow"));
        assert!(log.contains(" KiB; buffered_max of the listener: "), "{log}");
    });
}

#[test]
fn without_a_bound_none_ends() {
    hold(&with_buffered_max("none"), |talk| {
        let crowd: Vec<_> = (0..12).map(|_| talk.client()).collect();
        crowd.iter().for_each(|client| talk.says(*client, half_head()));
        talk.passes(Duration::from_secs(1));
        assert!(crowd.iter().all(|client| !talk.is_closed(*client)));
    });
}

#[test]
fn streams_whose_windows_are_shut_count_and_end_with_their_connection() {
    hold(&with_buffered_max("256KiB"), |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let other = talk.client();
        talk.says(other, half_head());
        let shut = Limits { stream_window_bytes_max: 0, ..Limits::default() };
        let mut client = Speaker::client_with(talk, shut);
        client.hears(talk);
        for path in ["/1", "/2", "/3", "/4"] {
            client.gets(talk, path);
            let upstream = talk.upstream();
            talk.heard(upstream);
            talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            talk.says(upstream, "a".repeat(100_000));
        }
        let heard = client.hears(talk);
        assert!(heard.contains("7: 200") && !heard.contains("data"), "{heard}");
        talk.passes(LOOK);
        assert!(talk.is_closed(client.peer) && !talk.is_closed(other));
        assert_eq!(talk.log().matches("buffered_overflow").count(), 4);
        // The other one goes on.
        talk.says(other, "\r\n\r\n");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.hears(other, OK);
    });
}

const SECURE: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  buffered_max: 64KiB
  tls: { certificates: [{ chain: a.pem, key: a.key }] }
  http: { forwarded: off, request_id: false }
  routes: all
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: web }] }]
clusters: [{ name: web, endpoints: ['127.0.0.1:9000'] }]
";

#[test]
fn what_comes_over_tls_counts_as_well() {
    tls::hold(SECURE, |talk, _| {
        let mut crowd = Vec::new();
        for _ in 0..5 {
            let mut client = Secure::client(talk, trusting_anybody(), "a.example");
            client.says(talk, half_head());
            talk.passes(LOOK);
            crowd.push(client);
        }
        assert!(talk.is_closed(crowd[0].peer), "the one that stood still for longest");
        let last = &mut crowd[4];
        assert!(!talk.is_closed(last.peer));
        last.says(talk, "\r\n\r\n");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, OK);
        assert_eq!(last.hears(talk), OK);
    });
}

#[test]
fn what_is_held_can_be_seen_and_what_was_closed_is_told() {
    hold(&with_buffered_max("64KiB"), |talk| {
        // Other proxies have looked before the clients moved on.
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let held = |talk: &mut Talk<'_>| talk.counted("strait_downstream_buffered_bytes");
        let crowd: Vec<_> = (0..4).map(|_| talk.client()).collect();
        crowd.iter().for_each(|client| talk.says(*client, half_head()));
        talk.passes(LOOK);
        talk.goes_quiet();
        assert_eq!(held(talk).get("edge"), Some(&(4 * KIB_16)), "below the bound, in good time");
        assert!(talk.overflows().is_empty());
        for _ in 0..2 {
            let client = talk.client();
            talk.says(client, half_head());
        }
        talk.passes(LOOK);
        assert_eq!(held(talk).get("edge"), Some(&(4 * KIB_16)), "two were closed");
        assert_eq!(talk.overflows(), [2]);
        for client in crowd {
            if !talk.is_closed(client) {
                talk.ends(client);
            }
        }
        talk.passes(LOOK);
        assert_eq!(held(talk).get("edge"), Some(&(2 * KIB_16)));
    });
}
