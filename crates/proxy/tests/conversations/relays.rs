//! Connections whose bytes are relayed, and how they are distinguished from HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kit::{Variant, hold};

pub(crate) const TCP: &str = "
listeners:
  - { name: edge, address: 127.0.0.1:8080, protocol: tcp, cluster: db }
clusters:
  - name: db
    endpoints: ['127.0.0.1:9000']
";

pub(crate) const AUTO: &str = "
listeners:
  - { name: edge, address: 127.0.0.1:8080, routes: all, cluster: db, http: { forwarded: off, request_id: false } }
routes:
  - { name: all, rules: [{ match: { prefix: / }, cluster: web }] }
clusters:
  - { name: db, endpoints: ['127.0.0.1:9000'] }
  - { name: web, endpoints: ['127.0.0.1:9001'] }
";

#[test]
fn bytes_go_both_ways_whoever_speaks_first() {
    hold(TCP, |talk| {
        let client = talk.client();
        let upstream = talk.upstream();
        talk.says(upstream, "220 ready\r\n");
        talk.hears(client, "220 ready\r\n");
        talk.says(client, "EHLO x\r\n\0\x01");
        talk.hears(upstream, "EHLO x\r\n\0\x01");
        // Each side ends for itself.
        talk.ends(client);
        assert!(talk.is_shut(upstream) && !talk.is_closed(upstream));
        talk.says(upstream, "221 bye\r\n");
        talk.hears(client, "221 bye\r\n");
        talk.ends(upstream);
        assert!(talk.is_closed(upstream) && talk.is_shut(client));
        let log = talk.log();
        assert!(log.contains("\"protocol\":\"TCP\""), "{log}");
        assert!(log.contains("\"cluster\":\"db\""), "{log}");
        assert!(
            log.contains("\"request_bytes\":10") && log.contains("\"response_bytes\":20"),
            "{log}"
        );
    });
}

#[test]
fn what_is_relayed_to_its_end_is_no_failure_of_its_cluster_and_what_is_not_is_one() {
    hold(TCP, |talk| {
        talk.keeps_counts();
        let client = talk.client();
        let upstream = talk.upstream();
        talk.says(upstream, "220 ready\r\n");
        talk.hears(client, "220 ready\r\n");
        talk.ends(client);
        talk.ends(upstream);
        let (total, failed) =
            ("strait_upstream_exchanges_total", "strait_upstream_exchanges_failed_total");
        assert_eq!(talk.counted(total), BTreeMap::from([("db none".to_owned(), 1)]));
        assert_eq!(talk.counted(failed), BTreeMap::new());
        let client = talk.client();
        for _ in 0..3 {
            let refused = talk.connecting();
            talk.refuse(refused);
        }
        assert!(talk.is_closed(client));
        assert_eq!(talk.counted(total), BTreeMap::from([("db none".to_owned(), 2)]));
        assert_eq!(talk.counted(failed), BTreeMap::from([("db".to_owned(), 1)]));
    });
}

#[test]
fn what_is_said_before_the_connection_stands_is_kept() {
    let config = TCP.replace("['127.0.0.1:9000']", "['127.0.0.1:9000', '127.0.0.1:9001']");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "early");
        talk.ends(client);
        let first = talk.connecting();
        talk.refuse(first);
        let second = talk.connecting();
        assert_ne!(talk.address(first), talk.address(second));
        talk.establish(second);
        talk.hears(second, "early");
        assert!(talk.is_shut(second));
        talk.says(second, "answer");
        talk.ends(second);
        talk.hears(client, "answer");
        assert!(talk.is_closed(client) || talk.is_shut(client));
    });
}

#[test]
fn a_client_that_says_nothing_and_ends_is_heard_out() {
    hold(TCP, |talk| {
        let client = talk.client();
        talk.ends(client);
        let upstream = talk.upstream();
        assert!(talk.is_shut(upstream));
        talk.says(upstream, "daytime");
        talk.ends(upstream);
        talk.hears(client, "daytime");
    });
}

#[test]
fn a_relay_without_its_upstream_is_reset_and_gets_no_reply() {
    hold(TCP, |talk| {
        let client = talk.client();
        for _ in 0..3 {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        talk.hears(client, "");
        assert!(talk.is_closed(client));
        assert!(talk.log().contains("connect_failed"));
    });
    hold(TCP, |talk| {
        let client = talk.client();
        let upstream = talk.upstream();
        talk.says(client, "hello");
        talk.breaks(upstream);
        assert!(talk.is_closed(client));
        assert!(talk.log().contains("response_truncated"), "{}", talk.log());
    });
}

#[test]
fn a_silent_relay_ends_after_its_idle_timeout() {
    let config = TCP.replace("cluster: db }", "cluster: db, timeouts: { tunnel_idle: 1m } }");
    hold(&config, |talk| {
        let client = talk.client();
        let upstream = talk.upstream();
        talk.passes(Duration::from_secs(50));
        talk.says(upstream, "x");
        talk.passes(Duration::from_secs(50));
        assert!(!talk.is_closed(client));
        talk.passes(Duration::from_secs(11));
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
        assert!(talk.log().contains("tunnel_idle_timeout"));
    });
}

#[test]
fn a_slow_side_stops_the_other() {
    hold(TCP, |talk| {
        if talk.variant() == Variant::ByteByByte {
            // Too many bytes for one at a time.
            return talk.leave_out();
        }
        let client = talk.client();
        let upstream = talk.upstream();
        talk.takes(client, 0);
        let much = vec![b'x'; 1 << 20];
        talk.says(upstream, &much);
        assert!(talk.unread(upstream) > much.len() / 2, "{}", talk.unread(upstream));
        talk.takes(client, usize::MAX);
        assert!(talk.heard_bytes(client) == much);
    });
}

#[test]
fn what_a_client_said_before_both_sides_ended_is_passed_on() {
    const SAID: usize = 200_000;
    hold(TCP, |talk| {
        if talk.variant() == Variant::ByteByByte {
            return talk.leave_out();
        }
        let client = talk.client();
        let upstream = talk.upstream();
        talk.ends(upstream);
        assert!(talk.is_shut(client) && !talk.is_closed(client));
        talk.takes(upstream, 0);
        talk.says(client, vec![b'x'; SAID]);
        talk.ends(client);
        assert!(talk.unread(client) > 0);
        talk.hangs_up(client);
        talk.takes(upstream, usize::MAX);
        assert_eq!(talk.heard(upstream).len(), SAID);
        assert!(talk.is_closed(upstream));
    });
}

#[test]
fn relayed_connections_wait_for_their_cluster_as_requests_do() {
    let config = format!("{TCP}    connections_max: 1\n    pending_max: 1\n");
    hold(&config, |talk| {
        let first = talk.client();
        let upstream = talk.upstream();
        let second = talk.client();
        let third = talk.client();
        assert!(talk.is_closed(third) && !talk.is_closed(second));
        talk.says(second, "waiting");
        talk.ends(first);
        talk.ends(upstream);
        let upstream = talk.upstream();
        talk.hears(upstream, "waiting");
        assert!(talk.log().contains("pending_overflow"));
    });
}

#[test]
fn an_upstream_may_get_the_clients_address() {
    let config = format!("{TCP}    proxy_protocol: v1\n");
    hold(&config, |talk| {
        let client = talk.client();
        let upstream = talk.upstream();
        talk.says(client, "hi");
        talk.hears(upstream, "PROXY TCP4 192.0.2.7 198.51.100.1 40000 8080\r\nhi");
    });
}

#[test]
fn http_is_detected_by_its_first_bytes() {
    hold(AUTO, |talk| {
        let client = talk.client();
        assert!(!talk.is_connecting());
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let web = talk.upstream();
        assert!(format!("{:?}", talk.address(web)).contains("9001"));
        talk.hears(web, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(web, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        // The connection stays what it was.
        talk.says(client, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.hears(web, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");

        for words in [&b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"[..], b"*1\r\n$4\r\nPING\r\n"] {
            let other = talk.client();
            talk.says(other, words);
            let db = talk.upstream();
            assert!(format!("{:?}", talk.address(db)).contains("9000"));
            assert_eq!(talk.heard_bytes(db), words);
            talk.breaks(db);
        }
    });
}

#[test]
fn a_client_that_waits_for_the_server_is_relayed_after_a_while() {
    hold(AUTO, |talk| {
        let client = talk.client();
        talk.passes(Duration::from_millis(400));
        assert!(!talk.is_connecting());
        talk.passes(Duration::from_millis(200));
        let db = talk.upstream();
        talk.says(db, "220 ready\r\n");
        talk.hears(client, "220 ready\r\n");
    });
}

#[test]
fn a_request_that_comes_slowly_is_still_a_request() {
    hold(AUTO, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HT");
        talk.passes(Duration::from_secs(1));
        assert!(!talk.is_connecting());
        talk.says(client, "TP/1.1\r\nHost: x\r\n\r\n");
        let web = talk.upstream();
        talk.hears(web, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    });
    hold(AUTO, |talk| {
        // Whatever it was, it is over: the service may know.
        let client = talk.client();
        talk.says(client, "GET");
        talk.ends(client);
        let db = talk.upstream();
        talk.hears(db, "GET");
        assert!(talk.is_shut(db));
    });
}

#[test]
fn words_without_a_line_end_that_are_no_request_are_relayed() {
    // At once, because no request goes on like that.
    for words in ["hello world", "AUTH user pass", "GET \"key\"", "X /a b"] {
        hold(AUTO, |talk| {
            let client = talk.client();
            talk.says(client, words);
            let db = talk.upstream();
            assert!(format!("{:?}", talk.address(db)).contains("9000"));
            talk.hears(db, words);
            talk.says(db, "answer");
            talk.hears(client, "answer");
        });
    }
    // Once it is clear that nothing follows, because no method is called so.
    for words in ["hello", "EHLO", "get", "\r\n", "AUTH "] {
        hold(AUTO, |talk| {
            let client = talk.client();
            talk.says(client, words);
            talk.passes(Duration::from_millis(400));
            assert!(!talk.is_connecting());
            talk.passes(Duration::from_millis(200));
            let db = talk.upstream();
            assert!(format!("{:?}", talk.address(db)).contains("9000"));
            talk.hears(db, words);
        });
    }
}

#[test]
fn a_method_that_comes_slowly_is_still_one() {
    for (first, second) in [("G", "ET / HTTP/1.1\r\n"), ("PROPFIND", " / HTTP/1.1\r\n")] {
        hold(AUTO, |talk| {
            let client = talk.client();
            talk.says(client, first);
            talk.passes(Duration::from_secs(1));
            assert!(!talk.is_connecting());
            talk.says(client, format!("{second}Host: x\r\n\r\n"));
            let web = talk.upstream();
            assert!(format!("{:?}", talk.address(web)).contains("9001"));
            talk.hears(web, &format!("{first}{second}Host: x\r\n\r\n"));
        });
    }
}

#[test]
fn the_time_to_find_out_is_no_more_time_for_the_head() {
    let config = AUTO.replace("cluster: db,", "cluster: db, timeouts: { detect: 3s },");
    assert_ne!(config, AUTO);
    hold(&config, |talk| {
        let client = talk.client();
        talk.passes(Duration::from_secs(1));
        talk.says(client, "G");
        talk.passes(Duration::from_secs(1));
        talk.says(client, "E");
        talk.passes(Duration::from_secs(8));
        talk.hears(client, "");
        assert!(!talk.is_connecting());
        // Ten seconds after the first byte, and not ten after the three of the detection.
        talk.passes(Duration::from_millis(1_500));
        let start = "HTTP/1.1 408 Request Timeout\r\n";
        talk.hears_about(client, start, &[": request_head_timeout\n"]);
    });
    // What comes in time is served.
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GE");
        talk.passes(Duration::from_secs(9));
        talk.says(client, "T / HTTP/1.1\r\nHost: x\r\n\r\n");
        let web = talk.upstream();
        talk.hears(web, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(web, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
    });
}

#[test]
fn where_nothing_is_relayed_slow_words_are_left_to_those_who_read_requests() {
    let config = AUTO.replace(
        "routes: all, cluster: db,",
        "chains: [{ name: http, match: { protocols: [http1] }, routes: all }],",
    );
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "JUMP");
        talk.passes(Duration::from_secs(1));
        talk.says(client, " / HTTP/1.1\r\nHost: x\r\n\r\n");
        let web = talk.upstream();
        talk.hears(web, "JUMP / HTTP/1.1\r\nHost: x\r\n\r\n");
    });
}

pub(crate) const DETECTED: &str = "strait_downstream_connections_detected_total";

#[test]
fn each_connection_counts_once_as_what_it_speaks() {
    let plain = AUTO.replace(" cluster: db,", "");
    for (config, words, patience, expected) in [
        // The first head decides, if only HTTP is expected.
        (&plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 0, "http1"),
        (&plain, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, "http2"),
        (&plain, "GET /# HTTP/1.1\r\n\r\n", 0, "http1"),
        (&plain, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 0, "tls"),
        (&plain, "EHLO x\r\n", 0, "other"),
        (&plain, "GET / HT", 100_000, ""),
        // What the first bytes show, or that they are too few.
        (&AUTO.to_owned(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0, "http1"),
        (&AUTO.to_owned(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, "http2"),
        (&AUTO.to_owned(), "EHLO x\r\n", 0, "other"),
        (&AUTO.to_owned(), "", 600, "timeout"),
        (&AUTO.to_owned(), "EHLO", 600, "timeout"),
        (&AUTO.to_owned(), "GET / HT", 600, "http1"),
        (&AUTO.to_owned(), "\x16\x03", 600, "tls"),
    ] {
        hold(config, |talk| {
            talk.keeps_counts();
            let client = talk.client();
            talk.says(client, words);
            talk.passes(Duration::from_millis(patience));
            let counted = talk.counted(DETECTED);
            let shown = counted.iter().filter(|(_, n)| **n > 0);
            let shown: Vec<_> = shown.map(|(label, n)| (label.as_str(), *n)).collect();
            let expected = format!("edge {expected}");
            let one = [(expected.as_str(), 1)];
            assert_eq!(shown, if expected == "edge " { &[][..] } else { &one }, "{words:?}");
        });
    }
}

#[test]
fn relayed_connections_are_shared_out_by_the_weights_of_the_clusters() {
    const CONNECTIONS: usize = 400;
    let config = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    protocol: tcp
    clusters: [{ cluster: many, weight: 12 }, { cluster: some, weight: 3 }, { cluster: few }]
clusters:
  - { name: many, endpoints: ['127.0.0.1:9000'] }
  - { name: some, endpoints: ['127.0.0.1:9001'] }
  - { name: few, endpoints: ['127.0.0.1:9002'] }
";
    hold(config, |talk| {
        let mut shares = [0_usize; 3];
        for _ in 0..CONNECTIONS {
            let client = talk.client();
            let upstream = talk.upstream();
            let address = format!("{:?}", talk.address(upstream));
            let place = ["9000", "9001", "9002"].iter().position(|port| address.contains(port));
            shares[place.expect("one of the clusters")] += 1;
            talk.breaks(client);
        }
        // Chosen by seeded random numbers: more than four standard deviations are left, each way.
        let [many, some, few] = shares;
        assert!((265..=335).contains(&many), "{shares:?}");
        assert!((45..=105).contains(&some), "{shares:?}");
        assert!((7..=44).contains(&few), "{shares:?}");
    });
}
