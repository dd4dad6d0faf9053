//! What is reported of an exchange that is over: to counters, endpoints, warnings and the access log.

use std::time::Duration;

use telemetry::FailureOf;

use crate::keep_alive::CONFIG;
use crate::kit::{Talk, Variant, hold};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A cluster whose second endpoint is asked after the first.
fn two_endpoints() -> String {
    CONFIG.replacen("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']", 1)
}

/// An exchange on a connection of its own, which the upstream answers with this.
fn ask(talk: &mut Talk<'_>, answer: &str) {
    let client = talk.client();
    talk.says(client, GET);
    let upstream = talk.upstream();
    talk.says(upstream, answer);
    talk.ends(upstream);
    talk.ends(client);
}

#[test]
fn exchanges_and_failures_count_for_the_endpoint_that_they_went_to() {
    hold(&two_endpoints(), |talk| {
        if talk.variant() == Variant::Moving {
            // Each proxy would know of some.
            return talk.leave_out();
        }
        ask(talk, OK);
        ask(talk, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut off");
        let (one, other) = (talk.endpoint_totals("web", 0), talk.endpoint_totals("web", 1));
        assert_eq!([one.exchanges_total, other.exchanges_total], [1, 1]);
        let failed = [one.exchanges_failed_total, other.exchanges_failed_total];
        assert_eq!(failed.iter().sum::<u64>(), 1, "{failed:?}");
        let error = one.last_error.or(other.last_error).expect("one of them failed");
        assert_eq!(error.cause, "response_truncated");
        assert_eq!(error.at, talk.now.as_nanos());
    });
}

#[test]
fn what_its_client_does_is_no_failure_of_the_endpoint() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, GET);
        let _upstream = talk.upstream();
        talk.breaks(client);
        let totals = talk.endpoint_totals("web", 0);
        assert_eq!((totals.exchanges_total, totals.exchanges_failed_total), (1, 0));
        assert_eq!(totals.last_error, None);
    });
}

#[test]
fn failures_are_warned_of_with_how_many_there_were() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            // A worker counts by itself.
            return talk.leave_out();
        }
        for _ in 0..3 {
            ask(talk, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut off");
        }
        let warnings = talk.warnings();
        let of = FailureOf::Cluster("web".into());
        let reported: Vec<_> = warnings.iter().map(|it| (&it.of, it.cause, it.failed)).collect();
        assert_eq!(reported, [(&of, "response_truncated", 1)]);
        talk.passes(Duration::from_secs(61));
        ask(talk, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut off");
        assert_eq!(talk.warnings()[0].failed, 3);
    });
}

#[test]
fn a_reply_of_the_proxys_own_is_counted_and_logged_as_one() {
    let config = CONFIG.replacen(
        "rules: [",
        "rules: [{ match: { path: /own }, respond: { status: 200 } }, ",
        1,
    );
    hold(&config, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "GET /own HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.heard(client);
        assert!(talk.log().contains("\"reply\":true"), "{}", talk.log());
        talk.forgets_log();
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        assert!(!talk.log().contains("\"reply\":true"), "{}", talk.log());
        assert_eq!(talk.counted("strait_exchange_replies_total").get("edge"), Some(&1));
    });
}

#[test]
fn an_exchange_begins_when_its_request_does() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.passes(Duration::from_millis(250));
        talk.says(client, "GET / HTTP/1.1\r\n");
        talk.passes(Duration::from_millis(250));
        talk.says(client, "Host: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        assert!(talk.log().contains("1970-01-01T00:00:01.250000Z"), "{}", talk.log());
    });
}
