//! `hedge` of a rule: two attempts of one request at a time.

use std::time::Duration;

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const OTHER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";

/// Longer than `try_timeout`.
const TOO_LONG: Duration = Duration::from_millis(510);

const RETRY: &str = "{ on: [5xx], try_timeout: 500ms, attempts_max: 3 }";

fn config(retry: &str) -> String {
    CONFIG
        .replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002']")
        .replace(
            "cluster: web }]",
            &format!("cluster: web, retry: {retry}, hedge: {{ after: try_timeout }} }}]"),
        )
}

/// A client has asked, and its attempt takes too long: the client, and both upstreams.
fn begun(talk: &mut Talk<'_>, request: &str) -> (Peer, Peer, Peer) {
    let client = talk.client();
    talk.says(client, request);
    let first = talk.upstream();
    talk.hears(first, request);
    talk.passes(TOO_LONG);
    let second = talk.upstream();
    assert_ne!(talk.address(first), talk.address(second));
    talk.hears(second, request);
    assert!(!talk.is_closed(first), "it goes on");
    (client, first, second)
}

#[test]
fn the_first_of_two_attempts_that_responds_is_the_one() {
    for is_first in [true, false] {
        hold(&config(RETRY), |talk| {
            talk.keeps_counts();
            let (client, first, second) = begun(talk, GET);
            let (faster, slower) = if is_first { (first, second) } else { (second, first) };
            talk.says(faster, OK);
            talk.hears(client, OK);
            assert!(talk.is_closed(slower), "it is cancelled");
            assert!(!talk.is_closed(faster), "it is kept");
            let address = talk.address(faster).to_string();
            // The connection that was faster goes on as any other, and so does the client's.
            talk.says(client, GET);
            let next = if talk.is_connecting() { talk.upstream() } else { faster };
            talk.says(next, OTHER);
            talk.hears(client, OTHER);
            let retried = talk.counted("strait_upstream_retries_total");
            assert_eq!(retried.get("web try_timeout"), Some(&1), "{retried:?}");
            let count = |talk: &mut Talk<'_>, name| talk.counted(name).get("web").copied();
            assert_eq!(count(talk, "strait_upstream_hedges_total"), Some(1));
            assert_eq!(count(talk, "strait_upstream_hedges_won_total"), (!is_first).then_some(1));
            let log = talk.log();
            assert!(log.contains("\"attempts\":2"), "{log}");
            assert!(log.contains(" try_timeout\""), "{log}");
            assert!(log.contains(&format!("\"endpoint\":\"{address}\"")), "{log}");
        });
    }
}

#[test]
fn a_request_asks_for_a_second_attempt_or_for_none_where_its_listener_trusts_it() {
    let trusting = |config: &str, is_trusting: bool| {
        config.replace(
            "request_id: false",
            &format!("request_id: false, trust_retries: {is_trusting}"),
        )
    };
    let with_hedge = config(RETRY);
    let without = with_hedge.replace(", hedge: { after: try_timeout }", "");
    for (config, is_trusting, asked, is_hedged) in [
        (&without, true, "true", true),
        (&without, false, "true", false),
        (&without, true, "1", false),
        (&with_hedge, true, "false", false),
        (&with_hedge, false, "false", true),
        (&with_hedge, true, "False", true),
    ] {
        hold(&trusting(config, is_trusting), |talk| {
            if talk.variant() == Variant::Moving {
                // What a request asks for in this does not move.
                return talk.leave_out();
            }
            let client = talk.client();
            let field = format!("\r\nX-Envoy-Hedge-On-Per-Try-Timeout: {asked}\r\n\r\n");
            talk.says(client, GET.replace("\r\n\r\n", &field));
            let first = talk.upstream();
            talk.hears(first, GET);
            talk.passes(TOO_LONG);
            assert_eq!(talk.is_closed(first), !is_hedged, "{is_trusting} {asked}");
            // The pause before a retry.
            talk.passes(Duration::from_millis(100));
            let second = talk.upstream();
            talk.hears(second, GET);
        });
    }
}

#[test]
fn the_log_has_the_times_of_the_attempt_that_responded() {
    for (is_first, stages) in [
        (
            true,
            ["\"duration_us\":610000.0", "\"duration_us\":610000.0,\"first_byte_us\":610000.0}"],
        ),
        (false, ["\"duration_us\":610000.0,\"retries_us\":50", "\"first_byte_us\":100000.0}"]),
    ] {
        hold(&config(RETRY), |talk| {
            let (client, first, second) = begun(talk, GET);
            talk.passes(Duration::from_millis(100));
            talk.says(if is_first { first } else { second }, OK);
            talk.hears(client, OK);
            let log = talk.log();
            assert!(stages.iter().all(|stages| log.contains(stages)), "{log}");
        });
    }
}

#[test]
fn a_body_is_sent_to_both() {
    let put = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata";
    hold(&config(RETRY), |talk| {
        let (client, first, second) = begun(talk, put);
        talk.says(first, OTHER);
        talk.hears(client, OTHER);
        assert!(talk.is_closed(second));
    });
}

#[test]
fn a_response_that_is_repeated_leaves_the_other_attempt() {
    // The earlier attempt fails, and the later one has the response.
    hold(&config(RETRY), |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.says(first, UNAVAILABLE);
        talk.hears(client, "");
        talk.says(second, OK);
        talk.hears(client, OK);
    });
    // The other way: with no attempt left, the earlier one is waited for.
    hold(&config(&RETRY.replace("max: 3", "max: 2")), |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.says(second, UNAVAILABLE);
        talk.hears(client, "");
        assert!(talk.is_closed(second));
        talk.passes(TOO_LONG);
        talk.says(first, OK);
        talk.hears(client, OK);
        let log = talk.log();
        assert!(log.contains(" response_retried\""), "{log}");
    });
    // With one left, three endpoints are asked, two at a time.
    hold(&config(RETRY), |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.says(second, UNAVAILABLE);
        talk.passes(Duration::from_millis(100));
        let third = talk.upstream();
        talk.hears(third, GET);
        talk.says(third, OK);
        talk.hears(client, OK);
        assert!(talk.is_closed(first));
    });
}

#[test]
fn where_both_fail_the_client_has_the_reason_of_the_last() {
    let retry = RETRY.replace("max: 3", "max: 2");
    hold(&config(&retry), |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.ends(second);
        talk.hears(client, "");
        talk.ends(first);
        talk.hears_about(client, "HTTP/1.1 502 ", &[": upstream_closed\n"]);
    });
    hold(&config(&retry), |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.ends(first);
        talk.hears(client, "");
        talk.ends(second);
        talk.hears_about(client, "HTTP/1.1 502 ", &[": upstream_closed\n"]);
    });
}

#[test]
fn of_two_attempts_the_later_one_ends_at_its_timeout() {
    hold(&config(RETRY), |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.passes(TOO_LONG);
        assert!(talk.is_closed(second), "there are no more than two");
        talk.passes(Duration::from_millis(100));
        let third = talk.upstream();
        talk.passes(TOO_LONG);
        assert!(talk.is_closed(third), "and no more than three in all");
        assert!(!talk.is_closed(first));
        talk.says(first, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn what_ends_the_request_ends_both() {
    hold(&config(RETRY), |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.breaks(client);
        assert!(talk.is_closed(first) && talk.is_closed(second));
    });
    let config = config(RETRY).replace("cluster: web,", "cluster: web, timeout: 1s,");
    hold(&config, |talk| {
        let (client, first, second) = begun(talk, GET);
        talk.passes(TOO_LONG);
        talk.hears_about(client, "HTTP/1.1 504 ", &[": request_timeout\n"]);
        assert!(talk.is_closed(first) && talk.is_closed(second));
    });
}

#[test]
fn what_may_not_be_sent_twice_waits_for_its_response() {
    let post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata";
    for retry in [RETRY, "{ on: [reset], try_timeout: 500ms, body_max: 2B, methods: any }"] {
        hold(&config(retry), |talk| {
            let client = talk.client();
            talk.says(client, post);
            let upstream = talk.upstream();
            talk.hears(upstream, post);
            talk.passes(TOO_LONG);
            talk.passes(TOO_LONG);
            talk.says(upstream, OK);
            talk.hears(client, OK);
        });
    }
}

#[test]
fn a_later_attempt_without_a_connection_leaves_the_earlier_one() {
    let config = config(RETRY)
        .replace("endpoints: [", "connections_max: 1\n    pending_max: 0\n    endpoints: [");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.passes(TOO_LONG);
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

/// While two attempts are under way, the connections of a request stay where they are.
#[test]
fn the_first_of_two_attempts_wins_where_connections_move() {
    hold(&config(RETRY), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.hears(first, GET);
        talk.passes(TOO_LONG);
        let second = talk.upstream();
        talk.hears(second, GET);
        talk.says(first, OK);
        talk.hears(client, OK);
        talk.says(client, GET);
        let again = talk.upstream();
        talk.hears(again, GET);
        talk.says(again, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn streams_of_http2_are_attempts_like_connections() {
    let config = TO_HTTP2.replace(
        "upgrades: [websocket] }",
        &format!("retry: {RETRY}, hedge: {{ after: try_timeout }} }}"),
    );
    for is_first in [true, false] {
        hold(&config, |talk| {
            let client = talk.client();
            talk.says(client, GET);
            let mut first = Speaker::upstream(talk);
            let of_first = first.hears(talk);
            assert!(of_first.contains("GET"), "{of_first}");
            talk.passes(TOO_LONG);
            let mut second = Speaker::upstream(talk);
            assert!(second.hears(talk).contains("GET"));
            let (faster, slower) =
                if is_first { (&mut first, &mut second) } else { (&mut second, &mut first) };
            faster.answers(talk, 1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false);
            faster.sends(talk, 1, b"hi", true);
            let response = talk.heard(client);
            assert!(response.ends_with("hi"), "{response}");
            let heard = slower.hears(talk);
            assert!(heard.contains("CANCEL"), "{heard}");
        });
    }
}
