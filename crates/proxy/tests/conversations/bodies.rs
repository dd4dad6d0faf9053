//! Bodies, both ways.

use std::time::Duration;

use crate::keep_alive::CONFIG;
use crate::kit::{Variant, hold};

#[test]
fn a_body_with_a_length_goes_up_as_it_comes() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234");
        let upstream = talk.upstream();
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n";
        talk.hears(upstream, &format!("{head}01234"));
        talk.says(client, "56789");
        talk.hears(upstream, "56789");
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears(client, "HTTP/1.1 204 No Content\r\n\r\n");
        assert!(!talk.is_closed(client) && !talk.is_closed(upstream));
    });
}

#[test]
fn chunks_and_trailers_go_up_and_down() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears_about(upstream, "POST / HTTP/1.1\r\n", &["transfer-encoding: chunked\r\n"]);
        talk.says(client, "5;name=value\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n");
        let heard = talk.heard(upstream);
        assert_eq!(dechunked(&heard), ("hello".to_owned(), "X-Sum: 1\r\n".to_owned()));
        assert!(!heard.contains("name"), "chunk extensions are for one hop");
        talk.says(
            upstream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 2\r\n\r\n",
        );
        let heard = talk.heard(client);
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        assert_eq!(dechunked(body), ("abc".to_owned(), "X-T: 2\r\n".to_owned()));
        assert!(!talk.is_closed(client) && !talk.is_closed(upstream));
    });
}

#[test]
fn a_response_that_ends_with_its_connection_is_chunked_for_the_client() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\n\r\nuntil the end");
        talk.ends(upstream);
        let heard = talk.heard(client);
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        assert_eq!(dechunked(body).0, "until the end");
        assert!(!talk.is_closed(client));
        assert!(talk.is_closed(upstream));
    });
}

#[test]
fn a_chunked_response_ends_with_the_connection_of_an_http_1_0_client() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(
            upstream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        );
        let heard = talk.hears_about(client, "HTTP/1.", &["connection: close", "\r\n\r\nabc"]);
        assert!(!heard.contains("chunked"), "{heard}");
        assert!(talk.is_shut(client));
    });
}

#[test]
fn a_head_request_gets_a_head_whose_length_is_not_waited_for() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.hears_about(upstream, "HEAD / HTTP/1.1\r\n", &["GET / HTTP/1.1\r\n"]);
        talk.says(upstream, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n");
        talk.hears(client, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n");
        assert!(!talk.is_closed(client) && !talk.is_closed(upstream));
    });
}

#[test]
fn interim_responses_pass_and_the_expected_body_follows() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.hears_about(upstream, "PUT / HTTP/1.1\r\n", &["Expect: 100-continue\r\n"]);
        talk.says(upstream, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.hears(client, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.says(client, "data");
        talk.hears(upstream, "data");
        talk.says(upstream, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        talk.hears(client, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        talk.says(upstream, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        talk.hears(client, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        assert!(!talk.is_closed(client) && !talk.is_closed(upstream));
    });
}

#[test]
fn an_http_1_0_client_gets_no_interim_response() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.0\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 103 Early Hints\r\n\r\n");
        talk.hears(client, "");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.", &["200 OK"]);
    });
}

#[test]
fn endless_interim_responses_are_a_fault() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        for _ in 0..64 {
            talk.says(upstream, "HTTP/1.1 102 Processing\r\n\r\n");
        }
        let heard = talk.heard(client);
        assert_eq!(heard.matches("HTTP/1.1 102 Processing\r\n").count(), 64);
        talk.says(upstream, "HTTP/1.1 102 Processing\r\n\r\n");
        let heard = talk.heard(client);
        assert!(heard.contains("502 Bad Gateway") && heard.contains("response_invalid"), "{heard}");
        assert!(talk.is_closed(upstream));
    });
}

#[test]
fn an_early_response_goes_through_and_the_rest_of_the_body_is_read() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n012");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        talk.hears(client, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        assert!(talk.is_closed(upstream), "it waits for a body that does not come");
        talk.says(client, "3456789GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears(upstream, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    });
}

#[test]
fn an_early_response_before_a_body_without_bounds_ends_the_connection() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n012");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        talk.hears(client, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
        for _ in 0..9 {
            talk.says(client, vec![b'x'; 32 << 10]);
        }
        assert!(talk.is_shut(client));
        assert!(!talk.is_closed(client), "a reset would overtake the response");
        talk.ends(client);
        assert!(talk.is_closed(client));
    });
}

#[test]
fn a_slow_upstream_stops_its_client() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.takes(upstream, 0);
        let (piece, pieces) = (vec![b'x'; 40 << 10], 10);
        for _ in 0..pieces {
            talk.says(client, &piece);
        }
        assert!(talk.unread(client) >= 6 * piece.len(), "{}", talk.unread(client));
        assert!(talk.proxy().load().buffers.bytes <= 512 << 10);
        talk.takes(upstream, usize::MAX);
        assert_eq!(talk.unread(client), 0);
        assert_eq!(talk.heard(upstream).len(), pieces * piece.len());
    });
}

#[test]
fn a_slow_client_stops_its_upstream() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.takes(client, 100);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n");
        for _ in 0..10 {
            talk.says(upstream, vec![b'x'; 40_000]);
        }
        assert!(talk.unread(upstream) >= 200_000, "{}", talk.unread(upstream));
        assert!(talk.proxy().load().buffers.bytes <= 512 << 10);
        talk.passes(Duration::from_secs(50));
        talk.takes(client, usize::MAX);
        let heard = talk.heard(client);
        assert_eq!(
            heard.len(),
            "HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n".len() + 400_000
        );
        assert!(!talk.is_closed(client) && !talk.is_closed(upstream));
    });
}

/// Data and trailer section of a chunked body.
pub(crate) fn dechunked(mut body: &str) -> (String, String) {
    let mut data = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            let trailers = rest.strip_suffix("\r\n").unwrap();
            return (data, trailers.to_owned());
        }
        data.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

#[test]
fn a_client_that_got_no_leave_to_send_its_body_is_not_kept() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        let head = "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        talk.says(client, head);
        let upstream = talk.upstream();
        talk.hears(upstream, head);
        talk.says(upstream, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        // It cannot be known whether `data` or a request comes next.
        talk.hears_about(client, "HTTP/1.1 401 Unauthorized\r\n", &["connection: close\r\n"]);
        assert!(talk.is_shut(client));
    });
}

#[test]
fn a_client_that_got_leave_and_an_early_answer_is_kept() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        let head = "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        talk.says(client, head);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.hears(client, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.says(upstream, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        talk.hears(client, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        talk.says(client, "data");
        assert!(!talk.is_shut(client));
    });
}

#[test]
fn a_cluster_says_how_many_interim_responses_it_has() {
    let config = CONFIG.replace("- name: web\n", "- name: web\n    interim_responses_max: 1\n");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 103 Early Hints\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 103 Early Hints\r\n", &[]);
        talk.says(upstream, "HTTP/1.1 103 Early Hints\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &["response_invalid"]);
    });
}

/// What a service says to a GET, what its client hears of it, and whether it is asked again on its
/// connection. All of it is refused where responses are read strictly.
const SLOPPY: [(&str, &str, bool); 8] = [
    (
        "HTTP/1.1 200 OK\nContent-Length: 2\nX-A:b\n\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi",
        true,
    ),
    (
        "HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        true,
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        true,
    ),
    (
        "HTTP/1.1 100 Continue\n\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        true,
    ),
    (
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2  \r\nhi\r\n0 \r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 9\r\nX-A: b\r\nDate: now\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-A: b\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Type: a/b\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        true,
    ),
];

#[test]
fn a_sloppy_response_goes_on_in_plain_form() {
    for (said, expected, is_reused) in SLOPPY {
        hold(CONFIG, |talk| {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            talk.says(upstream, said);
            let heard = talk.heard(client);
            let is_whole = heard == expected || talk.variant() == Variant::ByteByByte;
            assert!(is_whole, "{said:?}: {heard:?}");
            assert_eq!(!talk.is_closed(upstream), is_reused, "{said:?}");
            assert!(!talk.is_closed(client), "{said:?}");
        });
    }
}

#[test]
fn a_sloppy_response_is_refused_where_it_is_read_strictly() {
    let config = CONFIG.replace("- name: web\n", "- name: web\n    response_parsing: strict\n");
    for (said, _, _) in SLOPPY {
        hold(&config, |talk| {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            talk.says(upstream, said);
            assert!(talk.is_closed(upstream), "{said:?}");
            assert!(talk.log().contains("response_invalid"), "{said:?}");
        });
    }
}

#[test]
fn what_could_hide_a_second_response_is_refused_however_it_is_read() {
    for said in [
        // Line ends of both kinds.
        "HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\n\nhi",
        "HTTP/1.1 200 OK\nX: a\rb\nContent-Length: 2\n\nhi",
        "HTTP/1.1 200 OK\n X: a\nContent-Length: 2\n\nhi",
        // An empty line where no interim response was.
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        // Two of them.
        "HTTP/1.1 100 Continue\r\n\r\n\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        // Both lengths.
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        // A tab before the code, and too many spaces.
        "HTTP/1.1 \t200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1          200 OK\r\nContent-Length: 2\r\n\r\nhi",
        // Chunks.
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 0\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: a\n\r\n",
    ] {
        hold(CONFIG, |talk| {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            talk.says(upstream, said);
            assert!(talk.is_closed(upstream), "{said:?}: {:?}", talk.heard(client));
            assert!(talk.log().contains("response_invalid"), "{said:?}: {}", talk.log());
        });
    }
}
