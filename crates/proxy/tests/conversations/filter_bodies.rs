//! Filters that declare what they need of bodies.

use proxy::filter::{BodyNeed, BodyNeeds, Filter, Part, Question, Reply, Verdict};
use schemars::JsonSchema;
use serde::Deserialize;
use wire::head::{RequestHead, ResponseHead};

use crate::kit::hold_with;

pub(crate) fn config(filters: &str) -> String {
    format!(
        "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    filters: {filters}
    routes: all
    http: {{ forwarded: off, request_id: false }}
routes:
  - name: all
    hosts: ['*']
    rules: [{{ match: {{ prefix: / }}, cluster: web }}]
clusters:
  - name: web
    endpoints: ['127.0.0.1:9000']
"
    )
}

/// Adds up the octets of bodies as they pass.
#[derive(Debug)]
struct Sum;

impl Filter for Sum {
    fn slot_bytes(&self) -> usize {
        4
    }

    fn bodies(&self) -> BodyNeeds {
        BodyNeeds { request: BodyNeed::Stream, response: BodyNeed::Stream }
    }

    fn on_request(&self, _head: &mut RequestHead<'_>, _slot: &mut [u8]) -> Verdict {
        Verdict::Continue
    }

    fn on_request_data(&self, data: &[u8], slot: &mut [u8]) {
        add(data, slot);
    }

    fn on_response(&self, head: &mut ResponseHead<'_>, slot: &mut [u8]) -> Part {
        head.append(b"x-sum", &read(slot).to_string().into_bytes());
        Part::Body
    }

    fn on_response_data(&self, data: &[u8], slot: &mut [u8]) {
        add(data, slot);
    }
}

fn read(slot: &[u8]) -> u32 {
    u32::from_le_bytes(slot.try_into().unwrap())
}

fn add(data: &[u8], slot: &mut [u8]) {
    let sum = data.iter().fold(read(slot), |sum, octet| sum + u32::from(*octet));
    slot.copy_from_slice(&sum.to_le_bytes());
}

/// Wants whole bodies. A request whose body is `no` is refused, one that begins with `?` is asked
/// about, and both sides get the body's length.
#[derive(Debug)]
struct Whole {
    request_max: usize,
    response_max: usize,
}

impl Filter for Whole {
    fn bodies(&self) -> BodyNeeds {
        BodyNeeds {
            request: BodyNeed::Gather { bytes_max: self.request_max },
            response: BodyNeed::Gather { bytes_max: self.response_max },
        }
    }

    fn on_request(&self, _head: &mut RequestHead<'_>, _slot: &mut [u8]) -> Verdict {
        Verdict::Continue
    }

    fn on_request_body(
        &self,
        head: &mut RequestHead<'_>,
        body: &[u8],
        _slot: &mut [u8],
    ) -> Verdict {
        head.append(b"x-length", body.len().to_string().as_bytes());
        match body {
            b"no" => Verdict::Reply(Reply { status: 403, reason: "body_refused" }),
            [b'?', question @ ..] => {
                Verdict::Suspend(Question { topic: "bodies".into(), payload: question.into() })
            }
            _ => Verdict::Continue,
        }
    }

    fn on_answer(&self, answer: &[u8], head: &mut RequestHead<'_>, _slot: &mut [u8]) -> Verdict {
        head.append(b"x-answer", answer);
        Verdict::Continue
    }

    fn on_response(&self, head: &mut ResponseHead<'_>, _slot: &mut [u8]) -> Part {
        if head.contains(b"x-opaque") { Part::Done } else { Part::Body }
    }

    fn on_response_body(&self, head: &mut ResponseHead<'_>, body: &[u8], _slot: &mut [u8]) {
        head.append(b"x-length", body.len().to_string().as_bytes());
    }
}

/// Configuration of [`Whole`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WholeConfig {
    request_max: usize,
    response_max: usize,
}

/// Configuration of [`Sum`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SumConfig {}

pub(crate) fn kinds() -> config::FilterKinds<Box<dyn Filter>> {
    let mut kinds = config::FilterKinds::<Box<dyn Filter>>::new();
    kinds.register("sum", |_: SumConfig| Ok(Box::new(Sum))).unwrap();
    let whole = |config: WholeConfig| {
        let WholeConfig { request_max, response_max } = config;
        Ok(Box::new(Whole { request_max, response_max }) as _)
    };
    kinds.register("whole", whole).unwrap();
    kinds
}

pub(crate) const WHOLE: &str = "[{ whole: { request_max: 20, response_max: 20 } }]";

#[test]
fn a_streaming_filter_sees_every_octet_and_delays_none() {
    hold_with(&config("[{ sum: {} }]"), kinds, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\x01\x02");
        let upstream = talk.upstream();
        assert!(talk.heard(upstream).ends_with("\r\n\r\n\x01\x02"));
        talk.says(client, "\x03\x04");
        talk.hears(upstream, "\x03\x04");
        talk.says(
            upstream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\x05\x06\r\n",
        );
        let heard = talk.heard(client);
        assert!(heard.contains("x-sum: 10\r\n"), "{heard}");
        talk.says(upstream, "0\r\n\r\n");
        assert!(talk.heard(client).ends_with("0\r\n\r\n"));
    });
}

#[test]
fn a_body_that_a_filter_wants_whole_reaches_it_before_anything_goes_upstream() {
    hold_with(&config(WHOLE), kinds, |talk| {
        let client = talk.client();
        talk.says(client, "POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n1234");
        assert!(!talk.is_connecting());
        talk.says(client, "5678GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears(
            upstream,
            "POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\nx-length: 8\r\n\r\n12345678",
        );
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab");
        talk.hears(client, "");
        talk.says(upstream, "c");
        let heard = talk.heard(client);
        assert!(heard.starts_with("HTTP/1.1 200 OK\r\n"), "{heard}");
        assert!(heard.contains("x-length: 3\r\n") && heard.ends_with("\r\n\r\nabc"), "{heard}");
        // A message without a body has an empty one.
        let heard = talk.heard(upstream);
        assert!(heard.starts_with("GET /next HTTP/1.1\r\n"), "{heard}");
        assert!(heard.contains("x-length: 0\r\n"), "{heard}");
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 204 No Content\r\n", &["x-length: 0\r\n"]);
    });
}

#[test]
fn chunks_are_put_together_and_their_trailers_kept() {
    hold_with(&config(WHOLE), kinds, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
             3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Checksum: 7\r\n\r\n",
        );
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(heard.contains("x-length: 7\r\n"), "{heard}");
        assert!(heard.ends_with("\r\n\r\n7\r\nabcdefg\r\n0\r\nX-Checksum: 7\r\n\r\n"), "{heard}");
        talk.says(
            upstream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\na\r\n1\r\nb\r\n0\r\nX-End: 1\r\n\r\n",
        );
        let heard = talk.heard(client);
        assert!(heard.contains("x-length: 2\r\n"), "{heard}");
        assert!(heard.ends_with("\r\n\r\n2\r\nab\r\n0\r\nX-End: 1\r\n\r\n"), "{heard}");
    });
}

#[test]
fn who_waits_for_leave_to_send_the_body_gets_it_when_a_filter_wants_the_body() {
    hold_with(&config(WHOLE), kinds, |talk| {
        let client = talk.client();
        let head =
            "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        talk.says(client, head);
        talk.hears(client, "HTTP/1.1 100 Continue\r\n\r\n");
        assert!(!talk.is_connecting());
        talk.says(client, "hi");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(!heard.to_ascii_lowercase().contains("expect"), "{heard}");
        assert!(heard.ends_with("\r\n\r\nhi"), "{heard}");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &[]);
    });
}

#[test]
fn a_filter_that_saw_the_body_may_refuse_or_ask() {
    hold_with(&config(WHOLE), kinds, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nno");
        talk.hears_about(client, "HTTP/1.1 403 Forbidden\r\n", &["body_refused"]);
        assert!(!talk.is_connecting() && !talk.is_closed(client));
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n?user");
        assert_eq!(&*talk.question().payload, b"user");
        talk.answers(b"ann");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert!(heard.contains("x-answer: ann\r\n") && heard.ends_with("?user"), "{heard}");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nX-Opaque: 1\r\nContent-Length: 30\r\n\r\n");
        // The filter takes no part in this response, so its bound does not apply.
        let heard = talk.heard(client);
        assert!(heard.ends_with("\r\n\r\n") && !heard.contains("x-length"), "{heard}");
        talk.says(upstream, "123456789012345678901234567890");
        talk.hears(client, "123456789012345678901234567890");
    });
}

#[test]
fn bodies_beyond_the_bound_of_a_filter_are_refused() {
    for announced in ["Content-Length: 21\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n15\r\n"] {
        hold_with(&config(WHOLE), kinds, |talk| {
            let client = talk.client();
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{announced}");
            talk.says(client, &head);
            talk.says(client, "123456789012345678901");
            talk.hears_about(client, "HTTP/1.1 413 Content Too Large\r\n", &[]);
            assert!(!talk.is_connecting());
            talk.ends(client);
        });
        hold_with(&config(WHOLE), kinds, |talk| {
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let upstream = talk.upstream();
            talk.heard(upstream);
            talk.says(upstream, format!("HTTP/1.1 200 OK\r\n{announced}"));
            talk.says(upstream, "123456789012345678901");
            talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[]);
            assert!(talk.log().contains("response_body_too_large"));
        });
    }
}

#[test]
fn a_held_response_that_breaks_off_becomes_an_error() {
    hold_with(&config(WHOLE), kinds, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
        talk.ends(upstream);
        talk.hears_about(client, "HTTP/1.1 502 Bad Gateway\r\n", &[]);
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_body_that_stops_coming_while_a_filter_waits_is_timed_out() {
    hold_with(&config(WHOLE), kinds, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n1234");
        talk.passes(std::time::Duration::from_secs(61));
        talk.hears_about(client, "HTTP/1.1 408 Request Timeout\r\n", &[]);
        assert!(talk.log().contains("request_body_timeout"));
    });
}

#[test]
fn several_filters_gather_once_and_see_the_same_body() {
    let filters = "[{ whole: { request_max: 20, response_max: 20 } }, { sum: {} }, \
        { whole: { request_max: 8, response_max: 4 } }]";
    hold_with(&config(filters), kinds, |talk| {
        let client = talk.client();
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n\x01\x02\x03");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream);
        assert_eq!(heard.matches("x-length: 3\r\n").count(), 2, "{heard}");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd");
        let heard = talk.heard(client);
        assert_eq!(heard.matches("x-length: 4\r\n").count(), 2, "{heard}");
        assert!(heard.contains("x-sum: 6\r\n"), "{heard}");
        // The smallest bound counts.
        talk.says(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123456789");
        talk.hears_about(client, "HTTP/1.1 413 Content Too Large\r\n", &[]);
    });
}
