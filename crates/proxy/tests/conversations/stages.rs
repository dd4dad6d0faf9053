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
