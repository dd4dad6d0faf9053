//! Bounds on connections, the queue for them, and the turn among endpoints.

use std::collections::BTreeMap;
use std::time::Duration;

use config::snapshot::Address;

use crate::keep_alive::CONFIG;
use crate::kit::{Manner, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn the_process_takes_a_bounded_number_of_downstream_connections() {
    let config = format!("{CONFIG}limits: {{ connections_max: 2 }}\n");
    hold(&config, |talk| {
        talk.keeps_counts();
        let first = talk.client();
        talk.client();
        assert!(talk.try_client().is_none(), "the listener alone would take many more");
        let refused = talk.counted("strait_downstream_connections_refused_total");
        assert_eq!(refused.get("edge connections_overflow"), Some(&1), "{refused:?}");
        talk.breaks(first);
        assert!(talk.try_client().is_some());
    });
}

#[test]
fn exchanges_wait_in_turn_for_a_connection_and_overflow_is_refused() {
    let config = format!("{CONFIG}    connections_max: 1\n    pending_max: 2\n");
    hold(&config, |talk| {
        if talk.manner() == Manner::Moving {
            // The order of a queue belongs to its worker.
            return;
        }
        let clients: Vec<_> = (0..4).map(|_| talk.client()).collect();
        for client in &clients {
            talk.says(*client, GET);
        }
        talk.hears_about(
            clients[3],
            "HTTP/1.1 503 Service Unavailable\r\n",
            &[": pending_overflow\n"],
        );
        let upstream = talk.upstream();
        assert!(!talk.is_connecting());
        for client in &clients[..3] {
            talk.hears(*client, "");
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            talk.hears(*client, OK);
        }
    });
}

#[test]
fn who_waits_gets_the_room_of_a_connection_that_moves_away() {
    let config = format!("{CONFIG}    connections_max: 1\n");
    hold(&config, |talk| {
        if talk.manner() == Manner::Moving {
            return;
        }
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(second, GET);
        assert!(!talk.is_connecting());
        talk.leaves(first);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn who_waits_too_long_for_a_connection_is_told() {
    let config = format!("{CONFIG}    connections_max: 1\n    timeouts: {{ pending: 3s }}\n");
    hold(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(second, GET);
        talk.passes(Duration::from_secs(2));
        talk.hears(second, "");
        talk.passes(Duration::from_secs(2));
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        talk.hears_about(second, start, &[": pending_timeout\n"]);
        assert!(!talk.is_closed(second));
        talk.says(upstream, OK);
        talk.hears(first, OK);
    });
}

#[test]
fn a_place_in_the_queue_is_given_up_with_its_client() {
    let config = format!("{CONFIG}    connections_max: 1\n    pending_max: 1\n");
    hold(&config, |talk| {
        let (first, second, third) = (talk.client(), talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.says(second, GET);
        talk.breaks(second);
        talk.says(third, GET);
        talk.hears(third, "");
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(third, OK);
    });
}

#[test]
fn a_connection_that_closes_makes_room_for_one_that_waits() {
    let config = format!("{CONFIG}    connections_max: 1\n");
    hold(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.says(second, GET);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn a_body_waits_in_its_socket_while_its_request_waits() {
    let config = format!("{CONFIG}    connections_max: 1\n");
    hold(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.says(second, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
        talk.says(second, vec![b'x'; 100_000]);
        assert!(talk.unread(second) > 0);
        talk.heard(upstream);
        talk.says(upstream, OK);
        let heard = talk.heard(upstream);
        assert_eq!(heard.matches('x').count(), 100_001);
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn endpoints_take_turns_by_weight() {
    let config = CONFIG.replace(
        "['127.0.0.1:9000']",
        "[{ address: '127.0.0.1:9000', weight: 3 }, '127.0.0.1:9001', { address: '127.0.0.1:9002', weight: 2 }]",
    );
    hold(&config, |talk| {
        if talk.manner() == Manner::Moving {
            // Each worker takes turns of its own.
            return;
        }
        let mut seen = BTreeMap::new();
        for _ in 0..600 {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            let Address::Tcp(address) = talk.address(upstream) else { panic!("an IP address") };
            *seen.entry(address.port()).or_insert(0u32) += 1;
            talk.breaks(client);
        }
        for (port, expected) in [(9000, 300u32), (9001, 100), (9002, 200)] {
            assert!(seen[&port].abs_diff(expected) <= 6, "{seen:?}");
        }
    });
}

#[test]
fn the_newest_idle_connection_is_used_first() {
    hold(CONFIG, |talk| {
        if talk.manner() == Manner::Moving {
            return;
        }
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let older = talk.upstream();
        talk.says(second, GET);
        let newer = talk.upstream();
        talk.says(older, OK);
        talk.says(newer, OK);
        talk.heard(newer);
        talk.says(first, GET);
        talk.hears(newer, GET);
        talk.says(newer, OK);
        talk.passes(Duration::from_secs(59));
        talk.says(first, GET);
        talk.says(newer, OK);
        talk.passes(Duration::from_secs(2));
        assert!(talk.is_closed(older), "a minute without use");
        assert!(!talk.is_closed(newer));
    });
}

#[test]
fn an_endpoint_whose_weight_becomes_zero_gets_no_new_requests_and_finishes_what_it_has() {
    let config = |weight: u16| {
        let endpoints =
            format!("[{{ address: '127.0.0.1:9000', weight: {weight} }}, '127.0.0.1:9001']");
        let config = CONFIG.replace(
            "['127.0.0.1:9000']",
            if weight > 0 { "['127.0.0.1:9000']" } else { &endpoints },
        );
        config + "    connections_max: 2\n"
    };
    hold(&config(1), |talk| {
        if talk.manner() == Manner::Moving {
            // Each worker has a pool of its own.
            return;
        }
        let (busy, client) = (talk.client(), talk.client());
        talk.says(busy, GET);
        let of_busy = talk.upstream();
        talk.says(client, GET);
        let idle = talk.upstream();
        talk.says(idle, OK);
        talk.hears(client, OK);
        talk.reconfigures(&config(0));
        for _ in 0..2 {
            talk.says(client, GET);
            // The idle connection makes room for one to the other endpoint.
            let next = talk.upstream();
            let Address::Tcp(address) = talk.address(next) else { panic!("an IP address") };
            assert_eq!(address.port(), 9001);
            talk.says(next, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            assert!(talk.heard(client).ends_with("ok"));
            talk.breaks(next);
        }
        assert!(talk.is_closed(idle));
        talk.says(of_busy, OK);
        assert!(talk.heard(busy).ends_with("ok"));
    });
}

#[test]
fn endpoints_with_idle_connections_take_turns_for_those_that_may_have_none() {
    let endpoints = "['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002']";
    let config = CONFIG.replace("['127.0.0.1:9000']", endpoints) + "    connections_max: 2\n";
    hold(&config, |talk| {
        if talk.manner() == Manner::Moving {
            // Each worker has a pool and takes turns of its own.
            return;
        }
        let client = talk.client();
        let mut upstreams = Vec::new();
        for _ in 0..2 {
            talk.says(client, GET);
            upstreams.push(talk.upstream());
            talk.says(upstreams[upstreams.len() - 1], OK);
        }
        upstreams.iter().for_each(|upstream| drop(talk.heard(*upstream)));
        let mut asked = [0; 2];
        for _ in 0..12 {
            talk.says(client, GET);
            let place = upstreams.iter().position(|it| !talk.heard(*it).is_empty()).unwrap();
            talk.says(upstreams[place], OK);
            asked[place] += 1;
        }
        // A third are turns of the endpoint that may have no connection.
        assert_eq!(asked, [6, 6]);
    });
}

#[test]
fn a_cluster_without_endpoints_is_unavailable() {
    let config = CONFIG.replace("['127.0.0.1:9000']", "[]");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[": no_endpoint\n"]);
    });
}

#[test]
fn connections_beyond_the_bound_are_refused() {
    let bounds = "routes: all\n    connections_max: 2\n    connections_per_client_max: 2";
    let config = CONFIG.replace("routes: all", bounds);
    hold(&config, |talk| {
        let first = talk.client();
        talk.client();
        assert!(talk.try_client().is_none());
        talk.ends(first);
        assert!(talk.try_client().is_some());
    });
}
