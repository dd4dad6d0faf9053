//! Changes to heads in the proxy, and refused heads.

use crate::keep_alive::CONFIG;
use crate::kit::hold;

const FORWARDING: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: all
    http: { forwarded: both, via: edge-1, request_id: true }
routes:
  - name: all
    hosts: ['*']
    rules: [{ match: { prefix: / }, cluster: web }]
clusters:
  - name: web
    endpoints: ['127.0.0.1:9000']
";

#[test]
fn the_upstream_gets_the_clients_address_and_not_what_the_client_claims() {
    hold(FORWARDING, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET / HTTP/1.1\r\nHost: shop:8080\r\nX-Forwarded-For: 6.6.6.6\r\n\
             Forwarded: for=6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Request-Id: mine\r\n\r\n",
        );
        let upstream = talk.upstream();
        let heard = talk.hears_about(
            upstream,
            "GET / HTTP/1.1\r\nHost: shop:8080\r\n",
            &[
                "x-forwarded-for: 192.0.2.7\r\n",
                "x-forwarded-proto: http\r\n",
                "x-forwarded-host: shop:8080\r\n",
                "x-forwarded-port: 8080\r\n",
                "forwarded: for=192.0.2.7;host=\"shop:8080\";proto=http\r\n",
                "via: 1.1 edge-1\r\n",
                "x-request-id: ",
            ],
        );
        assert!(!heard.contains("6.6.6.6") && !heard.contains("mine"), "{heard}");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["via: 1.1 edge-1\r\n"]);
    });
}

#[test]
fn a_trusted_proxy_in_front_is_believed_and_added_to() {
    let config = FORWARDING.replace("forwarded: both", "trusted_hops: 1, forwarded: both");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET / HTTP/1.1\r\nHost: shop\r\nX-Forwarded-For: 1.2.3.4\r\n\
             X-Forwarded-Proto: https\r\nX-Request-Id: theirs\r\nVia: 1.1 front\r\n\r\n",
        );
        let upstream = talk.upstream();
        let heard = talk.heard(upstream).to_ascii_lowercase();
        for line in [
            "x-forwarded-for: 1.2.3.4, 192.0.2.7\r\n",
            "x-forwarded-proto: https\r\n",
            "x-request-id: theirs\r\n",
            "via: 1.1 front, 1.1 edge-1\r\n",
        ] {
            assert!(heard.contains(line), "{line:?} in {heard:?}");
        }
    });
}

#[test]
fn fields_for_one_hop_stay_on_it() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, X-Own\r\nX-Own: 1\r\n\
             Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nX-Kept: 2\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.hears(upstream, "GET / HTTP/1.1\r\nHost: x\r\nX-Kept: 2\r\n\r\n");
    });
}

#[test]
fn what_is_matched_is_what_is_forwarded() {
    hold(CONFIG, |talk| {
        for (asked, forwarded) in [
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b?x=/../y", "/b?x=/../y"),
            ("/a%2Fb/./c", "/a%2Fb/c"),
            ("/%61%7Eb", "/a~b"),
            ("/../../etc", "/etc"),
            ("http://shop.example:81/x?y", "/x?y"),
        ] {
            let client = talk.client();
            talk.says(client, format!("GET {asked} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let upstream = talk.upstream();
            talk.hears_about(upstream, &format!("GET {forwarded} HTTP/1.1\r\n"), &[]);
            talk.breaks(client);
        }
    });
}

#[test]
fn an_absolute_form_names_the_host() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET http://shop.example:81/ HTTP/1.1\r\nHost: other\r\n\r\n");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream).to_ascii_lowercase();
        assert!(heard.contains("host: shop.example:81\r\n"), "{heard}");
        assert!(!heard.contains("other"), "{heard}");
    });
}

#[test]
fn options_of_the_whole_server_are_forwarded() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears(upstream, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    });
}

#[test]
fn what_may_be_read_in_two_ways_is_refused_and_ends_the_connection() {
    hold(CONFIG, |talk| {
        for (request, status, cause) in [
            (
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                "400 Bad Request",
                "request_framing_invalid",
            ),
            (
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
                "400 Bad Request",
                "request_framing_invalid",
            ),
            ("GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "400 Bad Request", "request_invalid"),
            ("GET / HTTP/1.1\nHost: x\n\n", "400 Bad Request", "request_invalid"),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
                "400 Bad Request",
                "request_invalid",
            ),
            ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request", "request_host_invalid"),
            ("GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request", "request_target_invalid"),
            (
                "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
                "501 Not Implemented",
                "request_not_implemented",
            ),
            (
                "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
                "501 Not Implemented",
                "request_not_implemented",
            ),
            (
                "GET / HTTP/3.0\r\nHost: x\r\n\r\n",
                "505 HTTP Version Not Supported",
                "request_version_unsupported",
            ),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nExpect: a-miracle\r\n\r\n",
                "417 Expectation Failed",
                "request_expectation_unknown",
            ),
        ] {
            let client = talk.client();
            talk.says(client, request);
            let heard = talk.hears_about(
                client,
                &format!("HTTP/1.1 {status}\r\n"),
                &["server: strait\r\n", "connection: close\r\n", cause],
            );
            assert!(heard.ends_with(&format!(": {cause}\n")), "{heard}");
            assert!(talk.is_shut(client), "{request}");
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(!talk.is_connecting(), "nothing behind it is looked at");
            talk.ends(client);
            assert!(talk.is_closed(client));
        }
    });
}

#[test]
fn heads_beyond_the_bounds_are_refused_early() {
    let config = CONFIG.replace(
        "request_id: false",
        "request_id: false, request_line_max: 100B, head_max: 1KiB, fields_max: 5",
    );
    hold(&config.replace("100B", "100"), |talk| {
        for (request, status) in [
            (format!("GET /{}", "a".repeat(200)), "414 URI Too Long"),
            (
                format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}", "a".repeat(2000)),
                "431 Request Header Fields Too Large",
            ),
            (
                format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(6)),
                "431 Request Header Fields Too Large",
            ),
        ] {
            let client = talk.client();
            talk.says(client, &request);
            talk.hears_about(client, &format!("HTTP/1.1 {status}\r\n"), &["connection: close\r\n"]);
            assert!(talk.is_shut(client));
        }
    });
}

#[test]
fn responses_are_read_as_strictly_as_requests_if_their_cluster_says_so() {
    let config = CONFIG.replace("- name: web\n", "- name: web\n    response_parsing: strict\n");
    hold(&config, |talk| {
        for response in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ] {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            talk.says(upstream, response);
            talk.hears_about(
                client,
                "HTTP/1.1 502 Bad Gateway\r\n",
                &["server: strait\r\n", ": response_invalid\n"],
            );
            assert!(talk.is_closed(upstream), "{response}");
            assert!(!talk.is_closed(client), "it has done nothing wrong");
        }
    });
}

#[test]
fn a_response_head_without_end_is_refused() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\n");
        for _ in 0..20 {
            talk.says(upstream, format!("A: {}\r\n", "a".repeat(4000)));
        }
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[": response_head_too_large\n"]);
    });
}

#[test]
fn the_proxy_header_names_the_client() {
    let config = CONFIG.replace(
        "http: { forwarded: off, request_id: false }",
        "proxy_protocol: true\n    http: { forwarded: x-forwarded, request_id: false }",
    );
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "PROXY TCP4 203.0.113.9 203.0.113.1 5555 443\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.hears_about(
            upstream,
            "GET / HTTP/1.1\r\n",
            &["x-forwarded-for: 203.0.113.9\r\n", "x-forwarded-port: 443\r\n"],
        );
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(talk.is_closed(client), "it sent no PROXY header");
        talk.hears(client, "");
    });
}

#[test]
fn a_proxy_header_goes_in_front_of_each_upstream_connection() {
    for (version, start) in [
        ("v1", "PROXY TCP4 192.0.2.7 198.51.100.1 40000 8080\r\nGET /"),
        ("v2", "\r\n\r\n\0\r\nQUIT\n"),
    ] {
        let config = format!("{CONFIG}    proxy_protocol: {version}\n");
        hold(&config, |talk| {
            let client = talk.client();
            for _ in 0..2 {
                talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
                let upstream = talk.upstream();
                talk.hears_about(upstream, start, &["GET / HTTP/1.1\r\nHost: x\r\n\r\n"]);
                talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                assert!(talk.is_closed(upstream), "it belongs to one client");
            }
        });
    }
}

#[test]
fn only_as_many_hops_are_believed_as_are_trusted() {
    let trusting = |hops: u8| {
        FORWARDING.replace("forwarded: both", &format!("trusted_hops: {hops}, forwarded: both"))
    };
    let claims = "X-Forwarded-For: 6.6.6.6, 203.0.113.5\r\nX-Forwarded-For: 198.51.100.2\r\n\
        X-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6, for=\"[2001:db8::1]\"\r\n";
    for (hops, kept, client) in [
        (0, "x-forwarded-for: 192.0.2.7\r\n", "192.0.2.7"),
        (1, "x-forwarded-for: 198.51.100.2, 192.0.2.7\r\n", "198.51.100.2"),
        (2, "x-forwarded-for: 203.0.113.5, 198.51.100.2, 192.0.2.7\r\n", "203.0.113.5"),
    ] {
        hold(&trusting(hops), |talk| {
            let peer = talk.client();
            talk.says(peer, format!("GET / HTTP/1.1\r\nHost: shop\r\n{claims}\r\n"));
            let upstream = talk.upstream();
            let heard = talk.hears_about(upstream, "GET / HTTP/1.1\r\n", &[]).to_lowercase();
            assert!(heard.contains(kept), "{hops}: {heard}");
            assert_eq!(heard.contains("x-real-ip"), hops > 0, "{heard}");
            assert_eq!(heard.contains("for=6.6.6.6"), hops > 1, "{heard}");
            talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
            assert!(talk.log().contains(&format!("\"client\":\"{client}\"")), "{}", talk.log());
        });
    }
}

#[test]
fn max_forwards_is_counted_down_and_ends_here_at_zero() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["server: strait\r\n", "date: "]);
        talk.says(client, "TRACE / HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 501 Not Implemented\r\n", &[]);
        let client = talk.client();
        talk.says(client, "OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 3\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears_about(upstream, "OPTIONS * HTTP/1.1\r\n", &["max-forwards: 2\r\n"]);
    });
}

#[test]
fn via_names_the_version_that_a_message_was_received_in() {
    hold(FORWARDING, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.0\r\nHost: shop\r\n\r\n");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(heard.contains("via: 1.0 edge-1\r\n"), "{heard}");
        talk.says(upstream, "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.0 200 OK\r\n", &["via: 1.0 edge-1\r\n"]);
    });
}
