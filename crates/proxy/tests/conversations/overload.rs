//! The memory of the process is near its bound: what is refused, what closes, and that all of it comes back.

use std::time::Duration;

use config::memory::{MemoryLevel, MemoryPressure};

use crate::frames::Speaker;
use crate::keep_alive::CONFIG;
use crate::kit::{Talk, Variant, hold};
use crate::slow::serves;

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const MIB: u64 = 1 << 20;

/// So much of 100 MiB is in use.
fn memory(talk: &mut Talk<'_>, level: MemoryLevel, resident: u64) {
    says_memory(talk, level, resident, 0);
}

fn says_memory(talk: &mut Talk<'_>, level: MemoryLevel, resident: u64, excess_bytes: u64) {
    talk.has_memory(MemoryPressure {
        level,
        resident_bytes: resident * MIB,
        max_bytes: 100 * MIB,
        releases_free: true,
        excess_bytes,
    });
}

/// A worker that connections move to learns of it from control, not from them.
fn hold_by_one(config: &str, talks: impl Fn(&mut Talk<'_>)) {
    hold(config, |talk| match talk.variant() {
        Variant::Moving => talk.leave_out(),
        _ => talks(talk),
    });
}

#[test]
fn new_requests_are_refused_what_runs_ends_and_idle_connections_close() {
    hold_by_one(CONFIG, |talk| {
        let (idle, running) = (talk.client(), talk.client());
        talk.says(idle, GET);
        let kept = talk.upstream();
        talk.heard(kept);
        serves(talk, kept, idle);
        talk.says(running, GET);
        talk.hears(kept, GET);
        memory(talk, MemoryLevel::High, 91);
        talk.passes(Duration::from_millis(10));
        assert!(talk.is_closed(idle) && !talk.is_closed(running));

        let new = talk.client();
        talk.says(new, GET);
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        let rest = ["x-envoy-overloaded: true\r\n", "connection: close\r\n", ": overloaded\n"];
        talk.hears_about(new, start, &rest);
        talk.passes(Duration::from_secs(10));
        assert!(talk.is_closed(new));
        let detail = "limits.memory_max: 100 MiB, of which 91 are resident";
        assert!(talk.log().contains(detail));

        talk.says(kept, OK);
        talk.hears_about(running, "HTTP/1.1 200 OK\r\n", &["connection: close\r\n"]);

        memory(talk, MemoryLevel::Elevated, 84);
        let again = talk.client();
        talk.says(again, GET);
        talk.hears(kept, GET);
        serves(talk, kept, again);
        assert!(!talk.is_closed(again));
    });
}

#[test]
fn near_the_bound_new_connections_are_refused() {
    hold_by_one(CONFIG, |talk| {
        memory(talk, MemoryLevel::Critical, 96);
        assert!(talk.try_client().is_none());
        assert!(talk.log().contains("\"overloaded\""));
        memory(talk, MemoryLevel::High, 89);
        assert!(talk.try_client().is_some());
    });
}

#[test]
fn those_that_hold_the_most_close_until_the_buffers_hold_so_much_less() {
    hold_by_one(CONFIG, |talk| {
        let half_head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "a".repeat(5_000));
        let crowd: Vec<_> = (0..4).map(|_| talk.client()).collect();
        for client in &crowd {
            talk.says(*client, &*half_head);
            talk.passes(Duration::from_millis(10));
        }
        let little = talk.client();
        talk.says(little, "GET / HTTP/1.1\r\nHost:");
        // Each of the four has a buffer of 16 KiB.
        says_memory(talk, MemoryLevel::Critical, 99, 17 << 10);
        let closed: Vec<_> = crowd.iter().map(|client| talk.is_closed(*client)).collect();
        assert_eq!(closed, [true, true, false, false], "those that were waited for longest");
        assert!(!talk.is_closed(little));
        memory(talk, MemoryLevel::High, 89);
        assert!(!talk.is_closed(crowd[2]));
    });
}

#[test]
fn new_connections_of_http2_have_small_windows() {
    hold_by_one(CONFIG, |talk| {
        // SETTINGS_INITIAL_WINDOW_SIZE of 64 and 16 KiB (RFC 9113, section 6.5.2).
        for (level, setting) in [
            (MemoryLevel::Normal, [0, 4, 0, 1, 0, 0]),
            (MemoryLevel::Elevated, [0, 4, 0, 0, 0x40, 0]),
        ] {
            memory(talk, level, 80);
            let client = Speaker::client(talk).peer;
            let heard = talk.heard_bytes(client);
            assert!(heard.windows(6).any(|octets| octets == setting), "{level:?}: {heard:?}");
        }
        let mut client = Speaker::client(talk);
        memory(talk, MemoryLevel::High, 90);
        talk.passes(Duration::from_millis(10));
        let stream = client.gets(talk, "/");
        let heard = client.hears(talk);
        assert!(heard.contains(&format!("{stream}: 503")), "{heard}");
    });
}

#[test]
fn an_exchange_that_ends_for_what_its_client_holds_says_so() {
    hold_by_one(CONFIG, |talk| {
        let client = talk.client();
        talk.takes(client, 100);
        talk.says(client, GET);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        talk.says(upstream, "a".repeat(200_000));
        says_memory(talk, MemoryLevel::Critical, 99, 1);
        assert!(talk.is_closed(client));
        let log = talk.log();
        assert!(
            log.contains("its client held ") && log.contains("limits.memory_max: 100 MiB"),
            "{log}"
        );
    });
}

/// The clients hold much; no level is reached yet.
fn is_bounded(talk: &mut Talk<'_>, max_bytes: u64) {
    talk.has_memory(MemoryPressure { max_bytes, ..MemoryPressure::default() });
}

#[test]
fn buffers_that_grow_fast_are_bounded_before_the_next_look_is_due() {
    hold_by_one(CONFIG, |talk| {
        is_bounded(talk, MIB / 4);
        let hold = |talk: &mut Talk<'_>| {
            let client = talk.client();
            talk.takes(client, 100);
            talk.says(client, GET);
            let upstream = talk.upstream();
            talk.heard(upstream);
            talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            talk.says(upstream, "a".repeat(18_000));
            client
        };
        let clients: Vec<_> = (0..12).map(|_| hold(talk)).collect();
        let open = clients.iter().filter(|client| !talk.is_closed(**client)).count();
        // Half of the bound, and an eighth of that; each has 18,000 bytes at least.
        assert!((1..=8).contains(&open), "{open}");
        assert!(talk.log().contains("its client held "));
    });
}

/// Requests that wait have hardly any buffers.
#[test]
fn exchanges_are_bounded_with_their_buffers() {
    let config = format!("{CONFIG}    connections_max: 1\n");
    hold_by_one(&config, |talk| {
        let mut clients: Vec<_> = (0..4).map(|_| Speaker::client(talk)).collect();
        // Half of it is more than the buffers of all 320, and less than what these take with them.
        is_bounded(talk, 1_700 << 10);
        for client in &mut clients {
            for _ in 0..80 {
                if !talk.is_closed(client.peer) {
                    client.gets(talk, "/");
                }
            }
        }
        let open = clients.iter().filter(|client| !talk.is_closed(client.peer)).count();
        assert!((1..4).contains(&open), "{open}");
        assert!(talk.log().contains("its client held "));
    });
}
