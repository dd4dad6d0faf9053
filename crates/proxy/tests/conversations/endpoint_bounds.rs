//! `connections_per_endpoint_max`: what gets a connection, what goes elsewhere, and what waits.

use std::time::Duration;

use config::snapshot::Address;

use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Two endpoints with one connection each.
fn config(more: &str) -> String {
    let endpoints = "['127.0.0.1:9000', '127.0.0.1:9001']";
    CONFIG.replace("['127.0.0.1:9000']", endpoints)
        + &format!("    connections_per_endpoint_max: 1\n{more}")
}

fn port(talk: &Talk<'_>, upstream: Peer) -> u16 {
    let Address::Tcp(address) = talk.address(upstream) else { panic!("an IP address") };
    address.port()
}

fn asks(talk: &mut Talk<'_>) -> (Peer, Peer) {
    let client = talk.client();
    talk.says(client, GET);
    (client, talk.upstream())
}

#[test]
fn a_request_goes_to_an_endpoint_with_room_and_waits_where_there_is_none() {
    for balance in ["round_robin", "random", "least_request"] {
        hold(&config(&format!("    balance: {balance}\n")), |talk| {
            let (first, one) = asks(talk);
            let (second, other) = asks(talk);
            assert_ne!(port(talk, one), port(talk, other), "{balance}");
            let third = talk.client();
            talk.says(third, GET);
            assert!(!talk.is_connecting(), "{balance}");
            talk.hears(one, GET);
            talk.says(one, OK);
            talk.hears(first, OK);
            talk.hears(one, GET);
            talk.says(one, OK);
            talk.hears(third, OK);
            talk.hears(other, GET);
            talk.says(other, OK);
            talk.hears(second, OK);
        });
    }
}

#[test]
fn a_connection_that_is_closed_makes_room_at_its_endpoint() {
    hold(&config(""), |talk| {
        let (first, one) = asks(talk);
        let (_, _) = asks(talk);
        let third = talk.client();
        talk.says(third, GET);
        assert!(!talk.is_connecting());
        talk.hears(one, GET);
        talk.says(one, OK.replace("Content-Length", "Connection: close\r\nContent-Length"));
        talk.hears(first, OK);
        let again = talk.upstream();
        assert_eq!(port(talk, again), port(talk, one));
        talk.hears(again, GET);
        talk.says(again, OK);
        talk.hears(third, OK);
    });
}

#[test]
fn a_request_with_a_hash_waits_for_its_endpoint() {
    let config = config("    balance: maglev\n")
        .replace("cluster: web }", "cluster: web, hash: [{ header: x-user }] }");
    hold(&config, |talk| {
        let get = GET.replace("\r\n\r\n", "\r\nX-User: a\r\n\r\n");
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, &get);
        let upstream = talk.upstream();
        talk.says(second, &get);
        assert!(!talk.is_connecting(), "the other endpoint has room, and is not the one");
        for client in [first, second] {
            talk.hears(upstream, &get);
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
    });
}

#[test]
fn what_needs_a_new_connection_takes_the_place_of_an_idle_one_to_the_same_endpoint() {
    let one = CONFIG.to_owned() + "    connections_per_endpoint_max: 1\n";
    hold(&one, |talk| {
        let (client, upstream) = asks(talk);
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(client, UPGRADE);
        if talk.is_connecting() {
            let new = talk.upstream();
            assert!(talk.is_closed(upstream), "two would be open");
            assert!(talk.heard(new).contains("websocket"));
        } else {
            assert!(talk.heard(upstream).contains("websocket"));
        }
    });
}

#[test]
fn connections_that_were_there_before_the_bound_count() {
    hold(&CONFIG.replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']"), |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let pairs: Vec<(Peer, Peer)> = (0..4).map(|_| asks(talk)).collect();
        talk.reconfigures(&config(""));
        let waiting = talk.client();
        talk.says(waiting, GET);
        assert!(!talk.is_connecting());
        // Both endpoints have two; with one less each is still full.
        let (client, upstream) = pairs[0];
        talk.breaks(client);
        assert!(talk.is_closed(upstream));
        assert!(!talk.is_connecting());
        // With two less, one has none.
        let same = |pair: &&(Peer, Peer)| port(talk, pair.1) == port(talk, upstream);
        let (client, _) = *pairs[1..].iter().find(same).unwrap();
        talk.breaks(client);
        let new = talk.upstream();
        assert_eq!(port(talk, new), port(talk, upstream));
        talk.hears(new, GET);
        talk.says(new, OK);
        talk.hears(waiting, OK);
    });
}

#[test]
fn an_exchange_that_waits_goes_to_an_endpoint_that_comes() {
    hold(&config(""), |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        asks(talk);
        asks(talk);
        let waiting = talk.client();
        talk.says(waiting, GET);
        assert!(!talk.is_connecting());
        talk.reconfigures(&config("").replace("9001']", "9001', '127.0.0.1:9002']"));
        let new = talk.upstream();
        assert_eq!(port(talk, new), 9002);
        talk.hears(new, GET);
        talk.says(new, OK);
        talk.hears(waiting, OK);
    });
}

#[test]
fn what_does_not_fit_into_the_queue_is_refused_with_all_its_bounds() {
    hold(&config("    pending_max: 0\n"), |talk| {
        asks(talk);
        asks(talk);
        let third = talk.client();
        talk.says(third, GET);
        assert!(talk.heard(third).starts_with("HTTP/1.1 503 "));
        let log = talk.log();
        assert!(log.contains("pending_overflow"), "{log}");
        assert!(log.contains("connections_per_endpoint_max: 1, and pending_max: 0"), "{log}");
    });
}

#[test]
fn exchanges_that_wait_for_an_endpoint_in_vain_end_in_time() {
    hold(&config("    timeouts: { pending: 3s }\n"), |talk| {
        asks(talk);
        asks(talk);
        let third = talk.client();
        talk.says(third, GET);
        talk.passes(Duration::from_secs(4));
        assert!(talk.heard(third).starts_with("HTTP/1.1 503 "));
        assert!(talk.log().contains("pending_timeout"));
    });
}
