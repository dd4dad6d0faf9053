//! `rewrite.host_endpoint`: each attempt has the host of its endpoint.

use std::time::Duration;

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const PUT: &str = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const EMPTY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

const ONE: &str = "{ address: '127.0.0.1:9000', host: one.example }";
const TWO: &str = "{ address: '127.0.0.1:9001', host: two.much-longer.example }";
const THREE: &str = "'127.0.0.1:9002'";

fn config(endpoints: &[&str], more: &str) -> String {
    CONFIG.replace("['127.0.0.1:9000']", &format!("[{}]", endpoints.join(", "))).replace(
        "cluster: web }]",
        &format!("cluster: web, rewrite: {{ host_endpoint: true }}{more} }}]"),
    )
}

fn host_of(talk: &Talk<'_>, peer: Peer) -> &'static str {
    match &*talk.address(peer).to_string() {
        "127.0.0.1:9000" => "one.example",
        "127.0.0.1:9001" => "two.much-longer.example",
        _ => "x",
    }
}

fn with(host: &str) -> String {
    GET.replace("Host: x", &format!("Host: {host}"))
}

#[test]
fn a_request_is_for_the_host_of_its_endpoint() {
    hold(&config(&[ONE, TWO, THREE], ""), |talk| {
        let client = talk.client();
        for _ in 0..3 {
            talk.says(client, GET);
            let upstream = talk.upstream();
            let host = host_of(talk, upstream);
            talk.hears(upstream, &with(host));
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
    });
}

#[test]
fn a_connection_that_is_kept_and_a_body_change_nothing() {
    hold(&config(&[TWO], ""), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, &with("two.much-longer.example"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(client, PUT);
        talk.hears(upstream, &PUT.replace("Host: x", "Host: two.much-longer.example"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn another_attempt_is_for_the_host_of_its_own() {
    let retry = ", retry: { on: [gateway_error], attempts_max: 3, elsewhere: previous_endpoints }";
    hold(&config(&[ONE, TWO, THREE], retry), |talk| {
        let client = talk.client();
        talk.says(client, PUT);
        for attempt in 0..3 {
            let upstream = talk.upstream();
            let host = host_of(talk, upstream);
            talk.hears(upstream, &PUT.replace("Host: x", &format!("Host: {host}")));
            talk.says(upstream, if attempt < 2 { EMPTY } else { OK });
            talk.passes(Duration::from_millis(500));
        }
        talk.hears(client, OK);
    });
}

#[test]
fn one_that_waited_is_for_the_host_of_the_endpoint_that_it_gets() {
    let config =
        config(&[TWO], "").replace("    endpoints", "    connections_max: 1\n    endpoints");
    hold(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        talk.says(second, GET);
        let upstream = talk.upstream();
        for client in [first, second] {
            talk.hears(upstream, &with("two.much-longer.example"));
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
    });
}

#[test]
fn a_weighted_cluster_has_its_own_host() {
    let config = config(&[ONE], "").replace(
        "cluster: web, rewrite",
        "clusters: [{ cluster: web, rewrite: { host: web.internal } }], rewrite",
    );
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, &with("web.internal").replace("Host", "host"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn the_addresses_of_a_proxy_header_are_no_host() {
    let config =
        config(&[TWO], "").replace("    endpoints", "    proxy_protocol: v2\n    endpoints");
    hold(&config, |talk| {
        // In the client's address stands what a head could have: "\r\nhost:x\r\n".
        talk.comes_from("d0a:686f:7374:3a78:d0a::1");
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        let heard = talk.heard_bytes(upstream);
        let (header, head) = heard.split_at(heard.len() - with("two.much-longer.example").len());
        assert_eq!(head, with("two.much-longer.example").as_bytes());
        assert!(header.windows(9).any(|octets| octets == b"\r\nhost:x\r"), "{header:?}");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn streams_of_http2_have_the_host_of_their_endpoint() {
    let config = TO_HTTP2
        .replace("['127.0.0.1:9000', '127.0.0.1:9001']", &format!("[{TWO}]"))
        .replace("cluster: app,", "cluster: app, rewrite: { host_endpoint: true },")
        .replace("max: 2", "max: 1");
    hold(&config, |talk| {
        let (one, two) = (talk.client(), talk.client());
        talk.says(one, GET);
        // It waits until the connection says how many streams it takes.
        talk.says(two, PUT);
        let mut upstream = Speaker::upstream(talk);
        let heard = upstream.hears(talk);
        assert!(heard.contains("1: GET /; host: two.much-longer.example END\n"), "{heard}");
        let put = "3: PUT /; host: two.much-longer.example; content-length: 4\n3: data body END\n";
        assert!(heard.contains(put), "{heard}");
        for (stream, client) in [(1, one), (3, two)] {
            upstream.answers(talk, stream, OK, false);
            upstream.sends(talk, stream, b"ok", true);
            talk.hears(client, &OK.replace("Content-Length", "content-length"));
        }
    });
}

#[test]
fn an_endpoint_that_comes_between_two_attempts_gets_no_others_host() {
    let retry = ", retry: { on: [gateway_error], attempts_max: 2, backoff: { base: 1s, max: 1s } }";
    hold(&config(&[ONE], retry), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, &with("one.example"));
        // The next attempt is for an endpoint that has no host, of a cluster that had one endpoint.
        talk.reconfigures(&config(&[THREE], retry));
        talk.says(upstream, EMPTY);
        talk.passes(Duration::from_secs(2));
        let other = talk.upstream();
        talk.hears(other, GET);
        talk.says(other, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_rule_that_changes_between_two_attempts_leaves_no_host_behind() {
    let retry = ", retry: { on: [gateway_error], attempts_max: 2, backoff: { base: 1s, max: 1s } }";
    hold(&config(&[ONE], retry), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, &with("one.example"));
        // It moves to a worker or process whose rule keeps the client's host.
        let newer = config(&[THREE, TWO], retry).replace(" rewrite: { host_endpoint: true },", "");
        talk.comes_back_to(client, &newer);
        talk.says(upstream, EMPTY);
        talk.passes(Duration::from_secs(2));
        let other = talk.upstream();
        talk.hears(other, GET);
        talk.says(other, OK);
        talk.hears(client, OK);
    });
}
