//! gRPC and gRPC-Web.

use std::time::Duration;

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::kit::{Variant, hold};

const ASK: &str = "POST /shop.Cart/Add HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc+proto\r\nConnection: te\r\nTE: trailers\r\n\r\n";
pub(crate) const ANSWER: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/grpc+proto\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A message of three bytes.
pub(crate) const MESSAGE: &[u8] = b"\0\0\0\0\x03abc";

#[test]
fn messages_are_counted_and_the_status_is_told() {
    hold(TO_HTTP2, |talk| {
        let mut client = Speaker::client(talk);
        let call = client.asks(talk, ASK, false);
        let mut upstream = Speaker::upstream(talk);
        client.sends(talk, call, MESSAGE, false);
        client.sends(talk, call, MESSAGE, true);
        let received = upstream.hears(talk);
        let fields = "te: trailers; host: x; content-type: application/grpc+proto";
        assert!(received.starts_with(&format!("1: POST /shop.Cart/Add; {fields}\n")), "{received}");
        upstream.answers(talk, 1, ANSWER, false);
        upstream.sends(talk, 1, MESSAGE, false);
        upstream.ends_with(talk, 1, "grpc-status: 5\r\ngrpc-message: none\r\n");
        let received = client.hears(talk);
        let trailers = "trailers grpc-status: 5; grpc-message: none; END\n";
        assert!(received.ends_with(&format!("{call}: {trailers}")), "{received}");
        let log = talk.log();
        for field in
            ["\"grpc_status\":5", "\"grpc_request_messages\":2", "\"grpc_response_messages\":1"]
        {
            assert!(log.contains(field), "{field} in {log}");
        }
    });
}

#[test]
fn faults_are_reported_as_grpc_statuses() {
    let cases = [
        ("cluster: app", "cluster: app", 14, "Service Unavailable: no_endpoint"),
        ("prefix: /", "path: /other", 12, "Not Found: no_route"),
        ("cluster: app, upgrades: [websocket]", "respond: { status: 403 }", 7, ""),
    ];
    for (from, to, status, message) in cases {
        let config = TO_HTTP2.replace(from, to).replace("'127.0.0.1:9000', '127.0.0.1:9001'", "");
        hold(&config, |talk| {
            let mut client = Speaker::client(talk);
            let call = client.asks(talk, ASK, true);
            let received = client.hears(talk);
            assert!(received.starts_with(&format!("{call}: 200; ")), "{received}");
            let fields = format!(
                "content-type: application/grpc; grpc-status: {status}; grpc-message: {message} END\n"
            );
            assert!(received.ends_with(&fields), "{received}");
            let log = talk.log();
            assert!(log.contains(&format!("\"grpc_status\":{status}")), "{log}");
        });
    }
}

#[test]
fn the_clients_deadline_bounds_the_call() {
    hold(TO_HTTP2, |talk| {
        let mut client = Speaker::client(talk);
        let head = ASK.replace("Connection", "grpc-timeout: 100m\r\nConnection");
        let call = client.asks(talk, &head, true);
        let mut upstream = Speaker::upstream(talk);
        assert!(upstream.hears(talk).contains("grpc-timeout: 100m"));
        talk.passes(Duration::from_millis(110));
        let received = client.hears(talk);
        assert!(received.starts_with(&format!("{call}: 200; ")), "{received}");
        assert!(
            received.contains("grpc-status: 4; grpc-message: Gateway Timeout: request_timeout")
        );
        assert_eq!(upstream.hears(talk), "1: reset CANCEL\n");
    });
}

#[test]
fn a_route_that_allows_less_time_says_so_upstream() {
    let config = TO_HTTP2.replace("cluster: app,", "cluster: app, timeout: 50ms,");
    hold(&config, |talk| {
        let mut client = Speaker::client(talk);
        let head = ASK.replace("Connection", "grpc-timeout: 1S\r\nConnection");
        client.asks(talk, &head, true);
        let mut upstream = Speaker::upstream(talk);
        let received = upstream.hears(talk);
        assert!(
            received.contains("grpc-timeout: 50000000n")
                || received.contains("grpc-timeout: 50000u")
                || received.contains("grpc-timeout: 50m"),
            "{received}"
        );
        talk.passes(Duration::from_millis(60));
        assert!(client.hears(talk).contains("grpc-status: 4;"));
    });
}

pub(crate) fn with_web() -> String {
    TO_HTTP2.replace("request_id: false", "request_id: false, grpc_web: true")
}

#[test]
fn grpc_web_becomes_grpc_and_its_trailers_a_frame() {
    hold(&with_web(), |talk| {
        let client = talk.client();
        let mut request = b"POST /shop.Cart/Add HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web+proto\r\nContent-Length: 8\r\n\r\n".to_vec();
        request.extend(MESSAGE);
        talk.says(client, request);
        let mut upstream = Speaker::upstream(talk);
        let received = upstream.hears(talk);
        assert!(received.contains("content-type: application/grpc+proto"), "{received}");
        assert!(received.contains("te: trailers"), "{received}");
        assert!(received.contains("1: data \0\0\0\0\u{3}abc END\n"), "{received:?}");
        upstream.answers(talk, 1, ANSWER, false);
        upstream.sends(talk, 1, MESSAGE, false);
        upstream.ends_with(talk, 1, "grpc-status: 0\r\n");
        let heard = talk.heard(client);
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("application/grpc-web+proto"), "{head}");
        // The frame of the trailers is 0x80 and its length; 0x80 alone is no UTF-8.
        let frame = "\u{fffd}\0\0\0\u{10}grpc-status: 0\r\n\r\n0\r\n\r\n";
        assert!(body.ends_with(frame), "{body:?}");
        assert!(body.replace("\r\n1\r\n", "").contains("abc"), "{body:?}");
        assert!(talk.log().contains("\"grpc_status\":0"));
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn grpc_web_in_text_is_decoded_and_encoded() {
    hold(&with_web(), |talk| {
        let client = talk.client();
        // The message of three bytes in base64.
        talk.says(client, "POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 12\r\n\r\nAAAAAANhYmM=");
        let mut upstream = Speaker::upstream(talk);
        let received = upstream.hears(talk);
        assert!(received.contains("1: data \0\0\0\0\u{3}abc END\n"), "{received:?}");
        assert!(!received.contains("content-length"), "{received:?}");
        upstream.answers(talk, 1, ANSWER, false);
        upstream.sends(talk, 1, MESSAGE, false);
        upstream.ends_with(talk, 1, "grpc-status: 0\r\n");
        let heard = talk.heard(client);
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("application/grpc-web-text"), "{head}");
        let (body, _) = crate::bodies::dechunked(body);
        // Byte by byte, each piece has its own padding.
        let is_whole = body.starts_with("AAAAAANhYmM=") || talk.variant() == Variant::ByteByByte;
        assert!(is_whole, "{body}");
        // A frame of trailers with 16 bytes of them.
        assert!(body.ends_with("gAAAABBncnBjLXN0YXR1czogMA0K"), "{body}");
    });
}

#[test]
fn a_call_may_be_silent_on_either_side() {
    let config = TO_HTTP2.replace("routes: site,", "routes: site, timeouts: { tunnel_idle: 10m },");
    let config = config.replace("cluster: app,", "cluster: app, timeout: none,");
    hold(&config, |talk| {
        let mut client = Speaker::client(talk);
        let call = client.asks(talk, ASK, false);
        let mut upstream = Speaker::upstream(talk);
        client.sends(talk, call, MESSAGE, false);
        upstream.hears(talk);
        talk.passes(Duration::from_secs(100));
        upstream.answers(talk, 1, ANSWER, false);
        // First the service alone sends messages, then the client alone.
        for _ in 0..10 {
            talk.passes(Duration::from_secs(100));
            upstream.sends(talk, 1, MESSAGE, false);
            assert!(client.hears(talk).contains("abc"));
        }
        for _ in 0..10 {
            talk.passes(Duration::from_secs(100));
            client.sends(talk, call, MESSAGE, false);
            assert!(upstream.hears(talk).contains("abc"));
        }
        talk.passes(Duration::from_secs(601));
        assert!(client.hears(talk).contains("reset"));
        assert!(talk.log().contains("tunnel_idle_timeout"));
    });
}

#[test]
fn a_service_may_be_silent_before_the_head_of_its_stream() {
    hold(TO_HTTP2, |talk| {
        let mut client = Speaker::client(talk);
        let call = client.asks(talk, ASK, false);
        let mut upstream = Speaker::upstream(talk);
        client.sends(talk, call, MESSAGE, true);
        upstream.hears(talk);
        // Past `timeouts.response_head`, to the message that the head comes with.
        talk.passes(Duration::from_secs(600));
        upstream.answers(talk, 1, ANSWER, false);
        upstream.sends(talk, 1, MESSAGE, false);
        assert!(client.hears(talk).contains("abc"));
    });
    // Silence of both ends it all the same.
    let config = TO_HTTP2.replace("routes: site,", "routes: site, timeouts: { tunnel_idle: 2m },");
    hold(&config, |talk| {
        let mut client = Speaker::client(talk);
        let call = client.asks(talk, ASK, false);
        let mut upstream = Speaker::upstream(talk);
        client.sends(talk, call, MESSAGE, true);
        upstream.hears(talk);
        talk.passes(Duration::from_secs(121));
        client.hears(talk);
        assert!(talk.log().contains("tunnel_idle_timeout"), "{}", talk.log());
    });
}

#[test]
fn a_response_that_is_none_of_grpc_passes_as_it_is() {
    hold(&with_web(), |talk| {
        let client = talk.client();
        talk.says(client, "POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 12\r\n\r\nAAAAAANhYmM=");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        let head = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n";
        upstream.answers(talk, 1, head, false);
        upstream.sends(talk, 1, b"<h1/>", true);
        let received = talk.heard(client);
        assert!(received.starts_with("HTTP/1.1 404 Not Found\r\n"), "{received}");
        assert!(received.contains("content-type: text/html\r\n"), "{received}");
        assert!(received.ends_with("\r\n\r\n<h1/>"), "{received}");
    });
}

#[test]
fn half_a_group_of_base64_is_no_call() {
    for text in ["A", "AAAAAAF", "AAAAAANhYmM"] {
        hold(&with_web(), |talk| {
            let client = talk.client();
            let len = text.len();
            let head = "POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web-text\r\n";
            talk.says(client, format!("{head}Content-Length: {len}\r\n\r\n{text}"));
            talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["grpc-status: 13\r\n"]);
            assert!(talk.log().contains("request_body_invalid"));
        });
    }
}

#[test]
fn what_is_no_base64_is_answered_with_a_status() {
    hold(&with_web(), |talk| {
        let client = talk.client();
        talk.says(client, "POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 4\r\n\r\n!!!!");
        let lines = ["content-type: application/grpc-web-text\r\n", "grpc-status: 13\r\n"];
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &lines);
        assert!(talk.log().contains("request_body_invalid"));
    });
}
