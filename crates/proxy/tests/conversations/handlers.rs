//! Route handlers: what decides about a request before the route tables are asked.

use std::sync::Arc;

use config::handlers::{Handled, RouteHandler, RuleName};
use config::matching::Asked;
use proxy::filter::Filter;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::frames::Speaker;
use crate::kit::hold_with;

const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: [all, apart]
    handlers: [{ asks: { header: x-first } }, { asks: { header: x-second } }]
    http: { forwarded: off, request_id: false }
routes:
  - { name: all, hosts: ['*'], rules: [{ match: { prefix: / }, cluster: web }] }
  - name: apart
    hosts: [apart.invalid]
    rules:
      - { name: one, match: { path: /never }, cluster: one, rewrite: { host: one.internal } }
      - { name: two, match: { path: /never }, respond: { status: 200, body: two } }
clusters:
  - { name: web, endpoints: ['127.0.0.1:9000'] }
  - { name: one, endpoints: ['127.0.0.1:9001'] }
";

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AsksConfig {
    /// The header field that says what to answer.
    header: String,
}

/// Answers what a header field says.
#[derive(Debug)]
struct Asks {
    header: String,
}

impl RouteHandler for Asks {
    fn rules(&self) -> Vec<RuleName> {
        let name = |rule: &str| RuleName { table: "apart".into(), rule: rule.into() };
        vec![name("one"), name("two")]
    }

    fn handle(&self, asked: &Asked<'_>) -> Handled {
        match asked.head.find(self.header.as_bytes()) {
            Some(b"one") => Handled::Rule(0),
            Some(b"two") => Handled::Rule(1),
            Some(b"wrong") => Handled::Rule(2),
            Some(b"none") => Handled::Refuse,
            _ => Handled::PassOn,
        }
    }
}

fn kinds() -> config::FilterKinds<Box<dyn Filter>> {
    let mut kinds = config::FilterKinds::new();
    kinds
        .register_handler("asks", false, |config: AsksConfig| {
            Ok(Arc::new(Asks { header: config.header }) as Arc<dyn RouteHandler>)
        })
        .unwrap();
    kinds
}

fn get(fields: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: x\r\n{fields}\r\n")
}

#[test]
fn the_first_handler_that_decides_says_which_rule() {
    hold_with(CONFIG, kinds, |talk| {
        let client = talk.client();
        for (fields, port) in [
            ("", 9000),
            ("x-first: one\r\n", 9001),
            ("x-first: ?\r\nx-second: one\r\n", 9001),
            ("x-first: one\r\nx-second: none\r\n", 9001),
        ] {
            talk.says(client, get(fields));
            let upstream = talk.upstream();
            assert_eq!(talk.address(upstream).to_string(), format!("127.0.0.1:{port}"));
            let heard = talk.heard(upstream);
            let host = if port == 9001 { "host: one.internal\r\n" } else { "host: x\r\n" };
            assert!(heard.to_ascii_lowercase().contains(host), "{heard}");
            talk.says(upstream, OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
            talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &[]);
        }
        talk.says(client, get("x-second: two\r\n"));
        talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["\r\n\r\ntwo"]);
        assert!(talk.log().contains("\"rule\":\"two\""), "{}", talk.log());
    });
}

#[test]
fn a_request_that_a_handler_refuses_meets_no_table() {
    hold_with(CONFIG, kinds, |talk| {
        for fields in
            ["x-first: none\r\nx-second: one\r\n", "x-second: none\r\n", "x-second: wrong\r\n"]
        {
            let client = talk.client();
            talk.says(client, get(fields));
            talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &[]);
            let reason = "the handler asks has no rule for this request";
            assert!(talk.log().contains(reason), "{}", talk.log());
            talk.forgets_log();
        }
    });
}

#[test]
fn streams_of_http2_meet_handlers_too() {
    hold_with(CONFIG, kinds, |talk| {
        let mut client = Speaker::client(talk);
        let stream = client.asks(talk, &get("x-first: two\r\n"), true);
        let heard = client.hears(talk);
        assert!(heard.contains(&format!("{stream}: 200;")) && heard.contains("two"), "{heard}");
    });
}

#[test]
fn what_is_missing_or_not_for_such_traffic_is_refused() {
    let load = |text: &str| {
        let mut kinds = kinds();
        kinds.register_protocol(&wire::rpc::bolt::Bolt);
        config::Loader::new(kinds).unwrap().load("f", text).map(drop)
    };
    load(CONFIG).unwrap();
    let errors = config::Loader::<Box<dyn Filter>>::new(config::FilterKinds::new());
    let errors = errors.unwrap().load("f", CONFIG).unwrap_err().to_string();
    assert!(errors.contains("this program has no route handlers"), "{errors}");
    let handlers = "[{ asks: { header: x-first } }, { asks: { header: x-second } }]";
    let many = format!("[{}]", "{ asks: { header: x } }, ".repeat(17));
    for (from, to, said) in [
        ("name: two,", "name: three,", "with the rule `two` of `apart`"),
        ("routes: [all, apart]", "routes: all", "rules of the route table `apart`"),
        (handlers, &*many, "at most 16 handlers"),
        ("asks: { header: x-second }", "aks: { header: x-second }", "did you mean `asks`?"),
        (
            "    routes: [all",
            "    protocol: bolt\n    routes: [all",
            "this handler is for HTTP requests",
        ),
        ("    routes: [all, apart]", "    protocol: tcp\n    cluster: web", "has no handlers"),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let errors = load(&CONFIG.replace(from, to)).unwrap_err().to_string();
        assert!(errors.contains(said), "{said}: {errors}");
    }
}

#[test]
fn a_rule_that_goes_from_its_table_is_missed_in_a_reload_too() {
    let mut loader = config::Loader::new(kinds()).unwrap();
    loader.load("f", CONFIG).unwrap();
    let errors = loader.load("f", &CONFIG.replace("name: two,", "name: three,")).unwrap_err();
    assert!(errors.to_string().contains("with the rule `two` of `apart`"), "{errors}");
    let other = CONFIG.replace("body: two", "body: other");
    let snapshot = loader.load("f", &other).unwrap();
    assert_eq!(snapshot.changes.listeners_changed.len(), 0, "a table alone has changed");
}
