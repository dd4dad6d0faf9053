//! Clients that are slow, and what others feel of them.

use std::time::Duration;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Manner, Peer, Talk, hold};

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
        talk.says(upstream, OK);
        talk.hears(quick, OK);
        talk.says(client, "lo");
        let heard = talk.heard(upstream);
        assert_eq!(heard, format!("{}hello", post(5)));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(busy, OK);
        talk.hears(other, OK);
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
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(busy, OK);
        talk.hears(other, OK);
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
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(busy, OK);
        talk.hears(other, OK);
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
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(busy, OK);
        talk.hears(other, OK);
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
        talk.says(busy, OK);
        talk.hears(other, OK);
        // Nothing more comes of it: its service may have to speak first.
        talk.passes(secs(2));
        let heard = talk.heard(busy);
        assert!(heard.ends_with("\r\n\r\nhello"), "{heard}");
        client.sends(talk, stream, b" world", true);
        talk.hears(busy, " world");
        talk.says(busy, OK);
        let told = client.hears(talk);
        assert!(told.ends_with("data ok END\n"), "{told}");
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
        talk.says(busy, OK);
        talk.hears(other, OK);
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
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(busy, OK);
        talk.hears(other, OK);
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
        if talk.manner() == Manner::ByteByByte {
            return;
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
