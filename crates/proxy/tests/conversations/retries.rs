//! When a request is sent again, and when it must not be.

use crate::keep_alive::CONFIG;
use crate::kit::{Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_refused_connection_is_tried_again_whatever_the_method() {
    let config = CONFIG.replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nda");
        let first = talk.connecting();
        talk.refuse(first);
        let second = talk.connecting();
        assert_ne!(talk.address(first), talk.address(second));
        talk.establish(second);
        talk.says(client, "ta");
        talk.hears(second, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata");
        talk.says(second, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_dead_endpoint_is_tried_in_its_turn_and_no_more_often() {
    let config = CONFIG.replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']");
    hold(&config, |talk| {
        let mut refused = 0;
        for _ in 0..8 {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let mut upstream = talk.connecting();
            if format!("{:?}", talk.address(upstream)).contains("9000") {
                refused += 1;
                talk.refuse(upstream);
                upstream = talk.connecting();
            }
            talk.establish(upstream);
            talk.says(upstream, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            talk.heard(client);
        }
        // Each move restarts the count.
        assert!(refused == 4 || talk.variant() == Variant::Moving, "{refused}");
    });
}

#[test]
fn what_an_upstream_says_unasked_answers_nobody() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
        let old = talk.upstream();
        talk.says(old, OK);
        talk.heard(client);
        talk.heard(old);
        // The kept connection is given to the request, and speaks before the request was sent.
        let request = "POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
        let stale = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON";
        talk.say_together(&[(client, request), (old, stale)]);
        talk.hears(old, "");
        assert!(talk.is_closed(old));
        let new = talk.upstream();
        talk.hears(new, request);
        talk.says(new, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn attempts_are_bounded() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        for _ in 0..3 {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        assert!(!talk.is_connecting());
        talk.hears_about(
            client,
            "HTTP/1.1 503 Service Unavailable\r\n",
            &["server: strait\r\n", ": connect_failed\n"],
        );
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_reused_connection_that_dies_before_any_byte_is_replaced() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
        let old = talk.upstream();
        talk.says(old, OK);
        talk.heard(client);
        talk.heard(old);
        talk.says(client, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.hears(old, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.ends(old);
        talk.hears(client, "");
        let new = talk.upstream();
        talk.hears(new, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(new, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_request_that_is_not_idempotent_is_not_sent_twice() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.heard(client);
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata");
        talk.ends(upstream);
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[": upstream_closed\n"]);
    });
}

#[test]
fn a_fresh_connection_that_dies_is_not_replaced() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.ends(upstream);
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[]);
    });
}

#[test]
fn a_get_goes_to_another_endpoint_when_a_fresh_connection_closes_unanswered() {
    let config = CONFIG.replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']");
    hold(&config, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        talk.says(client, request);
        let first = talk.upstream();
        talk.hears(first, request);
        talk.ends(first);
        talk.hears(client, "");
        let second = talk.upstream();
        assert_ne!(talk.address(first), talk.address(second));
        talk.hears(second, request);
        talk.says(second, OK);
        talk.hears(client, OK);
        let retried = talk.counted("strait_upstream_retries_total");
        assert_eq!(retried.get("web upstream_closed"), Some(&1), "{retried:?}");
    });
}

#[test]
fn attempts_on_fresh_connections_are_bounded() {
    let config = CONFIG.replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        for _ in 0..3 {
            let upstream = talk.upstream();
            talk.ends(upstream);
        }
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[": upstream_closed\n"]);
    });
}

#[test]
fn what_has_a_body_or_is_not_idempotent_is_not_sent_twice_on_fresh_connections() {
    let config = CONFIG.replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']");
    for request in [
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
        "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n",
    ] {
        hold(&config, |talk| {
            let client = talk.client();
            talk.says(client, request);
            let upstream = talk.upstream();
            talk.ends(upstream);
            assert!(!talk.is_connecting(), "{request}");
            talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[": upstream_closed\n"]);
        });
    }
}

#[test]
fn nothing_is_sent_again_once_the_upstream_has_said_a_byte() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.heard(client);
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, "H");
        talk.ends(upstream);
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[]);
    });
}

#[test]
fn nothing_is_sent_again_behind_an_interim_response() {
    const EARLY: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.heard(client);
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, EARLY);
        talk.hears(client, EARLY);
        talk.ends(upstream);
        assert!(!talk.is_connecting());
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[]);
    });
}

#[test]
fn an_idempotent_body_that_is_still_here_is_sent_again_whole() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let old = talk.upstream();
        talk.says(old, OK);
        talk.heard(client);
        talk.heard(old);
        let request = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nda";
        talk.says(client, request);
        talk.hears(old, request);
        talk.ends(old);
        let new = talk.upstream();
        talk.says(client, "tadata");
        talk.hears(new, &format!("{request}tadata"));
        talk.says(new, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_request_that_is_sent_again_does_not_overtake_one_that_waits() {
    let config = format!("{CONFIG}    connections_max: 1\n");
    hold(&config, |talk| {
        if talk.variant() == Variant::Moving {
            // The order of a queue belongs to its worker.
            return talk.leave_out();
        }
        let (client, other) = (talk.client(), talk.client());
        talk.says(client, "GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
        let kept = talk.upstream();
        talk.heard(kept);
        talk.says(kept, OK);
        talk.hears(client, OK);
        talk.says(client, "GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(other, "GET /waits HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.heard(kept);
        talk.ends(kept);
        let upstream = talk.upstream();
        for (peer, path) in [(other, "/waits"), (client, "/again")] {
            talk.hears_about(upstream, &format!("GET {path} HTTP/1.1\r\n"), &[]);
            talk.says(upstream, OK);
            talk.hears(peer, OK);
        }
    });
}

#[test]
fn the_log_names_the_endpoint_of_each_attempt() {
    let config = "
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: web }] }]
clusters: [{ name: web, endpoints: ['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002'] }]
";
    hold(config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let first = talk.connecting();
        let refusing = talk.address(first).to_string();
        talk.refuse(first);
        let second = talk.upstream();
        let closing = talk.address(second).to_string();
        talk.heard(second);
        talk.ends(second);
        let third = talk.upstream();
        let serving = talk.address(third).to_string();
        talk.says(third, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.heard(client);
        let want = format!(
            "\"endpoint\":\"{serving}\",\"attempts\":3,\
             \"failed_attempts\":\"{refusing} connect_failed, {closing} upstream_closed\""
        );
        assert!(talk.log().contains(&want), "{want}: {}", talk.log());
        talk.forgets_log();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let again = if talk.is_connecting() { talk.upstream() } else { third };
        talk.says(again, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.heard(client);
        assert!(!talk.log().contains("failed_attempts"), "{}", talk.log());
    });
}
