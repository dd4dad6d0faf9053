//! Connections that are over their age.

use std::time::Duration;

use crate::frames::Speaker;
use crate::kit::{Peer, Talk, Variant, hold};
use crate::tls::{self, Secure, trusting_anybody};

const CONFIG: &str = "
listeners:
- name: web
  address: 127.0.0.1:8080
  http: { forwarded: off, request_id: false }
  timeouts: { connection_age: 100s, connection_age_grace: 20s, idle: 1h, tunnel_idle: 1h }
  routes: site
routes: [{ name: site, rules: [{ match: { prefix: / }, cluster: app, upgrades: [websocket] }] }]
clusters: [{ name: app, endpoints: ['127.0.0.1:9000'], timeouts: { response_head: 1h, response_body: 1h, idle: 1h } }]
";

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// Before any connection is over its age, and after every one is.
const YOUNG: Duration = Duration::from_secs(89);
const OLD: Duration = Duration::from_secs(22);

fn second() -> Duration {
    Duration::from_secs(1)
}

/// A client that was answered once, and the connection to the service.
fn answered(talk: &mut Talk<'_>) -> (Peer, Peer) {
    let client = talk.client();
    talk.says(client, GET);
    let upstream = talk.upstream();
    is_answered(talk, client, upstream);
    (client, upstream)
}

/// The service answers what the client asked for on a connection that stays.
fn is_answered(talk: &mut Talk<'_>, client: Peer, upstream: Peer) {
    talk.hears(upstream, GET);
    talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
    talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
}

#[test]
fn a_client_of_http1_gets_connection_close_with_its_next_response() {
    hold(CONFIG, |talk| {
        let (client, upstream) = answered(talk);
        talk.passes(YOUNG);
        talk.says(client, GET);
        is_answered(talk, client, upstream);
        talk.passes(OLD);
        talk.says(client, GET);
        talk.hears(upstream, GET);
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        assert!(talk.is_shut(client));
        talk.ends(client);
    });
}

#[test]
fn a_silent_client_is_closed_soon() {
    hold(CONFIG, |talk| {
        let (client, _) = answered(talk);
        talk.passes(YOUNG);
        assert!(!talk.is_closed(client));
        talk.passes(OLD);
        talk.passes(Duration::from_secs(6));
        assert!(talk.is_closed(client));
    });
}

#[test]
fn a_client_of_http2_gets_goaway_at_once_and_its_streams_end_first() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.gets(talk, "/");
        let upstream = talk.upstream();
        client.hears(talk);
        talk.heard(upstream);
        talk.passes(YOUNG);
        assert_eq!(client.hears(talk), "");
        talk.passes(OLD);
        let received = client.hears(talk);
        assert!(received.starts_with("going away after 2147483647: NO_ERROR\n"), "{received}");
        // Looking again says it no second time.
        talk.passes(second());
        talk.passes(second());
        assert!(!client.hears(talk).contains("2147483647"));
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(client.hears(talk), format!("{stream}: 204 END\n"));
        assert!(talk.is_shut(client.peer));
        talk.ends(client.peer);
    });
}

#[test]
fn what_still_runs_after_the_grace_is_cut_off() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart");
        talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart");
        talk.passes(YOUNG + OLD);
        assert!(!talk.is_closed(client));
        talk.passes(Duration::from_secs(21));
        assert!(talk.is_closed(client));
        let log = talk.log();
        assert!(log.contains("\"cause\":\"connection_age\""), "{log}");
        let why =
            "timeouts.connection_age of the listener: 100s, and timeouts.connection_age_grace: 20s";
        assert!(log.contains(why), "{log}");
    });
}

/// It draws another age where it goes on, perhaps one that is over for longer than the grace, and has had no word of that.
#[test]
fn a_connection_that_moves_is_asked_to_go_before_it_is_cut_off() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        // All ages are over then, and the grace of all.
        talk.comes_back_to(client, &CONFIG.replace("connection_age: 100s", "connection_age: 1h"));
        talk.passes(YOUNG + OLD + Duration::from_secs(60));
        talk.comes_back_to(client, CONFIG);
        talk.passes(Duration::from_secs(2));
        assert!(!talk.is_closed(client));
        talk.passes(Duration::from_secs(16));
        assert!(!talk.is_closed(client));
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["connection: close\r\n"]);
    });
}

#[test]
fn streams_that_still_run_after_the_grace_are_cut_off() {
    hold(CONFIG, |talk| {
        let mut client = Speaker::client(talk);
        client.gets(talk, "/");
        let upstream = talk.upstream();
        client.hears(talk);
        talk.heard(upstream);
        talk.passes(YOUNG + OLD);
        client.hears(talk);
        assert!(!talk.is_closed(client.peer));
        talk.passes(Duration::from_secs(21));
        assert!(talk.is_closed(client.peer));
    });
}

#[test]
fn tunnels_and_what_is_relayed_have_the_age_and_its_grace() {
    let relay = CONFIG
        .replace("  routes: site\n", "  protocol: tcp\n  cluster: app\n")
        .replace("routes: [{ name: site, rules: [{ match: { prefix: / }, cluster: app, upgrades: [websocket] }] }]\n", "");
    hold(&relay, |talk| {
        let client = talk.client();
        talk.says(client, "hello");
        let upstream = talk.upstream();
        talk.hears(upstream, "hello");
        talk.passes(YOUNG + OLD);
        talk.says(upstream, "still there");
        talk.hears(client, "still there");
        talk.passes(Duration::from_secs(21));
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
    });
}

#[test]
fn without_an_age_connections_live_on() {
    let config = CONFIG.replace("connection_age: 100s, ", "");
    hold(&config, |talk| {
        let (client, upstream) = answered(talk);
        talk.passes(Duration::from_secs(3_000));
        talk.says(client, GET);
        is_answered(talk, client, upstream);
    });
}

#[test]
fn clients_with_certificates_have_an_age_of_their_own() {
    const CONFIG: &str = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  tls:
    certificates: [{ chain: a.pem, key: a.key }]
    client: { ca: e.pem, mode: optional, connection_age_max: 100s }
  timeouts: { connection_age: 1h, idle: 1h }
  routes: all
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }]
";
    let ask = |talk: &mut Talk<'_>, client: &mut Secure| {
        client.says(talk, GET);
        client.hears(talk).contains("connection: close")
    };
    tls::hold(CONFIG, |talk, pki| {
        let mut known = trusting_anybody();
        known.client_auth_cert_resolver = pki.client_with(4).client_auth_cert_resolver;
        let mut known = Secure::client(talk, known, "a.example");
        let mut unknown = Secure::client(talk, trusting_anybody(), "a.example");
        assert!(!ask(talk, &mut known) && !ask(talk, &mut unknown));
        // A bound is never exceeded: some are over it by a fifth less.
        talk.passes(Duration::from_secs(79));
        assert!(!ask(talk, &mut known) && !ask(talk, &mut unknown));
        talk.passes(Duration::from_secs(21));
        assert!(ask(talk, &mut known) && !ask(talk, &mut unknown));
    });
}

/// Connections to the service, and not those of clients, end for these options.
fn of_cluster(options: &str, timeouts: &str) -> String {
    CONFIG.replace("connection_age: 100s, connection_age_grace: 20s, ", "").replace(
        "timeouts: { response_head: 1h,",
        &format!("{options}timeouts: {{ {timeouts}response_head: 1h,"),
    )
}

#[test]
fn a_connection_of_http1_ends_with_its_last_request() {
    hold(&of_cluster("requests_per_connection_max: 2, ", ""), |talk| {
        let (client, first) = answered(talk);
        talk.says(client, GET);
        is_answered(talk, client, first);
        assert!(talk.is_closed(first));
        talk.says(client, GET);
        let second = talk.upstream();
        is_answered(talk, client, second);
        assert!(!talk.is_closed(second));
    });
}

#[test]
fn a_connection_that_exchanges_share_ends_with_its_last_request() {
    hold(&of_cluster("protocol: http2, requests_per_connection_max: 2, ", ""), |talk| {
        let mut client = Speaker::client(talk);
        let streams: Vec<_> = (0..3).map(|_| client.gets(talk, "/")).collect();
        let (mut first, mut second) = (Speaker::upstream(talk), Speaker::upstream(talk));
        let (of_first, of_second) = (first.hears(talk), second.hears(talk));
        assert_eq!([&of_first, &of_second].map(|it| it.matches("GET /").count()), [2, 1]);
        // A service that took it for the end would not answer.
        assert!(!of_first.contains("going away") && !of_second.contains("going away"));
        for stream in [1, 3] {
            first.answers(talk, stream, "HTTP/1.1 204 No Content\r\n\r\n", true);
        }
        second.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        let heard = client.hears(talk);
        assert!(streams.iter().all(|stream| heard.contains(&format!("{stream}: 204"))), "{heard}");
        assert!(talk.is_closed(first.peer) && !talk.is_closed(second.peer));
    });
}

#[test]
fn a_connection_of_a_cluster_ends_at_its_age_and_not_amid_a_request() {
    hold(&of_cluster("", "connection_age: 100s, "), |talk| {
        let (client, idle) = answered(talk);
        talk.passes(YOUNG);
        talk.says(client, GET);
        is_answered(talk, client, idle);
        talk.passes(OLD);
        assert!(talk.is_closed(idle));

        talk.says(client, GET);
        let busy = talk.upstream();
        talk.hears(busy, GET);
        talk.passes(YOUNG + OLD);
        assert!(!talk.is_closed(busy));
        talk.says(busy, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        assert!(talk.is_closed(busy));
    });
}

#[test]
fn a_shared_connection_of_a_cluster_goes_away_at_its_age() {
    hold(&of_cluster("protocol: http2, ", "connection_age: 100s, "), |talk| {
        let mut client = Speaker::client(talk);
        let first = client.gets(talk, "/");
        let mut old = Speaker::upstream(talk);
        old.hears(talk);
        talk.passes(YOUNG + OLD);
        assert!(!old.hears(talk).contains("going away") && !talk.is_closed(old.peer));
        let second = client.gets(talk, "/");
        let mut young = Speaker::upstream(talk);
        young.hears(talk);
        young.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        old.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        let heard = client.hears(talk);
        for stream in [first, second] {
            assert!(heard.contains(&format!("{stream}: 204")), "{heard}");
        }
        assert!(talk.is_closed(old.peer) && !talk.is_closed(young.peer));
    });
}
