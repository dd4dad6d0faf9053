//! Pages of the configuration in the place of Strait's own words.

use std::time::Duration;

use crate::frames::Speaker;
use crate::kit::{Files, hold, hold_with_files};

const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: [shop, blog]
    http:
      forwarded: off
      trusted_hops: 1
      error_pages:
        - { cause: [connect_failed, connect_timeout], body: 'away: {{cause}}' }
        - { status: [5xx], file: 5xx.json }
        - { status: [404], body: '<i>{{status}} {{host}} {{request_id}}</i>', content_type: text/html }
routes:
  - name: shop
    hosts: [shop.example.com]
    error_pages:
      - { status: [404], file: shop.html }
      - { status: [418], body: no coffee }
    rules:
      - match: { path: /gone }
        respond: { status: 404 }
      - match: { path: /own }
        respond: { status: 404, body: its own }
      - match: { path: /tea }
        respond: { status: 418 }
      - match: { path: /moved }
        redirect: { path: /new }
      - match: { prefix: /api/ }
        cluster: api
        timeout: 2s
  - name: blog
    hosts: [blog.example.com]
    rules: []
clusters:
  - name: api
    endpoints: ['127.0.0.1:9000']
";

fn files() -> Files {
    let mut files = Files::default();
    files.insert("shop.html", b"<h1>{{reason}}</h1>\n");
    files.insert("5xx.json", b"{\"status\": {{status}}, \"id\": \"{{request_id}}\"}");
    files
}

#[test]
fn replies_to_failures_are_pages_by_status_and_cause() {
    hold_with_files(CONFIG, &files(), |talk| {
        let client = talk.client();
        for (method, host, path, content_type, body) in [
            // No rule, but a table.
            (
                "GET",
                "SHOP.example.com:80",
                "/none",
                "text/html; charset=utf-8",
                "<h1>Not Found</h1>\n",
            ),
            (
                "GET",
                "shop.example.com",
                "/gone",
                "text/html; charset=utf-8",
                "<h1>Not Found</h1>\n",
            ),
            ("GET", "shop.example.com", "/own", "text/plain; charset=utf-8", "its own"),
            (
                "GET",
                "blog.example.com",
                "/",
                "text/html",
                "<i>404 blog.example.com &#60;a&#62;%E9</i>",
            ),
            ("GET", "Other.Example:8", "/", "text/html", "<i>404 other.example &#60;a&#62;%E9</i>"),
        ] {
            let mut ask = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nx-request-id: <a>")
                .into_bytes();
            ask.extend_from_slice(b"\xe9\r\n\r\n");
            talk.says(client, ask);
            let lines = [
                format!("\r\ncontent-type: {content_type}\r\n"),
                format!("\r\ncontent-length: {}\r\n", body.len()),
            ];
            let lines = lines.each_ref().map(String::as_str);
            let heard = talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &lines);
            assert!(heard.ends_with(&format!("\r\n\r\n{body}")), "{heard}");
        }
        talk.says(client, "HEAD /gone HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
        let heard =
            talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &["content-length: 19\r\n"]);
        assert!(heard.ends_with("\r\n\r\n"), "{heard}");
        talk.says(client, "GET /tea HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
        let heard = talk.hears_about(client, "HTTP/1.1 418 ", &["content-length: 9\r\n"]);
        assert!(heard.ends_with("no coffee"), "{heard}");
        talk.says(client, "GET /moved HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 301 Moved Permanently\r\n", &["content-length: 0\r\n"]);
        // A status without a page has words.
        talk.says(client, "TRACE / HTTP/1.1\r\nHost: blog.example.com\r\nMax-Forwards: 0\r\n\r\n");
        let heard =
            talk.hears_about(client, "HTTP/1.1 501 ", &["content-type: application/json\r\n"]);
        assert!(heard.contains("\r\n\r\n{\"status\": 501, \"id\": \""), "{heard}");
    });
}

#[test]
fn failures_of_an_upstream_have_pages_too() {
    hold_with_files(CONFIG, &files(), |talk| {
        let client = talk.client();
        let ask = "GET /api/x HTTP/1.1\r\nHost: shop.example.com\r\nx-request-id: \"1\"\r\n\r\n";
        talk.says(client, ask);
        while talk.is_connecting() {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        let heard = talk.hears_about(client, "HTTP/1.1 503 Service Unavailable\r\n", &[]);
        assert!(heard.ends_with("\r\n\r\naway: connect_failed"), "{heard}");
        talk.passes(Duration::from_secs(3));
        talk.says(client, ask);
        let upstream = talk.upstream();
        talk.heard(upstream);
        talk.passes(Duration::from_secs(3));
        let heard = talk.hears_about(client, "HTTP/1.1 504 Gateway Timeout\r\n", &[]);
        assert!(heard.ends_with("{\"status\": 504, \"id\": \"\\u00221\\u0022\"}"), "{heard}");
    });
}

#[test]
fn requests_that_cannot_be_read_have_pages_without_their_words() {
    let config = CONFIG.replace("status: [404], body: '<i>", "status: [400], body: '<i>");
    hold_with_files(&config, &files(), |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
        let heard = talk.hears_about(client, "HTTP/1.1 400 Bad Request\r\n", &[]);
        assert!(heard.ends_with("<i>400  </i>"), "{heard}");
    });
}

#[test]
fn pages_need_no_access_log() {
    let config = format!("{CONFIG}access_log: {{ stage_times: false }}\n");
    hold_with_files(&config, &files(), |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: blog.example.com\r\nx-request-id: 1\r\n\r\n");
        let heard = talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &[]);
        assert!(heard.ends_with("<i>404 blog.example.com 1</i>"), "{heard}");
    });
}

#[test]
fn a_call_of_grpc_keeps_its_form() {
    hold_with_files(CONFIG, &files(), |talk| {
        let mut client = Speaker::client(talk);
        client.hears(talk);
        let call = "POST /none HTTP/1.1\r\nHost: shop.example.com\r\nContent-Type: application/grpc\r\nTE: trailers\r\n\r\n";
        client.asks(talk, call, true);
        let received = client.hears(talk);
        assert!(received.contains("grpc-status: 12") && !received.contains("<h1>"), "{received}");
        client.asks(talk, "GET /none HTTP/1.1\r\nHost: shop.example.com\r\n\r\n", true);
        let received = client.hears(talk);
        assert!(received.contains("<h1>Not Found</h1>"), "{received}");
    });
}

#[test]
fn without_pages_there_are_words() {
    let (config, _) = CONFIG.split_once("      error_pages:").unwrap();
    let config = format!("{config}routes: [{{ name: all, hosts: [y], rules: [] }}]\n");
    let config = config.replace("[shop, blog]", "all");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let heard = talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &["text/plain"]);
        assert!(heard.ends_with("Not Found: no_host\n"), "{heard}");
    });
}
