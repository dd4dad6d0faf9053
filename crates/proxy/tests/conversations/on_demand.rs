//! Requests whose cluster is not there, and that a source is asked for.

use std::time::Duration;

use config::reports::ON_DEMAND_TOPIC;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Talk, Variant, hold};

const GET: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\n";

/// [`CONFIG`] without its cluster, for which requests wait.
fn without() -> String {
    let (text, _) = CONFIG.split_once("clusters:").expect("there is one");
    format!("{text}resolvers: {{ on_demand_timeout: 3s }}\n")
}

/// The same with a cluster of that name.
fn with(options: &str) -> String {
    let cluster = format!("{{ name: web, endpoints: ['127.0.0.1:9000'] {options} }}");
    format!("{}clusters: [{cluster}]\n", without())
}

/// Holds a conversation in the variants in which the proxy stays the same.
fn hold_in_place(config: &str, script: impl Fn(&mut Talk<'_>)) {
    hold(config, |talk| match talk.variant() {
        Variant::Moving => talk.leave_out(),
        Variant::Plain | Variant::ByteByByte => script(talk),
    });
}

#[test]
fn a_request_waits_for_its_cluster_and_goes_there_once_it_comes() {
    hold_in_place(&without(), |talk| {
        let client = talk.client();
        talk.says(client, "POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nda");
        talk.says(client, "ta");
        let question = talk.question();
        assert_eq!((&*question.topic, &*question.payload), (ON_DEMAND_TOPIC, &b"web"[..]));
        talk.passes(Duration::from_secs(2));
        talk.hears(client, "");
        talk.reconfigures(&with(""));
        assert!(!talk.is_connecting(), "control says when all workers have it");
        talk.answers(b"");
        let upstream = talk.upstream();
        talk.hears(upstream, "POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndata");
        // What it waited for is over.
        talk.passes(Duration::from_secs(10));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(client, GET);
        talk.hears(upstream, GET);
        assert_eq!(talk.questions(), 0, "it is there");
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_cluster_that_does_not_come_in_time_is_a_503_that_says_so() {
    let edits = "cluster: web, headers: { response: { set: { x-asked: '%REQ(:path)%' } } }";
    hold(&without().replace("cluster: web", edits), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        assert_eq!(&*talk.question().payload, b"web");
        talk.passes(Duration::from_millis(2_900));
        talk.hears(client, "");
        talk.passes(Duration::from_millis(200));
        let heard = talk.hears_about(client, UNAVAILABLE, &[]);
        assert!(heard.contains("x-asked: /a\r\n"), "{heard}");
        assert!(heard.ends_with(": no_cluster\n"), "{heard}");
        let log = talk.log();
        let reason =
            "no source has delivered the cluster web within resolvers.on_demand_timeout: 3s";
        assert!(log.contains("\"cause\":\"no_cluster\"") && log.contains(reason), "{log}");
        // The client may ask again.
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_cluster_that_no_source_has_is_a_503_at_once() {
    hold(&without(), |talk| {
        let client = talk.client();
        for _ in 0..2 {
            talk.says(client, GET);
            talk.answers(b"registry has no cluster web");
            talk.hears_about(client, UNAVAILABLE, &[]);
            let log = talk.log().to_owned();
            assert!(log.contains("\"cause_detail\":\"registry has no cluster web\""), "{log}");
            talk.forgets_log();
        }
    });
}

#[test]
fn each_stream_waits_and_is_encoded_for_what_the_cluster_speaks() {
    hold_in_place(&without(), |talk| {
        let mut client = Speaker::client(talk);
        let first = client.gets(talk, "/1");
        talk.answers(b"registry has no cluster web");
        assert!(client.hears(talk).starts_with(&format!("{first}: 503;")));
        let second = client.posts(talk, "/2", b"body");
        talk.reconfigures(&with(", protocol: http2"));
        talk.answers(b"");
        let mut upstream = Speaker::upstream(talk);
        let heard = upstream.hears(talk);
        assert!(heard.contains("POST /2") && heard.contains("data body"), "{heard}");
        upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert!(client.hears(talk).starts_with(&format!("{second}: 204")));
        let third = client.gets(talk, "/3");
        assert_eq!(talk.questions(), 0);
        upstream.hears(talk);
        upstream.answers(talk, 3, "HTTP/1.1 204 No Content\r\n\r\n", true);
        assert!(client.hears(talk).starts_with(&format!("{third}: 204")));
    });
}

#[test]
fn a_client_that_leaves_meanwhile_is_forgotten_and_so_is_the_answer() {
    hold(&without(), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        assert_eq!(&*talk.question().payload, b"web");
        talk.breaks(client);
        talk.answers(b"");
        assert!(!talk.is_connecting());
    });
}

#[test]
fn an_answer_without_the_cluster_asks_again_within_the_same_time() {
    hold_in_place(&without(), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        for _ in 0..2 {
            talk.passes(Duration::from_secs(1));
            talk.answers(b"");
            assert_eq!(talk.questions(), 1, "the cluster may have gone again");
        }
        talk.passes(Duration::from_millis(900));
        talk.hears(client, "");
        talk.passes(Duration::from_millis(200));
        talk.hears_about(client, UNAVAILABLE, &[]);
    });
}

#[test]
fn a_request_that_waits_goes_by_the_rule_that_there_is_where_it_is_taken_up() {
    for name in ["web", "main"] {
        hold_in_place(&without(), |talk| {
            let client = talk.client();
            talk.says(client, GET);
            let other = with("").replace("cluster: web", &format!("cluster: {name}"));
            talk.comes_back_to(client, &other.replace("name: web", &format!("name: {name}")));
            assert_eq!(&*talk.question().payload, b"web", "it is asked again");
            talk.answers(b"");
            let upstream = talk.upstream();
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            talk.hears(client, OK);
        });
    }
}

#[test]
fn a_tunnel_waits_as_well() {
    let connect = "
listeners: [{ name: web, address: 127.0.0.1:8080, routes: site }]
routes: [{ name: site, rules: [{ match: { prefix: / }, cluster: db, upgrades: [connect] }] }]
resolvers: { on_demand_timeout: 3s }
";
    hold_in_place(connect, |talk| {
        let client = talk.client();
        talk.says(client, "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n");
        let db = "clusters: [{ name: db, endpoints: ['127.0.0.1:9000'] }]\n";
        talk.reconfigures(&format!("{connect}{db}"));
        talk.answers(b"");
        let db = talk.upstream();
        talk.hears(client, "HTTP/1.1 200 OK\r\n\r\n");
        talk.says(client, "select");
        talk.hears(db, "select");
        talk.says(db, "rows");
        talk.ends(db);
        talk.hears(client, "rows");
        talk.ends(client);
    });
}

#[test]
fn what_does_not_wait_asks_for_those_that_come_later_now_and_then() {
    let mirror =
        without().replace("cluster: web }", "cluster: web, mirror: [{ cluster: shadow }] }");
    let mirror = format!("{mirror}clusters: [{{ name: web, endpoints: ['127.0.0.1:9000'] }}]\n");
    hold_in_place(&mirror, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        assert_eq!(&*talk.question().payload, b"shadow");
        for (passes, questions) in [(1, 1), (20, 2)] {
            talk.says(upstream, OK);
            talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &[]);
            talk.passes(Duration::from_millis(passes));
            talk.says(client, GET);
            assert_eq!(talk.questions(), questions);
        }
        talk.answers(b"");
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &[]);
    });
    let relay = "
listeners: [{ name: edge, address: 127.0.0.1:8080, protocol: tcp, cluster: db }]
resolvers: { on_demand_timeout: 3s }
";
    hold_in_place(relay, |talk| {
        let client = talk.client();
        assert!(talk.is_closed(client));
        assert_eq!(&*talk.question().payload, b"db");
        assert!(talk.log().contains("no_cluster"));
    });
    // Where requests do not wait, they ask.
    hold_in_place(&without().replace("3s", "0s"), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        talk.hears_about(client, UNAVAILABLE, &[]);
        assert_eq!(talk.questions(), 1);
    });
}

#[test]
fn a_cluster_that_comes_again_counts_what_still_runs() {
    let one = with(", connections_max: 1, requests_max: 1");
    hold_in_place(&one, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let former = talk.upstream();
        talk.reconfigures(&without());
        talk.reconfigures(&one);
        // The service has a request of before.
        let other = talk.client();
        talk.says(other, GET);
        talk.hears_about(other, UNAVAILABLE, &[]);
        talk.says(former, OK);
        talk.hears(client, OK);
        assert!(talk.is_closed(former));
        talk.says(other, GET);
        let upstream = talk.upstream();
        for _ in 0..2 {
            talk.says(upstream, OK);
            talk.hears(other, OK);
            talk.says(other, GET);
            talk.heard(upstream);
        }
        assert!(!talk.is_connecting());
        talk.breaks(upstream);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(other, OK);
    });
}

#[test]
fn a_request_waits_for_a_connection_of_before() {
    let one = with(", connections_max: 1");
    hold_in_place(&one, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let former = talk.upstream();
        talk.reconfigures(&without());
        talk.reconfigures(&one);
        let other = talk.client();
        talk.says(other, GET);
        assert!(!talk.is_connecting(), "the bound is reached");
        talk.says(former, OK);
        talk.hears(client, OK);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(other, OK);
    });
}
