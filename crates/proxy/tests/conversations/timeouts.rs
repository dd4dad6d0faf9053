//! Each timeout, by the words it has in the log.

use std::time::Duration;

use crate::keep_alive::CONFIG;
use crate::kit::hold;

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn silence_before_a_request_is_closed_without_a_word() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.passes(secs(9));
        assert!(!talk.is_closed(client));
        talk.passes(secs(2));
        talk.hears(client, "");
        assert!(talk.is_closed(client));
    });
}

#[test]
fn half_a_head_is_answered_with_408() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.passes(secs(8));
        talk.says(client, "GET / HTTP/1.1\r\nHo");
        talk.passes(secs(8));
        talk.says(client, "st: ");
        talk.hears(client, "");
        talk.passes(secs(3));
        talk.hears_about(
            client,
            "HTTP/1.1 408 Request Timeout\r\n",
            &["connection: close\r\n", ": request_head_timeout\n"],
        );
        assert!(talk.log().contains("request_head_timeout"));
    });
}

#[test]
fn a_kept_connection_is_closed_when_nothing_comes() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.heard(client);
        talk.passes(secs(74));
        assert!(!talk.is_closed(client));
        talk.passes(secs(2));
        assert!(talk.is_closed(client));
        talk.hears(client, "");
    });
}

#[test]
fn a_body_that_stops_coming_is_a_timeout_of_the_request() {
    let config = CONFIG.replace("request_id", "request_rate_min: 0, request_id");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, POST);
        let upstream = talk.upstream();
        talk.passes(secs(29));
        talk.says(client, "more");
        talk.passes(secs(29));
        talk.hears(client, "");
        talk.passes(secs(2));
        talk.hears_about(
            client,
            "HTTP/1.1 408 Request Timeout\r\n",
            &["connection: close\r\n", ": request_body_timeout\n"],
        );
        assert!(talk.is_closed(upstream));
    });
}

#[test]
fn a_response_that_has_begun_may_wait_for_the_body_that_it_is_about() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, POST);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..5 {
            talk.passes(secs(40));
            talk.says(client, "more");
        }
        assert!(talk.heard(upstream).ends_with("moremoremoremoremore"));
        // And the other way round.
        for _ in 0..5 {
            talk.passes(secs(40));
            talk.says(upstream, "2\r\nok\r\n");
        }
        assert!(!talk.is_closed(client));
        talk.passes(secs(61));
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
        assert!(talk.log().contains("response_body_timeout"));
    });
}

#[test]
fn a_connection_that_is_not_established_in_time_is_given_up() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        for _ in 0..3 {
            let upstream = talk.connecting();
            talk.passes(Duration::from_millis(5_050));
            assert!(talk.is_closed(upstream));
        }
        talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[": connect_timeout\n"]);
    });
}

#[test]
fn an_upstream_that_does_not_answer_is_a_gateway_timeout() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.passes(secs(59));
        talk.hears(client, "");
        talk.passes(secs(2));
        talk.hears_about(
            client,
            "HTTP/1.1 504 Gateway Timeout\r\n",
            &[": response_head_timeout\n"],
        );
        assert!(talk.is_closed(upstream) && !talk.is_closed(client));
    });
}

#[test]
fn a_response_body_that_stops_coming_breaks_off() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
        talk.passes(secs(61));
        talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
        assert!(talk.log().contains("response_body_timeout"));
    });
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let config = CONFIG.replace("request_id", "response_rate_min: 0, request_id");
    hold(&config, |talk| {
        let client = talk.client();
        talk.takes(client, 10);
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.passes(secs(59));
        talk.takes(client, 5);
        talk.passes(secs(59));
        assert!(!talk.is_closed(client));
        talk.passes(secs(2));
        assert!(talk.is_closed(client));
        assert!(talk.log().contains("response_write_timeout"));
    });
}

#[test]
fn an_upstream_that_takes_nothing_is_given_up() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, POST);
        let upstream = talk.upstream();
        talk.takes(upstream, 0);
        talk.says(client, vec![b'x'; 100_000]);
        talk.passes(secs(61));
        talk.hears_about(
            client,
            "HTTP/1.1 504 Gateway Timeout\r\n",
            &[": request_write_timeout\n"],
        );
        assert!(talk.is_closed(upstream));
    });
}

#[test]
fn a_rule_bounds_the_whole_exchange() {
    let config = CONFIG.replace("cluster: web }", "cluster: web, timeout: 2s }");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.passes(secs(1));
        talk.hears(client, "");
        talk.passes(Duration::from_millis(1_100));
        talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &[": request_timeout\n"]);
        assert!(talk.is_closed(upstream));

        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0");
        talk.passes(Duration::from_millis(2_100));
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
    });
}

#[test]
fn a_wait_for_a_connection_counts() {
    let config = format!("{CONFIG}    connections_max: 1\n")
        .replace("cluster: web }", "cluster: web, timeout: 2s }");
    hold(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        talk.passes(secs(1));
        talk.says(second, GET);
        talk.passes(Duration::from_millis(1_500));
        talk.hears_about(first, "HTTP/1.1 504 Gateway Timeout\r\n", &[]);
        talk.passes(Duration::from_millis(1_000));
        talk.hears_about(second, "HTTP/1.1 504 Gateway Timeout\r\n", &[": request_timeout\n"]);
    });
}

#[test]
fn a_connection_that_lingers_is_closed_in_the_end() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "garbage\r\n\r\n");
        assert!(talk.is_shut(client) && !talk.is_closed(client));
        // Bytes that came behind the refusal count as sent.
        talk.passes(secs(5));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn a_connection_lingers_while_its_client_takes_what_the_kernel_has() {
    hold(CONFIG, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "garbage\r\n\r\n");
        for left in (1..=20).rev() {
            talk.has_undelivered(client, left * 1000);
            talk.passes(secs(2));
            assert!(!talk.is_closed(client), "{left}");
        }
        // All of it is there, and read in the time that there is for it.
        talk.has_undelivered(client, 1);
        talk.passes(secs(2));
        assert!(!talk.is_closed(client));
        talk.passes(secs(2));
        assert!(talk.is_closed(client));
        let ended = talk.counted("strait_downstream_connections_ended_total");
        assert_eq!(ended.get("response_undelivered").copied().unwrap_or(0), 0);
    });
}

#[test]
fn a_connection_lingers_for_its_time_behind_the_last_acknowledgement() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.drains();
        talk.says(upstream, OK);
        assert!(talk.is_shut(client));
        talk.has_undelivered(client, 1000);
        talk.passes(Duration::from_millis(1_900));
        talk.has_undelivered(client, 1);
        talk.passes(Duration::from_millis(1_900));
        assert!(!talk.is_closed(client));
        talk.passes(secs(2));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn a_connection_lingers_while_its_client_speaks_and_may_not_have_read_the_end() {
    let config =
        CONFIG.replace("routes: all", "timeouts: { response_write: 10s }\n    routes: all");
    // How often it speaks, once between two looks, and how many of these times the connection stays.
    for (spoken, stays) in [(0, 0), (1, 1), (3, 3), (20, 4)] {
        hold(&config, |talk| {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            talk.drains();
            talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            assert!(talk.is_shut(client));
            for look in 0..=stays {
                assert!(!talk.is_closed(client), "{spoken}: {look}");
                if look < spoken {
                    talk.says(client, "windows and PINGs");
                }
                talk.passes(Duration::from_millis(2_300));
            }
            assert!(talk.is_closed(client), "{spoken}");
        });
    }
}

#[test]
fn a_client_that_does_not_take_what_the_kernel_has_is_given_up_and_counted() {
    hold(CONFIG, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "garbage\r\n\r\n");
        talk.has_undelivered(client, 1000);
        talk.passes(secs(60));
        assert!(!talk.is_closed(client));
        talk.passes(secs(6));
        assert!(talk.is_closed(client));
        let ended = talk.counted("strait_downstream_connections_ended_total");
        assert_eq!(ended.get("response_undelivered"), Some(&1), "{ended:?}");
        assert_eq!(talk.counted("strait_downstream_undelivered_bytes_total").get(""), Some(&1000));
    });
}

#[test]
fn a_client_that_takes_too_little_of_what_the_kernel_has_is_given_up_in_the_end() {
    let config = format!("{CONFIG}limits: {{ linger_timeout: 2s, linger_max: 30s }}\n");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "garbage\r\n\r\n");
        for second in 0..28 {
            talk.has_undelivered(client, 100_000 - second);
            talk.passes(secs(1));
            assert!(!talk.is_closed(client), "{second}");
        }
        talk.passes(secs(4));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn what_the_kernel_has_at_the_end_of_a_drain_is_cut_off_and_counted() {
    let config = format!("{CONFIG}limits: {{ drain_timeout: 10s }}\n");
    hold(&config, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "garbage\r\n\r\n");
        talk.has_undelivered(client, 1000);
        talk.drains();
        talk.passes(secs(9));
        assert!(!talk.is_closed(client));
        talk.passes(secs(2));
        assert!(talk.is_closed(client));
        assert!(talk.proxy().is_drained());
        assert_eq!(talk.proxy().cut_off(), 1);
        let ended = talk.counted("strait_downstream_connections_ended_total");
        assert_eq!(ended.get("response_undelivered"), Some(&1), "{ended:?}");
        assert_eq!(talk.counted("strait_downstream_undelivered_bytes_total").get(""), Some(&1000));
    });
}

#[test]
fn a_connection_that_lingers_reads_a_bounded_number_of_bytes() {
    let config = format!("{CONFIG}limits: {{ discard_max: 1KiB }}\n");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "garbage\r\n\r\n");
        talk.says(client, "x".repeat(2000));
        let unread = talk.unread(client);
        talk.says(client, "x".repeat(100));
        assert_eq!(talk.unread(client), unread + 100);
        talk.passes(secs(5));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn a_request_that_is_whole_waits_for_its_response_and_for_no_more_of_its_body() {
    let config = CONFIG.replace("routes: all", "timeouts: { request_body: 2s }\n    routes: all");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nda");
        let upstream = talk.upstream();
        talk.says(client, "ta");
        talk.passes(secs(10));
        talk.hears(client, "");
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
    });
}

#[test]
fn a_client_that_does_not_take_the_end_of_a_broken_response_is_given_up() {
    let config = CONFIG.replace("cluster: web }", "cluster: web, timeout: 2s }");
    hold(&config, |talk| {
        let client = talk.client();
        talk.takes(client, 10);
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
        talk.passes(secs(3));
        assert!(talk.is_closed(upstream) && !talk.is_closed(client));
        talk.passes(secs(60));
        assert!(talk.is_closed(client));
        assert!(talk.log().contains("request_timeout"));
    });
}

#[test]
fn a_client_that_does_not_take_a_reply_is_given_up() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.takes(client, 10);
        talk.says(client, GET);
        talk.upstream();
        talk.passes(secs(61));
        assert!(!talk.is_closed(client));
        talk.passes(secs(61));
        assert!(talk.is_closed(client));
    });
}
