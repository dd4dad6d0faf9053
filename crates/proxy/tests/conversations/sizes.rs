//! How many bytes connections are written down as: a handover of ten thousand of them copies as many times that.
//!
//! Sizes are exact, so that a change shows. The second number of each row is what the form may have at most.

use rustls::version::{TLS12, TLS13};

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};
use crate::tls::{self, OK, Secure};

/// What a browser sends, some 400 bytes.
const GET: &str = "GET /articles/2026/11/how-it-works?from=mail HTTP/1.1\r\nHost: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\
    Sec-Fetch-Mode: navigate\r\nPriority: u=0, i\r\n\r\n";

/// Compares the size of a connection's group in this state.
fn compare(
    config: &str,
    (bytes, bytes_max): (usize, usize),
    state: impl Fn(&mut Talk<'_>) -> Peer,
) {
    hold(config, |talk| compare_in(talk, (bytes, bytes_max), &state));
}

fn compare_in(
    talk: &mut Talk<'_>,
    (bytes, bytes_max): (usize, usize),
    state: impl Fn(&mut Talk<'_>) -> Peer,
) {
    if talk.variant() != Variant::Plain {
        return talk.leave_out();
    }
    let peer = state(talk);
    assert_eq!(talk.saved(peer).len(), bytes);
    assert!(bytes <= bytes_max, "{bytes} of {bytes_max}");
}

#[test]
fn an_idle_connection_of_http1() {
    compare(CONFIG, (52, 96), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        client
    });
}

#[test]
fn an_idle_connection_of_tls() {
    for (version, bytes) in [(&TLS12, 283), (&TLS13, 283)] {
        tls::hold(tls::CONFIG, |talk, pki| {
            compare_in(talk, (bytes, 400), |talk| {
                let mut client = Secure::client(talk, pki.client(version), "a.example");
                client.says(talk, GET);
                let upstream = talk.upstream();
                talk.says(upstream, OK);
                assert_eq!(client.hears(talk), OK);
                client.peer
            });
        });
    }
}

#[test]
fn an_idle_connection_of_http2_whose_tables_are_empty() {
    compare(TO_HTTP2, (156, 600), |talk| {
        let client = Speaker::client(talk);
        client.peer
    });
}

#[test]
fn a_request_that_waits_for_its_response() {
    compare(CONFIG, (756, 1000), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        talk.upstream();
        client
    });
}

#[test]
fn an_idle_connection_to_an_upstream() {
    compare(CONFIG, (51, 96), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        upstream
    });
}
