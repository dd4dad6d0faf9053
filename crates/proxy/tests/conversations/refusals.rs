//! Connections that come to nothing before they have a request: their lines in the access log.

use std::time::Duration;

use crate::chains;
use crate::keep_alive::CONFIG;
use crate::kit::{Talk, Variant, hold};

/// The lines of the log, as far as what is asked for.
fn lines(talk: &mut Talk<'_>) -> Vec<String> {
    talk.log().lines().map(str::to_owned).collect()
}

fn is_only_line(talk: &mut Talk<'_>, cause: &str, detail: &str) {
    let lines = lines(talk);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("\"client\":\"192.0.2.7\""), "{lines:?}");
    assert!(lines[0].contains(&format!("\"cause\":\"{cause}\"")), "{lines:?}");
    assert!(lines[0].contains(&format!("\"cause_detail\":\"{detail}")), "{lines:?}");
    assert!(!lines[0].contains("\"protocol\""), "there was no request: {lines:?}");
}

#[test]
fn one_over_a_bound_has_a_line_with_the_bound() {
    let config =
        CONFIG.replace("    routes: all", "    connections_per_client_max: 1\n    routes: all");
    hold(&config, |talk| {
        let _first = talk.client();
        assert!(talk.try_client().is_none());
        let detail = "connections_per_client_max of the listener: 1";
        is_only_line(talk, "client_connections_overflow", detail);
    });
    let config = CONFIG.replace("    routes: all", "    accept_rate: 2\n    routes: all");
    hold(&config, |talk| {
        // The variants share the configuration, in which it stands what was accepted; each process has one of its own.
        match talk.variant() {
            Variant::Plain => {}
            Variant::ByteByByte => talk.passes(Duration::from_secs(10)),
            Variant::Moving => return talk.leave_out(),
        }
        let _two = [talk.client(), talk.client()];
        assert!(talk.try_client().is_none());
        is_only_line(talk, "accept_rate", "accept_rate of the listener: 2 a second");
        talk.passes(Duration::from_millis(600));
        assert!(talk.try_client().is_some());
        assert!(talk.try_client().is_none());
    });
    hold(&format!("{CONFIG}limits: {{ connections_max: 1 }}\n"), |talk| {
        let _first = talk.client();
        assert!(talk.try_client().is_none());
        let detail = "connections_max of the listener: 100000; of limits: 1";
        is_only_line(talk, "connections_overflow", detail);
    });
}

#[test]
fn a_proxy_header_that_is_none_is_shown() {
    let config = CONFIG.replace("    routes: all", "    proxy_protocol: true\n    routes: all");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\n");
        assert!(talk.is_closed(client));
        let shown = if talk.variant() == Variant::ByteByByte { ": G" } else { ": GET / HTTP/1.1" };
        is_only_line(talk, "proxy_protocol_invalid", "");
        assert!(talk.log().contains(shown), "{}", talk.log());
    });
}

#[test]
fn what_no_chain_is_for_has_a_line() {
    hold(chains::CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, [0xff; 16]);
        assert!(talk.is_closed(client));
        let why = "to 198.51.100.1:8080, protocol unknown, server name none, ALPN none";
        is_only_line(talk, "no_chain", why);
    });
}

#[test]
fn a_broken_connection_of_http2_has_the_rule_that_was_broken() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        talk.says(client, [0, 0, 0, 4, 0, 0, 0, 0, 0]);
        // A PING of one octet.
        talk.says(client, [0, 0, 1, 6, 0, 0, 0, 0, 0, 7]);
        is_only_line(talk, "http2_invalid", "a frame whose length is not that of its type");
    });
}

#[test]
fn a_flood_of_them_has_a_bounded_number_of_lines() {
    let config =
        CONFIG.replace("    routes: all", "    connections_per_client_max: 1\n    routes: all");
    hold(&config, |talk| {
        talk.keeps_counts();
        let _first = talk.client();
        for _ in 0..50 {
            assert!(talk.try_client().is_none());
        }
        assert_eq!(lines(talk).len(), 20);
        let left_out = talk.counted("strait_access_log_connections_left_out_total");
        assert_eq!(left_out.values().sum::<u64>(), 30, "{left_out:?}");
        talk.passes(Duration::from_secs(1));
        assert!(talk.try_client().is_none());
        assert_eq!(lines(talk).len(), 21);
    });
}
