//! States of HTTP/1.

use std::time::Duration;

use super::{GET, OK, keep, keep_with};
use crate::keep_alive::CONFIG;
use crate::{filter_bodies, filters, mirrors, proxy_sources};

const LOG: &str = "access_log: { output: stdout, fields: [request_headers.x-tenant] }\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n";

fn to_one() -> String {
    format!("{CONFIG}    connections_max: 1\n")
}

#[test]
fn clients_that_have_asked_for_nothing() {
    keep("http1-new", CONFIG, |talk, kept| {
        let client = talk.client();
        kept.here(talk, client);
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
    keep("http1-idle", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.breaks(upstream);
        kept.here(talk, client);
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
    keep("idle-upstream", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.heard(upstream);
        kept.here(talk, upstream);
        talk.says(client, GET);
        talk.hears(upstream, GET);
        assert!(!talk.is_connecting());
    });
}

#[test]
fn requests_of_which_a_part_is_here() {
    keep("http1-head-half", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, "GET /a?b HTTP/1.1\r\nHo");
        kept.here(talk, client);
        talk.says(client, "st: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears(upstream, "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
    keep("http1-body-half", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, format!("{POST}half"));
        let upstream = talk.upstream();
        talk.hears(upstream, &format!("{POST}half"));
        kept.here(talk, client);
        talk.says(client, "rest");
        talk.hears(upstream, "rest");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
    let chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (name, first, last) in [
        ("http1-chunk-size-half", "1", "0\r\nsixteen octets!!\r\n0\r\n\r\n"),
        ("http1-chunk-half", "8\r\nhalf", "rest\r\n0\r\n\r\n"),
        ("http1-trailers-half", "4\r\nhalf\r\n0\r\nx-su", "m: 1\r\n\r\n"),
    ] {
        keep(name, CONFIG, |talk, kept| {
            let client = talk.client();
            talk.says(client, format!("{chunked}{first}"));
            let upstream = talk.upstream();
            let mut heard = talk.heard(upstream);
            kept.here(talk, client);
            talk.says(client, last);
            heard.push_str(&talk.heard(upstream));
            let (_, body) = heard.split_once("\r\n\r\n").unwrap();
            let expected = format!("{first}{last}");
            assert_eq!(crate::bodies::dechunked(body), crate::bodies::dechunked(&expected));
            talk.says(upstream, OK);
            talk.hears(client, OK);
        });
    }
    keep("http1-continue-awaited", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, POST.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n"));
        let upstream = talk.upstream();
        talk.heard(upstream);
        kept.here(talk, client);
        talk.says(upstream, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.hears(client, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.says(client, "the body");
        talk.hears(upstream, "the body");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn requests_that_have_no_upstream_yet() {
    keep("http1-connecting", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, format!("{POST}body"));
        let upstream = talk.connecting();
        kept.here(talk, client);
        talk.establish(upstream);
        talk.hears(upstream, &format!("{POST}body"));
        talk.says(client, "rest");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
    keep("http1-waiting", &to_one(), |talk, kept| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        talk.says(second, "GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
        kept.here(talk, second);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, OK);
        talk.hears(upstream, "GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
    keep_with("http1-suspended", filters::CONFIG, filters::kinds, |talk, kept| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nX-User: me\r\n\r\n");
        assert_eq!(&*talk.question().payload, b"me");
        kept.here(talk, client);
        assert_eq!(talk.questions(), 2, "it is asked again");
        talk.answers(b"admin");
        let upstream = talk.upstream();
        assert!(talk.heard(upstream).to_lowercase().contains("x-user: admin\r\n"));
        talk.says(upstream, OK);
        assert!(talk.heard(client).ends_with("ok"));
    });
    let whole = filter_bodies::config(filter_bodies::WHOLE);
    keep_with("http1-gathering", &whole, filter_bodies::kinds, |talk, kept| {
        let client = talk.client();
        talk.says(client, format!("{POST}half"));
        assert!(!talk.is_connecting());
        kept.here(talk, client);
        talk.says(client, "rest");
        let upstream = talk.upstream();
        talk.hears(
            upstream,
            &format!("{POST}halfrest").replace("8\r\n\r\n", "8\r\nx-length: 8\r\n\r\n"),
        );
    });
}

#[test]
fn requests_that_wait_for_their_response() {
    keep("http1-attempting", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\n");
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        kept.here(talk, client);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(client, "Host: x\r\n\r\n");
        talk.hears(upstream, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    });
    keep("http1-may-be-retried", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, GET);
        let former = talk.upstream();
        talk.says(former, OK);
        let put = POST.replace("POST", "PUT");
        talk.says(client, format!("{put}half"));
        talk.heard(client);
        kept.here(talk, client);
        // Reused, it ends before it has said a byte.
        talk.ends(former);
        let upstream = talk.upstream();
        talk.says(client, "rest");
        talk.hears(upstream, &format!("{put}halfrest"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
    keep("http1-mirrored", &mirrors::config(""), |talk, kept| {
        let client = talk.client();
        talk.says(client, format!("{POST}half"));
        let upstream = talk.upstream();
        // A copy is sent when its request is whole.
        talk.says(client, "rest");
        let shadow = talk.upstream();
        kept.here(talk, client);
        assert!(talk.heard(shadow).ends_with("halfrest"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(shadow, OK);
    });
}

#[test]
fn responses_of_which_a_part_is_here() {
    keep("http1-responding", &format!("{CONFIG}{LOG}"), |talk, kept| {
        let client = talk.client();
        talk.says(
            client,
            "POST /a?b HTTP/1.1\r\nHost: x\r\nX-Tenant: t\r\nContent-Length: 9\r\n\r\nhalf",
        );
        let upstream = talk.upstream();
        talk.passes(Duration::from_millis(5));
        talk.says(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf");
        talk.heard(upstream);
        kept.here(talk, client);
        talk.says(client, " more");
        talk.hears(upstream, " more");
        talk.says(upstream, "rest\r\n0\r\n\r\n");
        let heard = talk.heard(client);
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        assert_eq!(crate::bodies::dechunked(body).0, "halfrest");
    });
    for (name, first, last) in [
        ("http1-interim", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", OK),
        ("http1-status-half", "HTTP/1.1 20", "0 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("http1-response-half", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf", "rest"),
        ("http1-response-until-close", "HTTP/1.0 200 OK\r\n\r\nhalf", "rest"),
    ] {
        keep(name, CONFIG, |talk, kept| {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            talk.says(upstream, first);
            kept.here(talk, client);
            talk.says(upstream, last);
            talk.ends(upstream);
            let heard = talk.heard(client);
            assert!(heard.starts_with("HTTP/1.1 "), "{heard}");
            let has_all = heard.replace("\r\n4\r\n", "").contains("halfrest");
            assert!(heard.ends_with("\r\n\r\nok") || has_all, "{heard}");
        });
    }
}

#[test]
fn connections_that_end() {
    keep("http1-undelivered", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.takes(client, 10);
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        kept.here(talk, client);
        talk.takes(client, usize::MAX);
        talk.hears(client, OK);
        assert!(!talk.is_shut(client));
    });
    keep("http1-close-when-sent", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.takes(client, 10);
        talk.says(client, GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        kept.here(talk, client);
        assert!(!talk.is_shut(client));
        talk.takes(client, usize::MAX);
        assert!(talk.heard(client).ends_with("\r\n\r\nok"));
        assert!(talk.is_shut(client));
    });
    keep("http1-lingering", CONFIG, |talk, kept| {
        let client = talk.client();
        talk.says(client, "garbage\r\n\r\n");
        talk.heard(client);
        kept.here(talk, client);
        talk.says(client, "more of it");
        assert!(talk.is_shut(client) && !talk.is_closed(client));
        talk.passes(Duration::from_secs(5));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn proxy_headers() {
    let header = "PROXY TCP4 198.51.100.7 10.0.0.1 5 80\r\n";
    for (name, len) in [("http1-proxy-header-awaited", 0), ("http1-proxy-header-half", 20)] {
        keep(name, proxy_sources::CONFIG, |talk, kept| {
            let client = talk.client();
            talk.says(client, &header[..len]);
            kept.here(talk, client);
            talk.says(client, &header[len..]);
            talk.says(client, GET);
            assert!(talk.heard(client).starts_with("HTTP/1.1 200 "));
            assert!(talk.log().contains("198.51.100.7"));
        });
    }
    keep(
        "http1-proxy-header-to-send",
        &format!("{CONFIG}    proxy_protocol: v1\n"),
        |talk, kept| {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.connecting();
            talk.takes(upstream, 9);
            talk.establish(upstream);
            kept.here(talk, client);
            talk.takes(upstream, usize::MAX);
            let header = "PROXY TCP4 192.0.2.7 198.51.100.1 40000 8080\r\n";
            talk.hears(upstream, &format!("{header}{GET}"));
        },
    );
}
