//! Another configuration under running connections.

use std::time::Duration;

use wire::h2::{ErrorCode, Limits};

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::kit::{Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Holds a conversation in the variants in which the proxy stays the same.
fn hold_in_place(config: &str, script: impl Fn(&mut crate::kit::Talk<'_>)) {
    hold(config, |talk| {
        if talk.variant() != Variant::Moving {
            script(talk);
        }
    });
}

#[test]
fn a_kept_connection_gets_the_new_routes_and_stays_open() {
    hold_in_place(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let old = talk.upstream();
        talk.says(old, OK);
        talk.heard(client);
        let answering = CONFIG.replace("cluster: web }", "respond: { status: 200, body: new } }");
        talk.reconfigures(&answering);
        assert!(!talk.is_closed(client));
        talk.says(client, GET);
        let heard = talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["server: strait\r\n"]);
        assert!(heard.ends_with("new"), "{heard}");
    });
}

#[test]
fn an_exchange_finishes_on_the_configuration_it_began_with() {
    hold_in_place(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
        talk.reconfigures(
            "listeners: [{ name: edge, address: 127.0.0.1:8080, routes: all }]\n\
             routes: [{ name: all, hosts: [x], rules: [\
             { match: { prefix: / }, respond: { status: 200 } }] }]\n",
        );
        assert_eq!(talk.retired(), 0);
        talk.says(upstream, "56789");
        talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
        assert!(talk.is_closed(upstream), "its cluster is gone");
        assert_eq!(talk.retired(), 1);
    });
}

#[test]
fn an_exchange_with_retries_outlives_the_cluster_of_its_rule() {
    let retried = CONFIG.replace("cluster: web }", "cluster: web, retry: { on: [5xx] } }");
    hold_in_place(&retried, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.heard(upstream);
        // The rule is there and leads elsewhere.
        let other = retried.replace("cluster: web", "cluster: main");
        talk.comes_back_to(client, &other.replace("name: web", "name: main"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

/// To services of HTTP/2 at this port.
fn to_http2_at(port: u16) -> String {
    let all = "endpoints: ['127.0.0.1:9000', '127.0.0.1:9001']";
    TO_HTTP2.replace(all, &format!("endpoints: ['127.0.0.1:{port}']"))
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn an_upgrade_whose_endpoint_is_gone_goes_to_one_that_its_cluster_has_now() {
    hold_in_place(&to_http2_at(9000), |talk| {
        let client = talk.client();
        talk.says(client, UPGRADE);
        let former = talk.connecting();
        talk.reconfigures(&to_http2_at(9001));
        let mut upstream = Speaker::upstream(talk);
        assert!(talk.address(upstream.peer).to_string().ends_with(":9001"));
        assert!(upstream.hears(talk).starts_with("1: CONNECT /chat"));
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
        talk.hears_about(client, "HTTP/1.1 101 Switching Protocols\r\n", &[]);
        assert!(talk.is_closed(former) && !talk.is_connecting());
    });
}

#[test]
fn an_upgrade_that_cannot_follow_its_cluster_does_not_connect_again_and_again() {
    hold_in_place(&to_http2_at(9000), |talk| {
        let client = talk.client();
        talk.says(client, UPGRADE);
        let former = talk.connecting();
        talk.reconfigures(&to_http2_at(9001).replace("http2", "http1"));
        assert!(talk.is_closed(former));
        let mut connects = 0;
        while talk.is_connecting() && connects < 10 {
            talk.upstream();
            connects += 1;
        }
        assert!(connects < 3, "{connects} connections");
        talk.hears_about(client, "HTTP/1.1 503 ", &["no_endpoint"]);
    });
}

const TO_NONE: &str = "\
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }]
access_log: { output: stdout }
";

#[test]
fn requests_that_wait_for_a_cluster_that_goes_fail_for_that_reason() {
    let one = CONFIG.to_owned() + "    connections_max: 1\n";
    let checked = CONFIG.to_owned() + "    initial_check_timeout: 1m\n    checks: [{ tcp: {} }]\n";
    let removed = "a newer configuration has removed the cluster web, to which the request had no connection yet";
    for (config, occupies) in [(one, true), (checked, false)] {
        // It goes, is renamed, and gives its place to another.
        for version in
            [TO_NONE.to_owned(), config.replace("web", "main") + "access_log: { output: stdout }\n"]
        {
            hold_in_place(&config, |talk| {
                let checker = (!occupies).then(|| talk.warms());
                let (first, second) = (talk.client(), talk.client());
                if occupies {
                    talk.says(first, GET);
                }
                let upstream = occupies.then(|| talk.upstream());
                talk.says(second, GET);
                talk.reconfigures(&version);
                talk.hears_about(second, "HTTP/1.1 503 ", &["no_endpoint"]);
                assert!(talk.log().contains(removed), "{}", talk.log());
                if let Some(upstream) = upstream {
                    talk.says(upstream, OK);
                    talk.hears(first, OK);
                }
                if let Some(checker) = checker {
                    talk.has_warmed(checker);
                }
            });
        }
    }
}

#[test]
fn a_connection_to_an_endpoint_that_is_gone_takes_no_room_from_those_that_wait() {
    let config = |port| CONFIG.replace(":9000", port) + "    connections_max: 1\n";
    hold_in_place(&config(":9000"), |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let former = talk.upstream();
        talk.reconfigures(&config(":9009"));
        talk.says(second, GET);
        assert!(!talk.is_connecting());
        talk.says(former, OK);
        talk.hears(first, OK);
        assert!(talk.is_closed(former));
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn an_exchange_that_waits_connects_to_the_endpoints_that_its_cluster_has_by_then() {
    let config = |port| CONFIG.replace(":9000", port) + "    connections_max: 1\n";
    hold_in_place(&config(":9000"), |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let former = talk.upstream();
        talk.says(second, GET);
        assert!(!talk.is_connecting());
        talk.reconfigures(&(config(":9009") + "access_log: { output: stdout }\n"));
        talk.says(former, OK);
        talk.hears(first, OK);
        assert!(talk.is_closed(former));
        let upstream = talk.upstream();
        assert!(talk.address(upstream).to_string().ends_with(":9009"));
        talk.says(upstream, OK);
        talk.hears(second, OK);
        assert_eq!(talk.retired(), 1);
        assert!(talk.log().contains("127.0.0.1:9009"));
    });
}

#[test]
fn an_attempt_after_one_that_failed_goes_to_the_endpoints_that_its_cluster_has_by_then() {
    hold_in_place(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let former = talk.upstream();
        talk.says(former, OK);
        talk.hears(client, OK);
        talk.says(client, GET);
        talk.heard(former);
        talk.reconfigures(&CONFIG.replace("127.0.0.1:9000", "127.0.0.1:9009"));
        talk.ends(former);
        let upstream = talk.upstream();
        assert!(talk.address(upstream).to_string().ends_with(":9009"));
        talk.says(upstream, OK);
        talk.hears(client, OK);
        assert_eq!(talk.retired(), 1);
    });
}

#[test]
fn a_request_that_is_encoded_for_another_protocol_stays_with_the_former_cluster() {
    let one = CONFIG.to_owned() + "    connections_max: 1\n";
    hold_in_place(&one, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let former = talk.upstream();
        talk.says(second, GET);
        talk.reconfigures(&(one.replace(":9000", ":9009") + "    protocol: http2\n"));
        talk.says(former, OK);
        talk.hears(first, OK);
        let upstream = talk.upstream();
        assert_eq!(talk.address(upstream), talk.address(former));
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn connections_to_an_endpoint_that_is_gone_are_not_kept() {
    hold_in_place(CONFIG, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let idle = talk.upstream();
        talk.says(second, GET);
        let busy = talk.upstream();
        talk.says(idle, OK);
        talk.reconfigures(&CONFIG.replace("127.0.0.1:9000", "127.0.0.1:9009"));
        assert!(talk.is_closed(idle));
        assert!(!talk.is_closed(busy));
        talk.says(busy, OK);
        talk.hears(second, OK);
        talk.says(second, GET);
        let new = talk.upstream();
        assert_ne!(talk.address(new), talk.address(idle));
        talk.says(new, OK);
        talk.hears(second, OK);
        // Back again: the endpoint is a new one with the old address.
        talk.reconfigures(CONFIG);
        talk.says(second, GET);
        let again = talk.upstream();
        assert_eq!(talk.address(again), talk.address(idle));
    });
}

#[test]
fn connections_on_which_an_endpoint_was_spoken_to_in_another_way_are_not_kept() {
    for another in
        ["    tls: { verify: off }\n", "    protocol: http2\n", "    proxy_protocol: v1\n"]
    {
        hold_in_place(CONFIG, |talk| {
            let (first, second) = (talk.client(), talk.client());
            talk.says(first, GET);
            let idle = talk.upstream();
            talk.says(second, GET);
            let busy = talk.upstream();
            talk.says(idle, OK);
            talk.hears(first, OK);
            talk.reconfigures(&format!("{CONFIG}{another}"));
            assert!(talk.is_closed(idle), "{another}");
            assert!(!talk.is_closed(busy), "{another}");
            talk.says(busy, OK);
            talk.hears(second, OK);
            assert!(talk.is_closed(busy), "{another}");
            talk.reconfigures(CONFIG);
            talk.says(second, GET);
            let again = talk.upstream();
            talk.says(again, OK);
            talk.hears(second, OK);
        });
    }
}

#[test]
fn one_that_is_established_for_no_exchange_and_of_a_former_configuration_counts_as_closed() {
    hold_in_place(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let spare = talk.connecting();
        talk.breaks(client);
        talk.reconfigures(&format!("{CONFIG}    proxy_protocol: v1\n"));
        talk.establish(spare);
        assert!(talk.is_closed(spare));
        assert_eq!(talk.counted("strait_upstream_connections_opened_total").len(), 1);
        assert!(talk.counted("strait_upstream_connections_active").is_empty());
    });
}

#[test]
fn one_for_streams_that_is_established_for_none_ends_at_once_if_its_endpoint_is_gone() {
    // With its one stream it is in no pool.
    let config = |port| to_http2_at(port).replace("max: 2", "max: 2, http2: { streams_max: 1 }");
    hold_in_place(&config(9000), |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let former = talk.connecting();
        talk.reconfigures(&config(9001));
        talk.breaks(client);
        talk.establish(former);
        // Its peer has not said what it takes.
        assert!(talk.is_closed(former));
    });
}

#[test]
fn connections_whose_streams_were_all_taken_are_not_kept_either() {
    let other = to_http2_at(9001);
    for another in [to_http2_at(9000).replace("http2", "http1"), other] {
        hold_in_place(&to_http2_at(9000), |talk| {
            let client = talk.client();
            talk.says(client, GET);
            let limits = Limits { streams_max: 1, ..Limits::default() };
            let mut upstream = Speaker::upstream_with(talk, limits);
            assert!(upstream.hears(talk).contains("1: GET /"));
            // It is in no pool now, as it takes no other request.
            talk.reconfigures(&another);
            assert!(!talk.is_closed(upstream.peer));
            upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
            talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
            assert!(talk.is_closed(upstream.peer));
        });
    }
}

#[test]
fn a_request_that_cannot_follow_its_cluster_gets_no_connection_of_the_other_protocol() {
    let http2 = to_http2_at(9000).replace("connections_max: 2", "connections_max: 3");
    hold_in_place(&http2, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let mut former = Speaker::upstream(talk);
        talk.reconfigures(&http2.replace("http2", "http1"));
        talk.says(second, GET);
        let idle = talk.upstream();
        talk.says(idle, OK);
        talk.hears(second, OK);
        former.hears(talk);
        former.resets(talk, 1, ErrorCode::REFUSED_STREAM);
        let mut again = Speaker::upstream(talk);
        again.hears(talk);
        assert_eq!(talk.address(again.peer), talk.address(idle));
        again.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
        talk.hears(first, "HTTP/1.1 204 No Content\r\n\r\n");
    });
}

#[test]
fn an_exchange_that_is_taken_up_keeps_its_rule_wherever_that_stands() {
    let with_rules = |rules: &[&str]| {
        let rules = rules.iter().map(|path| format!("{{ match: {{ {path} }}, cluster: web }}"));
        let rules = rules.collect::<Vec<_>>().join(", ");
        CONFIG.replace("{ match: { prefix: / }, cluster: web }", &rules)
    };
    let (a, all, exact) = ("prefix: /a", "prefix: /", "path: /");
    for (rules, logged) in [
        (&[a, all][..], Some("\"rule\":\"/*\",")),
        (&[exact, a, all], Some("\"rule\":\"/*\",")),
        (&[all], Some("\"rule\":\"/*\",")),
        (&[exact, a], None),
    ] {
        hold_in_place(&with_rules(&[a, all]), |talk| {
            let client = talk.client();
            talk.says(client, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            let log = "access_log: { output: stdout }\n";
            talk.comes_back_to(client, &(with_rules(rules) + log));
            talk.says(upstream, OK);
            talk.hears(client, OK);
            let log = talk.log();
            match logged {
                Some(rule) => assert!(log.contains(rule), "{rules:?}: {log}"),
                None => assert!(!log.contains("\"rule\""), "{rules:?}: {log}"),
            }
        });
    }
}

#[test]
fn unchanged_clusters_keep_their_connections() {
    hold_in_place(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.heard(client);
        let more = "  - name: another\n    endpoints: ['127.0.0.1:9001']\n";
        talk.reconfigures(&format!("{CONFIG}{more}"));
        talk.says(client, GET);
        assert!(!talk.is_connecting());
        talk.says(upstream, OK);
        talk.hears(client, OK);
    });
}

#[test]
fn connections_of_a_removed_listener_end_with_their_next_response() {
    hold_in_place(CONFIG, |talk| {
        let client = talk.client();
        talk.reconfigures(&CONFIG.replace("name: edge", "name: other"));
        assert!(!talk.is_closed(client));
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["connection: close\r\n"]);
        assert!(talk.is_shut(client));
    });
}

#[test]
fn upstream_connections_beyond_a_lower_bound_end_once_they_are_free() {
    hold_in_place(CONFIG, |talk| {
        let clients = [talk.client(), talk.client(), talk.client()];
        let upstreams = clients.map(|client| {
            talk.says(client, GET);
            talk.upstream()
        });
        talk.reconfigures(&format!("{CONFIG}    connections_max: 1\n"));
        for (client, upstream) in clients.into_iter().zip(upstreams) {
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
        assert_eq!(upstreams.map(|upstream| talk.is_closed(upstream)), [true, true, false]);
    });
}

#[test]
fn what_is_beyond_bounds_after_a_handover_is_asked_to_go_if_new_and_closed_if_unused() {
    hold_in_place(CONFIG, |talk| {
        let clients = [1, 2, 3].map(|_| {
            talk.passes(Duration::from_millis(1));
            talk.client()
        });
        let upstreams = clients.map(|client| {
            talk.says(client, GET);
            talk.upstream()
        });
        for (client, upstream) in clients.into_iter().zip(upstreams) {
            talk.says(upstream, OK);
            talk.hears(client, OK);
        }
        talk.ends_surplus();
        assert!(!upstreams.iter().any(|upstream| talk.is_closed(*upstream)), "nothing is too much");
        let listener =
            CONFIG.replace("name: edge\n", "name: edge\n    connections_per_client_max: 2\n");
        assert_ne!(listener, CONFIG);
        talk.reconfigures(&format!("{listener}    connections_max: 1\n"));
        talk.ends_surplus();
        let open = upstreams.iter().filter(|upstream| !talk.is_closed(**upstream)).count();
        assert_eq!(open, 1);
        talk.passes(Duration::from_secs(6));
        assert_eq!(clients.map(|client| talk.is_closed(client)), [false, false, true]);
    });
}

#[test]
fn what_was_handed_over_stays_though_it_is_beyond_bounds_and_stood_still_for_long() {
    let config = CONFIG.replace("name: edge\n", "name: edge\n    connections_per_client_max: 1\n");
    assert_ne!(config, CONFIG);
    hold_in_place(CONFIG, |talk| {
        let [accepted, handed_over] = [1, 2].map(|_| {
            talk.passes(Duration::from_millis(1));
            talk.client()
        });
        talk.comes_back_to(handed_over, &config);
        talk.ends_surplus();
        talk.passes(Duration::from_secs(6));
        assert!(talk.is_closed(accepted) && !talk.is_closed(handed_over));
    });
}

/// Tunnels, that is, and what carries a request: nothing else ends them, and they would stay beyond the bound for good.
#[test]
fn what_is_beyond_bounds_after_a_handover_and_does_not_go_is_closed() {
    let config = CONFIG.replace(
        "name: edge\n",
        "name: edge\n    timeouts: { connection_age_grace: 30s }\n    connections_per_client_max: 1\n",
    );
    assert_ne!(config, CONFIG);
    let config = config + "access_log: { output: stdout }\n";
    let wide = config.replace("client_max: 1", "client_max: 9");
    hold_in_place(&wide, |talk| {
        let clients = [1, 2].map(|_| {
            talk.passes(Duration::from_millis(1));
            talk.client()
        });
        let upstreams = clients.map(|client| {
            talk.says(client, GET);
            talk.upstream()
        });
        talk.reconfigures(&config);
        talk.ends_surplus();
        talk.passes(Duration::from_secs(29));
        assert_eq!(clients.map(|client| talk.is_closed(client)), [false, false]);
        talk.passes(Duration::from_secs(2));
        assert_eq!(clients.map(|client| talk.is_closed(client)), [false, true]);
        talk.says(upstreams[0], OK);
        talk.hears(clients[0], OK);
        let why = "connections_per_client_max of the listener, after an upgrade";
        assert!(talk.log().contains(why), "{}", talk.log());
    });
}

/// The worker that gave it away lets others in.
#[test]
fn a_connection_of_another_worker_is_refused_where_its_client_has_its_share() {
    let (all, each) = ("connections_max", "connections_per_client_max");
    for (option, other) in [(all, each), (each, all)] {
        let config = |max| {
            let bounds = format!("name: edge\n    {option}: {max}\n    {other}: 100\n");
            CONFIG.replace("name: edge\n", &bounds)
        };
        hold_in_place(&config(4), |talk| {
            let clients: Vec<_> = std::iter::from_fn(|| talk.try_client()).collect();
            let bytes = talk.saved(clients[0]);
            let refused = talk.takes_up_within_bounds(&bytes).map_err(|it| it.to_string());
            let refused = refused.map(|peers| peers.len());
            assert_eq!(refused, Err(format!("the worker already has its share of {option}")));
            talk.reconfigures(&config(8));
            let taken = (0..8).take_while(|_| talk.takes_up_within_bounds(&bytes).is_ok());
            assert_eq!(taken.count(), clients.len());
            // What another process had let in is not refused.
            assert!(talk.takes_up(&bytes).is_ok());
        });
    }
}

#[test]
fn more_room_serves_those_that_wait() {
    let narrow = format!("{CONFIG}    connections_max: 1\n");
    hold_in_place(&narrow, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        talk.upstream();
        talk.says(second, GET);
        assert!(!talk.is_connecting());
        talk.reconfigures(&format!("{CONFIG}    connections_max: 2\n"));
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(second, OK);
    });
}

#[test]
fn a_removed_listener_drains_within_its_timeout() {
    hold_in_place(CONFIG, |talk| {
        let (idle, busy) = (talk.client(), talk.client());
        talk.says(idle, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.heard(idle);
        talk.says(busy, GET);
        let other = CONFIG.replace("name: edge", "name: other")
            + "limits: { drain_timeout: 20s }\naccess_log: { output: stdout }\n";
        talk.reconfigures(&other);
        talk.passes(Duration::from_secs(6));
        assert!(talk.is_closed(idle) && !talk.is_closed(busy));
        talk.passes(Duration::from_secs(15));
        assert!(talk.is_closed(busy));
        assert!(talk.log().contains("drain_timeout"));
        assert_eq!(talk.proxy().cut_off(), 1);
        assert_eq!(talk.retired(), 1);
    });
}

#[test]
fn an_upstream_connection_that_comes_to_a_worker_that_has_drained_is_closed() {
    hold_in_place(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(client, OK);
        talk.ends(client);
        assert!(talk.is_closed(client) && !talk.is_closed(upstream));
        talk.comes_back_drained(upstream);
        assert!(talk.is_closed(upstream) && talk.proxy().is_drained());
    });
}

#[test]
fn what_moves_to_a_cluster_of_another_protocol_fails_and_is_not_tried_for_ever() {
    let config = CONFIG.to_owned() + "    connections_max: 1\n";
    hold_in_place(&config, |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(second, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(!talk.is_connecting(), "it waits for the only connection");
        let other = config.replace("name: web\n", "name: web\n    protocol: http2\n");
        talk.comes_back_to(second, &other);
        talk.hears_about(second, "HTTP/1.1 503 ", &[]);
        talk.heard(upstream);
    });
}

#[test]
fn an_upgrade_goes_to_the_endpoint_whose_settings_it_waited_for() {
    hold(&TO_HTTP2.replace("connections_max: 2", "connections_max: 1"), |talk| {
        let client = talk.client();
        talk.says(client, UPGRADE);
        let mut upstream = Speaker::upstream(talk);
        assert!(!talk.is_connecting(), "its connection makes room for no other");
        assert!(upstream.hears(talk).contains("CONNECT /chat"));
    });
}
