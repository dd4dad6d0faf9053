//! Peers that leave before they should.

use crate::keep_alive::CONFIG;
use crate::kit::hold;

#[test]
fn a_client_that_leaves_takes_its_exchange_with_it() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.breaks(client);
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
        assert!(talk.log().contains("downstream_closed"));
    });
}

#[test]
fn a_client_that_ends_within_its_body_is_not_answered() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n012");
        let upstream = talk.upstream();
        talk.ends(client);
        talk.hears(client, "");
        assert!(talk.is_closed(client) && talk.is_closed(upstream));
        assert!(talk.log().contains("downstream_closed"));
    });
}

#[test]
fn a_client_that_leaves_while_its_upstream_is_connecting_leaves_a_connection_to_others() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.connecting();
        talk.breaks(client);
        let load = talk.proxy().load();
        assert_eq!((load.exchanges, load.connections, load.buffers.leased), (0, 1, 0));
        talk.establish(upstream);
        talk.hears(upstream, "");
        assert_eq!(talk.proxy().load().idle, 1);
    });
}

#[test]
fn a_client_that_ends_without_a_request_is_closed() {
    hold(CONFIG, |talk| {
        for said in ["", "GET / HT"] {
            let client = talk.client();
            talk.says(client, said);
            talk.ends(client);
            talk.hears(client, "");
            assert!(talk.is_closed(client));
        }
    });
}

#[test]
fn a_response_cut_short_is_not_passed_for_whole() {
    hold(CONFIG, |talk| {
        for (head, body) in [
            ("Content-Length: 10\r\n\r\n", "01234"),
            ("Transfer-Encoding: chunked\r\n\r\n", "5\r\n01234\r\n"),
        ] {
            for is_reset in [false, true] {
                let client = talk.client();
                talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
                let upstream = talk.upstream();
                talk.says(upstream, format!("HTTP/1.1 200 OK\r\n{head}{body}"));
                if is_reset {
                    talk.breaks(upstream);
                } else {
                    talk.ends(upstream);
                }
                let heard = talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &[]);
                assert!(!heard.ends_with("0\r\n\r\n"), "{heard}");
                assert!(talk.is_closed(client) && talk.is_closed(upstream));
            }
        }
        assert_eq!(talk.log().matches("response_truncated").count(), 4);
    });
}

#[test]
fn a_reset_does_not_end_a_response_that_ends_with_its_connection() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\n\r\nhalf of it");
        talk.breaks(upstream);
        let heard = talk.heard(client);
        assert!(!heard.ends_with("0\r\n\r\n"), "{heard}");
        assert!(talk.is_closed(client));
    });
}

#[test]
fn an_upstream_that_closes_before_its_response_is_a_bad_gateway() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        for said in ["", "HTTP/1.1 200 O"] {
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            talk.says(upstream, said);
            talk.ends(upstream);
            talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[": upstream_closed\n"]);
            assert!(!talk.is_closed(client));
        }
    });
}

#[test]
fn a_body_that_breaks_the_chunked_coding_ends_both_sides() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(client, "5\r\nhelloX\r\n");
        talk.hears_about(client, "HTTP/1.1 400 Bad Request\r\n", &[": request_body_invalid\n"]);
        assert!(talk.is_closed(upstream) && talk.is_shut(client));

        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\n");
        let heard = talk.heard(client);
        assert!(!heard.ends_with("0\r\n\r\n"), "{heard}");
        assert!(talk.is_closed(upstream) && talk.is_closed(client));
    });
}

#[test]
fn a_body_beyond_its_bound_is_refused() {
    let config = CONFIG.replace("request_id: false", "request_id: false, body_max: 10");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n");
        talk.hears_about(
            client,
            "HTTP/1.1 413 Content Too Large\r\n",
            &["connection: close\r\n", ": request_body_too_large\n"],
        );
        assert!(!talk.is_connecting());
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(client, "6\r\n012345\r\n6\r\n012345\r\n");
        talk.hears_about(client, "HTTP/1.1 413 Content Too Large\r\n", &["connection: close\r\n"]);
        assert!(talk.is_closed(upstream));
    });
}
