//! The chain: order, replies, and a filter that has to ask.

use proxy::filter::{Filter, Part, Question, Reply, Verdict};
use schemars::JsonSchema;
use serde::Deserialize;
use wire::h2::RequestForm;
use wire::head::{RequestHead, ResponseHead};

use crate::frames::Speaker;
use crate::kit::{Variant, hold_with};

pub(crate) const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    filters:
      - mark: { name: x-first }
      - ask: {}
      - mark: { name: x-last }
    routes: all
    http: { forwarded: off, request_id: false }
routes:
  - name: all
    hosts: ['*']
    rules: [{ match: { prefix: / }, cluster: web }]
clusters:
  - name: web
    endpoints: ['127.0.0.1:9000']
";

/// Adds a field, and counts its exchanges' heads in its slot.
#[derive(Debug)]
struct Mark {
    name: String,
}

impl Filter for Mark {
    fn slot_bytes(&self) -> usize {
        1
    }

    fn on_request(&self, head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        slot[0] += 1;
        head.append(self.name.as_bytes(), b"request");
        Verdict::Continue
    }

    fn on_reply(&self, head: &mut ResponseHead<'_>) {
        head.remove(b"server");
        head.set(b"content-length", b"999");
        head.append(self.name.as_bytes(), head.status().to_string().as_bytes());
    }

    fn on_response(&self, head: &mut ResponseHead<'_>, slot: &mut [u8]) -> Part {
        head.append(self.name.as_bytes(), slot[0].to_string().as_bytes());
        Part::Done
    }
}

/// Asks a question about the user, and remembers the answer's length.
#[derive(Debug)]
struct Ask;

impl Filter for Ask {
    fn slot_bytes(&self) -> usize {
        4
    }

    fn on_request(&self, head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        match head.find(b"x-user") {
            None => Verdict::Reply(Reply { status: 401, reason: "user_missing" }),
            Some(user) => {
                slot[0] = 7;
                Verdict::Suspend(Question { topic: "users".into(), payload: user.into() })
            }
        }
    }

    fn on_answer(&self, answer: &[u8], head: &mut RequestHead<'_>, slot: &mut [u8]) -> Verdict {
        assert_eq!(slot[0], 7, "the slot lives as long as the exchange");
        match answer {
            b"no" => Verdict::Reply(Reply { status: 403, reason: "user_unknown" }),
            role => {
                head.set(b"x-user", role);
                Verdict::Continue
            }
        }
    }
}

/// Configuration of [`Mark`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MarkConfig {
    /// The field to add.
    name: String,
}

/// Configuration of [`Ask`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AskConfig {}

pub(crate) fn kinds() -> config::FilterKinds<Box<dyn Filter>> {
    let mut kinds = config::FilterKinds::<Box<dyn Filter>>::new();
    kinds.register("mark", |config: MarkConfig| Ok(Box::new(Mark { name: config.name }))).unwrap();
    kinds.register("tag", |config: MarkConfig| Ok(Box::new(Mark { name: config.name }))).unwrap();
    kinds.register("ask", |_: AskConfig| Ok(Box::new(Ask))).unwrap();
    kinds
}

#[test]
fn a_filter_suspends_and_is_resumed_with_its_answer() {
    hold_with(CONFIG, kinds, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "POST /x?y HTTP/1.1\r\nHost: x\r\nX-User: ann\r\nContent-Length: 4\r\n\r\nda",
        );
        assert!(!talk.is_connecting());
        talk.says(client, "ta");
        assert_eq!(&*talk.question().payload, b"ann");
        talk.answers(b"admin");
        let upstream = talk.upstream();
        let heard = talk.heard(upstream).to_ascii_lowercase();
        assert!(heard.starts_with("post /x?y http/1.1\r\nhost: x\r\n"), "{heard}");
        assert!(heard.contains("x-user: admin\r\n"), "{heard}");
        let order = [heard.find("x-first: request"), heard.find("x-last: request")];
        assert!(order[0].is_some() && order[0] < order[1], "{heard}");
        assert!(heard.ends_with("\r\n\r\ndata"), "{heard}");
        talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        // Responses run the chain backwards, and every filter finds its own slot.
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["x-last: 1\r\nx-first: 1\r\n"]);
    });
}

#[test]
fn a_request_that_waits_in_a_filter_meets_those_of_another_chain_that_have_not_let_it_pass() {
    let chain =
        &CONFIG[CONFIG.find("      - mark").unwrap()..CONFIG.find("    routes: all").unwrap()];
    for (other, adds) in [
        // The filter that waited is gone.
        ("[{ tag: { name: x-new } }]", vec!["x-new"]),
        // The first one has run.
        ("[{ mark: { name: x-again } }, { tag: { name: x-new } }]", vec!["x-new"]),
        ("[{ tag: { name: x-new } }, { mark: { name: x-again } }]", vec!["x-new", "x-again"]),
        ("[{ mark: { name: x-again } }]", vec![]),
        ("[]", vec![]),
    ] {
        hold_with(CONFIG, kinds, |talk| {
            if talk.variant() == Variant::Moving {
                return talk.leave_out();
            }
            let client = talk.client();
            talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nX-User: ann\r\n\r\n");
            let new =
                CONFIG.replace("filters:\n", "filters:").replace(chain, &format!(" {other}\n"));
            talk.comes_back_to(client, &new);
            let upstream = talk.upstream();
            let heard = talk.heard(upstream).to_ascii_lowercase();
            for name in ["x-new", "x-again"] {
                let count = heard.matches(&format!("{name}: request")).count();
                assert_eq!(count, usize::from(adds.contains(&name)), "{other}: {heard}");
            }
        });
    }
}

#[test]
fn a_filter_may_answer_before_and_after_it_asked() {
    hold_with(CONFIG, kinds, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let heard = talk.hears_about(client, "HTTP/1.1 401 Unauthorized\r\n", &["x-last: 401"]);
        assert!(heard.ends_with(": user_missing\n"), "{heard}");
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nX-User: eve\r\n\r\n");
        talk.answers(b"no");
        let heard = talk.hears_about(client, "HTTP/1.1 403 Forbidden\r\n", &["x-first: 403"]);
        assert!(heard.ends_with(": user_unknown\n"), "{heard}");
        assert!(!talk.is_connecting() && !talk.is_closed(client));
        assert!(talk.log().contains("filter_reply"));
    });
}

const OWN_REPLIES: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    filters: [{ mark: { name: x-first } }, { mark: { name: x-last } }]
    routes: all
routes:
  - name: all
    hosts: [x]
    rules:
      - match: { path: /here }
        respond: { status: 200, body: ok }
      - match: { path: /old }
        redirect: { path: /new }
";

#[test]
fn filters_edit_the_heads_of_replies_that_are_made_here() {
    hold_with(OWN_REPLIES, kinds, |talk| {
        let client = talk.client();
        for (ask, status, length) in [
            ("GET /here HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", 2),
            ("GET /old HTTP/1.1\r\nHost: x\r\n\r\n", "301 Moved Permanently", 0),
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found", 20),
            ("GET / HTTP/1.1\r\nHost: y\r\n\r\n", "404 Not Found", 19),
            ("OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n", "200 OK", 0),
            // Its head ends the exchange before a filter could see it.
            ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request", 34),
        ] {
            talk.says(client, ask);
            let number = &status[..3];
            let lines = [
                format!("\r\nx-last: {number}\r\nx-first: {number}\r\n"),
                format!("\r\ncontent-length: {length}\r\n"),
            ];
            let lines = lines.each_ref().map(String::as_str);
            let heard = talk.hears_about(client, &format!("HTTP/1.1 {status}\r\n"), &lines);
            assert!(!heard.contains("server:") && !heard.contains("999"), "{heard}");
        }
    });
    hold_with(OWN_REPLIES, kinds, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let stream = client.asks(talk, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n", true);
        let received = client.hears(talk);
        assert!(received.starts_with(&format!("{stream}: 404;")), "{received}");
        assert!(received.contains("x-last: 404") && !received.contains("server"), "{received}");
    });
}

#[test]
fn a_filter_that_is_never_answered_ends_its_exchange() {
    hold_with(CONFIG, kinds, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nX-User: ann\r\n\r\n");
        talk.passes(std::time::Duration::from_secs(11));
        let start = "HTTP/1.1 503 Service Unavailable\r\n";
        talk.hears_about(client, start, &[": filter_timeout\n"]);
        talk.answers(b"admin");
        assert!(!talk.is_connecting() && !talk.is_closed(client));
    });
}

#[test]
fn a_client_that_leaves_while_a_filter_waits_is_forgotten() {
    hold_with(CONFIG, kinds, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nX-User: ann\r\n\r\n");
        talk.breaks(client);
        talk.answers(b"admin");
        assert!(!talk.is_connecting());
    });
}

#[test]
fn an_upgrade_that_the_route_forbids_is_refused_after_a_filter_asked_too() {
    let forbidding = CONFIG.replace("cluster: web }", "cluster: web, upgrades: [] }");
    hold_with(&forbidding, kinds, |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let ask = "GET /chat HTTP/1.1\r\nHost: x\r\nX-User: ann\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let stream = client.asks_as(talk, ask, false, RequestForm::Upgrade);
        talk.answers(b"admin");
        let received = client.hears(talk);
        assert!(received.starts_with(&format!("{stream}: 501;")), "{received}");
        assert!(!talk.is_connecting());
    });
}

#[test]
fn filters_see_no_copy_and_none_of_its_answer() {
    let mirror = "cluster: web, mirror: [{ cluster: shadow }] }]";
    let shadow = "  - name: shadow\n    endpoints: ['127.0.0.1:9100']\n";
    let config = CONFIG.replace("cluster: web }]", mirror) + shadow;
    hold_with(&config, kinds, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\nX-User: ann\r\n\r\n");
        talk.answers(b"admin");
        let peers = [talk.upstream(), talk.upstream()];
        for peer in peers {
            // As it goes on.
            let heard = talk.heard(peer).to_ascii_lowercase();
            assert!(
                heard.contains("x-first: request") && heard.contains("x-user: admin"),
                "{heard}"
            );
        }
        for peer in peers {
            talk.says(peer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["x-first: 1\r\n", "x-last: 1\r\n"]);
    });
}
