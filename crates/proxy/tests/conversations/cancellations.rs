//! Cancelled requests, and how many requests a client may begin at a time.

use wire::buffer::Buffer;
use wire::h1::{Scan, decode_request};
use wire::h2::{ErrorCode, RequestForm, Scheme};
use wire::head::HeadIndex;

use crate::frames::{HEAD, Speaker};
use crate::keep_alive::CONFIG;
use crate::kit::{Setting, Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// So many requests of a client of HTTP/2 in one go, each followed by its reset if that is so.
fn together(client: &mut Speaker, count: usize, is_cancelled: bool) -> Vec<u8> {
    let mut said = Vec::new();
    for place in 0..count {
        let text = format!("GET /{place} HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut index = HeadIndex::default();
        let decoded = decode_request(text.as_bytes(), &mut Scan::default(), &HEAD, &mut index);
        let (head, _) = decoded.unwrap().expect("a whole head");
        let mut out = Buffer::new(1 << 10);
        let codec = &mut client.codec;
        let stream = codec.send_request(&head, Scheme::Http, RequestForm::Same, true, &mut out);
        if is_cancelled {
            codec.reset(stream.expect("there is a slot"), ErrorCode::CANCEL);
            codec.send_control(&mut out);
        }
        said.extend_from_slice(out.filled());
    }
    said
}

fn is_whole(talk: &Talk<'_>) -> bool {
    talk.variant() != Variant::ByteByByte
}

#[test]
fn requests_that_are_cancelled_at_once_connect_to_nothing() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let said = together(&mut client, 20, true);
        talk.says(client.peer, said);
        if is_whole(talk) {
            assert!(!talk.is_connecting());
        } else {
            // Each was asked for in a turn before the one in which it was cancelled.
            let spare = talk.upstream();
            assert!(!talk.is_connecting(), "one is enough");
            talk.hears(spare, "");
        }
        assert!(!talk.is_closed(client.peer));
    });
}

#[test]
fn requests_that_are_cancelled_at_once_leave_a_kept_connection_as_it_was() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        client.gets(talk, "/");
        let kept = talk.upstream();
        talk.says(kept, OK);
        talk.heard(kept);
        client.hears(talk);
        if !is_whole(talk) {
            // It is sent before its reset comes.
            return;
        }
        let said = together(&mut client, 20, true);
        talk.says(client.peer, said);
        talk.hears(kept, "");
        assert!(!talk.is_closed(kept) && !talk.is_connecting());
        client.gets(talk, "/next");
        talk.hears_about(kept, "GET /next HTTP/1.1\r\n", &[]);
        talk.says(kept, OK);
        assert!(client.hears(talk).contains("data ok END"));
    });
}

#[test]
fn a_connection_under_way_goes_to_the_next_request() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        for _ in 0..5 {
            let stream = client.gets(talk, "/cancelled");
            talk.connecting();
            client.resets(talk, stream, ErrorCode::CANCEL);
        }
        let stream = client.gets(talk, "/wanted");
        let upstream = talk.upstream();
        assert!(!talk.is_connecting(), "all of them asked for the same connection");
        talk.hears_about(upstream, "GET /wanted HTTP/1.1\r\n", &[]);
        talk.says(upstream, OK);
        assert_eq!(
            client.hears(talk),
            format!("{stream}: 200; content-length: 2\n{stream}: data ok END\n")
        );
    });
}

#[test]
fn a_connection_that_nobody_waits_for_any_more_goes_to_the_pool() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.gets(talk, "/cancelled");
        let upstream = talk.connecting();
        client.resets(talk, stream, ErrorCode::CANCEL);
        talk.establish(upstream);
        talk.hears(upstream, "");
        assert!(!talk.is_closed(upstream));
        client.gets(talk, "/wanted");
        assert!(!talk.is_connecting());
        talk.hears_about(upstream, "GET /wanted HTTP/1.1\r\n", &[]);
        // It is one request's now, and no other's beside it.
        client.gets(talk, "/also");
        let other = talk.upstream();
        talk.hears(upstream, "");
        talk.hears_about(other, "GET /also HTTP/1.1\r\n", &[]);
    });
}

#[test]
fn a_connection_that_nobody_waits_for_any_more_may_fail() {
    hold(CONFIG, |talk| {
        for is_refused in [true, false] {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.connecting();
            talk.breaks(client);
            assert!(!talk.is_closed(upstream));
            if is_refused {
                talk.refuse(upstream);
            } else {
                talk.passes(std::time::Duration::from_secs(60));
            }
            assert!(talk.is_closed(upstream));
            assert_eq!(talk.proxy().load().connections, 0);
        }
    });
}

#[test]
fn who_waits_for_a_connection_gets_the_one_under_way() {
    let config = format!("{CONFIG}    connections_max: 1\n");
    hold(&config, |talk| {
        let first = talk.client();
        talk.says(first, "GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.connecting();
        let second = talk.client();
        talk.says(second, "GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.breaks(first);
        talk.establish(upstream);
        assert!(!talk.is_connecting());
        talk.hears(upstream, "GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

/// The end of this stream, and behind it in the same bytes a request for `/0`.
fn reset_and_request(client: &mut Speaker, stream: u32) -> Vec<u8> {
    let mut out = Buffer::new(1 << 10);
    client.codec.reset(stream, ErrorCode::CANCEL);
    client.codec.send_control(&mut out);
    [out.filled(), &together(client, 1, false)].concat()
}

#[test]
fn a_request_that_comes_with_a_cancellation_does_not_overtake_one_that_waits() {
    let config = format!("{CONFIG}    connections_max: 1\n");
    for is_established in [true, false] {
        hold(&config, |talk| {
            if talk.variant() == Variant::Moving {
                // The order of a queue belongs to its worker.
                return talk.leave_out();
            }
            let mut client = Speaker::client(talk);
            let cancelled = client.gets(talk, "/cancelled");
            let mut upstream = talk.connecting();
            if is_established {
                talk.establish(upstream);
                talk.heard(upstream);
            }
            let other = talk.client();
            talk.says(other, "GET /waits HTTP/1.1\r\nHost: x\r\n\r\n");
            let said = reset_and_request(&mut client, cancelled);
            talk.says(client.peer, said);
            assert_eq!(talk.is_closed(upstream), is_established);
            if is_established {
                upstream = talk.connecting();
            }
            talk.establish(upstream);
            talk.hears_about(upstream, "GET /waits HTTP/1.1\r\n", &[]);
            talk.says(upstream, OK);
            talk.hears(other, OK);
            talk.hears_about(upstream, "GET /0 HTTP/1.1\r\n", &[]);
            talk.says(upstream, OK);
            assert!(client.hears(talk).contains("data ok END"));
        });
    }
}

#[test]
fn a_connection_that_begins_with_a_clients_address_is_for_nobody_else() {
    let config = format!("{CONFIG}    proxy_protocol: v1\n");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.connecting();
        talk.breaks(client);
        assert!(talk.is_closed(upstream));
    });
}

#[test]
fn connections_that_nobody_waits_for_are_bounded() {
    hold(CONFIG, |talk| {
        let clients: Vec<_> = (0..200).map(|_| talk.client()).collect();
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        for client in &clients {
            talk.says(*client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        assert_eq!(talk.proxy().load().connections, 400);
        for client in &clients {
            talk.breaks(*client);
        }
        assert_eq!(talk.proxy().load().connections, 128);
    });
}

#[test]
fn requests_on_all_streams_of_a_client_begin_in_one_turn() {
    let config = "
listeners: [{ name: web, address: 127.0.0.1:8080, routes: site, http: { forwarded: off, request_id: false } }]
routes: [{ name: site, hosts: ['*'], rules: [{ match: { prefix: / }, respond: { status: 204 } }] }]
";
    let setting = Setting::of(config);
    for variant in [Variant::Plain, Variant::Moving] {
        let talk = &mut Talk::new(&setting, variant);
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let said = together(&mut client, 100, false);
        talk.is_one_turn(true);
        talk.says(client.peer, said);
        let received = client.hears(talk).lines().count();
        assert_eq!(received, 100);
        talk.is_one_turn(false);
        talk.assert_at_rest();
    }
}

#[test]
fn requests_that_are_cancelled_count_twice_in_a_turn() {
    for (cancelled, is_answered) in [(60, true), (70, false)] {
        let setting = Setting::of(CONFIG);
        let talk = &mut Talk::new(&setting, Variant::Plain);
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let mut said = together(&mut client, cancelled, true);
        said.extend(together(&mut client, 1, false));
        talk.is_one_turn(true);
        talk.says(client.peer, said);
        assert_eq!(talk.proxy().load().exchanges == 1, is_answered, "behind {cancelled}");
        talk.is_one_turn(false);
        assert_eq!(talk.proxy().load().exchanges, 1);
    }
}

#[test]
fn the_end_of_a_client_waits_behind_the_requests_that_came_with_it() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3));
        talk.ends(client);
        let upstream = talk.upstream();
        for _ in 0..3 {
            talk.is_one_turn(true);
            talk.says(upstream, OK);
            talk.is_one_turn(false);
        }
        talk.hears(client, &OK.repeat(3));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn requests_that_come_together_on_http1_begin_in_a_turn_each() {
    let config = "
listeners: [{ name: web, address: 127.0.0.1:8080, routes: site, http: { forwarded: off, request_id: false } }]
routes: [{ name: site, hosts: ['*'], rules: [{ match: { prefix: / }, respond: { status: 204 } }] }]
";
    let setting = Setting::of(config);
    for variant in [Variant::Plain, Variant::Moving] {
        let talk = &mut Talk::new(&setting, variant);
        let client = talk.client();
        talk.is_one_turn(true);
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10));
        let received = talk.heard(client).matches("HTTP/1.1 204").count();
        assert!(variant == Variant::Moving || received == 1, "{received} in one turn");
        talk.is_one_turn(false);
        let received = received + talk.heard(client).matches("HTTP/1.1 204").count();
        assert_eq!(received, 10);
        assert!(!talk.is_closed(client));
        talk.assert_at_rest();
    }
}
