//! Stage times: where the time of an exchange went, as the access log has it.

use std::time::Duration;

use crate::keep_alive::CONFIG;
use crate::kit::{Manner, Talk, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn wait(talk: &mut Talk<'_>, ms: u64) {
    talk.passes(Duration::from_millis(ms));
}

#[test]
fn each_stage_has_the_time_that_passed_in_it() {
    hold(CONFIG, |talk| {
        if talk.manner() == Manner::Moving {
            // The clocks of two workers are not compared.
            return;
        }
        let client = talk.client();
        wait(talk, 100);
        talk.says(client, "GET / HTTP/1.1\r\n");
        wait(talk, 200);
        talk.says(client, "Host: x\r\n\r\n");
        let upstream = talk.connecting();
        wait(talk, 300);
        talk.establish(upstream);
        wait(talk, 400);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhe");
        wait(talk, 500);
        talk.says(upstream, "re");
        let stages = "\"duration_us\":1400000.0,\"accept_us\":100000.0,\"read_head_us\":200000.0,\
             \"connect_us\":300000.0,\"first_byte_us\":400000.0,\"response_us\":500000.0}";
        assert!(talk.log().contains(stages), "{}", talk.log());
        // The next request on the connection has waited for nothing but its answer.
        talk.forgets_log();
        wait(talk, 100);
        talk.says(client, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
        wait(talk, 40);
        talk.says(upstream, OK);
        let stages = "\"duration_us\":40000.0,\"first_byte_us\":40000.0}";
        assert!(talk.log().contains(stages), "{}", talk.log());
    });
}

#[test]
fn an_exchange_is_counted_for_its_own_listener() {
    let second = "\n  - { name: inner, address: '127.0.0.1:8001', routes: all }\nroutes:";
    let config = CONFIG.replacen("\nroutes:", second, 1);
    hold(&config, |talk| {
        talk.keeps_counts();
        let client = talk.client_of(1);
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, OK);
        talk.hears(client, OK);
        let finished = talk.counted("strait_exchanges_finished_total");
        assert_eq!(finished.get("inner"), Some(&1), "{finished:?}");
        assert_eq!(finished.get("edge").copied().unwrap_or_default(), 0, "{finished:?}");
    });
}

/// The µs of a stage in the log's last line; 0 if it has none.
fn stage(talk: &mut Talk<'_>, name: &str) -> u64 {
    let line = talk.log().lines().last().unwrap_or_default().to_owned();
    let found = line.split_once(&format!("\"{name}_us\":"));
    found.map_or(0, |(_, rest)| rest.split(['.', ',', '}']).next().unwrap().parse().unwrap())
}

#[test]
fn the_time_of_a_slow_upload_is_the_clients() {
    hold(CONFIG, |talk| {
        if talk.manner() == Manner::Moving {
            return;
        }
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nab");
        let upstream = talk.upstream();
        wait(talk, 700);
        talk.says(client, "cd");
        wait(talk, 300);
        talk.says(client, "ef");
        wait(talk, 50);
        talk.says(upstream, OK);
        talk.heard(client);
        assert_eq!(stage(talk, "request_body"), 1_000_000, "{}", talk.log());
        assert_eq!(stage(talk, "upstream_write"), 0);
        assert_eq!(stage(talk, "first_byte"), 50_000);
        // One that stops before its end.
        talk.forgets_log();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nab");
        wait(talk, 2_000);
        talk.breaks(client);
        assert_eq!(stage(talk, "request_body"), 2_000_000, "{}", talk.log());
        assert_eq!(stage(talk, "first_byte"), 0);
    });
}

#[test]
fn the_time_of_an_upstream_that_takes_nothing_is_its_own() {
    hold(CONFIG, |talk| {
        if talk.manner() != Manner::Plain {
            return;
        }
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
        let upstream = talk.upstream();
        talk.takes(upstream, 0);
        talk.says(client, "123456789");
        wait(talk, 800);
        talk.takes(upstream, 1_000);
        wait(talk, 20);
        talk.says(upstream, OK);
        talk.heard(client);
        assert_eq!(stage(talk, "upstream_write"), 800_000, "{}", talk.log());
        assert_eq!((stage(talk, "request_body"), stage(talk, "first_byte")), (0, 20_000));
    });
}

#[test]
fn the_time_of_a_client_that_takes_nothing_is_no_time_of_the_response() {
    hold(CONFIG, |talk| {
        if talk.manner() != Manner::Plain {
            return;
        }
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.takes(client, 100);
        let body = "x".repeat(600_000);
        talk.says(upstream, format!("HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n{body}"));
        assert!(talk.unread(upstream) > 0, "the client holds it up");
        wait(talk, 3_000);
        talk.takes(client, usize::MAX);
        talk.heard(client);
        assert_eq!(stage(talk, "downstream_write"), 3_000_000, "{}", talk.log());
        assert_eq!(stage(talk, "response"), 0);
        assert_eq!(stage(talk, "duration"), 3_000_000);
    });
}

#[test]
fn the_first_byte_is_counted_by_cluster() {
    hold(CONFIG, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        wait(talk, 40);
        talk.says(upstream, OK);
        talk.hears(client, OK);
        let counted = talk.counted("strait_upstream_first_byte_seconds_count");
        assert_eq!(counted.get("web").copied(), Some(1), "{counted:?}");
    });
}
