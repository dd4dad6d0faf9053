//! `outlier` of a cluster: endpoints whose attempts fail get no requests for a while.

use std::time::Duration;

use config::outlier::{Happened, OutlierKind};
use config::snapshot::Address;

use crate::frames::Speaker;
use crate::http2::to_one;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

fn config(outlier: &str) -> String {
    let endpoints = "['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002']";
    CONFIG.replace(
        "endpoints: ['127.0.0.1:9000']",
        &format!("endpoints: {endpoints}\n    outlier: {outlier}"),
    )
}

/// Conversations in which connections stay where they are: what is known of endpoints is the process's.
fn hold_here(config: &str, script: impl Fn(&mut Talk<'_>)) {
    hold(config, |talk| {
        if talk.variant() != Variant::Moving {
            script(talk);
        }
    });
}

/// Who gets the next request, which is answered with this.
fn asks(talk: &mut Talk<'_>, response: &str) -> Address {
    asks_for(talk, GET, response)
}

fn asks_for(talk: &mut Talk<'_>, request: &str, response: &str) -> Address {
    let client = talk.client();
    talk.says(client, request);
    let upstream = talk.upstream();
    let address = talk.address(upstream).clone();
    talk.says(upstream, response);
    talk.ends(upstream);
    talk.breaks(client);
    address
}

/// The endpoint on this port fails until it is ejected.
fn is_ejected(talk: &mut Talk<'_>, port: u16, response: &str) -> Vec<Happened> {
    for _ in 0..30 {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        let is_failing = talk.address(upstream).to_string().ends_with(&port.to_string());
        talk.says(upstream, if is_failing { response } else { OK });
        talk.ends(upstream);
        talk.breaks(client);
        let detected = talk.detected();
        if !detected.is_empty() {
            return detected;
        }
    }
    panic!("{port} is not ejected");
}

fn at(port: u16) -> Address {
    format!("127.0.0.1:{port}").parse().unwrap()
}

/// Those that get the next requests.
fn asked(talk: &mut Talk<'_>, requests: usize) -> Vec<Address> {
    let mut asked: Vec<_> = (0..requests).map(|_| asks(talk, OK)).collect();
    asked.sort();
    asked.dedup();
    asked
}

#[test]
fn an_endpoint_that_fails_is_passed_over_until_its_time_is_over() {
    hold_here(&config("{ errors_5xx: 3 }"), |talk| {
        let detected = is_ejected(talk, 9001, FAILED);
        let length = Duration::from_secs(30);
        let kind = OutlierKind::Errors5xx;
        assert_eq!(detected, [Happened::Ejected { endpoint: at(9001), kind, length, times: 1 }]);
        assert_eq!(asked(talk, 9), [at(9000), at(9002)]);
        talk.passes(Duration::from_secs(29));
        assert_eq!(asked(talk, 9), [at(9000), at(9002)]);
        talk.passes(Duration::from_secs(1));
        assert_eq!(talk.detected(), [Happened::Returned { endpoint: at(9001) }]);
        assert_eq!(asked(talk, 9), [at(9000), at(9001), at(9002)]);
        // It fails again at once, and is away for twice as long.
        let detected = is_ejected(talk, 9001, FAILED);
        let twice = 2 * length;
        let again = Happened::Ejected { endpoint: at(9001), kind, length: twice, times: 2 };
        assert_eq!(detected, [again]);
    });
}

#[test]
fn ejections_are_forgotten_by_the_interval() {
    hold_here(&config("{ errors_5xx: 1 }"), |talk| {
        is_ejected(talk, 9001, FAILED);
        talk.passes(Duration::from_secs(30));
        talk.passes(Duration::from_secs(10));
        talk.detected();
        let detected = is_ejected(talk, 9001, FAILED);
        assert!(matches!(detected[..], [Happened::Ejected { times: 1, .. }]), "{detected:?}");
    });
}

#[test]
fn a_response_below_500_ends_a_row_of_failures() {
    hold_here(&config("{ errors_5xx: 2 }"), |talk| {
        for _ in 0..5 {
            // All endpoints take turns, and each of them fails every other time.
            for response in [FAILED, NOT_FOUND] {
                for _ in 0..3 {
                    asks(talk, response);
                }
            }
        }
        assert_eq!(talk.detected(), []);
    });
}

#[test]
fn no_more_are_ejected_than_may_be_and_one_always_is() {
    hold_here(&config("{ errors_5xx: 1, ejection: { share_max: 0 } }"), |talk| {
        is_ejected(talk, 9000, FAILED);
        let kept = is_ejected(talk, 9002, FAILED);
        let kind = OutlierKind::Errors5xx;
        assert_eq!(kept, [Happened::Kept { endpoint: at(9002), kind }]);
        assert_eq!(asked(talk, 9), [at(9001), at(9002)]);
    });
}

#[test]
fn where_few_are_left_all_get_requests() {
    let outlier = "{ errors_5xx: 1, ejection: { share_max: 100 } }";
    hold_here(&config(outlier), |talk| {
        is_ejected(talk, 9000, FAILED);
        let detected = is_ejected(talk, 9002, FAILED);
        // A third is left, which is less than half of them.
        assert!(detected.contains(&Happened::PanicBegan), "{detected:?}");
        assert_eq!(asked(talk, 9), [at(9000), at(9001), at(9002)]);
        talk.passes(Duration::from_secs(30));
        assert!(talk.detected().contains(&Happened::PanicEnded));
    });
    let without_panic = config(outlier).replace("outlier:", "panic: 0\n    outlier:");
    hold_here(&without_panic, |talk| {
        for port in [9000, 9001, 9002] {
            is_ejected(talk, port, FAILED);
        }
        let client = talk.client();
        talk.says(client, GET);
        talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[]);
        assert!(talk.log().contains("no_endpoint"));
        let reason = "no endpoint with a weight is healthy, and panic of the cluster is off";
        assert!(talk.log().contains(reason), "{}", talk.log());
    });
}

#[test]
fn those_of_the_next_priority_take_what_is_left_over() {
    let two = "[{ address: '127.0.0.1:9000' }, { address: '127.0.0.1:9001' }, \
               { address: '127.0.0.1:9002', priority: 1 }]";
    let config = config("{ errors_5xx: 1, ejection: { share_max: 100 } }")
        .replace("['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002']", two);
    hold_here(&config, |talk| {
        assert_eq!(asked(talk, 20), [at(9000), at(9001)]);
        is_ejected(talk, 9000, FAILED);
        // One of two takes 70 % of the requests: half of them, times 1.4.
        let requests = 300;
        let to_next = (0..requests).filter(|_| asks(talk, OK) == at(9002)).count();
        assert!((60..120).contains(&to_next), "{to_next} of {requests}");
        is_ejected(talk, 9001, FAILED);
        assert_eq!(asked(talk, 20), [at(9002)]);
    });
}

#[test]
fn another_attempt_goes_to_no_endpoint_of_the_next_priority_that_is_ejected() {
    let three = "[{ address: '127.0.0.1:9000' }, { address: '127.0.0.1:9001', priority: 1 }, \
                 { address: '127.0.0.1:9002', priority: 1 }]";
    let config = config("{ errors_5xx: 1, ejection: { share_max: 100 } }")
        .replace("['127.0.0.1:9000', '127.0.0.1:9001', '127.0.0.1:9002']", three)
        .replace("cluster: web }]", "cluster: web, retry: { on: [reset] } }]");
    for (ejected, left) in [(9001, 9002), (9002, 9001)] {
        hold_here(&config, |talk| {
            is_ejected(talk, 9000, FAILED);
            talk.passes(Duration::from_secs(20));
            is_ejected(talk, ejected, FAILED);
            talk.passes(Duration::from_secs(10));
            let client = talk.client();
            talk.says(client, GET);
            let first = talk.upstream();
            assert_eq!(*talk.address(first), at(9000));
            talk.ends(first);
            talk.passes(Duration::from_millis(40));
            let second = talk.upstream();
            assert_eq!(*talk.address(second), at(left));
        });
    }
}

#[test]
fn a_hash_leads_on_to_the_next_and_back() {
    let config = config("{ errors_5xx: 1 }")
        .replace("outlier:", "balance: maglev\n    outlier:")
        .replace("cluster: web }]", "cluster: web, hash: [{ header: x-user }] }]");
    hold_here(&config, |talk| {
        let request = "GET / HTTP/1.1\r\nHost: x\r\nx-user: a\r\n\r\n";
        let ask = |talk: &mut Talk<'_>, response| asks_for(talk, request, response);
        let first = ask(talk, FAILED);
        assert_eq!(talk.detected().len(), 1);
        let second = ask(talk, OK);
        assert_ne!(first, second);
        assert_eq!(ask(talk, OK), second);
        talk.passes(Duration::from_secs(30));
        assert_eq!(ask(talk, OK), first);
    });
}

#[test]
fn attempts_without_a_response_count_as_what_their_clients_get_or_apart() {
    let garbage = "what?\r\n\r\n";
    let gateway = "{ errors_5xx: 0, errors_gateway: 2 }";
    let apart = "{ errors_5xx: 1, errors_local: 2 }";
    for (outlier, kind) in
        [(gateway, OutlierKind::ErrorsGateway), (apart, OutlierKind::ErrorsLocal)]
    {
        hold_here(&config(outlier), |talk| {
            let detected = is_ejected(talk, 9001, garbage);
            let [Happened::Ejected { kind: found, .. }] = detected[..] else {
                panic!("{detected:?}");
            };
            assert_eq!(found, kind);
        });
    }
}

#[test]
fn clients_cannot_have_an_endpoint_ejected_by_what_they_do() {
    hold_here(&config("{ errors_5xx: 1 }"), |talk| {
        for _ in 0..4 {
            // It goes away while it waits, during its request, and during the response.
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            talk.breaks(client);
            assert!(talk.is_closed(upstream));
            let client = talk.client();
            talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
            let upstream = talk.upstream();
            talk.breaks(client);
            assert!(talk.is_closed(upstream));
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
            talk.breaks(client);
            // It takes longer to send its request than it may.
            let client = talk.client();
            talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
            talk.upstream();
            talk.passes(Duration::from_secs(61));
            talk.breaks(client);
            // It sends no more of its request, until the service does not wait any longer.
            let client = talk.client();
            talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
            let upstream = talk.upstream();
            talk.passes(Duration::from_secs(1));
            talk.ends(upstream);
            talk.hears_about(client, "HTTP/1.1 502 ", &[": upstream_closed\n"]);
            // The same, behind an interim response.
            let client = talk.client();
            talk.says(
                client,
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
            );
            let upstream = talk.upstream();
            talk.says(upstream, "HTTP/1.1 100 Continue\r\n\r\n");
            talk.passes(Duration::from_secs(1));
            talk.ends(upstream);
            // The same, once the response has begun: until it may take no longer.
            let client = talk.client();
            talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
            let upstream = talk.upstream();
            talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
            talk.passes(Duration::from_secs(61));
            assert!(talk.is_closed(upstream));
        }
        assert_eq!(talk.detected(), []);
        let why =
            "timeouts.response_body of the cluster: 60s, and the client has not ended its request";
        assert!(talk.log().contains(why), "{}", talk.log());
    });
    // It says itself how long an attempt may take.
    let trusting = config("{ errors_5xx: 1 }")
        .replace("request_id: false", "request_id: false, trust_retries: true");
    hold_here(&trusting, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET / HTTP/1.1\r\nHost: x\r\nx-envoy-retry-on: 5xx\r\nx-envoy-max-retries: 0\r\n\
             x-envoy-upstream-rq-per-try-timeout-ms: 5\r\n\r\n",
        );
        talk.upstream();
        talk.passes(Duration::from_millis(10));
        talk.hears_about(client, "HTTP/1.1 504 ", &[": try_timeout\n"]);
        assert_eq!(talk.detected(), []);
    });
}

#[test]
fn a_service_that_fails_amid_a_request_is_a_failure() {
    hold_here(&config("{ errors_5xx: 1 }"), |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
        let upstream = talk.upstream();
        talk.passes(Duration::from_millis(100));
        talk.breaks(upstream);
        talk.hears_about(client, "HTTP/1.1 502 ", &[": upstream_closed\n"]);
        assert_eq!(talk.detected().len(), 1);
    });
    // It waited for its client before there was an attempt.
    let short = config("{ errors_5xx: 1 }") + "    connections_max: 1\n    connect_timeout: 1s\n";
    hold_here(&short.replace(", '127.0.0.1:9001', '127.0.0.1:9002'", ""), |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
        let upstream = talk.connecting();
        talk.passes(Duration::from_millis(1_100));
        assert!(talk.is_closed(upstream));
        assert!(!talk.detected().is_empty());
    });
    // The bound on an attempt is its rule's.
    let rule = config("{ errors_5xx: 1 }")
        .replace("request_id: false", "request_id: false, trust_retries: true")
        .replace("cluster: web }]", "cluster: web, retry: { on: [5xx], try_timeout: 1s } }]");
    hold_here(&rule, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nx-envoy-max-retries: 0\r\n\r\n");
        talk.upstream();
        talk.passes(Duration::from_millis(1_100));
        talk.hears_about(client, "HTTP/1.1 504 ", &[": try_timeout\n"]);
        assert_eq!(talk.detected().len(), 1);
    });
}

#[test]
fn the_end_of_an_idle_connection_is_no_failure() {
    let one = config("{ errors_5xx: 1 }").replace(", '127.0.0.1:9001', '127.0.0.1:9002'", "");
    hold_here(&one, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(client, GET);
        talk.hears(upstream, &GET.repeat(2));
        talk.ends(upstream);
        let again = talk.upstream();
        talk.says(again, OK);
        talk.hears(client, OK);
        assert_eq!(talk.detected(), []);
    });
}

#[test]
fn calls_count_with_the_status_that_is_behind_their_messages() {
    let outlier = "['127.0.0.1:9000'], outlier: { errors_5xx: 2 }";
    hold_here(&to_one().replace("['127.0.0.1:9000']", outlier), |talk| {
        let mut client = Speaker::client(talk);
        let mut upstream = None;
        let mut number = 1;
        let mut call = |talk: &mut Talk<'_>, timeout: &str, status: u8| {
            let request = format!(
                "POST /a.B/c HTTP/1.1\r\nHost: x\r\ncontent-type: application/grpc\r\n{timeout}\
                 te: trailers\r\n\r\n"
            );
            client.asks(talk, &request, true);
            let upstream = upstream.get_or_insert_with(|| Speaker::upstream(talk));
            upstream.hears(talk);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n\r\n";
            upstream.answers(talk, number, head, false);
            upstream.ends_with(talk, number, &format!("grpc-status: {status}\r\n"));
            client.hears(talk);
            number += 2;
            talk.detected()
        };
        // A client sets itself any deadline.
        for _ in 0..3 {
            assert_eq!(call(talk, "grpc-timeout: 1S\r\n", 4), []);
        }
        for status in [13, 0, 14] {
            assert_eq!(call(talk, "", status), []);
        }
        let detected = call(talk, "", 14);
        assert!(matches!(detected[..], [Happened::Ejected { .. }, ..]), "{detected:?}");
    });
}

#[test]
fn a_response_that_is_none_of_grpc_counts_as_what_it_is() {
    hold_here(&config("{ errors_5xx: 1 }"), |talk| {
        let request = "POST /a.B/c HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
        for _ in 0..3 {
            asks_for(talk, request, OK);
            asks_for(talk, request, NOT_FOUND);
            // Of gRPC-Web, whose status is in the body, where it passes as it is.
            let web = request.replace("application/grpc", "application/grpc-web");
            let answer = OK.replace("\r\n\r\n", "\r\nContent-Type: application/grpc-web\r\n\r\n");
            asks_for(talk, &web, &answer);
        }
        assert_eq!(talk.detected(), []);
    });
}

#[test]
fn a_call_that_is_sent_again_counts_with_its_status() {
    let retry = "cluster: web, retry: { on: [unavailable], methods: any } }]";
    let config = config("{ errors_5xx: 1 }").replace("cluster: web }]", retry);
    hold_here(&config, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "POST /a.B/c HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.says(
            upstream,
            "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\ngrpc-status: 14\r\nContent-Length: 0\r\n\r\n",
        );
        let detected = talk.detected();
        assert!(matches!(detected[..], [Happened::Ejected { .. }]), "{detected:?}");
    });
}

#[test]
fn responses_that_break_off_are_failures_in_a_row() {
    hold_here(&config("{ errors_5xx: 3 }"), |talk| {
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
        let detected = is_ejected(talk, 9001, cut);
        assert!(matches!(detected[..], [Happened::Ejected { .. }]), "{detected:?}");
    });
}

#[test]
fn a_client_that_does_not_answer_ping_is_held_against_no_endpoint() {
    let ping = "http: { forwarded: off, request_id: false }\n    http2: { ping: { interval: 5s, timeout: 1s } }";
    let config =
        config("{ errors_5xx: 1 }").replace("http: { forwarded: off, request_id: false }", ping);
    hold_here(&config, |talk| {
        let mut client = Speaker::client(talk);
        for path in ["/one", "/two", "/three"] {
            client.gets(talk, path);
            talk.upstream();
        }
        talk.passes(Duration::from_secs(10));
        assert!(talk.is_closed(client.peer) && talk.log().contains("http2_ping_timeout"));
        assert_eq!(talk.detected(), []);
    });
}

#[test]
fn the_timeout_of_a_rule_counts_where_the_endpoint_had_most_of_it() {
    let timeout = "cluster: web, timeout: 10s }]";
    let config = config("{ errors_5xx: 1 }").replace("cluster: web }]", timeout);
    hold_here(&config, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
        talk.upstream();
        talk.passes(Duration::from_secs(9));
        talk.says(client, "body");
        talk.passes(Duration::from_secs(2));
        talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &["request_timeout"]);
        assert_eq!(talk.detected(), []);
        let client = talk.client();
        talk.says(client, GET);
        talk.upstream();
        talk.passes(Duration::from_secs(11));
        talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &["request_timeout"]);
        let detected = talk.detected();
        assert!(matches!(detected[..], [Happened::Ejected { .. }]), "{detected:?}");
    });
}

#[test]
fn an_endpoint_that_closes_a_connection_with_streams_fails_them() {
    let outlier = "['127.0.0.1:9000'], outlier: { errors_5xx: 3 }";
    hold_here(&to_one().replace("['127.0.0.1:9000']", outlier), |talk| {
        let mut client = Speaker::client(talk);
        client.posts(talk, "/one", b"body");
        let mut upstream = Speaker::upstream(talk);
        client.posts(talk, "/two", b"body");
        client.posts(talk, "/three", b"body");
        upstream.hears(talk);
        talk.ends(upstream.peer);
        let detected = talk.detected();
        assert!(matches!(detected[..], [Happened::Ejected { .. }, ..]), "{detected:?}");
    });
}

#[test]
fn the_end_of_a_tunnel_is_no_failure() {
    let upgrades = "cluster: web, upgrades: [websocket] }]";
    let config = config("{ errors_5xx: 1 }").replace("cluster: web }]", upgrades);
    hold_here(&config, |talk| {
        for _ in 0..4 {
            let client = talk.client();
            talk.says(
                client,
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            let upstream = talk.upstream();
            talk.says(
                upstream,
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            talk.says(client, "hello");
            talk.breaks(upstream);
            assert!(talk.is_closed(client));
        }
        assert_eq!(talk.detected(), []);
    });
}

#[test]
fn a_share_of_failures_ejects_at_the_end_of_the_interval() {
    let policy = "{ threshold: 50, endpoints: 3, requests: 4 }";
    let outlier = format!("{{ errors_5xx: 0, failure_percentage: {policy} }}");
    hold_here(&config(&outlier), |talk| {
        let answer = |talk: &mut Talk<'_>, peer: Peer, number: usize| {
            let is_bad = *talk.address(peer) == at(9001) && number.is_multiple_of(2);
            talk.says(peer, if is_bad { FAILED } else { OK });
            talk.ends(peer);
        };
        for number in 0..12 {
            let client = talk.client();
            talk.says(client, GET);
            let upstream = talk.upstream();
            answer(talk, upstream, number / 3);
            talk.breaks(client);
        }
        assert_eq!(talk.detected(), []);
        talk.passes(Duration::from_secs(10));
        let detected = talk.detected();
        let kind = OutlierKind::FailurePercentage;
        assert!(
            matches!(&detected[..], [Happened::Ejected { endpoint, kind: found, .. }]
                if *endpoint == at(9001) && *found == kind),
            "{detected:?}"
        );
    });
}

#[test]
fn what_is_known_stays_when_the_configuration_changes_and_goes_with_the_option() {
    let text = config("{ errors_5xx: 1 }");
    hold_here(&text, |talk| {
        // From the loader that later ones come from, too.
        talk.reconfigures(&text);
        is_ejected(talk, 9001, FAILED);
        let other = text.replace(", '127.0.0.1:9002'", ", '127.0.0.1:9002', '127.0.0.1:9003'");
        talk.reconfigures(&other);
        assert_eq!(asked(talk, 12), [at(9000), at(9002), at(9003)]);
        talk.reconfigures(&other.replace("\n    outlier: { errors_5xx: 1 }", ""));
        assert_eq!(asked(talk, 12), [at(9000), at(9001), at(9002), at(9003)]);
    });
}
