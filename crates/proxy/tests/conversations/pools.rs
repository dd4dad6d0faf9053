//! Bounds on connections, the queue for them, and the turn among endpoints.

use std::collections::BTreeMap;
use std::time::Duration;

use config::snapshot::Address;

use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

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
fn a_request_that_was_refused_counts_nowhere_until_its_client_reads_that() {
    let config = CONFIG.replace("    routes: all", "    requests_max: 1\n    routes: all");
    hold(&config, |talk| {
        let clients = [(); 2].map(|()| talk.client());
        talk.says(clients[0], GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.takes(clients[1], 0);
        talk.says(clients[1], GET);
        for _ in 0..2 {
            talk.says(upstream, OK);
            talk.hears(clients[0], OK);
            talk.says(clients[0], GET);
            talk.hears(upstream, GET);
        }
        talk.takes(clients[1], 1000);
        let rest = ["\r\nx-envoy-overloaded: true\r\n"];
        talk.hears_about(clients[1], "HTTP/1.1 503 Service Unavailable\r\n", &rest);
        talk.says(upstream, OK);
        talk.hears(clients[0], OK);
    });
}

#[test]
fn a_listener_has_a_bounded_number_of_requests_under_way() {
    let config = CONFIG.replace("    routes: all", "    requests_max: 2\n    routes: all");
    hold(&config, |talk| {
        talk.keeps_counts();
        let clients: Vec<_> = (0..3).map(|_| talk.client()).collect();
        let mut upstreams = Vec::new();
        for client in &clients[..2] {
            talk.says(*client, GET);
            upstreams.push(talk.upstream());
        }
        talk.says(clients[2], GET);
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        let rest = ["\r\nx-envoy-overloaded: true\r\n", ": requests_overflow\n"];
        talk.hears_about(clients[2], start, &rest);
        assert!(talk.log().contains("requests_max of the listener: 2"));
        // One ends in order, and of the other the client goes.
        talk.heard(upstreams[0]);
        talk.says(upstreams[0], OK);
        talk.hears(clients[0], OK);
        talk.breaks(clients[1]);
        for _ in 0..2 {
            talk.says(clients[0], GET);
            talk.hears(upstreams[0], GET);
            talk.says(upstreams[0], OK);
            talk.hears(clients[0], OK);
        }
        talk.says(clients[2], GET);
        talk.hears(upstreams[0], GET);
        talk.says(clients[0], GET);
        talk.upstream();
        let late = talk.client();
        talk.says(late, GET);
        talk.hears_about(late, start, &rest);
        talk.says(upstreams[0], OK);
        talk.hears(clients[2], OK);
    });
}

#[test]
fn exchanges_wait_in_turn_for_a_connection_and_overflow_is_refused() {
    let config = format!("{CONFIG}    connections_max: 1\n    pending_max: 2\n");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // The order of a queue belongs to its worker.
            return talk.leave_out();
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
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(second, GET);
        assert!(!talk.is_connecting());
        talk.leaves(first);
        // It counts until another worker has it, or it is known to be another process's.
        assert!(!talk.is_connecting());
        talk.passes(Duration::from_millis(200));
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn requests_beyond_the_bound_are_refused_at_once() {
    let config = format!("{CONFIG}    requests_max: 1\n");
    hold(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(second, GET);
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        let rest = ["\r\nx-envoy-overloaded: true\r\n", ": requests_overflow\n"];
        talk.hears_about(second, start, &rest);
        assert!(!talk.is_connecting());
        talk.says(upstream, OK);
        talk.hears(first, OK);
        talk.says(second, GET);
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(second, OK);
        // One that is given up counts no more.
        talk.says(first, GET);
        talk.hears(upstream, GET);
        talk.breaks(first);
        talk.says(second, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn requests_beyond_what_response_times_allow_are_refused_until_these_allow_more() {
    let config = format!(
        "{CONFIG}    adaptive_concurrency:\n      update_interval: 100ms\n      min_rtt: {{ requests: 2, concurrency: 1 }}\n"
    );
    hold(&config, |talk| {
        if talk.variant() != Variant::Plain {
            // The cluster's controller is that of the conversation before.
            return talk.leave_out();
        }
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.passes(Duration::from_millis(10));
        talk.says(second, GET);
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        let rest = ["\r\nx-envoy-overloaded: true\r\n", ": concurrency_limited\n"];
        talk.hears_about(second, start, &rest);
        assert!(talk.log().contains("adaptive_concurrency of the cluster: 1 while the"));
        talk.says(upstream, OK);
        talk.hears(first, OK);
        // The second response ends the measurement, and the third a window.
        for wait in [10, 200] {
            talk.says(first, GET);
            talk.hears(upstream, GET);
            talk.passes(Duration::from_millis(10));
            talk.says(upstream, OK);
            talk.hears(first, OK);
            talk.passes(Duration::from_millis(wait));
        }
        talk.says(first, GET);
        talk.hears(upstream, GET);
        talk.passes(Duration::from_millis(10));
        talk.says(upstream, OK);
        talk.hears(first, OK);
        talk.says(first, GET);
        talk.hears(upstream, GET);
        talk.says(second, GET);
        let other = talk.upstream();
        talk.hears(other, GET);
        for (upstream, client) in [(upstream, first), (other, second)] {
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
    });
}

#[test]
fn response_times_count_from_the_end_of_a_request_whose_body_comes_later() {
    let config = format!(
        "{CONFIG}    adaptive_concurrency: {{ min_rtt: {{ requests: 1, concurrency: 1, interval: 1h }} }}\n"
    );
    hold(&config, |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let (client, other) = (talk.client(), talk.client());
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.passes(Duration::from_secs(2));
        talk.says(client, "body");
        talk.heard(upstream);
        talk.passes(Duration::from_millis(10));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        // Were it not measured, or with the client's time, the limit would stay at 1 or say 2 s.
        talk.says(client, GET);
        talk.hears(upstream, GET);
        talk.says(other, GET);
        talk.hears_about(other, "HTTP/1.1 503 ", &[": concurrency_limited\n"]);
        let log = talk.log();
        assert!(log.contains("1 now; the minimum response time is 10."), "{log}");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_request_that_waits_is_none_that_is_under_way() {
    let config = format!("{CONFIG}    connections_max: 1\n    requests_max: 1\n");
    hold(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(first, OK);
        talk.says(first, GET);
        talk.hears(upstream, GET);
        talk.says(second, GET);
        talk.hears_about(second, "HTTP/1.1 503 ", &[": requests_overflow\n"]);
        talk.says(upstream, OK);
        talk.hears(first, OK);
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
        if talk.variant() == Variant::Moving {
            // Each worker takes turns of its own.
            return talk.leave_out();
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
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
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
        if talk.variant() == Variant::Moving {
            // Each worker has a pool of its own.
            return talk.leave_out();
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

/// The usual configuration with so many endpoints, and a bound on connections.
fn crowded(endpoints: u16, connections_max: u32) -> String {
    let endpoints = (9000..9000 + endpoints).map(|port| format!("'127.0.0.1:{port}'"));
    let endpoints = endpoints.collect::<Vec<_>>().join(", ");
    CONFIG.replace("'127.0.0.1:9000'", &endpoints)
        + &format!("    connections_max: {connections_max}\n")
}

/// The connections to upstreams that a test knows, by port.
#[derive(Default)]
struct Known(Vec<(u16, Peer)>);

impl Known {
    /// The port that a request went to, the connection, and whether that is new.
    fn asked(&mut self, talk: &mut Talk<'_>) -> (u16, Peer, bool) {
        let is_new = talk.is_connecting();
        if is_new {
            let upstream = talk.upstream();
            let Address::Tcp(address) = talk.address(upstream) else { panic!("an IP address") };
            self.0.push((address.port(), upstream));
        }
        self.0.retain(|(_, upstream)| !talk.is_closed(*upstream));
        let asked = self.0.iter().find(|(_, upstream)| !talk.heard(*upstream).is_empty());
        let (port, upstream) = *asked.expect("one of them is asked");
        (port, upstream, is_new)
    }

    /// A client asks and is answered: by which port, and whether over a new connection.
    fn answers(&mut self, talk: &mut Talk<'_>, client: Peer) -> (u16, bool) {
        talk.says(client, GET);
        let (port, upstream, is_new) = self.asked(talk);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        (port, is_new)
    }
}

#[test]
fn an_endpoint_whose_turn_it_is_gets_a_connection_in_place_of_an_idle_one_to_another() {
    hold(&crowded(3, 2), |talk| {
        if talk.variant() == Variant::Moving {
            // Each worker has a pool and takes turns of its own.
            return talk.leave_out();
        }
        let (client, mut known) = (talk.client(), Known::default());
        let mut asked = [0; 3];
        for _ in 0..12 {
            let (port, _) = known.answers(talk, client);
            asked[usize::from(port - 9000)] += 1;
            assert!(known.0.len() <= 2);
        }
        assert_eq!(asked, [4, 4, 4]);
    });
}

#[test]
fn endpoints_that_have_their_part_of_the_connections_give_way_to_idle_ones() {
    hold(&crowded(1, 4), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let mut known = Known::default();
        let clients: Vec<Peer> = (0..4).map(|_| talk.client()).collect();
        // All connections are to one endpoint.
        let asked: Vec<_> = clients
            .iter()
            .map(|client| {
                talk.says(*client, GET);
                known.asked(talk).1
            })
            .collect();
        for (client, upstream) in clients.iter().zip(asked) {
            talk.says(upstream, OK);
            talk.hears(*client, OK);
        }
        // Another comes, and has its part of them after a few requests, all of which are under way at once.
        talk.reconfigures(&crowded(2, 4));
        for round in 0..4 {
            let mut opened = 0;
            let mut at: Vec<_> = Vec::new();
            for client in &clients {
                talk.says(*client, GET);
                let (port, upstream, is_new) = known.asked(talk);
                opened += u32::from(is_new);
                at.push((port, upstream, client));
            }
            let of_new = at.iter().filter(|(port, ..)| *port == 9001).count();
            assert_eq!((of_new, opened), (2, if round == 0 { 2 } else { 0 }), "round {round}");
            for (_, upstream, client) in at {
                talk.says(upstream, OK);
                talk.hears(*client, OK);
            }
        }
    });
}

#[test]
fn an_exchange_that_waits_keeps_the_endpoint_whose_turn_it_was() {
    hold(&crowded(2, 1), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let mut known = Known::default();
        let clients: Vec<Peer> = (0..5).map(|_| talk.client()).collect();
        clients.iter().for_each(|client| talk.says(*client, GET));
        let mut ports = Vec::new();
        for client in clients {
            let (port, upstream, is_new) = known.asked(talk);
            assert!(is_new, "the one before makes room");
            ports.push(port);
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "turns: {ports:?}");
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
