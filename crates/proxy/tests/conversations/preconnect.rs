//! `preconnect` of a cluster: connections that are there before a request needs them.

use std::time::Duration;

use crate::frames::Speaker;
use crate::http2::to_one;
use crate::keep_alive::CONFIG;
use crate::kit::{Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn config(more: &str) -> String {
    format!("{CONFIG}    preconnect: 1.5\n{more}")
}

/// What happens to connections that were opened for none may differ where workers move what they have.
fn hold_here(config: &str, script: impl Fn(&mut Talk<'_>)) {
    hold(config, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        script(talk);
    });
}

#[test]
fn the_next_request_finds_a_connection_that_is_there() {
    hold_here(&config(""), |talk| {
        let (first, second, third) = (talk.client(), talk.client(), talk.client());
        talk.says(first, GET);
        let one = talk.upstream();
        let two = talk.upstream();
        assert!(!talk.is_connecting(), "two for one request");
        talk.hears(one, GET);
        assert_eq!(talk.heard(two), "");
        talk.says(second, GET);
        talk.hears(two, GET);
        // Three for two requests.
        let three = talk.upstream();
        assert!(!talk.is_connecting());
        for (client, upstream) in [(first, one), (second, two)] {
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
        // What there is is enough.
        talk.says(third, GET);
        assert!(!talk.is_connecting());
        assert!(talk.heard(two).ends_with("\r\n\r\n"), "the newest idle one");
        assert!(!talk.is_closed(three));
    });
}

#[test]
fn a_request_gets_a_connection_that_is_still_being_established() {
    hold_here(&config(""), |talk| {
        let (first, second) = (talk.client(), talk.client());
        // None of the three is established yet when the second request comes.
        talk.says(first, GET);
        talk.says(second, GET);
        let (one, two, three) = (talk.upstream(), talk.upstream(), talk.upstream());
        assert!(!talk.is_connecting());
        for (client, upstream) in [(first, one), (second, two)] {
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
        assert_eq!(talk.heard(three), "");
    });
}

#[test]
fn bounds_hold_for_what_is_opened_before() {
    for bound in ["    connections_max: 1\n", "    connections_per_endpoint_max: 1\n"] {
        hold_here(&config(bound), |talk| {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            assert!(!talk.is_connecting());
            for _ in 0..3 {
                talk.hears(upstream, GET);
                talk.says(upstream, OK);
                talk.hears(client, OK);
                talk.says(client, GET);
                assert!(!talk.is_connecting());
            }
        });
    }
}

#[test]
fn a_connection_for_none_that_fails_or_is_closed_harms_no_request() {
    hold_here(&config(""), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let one = talk.upstream();
        let two = talk.connecting();
        talk.refuse(two);
        talk.hears(one, GET);
        talk.says(one, OK);
        talk.hears(client, OK);
        let failed = talk.counted("strait_upstream_connect_failures_total");
        assert_eq!(failed.values().sum::<u64>(), 1, "{failed:?}");
        // The next request looks again; one that is idle and is closed is forgotten.
        talk.says(client, GET);
        let again = talk.upstream();
        talk.ends(again);
        assert!(talk.is_closed(again));
        talk.hears(one, GET);
        talk.says(one, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn one_that_no_request_needs_closes_after_its_idle_time() {
    hold_here(&config("    timeouts: { idle: 5s }\n"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let (one, two) = (talk.upstream(), talk.upstream());
        talk.hears(one, GET);
        talk.passes(Duration::from_secs(6));
        assert!(talk.is_closed(two));
        assert!(!talk.is_closed(one));
        talk.says(one, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_connection_with_streams_for_none_ends_with_its_endpoint_though_its_peer_has_said_nothing() {
    let config = to_one().replace("connections_max: 1", "connections_max: 9, preconnect: 1.5");
    hold_here(&config, |talk| {
        let limits = wire::h2::Limits { streams_max: 2, ..wire::h2::Limits::default() };
        let clients: Vec<_> = (0..2).map(|_| talk.client()).collect();
        talk.says(clients[0], GET);
        let mut one = Speaker::upstream_with(talk, limits);
        assert!(one.hears(talk).contains("1: GET"));
        talk.says(clients[1], GET);
        assert!(one.hears(talk).contains("3: GET"), "it has room for two");
        let two = talk.connecting();
        talk.establish(two);
        assert!(!talk.is_closed(two), "its peer may say what it takes");
        talk.reconfigures(&config.replace("127.0.0.1:9000", "127.0.0.1:9009"));
        assert!(talk.is_closed(two));
        assert!(!talk.is_closed(one.peer), "it has requests");
    });
}

#[test]
fn a_connection_with_streams_is_followed_by_another_before_it_is_full() {
    let config = to_one().replace("connections_max: 1", "connections_max: 9, preconnect: 1.5");
    hold_here(&config, |talk| {
        let limits = wire::h2::Limits { streams_max: 2, ..wire::h2::Limits::default() };
        let clients: Vec<_> = (0..3).map(|_| talk.client()).collect();
        talk.says(clients[0], GET);
        let mut one = Speaker::upstream_with(talk, limits);
        assert!(!talk.is_connecting(), "what it has room for is not known yet");
        assert!(one.hears(talk).contains("1: GET"));
        talk.says(clients[1], GET);
        assert!(one.hears(talk).contains("3: GET"), "it has room for two");
        let mut two = Speaker::upstream_with(talk, limits);
        assert!(!talk.is_connecting());
        talk.says(clients[2], GET);
        assert!(two.hears(talk).contains("1: GET"), "the other is there already");
    });
}
