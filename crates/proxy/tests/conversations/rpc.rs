//! Calls of an RPC protocol: what goes through, what becomes of numbers, and what of those that are lost.

use std::fmt::Write as _;
use std::time::Duration;

use wire::rpc::{FrameKind, RpcProtocol};

use crate::kit::pico::{FIXED_BYTES, Pico};
use crate::kit::{Peer, Talk, Variant, hold};

pub(crate) const CONFIG: &str = "
listeners: [{ name: calls, address: '127.0.0.1:8080', protocol: pico, routes: all }]
routes:
  - name: all
    rules:
      - { match: { path: /health/check }, respond: { status: 503, body: resting } }
      - { match: { prefix: /orders/ }, cluster: orders }
clusters: [{ name: orders, protocol: pico, endpoints: ['127.0.0.1:9000'] }]
";

fn two_endpoints(rule: &str) -> String {
    CONFIG
        .replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']")
        .replace("cluster: orders }\nclusters", &format!("cluster: orders{rule} }}\nclusters"))
}

/// A frame with these fields.
fn frame(kind: u8, status: u8, id: u32, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, value) in fields {
        section.push(u8::try_from(name.len()).unwrap());
        section.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        section.extend(name.bytes().chain(value.bytes()));
    }
    let mut frame = vec![kind, status];
    frame.extend(u16::try_from(section.len()).unwrap().to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend(section);
    frame.extend(body);
    frame
}

pub(crate) fn call(id: u32, method: &str, body: &str) -> Vec<u8> {
    frame(1, 0, id, &[("service", "orders"), ("method", method)], body.as_bytes())
}

fn one_way(id: u32, method: &str, body: &str) -> Vec<u8> {
    frame(2, 0, id, &[("service", "orders"), ("method", method)], body.as_bytes())
}

pub(crate) fn answer(id: u32, body: &str) -> Vec<u8> {
    frame(3, 0, id, &[], body.as_bytes())
}

/// What a peer received, a line for each frame: kind, number, fields, body.
fn heard(talk: &mut Talk<'_>, peer: Peer) -> String {
    let bytes = talk.heard_bytes(peer);
    let mut rest = &bytes[..];
    let mut text = String::new();
    while !rest.is_empty() {
        let frame = Pico.frame(rest).unwrap().expect("frames are sent whole");
        let (status, body_len) = (rest[1], usize::try_from(frame.body_len).unwrap());
        let (head, behind) = rest.split_at(frame.head_len);
        let (body, behind) = behind.split_at(body_len);
        let kind = match frame.kind {
            FrameKind::Request => "call",
            FrameKind::OneWay => "one-way",
            FrameKind::Response => "answer",
            FrameKind::Heartbeat => "heartbeat",
            FrameKind::HeartbeatAnswer => "alive",
            FrameKind::GoAway => "go away",
        };
        write!(text, "{kind} {} {status}", frame.asked.id).unwrap();
        let mut fields = &head[FIXED_BYTES..];
        while let [name, v0, v1, rest @ ..] = fields {
            let (name, rest) = rest.split_at(usize::from(*name));
            let (value, rest) = rest.split_at(usize::from(u16::from_be_bytes([*v0, *v1])));
            write!(text, " {}={}", name.escape_ascii(), value.escape_ascii()).unwrap();
            fields = rest;
        }
        let shown = if body.len() > 60 {
            format!("{} bytes", body.len())
        } else {
            body.escape_ascii().to_string()
        };
        writeln!(text, ": {shown}").unwrap();
        rest = behind;
    }
    text
}

pub(crate) fn hears(talk: &mut Talk<'_>, peer: Peer, expected: &str) {
    assert_eq!(heard(talk, peer), expected);
}

#[test]
fn a_call_is_answered_with_the_number_that_its_client_gave_it() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, call(77, "pay", "12 EUR"));
        let upstream = talk.upstream();
        hears(talk, upstream, "call 1 0 service=orders method=pay: 12 EUR\n");
        talk.says(upstream, frame(3, 0, 1, &[("trace", "a\r\nb")], b"done"));
        hears(talk, client, "answer 77 0 trace=a\\r\\nb: done\n");
        let log = talk.log();
        assert!(log.contains("\"status\":200"), "{log}");
        assert!(log.contains("/orders/pay"), "{log}");
        assert!(log.contains("\"cluster\":\"orders\""), "{log}");
    });
}

#[test]
fn calls_of_several_clients_share_a_connection_and_are_answered_in_any_order() {
    hold(CONFIG, |talk| {
        let (one, other) = (talk.client(), talk.client());
        talk.says(one, call(5, "a", "1"));
        let upstream = talk.upstream();
        talk.says(other, call(5, "b", "2"));
        talk.says(one, call(6, "c", ""));
        hears(
            talk,
            upstream,
            "call 1 0 service=orders method=a: 1\n\
             call 3 0 service=orders method=b: 2\n\
             call 5 0 service=orders method=c: \n",
        );
        talk.says(upstream, [answer(5, "C"), answer(3, "B"), answer(1, "A")].concat());
        hears(talk, one, "answer 6 0: C\nanswer 5 0: A\n");
        hears(talk, other, "answer 5 0: B\n");
        talk.says(other, call(6, "d", ""));
        hears(talk, upstream, "call 7 0 service=orders method=d: \n");
        talk.says(upstream, answer(7, ""));
        hears(talk, other, "answer 6 0: \n");
    });
}

#[test]
fn a_message_goes_on_when_all_of_it_is_here_and_holds_up_no_other() {
    hold(CONFIG, |talk| {
        let (slow, quick) = (talk.client(), talk.client());
        let long = "x".repeat(100_000);
        let request = call(1, "long", &long);
        talk.says(slow, &request[..70_000]);
        assert!(!talk.is_connecting(), "no connection is asked for before it is whole");
        talk.says(quick, call(1, "short", "s"));
        let upstream = talk.upstream();
        hears(talk, upstream, "call 1 0 service=orders method=short: s\n");
        talk.says(slow, &request[70_000..]);
        hears(talk, upstream, "call 3 0 service=orders method=long: 100000 bytes\n");
        let response = answer(3, &long);
        talk.says(upstream, &response[..50]);
        hears(talk, slow, "");
        talk.says(upstream, &response[50..]);
        talk.says(upstream, answer(1, "S"));
        hears(talk, quick, "answer 1 0: S\n");
        hears(talk, slow, "answer 1 0: 100000 bytes\n");
    });
}

#[test]
fn a_one_way_call_is_over_when_it_is_sent() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, [one_way(3, "tell", "t"), call(3, "ask", "a")].concat());
        let upstream = talk.upstream();
        hears(
            talk,
            upstream,
            "one-way 1 0 service=orders method=tell: t\ncall 3 0 service=orders method=ask: a\n",
        );
        talk.says(upstream, [answer(1, "unasked"), answer(3, "A")].concat());
        hears(talk, client, "answer 3 0: A\n");
        assert_eq!(talk.log().lines().count(), 2);
    });
}

#[test]
fn a_one_way_call_that_fails_is_not_answered() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, frame(2, 0, 3, &[("service", "none"), ("method", "m")], b""));
        hears(talk, client, "");
        talk.says(client, frame(1, 0, 4, &[("service", "none"), ("method", "m")], b""));
        hears(talk, client, "answer 4 3: Not Found: no_route\n");
        assert_eq!(talk.log().matches("no_route").count(), 2);
    });
}

#[test]
fn replies_of_rules_and_faults_have_the_status_of_the_protocol() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, frame(1, 0, 1, &[("service", "health"), ("method", "check")], b"?"));
        hears(talk, client, "answer 1 2: resting\n");
        talk.says(client, call(2, "pay", ""));
        let upstream = talk.connecting();
        talk.refuse(upstream);
        for _ in 0..2 {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        hears(talk, client, "answer 2 2: Service Unavailable: connect_failed\n");
    });
}

#[test]
fn what_was_not_sent_goes_to_another_endpoint_and_what_was_sent_does_not() {
    hold(&two_endpoints(""), |talk| {
        let client = talk.client();
        talk.says(client, call(1, "pay", "p"));
        let first = talk.connecting();
        talk.refuse(first);
        let second = talk.upstream();
        assert_ne!(talk.address(first), talk.address(second));
        hears(talk, second, "call 1 0 service=orders method=pay: p\n");
        talk.ends(second);
        hears(talk, client, "answer 1 1: Bad Gateway: upstream_closed\n");
    });
}

#[test]
fn a_status_that_the_rule_names_is_retried_with_another_number() {
    hold(
        &two_endpoints(", retry: { on: [retriable_status], status: [503], methods: any }"),
        |talk| {
            let client = talk.client();
            talk.says(client, call(9, "pay", "p"));
            let first = talk.upstream();
            hears(talk, first, "call 1 0 service=orders method=pay: p\n");
            talk.says(first, frame(3, 2, 1, &[], b"busy"));
            talk.passes(Duration::from_millis(40));
            let second = talk.upstream();
            assert_ne!(talk.address(first), talk.address(second));
            hears(talk, second, "call 1 0 service=orders method=pay: p\n");
            talk.says(second, answer(1, "ok"));
            hears(talk, client, "answer 9 0: ok\n");
            // The connection of the first goes on: what is left of its response is passed over.
            talk.says(client, call(10, "pay", "q"));
            let heard = [heard(talk, first), heard(talk, second)].concat();
            assert_eq!(heard, "call 3 0 service=orders method=pay: q\n");
        },
    );
}

#[test]
fn a_client_that_waited_too_long_is_answered_once() {
    let config =
        CONFIG.replace("cluster: orders }\nclusters", "cluster: orders, timeout: 2s }\nclusters");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, [call(4, "slow", ""), call(3, "quick", "")].concat());
        let upstream = talk.upstream();
        talk.says(upstream, answer(3, "q"));
        hears(talk, client, "answer 3 0: q\n");
        talk.passes(Duration::from_secs(3));
        hears(talk, client, "answer 4 1: Gateway Timeout: request_timeout\n");
        talk.says(upstream, answer(1, "too late"));
        hears(talk, client, "");
        talk.says(client, call(5, "next", ""));
        talk.heard_bytes(upstream);
        talk.says(upstream, answer(5, "in time"));
        hears(talk, client, "answer 5 0: in time\n");
    });
}

#[test]
fn heartbeats_are_answered_here_either_way() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, frame(4, 0, 8, &[], b""));
        hears(talk, client, "alive 8 0: \n");
        talk.says(client, call(1, "pay", ""));
        let upstream = talk.upstream();
        talk.heard_bytes(upstream);
        talk.says(upstream, [frame(4, 0, 900, &[], b""), answer(1, "p")].concat());
        hears(talk, upstream, "alive 900 0: \n");
        hears(talk, client, "answer 1 0: p\n");
    });
}

#[test]
fn an_upstream_that_goes_away_finishes_what_it_has_and_gets_nothing_more() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, call(1, "a", ""));
        let first = talk.upstream();
        talk.says(first, frame(6, 0, 0, &[], b""));
        talk.says(client, call(2, "b", ""));
        let second = talk.upstream();
        hears(talk, second, "call 1 0 service=orders method=b: \n");
        talk.says(first, answer(1, "A"));
        hears(talk, client, "answer 1 0: A\n");
        talk.says(second, answer(1, "B"));
        hears(talk, client, "answer 2 0: B\n");
        talk.heard_bytes(first);
        assert!(talk.is_closed(first), "it has nothing left");
    });
}

#[test]
fn bytes_that_are_no_frame_end_their_connection_and_no_other() {
    hold(CONFIG, |talk| {
        let (good, bad) = (talk.client(), talk.client());
        talk.says(good, call(1, "a", ""));
        let upstream = talk.upstream();
        talk.says(bad, call(1, "b", ""));
        talk.heard_bytes(upstream);
        talk.says(bad, "GET / HTTP/1.1\r\n");
        assert!(talk.is_shut(bad) || talk.is_closed(bad));
        talk.ends(bad);
        talk.says(upstream, [answer(3, "B"), answer(1, "A")].concat());
        hears(talk, good, "answer 1 0: A\n");
        let log = talk.log();
        assert!(log.contains("rpc_invalid"), "{log}");
        assert!(log.contains("the first octet is no kind of frame"), "{log}");
    });
}

#[test]
fn a_request_that_breaks_a_rule_is_answered_and_the_connection_goes_on() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, frame(1, 0, 1, &[("method", "m")], b"body"));
        hears(talk, client, "answer 1 1: Bad Request: request_invalid\n");
        talk.says(client, frame(1, 0, 2, &[("service", "health"), ("method", "check")], b""));
        hears(talk, client, "answer 2 2: resting\n");
    });
}

#[test]
fn bodies_and_calls_have_bounds() {
    let config = CONFIG
        .replace("routes: all }]", "routes: all, rpc: { body_max: 1KiB, requests_max: 2 } }]");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, call(1, "a", &"x".repeat(1_025)));
        hears(talk, client, "answer 1 1: Content Too Large: request_body_too_large\n");
        talk.says(client, [call(2, "b", ""), call(3, "c", ""), call(4, "d", "d")].concat());
        hears(talk, client, "answer 4 1: Too Many Requests: client_exchanges_overflow\n");
        let upstream = talk.upstream();
        talk.says(upstream, [answer(1, "B"), answer(3, "C")].concat());
        hears(talk, client, "answer 2 0: B\nanswer 3 0: C\n");
        // However many come together, each is answered, and those under way go on.
        let many = (5..20).map(|id| call(id, "e", "")).collect::<Vec<_>>().concat();
        talk.says(client, many);
        let heard = heard(talk, client);
        assert_eq!(heard.matches("Too Many Requests: client_exchanges_overflow").count(), 13);
        talk.says(upstream, [answer(5, "E"), answer(7, "F")].concat());
        hears(talk, client, "answer 5 0: E\nanswer 6 0: F\n");
    });
}

#[test]
fn calls_beyond_the_limit_wait_for_answers_that_their_client_does_not_take() {
    let config = CONFIG.replace("routes: all }]", "routes: all, rpc: { requests_max: 2 } }]");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, call(1, "large", ""));
        let upstream = talk.upstream();
        talk.heard_bytes(upstream);
        talk.takes(client, 100);
        talk.says(upstream, answer(1, &"x".repeat(100_000)));
        let many = (2..40).map(|id| call(id, "e", "")).collect::<Vec<_>>().concat();
        talk.says(client, many);
        assert!(!talk.is_closed(client));
        talk.takes(client, usize::MAX);
        let answers = heard(talk, client);
        assert!(!talk.is_closed(client), "{}", talk.log());
        let refused = answers.matches("Too Many Requests: client_exchanges_overflow").count();
        let asked = heard(talk, upstream).matches("call ").count();
        assert_eq!(refused + asked, 38, "{answers}");
    });
}

/// A call of Bolt with a time of its own, in ms.
fn bolt_call(id: u32, millis: u32, header: &[(&str, &str)]) -> Vec<u8> {
    let text =
        |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
    let header: Vec<_> =
        header.iter().flat_map(|(name, value)| [text(name), text(value)]).collect();
    let header = header.concat();
    let mut call = vec![1, 1, 0, 1, 1];
    call.extend(id.to_be_bytes());
    call.push(1);
    call.extend(millis.to_be_bytes());
    call.extend(1_u16.to_be_bytes());
    call.extend(u16::try_from(header.len()).unwrap().to_be_bytes());
    call.extend(0_u32.to_be_bytes());
    call.push(b'c');
    call.extend(header);
    call
}

#[test]
fn a_call_that_takes_longer_than_it_says_is_told_from_one_that_takes_longer_than_its_rule() {
    let rule = "prefix: / }, cluster: orders, timeout: 3s }";
    hold(&bolt().replace("prefix: / }, cluster: orders }", rule), |talk| {
        let client = talk.client();
        talk.says(client, bolt_call(1, 200, &[]));
        talk.upstream();
        talk.passes(Duration::from_millis(300));
        talk.says(client, bolt_call(2, 5_000, &[]));
        talk.passes(Duration::from_secs(4));
        let log = talk.log();
        assert!(log.contains("timeout of the call: 200ms, waiting for the response"), "{log}");
        assert!(log.contains("timeout of the rule: 3s, waiting for the response"), "{log}");
    });
}

/// Were a connection given up for each call that waited for a moment, one client could use up all that a cluster may have.
#[test]
fn calls_that_wait_for_a_moment_cost_no_connection() {
    hold(&bolt(), |talk| {
        if talk.variant() == Variant::Moving {
            // Each has a worker of its own for a while.
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, bolt_call(1, 60_000, &[]));
        let upstream = talk.upstream();
        for id in 2..10 {
            talk.says(client, bolt_call(id, 20, &[]));
            talk.passes(Duration::from_millis(100));
        }
        assert!(!talk.is_connecting());
        talk.passes(Duration::from_millis(200));
        talk.says(client, bolt_call(10, 20, &[]));
        talk.passes(Duration::from_millis(100));
        // Nothing came for a second.
        talk.says(client, bolt_call(11, 60_000, &[]));
        let second = talk.upstream();
        assert!(!talk.is_closed(upstream) && !talk.heard_bytes(second).is_empty());
    });
}

#[test]
fn a_header_with_a_key_twice_is_refused() {
    hold(&bolt(), |talk| {
        let client = talk.client();
        let many: Vec<_> = (0..40).map(|number| format!("k{number}")).collect();
        let mut many: Vec<_> = many.iter().map(|name| (&**name, "v")).collect();
        for header in [&[("app", "good"), ("App", "bad")][..], &many] {
            talk.says(client, bolt_call(1, 0, header));
        }
        let upstream = talk.upstream();
        assert!(!talk.heard_bytes(upstream).is_empty());
        many.push(("K7", "v"));
        talk.says(client, bolt_call(1, 0, &many));
        let log = talk.log();
        assert_eq!(log.matches("a key of the header occurs twice").count(), 2, "{log}");
        assert_eq!(talk.heard(upstream), "");
    });
}

#[test]
fn a_response_that_is_too_large_or_malformed_becomes_an_error_and_others_arrive() {
    let config = CONFIG
        .replace("protocol: pico, endpoints", "protocol: pico, rpc: { body_max: 1KiB }, endpoints");
    hold(&config, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, [call(1, "a", ""), call(2, "b", ""), call(3, "c", "")].concat());
        let upstream = talk.upstream();
        talk.heard_bytes(upstream);
        let all =
            [answer(1, &"x".repeat(2_000)), frame(3, 99, 3, &[], b"what"), answer(5, "C")].concat();
        talk.says(upstream, all);
        hears(
            talk,
            client,
            "answer 1 1: Bad Gateway: response_body_too_large\n\
             answer 2 1: Bad Gateway: response_invalid\n\
             answer 3 0: C\n",
        );
        // What is no frame at all ends the connection, for a cause of upstreams.
        talk.says(client, call(4, "d", ""));
        talk.heard_bytes(upstream);
        talk.says(upstream, [9; 12]);
        assert!(talk.is_closed(upstream));
        hears(talk, client, "answer 4 1: Bad Gateway: response_invalid\n");
        let ended = talk.counted("strait_upstream_connections_ended_total");
        assert_eq!(ended.get("response_invalid"), Some(&1), "{ended:?}");
    });
}

#[test]
fn a_response_that_breaks_off_is_an_error_for_its_client_alone() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, call(1, "a", ""));
        let upstream = talk.upstream();
        talk.says(upstream, &answer(1, "half of it")[..16]);
        talk.ends(upstream);
        hears(talk, client, "answer 1 1: Bad Gateway: response_truncated\n");
        talk.says(client, frame(1, 0, 2, &[("service", "health"), ("method", "check")], b""));
        hears(talk, client, "answer 2 2: resting\n");
    });
}

#[test]
fn a_client_that_vanishes_costs_the_upstream_connection_nothing() {
    hold(CONFIG, |talk| {
        let (gone, other) = (talk.client(), talk.client());
        talk.says(gone, call(1, "a", ""));
        let upstream = talk.upstream();
        talk.says(other, call(1, "b", ""));
        talk.heard_bytes(upstream);
        talk.ends(gone);
        talk.says(upstream, [answer(1, "too late"), answer(3, "B")].concat());
        hears(talk, other, "answer 1 0: B\n");
    });
}

#[test]
fn a_head_that_never_ends_has_a_time_and_a_bound() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, &call(1, "a", "")[..20]);
        talk.passes(Duration::from_secs(60));
        assert!(talk.is_closed(client));
        if talk.variant() == Variant::Plain {
            let client = talk.client();
            let mut long = frame(1, 0, 1, &[], b"");
            long[2..4].copy_from_slice(&[0xff, 0xff]);
            talk.says(client, [long, vec![b'x'; 61_000]].concat());
            talk.ends(client);
            let log = talk.log();
            assert!(log.contains("the head is too large"), "{log}");
        }
    });
}

#[test]
fn a_drain_lets_calls_end_and_closes_what_is_idle() {
    hold(CONFIG, |talk| {
        let (idle, busy) = (talk.client(), talk.client());
        talk.says(idle, frame(4, 0, 1, &[], b""));
        talk.heard_bytes(idle);
        talk.says(busy, call(1, "a", ""));
        let upstream = talk.upstream();
        talk.heard_bytes(upstream);
        talk.drains();
        talk.passes(Duration::from_secs(6));
        assert!(talk.is_shut(idle), "it has nothing under way");
        talk.ends(idle);
        talk.says(upstream, answer(1, "A"));
        hears(talk, busy, "answer 1 0: A\n");
        talk.passes(Duration::from_secs(1));
        assert!(talk.is_shut(busy), "what it had is answered");
        talk.ends(busy);
    });
}

#[test]
fn values_of_any_octets_break_no_line_of_the_log() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, frame(1, 0, 1, &[("service", "or\n\"ders"), ("method", "\r\n")], b""));
        hears(talk, client, "answer 1 3: Not Found: no_route\n");
        let log = talk.log();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("\"protocol\":\"RPC\""), "{log}");
    });
}

/// Calls of Bolt go to a service of Bolt.
pub(crate) fn bolt() -> String {
    CONFIG
        .replace("pico", "bolt")
        .replace("prefix: /orders/", "prefix: /")
        .replace("{ match: { path: /health/check }", "{ match: { path: /none }")
}

/// A call of Bolt, and its answer.
pub(crate) fn bolt_frames() -> Vec<Vec<u8>> {
    const BOLT: &str = include_str!("../../../wire/tests/rpc/bolt/v2-crc.hex");
    let lines = BOLT.lines().map(|line| line.split_once("> ").unwrap().1.trim());
    let octets = |hex: &str| {
        let places = (0..hex.len()).step_by(2);
        places.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    lines.map(octets).collect()
}

#[test]
fn checksums_of_bolt_arrive_intact_and_damage_stays_damage() {
    let frames = bolt_frames();
    let is_intact = |frame: &[u8]| {
        let (all, checksum) = frame.split_last_chunk::<4>().unwrap();
        let crc = all.iter().fold(u32::MAX, |crc, octet| {
            (0..8).fold(crc ^ u32::from(*octet), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
            })
        });
        !crc == u32::from_be_bytes(*checksum)
    };
    hold(&bolt(), |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, &frames[0]);
        let upstream = talk.upstream();
        let sent = talk.heard_bytes(upstream);
        assert!(is_intact(&sent), "{sent:x?}");
        talk.says(second, &frames[0]);
        let sent = talk.heard_bytes(upstream);
        assert!(is_intact(&sent) && sent[6..10] == [0, 0, 0, 3], "{sent:x?}");
        // The answer to the second: its number is 3.
        let mut damaged = frames[1].clone();
        damaged[9] = 3;
        talk.says(upstream, &damaged);
        let got = talk.heard_bytes(second);
        assert!(!is_intact(&got), "its checksum was of another number");
        talk.says(upstream, &frames[1]);
        assert_eq!(talk.heard_bytes(first), frames[1]);
    });
}

#[test]
fn a_one_way_call_goes_elsewhere_where_its_endpoint_refuses() {
    hold(&two_endpoints(""), |talk| {
        let client = talk.client();
        talk.says(client, one_way(1, "tell", "t"));
        let first = talk.connecting();
        assert_eq!(talk.log(), "", "it is not sent");
        talk.refuse(first);
        let second = talk.upstream();
        hears(talk, second, "one-way 1 0 service=orders method=tell: t\n");
        assert!(talk.log().contains("\"attempts\":2"));
    });
}

#[test]
fn a_long_call_goes_elsewhere_where_its_endpoint_refuses() {
    hold(&two_endpoints(""), |talk| {
        let client = talk.client();
        let request = call(1, "long", &"x".repeat(70_000));
        for piece in request.chunks(30_000) {
            talk.says(client, piece);
        }
        let first = talk.connecting();
        talk.refuse(first);
        let second = talk.upstream();
        hears(talk, second, "call 1 0 service=orders method=long: 70000 bytes\n");
        talk.says(second, answer(1, "ok"));
        hears(talk, client, "answer 1 0: ok\n");
    });
}

#[test]
fn a_connection_on_which_nothing_comes_gets_no_further_calls() {
    let config = CONFIG.replace("9000'] }", "9000'], timeouts: { response_head: 2s } }");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // What was heard elsewhere is not known.
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, call(1, "a", ""));
        let first = talk.upstream();
        talk.heard_bytes(first);
        talk.passes(Duration::from_secs(3));
        hears(talk, client, "answer 1 1: Gateway Timeout: response_head_timeout\n");
        talk.says(client, call(2, "b", ""));
        let second = talk.upstream();
        hears(talk, second, "call 1 0 service=orders method=b: \n");
        talk.says(second, answer(1, "B"));
        hears(talk, client, "answer 2 0: B\n");
    });
}

#[test]
fn a_connection_that_answers_others_is_kept_where_one_call_takes_too_long() {
    let config = CONFIG.replace("9000'] }", "9000'], timeouts: { response_head: 2s } }");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, [call(1, "slow", ""), call(2, "quick", "")].concat());
        let upstream = talk.upstream();
        talk.heard_bytes(upstream);
        talk.says(upstream, answer(3, "q"));
        hears(talk, client, "answer 2 0: q\n");
        talk.passes(Duration::from_secs(3));
        hears(talk, client, "answer 1 1: Gateway Timeout: response_head_timeout\n");
        talk.says(client, call(3, "next", ""));
        hears(talk, upstream, "call 5 0 service=orders method=next: \n");
        talk.says(upstream, answer(5, "n"));
        hears(talk, client, "answer 3 0: n\n");
    });
}

#[test]
fn heartbeats_keep_a_connection() {
    let config = CONFIG.replace("routes: all }]", "routes: all, timeouts: { idle: 10s } }]");
    hold(&config, |talk| {
        let client = talk.client();
        for number in 0..5 {
            talk.passes(Duration::from_secs(7));
            talk.says(client, frame(4, 0, number, &[], b""));
            hears(talk, client, &format!("alive {number} 0: \n"));
        }
        talk.passes(Duration::from_secs(12));
        assert!(talk.is_shut(client) || talk.is_closed(client));
        talk.ends(client);
    });
}

#[test]
fn what_is_asked_of_a_connection_about_to_end_is_answered_so() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, call(1, "a", ""));
        let upstream = talk.upstream();
        talk.heard_bytes(upstream);
        talk.drains();
        talk.passes(Duration::from_secs(6));
        talk.says(client, call(2, "b", ""));
        hears(talk, client, "answer 2 2: Service Unavailable: drain_timeout\n");
        talk.says(upstream, answer(1, "A"));
        hears(talk, client, "answer 1 0: A\n");
        assert!(talk.is_shut(client) || talk.is_closed(client));
        talk.ends(client);
    });
}

#[test]
fn a_client_that_takes_its_answers_below_the_least_rate_is_ended_and_one_at_it_is_not() {
    let config = CONFIG.replace(
        "routes: all }]",
        "routes: all, http: { response_rate_min: 10B }, timeouts: { response_write: 3s } }]",
    );
    hold(&config, |talk| {
        for (bytes, is_ended) in [(5, true), (10, false)] {
            let client = talk.client();
            talk.takes(client, 100);
            talk.says(client, call(1, "long", ""));
            let upstream = talk.upstream();
            talk.says(upstream, answer(1, &"x".repeat(10_000)));
            let mut seconds = 0;
            while seconds < 20 && !talk.is_closed(client) {
                talk.passes(Duration::from_secs(1));
                talk.takes(client, bytes);
                seconds += 1;
            }
            assert_eq!(talk.is_closed(client), is_ended, "{bytes} bytes a second");
            if is_ended {
                // 3 s, and what 5 bytes a second earn meanwhile.
                assert!((5..8).contains(&seconds), "{seconds} s");
            } else {
                talk.takes(client, usize::MAX);
            }
            talk.ends(upstream);
        }
    });
}

#[test]
fn a_body_that_is_not_read_has_the_time_of_a_head() {
    let config = CONFIG.replace(
        "routes: all }]",
        "routes: all, rpc: { body_max: 1KiB }, timeouts: { request_head: 5s } }]",
    );
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, &call(1, "a", &"x".repeat(100_000))[..100]);
        hears(talk, client, "answer 1 1: Content Too Large: request_body_too_large\n");
        for _ in 0..4 {
            talk.passes(Duration::from_secs(2));
            talk.says(client, "xx");
        }
        assert!(talk.is_closed(client));
    });
}

/// A listener that detects Pico beside HTTP.
const DETECTING: &str = "
listeners:
  - name: all
    address: '127.0.0.1:8080'
    routes: web
    chains: [{ name: calls, match: { protocols: [pico] }, protocol: pico, routes: calls }]
routes:
  - { name: web, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }
  - { name: calls, rules: [{ match: { prefix: /orders/ }, cluster: orders }] }
clusters: [{ name: orders, protocol: pico, endpoints: ['127.0.0.1:9000'] }]
";

#[test]
fn calls_and_http_come_through_one_listener() {
    hold(DETECTING, |talk| {
        talk.keeps_counts();
        let (caller, browser) = (talk.client(), talk.client());
        let request = call(7, "pay", "12 EUR");
        talk.says(caller, &request[..FIXED_BYTES - 1]);
        talk.says(browser, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        talk.hears_about(browser, "HTTP/1.1 204 ", &["connection: close"]);
        talk.says(caller, &request[FIXED_BYTES - 1..]);
        let upstream = talk.upstream();
        hears(talk, upstream, "call 1 0 service=orders method=pay: 12 EUR\n");
        talk.says(upstream, answer(1, "done"));
        hears(talk, caller, "answer 7 0: done\n");
        let counted = talk.counted("strait_downstream_connections_detected_total");
        let of = |word: &str| counted.get(word).copied();
        assert_eq!((of("all rpc"), of("all http1")), (Some(1), Some(1)), "{counted:?}");
    });
}

#[test]
fn a_call_that_has_begun_is_one_however_late_it_goes_on() {
    hold(DETECTING, |talk| {
        let caller = talk.client();
        let request = call(7, "pay", "12 EUR");
        talk.says(caller, &request[..4]);
        talk.passes(Duration::from_secs(1));
        talk.says(caller, &request[4..]);
        let upstream = talk.upstream();
        hears(talk, upstream, "call 1 0 service=orders method=pay: 12 EUR\n");
    });
}

#[test]
fn what_only_a_server_sends_is_not_detected_as_a_call() {
    hold(DETECTING, |talk| {
        let client = talk.client();
        talk.says(client, answer(1, "done"));
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 400 ", &[]);
    });
}

#[test]
fn calls_are_copied_to_a_cluster_of_their_protocol_and_to_no_other() {
    let config = CONFIG.replace(
        "cluster: orders }\nclusters: [",
        "cluster: orders, mirror: [{ cluster: shadow }] }\nclusters: [\
         { name: shadow, protocol: pico, endpoints: ['127.0.0.1:9100'] }, ",
    );
    hold(&config, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, [one_way(3, "tell", "t"), call(7, "ask", "a")].concat());
        let (one, other) = (talk.upstream(), talk.upstream());
        let received =
            "one-way 1 0 service=orders method=tell: t\ncall 3 0 service=orders method=ask: a\n";
        for peer in [one, other] {
            hears(talk, peer, received);
        }
        let is_shadow = talk.address(one).to_string().ends_with(":9100");
        let (upstream, shadow) = if is_shadow { (other, one) } else { (one, other) };
        talk.says(shadow, answer(3, "another"));
        hears(talk, client, "");
        talk.says(upstream, answer(3, "A"));
        hears(talk, client, "answer 7 0: A\n");
        let sent = talk.counted("strait_upstream_mirrored_total");
        assert_eq!(sent.values().sum::<u64>(), 2, "{sent:?}");
    });
}
