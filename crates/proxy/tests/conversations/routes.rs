//! Which rule a request meets, by what it is and who sends it.

use crate::kit::{Talk, hold};

const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: [all]
    http: { trusted_hops: 1, forwarded: off }
routes:
  - name: all
    rules:
      - match: { prefix: /team/, headers: { x-team: a }, methods: [GET] }
        respond: { body: team }
      - match: { prefix: /, query: { page: { regex: '[0-9]+' } } }
        respond: { body: page }
      - match: { prefix: /, cookies: { beta: 'yes' } }
        respond: { body: beta }
      - match: { prefix: /, sources: [198.51.100.0/24] }
        respond: { body: inside }
      - match: { path: /never, fraction: { percent: 0 } }
        respond: { body: never }
      - match: { path: /never, fraction: { percent: 99.9999 } }
        respond: { body: share }
      - match: { prefix: / }
        respond: { body: all }
      - match: { path: /tunnel, headers: { x-tunnel: '1' } }
        cluster: db
        upgrades: [connect]
clusters: [{ name: db, endpoints: ['127.0.0.1:9000'] }]
";

fn asks(talk: &mut Talk<'_>, request: &str) -> String {
    let client = talk.client();
    let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
    let fields: String = fields.lines().map(|field| format!("{field}\r\n")).collect();
    talk.says(client, format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let heard = talk.heard(client);
    heard.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned()
}

#[test]
fn a_request_meets_the_first_rule_of_which_it_has_everything() {
    hold(CONFIG, |talk| {
        for (request, body) in [
            ("GET /team/x\nx-team: a", "team"),
            ("POST /team/x\nx-team: a", "all"),
            ("GET /team/x\nx-team: a\nx-team: a", "all"),
            ("GET /team/../x\nx-team: a", "all"),
            ("GET /x?page=7", "page"),
            ("GET /x?p%61ge=%37", "page"),
            ("GET /x?page=x&page=7", "all"),
            ("GET /x\ncookie: a=b; beta=\"yes\"", "beta"),
            ("GET /x\nx-forwarded-for: 198.51.100.9", "inside"),
            ("GET /x\nx-forwarded-for: 198.51.100.9, 203.0.113.1", "all"),
            ("GET /never", "share"),
        ] {
            assert_eq!(asks(talk, request), body, "{request}");
        }
    });
}

#[test]
fn a_tunnel_is_for_requests_that_meet_the_rule() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
        assert!(talk.heard(client).starts_with("HTTP/1.1 501 "));
        let client = talk.client();
        talk.says(client, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nx-tunnel: 1\r\n\r\n");
        talk.upstream();
        assert!(talk.heard(client).starts_with("HTTP/1.1 200 "));
    });
}
