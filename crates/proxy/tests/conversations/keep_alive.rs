//! One connection, several exchanges.

use std::time::Duration;

use crate::kit::{Variant, hold};

pub(crate) const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: all
    http: { forwarded: off, request_id: false }
routes:
  - name: all
    hosts: ['*']
    rules: [{ match: { prefix: / }, cluster: web }]
clusters:
  - name: web
    endpoints: ['127.0.0.1:9000']
";

#[test]
fn a_get_goes_up_and_its_response_comes_down() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears(upstream, "GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert!(!talk.is_closed(client));
        assert!(!talk.is_closed(upstream));
    });
}

#[test]
fn both_connections_are_used_again() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        let mut upstream = None;
        for n in 0..3 {
            talk.says(client, format!("GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let upstream = *upstream.get_or_insert_with(|| talk.upstream());
            talk.hears(upstream, &format!("GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n"));
            talk.says(upstream, format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}"));
            talk.hears(client, &format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}"));
        }
        assert!(!talk.is_connecting());
    });
}

#[test]
fn pipelined_requests_are_answered_in_order_and_asked_one_by_one() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\n\r\n",
        );
        let upstream = talk.upstream();
        for n in 1..=3 {
            talk.hears(upstream, &format!("GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n"));
            talk.says(upstream, format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}"));
        }
        let all: String =
            (1..=3).map(|n| format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}")).collect();
        talk.hears(client, &all);
    });
}

#[test]
fn connection_close_is_kept_to_on_either_side() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let upstream = talk.upstream();
        // The client's `connection` field does not concern the upstream.
        talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["connection: close\r\n", "\r\n\r\nok"]);
        assert!(talk.is_closed(client));
        assert!(!talk.is_closed(upstream));

        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert!(talk.is_closed(upstream), "it is not used again");
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn http_1_0_closes_unless_it_asks_not_to() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.0\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears_about(upstream, "GET / HTTP/1.1\r\n", &[]);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.hears_about(client, "HTTP/1.", &["200 OK", "\r\n\r\nok"]);
        assert!(talk.is_closed(client));

        let client = talk.client();
        talk.says(client, "GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.hears_about(client, "HTTP/1.", &["connection: keep-alive\r\n", "\r\n\r\nok"]);
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_client_that_half_closes_gets_its_response() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.ends(client);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["\r\n\r\nok"]);
        assert!(talk.is_closed(client));
    });
}

#[test]
fn an_idle_connection_owns_no_buffer() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(talk.proxy().load().buffers.leased, 0);
        assert_eq!(talk.proxy().load().connections, 2);
        talk.passes(Duration::from_secs(1));
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn bytes_on_an_idle_upstream_connection_end_it() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
        assert!(talk.is_closed(upstream));
        talk.heard(client);
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.upstream();
        talk.hears(client, "");
    });
}

#[test]
fn bytes_behind_a_response_end_its_connection() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n");
        talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert!(talk.is_closed(upstream));
    });
}

#[test]
fn a_drain_says_close_with_the_next_response_and_ends_at_its_timeout() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let (busy, idle) = (talk.client(), talk.client());
        talk.says(busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.drains();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.hears_about(busy, "HTTP/1.1 200 OK\r\n", &["connection: close\r\n", "\r\n\r\nok"]);
        assert!(talk.is_shut(busy));
        talk.says(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.hears_about(idle, "HTTP/1.1 200 OK\r\n", &["connection: close\r\n", "\r\n\r\nok"]);
        talk.passes(Duration::from_secs(31));
        assert!(talk.is_closed(busy) && talk.is_closed(idle));
        assert!(talk.proxy().is_drained());
    });
}
