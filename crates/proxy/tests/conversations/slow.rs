//! Clients that are slow, and what others feel of them.

use std::time::Duration;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A cluster of so many connections.
fn with_connections(connections_max: u32) -> String {
    format!("{CONFIG}    connections_max: {connections_max}\n")
}

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
}

/// An exchange that has one of the connections.
fn holds_one(talk: &mut Talk<'_>) -> (Peer, Peer) {
    let client = talk.client();
    talk.says(client, GET);
    let upstream = talk.upstream();
    talk.hears(upstream, GET);
    (client, upstream)
}

/// The service answers, and the client has its answer.
pub(crate) fn serves(talk: &mut Talk<'_>, upstream: Peer, client: Peer) {
    talk.says(upstream, OK);
    talk.hears(client, OK);
}

// Bodies that wait here.

#[test]
fn a_body_has_to_be_here_before_it_takes_one_of_the_last_connections() {
    hold(&with_connections(2), |talk| {
        let (other, busy) = holds_one(talk);
        let client = talk.client();
        talk.says(client, format!("{}hel", post(5)));
        assert!(!talk.is_connecting(), "half of the connections are in use");
        // Others need not wait for it.
        let (quick, upstream) = holds_one(talk);
        serves(talk, upstream, quick);
        talk.says(client, "lo");
        let heard = talk.heard(upstream);
        assert_eq!(heard, format!("{}hello", post(5)));
        serves(talk, upstream, client);
        serves(talk, busy, other);
    });
}

#[test]
fn a_body_goes_on_as_it_comes_while_more_than_half_of_the_connections_are_free() {
    hold(&with_connections(4), |talk| {
        let (other, busy) = holds_one(talk);
        let client = talk.client();
        talk.says(client, format!("{}hel", post(5)));
        let upstream = talk.upstream();
        talk.hears(upstream, &format!("{}hel", post(5)));
        talk.says(client, "lo");
        talk.hears(upstream, "lo");
        serves(talk, upstream, client);
        serves(talk, busy, other);
    });
}

#[test]
fn a_long_body_waits_for_as_much_of_it_as_the_listener_says() {
    let config = with_connections(2).replace("request_id", "request_buffer: 64B, request_id");
    hold(&config, |talk| {
        let (other, busy) = holds_one(talk);
        let client = talk.client();
        talk.says(client, format!("{}{}", post(100), "a".repeat(63)));
        assert!(!talk.is_connecting());
        talk.says(client, "b");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert_eq!(heard, format!("{}{}b", post(100), "a".repeat(63)));
        talk.says(client, "c".repeat(36));
        talk.hears(upstream, &"c".repeat(36));
        serves(talk, upstream, client);
        serves(talk, busy, other);
    });
}

#[test]
fn chunks_and_trailers_that_waited_arrive_as_they_were() {
    hold(&with_connections(2), |talk| {
        let (other, busy) = holds_one(talk);
        let client = talk.client();
        talk.says(
            client,
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        );
        assert!(!talk.is_connecting());
        talk.says(client, "0\r\nX-Sum: 1\r\n\r\n");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(heard.ends_with("0\r\nX-Sum: 1\r\n\r\n"), "{heard}");
        serves(talk, upstream, client);
        serves(talk, busy, other);
    });
}

#[test]
fn a_body_on_a_stream_waits_too_and_goes_on_when_connections_are_free_again() {
    hold(&with_connections(2), |talk| {
        let (other, busy) = holds_one(talk);
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, &post(11), false);
        client.sends(talk, stream, b"hello", false);
        assert!(!talk.is_connecting());
        serves(talk, busy, other);
        // Nothing more comes of it: its service may have to speak first.
        talk.passes(secs(2));
        let heard = talk.heard(busy);
        assert!(heard.ends_with("\r\n\r\nhello"), "{heard}");
        client.sends(talk, stream, b" world", true);
        talk.hears(busy, " world");
        talk.says(busy, OK);
        let received = client.hears(talk);
        assert!(received.ends_with("data ok END\n"), "{received}");
    });
}

#[test]
fn a_body_that_waits_and_stops_coming_is_a_timeout_that_costs_no_connection() {
    hold(&with_connections(2), |talk| {
        let (other, busy) = holds_one(talk);
        let client = talk.client();
        talk.says(client, format!("{}hel", post(5)));
        talk.passes(secs(29));
        talk.hears(client, "");
        talk.passes(secs(2));
        let start = "HTTP/1.1 408 Request Timeout\r\n";
        talk.hears_about(client, start, &["connection: close\r\n", ": request_body_timeout\n"]);
        assert!(!talk.is_connecting());
        serves(talk, busy, other);
    });
}

#[test]
fn who_waits_for_leave_to_send_the_body_asks_the_upstream() {
    hold(&with_connections(2), |talk| {
        let (other, busy) = holds_one(talk);
        let client = talk.client();
        talk.says(
            client,
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        );
        let upstream = talk.upstream();
        assert!(talk.heard(upstream).contains("100-continue"));
        talk.says(upstream, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.heard(client);
        talk.says(client, "hi");
        serves(talk, upstream, client);
        serves(talk, busy, other);
    });
}

// Least rates.

/// 10 bytes a second, and 3 s of silence.
fn with_rates() -> String {
    let rates = "request_rate_min: 10B, response_rate_min: 10B, request_id: false }
    timeouts: { request_body: 3s, response_write: 3s ";
    CONFIG.replace("request_id: false", rates)
}

#[test]
fn a_body_below_the_least_rate_is_ended_and_one_at_it_is_not() {
    hold(&with_rates(), |talk| {
        for (bytes, is_ended) in [(5, true), (10, false)] {
            let client = talk.client();
            talk.says(client, post(1_000_000));
            let upstream = talk.upstream();
            let mut seconds = 0;
            while seconds < 20 && !talk.is_closed(upstream) {
                talk.passes(secs(1));
                talk.says(client, "a".repeat(bytes));
                seconds += 1;
            }
            assert_eq!(talk.is_closed(upstream), is_ended, "{bytes} bytes a second");
            if is_ended {
                // 3 s, and what 5 bytes a second earn meanwhile.
                assert!((5..8).contains(&seconds), "{seconds} s");
                let start = "HTTP/1.1 408 Request Timeout\r\n";
                talk.hears_about(client, start, &[": request_too_slow\n"]);
            }
        }
        assert!(talk.log().contains("request_too_slow"));
    });
}

#[test]
fn a_response_below_the_least_rate_is_ended_and_one_at_it_is_not() {
    hold(&with_rates(), |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        for (bytes, is_ended) in [(5, true), (10, false)] {
            let client = talk.client();
            talk.takes(client, 100);
            talk.says(client, GET);
            let upstream = talk.upstream();
            talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            talk.says(upstream, "a".repeat(200_000));
            let mut seconds = 0;
            while seconds < 20 && !talk.is_closed(client) {
                talk.passes(secs(1));
                talk.heard(client);
                talk.takes(client, bytes);
                seconds += 1;
            }
            assert_eq!(talk.is_closed(client), is_ended, "{bytes} bytes a second");
            if is_ended {
                assert!((5..8).contains(&seconds), "{seconds} s");
            }
        }
        assert!(talk.log().contains("response_too_slow"));
    });
}

#[test]
fn a_call_of_grpc_may_be_as_slow_as_it_likes() {
    let config = crate::http2::TO_HTTP2;
    hold(config, |talk| {
        let mut client = Speaker::client(talk);
        let head = "POST /s.S/M HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nTE: trailers\r\nConnection: te\r\n\r\n";
        let stream = client.asks(talk, head, false);
        let mut upstream = Speaker::upstream(talk);
        for _ in 0..5 {
            talk.passes(secs(25));
            client.sends(talk, stream, b"\0\0\0\0\x01a", false);
            upstream.hears(talk);
        }
        assert!(!talk.log().contains("slow"));
    });
}

// Clients that have too much.

#[test]
fn a_client_has_no_more_connections_than_it_may() {
    let config =
        CONFIG.replace("    routes: all", "    connections_per_client_max: 2\n    routes: all");
    hold(&config, |talk| {
        talk.comes_from("192.0.2.7");
        let first = talk.client();
        let second = talk.client();
        assert!(talk.try_client().is_none());
        talk.comes_from("192.0.2.8");
        let other = talk.client();
        talk.comes_from("192.0.2.7");
        talk.breaks(first);
        let third = talk.client();
        for client in [second, other, third] {
            talk.says(client, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
        }
    });
}

#[test]
fn behind_a_trusted_proxy_connections_are_not_the_clients() {
    let config = CONFIG
        .replace("    routes: all", "    connections_per_client_max: 1\n    routes: all")
        .replace("request_id", "trusted_hops: 1, request_id");
    hold(&config, |talk| {
        let (one, two) = (talk.client(), talk.client());
        assert!(!talk.is_closed(one) && !talk.is_closed(two));
    });
}

#[test]
fn a_proxy_header_names_the_client_whose_connections_are_counted() {
    let config = CONFIG.replace(
        "    routes: all",
        "    connections_per_client_max: 1\n    proxy_protocol: true\n    routes: all",
    );
    hold(&config, |talk| {
        let header = |client: &str| format!("PROXY TCP4 {client} 198.51.100.1 4000 80\r\n");
        let (one, two, three) = (talk.client(), talk.client(), talk.client());
        talk.says(one, header("203.0.113.1"));
        talk.says(two, header("203.0.113.1"));
        talk.says(three, header("203.0.113.2"));
        assert!(!talk.is_closed(one) && talk.is_closed(two) && !talk.is_closed(three));
    });
}

#[test]
fn a_client_has_no_more_exchanges_than_it_may() {
    let config =
        CONFIG.replace("    routes: all", "    exchanges_per_client_max: 1\n    routes: all");
    hold(&config, |talk| {
        let (client, upstream) = holds_one(talk);
        let second = talk.client();
        talk.says(second, GET);
        let start = "HTTP/1.1 429 Too Many Requests\r\n";
        talk.hears_about(second, start, &[": client_exchanges_overflow\n"]);
        talk.comes_from("192.0.2.8");
        let (other, its) = holds_one(talk);
        serves(talk, its, other);
        serves(talk, upstream, client);
        talk.says(second, GET);
        assert!(talk.heard(upstream) == GET || talk.heard(its) == GET, "there is room again");
    });
}

/// The same twice, at addresses of their own.
fn of_two_listeners(option: &str) -> String {
    let listener = CONFIG.lines().skip(2).take_while(|line| line.starts_with(' '));
    let listener: String = listener.map(|line| format!("{line}\n")).collect();
    let bounded = listener.replace("    routes: all", &format!("    {option}\n    routes: all"));
    assert_ne!(bounded, listener);
    let other = bounded.replace("name: edge", "name: other").replace(":8080", ":8081");
    let config = CONFIG.replace(&listener, &format!("{bounded}{other}"));
    assert!(config.contains("name: other") && config.contains(":8081"), "{config}");
    config
}

#[test]
fn connections_of_a_client_at_another_listener_are_not_counted() {
    hold(&of_two_listeners("connections_per_client_max: 2"), |talk| {
        let elsewhere = [talk.client_of(1), talk.client_of(1)];
        let here = [talk.client(), talk.client()];
        assert!(talk.try_client().is_none());
        talk.breaks(here[0]);
        let again = talk.client();
        talk.breaks(elsewhere[0]);
        assert!(talk.try_client().is_none(), "room at the other listener is none here");
        for client in [here[1], again, elsewhere[1]] {
            assert!(!talk.is_closed(client));
        }
    });
}

#[test]
fn exchanges_of_a_client_at_another_listener_are_not_counted() {
    hold(&of_two_listeners("exchanges_per_client_max: 1"), |talk| {
        let elsewhere = talk.client_of(1);
        talk.says(elsewhere, GET);
        let its = talk.upstream();
        talk.hears(its, GET);
        let (client, upstream) = holds_one(talk);
        for listener in [0, 1] {
            let second = talk.client_of(listener);
            talk.says(second, GET);
            let start = "HTTP/1.1 429 Too Many Requests\r\n";
            talk.hears_about(second, start, &[": client_exchanges_overflow\n"]);
        }
        serves(talk, its, elsewhere);
        serves(talk, upstream, client);
    });
}

#[test]
fn exchanges_are_counted_for_the_client_that_a_trusted_hop_names() {
    let config = CONFIG
        .replace("    routes: all", "    exchanges_per_client_max: 1\n    routes: all")
        .replace("request_id", "trusted_hops: 1, request_id");
    hold(&config, |talk| {
        let get = |client: &str| {
            format!("GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {client}\r\n\r\n")
        };
        let (one, two, three) = (talk.client(), talk.client(), talk.client());
        talk.says(one, get("203.0.113.1"));
        talk.upstream();
        talk.says(two, get("203.0.113.2"));
        talk.upstream();
        talk.says(three, get("203.0.113.1"));
        talk.hears_about(three, "HTTP/1.1 429 Too Many Requests\r\n", &[]);
    });
}

// Stalled exchanges give way.

/// A client that holds a connection with a body that does not come.
fn stalls(talk: &mut Talk<'_>) -> (Peer, Peer) {
    let client = talk.client();
    talk.says(client, format!("{}{}", post(50_000), "a".repeat(100)));
    let upstream = talk.upstream();
    talk.heard(upstream);
    (client, upstream)
}

fn without_buffer(connections_max: u32) -> String {
    with_connections(connections_max).replace("request_id", "request_buffer: 0, request_id")
}

#[test]
fn a_client_that_holds_more_than_its_share_and_stalls_gives_way_to_another_at_once() {
    hold(&without_buffer(2), |talk| {
        let (one, its) = stalls(talk);
        let (two, other) = stalls(talk);
        talk.passes(Duration::from_millis(200));
        talk.comes_from("192.0.2.8");
        let client = talk.client();
        talk.says(client, GET);
        // The one that has stalled longest.
        assert!(talk.is_closed(its) && !talk.is_closed(other));
        let start = "HTTP/1.1 408 Request Timeout\r\n";
        talk.hears_about(one, start, &["connection: close\r\n", ": stalled\n"]);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        serves(talk, upstream, client);
        talk.hears(two, "");
        assert!(talk.log().contains("and others wait"));
    });
}

#[test]
fn a_client_whose_body_comes_does_not_give_way() {
    hold(&without_buffer(2), |talk| {
        let (one, its) = stalls(talk);
        let (two, other) = stalls(talk);
        talk.passes(Duration::from_millis(90));
        talk.says(one, "a".repeat(100));
        talk.passes(Duration::from_millis(90));
        talk.comes_from("192.0.2.8");
        let client = talk.client();
        talk.says(client, GET);
        assert!(!talk.is_closed(its) && talk.is_closed(other), "the first went on");
        talk.heard(two);
        let upstream = talk.upstream();
        serves(talk, upstream, client);
    });
}

#[test]
fn who_stalls_within_its_share_gives_way_after_the_timeout_only() {
    let config = format!("{}    timeouts: {{ stall: 2s }}\n", without_buffer(1));
    hold(&config, |talk| {
        let (slow, its) = stalls(talk);
        // Of the same client, which has no more than itself.
        let client = talk.client();
        talk.says(client, GET);
        talk.passes(Duration::from_millis(1_900));
        assert!(!talk.is_closed(its));
        talk.passes(Duration::from_millis(200));
        assert!(talk.is_closed(its));
        talk.hears_about(slow, "HTTP/1.1 408 Request Timeout\r\n", &[": stalled\n"]);
        let upstream = talk.upstream();
        serves(talk, upstream, client);
    });
}

#[test]
fn nobody_gives_way_to_a_client_that_holds_more() {
    let config = format!("{}    timeouts: {{ stall: 2s }}\n", without_buffer(3));
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // One alone in a fresh worker has nothing yet.
            return talk.leave_out();
        }
        talk.comes_from("192.0.2.8");
        let (_, its) = stalls(talk);
        talk.comes_from("192.0.2.7");
        holds_one(talk);
        holds_one(talk);
        let client = talk.client();
        talk.says(client, GET);
        talk.passes(secs(4));
        assert!(!talk.is_closed(its));
        talk.hears(client, "");
        talk.passes(secs(2));
        talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[": pending_timeout\n"]);
    });
}

#[test]
fn a_client_that_does_not_take_its_response_gives_way() {
    hold(&with_connections(1), |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let slow = talk.client();
        talk.takes(slow, 100);
        talk.says(slow, GET);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        talk.says(upstream, "a".repeat(200_000));
        talk.passes(Duration::from_millis(200));
        talk.comes_from("192.0.2.8");
        let client = talk.client();
        talk.says(client, GET);
        assert!(talk.is_closed(upstream) && talk.is_closed(slow));
        let upstream = talk.upstream();
        serves(talk, upstream, client);
        assert!(talk.log().contains("and others wait"));
    });
}

#[test]
fn a_stream_with_a_shut_window_gives_way_and_its_connection_goes_on() {
    hold(&with_connections(1), |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let mut slow = Speaker::client(talk);
        slow.takes = false;
        let stream = slow.gets(talk, "/large");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        talk.says(upstream, "a".repeat(200_000));
        talk.passes(Duration::from_millis(200));
        talk.comes_from("192.0.2.8");
        let client = talk.client();
        talk.says(client, GET);
        assert!(talk.is_closed(upstream));
        let received = slow.hears(talk);
        assert!(received.contains(&format!("{stream}: reset")), "{received}");
        assert!(!talk.is_closed(slow.peer));
        let upstream = talk.upstream();
        serves(talk, upstream, client);
    });
}

#[test]
fn a_service_that_is_slow_is_not_its_clients_fault() {
    let config = format!("{}    timeouts: {{ stall: 1s }}\n", with_connections(1));
    hold(&config, |talk| {
        let (slow, its) = holds_one(talk);
        talk.comes_from("192.0.2.8");
        let client = talk.client();
        talk.says(client, GET);
        talk.passes(secs(4));
        assert!(!talk.is_closed(its));
        serves(talk, its, slow);
        talk.hears(its, GET);
        serves(talk, its, client);
    });
}

#[test]
fn the_queue_is_shared_by_client() {
    let config = format!("{}    pending_max: 3\n", with_connections(1));
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // The order of a queue belongs to its worker.
            return talk.leave_out();
        }
        let (first, upstream) = holds_one(talk);
        let crowd: Vec<_> = (0..3).map(|_| talk.client()).collect();
        for client in &crowd {
            talk.says(*client, "GET /crowd HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        talk.comes_from("192.0.2.8");
        let other = talk.client();
        talk.says(other, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n");
        // The newest of the client that has the most makes room for it.
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        talk.hears_about(crowd[2], start, &[": pending_overflow\n"]);
        serves(talk, upstream, first);
        for (client, start) in
            [(crowd[0], "GET /crowd "), (other, "GET /other "), (crowd[1], "GET /crowd ")]
        {
            assert!(talk.heard(upstream).starts_with(start), "clients take turns");
            serves(talk, upstream, client);
        }
    });
}

// A client that gave way does not get its connection back at once.

/// A client that holds all `connections` of a cluster, asks for one more, and gave way to another
/// client, whose request was answered. Returns the attacker's further request and the connection
/// that is free now.
fn gave_way(talk: &mut Talk<'_>, connections: usize) -> (Peer, Peer) {
    for _ in 0..connections {
        stalls(talk);
    }
    let next = talk.client();
    talk.says(next, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    talk.passes(Duration::from_millis(200));
    talk.comes_from("192.0.2.8");
    let client = talk.client();
    talk.says(client, GET);
    let upstream = talk.upstream();
    talk.hears(upstream, GET);
    serves(talk, upstream, client);
    (next, upstream)
}

#[test]
fn a_client_that_gave_way_waits_for_the_connection_while_others_need_it() {
    let config = format!("{}    timeouts: {{ pending: 10s }}\n", without_buffer(4));
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // A reserve belongs to its worker.
            return talk.leave_out();
        }
        let (next, upstream) = gave_way(talk, 4);
        talk.hears(upstream, "");
        let client = talk.client();
        // Once in 900 ms, for longer than a period.
        for _ in 0..4 {
            talk.passes(Duration::from_millis(900));
            talk.says(client, GET);
            talk.hears(upstream, GET);
            serves(talk, upstream, client);
        }
        talk.hears(next, "");
        // No other needs it any more: not in what is left of this period, and not in the next one.
        talk.passes(Duration::from_millis(2_400));
        talk.hears(upstream, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
        serves(talk, upstream, next);
    });
}

#[test]
fn a_new_request_of_a_client_that_gave_way_waits_too_and_times_out_as_others_do() {
    let config = format!("{}    timeouts: {{ pending: 700ms }}\n", without_buffer(2));
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (_, upstream) = gave_way(talk, 2);
        talk.comes_from("192.0.2.7");
        let late = talk.client();
        talk.says(late, GET);
        talk.hears(upstream, "");
        talk.passes(Duration::from_millis(800));
        talk.hears_about(late, "HTTP/1.1 503 Service Unavailable\r\n", &[": pending_timeout\n"]);
        talk.hears(upstream, "");
    });
}

#[test]
fn a_client_that_gave_way_gets_what_is_free_beside_what_it_gave() {
    hold(&without_buffer(4), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (other, its) = holds_one(talk);
        let (_, free) = gave_way(talk, 3);
        // One more becomes free than one that gave way.
        serves(talk, its, other);
        let heard = [its, free].map(|upstream| talk.heard(upstream));
        assert!(heard.iter().any(|heard| heard.starts_with("GET /next ")), "{heard:?}");
        assert!(heard.iter().any(String::is_empty), "{heard:?}");
    });
}

#[test]
fn a_client_for_which_others_give_way_is_not_kept_waiting_by_it() {
    hold(&without_buffer(16), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (_, upstream) = gave_way(talk, 16);
        let client = talk.client();
        talk.says(client, GET);
        talk.hears(upstream, GET);
        // Far more than an eighth of the cluster.
        for _ in 0..5 {
            holds_one(talk);
        }
    });
}

#[test]
fn a_client_alone_never_waits_for_what_is_reserved() {
    let config = format!("{}    timeouts: {{ stall: 2s }}\n", without_buffer(2));
    hold(&config, |talk| {
        // As behind a load balancer: its exchanges give way to its own.
        let (_, its) = stalls(talk);
        stalls(talk);
        talk.passes(secs(3));
        let (client, upstream) = holds_one(talk);
        assert!(talk.is_closed(its));
        for _ in 0..3 {
            serves(talk, upstream, client);
            talk.says(client, GET);
            talk.hears(upstream, GET);
        }
    });
}
