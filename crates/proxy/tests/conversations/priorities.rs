//! `priority` of a rule: connections, a queue and bounds of their own.

use std::time::Duration;

use crate::frames::Speaker;
use crate::http2::to_one;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const URGENT: &str = "GET /urgent HTTP/1.1\r\nHost: x\r\n\r\n";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\n";

/// One connection for most requests, and what `high` says for those of `/urgent`.
fn config(high: &str) -> String {
    with_urgent(CONFIG) + &format!("    connections_max: 1\n{high}")
}

fn with_urgent(config: &str) -> String {
    let rules = "rules: [{ match: { path: /urgent }, cluster: web, priority: high }, ";
    config.replacen("rules: [", rules, 1)
}

fn serve(talk: &mut Talk<'_>, client: Peer, upstream: Peer, request: &str) {
    talk.hears(upstream, request);
    talk.says(upstream, OK);
    talk.hears(client, OK);
}

#[test]
fn requests_of_high_priority_have_connections_of_their_own() {
    for high in ["", "    high_priority: { connections_max: 1 }\n"] {
        hold(&config(high), |talk| {
            let (first, waiting, urgent) = (talk.client(), talk.client(), talk.client());
            talk.says(first, GET);
            let upstream = talk.upstream();
            talk.says(waiting, GET);
            assert!(!talk.is_connecting(), "the bound is reached");
            talk.says(urgent, URGENT);
            let own = talk.upstream();
            serve(talk, urgent, own, URGENT);
            // What is idle now is not for the request that waits.
            assert!(!talk.is_connecting());
            talk.says(urgent, URGENT);
            serve(talk, urgent, own, URGENT);
            serve(talk, first, upstream, GET);
            serve(talk, waiting, upstream, GET);
            // Nor is that of the others for an urgent one.
            talk.says(first, URGENT);
            serve(talk, first, own, URGENT);
        });
    }
}

#[test]
fn the_bounds_of_each_priority_are_its_own() {
    let high = "    high_priority: { connections_max: 1, pending_max: 0 }\n";
    hold(&config(high), |talk| {
        talk.keeps_counts();
        let (first, second, other) = (talk.client(), talk.client(), talk.client());
        talk.says(first, URGENT);
        let own = talk.upstream();
        talk.says(second, URGENT);
        let rest = ["\r\nx-envoy-overloaded: true\r\n", ": pending_overflow\n"];
        talk.hears_about(second, UNAVAILABLE, &rest);
        let detail =
            "high_priority.connections_max of the cluster: 1, and high_priority.pending_max: 0";
        assert!(talk.log().contains(detail), "{}", talk.log());
        talk.says(other, GET);
        let upstream = talk.upstream();
        serve(talk, other, upstream, GET);
        serve(talk, first, own, URGENT);
        talk.says(second, URGENT);
        serve(talk, second, own, URGENT);
    });
    let high = "    high_priority: { requests_max: 1 }\n    requests_max: 1\n";
    let config = config(high).replace("connections_max: 1\n", "connections_max: 9\n");
    hold(&config, |talk| {
        let clients: Vec<_> = (0..4).map(|_| talk.client()).collect();
        for (place, request) in [GET, URGENT].into_iter().enumerate() {
            talk.says(clients[place], request);
            let upstream = talk.upstream();
            talk.says(clients[place + 2], request);
            talk.hears_about(clients[place + 2], UNAVAILABLE, &[": requests_overflow\n"]);
            let key = ["; requests_max of", "high_priority.requests_max of"][place];
            assert!(talk.log().contains(key.trim_start_matches("; ")), "{}", talk.log());
            talk.hears(upstream, request);
        }
    });
}

#[test]
fn what_moves_keeps_its_priority_whatever_its_rule_says_now() {
    let urgent = with_urgent(CONFIG) + "    requests_max: 1\n";
    let others = [
        urgent.replace(", priority: high", ""),
        // Its rule is gone.
        CONFIG.to_owned() + "    requests_max: 1\n",
    ];
    for other in others {
        hold(&urgent, |talk| {
            if talk.variant() == Variant::Moving {
                return talk.leave_out();
            }
            let (first, second) = (talk.client(), talk.client());
            talk.says(first, URGENT);
            let own = talk.upstream();
            talk.hears(own, URGENT);
            talk.comes_back_to(first, &other);
            // It takes no room of those of default priority.
            talk.says(second, GET);
            let upstream = talk.upstream();
            serve(talk, second, upstream, GET);
            talk.says(own, OK);
            talk.hears(first, OK);
        });
    }
}

#[test]
fn endpoints_are_bounded_for_the_default_priority_alone() {
    let config = config("    connections_per_endpoint_max: 1\n");
    hold(&config.replace("connections_max: 1\n", "connections_max: 9\n"), |talk| {
        let (first, waiting, urgent) = (talk.client(), talk.client(), talk.client());
        talk.says(first, GET);
        let upstream = talk.upstream();
        talk.says(urgent, URGENT);
        let own = talk.upstream();
        serve(talk, urgent, own, URGENT);
        talk.says(waiting, GET);
        assert!(!talk.is_connecting(), "its endpoint has one");
        serve(talk, first, upstream, GET);
        serve(talk, waiting, upstream, GET);
    });
}

#[test]
fn each_priority_has_its_budget_for_retries() {
    let none = "    retry_budget: { share: 0, at_least: 0 }\n";
    let config = with_urgent(CONFIG).replace("cluster: web", "cluster: web, retry: { on: [5xx] }");
    hold(&format!("{config}{none}"), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let failed = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
        let (client, urgent) = (talk.client(), talk.client());
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.hears(upstream, GET);
        talk.says(upstream, failed);
        assert!(talk.heard(client).ends_with("busy"));
        talk.says(urgent, URGENT);
        let own = talk.upstream();
        talk.hears(own, URGENT);
        talk.says(own, failed);
        talk.passes(Duration::from_secs(1));
        let again = if talk.is_connecting() { talk.upstream() } else { own };
        serve(talk, urgent, again, URGENT);
    });
}

#[test]
fn streams_of_different_priorities_are_on_different_connections() {
    let config = with_urgent(&to_one()).replace("cluster: web", "cluster: app");
    hold(&config, |talk| {
        let (first, second, urgent) = (talk.client(), talk.client(), talk.client());
        talk.says(first, GET);
        let mut upstream = Speaker::upstream(talk);
        talk.says(second, GET);
        assert!(!talk.is_connecting(), "they share one");
        assert!(upstream.hears(talk).contains("3: GET /; host: x END\n"));
        talk.says(urgent, URGENT);
        let mut own = Speaker::upstream(talk);
        assert!(own.hears(talk).contains("1: GET /urgent; host: x END\n"));
        for (speaker, stream, client) in [(&mut own, 1, urgent), (&mut upstream, 3, second)] {
            speaker.answers(talk, stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false);
            speaker.sends(talk, stream, b"hi", true);
            assert!(talk.heard(client).ends_with("hi"));
        }
    });
}

#[test]
fn a_rule_that_gets_another_priority_has_its_connections_from_then_on() {
    hold(&config(""), |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let (client, urgent) = (talk.client(), talk.client());
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(urgent, URGENT);
        let own = talk.upstream();
        let same = config("").replace(", priority: high", "");
        talk.reconfigures(&same);
        serve(talk, urgent, own, URGENT);
        talk.says(urgent, URGENT);
        assert!(!talk.is_connecting(), "it waits as all others");
        serve(talk, client, upstream, GET);
        serve(talk, urgent, upstream, URGENT);
    });
}
