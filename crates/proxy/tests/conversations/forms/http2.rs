//! States of HTTP/2, gRPC, and RPC protocols.

use std::time::Duration;

use wire::h2::Limits;

use super::{GET, OK, keep};
use crate::frames::Speaker;
use crate::http2::{TO_HTTP2, to_one};
use crate::keep_alive::CONFIG;
use crate::{calls, rpc};

/// What a client begins with: the preface, and SETTINGS without any.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// `GET /` for `x` on stream 1: HEADERS with a part of the fields, and CONTINUATION with the others.
const HEADERS: &[u8] = b"\0\0\x02\x01\x01\0\0\0\x01\x82\x86";
const CONTINUATION: &[u8] = b"\0\0\x04\x09\x04\0\0\0\x01\x84\x41\x01x";

#[test]
fn connections_of_http2_that_begin() {
    let whole = [BEGINNING, HEADERS, CONTINUATION].concat();
    let headers = BEGINNING.len() + HEADERS.len();
    for (name, len) in [
        ("http2-preface-half", 10),
        ("http2-settings-awaited", 24),
        ("http2-headers-half", headers - 1),
        ("http2-continuation-awaited", headers),
        ("http2-continuation-half", whole.len() - 2),
    ] {
        keep(name, CONFIG, |talk, kept| {
            let client = talk.client();
            talk.says(client, &whole[..len]);
            kept.here(talk, client);
            talk.says(client, &whole[len..]);
            let upstream = talk.upstream();
            talk.hears_about(upstream, "GET / HTTP/1.1\r\nhost: x\r\n", &[]);
            talk.says(upstream, OK);
            assert!(talk.heard(client).contains("ok"));
        });
    }
    // The client has not read the proxy's SETTINGS.
    keep("http2-settings-unacknowledged", CONFIG, |talk, kept| {
        let mut client = Speaker::client(talk);
        kept.here(talk, client.peer);
        let stream = client.gets(talk, "/");
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        let heard = client.hears(talk);
        assert!(heard.ends_with(&format!("{stream}: data ok END\n")), "{heard}");
    });
}

#[test]
fn connections_of_http2_that_wait() {
    keep("http2-idle", CONFIG, |talk, kept| {
        let mut client = Speaker::client(talk);
        client.gets(talk, "/first");
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        client.hears(talk);
        talk.breaks(upstream);
        kept.here(talk, client.peer);
        // The compression tables of both sides are what they were.
        let stream = client.gets(talk, "/first");
        let upstream = talk.upstream();
        talk.hears_about(upstream, "GET /first HTTP/1.1\r\nhost: x\r\n", &[]);
        talk.says(upstream, OK);
        assert!(client.hears(talk).ends_with(&format!("{stream}: data ok END\n")));
    });
    keep("http2-idle-upstream", &to_one(), |talk, kept| {
        let client = talk.client();
        talk.says(client, GET);
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        upstream.hears(talk);
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        kept.here(talk, upstream.peer);
        talk.says(client, GET);
        assert_eq!(upstream.hears(talk), "3: GET /; host: x END\n");
    });
    let ping = "routes: site, http2: { ping: { interval: 5s, timeout: 1s } },";
    keep("http2-ping-unanswered", &to_one().replacen("routes: site,", ping, 1), |talk, kept| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        client.gets(talk, "/slow");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        talk.passes(Duration::from_millis(5_100));
        kept.here(talk, client.peer);
        client.hears(talk);
        talk.passes(Duration::from_secs(2));
        assert!(!talk.is_closed(client.peer));
        talk.passes(Duration::from_millis(4_300));
        assert!(talk.is_closed(client.peer), "the next one has no answer");
    });
}

#[test]
fn streams_that_are_open_or_half_closed() {
    keep("http2-open", CONFIG, |talk, kept| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, "POST / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        client.sends(talk, stream, b"half", false);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        client.hears(talk);
        kept.here(talk, client.peer);
        client.sends(talk, stream, b"rest", true);
        talk.hears(upstream, "4\r\nrest\r\n0\r\n\r\n");
        talk.says(upstream, "4\r\nrest\r\n0\r\n\r\n");
        assert_eq!(client.hears(talk), format!("{stream}: data rest END\n"));
    });
    keep("http2-closed-by-client", CONFIG, |talk, kept| {
        let mut client = Speaker::client(talk);
        let (one, two) = (client.gets(talk, "/one"), client.gets(talk, "/two"));
        let (first, second) = (talk.upstream(), talk.upstream());
        talk.heard(first);
        talk.says(second, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        client.hears(talk);
        kept.here(talk, client.peer);
        talk.says(first, OK);
        talk.says(second, "rest");
        let heard = client.hears(talk);
        assert!(heard.contains(&format!("{one}: data ok END\n")), "{heard}");
        assert!(heard.contains(&format!("{two}: data rest END\n")), "{heard}");
    });
    keep("http2-closed-by-upstream", &to_one(), |talk, kept| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, "POST / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", false);
        upstream.sends(talk, 1, b"done", true);
        let heard = client.hears(talk);
        assert!(heard.contains(&format!("{stream}: data done END\n")), "{heard}");
        kept.here(talk, client.peer);
        let other = client.gets(talk, "/other");
        assert!(upstream.hears(talk).contains("GET /other"));
        upstream.answers(talk, 3, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert!(client.hears(talk).contains(&format!("{other}: 204")));
    });
    keep("http2-data-half", CONFIG, |talk, kept| {
        let client = talk.client();
        // The same without the end of the stream.
        let headers = [&HEADERS[..4], b"\0", &HEADERS[5..]].concat();
        talk.says(client, [BEGINNING, &headers, CONTINUATION].concat());
        talk.says(client, b"\0\0\x08\0\x01\0\0\0\x01half");
        let upstream = talk.upstream();
        let mut heard = talk.heard(upstream);
        kept.here(talk, client);
        talk.says(client, b"rest");
        heard.push_str(&talk.heard(upstream));
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        assert_eq!(crate::bodies::dechunked(body).0, "halfrest");
    });
}

#[test]
fn streams_that_wait_for_windows_or_room() {
    let limits = Limits { stream_window_bytes_max: 4, ..Limits::default() };
    keep("http2-window-shut", CONFIG, |talk, kept| {
        let mut client = Speaker::client_with(talk, limits);
        client.takes = false;
        let stream = client.gets(talk, "/");
        let upstream = talk.upstream();
        client.hears(talk);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalfrest");
        assert!(client.hears(talk).ends_with(&format!("{stream}: data half\n")));
        kept.here(talk, client.peer);
        client.takes = true;
        client.does(talk, |codec| codec.on_taken(stream, 4));
        assert_eq!(client.hears(talk), format!("{stream}: data rest END\n"));
    });
    keep("http2-upstream-window-shut", TO_HTTP2, |talk, kept| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n");
        let mut upstream = Speaker::upstream_with(talk, limits);
        upstream.hears(talk);
        upstream.takes = false;
        talk.says(client, "halfrest");
        assert_eq!(upstream.hears(talk), "1: data half\n");
        kept.here(talk, client);
        upstream.takes = true;
        upstream.does(talk, |codec| codec.on_taken(1, 4));
        assert_eq!(upstream.hears(talk), "1: data rest END\n");
    });
    let limits = Limits { streams_max: 1, ..Limits::default() };
    keep("http2-queued", &to_one(), |talk, kept| {
        let mut client = Speaker::client(talk);
        client.gets(talk, "/first");
        let mut upstream = Speaker::upstream_with(talk, limits);
        upstream.hears(talk);
        client.gets(talk, "/second");
        assert_eq!(upstream.hears(talk), "");
        kept.here(talk, client.peer);
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert!(upstream.hears(talk).starts_with("3: GET /second"));
    });
}

#[test]
fn calls_of_grpc() {
    keep("http2-calls", TO_HTTP2, |talk, kept| {
        let mut client = Speaker::client(talk);
        let head = "POST /a.B/C HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nConnection: te\r\nTE: trailers\r\n\r\n";
        let call = client.asks(talk, head, false);
        let mut upstream = Speaker::upstream(talk);
        client.sends(talk, call, b"\0\0\0\0\x03ab", false);
        upstream.hears(talk);
        client.gets(talk, "/other");
        kept.here(talk, client.peer);
        client.sends(talk, call, b"c", true);
        assert_eq!(upstream.hears(talk), "1: data c END\n");
        let mut other = Speaker::upstream(talk);
        assert!(other.hears(talk).starts_with("1: GET /other"));
        upstream.answers(talk, 1, calls::ANSWER, false);
        upstream.sends(talk, 1, calls::MESSAGE, false);
        upstream.ends_with(talk, 1, "grpc-status: 0\r\n");
        assert!(client.hears(talk).contains("trailers grpc-status: 0"));
        assert!(talk.log().contains("\"grpc_request_messages\":1"));
    });
    let web = "POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 12\r\n\r\n";
    keep("http2-grpc-web-request-half", &calls::with_web(), |talk, kept| {
        let client = talk.client();
        // Two groups of base64, and a part of the next one.
        talk.says(client, format!("{web}AAAAAANhY"));
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        kept.here(talk, client);
        talk.says(client, "mM=");
        assert_eq!(upstream.hears(talk), "1: data bc END\n");
    });
    keep("http2-grpc-web-response-half", &calls::with_web(), |talk, kept| {
        let client = talk.client();
        talk.says(client, format!("{web}AAAAAANhYmM="));
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        upstream.answers(talk, 1, calls::ANSWER, false);
        upstream.sends(talk, 1, b"\0\0\0\0\x03", false);
        let mut heard = talk.heard(client);
        kept.here(talk, client);
        upstream.sends(talk, 1, b"abc", false);
        upstream.ends_with(talk, 1, "grpc-status: 0\r\n");
        heard.push_str(&talk.heard(client));
        assert!(heard.contains("gAAAABBncnBjLXN0YXR1czogMA0K"), "{heard}");
        assert!(talk.log().contains("\"grpc_status\":0"));
    });
}

#[test]
fn calls_of_rpc() {
    keep("rpc-calls", rpc::CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, rpc::call(7, "pay", "12"));
        let upstream = talk.upstream();
        talk.says(client, &rpc::call(8, "long", "a body")[..40]);
        talk.heard(upstream);
        kept.here(talk, client);
        talk.says(client, &rpc::call(8, "long", "a body")[40..]);
        rpc::hears(talk, upstream, "call 3 0 service=orders method=long: a body\n");
        talk.says(upstream, rpc::answer(1, "paid"));
        rpc::hears(talk, client, "answer 7 0: paid\n");
    });
    keep("rpc-answer-half", rpc::CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, rpc::call(7, "pay", "12"));
        let upstream = talk.upstream();
        talk.heard(upstream);
        let answer = rpc::answer(1, "paid");
        talk.says(upstream, &answer[..answer.len() - 2]);
        kept.here(talk, client);
        talk.says(upstream, &answer[answer.len() - 2..]);
        rpc::hears(talk, client, "answer 7 0: paid\n");
    });
    let frames = rpc::bolt_frames();
    keep("bolt-frame-half", &rpc::bolt(), |talk, kept| {
        let client = talk.client();
        let (first, last) = frames[0].split_at(frames[0].len() / 2);
        talk.says(client, first);
        kept.here(talk, client);
        talk.says(client, last);
        let upstream = talk.upstream();
        assert!(!talk.heard_bytes(upstream).is_empty());
        talk.says(upstream, &frames[1]);
        assert_eq!(talk.heard_bytes(client), frames[1]);
    });
}
