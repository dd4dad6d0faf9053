//! Stage times: where the time of an exchange went, as the access log has it.

use std::time::Duration;

use wire::h2::Limits;

use crate::frames::Speaker;
use crate::http2::to_one;
use crate::keep_alive::CONFIG;
use crate::kit::{Talk, Variant, hold};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn wait(talk: &mut Talk<'_>, ms: u64) {
    talk.passes(Duration::from_millis(ms));
}

#[test]
fn each_stage_has_the_time_that_passed_in_it() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            // The clocks of two workers are not compared.
            return talk.leave_out();
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
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
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
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
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
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
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

/// A peer of HTTP/2 with so large a window for each stream.
fn window(bytes: u32) -> Limits {
    Limits { stream_window_bytes_max: bytes, ..Limits::default() }
}

#[test]
fn the_time_of_a_stream_whose_window_is_shut_is_its_clients() {
    hold(CONFIG, |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        // All of a small response is here and waits; of a large one, the rest is not read meanwhile.
        for (bytes, window_bytes) in [(5, 4), (600_000, 65_535)] {
            talk.forgets_log();
            let mut client = Speaker::client_with(talk, window(window_bytes));
            client.takes = false;
            let stream = client.gets(talk, "/");
            let upstream = talk.upstream();
            wait(talk, 40);
            let body = "x".repeat(bytes);
            talk.says(
                upstream,
                format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n{body}"),
            );
            client.hears(talk);
            assert_eq!(talk.unread(upstream) > 0, bytes > 5);
            wait(talk, 3_000);
            client.takes = true;
            client.does(talk, |codec| codec.on_taken(stream, 1 << 20));
            while !client.hears(talk).is_empty() {}
            assert_eq!(stage(talk, "downstream_write"), 3_000_000, "{bytes}: {}", talk.log());
            assert_eq!(
                (stage(talk, "first_byte"), stage(talk, "response")),
                (40_000, 0),
                "{bytes}"
            );
            talk.ends(upstream);
        }
    });
}

/// An upstream that has said how large a window it gives, and answered a request; it takes nothing from now on.
fn upstream_with_window(talk: &mut Talk<'_>, bytes: u32) -> Speaker {
    let client = talk.client();
    talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut upstream = Speaker::upstream_with(talk, window(bytes));
    upstream.hears(talk);
    upstream.answers(talk, 1, "HTTP/1.1 204 No Content\r\n\r\n", true);
    talk.heard(client);
    talk.ends(client);
    talk.forgets_log();
    upstream.takes = false;
    upstream
}

#[test]
fn the_time_of_an_upstream_without_a_window_for_an_upload_is_its_own() {
    // With more than is held here, the client is not read meanwhile.
    for (bytes, window_bytes) in [(5, 4), (300_000, 65_535)] {
        hold(&to_one(), |talk| {
            if talk.variant() != Variant::Plain {
                return talk.leave_out();
            }
            let mut upstream = upstream_with_window(talk, window_bytes);
            let client = talk.client();
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n");
            talk.says(client, head + &"x".repeat(bytes));
            let head = format!("3: POST /; host: x; content-length: {bytes}\n");
            assert!(upstream.hears(talk).starts_with(&head));
            assert_eq!(talk.unread(client) > 0, bytes > 5);
            wait(talk, 800);
            upstream.takes = true;
            upstream.does(talk, |codec| codec.on_taken(3, 1 << 20));
            while !upstream.hears(talk).is_empty() {}
            wait(talk, 20);
            upstream.answers(talk, 3, "HTTP/1.1 204 No Content\r\n\r\n", true);
            talk.heard(client);
            assert_eq!(stage(talk, "upstream_write"), 800_000, "{bytes}: {}", talk.log());
            assert_eq!((stage(talk, "request_body"), stage(talk, "first_byte")), (0, 20_000));
        });
    }
}

#[test]
fn an_upstream_that_stops_taking_an_upload_is_blamed_until_the_end() {
    for (config, window_bytes) in [(CONFIG, 0), (&*to_one(), 4), (&*to_one(), 0)] {
        hold(config, |talk| {
            if talk.variant() != Variant::Plain {
                return talk.leave_out();
            }
            let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n";
            if config == CONFIG {
                let client = talk.client();
                talk.says(client, head);
                let upstream = talk.upstream();
                talk.takes(upstream, 4);
                talk.says(client, "123456789");
            } else {
                upstream_with_window(talk, window_bytes);
                let client = talk.client();
                talk.says(client, format!("{head}123456789"));
            }
            wait(talk, 61_000);
            let log = talk.log().to_owned();
            assert!(log.contains("request_write_timeout"), "{window_bytes}: {log}");
            // Timers have steps of a few milliseconds.
            assert_eq!(stage(talk, "upstream_write") / 100_000, 600, "{log}");
            assert_eq!((stage(talk, "request_body"), stage(talk, "first_byte")), (0, 0));
        });
    }
}

#[test]
fn an_upstream_of_http2_that_is_slow_is_slow_in_its_stages() {
    hold(&to_one(), |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let mut client = Speaker::client(talk);
        client.gets(talk, "/");
        let mut upstream = Speaker::upstream(talk);
        upstream.hears(talk);
        wait(talk, 400);
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", false);
        wait(talk, 500);
        upstream.sends(talk, 1, b"here", true);
        client.hears(talk);
        assert_eq!((stage(talk, "first_byte"), stage(talk, "response")), (400_000, 500_000));
        assert_eq!((stage(talk, "upstream_write"), stage(talk, "downstream_write")), (0, 0));
        // An upload that is slow is its client's here, too.
        talk.forgets_log();
        let stream = client.asks(talk, "PUT / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        wait(talk, 700);
        client.sends(talk, stream, b"ab", false);
        wait(talk, 300);
        client.sends(talk, stream, b"c", true);
        wait(talk, 50);
        upstream.hears(talk);
        upstream.answers(talk, 3, "HTTP/1.1 204 No Content\r\n\r\n", true);
        client.hears(talk);
        assert_eq!((stage(talk, "request_body"), stage(talk, "first_byte")), (1_000_000, 50_000));
    });
}
