//! `retry` of a rule: what is sent again because it says so.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
const EMPTY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// Longer than the longest pause before the second attempt, by what timers are late.
const PAUSE: Duration = Duration::from_millis(40);

fn config(retry: &str) -> String {
    CONFIG
        .replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']")
        .replace("cluster: web }]", &format!("cluster: web, retry: {retry} }}]"))
}

fn to_one(retry: &str) -> String {
    config(retry).replace(", '127.0.0.1:9001'", "")
}

/// The next attempt, after its pause.
fn next(talk: &mut Talk<'_>) -> Peer {
    talk.passes(PAUSE);
    talk.upstream()
}

#[test]
fn a_response_that_the_rule_names_is_replaced_by_that_of_another_endpoint() {
    hold(&config("{ on: [gateway_error] }"), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.hears(first, GET);
        talk.says(first, UNAVAILABLE);
        talk.hears(client, "");
        assert!(talk.is_closed(first), "its body is not read");
        let second = next(talk);
        assert_ne!(talk.address(first), talk.address(second));
        talk.hears(second, GET);
        talk.says(second, OK);
        talk.hears(client, OK);
        let retried = talk.counted("strait_upstream_retries_total");
        assert_eq!(retried.get("web response_retried"), Some(&1), "{retried:?}");
        let log = talk.log();
        assert!(log.contains("\"attempts\":2"), "{log}");
        assert!(log.contains(":900"), "{log}");
        assert!(log.contains(" response_retried\""), "{log}");
        assert!(log.contains("\"status\":200"), "{log}");
    });
}

#[test]
fn a_response_with_a_field_that_the_rule_names_is_replaced_whatever_its_status_is() {
    for status in ["200 OK", "302 Found", "404 Not Found", "503 Service Unavailable"] {
        hold(&config("{ on: [retriable_headers], headers: [x-again] }"), |talk| {
            let client = talk.client();
            talk.says(client, GET);
            let first = talk.upstream();
            talk.hears(first, GET);
            let busy = format!("HTTP/1.1 {status}\r\nX-Again: 1\r\nContent-Length: 5\r\n\r\n");
            talk.says(first, &busy);
            talk.says(first, "again");
            let second = next(talk);
            talk.hears(second, GET);
            // Without the field, it goes to the client.
            let last = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
            talk.says(second, &last);
            talk.hears(client, &last);
        });
    }
}

#[test]
fn what_the_rule_does_not_name_goes_to_the_client() {
    hold(&config("{ on: [gateway_error, reset] }"), |talk| {
        for status in ["500 Internal Server Error", "404 Not Found", "429 Too Many Requests"] {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            let response =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            talk.says(upstream, response);
            talk.hears_about(client, &format!("HTTP/1.1 {status}\r\n"), &[]);
        }
    });
}

#[test]
fn a_connection_whose_response_is_whole_is_used_again() {
    hold(&to_one("{ on: [retriable_status], status: [503] }"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, EMPTY);
        talk.hears(client, "");
        talk.passes(PAUSE);
        assert!(!talk.is_connecting());
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_connection_whose_request_was_not_sent_whole_is_used_no_more() {
    for (head, begun, rest, end) in [
        ("Transfer-Encoding: chunked", "2\r\nda\r\n", "2\r\nta\r\n0\r\n\r\n", "a\r\n0\r\n\r\n"),
        ("Content-Length: 4", "da", "ta", "data"),
    ] {
        let head = format!("PUT / HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n");
        hold(&to_one("{ on: [5xx] }"), |talk| {
            let client = talk.client();
            talk.says(client, head.clone() + begun);
            let first = talk.upstream();
            let received = talk.heard(first);
            talk.says(first, EMPTY);
            talk.hears(client, "");
            assert!(talk.is_closed(first));
            let second = next(talk);
            talk.says(client, rest);
            let again = talk.heard(second);
            assert!(again.starts_with(&received) && again.ends_with(end), "{again}");
            talk.says(second, OK);
            talk.hears(client, OK);
        });
    }
}

#[test]
fn the_last_attempts_response_goes_to_the_client() {
    hold(&config("{ on: [5xx], attempts_max: 4, backoff: { base: 10ms, max: 10ms } }"), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        for _ in 0..3 {
            let upstream = next(talk);
            talk.says(upstream, UNAVAILABLE);
            talk.hears(client, "");
        }
        let upstream = next(talk);
        talk.says(upstream, UNAVAILABLE);
        talk.hears(client, UNAVAILABLE);
        let denied = talk.counted("strait_upstream_retries_denied_total");
        assert_eq!(denied.get("web attempts"), Some(&1), "{denied:?}");
    });
}

#[test]
fn attempts_max_of_one_sends_nothing_again() {
    hold(&config("{ on: [connect_failure], attempts_max: 1 }"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let refused = talk.connecting();
        talk.refuse(refused);
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[": connect_failed\n"]);
    });
}

#[test]
fn a_method_that_is_not_idempotent_is_sent_again_only_where_the_rule_says_so() {
    let post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata";
    hold(&config("{ on: [5xx] }"), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, post);
        let upstream = talk.upstream();
        talk.says(upstream, UNAVAILABLE);
        talk.hears(client, UNAVAILABLE);
        let denied = talk.counted("strait_upstream_retries_denied_total");
        assert_eq!(denied.get("web method"), Some(&1), "{denied:?}");
    });
    hold(&config("{ on: [5xx], methods: any }"), |talk| {
        let client = talk.client();
        talk.says(client, post);
        let upstream = talk.upstream();
        talk.says(upstream, UNAVAILABLE);
        talk.hears(client, "");
        let second = next(talk);
        talk.hears(second, post);
        talk.says(second, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_body_is_kept_as_far_as_the_rule_says() {
    let retry = "{ on: [5xx], body_max: 100KiB }";
    for (length, is_kept) in [(102_400, true), (102_401, false)] {
        let head = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        let body: String = (b'a'..=b'w').map(char::from).cycle().take(length).collect();
        hold(&config(retry), |talk| {
            talk.keeps_counts();
            let client = talk.client();
            talk.says(client, &head);
            let first = talk.upstream();
            for piece in body.as_bytes().chunks(9_000) {
                talk.says(client, piece);
                talk.heard(first);
            }
            talk.says(first, UNAVAILABLE);
            if !is_kept {
                talk.hears(client, UNAVAILABLE);
                let denied = talk.counted("strait_upstream_retries_denied_total");
                assert_eq!(denied.get("web body"), Some(&1), "{denied:?}");
                return;
            }
            talk.hears(client, "");
            let second = next(talk);
            assert!(talk.heard(second) == head.clone() + &body, "{:?}", talk.variant());
            talk.says(second, OK);
            talk.hears(client, OK);
        });
    }
}

#[test]
fn a_body_of_unknown_length_is_kept_until_it_is_too_long() {
    let head = "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("3e8\r\n{}\r\n", "z".repeat(1_000));
    for (chunks, is_kept) in [(20, true), (21, false)] {
        hold(&config("{ on: [5xx], body_max: 20000 }"), |talk| {
            let client = talk.client();
            talk.says(client, head);
            let first = talk.upstream();
            for _ in 0..chunks {
                talk.says(client, &chunk);
            }
            let begun = talk.heard(first);
            talk.says(first, UNAVAILABLE);
            if !is_kept {
                let response = talk.heard(client);
                assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
                return;
            }
            talk.hears(client, "");
            let second = next(talk);
            talk.says(client, "0\r\n\r\n");
            let again = talk.heard(second);
            assert!(again == begun + "0\r\n\r\n", "{again}");
            talk.says(second, OK);
            talk.hears(client, OK);
        });
    }
}

#[test]
fn an_attempt_that_takes_too_long_makes_room_for_another() {
    hold(&config("{ on: [reset], try_timeout: 500ms }"), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.hears(first, GET);
        talk.passes(Duration::from_millis(490));
        assert!(!talk.is_closed(first));
        talk.passes(Duration::from_millis(20));
        assert!(talk.is_closed(first));
        let second = next(talk);
        talk.says(second, OK);
        talk.hears(client, OK);
        let retried = talk.counted("strait_upstream_retries_total");
        assert_eq!(retried.get("web try_timeout"), Some(&1), "{retried:?}");
    });
}

#[test]
fn an_attempt_has_no_bound_while_the_client_sends_and_the_last_ones_failure_says_which_bound() {
    hold(&config("{ on: [reset], try_timeout: 500ms, attempts_max: 1 }"), |talk| {
        let client = talk.client();
        talk.says(client, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nda");
        let upstream = talk.upstream();
        talk.passes(Duration::from_secs(2));
        assert!(!talk.is_closed(upstream));
        talk.says(client, "ta");
        talk.passes(Duration::from_millis(510));
        talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &[": try_timeout\n"]);
        assert!(talk.log().contains("retry.try_timeout of the rule: 500ms"), "{}", talk.log());
    });
}

#[test]
fn the_rules_timeout_bounds_all_attempts_and_their_pauses() {
    let retry = "{ on: [5xx], attempts_max: 16, backoff: { base: 1m, max: 10m } }";
    let config = config(retry).replace("cluster: web,", "cluster: web, timeout: 1s,");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, UNAVAILABLE);
        talk.passes(Duration::from_millis(1_010));
        talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &[": request_timeout\n"]);
    });
}

#[test]
fn the_end_of_a_connection_amid_a_head_is_tried_again_and_that_amid_a_body_is_not() {
    hold(&config("{ on: [reset] }"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.says(first, "HTTP/1.1 200 OK\r\nContent-Le");
        talk.breaks(first);
        talk.hears(client, "");
        let second = next(talk);
        talk.hears(second, GET);
        talk.says(second, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok");
        talk.breaks(second);
        talk.passes(Duration::from_secs(1));
        assert!(!talk.is_connecting());
        assert!(talk.heard(client).ends_with("\r\n\r\nok"));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn an_answer_that_is_none_is_tried_again() {
    hold(&config("{ on: [reset] }"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.says(first, "HTTP/1.1 OK 200\r\n\r\n");
        talk.hears(client, "");
        let second = next(talk);
        talk.says(second, OK);
        talk.hears(client, OK);
        assert!(talk.log().contains("response_invalid"), "{}", talk.log());
    });
}

#[test]
fn a_response_behind_an_interim_one_is_replaced_too() {
    hold(&config("{ on: [5xx] }"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.says(first, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        assert!(talk.heard(client).starts_with("HTTP/1.1 103 "));
        talk.says(first, UNAVAILABLE);
        talk.hears(client, "");
        let second = next(talk);
        talk.says(second, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn more_interim_responses_than_allowed_are_an_invalid_response() {
    let config = config("{ on: [reset] }") + "    interim_responses_max: 1\n";
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.says(first, "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(2));
        assert!(talk.heard(client).starts_with("HTTP/1.1 103 "));
        assert!(talk.is_closed(first));
        let second = next(talk);
        talk.says(second, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn retries_have_a_budget() {
    let config = to_one("{ on: [5xx] }") + "    retry_budget: { share: 0%, at_least: 1 }\n";
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // Each has a worker of its own for a while.
            return talk.leave_out();
        }
        talk.keeps_counts();
        let [one, two] = [talk.client(), talk.client()];
        talk.says(one, GET);
        let first = talk.upstream();
        talk.says(two, GET);
        let second = talk.upstream();
        talk.says(first, UNAVAILABLE);
        talk.hears(one, "");
        talk.says(second, UNAVAILABLE);
        talk.hears(two, UNAVAILABLE);
        let denied = talk.counted("strait_upstream_retries_denied_total");
        assert_eq!(denied.get("web budget"), Some(&1), "{denied:?}");
        // On the connection that the other's response has left.
        talk.passes(PAUSE);
        talk.hears(second, &(GET.to_owned() + GET));
        talk.says(second, OK);
        talk.hears(one, OK);
        // What is over counts no more.
        talk.says(two, GET);
        talk.hears(second, GET);
        talk.says(second, EMPTY);
        talk.hears(two, "");
        talk.passes(PAUSE);
        talk.hears(second, GET);
        talk.says(second, OK);
        talk.hears(two, OK);
    });
}

#[test]
fn a_client_that_leaves_during_a_pause_leaves_nothing() {
    hold(&config("{ on: [5xx], backoff: { base: 1m, max: 1m } }"), |talk| {
        let client = talk.client();
        talk.says(client, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata");
        let upstream = talk.upstream();
        talk.says(upstream, UNAVAILABLE);
        talk.hears(client, "");
        talk.breaks(client);
        talk.passes(Duration::from_secs(60));
        assert!(!talk.is_connecting());
    });
}

fn to_http2(retry: &str) -> String {
    TO_HTTP2.replace("upgrades: [websocket] }", &format!("retry: {retry} }}"))
}

#[test]
fn streams_are_opened_again() {
    hold(&to_http2("{ on: [5xx] }"), |talk| {
        let client = talk.client();
        talk.says(client, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata");
        let mut first = Speaker::upstream(talk);
        let received = first.hears(talk);
        assert!(received.contains("PUT /") && received.contains("data data"), "{received}");
        first.answers(
            talk,
            1,
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\n",
            false,
        );
        talk.hears(client, "");
        talk.passes(PAUSE);
        let mut second = Speaker::upstream(talk);
        let received = second.hears(talk);
        assert!(received.contains("PUT /") && received.contains("data data"), "{received}");
        second.answers(talk, 1, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true);
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &[]);
    });
}

#[test]
fn a_call_that_ends_at_once_is_made_again_by_its_status() {
    for (on, status, is_again) in [
        ("[unavailable]", 14, true),
        ("[unavailable]", 13, false),
        ("[internal, cancelled]", 13, true),
    ] {
        hold(&to_http2(&format!("{{ on: {on}, methods: any }}")), |talk| {
            let mut client = Speaker::client(talk);
            let stream = client.asks(
                talk,
                "POST /a.B/C HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nTE: trailers\r\n\r\n",
                false,
            );
            client.sends(talk, stream, &[0, 0, 0, 0, 0], true);
            let mut first = Speaker::upstream(talk);
            assert!(first.hears(talk).contains("POST /a.B/C"));
            let trailers = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nGrpc-Status: {status}\r\n\r\n"
            );
            first.answers(talk, 1, &trailers, true);
            talk.passes(PAUSE);
            assert_eq!(talk.is_connecting(), is_again, "{on} {status}");
            if is_again {
                let mut second = Speaker::upstream(talk);
                assert!(second.hears(talk).contains("POST /a.B/C"));
                second.answers(talk, 1, &trailers.replace(&status.to_string(), "0"), true);
            }
            let heard = client.hears(talk);
            let expected = if is_again { 0 } else { status };
            assert!(heard.contains(&format!("grpc-status: {expected}")), "{heard}");
        });
    }
}

fn busy(field: &str) -> String {
    format!("HTTP/1.1 503 Service Unavailable\r\n{field}\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn a_response_says_how_long_the_pause_is_within_a_bound() {
    let retry = "{ on: [5xx], reset_header: Retry-After, reset_max: 10s, attempts_max: 2 }";
    hold(&config(retry), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        talk.says(first, busy("retry-after: 2"));
        talk.passes(Duration::from_millis(1_900));
        assert!(!talk.is_connecting() && talk.heard(client).is_empty());
        // It is up to half longer, and timers are late.
        talk.passes(Duration::from_millis(1_200));
        let second = talk.upstream();
        talk.says(second, OK);
        talk.hears(client, OK);
    });
    for value in
        ["0", "11", "-1", "1.5", "100000000000000000000", "Thu, 01 Jan 1970 00:00:00 GMT", ""]
    {
        hold(&config(retry), |talk| {
            let client = talk.client();
            talk.says(client, GET);
            let first = talk.upstream();
            talk.says(first, busy(&format!("Retry-After: {value}")));
            let second = next(talk);
            talk.says(second, OK);
            talk.hears(client, OK);
        });
    }
}

#[test]
fn a_pause_that_outlasts_the_timeout_is_not_begun() {
    let retry = "{ on: [5xx], reset_header: retry-after }, timeout: 1s";
    hold(&config(retry), |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, GET);
        let first = talk.upstream();
        let response = busy("retry-after: 5");
        talk.says(first, &response);
        talk.hears(client, &response);
        let denied = talk.counted("strait_upstream_retries_denied_total");
        assert_eq!(denied.get("web timeout"), Some(&1), "{denied:?}");
    });
}

/// Has a request tried so often, with three balancers, and looks at where the attempts went. What was tried is forgotten where
/// the connection moves.
fn tried_elsewhere(endpoints: &str, attempts: usize, look: impl Fn(&[String])) {
    let retry = format!(
        "{{ on: [5xx], elsewhere: previous_endpoints, attempts_max: {attempts}, backoff: {{ base: 10ms, max: 10ms }} }}"
    );
    let config = config(&retry).replace("['127.0.0.1:9000', '127.0.0.1:9001']", endpoints);
    for balance in ["random", "round_robin", "least_request"] {
        hold(&format!("{config}    balance: {balance}\n"), |talk| {
            if talk.variant() == Variant::Moving {
                return talk.leave_out();
            }
            let client = talk.client();
            talk.says(client, GET);
            let mut met = Vec::new();
            for _ in 0..attempts {
                let upstream = next(talk);
                met.push(format!("{:?}", talk.address(upstream)));
                talk.says(upstream, EMPTY);
            }
            talk.hears(client, EMPTY);
            look(&met);
        });
    }
}

#[test]
fn attempts_go_to_endpoints_that_none_went_to() {
    let all = "['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002', '127.0.0.1:9003']";
    tried_elsewhere(all, 4, |met| {
        let different: BTreeSet<&String> = met.iter().collect();
        assert_eq!(different.len(), 4, "{met:?}");
    });
}

#[test]
fn attempts_go_to_the_next_priority_once_all_of_one_were_tried() {
    let all = "['127.0.0.1:9000', '127.0.0.1:9001', { address: '127.0.0.1:9002', priority: 1 }]";
    tried_elsewhere(all, 3, |met| assert!(met[2].contains("9002"), "{met:?}"));
}

#[test]
fn attempts_go_to_another_locality_once_all_of_one_were_tried() {
    let all = "[{ address: '127.0.0.1:9000', locality: eu/a }, { address: '127.0.0.1:9001', locality: eu/a }, \
               { address: '127.0.0.1:9002', locality: eu/b }]\n    localities: { weights: { eu/a: 1, eu/b: 0 } }";
    tried_elsewhere(all, 3, |met| assert!(met[2].contains("9002"), "{met:?}"));
}

#[test]
fn upstreams_learn_which_attempt_they_get() {
    let config = config("{ on: [5xx], attempt_count: true, backoff: { base: 10ms, max: 10ms } }");
    for sent in ["", "X-Envoy-Attempt-Count: 77\r\n"] {
        hold(&config, |talk| {
            let client = talk.client();
            talk.says(client, format!("GET / HTTP/1.1\r\nHost: x\r\n{sent}\r\n"));
            for attempt in 1..=3 {
                let upstream = next(talk);
                let heard = talk.heard(upstream).to_ascii_lowercase();
                let line = format!("\r\nx-envoy-attempt-count: {attempt}\r\n");
                assert!(heard.contains(&line), "{heard}");
                assert_eq!(heard.matches("attempt-count").count(), 1, "{heard}");
                talk.says(upstream, UNAVAILABLE);
            }
            talk.hears(client, UNAVAILABLE);
        });
    }
}

/// What a client asks for that has four further attempts in mind.
const ASKS: &str = "GET / HTTP/1.1\r\nHost: x\r\nX-Envoy-Retry-On: retriable-headers,5xx\r\n\
                    X-Envoy-Max-Retries: 1\r\nX-Envoy-Retriable-Header-Names: X-Again\r\n\
                    x-envoy-retriable-status-codes: 429\r\nx-envoy-retry-grpc-on: cancelled\r\n\
                    x-envoy-upstream-rq-per-try-timeout-ms: 200\r\n\r\n";

fn asking(http: &str, rule: &str) -> String {
    CONFIG
        .replace("request_id: false", &format!("request_id: false{http}"))
        .replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']")
        .replace("cluster: web }]", &format!("cluster: web{rule} }}]"))
}

#[test]
fn a_request_says_when_it_is_sent_again_where_its_listener_trusts_it() {
    hold(&asking(", trust_retries: true", ""), |talk| {
        let client = talk.client();
        talk.says(client, ASKS);
        let first = talk.upstream();
        talk.hears(first, GET);
        talk.says(first, "HTTP/1.1 200 OK\r\nx-again: 1\r\nContent-Length: 0\r\n\r\n");
        talk.hears(client, "");
        let second = next(talk);
        talk.hears(second, GET);
        // It takes longer than it may, and there is no third.
        talk.passes(Duration::from_millis(300));
        talk.hears_about(client, "HTTP/1.1 504 ", &[": try_timeout\n"]);
    });
    // A rule that allows more has less for this one, and what cannot be read does not count.
    let rule = ", retry: { on: [gateway_error], attempts_max: 5 }";
    for (retries, attempts) in [("0", 1), ("1", 2), ("-1", 5), ("99999999999999999999", 5)] {
        hold(&asking(", trust_retries: true", rule), |talk| {
            let client = talk.client();
            let asks =
                format!("GET / HTTP/1.1\r\nHost: x\r\nx-envoy-max-retries: {retries}\r\n\r\n");
            talk.says(client, asks);
            for attempt in 1..=attempts {
                if attempt > 1 {
                    talk.passes(Duration::from_millis(300));
                }
                let upstream = talk.upstream();
                talk.hears(upstream, GET);
                talk.says(upstream, UNAVAILABLE);
            }
            talk.hears(client, UNAVAILABLE);
        });
    }
}

#[test]
fn what_other_clients_ask_for_does_not_count_and_goes_no_further() {
    hold(&asking("", ""), |talk| {
        let client = talk.client();
        talk.says(client, ASKS);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.passes(Duration::from_millis(500));
        talk.says(upstream, UNAVAILABLE);
        talk.hears(client, UNAVAILABLE);
    });
}
