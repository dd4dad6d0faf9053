//! Details of a failure in the access log, from a peer or the kernel.

use std::time::Duration;

use proxy::save::RestoreError;
use wire::h2::ErrorCode;

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// GOAWAY behind stream `last` (RFC 9113, section 6.8).
fn goaway(last: u32, code: ErrorCode, text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(8 + text.len()).unwrap().to_be_bytes();
    let header = [&length[1..], &[7, 0, 0, 0, 0, 0]].concat();
    [&header[..], &last.to_be_bytes(), &code.0.to_be_bytes(), text].concat()
}

/// A client that has asked for something, and the upstream of HTTP/2 that was asked.
fn asked(talk: &mut Talk<'_>) -> (Peer, Speaker) {
    let client = talk.client();
    talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    let mut upstream = Speaker::upstream(talk);
    upstream.hears(talk);
    (client, upstream)
}

/// Cause and detail of the only line of the log, as JSON has them.
fn logged(talk: &mut Talk<'_>) -> (String, Option<String>) {
    let line = talk.log();
    assert_eq!(line.lines().count(), 1, "{line}");
    let text = |key: &str| {
        let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
        Some(rest.split('"').next().unwrap_or_default().to_owned())
    };
    (text("cause").unwrap_or_default(), text("cause_detail"))
}

/// As [`is_logged`], of what may have been refused before all of it came.
fn is_logged_as_far(talk: &mut Talk<'_>, cause: &str, detail: &str) {
    let is_whole = talk.variant() != Variant::ByteByByte;
    let (found_cause, found) = logged(talk);
    let found = found.unwrap_or_default();
    let is_beginning = !is_whole && detail.starts_with(&found);
    let is_known_later = !is_whole && found.starts_with("the upstream does not speak HTTP/1: ");
    assert_eq!(found_cause, cause);
    assert!(found == detail || is_beginning || is_known_later, "{found} instead of {detail}");
}

fn is_logged(talk: &mut Talk<'_>, cause: &str, detail: &str) {
    assert_eq!(logged(talk), (cause.to_owned(), Some(detail.to_owned())));
}

#[test]
fn an_upstream_that_goes_away_and_closes_says_why() {
    hold(TO_HTTP2, |talk| {
        let (client, upstream) = asked(talk);
        let first = goaway((1 << 31) - 1, ErrorCode::NO_ERROR, b"soon");
        talk.says(upstream.peer, first);
        let last = goaway(1, ErrorCode::ENHANCE_YOUR_CALM, b"too_many_pings");
        talk.says(upstream.peer, last);
        talk.ends(upstream.peer);
        assert!(talk.heard(client).starts_with("HTTP/1.1 502 "));
        is_logged(talk, "upstream_closed", "ENHANCE_YOUR_CALM: too_many_pings");
    });
}

#[test]
fn a_response_that_breaks_off_behind_a_goaway_says_why() {
    hold(TO_HTTP2, |talk| {
        let (client, mut upstream) = asked(talk);
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", false);
        upstream.sends(talk, 1, b"half", false);
        talk.says(upstream.peer, goaway(1, ErrorCode::INTERNAL_ERROR, b""));
        talk.breaks(upstream.peer);
        assert!(talk.heard(client).ends_with("half"));
        is_logged(talk, "response_truncated", "INTERNAL_ERROR");
    });
}

#[test]
fn the_text_of_a_goaway_is_cut_and_escaped() {
    hold(TO_HTTP2, |talk| {
        let (client, upstream) = asked(talk);
        let text = [&b"\"\n\xff"[..], &[b'x'; 1_000]].concat();
        talk.says(upstream.peer, goaway(1, ErrorCode(0x1f), &text));
        talk.ends(upstream.peer);
        talk.heard(client);
        let detail = format!("0x1f: \\u0022\\u000a\\\\xff{}", "x".repeat(125));
        is_logged(talk, "upstream_closed", &detail);
    });
}

#[test]
fn a_request_that_succeeds_elsewhere_has_no_detail() {
    hold(TO_HTTP2, |talk| {
        let (client, upstream) = asked(talk);
        talk.says(upstream.peer, goaway(0, ErrorCode::ENHANCE_YOUR_CALM, b"busy"));
        let mut other = Speaker::upstream(talk);
        other.hears(talk);
        other.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(logged(talk), (String::new(), None));
    });
}

#[test]
fn a_reset_has_its_code() {
    hold(TO_HTTP2, |talk| {
        let (client, mut upstream) = asked(talk);
        upstream.resets(talk, 1, ErrorCode::INTERNAL_ERROR);
        assert!(talk.heard(client).starts_with("HTTP/1.1 502 "));
        is_logged(talk, "stream_reset", "INTERNAL_ERROR");
    });
}

#[test]
fn a_detail_stays_while_its_reply_waits_for_the_client() {
    hold(TO_HTTP2, |talk| {
        let (client, mut upstream) = asked(talk);
        talk.takes(client, 9);
        upstream.resets(talk, 1, ErrorCode::INTERNAL_ERROR);
        assert_eq!(talk.heard(client), "HTTP/1.1 ");
        talk.takes(client, usize::MAX);
        talk.passes(Duration::from_millis(1));
        assert!(talk.heard(client).starts_with("502 "));
        is_logged(talk, "stream_reset", "INTERNAL_ERROR");
    });
}

#[test]
fn a_broken_connection_of_http2_has_the_rule_that_was_broken() {
    hold(TO_HTTP2, |talk| {
        let (client, upstream) = asked(talk);
        // A PING of one octet.
        talk.says(upstream.peer, [0, 0, 1, 6, 0, 0, 0, 0, 0, 7]);
        assert!(talk.heard(client).starts_with("HTTP/1.1 502 "));
        let detail = "a frame whose length is not that of its type";
        is_logged(talk, "response_invalid", detail);
    });
}

#[test]
fn a_refused_connection_has_the_kernels_error() {
    for config in [CONFIG, &TO_HTTP2.replace(", '127.0.0.1:9001'", "")] {
        hold(config, |talk| {
            talk.keeps_counts();
            let client = talk.client();
            talk.says(client, GET);
            while talk.is_connecting() {
                let upstream = talk.connecting();
                talk.refuse(upstream);
            }
            assert!(talk.heard(client).starts_with("HTTP/1.1 503 "));
            is_logged(talk, "connect_failed", "ECONNREFUSED");
            let reasons = talk.counted("strait_upstream_connect_failure_reasons_total");
            assert_eq!(reasons.len(), 1, "{reasons:?}");
            assert!(reasons.keys().all(|labels| labels.ends_with(" ECONNREFUSED")), "{reasons:?}");
        });
    }
}

#[test]
fn an_invalid_head_has_the_rule_that_it_breaks() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n");
        let heard = talk.heard(client);
        assert!(heard.starts_with("HTTP/1.1 502 "));
        let detail = "a content length that is not a number in range: Content-Length: x";
        is_logged(talk, "response_invalid", detail);
        assert!(!heard.contains(detail), "that is for the log alone: {heard}");
    });
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n");
        assert!(talk.heard(client).starts_with("HTTP/1.1 400 "));
        let detail = "a content length that is not a number in range: Content-Length: x";
        is_logged(talk, "request_framing_invalid", detail);
    });
}

/// A client that has asked for something, and the upstream of HTTP/1 that was asked.
fn asked_in_http1(talk: &mut Talk<'_>) -> (Peer, Peer) {
    let client = talk.client();
    talk.says(client, GET);
    let upstream = talk.upstream();
    talk.hears(upstream, GET);
    (client, upstream)
}

#[test]
fn a_wait_that_is_over_has_its_option_and_value() {
    hold(CONFIG, |talk| {
        let (_client, _upstream) = asked_in_http1(talk);
        talk.passes(Duration::from_secs(61));
        is_logged(talk, "response_head_timeout", "timeouts.response_head of the cluster: 60s");
    });
    hold(CONFIG, |talk| {
        let (_client, upstream) = asked_in_http1(talk);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        talk.passes(Duration::from_secs(61));
        is_logged(talk, "response_body_timeout", "timeouts.response_body of the cluster: 60s");
    });
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHo");
        talk.passes(Duration::from_secs(11));
        is_logged(talk, "request_head_timeout", "timeouts.request_head of the listener: 10s");
    });
    for config in [CONFIG, TO_HTTP2] {
        hold(config, |talk| {
            talk.keeps_counts();
            let client = talk.client();
            talk.says(client, GET);
            while talk.is_connecting() {
                talk.connecting();
                talk.passes(Duration::from_secs(6));
            }
            assert!(talk.heard(client).starts_with("HTTP/1.1 503 "));
            is_logged(talk, "connect_timeout", "connect_timeout of the cluster: 5s");
            let reasons = talk.counted("strait_upstream_connect_failure_reasons_total");
            assert!(reasons.keys().all(|labels| labels.ends_with(" timeout")), "{reasons:?}");
            assert!(!reasons.is_empty());
        });
    }
    let bounded = CONFIG.replace("cluster: web }", "cluster: web, timeout: 2s }");
    hold(&bounded, |talk| {
        let (_client, _upstream) = asked_in_http1(talk);
        talk.passes(Duration::from_secs(3));
        is_logged(talk, "request_timeout", "timeout of the rule: 2s, waiting for the response");
    });
}

#[test]
fn an_upstream_that_closes_did_so_with_fin_or_an_error() {
    for (is_reset, before, detail) in [
        (false, "", "FIN"),
        (true, "", "ECONNRESET"),
        (false, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "FIN"),
        (true, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "ECONNRESET"),
    ] {
        hold(CONFIG, |talk| {
            let client = talk.client();
            talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            let upstream = talk.upstream();
            talk.says(upstream, before);
            match is_reset {
                true => talk.breaks(upstream),
                false => talk.ends(upstream),
            }
            talk.heard(client);
            let cause = if before.is_empty() { "upstream_closed" } else { "response_truncated" };
            is_logged(talk, cause, detail);
        });
    }
    hold(TO_HTTP2, |talk| {
        let (client, upstream) = asked(talk);
        talk.breaks(upstream.peer);
        talk.heard(client);
        is_logged(talk, "upstream_closed", "ECONNRESET");
    });
}

#[test]
fn an_upstream_that_closes_a_connection_which_it_kept_is_known_by_that() {
    hold(CONFIG, |talk| {
        let (client, upstream) = asked_in_http1(talk);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.heard(client);
        talk.forgets_log();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        talk.ends(upstream);
        assert!(talk.heard(client).starts_with("HTTP/1.1 502 "));
        is_logged(talk, "upstream_closed", "FIN, on a connection that was used before");
    });
}

#[test]
fn an_upstream_that_speaks_something_else_is_known_by_its_first_octets() {
    for (first, detail) in [
        ("\0\0\u{6}\u{4}\0\0\0\0\0\0\u{3}\0\0\0\u{1}", "the upstream speaks HTTP/2"),
        ("\u{15}\u{3}\u{1}\0\u{2}\u{2}\u{46}", "the upstream speaks TLS"),
        ("SSH-2.0-x\r\n", "the upstream does not speak HTTP/1: SSH-2.0-x\\u000d\\u000a"),
    ] {
        hold(CONFIG, |talk| {
            let (client, upstream) = asked_in_http1(talk);
            talk.says(upstream, first);
            assert!(talk.heard(client).starts_with("HTTP/1.1 502 "));
            is_logged_as_far(talk, "response_invalid", detail);
        });
    }
    for (first, detail) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "the upstream speaks HTTP/1"),
        ("\u{15}\u{3}\u{1}\0\u{2}\u{2}\u{46}\0\0", "the upstream speaks TLS"),
    ] {
        hold(TO_HTTP2, |talk| {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            talk.says(upstream, first);
            assert!(talk.heard(client).starts_with("HTTP/1.1 502 "));
            is_logged(talk, "response_invalid", detail);
        });
    }
}

#[test]
fn a_refused_request_has_the_octets_that_are_wrong() {
    for (request, cause, detail) in [
        (
            "G@T / HTTP/1.1\r\n\r\n",
            "request_invalid",
            "a method that is not a token: G@T / HTTP/1.1",
        ),
        (
            "GET / HTTP/1.1\r\nHost: x\r\na : b\r\n\r\n",
            "request_invalid",
            "white space before a colon: a : b",
        ),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nCookie: a\u{1}\r\n\r\n",
            "request_invalid",
            "a control octet in a field value: Cookie",
        ),
    ] {
        hold(CONFIG, |talk| {
            let client = talk.client();
            talk.says(client, request);
            talk.heard(client);
            is_logged_as_far(talk, cause, detail);
        });
    }
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        talk.upstream();
        talk.says(client, "xyz\r\n");
        talk.heard(client);
        let detail = "a chunk's size is not a number in range: xyz";
        is_logged_as_far(talk, "request_body_invalid", detail);
    });
}

#[test]
fn a_saved_form_without_details_is_refused() {
    hold(CONFIG, |talk| {
        let restored = talk.restores(&7_u16.to_be_bytes());
        assert_eq!(restored, Err(RestoreError::Version(7)));
    });
}

#[test]
fn what_the_configuration_lacks_or_bounds_is_said() {
    let with = |from: &str, to: &str| CONFIG.replace(from, to);
    let none = with("endpoints: ['127.0.0.1:9000']", "endpoints: []");
    let idle = with("['127.0.0.1:9000']", "[{ address: 127.0.0.1:9000, weight: 0 }]");
    let of_units =
        "[{ address: 127.0.0.1:9000, metadata: { unit: a } }]\n    subsets: { by: [[unit]] }";
    let unasked = with("['127.0.0.1:9000']", of_units);
    let apart = unasked.replace("cluster: web }", "cluster: web, subset: { unit: b } }");
    let own = CONFIG.to_owned();
    let small = with("request_id: false", "request_id: false, body_max: 1KiB");
    for (config, ask, cause, detail) in [
        (&none, GET, "no_endpoint", "the cluster lists no endpoint"),
        (&idle, GET, "no_endpoint", "every endpoint of the cluster has weight 0"),
        (
            &apart,
            GET,
            "no_endpoint",
            "no endpoint is in the subset that the rule asks for, and subsets.fallback of the cluster is none",
        ),
        (
            &unasked,
            GET,
            "no_endpoint",
            "the rule asks for no subset, and subsets.fallback of the cluster is none",
        ),
        (
            &small,
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n",
            "request_body_too_large",
            "http.body_max of the listener: 1024 bytes",
        ),
        (
            &own,
            "GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n",
            "request_expectation_unknown",
            "expect: tea",
        ),
        (
            &own,
            "TRACE / HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n",
            "request_not_implemented",
            "TRACE is not answered: it would show credentials to scripts",
        ),
        (
            &own,
            "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n",
            "request_not_implemented",
            "no rule of route table all has connect in its upgrades",
        ),
    ] {
        hold(config, |talk| {
            let client = talk.client();
            talk.says(client, ask);
            talk.heard(client);
            is_logged(talk, cause, detail);
        });
    }
    let full = with("    endpoints:", "    connections_max: 1\n    pending_max: 0\n    endpoints:");
    hold(&full, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.says(second, GET);
        talk.heard(second);
        is_logged(
            talk,
            "pending_overflow",
            "connections_max of the cluster: 1, and pending_max: 0",
        );
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.heard(first);
    });
}

#[test]
fn a_timeout_of_the_whole_says_what_it_waited_for() {
    let config = CONFIG.replace("cluster: web }", "cluster: web, timeout: 2s }");
    for (until, waits_for) in [
        (0, "the connection or its TLS handshake"),
        (1, "the request's body"),
        (2, "the response"),
        (3, "the end of the response"),
    ] {
        hold(&config, |talk| {
            let client = talk.client();
            talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
            let upstream = talk.connecting();
            if until > 0 {
                talk.establish(upstream);
                talk.heard(upstream);
            }
            if until > 1 {
                talk.says(client, "body");
            }
            if until > 2 {
                talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
            }
            talk.passes(Duration::from_secs(3));
            talk.heard(client);
            is_logged(
                talk,
                "request_timeout",
                &format!("timeout of the rule: 2s, waiting for {waits_for}"),
            );
        });
    }
}

#[test]
fn a_client_that_goes_away_leaves_how() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        talk.upstream();
        talk.breaks(client);
        is_logged(talk, "downstream_closed", "ECONNRESET");
    });
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
        talk.upstream();
        talk.ends(client);
        is_logged(talk, "downstream_closed", "FIN before the end of the request");
    });
    hold(TO_HTTP2, |talk| {
        let mut client = Speaker::client(talk);
        client.gets(talk, "/");
        Speaker::upstream(talk).hears(talk);
        talk.ends(client.peer);
        is_logged(talk, "downstream_closed", "FIN");
    });
}
