//! Connections that were going elsewhere, and clusters that connect there.

use std::net::SocketAddr;
use std::time::Duration;

use config::snapshot::Address;

use wire::h2::{Http2, Limits};

use crate::frames::Speaker;
use crate::kit::{Peer, Talk, Variant, hold};

const CONFIG: &str = "
admin: { address: 127.0.0.1:9901 }
listeners:
  - name: outbound
    address: 127.0.0.1:15001
    original_destination: redirect
    routes: all
    http: { forwarded: off, request_id: false }
  - { name: other, address: '0.0.0.0:15006', routes: all }
routes:
  - { name: all, rules: [{ match: { prefix: / }, cluster: onward }] }
clusters:
  - name: onward
    original_destination: true
    mark: 1337
";

const TCP: &str = "
listeners:
  - name: outbound
    address: 127.0.0.1:15001
    original_destination: redirect
    protocol: tcp
    cluster: onward
clusters:
  - name: onward
    original_destination: true
";

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const A: &str = "203.0.113.1:80";
const B: &str = "203.0.113.2:80";
const C: &str = "203.0.113.3:80";

#[track_caller]
fn goes_to(talk: &Talk<'_>, upstream: Peer, address: &str) {
    let address: SocketAddr = address.parse().unwrap();
    assert_eq!(*talk.address(upstream), Address::Tcp(address));
}

/// A client's request to `address`, answered over a connection of its own.
fn exchange(talk: &mut Talk<'_>, address: &str) -> (Peer, Peer) {
    let client = talk.intercepted(address);
    talk.says(client, GET);
    let upstream = talk.upstream();
    goes_to(talk, upstream, address);
    talk.hears(upstream, GET);
    talk.says(upstream, OK);
    talk.hears(client, OK);
    (client, upstream)
}

#[test]
fn requests_go_where_their_connection_was_going() {
    hold(CONFIG, |talk| {
        for address in [A, "203.0.113.1:8080", "[2001:db8::7]:80"] {
            let (_, upstream) = exchange(talk, address);
            assert_eq!(talk.mark(upstream), Some(1337));
        }
        let log = talk.log();
        assert!(log.contains("\"endpoint\":\"[2001:db8::7]:80\""), "{log}");
    });
}

#[test]
fn connections_are_kept_and_shared_by_those_who_go_the_same_way() {
    hold(CONFIG, |talk| {
        let (first, to_a) = exchange(talk, A);
        let (_, to_b) = exchange(talk, B);
        let second = talk.intercepted(A);
        for client in [first, second] {
            talk.says(client, GET);
            assert!(!talk.is_connecting());
            talk.hears(to_a, GET);
            talk.says(to_a, OK);
            talk.hears(client, OK);
        }
        talk.hears(to_b, "");
        // Two at a time need two, of which the newer is used first.
        talk.says(first, GET);
        talk.says(second, GET);
        let newer = talk.upstream();
        goes_to(talk, newer, A);
        talk.says(to_a, OK);
        talk.says(newer, OK);
        talk.heard(newer);
        talk.says(first, GET);
        talk.hears(newer, GET);
        talk.says(newer, OK);
        // The one that was unused for a minute is gone from the middle of its pool.
        talk.passes(Duration::from_secs(59));
        talk.says(first, GET);
        talk.says(newer, OK);
        talk.passes(Duration::from_secs(2));
        assert!(talk.is_closed(to_a) && talk.is_closed(to_b) && !talk.is_closed(newer));
    });
}

#[test]
fn who_was_going_nowhere_else_gets_a_cause() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        for _ in 0..2 {
            talk.says(client, GET);
            talk.hears_about(
                client,
                "HTTP/1.1 503 Service Unavailable\r\n",
                &[": no_original_destination\n"],
            );
        }
        assert!(!talk.is_closed(client) && !talk.is_connecting());
    });
    hold(TCP, |talk| {
        let client = talk.client();
        assert!(talk.is_closed(client) && !talk.is_connecting());
        assert!(talk.log().contains("no_original_destination"));
    });
}

#[test]
fn an_address_of_our_own_is_not_connected_to() {
    // A listener, one of all addresses, the admin interface; as IPv4 in IPv6, too.
    let addresses =
        ["127.0.0.1:15001", "198.51.100.9:15006", "127.0.0.1:9901", "[::ffff:127.0.0.1]:15001"];
    for address in addresses {
        hold(CONFIG, |talk| {
            let client = talk.intercepted(address);
            talk.says(client, GET);
            assert!(!talk.is_connecting(), "{address}");
            let start = "HTTP/1.1 503 Service Unavailable\r\n";
            talk.hears_about(client, start, &[": no_original_destination\n"]);
        });
    }
    // Their ports elsewhere, and other ports there, are not this process's.
    for address in ["127.0.0.2:15001", "127.0.0.1:15002", "[2001:db8::7]:15006"] {
        hold(CONFIG, |talk| {
            exchange(talk, address);
        });
    }
}

#[test]
fn relayed_connections_go_on_too_and_are_nobody_elses() {
    hold(TCP, |talk| {
        for _ in 0..2 {
            let client = talk.intercepted("[2001:db8::7]:5432");
            let upstream = talk.upstream();
            goes_to(talk, upstream, "[2001:db8::7]:5432");
            assert_eq!(talk.mark(upstream), None);
            talk.says(upstream, "220 ready\r\n");
            talk.hears(client, "220 ready\r\n");
            talk.says(client, "bye");
            talk.hears(upstream, "bye");
            talk.ends(client);
            talk.ends(upstream);
            assert!(talk.is_closed(upstream));
        }
    });
}

#[test]
fn another_attempt_goes_the_same_way() {
    hold(CONFIG, |talk| {
        let client = talk.intercepted(A);
        talk.says(client, GET);
        for _ in 0..3 {
            let upstream = talk.connecting();
            goes_to(talk, upstream, A);
            talk.refuse(upstream);
        }
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        talk.hears_about(client, start, &[": connect_failed\n"]);
        talk.says(client, GET);
        let upstream = talk.upstream();
        goes_to(talk, upstream, A);
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn an_idle_connection_to_elsewhere_makes_room_at_the_bound() {
    let config = format!("{CONFIG}    connections_max: 2\n");
    hold(&config, |talk| {
        let (_, to_a) = exchange(talk, A);
        let (_, to_c) = exchange(talk, C);
        let (_, to_b) = exchange(talk, B);
        assert!(talk.is_closed(to_c) && !talk.is_closed(to_a), "the next behind it");
        let (_, to_c) = exchange(talk, C);
        assert!(talk.is_closed(to_a) && !talk.is_closed(to_b), "the first, behind the last");
        assert!(!talk.is_closed(to_c));
    });
}

#[test]
fn who_waits_takes_the_place_of_whatever_becomes_idle() {
    let config = format!("{CONFIG}    connections_max: 1\n    pending_max: 2\n");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // The order of a queue belongs to its worker.
            return talk.leave_out();
        }
        let addresses = [A, B, C, C];
        let clients = addresses.map(|address| talk.intercepted(address));
        for client in clients {
            talk.says(client, GET);
        }
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        talk.hears_about(clients[3], start, &[": pending_overflow\n"]);
        for (client, address) in clients.into_iter().zip(addresses).take(3) {
            let upstream = talk.upstream();
            goes_to(talk, upstream, address);
            assert!(!talk.is_connecting(), "one at a time");
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
    });
}

#[test]
fn a_proxy_header_names_the_client_and_never_the_way() {
    let config = CONFIG.replace(
        "original_destination: redirect",
        "original_destination: redirect\n    proxy_protocol: true",
    ) + "    proxy_protocol: v1\n";
    hold(&config, |talk| {
        let client = talk.intercepted(A);
        talk.says(client, "PROXY TCP4 198.51.100.7 198.51.100.8 4000 443\r\n");
        talk.says(client, GET);
        let upstream = talk.upstream();
        goes_to(talk, upstream, A);
        talk.hears(upstream, &format!("PROXY TCP4 198.51.100.7 198.51.100.8 4000 443\r\n{GET}"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        assert!(talk.is_closed(upstream), "it is one client's");
        // Without an address there, it is none.
        let client = talk.client();
        talk.says(client, "PROXY TCP4 198.51.100.7 203.0.113.1 4000 80\r\n");
        talk.says(client, GET);
        assert!(!talk.is_connecting());
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        talk.hears_about(client, start, &[": no_original_destination\n"]);
    });
}

#[test]
fn the_upstream_may_get_the_original_destination() {
    let config = format!("{TCP}    proxy_protocol: v1\n");
    hold(&config, |talk| {
        let client = talk.intercepted(A);
        let upstream = talk.upstream();
        talk.says(client, "hi");
        talk.hears(upstream, "PROXY TCP4 192.0.2.7 203.0.113.1 40000 80\r\nhi");
    });
}

#[test]
fn a_cluster_that_gets_endpoints_closes_what_is_idle_to_elsewhere() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (client, to_a) = exchange(talk, A);
        let (_, to_b) = exchange(talk, B);
        let with_endpoints =
            CONFIG.replace("original_destination: true", "endpoints: ['127.0.0.1:9000']");
        talk.reconfigures(&with_endpoints);
        assert!(talk.is_closed(to_a) && talk.is_closed(to_b));
        talk.says(client, GET);
        let upstream = talk.upstream();
        goes_to(talk, upstream, "127.0.0.1:9000");
        talk.says(upstream, OK);
        talk.reconfigures(CONFIG);
        assert!(talk.is_closed(upstream));
        // The connection still knows.
        talk.heard(client);
        talk.says(client, GET);
        let upstream = talk.upstream();
        goes_to(talk, upstream, A);
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

/// A request to `address` over HTTP/2, and the upstream that has its stream.
fn ask_http2(talk: &mut Talk<'_>, address: &str) -> (Peer, Speaker) {
    let client = talk.intercepted(address);
    talk.says(client, GET);
    let upstream = Speaker::upstream(talk);
    goes_to(talk, upstream.peer, address);
    (client, upstream)
}

fn answer_http2(talk: &mut Talk<'_>, client: Peer, upstream: &mut Speaker, stream: u32) {
    upstream.answers(talk, stream, "HTTP/1.1 204 No Content\r\n\r\n", true);
    talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
}

#[test]
fn streams_of_http2_are_shared_by_those_who_go_the_same_way() {
    let config = format!("{CONFIG}    protocol: http2\n");
    hold(&config, |talk| {
        let (first, mut to_a) = ask_http2(talk, A);
        let (other, mut to_b) = ask_http2(talk, B);
        let second = talk.intercepted(A);
        talk.says(second, GET);
        assert!(!talk.is_connecting());
        assert_eq!(to_a.hears(talk).matches("GET").count(), 2);
        assert_eq!(to_b.hears(talk).matches("GET").count(), 1);
        answer_http2(talk, second, &mut to_a, 3);
        answer_http2(talk, first, &mut to_a, 1);
        answer_http2(talk, other, &mut to_b, 1);
    });
}

#[test]
fn streams_of_one_connection_go_one_way() {
    hold(CONFIG, |talk| {
        let peer = talk.intercepted(A);
        let limits = Limits::default();
        let mut client = Speaker::new(peer, Http2::client(&limits), limits);
        client.greet(talk);
        for _ in 0..2 {
            client.gets(talk, "/");
            let upstream = talk.upstream();
            goes_to(talk, upstream, A);
        }
    });
}

#[test]
fn a_shared_connection_makes_room_once_nobody_has_a_stream_on_it() {
    let config = format!("{CONFIG}    protocol: http2\n    connections_max: 1\n");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // The order of a queue belongs to its worker.
            return talk.leave_out();
        }
        let (first, mut to_a) = ask_http2(talk, A);
        let second = talk.intercepted(B);
        talk.says(second, GET);
        assert!(!talk.is_connecting() && !talk.is_closed(to_a.peer));
        to_a.hears(talk);
        answer_http2(talk, first, &mut to_a, 1);
        assert!(talk.is_closed(to_a.peer));
        let mut to_b = Speaker::upstream(talk);
        goes_to(talk, to_b.peer, B);
        to_b.hears(talk);
        answer_http2(talk, second, &mut to_b, 1);
    });
}

#[test]
fn chains_are_chosen_by_where_a_connection_was_going() {
    let config = "
listeners:
  - name: outbound
    address: 127.0.0.1:15001
    original_destination: redirect
    proxy_protocol: true
    protocol: tcp
    cluster: onward
    chains:
      - { name: db, match: { destination_ports: [5432] }, protocol: tcp, cluster: db }
clusters:
  - { name: onward, original_destination: true }
  - { name: db, endpoints: ['127.0.0.1:9000'] }
";
    hold(config, |talk| {
        for (original, claimed, way) in
            [("203.0.113.1:5432", 80, "127.0.0.1:9000"), ("203.0.113.1:80", 5432, "203.0.113.1:80")]
        {
            let client = talk.intercepted(original);
            talk.says(client, format!("PROXY TCP4 198.51.100.7 198.51.100.8 4000 {claimed}\r\n"));
            talk.says(client, "words of a client");
            let upstream = talk.upstream();
            goes_to(talk, upstream, way);
            talk.hears(upstream, "words of a client");
        }
    });
}

#[test]
fn an_address_that_processes_nothing_has_pauses_and_others_do_not_wait() {
    let config = format!("{CONFIG}    protocol: http2\n");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Another worker has not met the address yet.
            return talk.leave_out();
        }
        talk.keeps_counts();
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let client = talk.intercepted(A);
        talk.says(client, GET);
        for _ in 0..2 {
            let mut upstream = Speaker::upstream(talk);
            goes_to(talk, upstream.peer, A);
            upstream.hears(talk);
            talk.says(upstream.peer, goaway);
        }
        assert!(!talk.is_connecting(), "the second time costs a pause");
        assert_eq!(talk.counted("strait_upstream_pauses_total").get("onward"), Some(&1));
        let other = talk.intercepted(B);
        talk.says(other, GET);
        let mut upstream = Speaker::upstream(talk);
        goes_to(talk, upstream.peer, B);
        upstream.hears(talk);
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(other, "HTTP/1.1 204 No Content\r\n\r\n");
        assert!(!talk.is_connecting(), "another address ends no pause");
        talk.passes(Duration::from_millis(30));
        let mut upstream = Speaker::upstream(talk);
        goes_to(talk, upstream.peer, A);
        upstream.hears(talk);
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        // It answered: the next refusal is the first.
        talk.says(upstream.peer, goaway);
        talk.says(client, GET);
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        talk.says(upstream.peer, goaway);
        assert!(talk.is_connecting());
        talk.breaks(client);
    });
}
