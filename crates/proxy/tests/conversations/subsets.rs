//! Endpoints that a rule asks for, and those that stand in for others.

use std::collections::BTreeSet;

use config::snapshot::Address;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn config(subsets: &str) -> String {
    let endpoints = "
      - { address: '127.0.0.1:9000', metadata: { unit: a } }
      - { address: '127.0.0.1:9001', metadata: { unit: b } }
      - { address: '127.0.0.1:9002', metadata: { unit: b } }
      - { address: '127.0.0.1:9003', metadata: { unit: a }, priority: 1 }";
    CONFIG
        .replace("['127.0.0.1:9000']", endpoints)
        .replace("cluster: web }", "cluster: web, subset: { unit: { header: x-unit } } }")
        + &format!("    subsets: {subsets}\n")
}

fn get(unit: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: x\r\nX-Unit: {unit}\r\n\r\n")
}

fn port(talk: &Talk<'_>, upstream: Peer) -> u16 {
    let Address::Tcp(address) = talk.address(upstream) else { panic!("an IP address") };
    address.port()
}

/// A client asks and is answered: the port of who answers, on a connection that ends with that.
fn ask(talk: &mut Talk<'_>, unit: &str) -> u16 {
    let client = talk.client();
    talk.says(client, get(unit));
    let upstream = talk.upstream();
    let port = port(talk, upstream);
    talk.heard(upstream);
    talk.says(upstream, OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    talk.heard(client);
    port
}

#[test]
fn a_request_goes_to_its_subset_in_turn() {
    hold(&config("{ by: [[unit]] }"), |talk| {
        let mut of_b = BTreeSet::new();
        for _ in 0..8 {
            // In between those for the other subset, which do not take its turns.
            assert_eq!(ask(talk, "a"), 9000);
            of_b.insert(ask(talk, "b"));
        }
        assert_eq!(of_b, BTreeSet::from([9001, 9002]));
        assert!(talk.log().contains("\"subset\":\"unit=a\""), "{}", talk.log());
        let client = talk.client();
        talk.says(client, get("c"));
        talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[": no_endpoint\n"]);
    });
}

#[test]
fn where_an_only_endpoint_fails_the_next_priority_stands_in() {
    hold(&config("{ by: [[unit]] }"), |talk| {
        let client = talk.client();
        talk.says(client, get("a"));
        let refused = talk.connecting();
        assert_eq!(port(talk, refused), 9000);
        talk.refuse(refused);
        let upstream = talk.upstream();
        assert_eq!(port(talk, upstream), 9003);
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        // The next request tries the first priority again.
        assert_eq!(ask(talk, "a"), 9000);
    });
}

#[test]
fn a_request_takes_no_connection_to_an_endpoint_of_another_subset() {
    let config = config("{ by: [[unit]] }") + "    connections_max: 1\n";
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Each worker has a queue of its own.
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, get("b"));
        let of_b = talk.upstream();
        talk.heard(of_b);
        talk.says(of_b, OK);
        talk.hears(client, OK);
        // The one connection is idle, and of the other subset.
        talk.says(client, get("a"));
        let of_a = talk.upstream();
        assert!(talk.is_closed(of_b));
        assert_eq!(port(talk, of_a), 9000);
        talk.heard(of_a);
        talk.says(of_a, OK);
        talk.hears(client, OK);
    });
}

/// A connection that makes room for another has to have been of use: else the two close each other's without
/// end, and no time passes.
#[test]
fn upgrades_to_two_subsets_do_not_close_each_others_new_connections() {
    let endpoints = "
      - { address: '127.0.0.1:9000', metadata: { unit: a } }
      - { address: '127.0.0.1:9001', metadata: { unit: b } }
    connections_max: 1
    subsets: { by: [[unit]] }
";
    let config = "
listeners: [{ name: web, address: 127.0.0.1:8080, routes: site, http: { forwarded: off, request_id: false } }]
routes:
  - name: site
    hosts: ['*']
    rules:
      - { match: { prefix: / }, cluster: app, subset: { unit: { header: x-unit } }, upgrades: [websocket] }
clusters:
  - name: app
    protocol: http2
    endpoints:"
        .to_owned()
        + endpoints;
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Each has a cluster of its own while everything moves.
            return talk.leave_out();
        }
        let upgrade = |talk: &mut Talk<'_>, unit: &str| {
            let client = talk.client();
            talk.says(client, format!("GET /chat HTTP/1.1\r\nHost: x\r\nX-Unit: {unit}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"));
            client
        };
        upgrade(talk, "a");
        upgrade(talk, "b");
        let mut upstream = Speaker::upstream(talk);
        assert_eq!(port(talk, upstream.peer), 9000);
        assert!(upstream.hears(talk).contains("CONNECT /chat"));
        assert!(!talk.is_connecting(), "the other waits for it to end");
    });
}
