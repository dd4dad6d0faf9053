//! Requests that wait for a connection of a cluster that another configuration removes.

use std::time::Duration;

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::reconfiguring::{GET, OK, UPGRADE, hold_in_place, to_http2_at};

const TO_NONE: &str = "\
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }]
access_log: { output: stdout }
";

/// One connection to service `name`.
fn one_to(name: &str) -> String {
    CONFIG.replace("web", name) + "    connections_max: 1\n"
}

#[test]
fn requests_that_wait_for_a_cluster_that_is_removed_are_served_by_its_endpoints() {
    // It goes, is renamed, comes again, and leaves its place to another.
    let [web, main] = ["web", "main"].map(one_to);
    let all =
        [&[TO_NONE][..], &[&main], &[TO_NONE, &web], &[TO_NONE, &main], &[&main, TO_NONE, &web]];
    for versions in all {
        hold_in_place(&one_to("web"), |talk| {
            let clients = [talk.client(), talk.client(), talk.client()];
            for client in clients {
                talk.says(client, GET);
            }
            let first = talk.upstream();
            assert!(!talk.is_connecting(), "one at a time");
            let other = talk.client();
            for version in versions {
                talk.reconfigures(version);
                // What is new does not wait for them.
                talk.says(other, GET);
                if *version == TO_NONE {
                    talk.hears_about(other, "HTTP/1.1 204 ", &[]);
                } else {
                    let upstream = talk.upstream();
                    talk.says(upstream, OK);
                    talk.hears(other, OK);
                }
            }
            let mut upstream = first;
            for (place, client) in clients.into_iter().enumerate() {
                if place > 0 {
                    upstream = talk.upstream();
                    assert_eq!(talk.address(upstream), talk.address(first));
                }
                assert!(!talk.is_connecting(), "one at a time");
                talk.says(upstream, OK);
                talk.hears(client, OK);
                assert!(talk.is_closed(upstream));
            }
            assert!(!talk.is_connecting());
        });
    }
}

#[test]
fn a_request_that_waits_for_a_removed_cluster_fails_when_its_time_is_over() {
    let timeouts = "    timeouts: { pending: 2s }\n";
    hold_in_place(&(one_to("web") + timeouts), |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.says(second, GET);
        talk.reconfigures(&one_to("main"));
        talk.passes(Duration::from_secs(3));
        talk.hears_about(second, "HTTP/1.1 503 ", &["pending_timeout"]);
        talk.says(upstream, OK);
        talk.hears(first, OK);
        assert!(talk.is_closed(upstream) && !talk.is_connecting());
    });
}

#[test]
fn an_upgrade_that_waits_for_a_removed_cluster_does_not_connect_again_and_again() {
    hold_in_place(&to_http2_at(9000), |talk| {
        let client = talk.client();
        talk.says(client, UPGRADE);
        talk.connecting();
        talk.reconfigures(TO_NONE);
        let mut connects = 0;
        while talk.is_connecting() && connects < 10 {
            Speaker::upstream(talk);
            connects += 1;
        }
        assert!(connects < 3, "{connects} connections");
    });
}

#[test]
fn requests_that_wait_for_first_checks_of_a_removed_cluster_fail() {
    let checked = CONFIG.to_owned() + "    initial_check_timeout: 1m\n    checks: [{ tcp: {} }]\n";
    hold_in_place(&checked, |talk| {
        let checker = talk.warms();
        let client = talk.client();
        talk.says(client, GET);
        talk.reconfigures(TO_NONE);
        talk.hears_about(client, "HTTP/1.1 503 ", &["no_endpoint"]);
        let why = "the cluster web was removed while the request waited for it";
        assert!(talk.log().contains(why), "{}", talk.log());
        talk.has_warmed(checker);
    });
}
