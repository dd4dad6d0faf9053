//! `checks` of a cluster: what an endpoint is asked, and what is made of its answers.

use std::time::Duration;

use config::checks::{CheckResult, FailureWeight};

use crate::frames::Speaker;
use crate::http2::to_one;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

fn config(checks: &str) -> String {
    CONFIG.replace(
        "endpoints: ['127.0.0.1:9000']",
        &format!("endpoints: ['127.0.0.1:9000', '127.0.0.1:9001']\n    checks: [{checks}]"),
    )
}

/// Conversations in which connections stay where they are: a check does not move.
fn hold_here(config: &str, script: impl Fn(&mut Talk<'_>)) {
    hold(config, |talk| {
        if talk.variant() != Variant::Moving {
            script(talk);
        }
    });
}

fn passed(number: u64) -> (u64, CheckResult) {
    (number, CheckResult::Passed)
}

fn failed(number: u64, reason: &str) -> (u64, CheckResult) {
    let is_late = reason.contains(" after ");
    let weight = if is_late { FailureWeight::Late } else { FailureWeight::Usual };
    (number, CheckResult::Failed { reason: reason.into(), weight })
}

#[test]
fn a_check_asks_its_endpoint_and_no_other_over_a_connection_that_is_kept_for_the_next() {
    hold_here(&config("{ http: { path: /healthz } }"), |talk| {
        talk.checks(7, 1, 0);
        let upstream = talk.upstream();
        assert_eq!(talk.address(upstream).to_string(), "127.0.0.1:9001");
        let asked = "GET /healthz HTTP/1.1\r\nhost: web\r\nuser-agent: strait-health-check\r\n\r\n";
        talk.hears(upstream, asked);
        talk.says(upstream, OK);
        assert_eq!(talk.checked(), [passed(7)]);
        // The next one goes over the same connection.
        talk.checks(8, 1, 0);
        talk.hears(upstream, asked);
        talk.says(upstream, UNAVAILABLE);
        assert_eq!(talk.checked(), [failed(8, "status 503 is not expected")]);
        // No request meets it.
        for _ in 0..2 {
            let client = talk.client();
            talk.says(client, GET);
            let other = talk.upstream();
            talk.hears(other, GET);
            talk.breaks(client);
        }
        assert!(!talk.is_closed(upstream));
    });
}

#[test]
fn a_check_that_ends_before_its_connection_stands_leaves_none_to_requests() {
    hold_here(&config("{ http: { path: /healthz }, port: 8081, timeout: 100ms }"), |talk| {
        talk.checks(1, 0, 0);
        let connecting = talk.connecting();
        talk.passes(Duration::from_millis(200));
        let checked = talk.checked();
        assert!(matches!(&checked[..], [(1, CheckResult::Failed { .. })]), "{checked:?}");
        assert!(talk.is_closed(connecting));
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        assert!(!talk.address(upstream).to_string().ends_with("8081"));
        // Nor does a check get the connection that a request has left.
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.checks(2, 0, 0);
        let checking = talk.upstream();
        assert!(talk.address(checking).to_string().ends_with("8081"));
    });
}

#[test]
fn connections_of_checks_take_no_room_from_requests() {
    let config = config("{ http: { path: /healthz } }")
        .replace("    checks:", "    connections_max: 1\n    checks:");
    hold_here(&config, |talk| {
        for endpoint in 0..2 {
            talk.checks(1, endpoint, 0);
            let upstream = talk.upstream();
            talk.heard(upstream);
            talk.says(upstream, OK);
            assert_eq!(talk.checked(), [passed(1)]);
        }
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn a_check_without_reuse_has_a_connection_of_its_own() {
    hold_here(&config("{ http: { path: /healthz }, reuse: false }"), |talk| {
        for number in 0..2 {
            talk.checks(number, 0, 0);
            let upstream = talk.upstream();
            talk.heard(upstream);
            talk.says(upstream, OK);
            assert_eq!(talk.checked(), [passed(number)]);
            assert!(talk.is_closed(upstream), "it is not kept");
        }
    });
}

#[test]
fn what_fails_says_why() {
    type Act = fn(&mut Talk<'_>, Peer);
    let acts: [(Act, &str); 7] = [
        (|talk, peer| talk.refuse(peer), "connect_failed: ECONNREFUSED"),
        (|talk, peer| talk.breaks(peer), "upstream_closed: ECONNRESET"),
        (|talk, peer| talk.ends(peer), "upstream_closed: FIN"),
        (|talk, peer| talk.says(peer, "SSH-2.0-x\r\n\r\n"), "response_invalid"),
        (|talk, _| talk.passes(Duration::from_millis(1_100)), "no answer after 1s"),
        (
            |talk, peer| {
                talk.says(peer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok");
                talk.passes(Duration::from_millis(1_100));
            },
            "the response was not complete after 1s",
        ),
        (
            |talk, peer| {
                talk.says(peer, "HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n");
            },
            "status 301 is not expected",
        ),
    ];
    for (act, expected) in acts {
        hold_here(&config("{ http: { path: /healthz } }"), |talk| {
            talk.checks(1, 0, 0);
            let upstream = match expected.starts_with("connect_failed") {
                true => talk.connecting(),
                false => talk.upstream(),
            };
            act(talk, upstream);
            let checked = talk.checked();
            let [(1, CheckResult::Failed { reason, .. })] = &checked[..] else {
                panic!("{expected}: {checked:?}");
            };
            assert!(reason.starts_with(expected), "{reason:?} is not {expected:?}");
        });
    }
}

#[test]
fn the_end_of_an_idle_connection_says_nothing_of_the_endpoint() {
    hold_here(&config("{ http: { path: /healthz } }"), |talk| {
        talk.checks(1, 0, 0);
        let first = talk.upstream();
        talk.heard(first);
        talk.says(first, OK);
        assert_eq!(talk.checked(), [passed(1)]);
        talk.checks(2, 0, 0);
        talk.heard(first);
        talk.breaks(first);
        let second = talk.upstream();
        talk.heard(second);
        talk.says(second, OK);
        assert_eq!(talk.checked(), [passed(2)]);
    });
}

#[test]
fn a_body_is_looked_at_as_far_as_it_is_kept_and_one_without_end_ends_the_check() {
    let checks = "{ http: { path: /healthz, body: ready } }";
    hold_here(&config(checks), |talk| {
        talk.checks(1, 0, 0);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nnot ready!");
        assert_eq!(talk.checked(), [passed(1)]);
        talk.checks(2, 0, 0);
        talk.heard(upstream);
        talk.says(upstream, OK);
        assert_eq!(talk.checked(), [failed(2, "the body does not contain \"ready\"")]);
    });
    // Byte by byte it would take long.
    hold(&config("{ http: { path: /healthz } }"), |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        talk.checks(1, 0, 0);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 200 OK\r\n\r\n");
        talk.says(upstream, "x".repeat(64 * 1_024));
        assert_eq!(talk.checked(), [passed(1)]);
        assert!(talk.is_closed(upstream), "the rest is not waited for");
    });
}

#[test]
fn another_port_is_checked_and_requests_never_go_there() {
    hold_here(&config("{ http: { path: /healthz }, port: 8081 }"), |talk| {
        talk.checks(1, 0, 0);
        let checked = talk.upstream();
        assert_eq!(talk.address(checked).to_string(), "127.0.0.1:8081");
        talk.heard(checked);
        talk.says(checked, OK);
        assert_eq!(talk.checked(), [passed(1)]);
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        assert_ne!(talk.address(upstream).to_string(), "127.0.0.1:8081");
        talk.heard(upstream);
        talk.says(upstream, OK);
        // The next check finds the connection again.
        talk.checks(2, 0, 0);
        talk.heard(checked);
        talk.says(checked, OK);
        assert_eq!(talk.checked(), [passed(2)]);
    });
}

#[test]
fn a_connection_is_enough_for_tcp_and_bytes_are_compared() {
    let checks = "{ tcp: {} }, { tcp: { send: 50494e470d0a, expect: [2b504f4e47, 0d0a] } }";
    hold_here(&config(checks), |talk| {
        talk.checks(1, 0, 0);
        let upstream = talk.upstream();
        assert_eq!(talk.checked(), [passed(1)]);
        assert!(talk.is_closed(upstream));
        talk.checks(2, 0, 1);
        let upstream = talk.upstream();
        talk.hears(upstream, "PING\r\n");
        talk.says(upstream, "+PO");
        assert_eq!(talk.checked(), []);
        talk.says(upstream, "NG\r\n");
        assert_eq!(talk.checked(), [passed(2)]);
        talk.checks(3, 0, 1);
        let upstream = talk.upstream();
        talk.says(upstream, "-ERR\r\n");
        talk.ends(upstream);
        assert_eq!(talk.checked(), [failed(3, "what was expected did not come")]);
        if talk.variant() == Variant::Plain {
            talk.checks(5, 0, 1);
            let upstream = talk.upstream();
            talk.says(upstream, "x".repeat(64 * 1_024));
            let reason = "what was expected did not come in the first 64 KiB";
            assert_eq!(talk.checked(), [failed(5, reason)]);
        }
        talk.checks(4, 0, 1);
        talk.upstream();
        talk.passes(Duration::from_millis(1_100));
        assert_eq!(talk.checked(), [failed(4, "no answer after 1s")]);
    });
}

#[test]
fn no_bound_of_the_cluster_keeps_a_check_from_its_endpoint() {
    let config = config("{ http: { path: /healthz } }")
        .replace("    checks:", "    connections_max: 1\n    pending_max: 1\n    checks:");
    hold_here(&config, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let busy = talk.upstream();
        talk.heard(busy);
        talk.checks(1, 1, 0);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, OK);
        assert_eq!(talk.checked(), [passed(1)]);
        talk.says(busy, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn an_endpoint_may_say_that_it_is_not_healthy() {
    let said = "HTTP/1.1 200 OK\r\nX-Envoy-Immediate-Health-Check-Fail: true\r\nContent-Length: 2\r\n\r\nok";
    let config = config("{ http: { path: /healthz } }").replace(", '127.0.0.1:9001'", "");
    hold(&config, |talk| {
        // What is known of endpoints outlasts a conversation.
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, said);
        assert_eq!(talk.failed_themselves(), 1);
        talk.says(client, GET);
        talk.heard(upstream);
        talk.says(upstream, said);
        assert_eq!(talk.failed_themselves(), 0, "it is said once");
        talk.checks(1, 0, 0);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, said);
        assert_eq!(talk.failed_themselves(), 0, "the check says so itself");
        let checked = talk.checked();
        assert!(
            matches!(&checked[..], [(1, CheckResult::Failed { weight: FailureWeight::Final, .. })]),
            "{checked:?}"
        );
    });
}

#[test]
fn an_answer_as_expected_may_say_that_the_endpoint_is_degraded() {
    let degraded = "HTTP/1.1 200 OK\r\nx-envoy-degraded: true\r\ncontent-length: 0\r\n\r\n";
    let failing = degraded.replace("200 OK", "503 Service Unavailable");
    hold_here(&config("{ http: { path: /healthz } }"), |talk| {
        talk.checks(1, 1, 0);
        let upstream = talk.upstream();
        for (number, answer, expected) in [
            (1, degraded, (1, CheckResult::Degraded)),
            (2, OK, passed(2)),
            (3, &failing, failed(3, "status 503 is not expected")),
            (4, degraded, (4, CheckResult::Degraded)),
        ] {
            if number > 1 {
                talk.checks(number, 1, 0);
            }
            talk.heard(upstream);
            talk.says(upstream, answer);
            assert_eq!(talk.checked(), [expected]);
        }
        // In the response to a request it says nothing.
        let client = talk.client();
        talk.says(client, GET);
        let other = talk.upstream();
        talk.hears(other, GET);
        talk.says(other, degraded);
        talk.hears(client, degraded);
        assert_eq!(talk.checked(), []);
    });
}

#[test]
fn requests_meet_degraded_endpoints_where_healthy_ones_are_too_few() {
    let config = CONFIG.replace(
        "endpoints: ['127.0.0.1:9000']",
        "endpoints: [{ address: '127.0.0.1:9000', health: degraded }, '127.0.0.1:9001', \
         { address: '127.0.0.1:9002', health: draining }, { address: '127.0.0.1:9003', health: timeout }]\n    \
         panic: 0",
    );
    hold_here(&config, |talk| {
        let mut ports = [0_u32; 4];
        for _ in 0..60 {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            let port = talk.address(upstream).to_string().rsplit(':').next().unwrap().to_owned();
            ports[port.parse::<usize>().unwrap() - 9000] += 1;
            talk.hears(upstream, GET);
            talk.breaks(client);
        }
        // A quarter of the endpoints, times 1.4, for both: half of the requests each.
        assert!(ports[0].abs_diff(30) < 20 && ports[1].abs_diff(30) < 20, "{ports:?}");
        assert_eq!(ports[2..], [0, 0], "{ports:?}");
    });
}

#[test]
fn what_is_not_known_here_is_undecided() {
    hold_here(&config("{ http: { path: /healthz } }"), |talk| {
        talk.checks(1, 0, 3);
        assert_eq!(talk.checked(), [(1, CheckResult::Undecided)]);
        talk.drains();
        talk.checks(2, 0, 0);
        assert_eq!(talk.checked(), [(2, CheckResult::Undecided)]);
    });
}

#[test]
fn a_check_stays_behind_where_its_connection_moves() {
    hold(&config("{ http: { path: /healthz } }"), |talk| {
        if talk.variant() != Variant::Moving {
            return talk.leave_out();
        }
        talk.checks(1, 0, 0);
        talk.client();
        assert_eq!(talk.checked(), [(1, CheckResult::Undecided)]);
    });
}

fn config_http2(checks: &str) -> String {
    to_one().replace("endpoints: [", &format!("checks: [{checks}], endpoints: ["))
}

#[test]
fn a_check_is_a_stream_on_a_connection_of_its_own() {
    hold_here(&config_http2("{ http: { path: /healthz } }"), |talk| {
        talk.checks(1, 0, 0);
        let mut upstream = Speaker::upstream(talk);
        upstream.greet(talk);
        let heard = upstream.hears(talk);
        assert!(heard.contains("GET /healthz"), "{heard}");
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\n\r\n", true);
        assert_eq!(talk.checked(), [passed(1)]);
        talk.checks(2, 0, 0);
        upstream.hears(talk);
        upstream.resets(talk, 3, wire::h2::ErrorCode::INTERNAL_ERROR);
        let checked = talk.checked();
        assert!(matches!(&checked[..], [(2, CheckResult::Failed { .. })]), "{checked:?}");
        let client = talk.client();
        talk.says(client, GET);
        let mut other = Speaker::upstream(talk);
        other.greet(talk);
        let heard = other.hears(talk);
        assert!(heard.contains("GET /"), "{heard}");
        other.answers(talk, 1, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true);
        assert!(talk.heard(client).starts_with("HTTP/1.1 200"));
    });
}

#[test]
fn a_connection_for_checks_with_streams_ends_with_the_last_check_of_an_endpoint_that_is_gone() {
    // With its one stream it has no room for another check, and is not kept.
    let config = config_http2("{ http: { path: /healthz } }")
        .replace("max: 1", "max: 1, http2: { streams_max: 1 }");
    hold_here(&config, |talk| {
        talk.checks(1, 0, 0);
        let mut upstream = Speaker::upstream(talk);
        upstream.greet(talk);
        assert!(upstream.hears(talk).contains("GET /healthz"));
        talk.reconfigures(&config.replace("127.0.0.1:9000", "127.0.0.1:9009"));
        assert!(!talk.is_closed(upstream.peer));
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\n\r\n", true);
        assert_eq!(talk.checked(), [passed(1)]);
        assert!(talk.is_closed(upstream.peer));
    });
}

#[test]
fn a_check_of_a_service_that_goes_away_from_each_connection_opens_three() {
    hold_here(&config_http2("{ http: { path: /healthz } }"), |talk| {
        talk.checks(1, 0, 0);
        for _ in 0..3 {
            let mut upstream = Speaker::upstream(talk);
            upstream.greet(talk);
            assert!(upstream.hears(talk).contains("GET /healthz"));
            // It has not looked at any stream.
            talk.says(upstream.peer, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert!(!talk.is_connecting());
        let checked = talk.checked();
        assert!(matches!(&checked[..], [(1, CheckResult::Failed { .. })]), "{checked:?}");
    });
}

#[test]
fn a_call_of_the_health_service_has_to_answer_serving() {
    let serving = [0, 0, 0, 0, 2, 8, 1];
    let not_serving = [0, 0, 0, 0, 2, 8, 2];
    hold_here(&config_http2("{ grpc: { service: a.B } }"), |talk| {
        talk.checks(1, 0, 0);
        let mut upstream = Speaker::upstream(talk);
        upstream.greet(talk);
        let heard = upstream.hears(talk);
        assert!(heard.contains("POST /grpc.health.v1.Health/Check"), "{heard}");
        assert!(heard.contains("a.B"), "{heard}");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";
        upstream.answers(talk, 1, head, false);
        upstream.sends(talk, 1, &serving, false);
        upstream.ends_with(talk, 1, "grpc-status: 0\r\n");
        assert_eq!(talk.checked(), [passed(1)]);
        talk.checks(2, 0, 0);
        upstream.hears(talk);
        upstream.answers(talk, 3, head, false);
        upstream.sends(talk, 3, &not_serving, false);
        upstream.ends_with(talk, 3, "grpc-status: 0\r\n");
        assert_eq!(talk.checked(), [failed(2, "the service answered NOT_SERVING")]);
        talk.checks(3, 0, 0);
        upstream.hears(talk);
        upstream.answers(
            talk,
            5,
            "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 12\r\n\r\n",
            true,
        );
        assert_eq!(
            talk.checked(),
            [failed(
                3,
                "grpc-status 12 (UNIMPLEMENTED): the server does not implement grpc.health.v1.Health"
            )]
        );
        talk.checks(4, 0, 0);
        upstream.hears(talk);
        upstream.answers(talk, 7, "HTTP/1.1 404 Not Found\r\n\r\n", true);
        assert_eq!(talk.checked(), [failed(4, "status 404 is no answer of gRPC")]);
    });
}

/// Three clients with a request each.
fn three_ask(talk: &mut Talk<'_>) -> [Peer; 3] {
    let clients = [(); 3].map(|()| talk.client());
    clients.iter().for_each(|client| talk.says(*client, GET));
    clients
}

#[test]
fn requests_to_a_new_cluster_wait_for_the_first_checks_of_its_endpoints() {
    let config = config("{ http: { path: /healthz } }")
        .replace("    checks:", "    pending_max: 2\n    initial_check_timeout: 1m\n    checks:");
    hold_here(&config, |talk| {
        let checker = talk.warms();
        let clients = three_ask(talk);
        assert!(talk.heard(clients[2]).starts_with("HTTP/1.1 503 "), "the queue has two places");
        let why = "pending_max of the cluster: 2, whose endpoints are checked first";
        assert!(talk.log().contains(why));
        assert!(!talk.is_connecting(), "no request meets an endpoint");
        // A check does.
        talk.checks(1, 0, 0);
        let checked = talk.upstream();
        talk.says(checked, OK);
        assert_eq!(talk.checked(), [passed(1)]);
        assert!(!talk.is_connecting());
        talk.has_warmed(checker);
        for client in &clients[..2] {
            let upstream = talk.upstream();
            talk.hears(upstream, GET);
            talk.says(upstream, OK);
            talk.hears(*client, OK);
        }
    });
}

#[test]
fn a_request_waits_no_longer_for_first_checks_than_for_a_connection() {
    let config = config("{ tcp: {} }").replace(
        "    checks:",
        "    timeouts: { pending: 2s }\n    initial_check_timeout: 1m\n    checks:",
    );
    hold_here(&config, |talk| {
        let checker = talk.warms();
        let client = talk.client();
        talk.says(client, GET);
        talk.passes(Duration::from_secs(1));
        // One that connects elsewhere has others look for room here.
        let other = talk.client();
        talk.says(other, GET);
        talk.breaks(other);
        talk.passes(Duration::from_millis(1_100));
        assert!(talk.heard(client).starts_with("HTTP/1.1 503 "));
        let bound = "timeouts.pending of the cluster, whose initial_check_timeout is longer: 2s";
        assert!(talk.log().contains(bound));
        talk.has_warmed(checker);
    });
}

#[test]
fn checks_of_an_endpoint_that_is_new_wait_for_nothing() {
    let config = config_http2("{ http: { path: /one } }, { http: { path: /two } }")
        .replace("checks:", "initial_check_timeout: 1m, checks:");
    hold_here(&config, |talk| {
        let checker = talk.warms();
        let clients = three_ask(talk);
        // What the endpoint takes at a time is not known when the second one is asked for.
        talk.checks(1, 0, 0);
        talk.checks(2, 0, 1);
        assert_eq!(talk.proxy().load().waiting, clients.len(), "only requests wait");
        let mut connections = [(); 2].map(|()| Speaker::upstream(talk));
        for (path, connection) in ["/one", "/two"].into_iter().zip(&mut connections) {
            connection.greet(talk);
            let heard = connection.hears(talk);
            assert!(heard.contains(&format!("GET {path};")), "{heard}");
            connection.answers(talk, 1, "HTTP/1.1 200 OK\r\n\r\n", true);
        }
        assert_eq!(talk.checked(), [passed(1), passed(2)]);
        // One of the connections is kept, and takes both from now on.
        talk.checks(3, 0, 0);
        talk.checks(4, 0, 1);
        assert!(!talk.is_connecting());
        let heard = connections.each_mut().map(|connection| connection.hears(talk));
        let both = |heard: &String| heard.contains("GET /one;") && heard.contains("GET /two;");
        assert_eq!(heard.iter().filter(|heard| both(heard)).count(), 1, "{heard:?}");
        talk.has_warmed(checker);
        let mut upstream = Speaker::upstream(talk);
        upstream.greet(talk);
        upstream.hears(talk);
        for (client, stream) in clients.iter().zip([1, 3, 5]) {
            upstream.answers(talk, stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true);
            assert!(talk.heard(*client).starts_with("HTTP/1.1 200"));
        }
    });
}
