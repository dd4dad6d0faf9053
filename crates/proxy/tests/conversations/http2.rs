//! HTTP/2, on either side and in any pairing.

use std::cell::Cell;
use std::time::Duration;

use wire::h2::{ErrorCode, Limits, RequestForm};

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Variant, hold};

/// A cluster that speaks HTTP/2.
pub(crate) const TO_HTTP2: &str = "
listeners: [{ name: web, address: 127.0.0.1:8080, routes: site, http: { forwarded: off, request_id: false } }]
routes: [{ name: site, hosts: ['*'], rules: [{ match: { prefix: / }, cluster: app, upgrades: [websocket] }] }]
clusters: [{ name: app, protocol: http2, endpoints: ['127.0.0.1:9000', '127.0.0.1:9001'], connections_max: 2 }]
";

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The same, with one endpoint.
pub(crate) fn to_one() -> String {
    TO_HTTP2.replace(", '127.0.0.1:9001'", "").replace("max: 2", "max: 1")
}

#[test]
fn streams_reach_a_service_of_http1_and_are_answered_in_any_order() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let first = client.gets(talk, "/first");
        let one = talk.upstream();
        let second = client.gets(talk, "/second");
        let two = talk.upstream();
        talk.hears_about(one, "GET /first HTTP/1.1\r\nhost: x\r\n", &[]);
        talk.hears_about(two, "GET /second HTTP/1.1\r\nhost: x\r\n", &[]);
        talk.says(two, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld");
        assert_eq!(
            client.hears(talk),
            format!("{second}: 200; content-length: 5\n{second}: data world END\n")
        );
        talk.says(one, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(
            client.hears(talk),
            format!("{first}: 200; content-length: 5\n{first}: data hello END\n")
        );
        assert!(!talk.is_closed(client.peer) && !talk.is_closed(one) && !talk.is_closed(two));
    });
}

#[test]
fn a_body_and_its_trailers_go_both_ways() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, "POST / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        let upstream = talk.upstream();
        client.sends(talk, stream, b"hello", false);
        client.ends_with(talk, stream, "x-sum: 1\r\n");
        let heard = talk.heard(upstream);
        assert!(heard.contains("transfer-encoding: chunked\r\n"), "{heard}");
        assert!(heard.ends_with("0\r\nx-sum: 1\r\n\r\n"), "{heard}");
        talk.says(
            upstream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 2\r\n\r\n",
        );
        let received = client.hears(talk);
        let body = format!("{stream}: 200\n{stream}: data abc\n{stream}: trailers x-t: 2; END\n");
        assert_eq!(received, body);
    });
}

#[test]
fn clients_of_http1_share_a_connection_of_http2() {
    hold(TO_HTTP2, |talk| {
        let (one, two) = (talk.client(), talk.client());
        talk.says(one, "GET /one HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut upstream = Speaker::upstream(talk);
        talk.says(two, "GET /two HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut other = Speaker::upstream(talk);
        let three = talk.client();
        talk.says(three, "POST /three HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
        let received = format!("{}{}", upstream.hears(talk), other.hears(talk));
        assert!(received.contains("1: GET /one; host: x END\n"), "{received}");
        assert!(received.contains("1: GET /two; host: x END\n"), "{received}");
        assert!(
            received.contains("3: POST /three; host: x; content-length: 2\n3: data hi END"),
            "{received}"
        );
        assert!(!talk.is_connecting(), "two connections are enough");
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false);
        upstream.sends(talk, 1, b"ok", true);
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        talk.hears(one, answer);
        assert!(!talk.is_closed(one) && !talk.is_closed(upstream.peer));
    });
}

#[test]
fn trailers_pass_from_stream_to_stream() {
    hold(TO_HTTP2, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(
            talk,
            "POST /s HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: te\r\n\r\n",
            false,
        );
        let mut upstream = Speaker::upstream(talk);
        client.sends(talk, stream, b"ask", true);
        let received = upstream.hears(talk);
        assert_eq!(received, "1: POST /s; te: trailers; host: x\n1: data ask END\n");
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        assert_eq!(client.hears(talk), format!("{stream}: 200\n"));
        upstream.sends(talk, 1, b"answer", false);
        upstream.ends_with(talk, 1, "grpc-status: 0\r\n");
        let received = client.hears(talk);
        assert_eq!(
            received,
            format!("{stream}: data answer\n{stream}: trailers grpc-status: 0; END\n")
        );
        assert!(talk.log().contains("\"status\":200"));
    });
}

#[test]
fn a_slow_stream_holds_up_its_service_and_nothing_else() {
    const PIECE: &[u8] = &[b'x'; 16 << 10];
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let mut client = Speaker::client(talk);
        client.takes = false;
        let slow = client.gets(talk, "/slow");
        let one = talk.upstream();
        talk.says(one, format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 100 * PIECE.len()));
        for _ in 0..100 {
            talk.says(one, PIECE);
        }
        assert!(talk.unread(one) > 50 * PIECE.len(), "{} wait", talk.unread(one));
        let received = client.hears(talk);
        assert!(received.len() < 5 * PIECE.len(), "no more than a window");
        // The window of the connection has room for others.
        let quick = client.gets(talk, "/quick");
        let two = talk.upstream();
        talk.says(two, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nquick");
        let received = client.hears(talk);
        assert!(received.contains(&format!("{quick}: data quick END")), "{}", received.len());
        client.takes = true;
        client.does(talk, |codec| codec.on_taken(slow, 1 << 20));
        let mut bytes = 0;
        loop {
            let received = client.hears(talk);
            if received.is_empty() {
                break;
            }
            bytes += received.bytes().filter(|byte| *byte == b'x').count();
        }
        assert!(bytes > 90 * PIECE.len(), "{bytes}");
        assert_eq!(talk.unread(one), 0);
    });
}

#[test]
fn a_service_that_takes_nothing_stops_its_stream_and_nothing_else() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let mut client = Speaker::client(talk);
        let slow = client.asks(talk, "PUT /slow HTTP/1.1\r\nHost: x\r\n\r\n", false);
        let one = talk.upstream();
        talk.takes(one, 0);
        let mut sent = 0;
        while client.codec.sendable(slow) > 0 && sent < 10 << 20 {
            let n = client.codec.sendable(slow);
            client.sends(talk, slow, &vec![b'y'; n], false);
            sent += n;
            client.hears(talk);
        }
        assert!(sent < 1 << 20, "it was stopped: {sent}");
        let quick = client.gets(talk, "/quick");
        let two = talk.upstream();
        talk.says(two, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nquick");
        assert!(client.hears(talk).contains(&format!("{quick}: data quick END")));
        talk.takes(one, usize::MAX);
        client.hears(talk);
        assert!(client.codec.sendable(slow) > 0, "it goes on");
        client.sends(talk, slow, b"end", true);
        let heard = talk.heard(one);
        assert_eq!(heard.bytes().filter(|byte| *byte == b'y').count(), sent);
        assert!(heard.ends_with("3\r\nend\r\n0\r\n\r\n"));
    });
}

#[test]
fn a_client_that_loses_interest_takes_its_request_back() {
    hold(&to_one(), |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.gets(talk, "/a");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        client.resets(talk, stream, ErrorCode::CANCEL);
        assert_eq!(upstream.hears(talk), "1: reset CANCEL\n");
        assert!(talk.log().contains("request_cancelled"));
        client.gets(talk, "/b");
        assert!(!talk.is_closed(client.peer));
        assert_eq!(upstream.hears(talk), "3: GET /b; host: x END\n");
    });
}

#[test]
fn what_a_service_refuses_goes_to_another() {
    hold(TO_HTTP2, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
        let mut first = Speaker::upstream(talk);
        first.hears(talk);
        first.resets(talk, 1, ErrorCode::REFUSED_STREAM);
        let mut second = Speaker::upstream(talk);
        assert!(second.hears(talk).contains("POST /; host: x; content-length: 2\n1: data hi END"));
        second.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        assert!(talk.log().contains("\"attempts\":2"));
    });
}

#[test]
fn what_is_never_to_be_indexed_stays_so_whatever_it_waited_for() {
    hold(TO_HTTP2, |talk| {
        let mut client = Speaker::client(talk);
        let head = "GET / HTTP/1.1\r\nHost: x\r\nX-Api-Key: 1\r\n\r\n";
        client.asks(talk, head, true);
        client.asks(talk, head, true);
        let (mut first, mut second) = (Speaker::upstream(talk), Speaker::upstream(talk));
        let last = client.asks(talk, head, true);
        for received in [first.hears(talk), second.hears(talk)] {
            let requests = received.matches("GET /").count();
            assert!(
                requests > 0 && received.matches("; never indexed").count() == requests,
                "{received}"
            );
        }
        // Sent again, it is read from where it was kept.
        first.resets(talk, 1, ErrorCode::REFUSED_STREAM);
        second.resets(talk, 1, ErrorCode::REFUSED_STREAM);
        let received = first.hears(talk) + &second.hears(talk);
        assert_eq!(received.matches("GET /; never indexed").count(), 2, "{received} after {last}");
    });
}

#[test]
fn much_that_is_asked_at_once_is_answered() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let mut ping = vec![0, 0, 8, 6, 0, 0, 0, 0, 0];
        ping.extend(b"together");
        talk.says(client.peer, ping.repeat(200));
        let heard = talk.heard_bytes(client.peer);
        let mut answer = vec![0, 0, 8, 6, 1, 0, 0, 0, 0];
        answer.extend(b"together");
        assert!(heard == answer.repeat(200), "{} bytes", heard.len());
        let stream = client.gets(talk, "/");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(client.hears(talk), format!("{stream}: 204 END\n"));
    });
}

#[test]
fn streams_that_are_too_many_at_once_cost_the_others_nothing() {
    let config = CONFIG.replace("routes: all", "routes: all\n    http2: { streams_max: 1 }");
    hold(&config, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        // `GET http://x/`, each in one HEADERS frame that ends its stream.
        let asks = |n: u32| {
            let [a, b, c, d] = (2 * n + 1).to_be_bytes();
            [&[0, 0, 6, 1, 5, a, b, c, d][..], &[0x82, 0x86, 0x84, 0x41, 1, b'x']].concat()
        };
        talk.says(client.peer, (0..400).flat_map(asks).collect::<Vec<_>>());
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        let heard = talk.heard_bytes(client.peer);
        let refused = [0, 0, 4, 3, 0];
        let refused = heard.windows(5).filter(|frame| *frame == refused).count();
        assert_eq!(refused, 399);
        assert!(!talk.is_closed(client.peer) && talk.log().contains("\"status\":204"));
    });
}

#[test]
fn half_a_head_holds_up_a_connection_for_so_long_only() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        client.gets(talk, "/");
        let upstream = talk.upstream();
        client.hears(talk);
        talk.passes(Duration::from_secs(20));
        // HEADERS without END_HEADERS.
        talk.says(client.peer, [0, 0, 1, 1, 0, 0, 0, 0, 0x7f, 0x82]);
        talk.passes(Duration::from_secs(9));
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
        assert!(!talk.is_closed(client.peer));
        talk.passes(Duration::from_secs(2));
        assert!(talk.is_closed(client.peer));
        assert!(talk.log().contains("request_head_timeout"));
    });
}

#[test]
fn the_time_for_a_response_begins_when_there_is_a_connection() {
    let config = to_one().replace("max: 1", "max: 1, timeouts: { response_head: 500ms }");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let peer = talk.connecting();
        talk.passes(Duration::from_millis(800));
        let mut upstream = Speaker::upstream(talk);
        assert_eq!(upstream.peer, peer);
        talk.passes(Duration::from_millis(300));
        talk.hears(client, "");
        assert!(upstream.hears(talk).starts_with("1: GET /"));
        talk.passes(Duration::from_millis(300));
        talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &[]);
        let log = talk.log();
        let duration = |name: &str| -> f64 {
            let (_, rest) = log.split_once(&format!("\"{name}\":")).expect("it is in the log");
            rest.split([',', '}']).next().unwrap().parse().unwrap()
        };
        assert!((800_000.0..810_000.0).contains(&duration("connect_us")), "{log}");
        assert!((500_000.0..610_000.0).contains(&duration("first_byte_us")), "{log}");
    });
}

#[test]
fn what_a_service_going_away_did_not_process_goes_to_another() {
    hold(TO_HTTP2, |talk| {
        let (one, two) = (talk.client(), talk.client());
        talk.says(one, "GET /one HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut first = Speaker::upstream(talk);
        first.hears(talk);
        talk.says(two, "GET /two HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut second = Speaker::upstream(talk);
        second.hears(talk);
        let three = talk.client();
        talk.says(three, "GET /three HTTP/1.1\r\nHost: x\r\n\r\n");
        let (told_first, told_second) = (first.hears(talk), second.hears(talk));
        let (mut leaving, mut staying) =
            if told_first.contains("/three") { (first, second) } else { (second, first) };
        assert!(format!("{told_first}{told_second}").contains("3: GET /three"));
        // What it says of stream 1 still counts.
        let mut goaway = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        goaway.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        talk.says(leaving.peer, goaway);
        assert!(staying.hears(talk).contains("3: GET /three"));
        staying.answers(talk, 3, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(three, "HTTP/1.1 204 No Content\r\n\r\n");
        assert!(!talk.is_closed(leaving.peer), "it owes an answer");
        leaving.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert!(talk.is_closed(leaving.peer));
    });
}

#[test]
fn a_draining_proxy_says_so_twice_and_answers_what_was_asked_in_between() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        talk.drains();
        // Before it knows.
        let late = client.gets(talk, "/late");
        let upstream = talk.upstream();
        let received = client.hears(talk);
        assert!(received.starts_with("going away after 2147483647: NO_ERROR\n"), "{received}");
        assert!(received.ends_with(&format!("going away after {late}: NO_ERROR\n")), "{received}");
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(client.hears(talk), format!("{late}: 204 END\n"));
        assert!(talk.is_shut(client.peer));
        talk.ends(client.peer);
        assert!(talk.proxy().is_drained());
    });
}

/// Frames of a client from its preface on, none of whose fields is in a table.
fn opening() -> Vec<u8> {
    [&wire::h2::PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()
}

/// HEADERS that end the block, and the stream or not, with these fields as they are.
fn headers(stream: u8, is_end: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    let len = u8::try_from(block.len()).unwrap();
    let frame = [0, 0, len, 1, if is_end { 5 } else { 4 }, 0, 0, 0, stream];
    [&frame[..], &block].concat()
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")];

/// The types, flags and streams of frames.
fn outline(mut bytes: &[u8]) -> Vec<(u8, u8, u8)> {
    let mut all = Vec::new();
    while let Some(header) = bytes.first_chunk::<9>() {
        all.push((header[3], header[4], header[8]));
        let len = usize::from(header[1]) << 8 | usize::from(header[2]);
        bytes = &bytes[9 + len..];
    }
    all
}

#[test]
fn a_malformed_request_is_answered_and_reset_and_others_go_on() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, [opening(), headers(1, true, &GET)].concat());
        let upstream = talk.upstream();
        talk.heard_bytes(client);
        for (n, (fields, cause)) in [
            (&[(":status", "200")][..], "request_invalid"),
            (
                &[(":method", "GET"), (":scheme", "http"), (":path", "/\u{e9}")],
                "request_target_invalid",
            ),
            (&[GET[0], GET[1], GET[2], GET[3], ("host", "y")], "request_host_invalid"),
            (
                &[GET[0], GET[1], GET[2], GET[3], ("content-length", "1 1")],
                "request_framing_invalid",
            ),
            (&[GET[0], GET[1], GET[2], GET[3], ("connection", "close")], "request_invalid"),
        ]
        .into_iter()
        .enumerate()
        {
            for is_end in [true, false] {
                let stream = u8::try_from(4 * n + if is_end { 3 } else { 5 }).unwrap();
                talk.says(client, headers(stream, is_end, fields));
                let heard = talk.heard_bytes(client);
                // HEADERS, DATA with the end, RST_STREAM.
                let expected = [(1, 4, stream), (0, 1, stream), (3, 0, stream)];
                assert_eq!(outline(&heard), expected, "{}", heard.escape_ascii());
                assert!(heard.ends_with(&[0, 0, 0, 1]), "PROTOCOL_ERROR");
                let log = talk.log();
                assert!(log.contains("\"status\":400"), "{log}");
                assert!(log.contains(&format!("\"cause\":\"{cause}\"")), "{cause}: {log}");
                assert!(!log.contains("HTTP/1.1"), "{log}");
            }
        }
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(outline(&talk.heard_bytes(client)), [(1, 5, 1)]);
    });
}

#[test]
fn a_body_that_breaks_a_rule_is_answered_where_nothing_was() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        let fields = [(":method", "POST"), GET[1], GET[2], GET[3], ("content-length", "5")];
        talk.says(client, [opening(), headers(1, false, &fields)].concat());
        let upstream = talk.upstream();
        talk.heard_bytes(client);
        // Two bytes, and no more.
        talk.says(client, [0, 0, 2, 0, 1, 0, 0, 0, 1, b'h', b'i']);
        let heard = talk.heard_bytes(client);
        assert_eq!(outline(&heard), [(1, 4, 1), (0, 1, 1), (3, 0, 1)], "{}", heard.escape_ascii());
        assert!(talk.log().contains("request_body_invalid"), "{}", talk.log());
        assert!(talk.is_closed(upstream), "what it heard of the request is not whole");
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn white_space_around_a_value_is_none_of_it() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        let fields = [&GET[..], &[("x-a", "b "), ("x-b", "\t c"), ("x-c", " ")]].concat();
        talk.says(client, [opening(), headers(1, true, &fields)].concat());
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(heard.contains("x-a: b\r\nx-b: c\r\nx-c: \r\n"), "{heard:?}");
    });
    // Of a response too, and of its trailers.
    hold(TO_HTTP2, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        let head = headers(1, false, &[(":status", "200"), ("x-a", " b ")]);
        let trailers = headers(1, true, &[("grpc-status", "5"), ("grpc-message", "not found: ")]);
        talk.says(upstream.peer, [head, trailers].concat());
        let heard = talk.heard(client);
        assert!(heard.contains("\r\nx-a: b\r\n"), "{heard:?}");
        assert!(heard.ends_with("grpc-status: 5\r\ngrpc-message: not found:\r\n\r\n"), "{heard:?}");
    });
}

#[test]
fn calls_that_are_cancelled_after_a_while_cost_nothing_but_their_streams() {
    hold(TO_HTTP2, |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let mut client = Speaker::client(talk);
        for _ in 0..20 {
            let streams: Vec<u32> = (0..90).map(|_| client.gets(talk, "/")).collect();
            talk.passes(Duration::from_secs(1));
            for stream in streams {
                client.resets(talk, stream, ErrorCode::CANCEL);
            }
            client.hears(talk);
            assert!(!talk.is_shut(client.peer) && !talk.is_closed(client.peer));
        }
    });
}

#[test]
fn streams_opened_and_reset_without_end_cost_the_connection() {
    hold(TO_HTTP2, |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let mut client = Speaker::client(talk);
        let mut asked = 0;
        while !talk.is_shut(client.peer) {
            let stream = client.gets(talk, "/");
            client.resets(talk, stream, ErrorCode::CANCEL);
            asked += 1;
            assert!(asked < 10_000, "it has an end");
        }
        assert!(asked > 400, "closing many tabs is no attack: {asked}");
        let received = client.hears(talk);
        assert!(received.contains("ENHANCE_YOUR_CALM"), "{received}");
    });
}

/// How many streams a client opens and resets until its connection ends, each after so long; `most` if it does not.
fn resets_until_the_end(options: &str, after: Duration, most: u32) -> u32 {
    let config =
        TO_HTTP2.replace("routes: site,", &format!("routes: site, http2: {{ {options} }},"));
    let counted = Cell::new(0);
    hold(&config, |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let mut client = Speaker::client(talk);
        let mut asked = 0;
        while !talk.is_shut(client.peer) && asked < most {
            let stream = client.gets(talk, "/");
            talk.passes(after);
            client.resets(talk, stream, ErrorCode::CANCEL);
            asked += 1;
        }
        counted.set(asked);
    });
    counted.get()
}

#[test]
fn what_cancellations_may_cost_is_the_listeners_option() {
    let at_once = Duration::ZERO;
    let usual = resets_until_the_end("work_per_second: 0", at_once, 2_000);
    let few = resets_until_the_end("work_per_second: 0, work_max: 5000", at_once, 2_000);
    assert!(few * 8 < usual && usual < 2_000, "{few} of {usual}");
    // What each second forgives, of some thirty in a second.
    let at_times = Duration::from_millis(30);
    let more = resets_until_the_end("work_per_second: 5000, work_max: 5000", at_times, 500);
    assert_eq!(more, 500);
    assert_eq!(resets_until_the_end("work_per_second: 0, work_max: 5000", at_times, 500), few);
    // A reset is early, or not.
    let (late, short) = (Duration::from_millis(10), "work_per_second: 0, work_max: 5000");
    assert_eq!(resets_until_the_end(&format!("{short}, early_reset: 5ms"), late, 200), 200);
    assert!(resets_until_the_end(&format!("{short}, early_reset: 20ms"), late, 200) < 100);
}

#[test]
fn a_stream_whose_window_never_opens_is_given_up() {
    hold(CONFIG, |talk| {
        let limits = Limits { stream_window_bytes_max: 0, ..Limits::default() };
        let mut client = Speaker::client_with(talk, limits);
        client.takes = false;
        let stream = client.gets(talk, "/");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.hears(talk), format!("{stream}: 200; content-length: 5\n"));
        talk.passes(Duration::from_secs(61));
        assert_eq!(client.hears(talk), format!("{stream}: reset CANCEL\n"));
        assert!(talk.log().contains("response_write_timeout"));
        assert!(!talk.is_closed(client.peer));
    });
}

#[test]
fn a_request_may_become_the_first_stream_of_its_connection() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET /up HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.hears(upstream, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut heard = talk.heard_bytes(client);
        let switching =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
        assert!(heard.starts_with(switching), "{}", heard.escape_ascii());
        heard.drain(..switching.len());
        // SETTINGS come first.
        assert_eq!(heard.get(3), Some(&4));
        let mut greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        greeting.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        talk.says(client, greeting);
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        let heard = talk.heard_bytes(client);
        // SETTINGS acknowledged, then HEADERS that end stream 1 with `:status: 204`.
        let expected = [0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 1, 1, 5, 0, 0, 0, 1, 0x89];
        assert_eq!(heard, expected);
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_request_stays_one_where_its_settings_are_not_for_this_hop() {
    // `HTTP2-Settings` has to be named in `Connection`, and to be there once.
    for fields in [
        "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        "Connection: Upgrade, HTTP2-Setting\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        "Connection: HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nHTTP2-Settings: AAMAAABk\r\n",
    ] {
        hold(CONFIG, |talk| {
            let client = talk.client();
            talk.says(client, format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
            let upstream = talk.upstream();
            talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
            talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        });
    }
    // In two fields, and in any case.
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nConnection: http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        );
        assert!(talk.heard(client).starts_with("HTTP/1.1 101 "));
    });
}

#[test]
fn an_early_answer_ends_the_stream_and_not_the_connection() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, "PUT /big HTTP/1.1\r\nHost: x\r\n\r\n", false);
        let upstream = talk.upstream();
        client.sends(talk, stream, b"much", false);
        talk.says(upstream, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        let received = client.hears(talk);
        let answer = format!("{stream}: 403; content-length: 2\n{stream}: data no END\n");
        assert_eq!(received, format!("{answer}{stream}: reset NO_ERROR\n"));
        assert!(talk.is_closed(upstream), "it did not get the rest");
        let next = client.gets(talk, "/next");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(client.hears(talk), format!("{next}: 204 END\n"));
    });
}

#[test]
fn a_response_that_breaks_off_is_reset_behind_what_came_of_it() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.gets(talk, "/");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        talk.ends(upstream);
        let received = client.hears(talk);
        assert_eq!(
            received,
            format!(
                "{stream}: 200; content-length: 9\n{stream}: data half\n{stream}: reset INTERNAL_ERROR\n"
            )
        );
        assert!(!talk.is_closed(client.peer));
    });
}

#[test]
fn requests_wait_for_a_free_slot_and_take_it_in_order() {
    hold(TO_HTTP2, |talk| {
        let limits = Limits { streams_max: 1, ..Limits::default() };
        let clients: Vec<_> = (0..4).map(|_| talk.client()).collect();
        talk.says(clients[0], "GET /0 HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut one = Speaker::upstream_with(talk, limits);
        talk.says(clients[1], "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut two = Speaker::upstream_with(talk, limits);
        talk.says(clients[2], "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(clients[3], "GET /3 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(one.hears(talk).contains("1: GET /0"));
        assert!(two.hears(talk).contains("1: GET /1"));
        one.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert!(one.hears(talk).contains("3: GET /2"));
        two.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert!(two.hears(talk).contains("3: GET /3"));
        for client in &clients[..2] {
            talk.hears(*client, "HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
}

#[test]
fn a_service_that_cannot_be_reached_fails_all_that_were_on_their_way() {
    hold(TO_HTTP2, |talk| {
        let mut client = Speaker::client(talk);
        let one = client.gets(talk, "/one");
        let upstream = talk.connecting();
        talk.refuse(upstream);
        let upstream = talk.connecting();
        talk.refuse(upstream);
        let upstream = talk.connecting();
        talk.refuse(upstream);
        let received = client.hears(talk);
        assert!(received.starts_with(&format!("{one}: 503;")), "{received}");
        assert!(received.contains("connect_failed"), "{received}");
    });
}

#[test]
fn websocket_over_http2_reaches_a_service_of_http1() {
    let config = CONFIG.replace("cluster: app", "cluster: app, upgrades: [websocket]");
    hold(&config, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let head = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: of-no-use\r\n\r\n";
        let stream = client.asks_as(talk, head, false, RequestForm::Upgrade);
        let upstream = talk.upstream();
        let lines = ["connection: upgrade\r\n", "upgrade: websocket\r\n", "sec-websocket-key: "];
        let heard = talk.hears_about(upstream, "GET /chat HTTP/1.1\r\n", &lines);
        assert_eq!(heard.matches("sec-websocket-key").count(), 1, "{heard}");
        assert!(!heard.contains("of-no-use"), "{heard}");
        client.sends(talk, stream, b"early", false);
        assert_eq!(talk.heard(upstream), "", "before it has agreed");
        talk.says(
            upstream,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nfirst",
        );
        assert_eq!(client.hears(talk), format!("{stream}: 200\n{stream}: data first\n"));
        talk.hears(upstream, "early");
        client.sends(talk, stream, b"bye", true);
        talk.hears(upstream, "bye");
        assert!(talk.is_shut(upstream));
        talk.says(upstream, "so long");
        talk.ends(upstream);
        assert_eq!(client.hears(talk), format!("{stream}: data so long END\n"));
        assert!(!talk.is_closed(client.peer));
        assert!(talk.log().contains("\"status\":200"), "{}", talk.log());
    });
}

#[test]
fn websocket_over_http1_reaches_a_service_of_http2() {
    hold(&to_one(), |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let mut upstream = Speaker::upstream(talk);
        let received = upstream.hears(talk);
        assert!(received.starts_with("1: CONNECT /chat; host: x"), "{received}");
        assert!(!received.contains("END"), "{received}");
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        talk.hears_about(
            client,
            "HTTP/1.1 101 Switching Protocols\r\n",
            &["upgrade: websocket\r\n", "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"],
        );
        talk.says(client, "ping");
        assert_eq!(upstream.hears(talk), "1: data ping\n");
        upstream.sends(talk, 1, b"pong", true);
        talk.hears(client, "pong");
        assert!(talk.is_shut(client));
        talk.ends(client);
        assert_eq!(upstream.hears(talk), "1: END\n");
        assert!(talk.is_closed(client) && !talk.is_closed(upstream.peer));
    });
}

#[test]
fn trailers_behind_a_known_length_reach_clients_of_http1() {
    hold(TO_HTTP2, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTrailer: x-sum\r\n\r\n";
        upstream.answers(talk, 1, head, false);
        upstream.sends(talk, 1, b"ok", false);
        upstream.ends_with(talk, 1, "x-sum: 7\r\n");
        let heard = talk.heard(client);
        assert!(!heard.contains("content-length"), "{heard}");
        assert!(heard.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{heard}");
    });
}

#[test]
fn services_that_go_away_again_and_again_fail_nobody() {
    hold(&to_one(), |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
        for _ in 0..6 {
            let mut upstream = Speaker::upstream(talk);
            assert!(upstream.hears(talk).contains("1: data hi END"));
            let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            talk.says(upstream.peer, goaway);
            assert!(talk.is_closed(upstream.peer));
            talk.passes(Duration::from_secs(1));
        }
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
    });
}

#[test]
fn a_service_that_processes_nothing_is_asked_with_pauses_and_not_for_ever() {
    hold(&to_one(), |talk| {
        if talk.variant() == Variant::Moving {
            // Another worker has not met the service yet.
            return talk.leave_out();
        }
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut asked = 0;
        let mut paused = Duration::ZERO;
        loop {
            if talk.is_connecting() {
                let mut upstream = Speaker::upstream(talk);
                upstream.hears(talk);
                talk.says(upstream.peer, goaway);
                asked += 1;
                continue;
            }
            if talk.log().contains("\"status\":503") {
                break;
            }
            paused += Duration::from_millis(5);
            talk.passes(Duration::from_millis(5));
            assert!(paused < Duration::from_secs(30), "it has an end");
        }
        assert_eq!(asked, 16);
        // 25 ms, doubled up to a second, and of each the half or more.
        assert!(paused > Duration::from_secs(4), "{paused:?}");
        talk.hears_about(client, "HTTP/1.1 503 ", &["upstream_going_away"]);
        // Others that come meanwhile wait, and fail in time.
        let late = talk.client();
        talk.says(late, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(!talk.is_connecting(), "it has its pause");
        let counted = talk.counted("strait_upstream_pauses_total");
        assert_eq!(counted.values().copied().collect::<Vec<_>>(), [15], "{counted:?}");
    });
}

#[test]
fn upgrades_wait_for_one_connection_to_say_what_it_takes() {
    let config = to_one().replace("max: 1", "max: 8");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Each waits on its own while everything moves, and may call again.
            return talk.leave_out();
        }
        let ask = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
        for _ in 0..5 {
            let client = talk.client();
            talk.says(client, ask);
        }
        let mut upstream = Speaker::upstream(talk);
        assert!(!talk.is_connecting(), "one is enough");
        let received = upstream.hears(talk);
        assert_eq!(received.matches("CONNECT /chat").count(), 5, "{received}");
    });
}

#[test]
fn a_silent_service_is_asked_for_a_sign_of_life() {
    let config = to_one().replace(
        "protocol: http2,",
        "protocol: http2, http2: { ping: { interval: 5s, timeout: 1s } },",
    );
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        talk.passes(Duration::from_millis(5_100));
        // It answers by itself.
        upstream.hears(talk);
        talk.passes(Duration::from_secs(3));
        assert!(!talk.is_closed(upstream.peer));
        talk.passes(Duration::from_millis(2_200));
        talk.passes(Duration::from_millis(1_100));
        assert!(talk.is_closed(upstream.peer));
        talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &["http2_ping_timeout"]);
    });
}

#[test]
fn a_client_that_is_silent_behind_its_only_request_is_asked_for_a_sign_of_life() {
    let options = "routes: site, http2: { ping: { interval: 5s, timeout: 1s } },";
    hold(&to_one().replacen("routes: site,", options, 1), |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        client.gets(talk, "/slow");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        talk.passes(Duration::from_millis(5_100));
        // It answers by itself.
        client.hears(talk);
        talk.passes(Duration::from_secs(3));
        assert!(!talk.is_closed(client.peer));
        talk.passes(Duration::from_millis(2_200));
        talk.passes(Duration::from_millis(1_100));
        assert!(talk.is_closed(client.peer) && talk.log().contains("http2_ping_timeout"));
    });
}

#[test]
fn an_upgrade_gives_up_on_a_service_that_cannot_be_reached() {
    hold(TO_HTTP2, |talk| {
        if talk.variant() == Variant::Moving {
            // An exchange that moves while it waits opens a connection there, and attempts differ.
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, UPGRADE);
        for _ in 0..3 {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[]);
        assert!(talk.log().contains("connect_failed"));
    });
}

/// The end comes before SETTINGS, for which the request waits.
#[test]
fn an_upgrade_gives_up_on_a_service_that_accepts_and_closes() {
    hold(TO_HTTP2, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, UPGRADE);
        for _ in 0..3 {
            let upstream = talk.upstream();
            talk.ends(upstream);
        }
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[]);
        let log = talk.log();
        assert!(log.contains("upstream_closed") && log.contains("FIN"), "{log}");
    });
}

/// One of them has a stream there, and the others wait to know how many it takes.
#[test]
fn requests_go_elsewhere_with_the_connection_that_they_wait_for() {
    hold(
        &TO_HTTP2.replace("connections_max: 2", "connect_timeout: 5s, timeouts: { pending: 1s }"),
        |talk| {
            if talk.variant() == Variant::Moving {
                // What moves while it waits chooses its endpoint anew.
                return talk.leave_out();
            }
            let mut client = Speaker::client(talk);
            let mut streams: Vec<_> = (0..4).map(|_| client.gets(talk, "/")).collect();
            let mut live = Speaker::upstream(talk);
            let dead = talk.connecting();
            let failed = format!(r#""failed_attempts":"{} connect_timeout""#, talk.address(dead));
            // Longer than a request waits for a connection that is in use.
            talk.passes(Duration::from_secs(3));
            assert_eq!(client.hears(talk), "");
            talk.passes(Duration::from_millis(2_100));
            assert!(talk.is_closed(dead));
            let asked = live.hears(talk);
            assert_eq!(asked.matches("GET /").count(), 4, "{asked}");
            for n in 0..4 {
                live.answers(talk, 2 * n + 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
            }
            let heard = client.hears(talk);
            streams.retain(|stream| !heard.contains(&format!("{stream}: 204")));
            assert!(streams.is_empty(), "{heard}");
            assert_eq!(talk.log().matches(&failed).count(), 2, "{}", talk.log());
        },
    );
}

#[test]
fn an_exchange_ends_with_a_reply_that_has_no_body() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", true);
        for _ in 0..3 {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        let received = client.hears(talk);
        assert!(received.starts_with(&format!("{stream}: 503;")), "{received}");
        assert!(received.ends_with("END\n"), "{received}");
        assert!(talk.log().contains("connect_failed"), "the exchange is over: {}", talk.log());
    });
}

#[test]
fn a_long_body_that_was_framed_for_a_connection_that_failed_is_not_sent_again_in_part() {
    hold(TO_HTTP2, |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\n");
        let upstream = talk.connecting();
        for _ in 0..40 {
            talk.says(client, vec![b'x'; 1_000]);
        }
        talk.refuse(upstream);
        let answer = talk.heard(client);
        assert!(talk.is_connecting() || answer.starts_with("HTTP/1.1 503 "), "{answer}");
        if talk.is_connecting() {
            let mut upstream = Speaker::upstream(talk);
            let received = upstream.hears(talk);
            assert_eq!(
                received.matches('x').count(),
                40_000 + 1,
                "of the host, and all of the body"
            );
        }
    });
}

#[test]
fn a_request_of_which_some_was_dropped_is_not_sent_again() {
    hold(&to_one(), |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.says(client, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nab");
        upstream.hears(talk);
        talk.takes_no_more(upstream.peer);
        talk.says(client, "cd");
        talk.breaks(upstream.peer);
        assert!(!talk.is_connecting(), "`cd` would be missing");
        assert!(talk.heard(client).starts_with("HTTP/1.1 502 "));
    });
}

#[test]
fn an_upgrade_waits_for_settings_that_come_in_pieces() {
    hold(&to_one(), |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let upstream = talk.upstream();
        // SETTINGS of which the one that allows extended CONNECT comes last.
        talk.says(upstream, [0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9]);
        let other = talk.client();
        talk.says(
            other,
            "GET /talk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        assert_eq!(talk.heard(other), "");
        talk.says(upstream, [0, 8, 0, 0, 0, 1]);
        assert_eq!(talk.heard(client), "");
        assert_eq!(talk.heard(other), "");
        assert!(!talk.is_closed(client) && !talk.is_closed(other));
    });
}

#[test]
fn an_upgrade_is_granted_during_a_drain() {
    hold(&to_one(), |talk| {
        let client = talk.client();
        talk.drains();
        talk.says(
            client,
            "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        // The connection that is opened for it has no stream until the service has said a word.
        let mut upstream = Speaker::upstream(talk);
        assert!(upstream.hears(talk).contains("CONNECT /chat"));
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        talk.hears_about(client, "HTTP/1.1 101 Switching Protocols\r\n", &[]);
    });
}

#[test]
fn nothing_is_left_of_a_drain_whose_last_client_is_gone() {
    hold(&to_one(), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut upstream = Speaker::upstream(talk);
        assert!(upstream.hears(talk).contains("GET /"));
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.ends(client);
        assert!(talk.is_closed(client) && !talk.is_closed(upstream.peer));
        talk.drains();
        assert!(talk.is_closed(upstream.peer));
    });
}

#[test]
fn nothing_is_left_of_a_drain_whose_last_client_was_moved() {
    hold(&to_one(), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut upstream = Speaker::upstream(talk);
        assert!(upstream.hears(talk).contains("GET /"));
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.drains();
        assert!(!talk.is_closed(upstream.peer));
        talk.leaves(client);
        assert!(talk.is_closed(upstream.peer));
    });
}

#[test]
fn who_waited_for_a_connection_gets_the_window_back() {
    let config = CONFIG
        .replace("request_id", "request_buffer: 0, request_id")
        .replace("    http: {", "    http2: { stream_window_max: 1KiB }\n    http: {")
        .replace("    endpoints:", "    connections_max: 1\n    endpoints:");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Where it arrives before what it waits for, it need not wait.
            return talk.leave_out();
        }
        let first = talk.client();
        talk.says(first, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let stream = client.asks(talk, "POST / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        client.sends(talk, stream, &[b'x'; 1 << 10], false);
        client.hears(talk);
        assert_eq!(client.codec.sendable(stream), 0);
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        client.hears(talk);
        assert_eq!(client.codec.sendable(stream), 1 << 10);
    });
}

#[test]
fn a_body_that_waited_goes_with_its_request_wherever_that_is_moved() {
    let config = CONFIG
        .replace("request_id", "request_buffer: 0, request_id")
        .replace("    endpoints:", "    connections_max: 1\n    endpoints:");
    hold(&config, |talk| {
        let mut client = Speaker::client(talk);
        let first = talk.client();
        talk.says(first, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut upstream = talk.upstream();
        client.posts(talk, "/", b"hello");
        if talk.is_connecting() {
            // It was moved before what it waits for, and waits no more.
            upstream = talk.upstream();
        } else {
            talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        }
        let heard = talk.heard(upstream);
        assert!(heard.contains("hello\r\n0\r\n\r\n"), "{heard}");
    });
}

#[test]
fn one_request_goes_out_before_a_service_has_said_how_many_it_takes() {
    hold(&to_one(), |talk| {
        let (one, two) = (talk.client(), talk.client());
        talk.says(one, "GET /one HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(two, "GET /two HTTP/1.1\r\nHost: x\r\n\r\n");
        let limits = Limits { streams_max: 1, ..Limits::default() };
        let mut upstream = Speaker::upstream_with(talk, limits);
        assert!(!talk.is_connecting());
        assert_eq!(upstream.hears(talk), "1: GET /one; host: x END\n");
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert_eq!(upstream.hears(talk), "3: GET /two; host: x END\n");
    });
}

#[test]
fn an_upgrade_whose_endpoint_is_taken_away_waits_for_no_other_forever() {
    hold(&to_one(), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(
            client,
            "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        let first = talk.upstream();
        talk.reconfigures(&to_one().replace(":9000", ":9001"));
        assert!(talk.is_closed(first));
        // It ends on the configuration that it began with.
        let mut second = Speaker::upstream(talk);
        assert!(second.hears(talk).contains("CONNECT /chat"));
    });
}

#[test]
fn a_service_that_breaks_the_protocol_is_a_bad_gateway() {
    let push = [0, 0, 5, 5, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0x82];
    let ping = [0, 0, 8, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for wrong in [push.to_vec(), ping.repeat(10_001)] {
        hold(&to_one(), |talk| {
            if talk.variant() != Variant::Plain {
                return talk.leave_out();
            }
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = Speaker::upstream(talk);
            talk.says(upstream.peer, &wrong);
            talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &["response_invalid"]);
            assert!(talk.is_closed(upstream.peer));
        });
    }
}

#[test]
fn a_broken_preface_is_answered_with_goaway_and_not_in_http1() {
    let preface = wire::h2::PREFACE;
    for first in [
        &b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n"[..],
        &preface[4..],
        &preface[18..],
        // The frames behind it.
        &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 1, 0, 0],
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        // An octet more, or another one.
        b"PRI\0 * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI\t* HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI  * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PR\x01I * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PSI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI * HTTP/2.0 \r\n\r\nSM\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n SM\r\n\r\n",
        // A beginning that is lost up to a blank, a slash, or the last line ends.
        &preface[3..],
        &preface[5..],
        &preface[10..],
        b"\r\n\0\0\x12\x04\0\0\0\0\0",
    ] {
        hold(CONFIG, |talk| {
            let client = talk.client();
            talk.says(client, first);
            let heard = talk.heard_bytes(client);
            // SETTINGS, perhaps a window, GOAWAY.
            let outline = outline(&heard);
            assert_eq!(outline.first(), Some(&(4, 0, 0)), "{}", heard.escape_ascii());
            assert_eq!(outline.last(), Some(&(7, 0, 0)), "{}", heard.escape_ascii());
            assert!(heard.ends_with(b"a preface that is not one of HTTP/2"));
            assert!(talk.is_shut(client));
        });
    }
    // Too few bytes to detect the protocol become a malformed request once there are more.
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, " /x HTTP/1.1\r\n\r\n");
        assert!(talk.heard(client).starts_with("HTTP/1.1 400 "));
    });
    // One that stops in the middle is not answered in HTTP/1 either.
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "PRI * HT");
        talk.passes(Duration::from_secs(11));
        assert!(talk.is_closed(client));
        assert_eq!(talk.heard_bytes(client), b"");
        assert!(talk.log().contains("request_head_timeout") || talk.log().is_empty());
    });
}
