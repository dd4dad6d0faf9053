//! Which rule a request meets, by what it is and who sends it.

use std::time::Duration;

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

/// Where requests go, and as what.
const FORWARDED: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: [all]
    http: { forwarded: off, request_id: false, merge_slashes: false }
routes:
  - name: all
    rules:
      - { match: { prefix: /api/ }, cluster: one, rewrite: { prefix: /v2/, host: 'api.internal:81' } }
      - { match: { segments: /tenant }, cluster: one, rewrite: { prefix: / } }
      - { match: { path: /exact }, cluster: one, rewrite: { prefix: /whole } }
      - match: { regex: '/users/([0-9]+)/orders' }
        cluster: one
        rewrite: { regex: '^/users/([0-9]+)/orders$', with: '/orders?of=\\1' }
      - { match: { prefix: /swap/ }, cluster: one, rewrite: { regex: 'a', with: 'b\\0' } }
      - { match: { prefix: /up/ }, cluster: one, rewrite: { regex: '^/up/', with: '/x/../' } }
      - match: { template: '/items/{id}/{rest=**}' }
        cluster: one
        rewrite: { template: '/v3/{rest}/of/{id}', host_header: x-host }
      - match: { prefix: /half/ }
        clusters: [{ cluster: one, rewrite: { host: one.internal } }, { cluster: two, rewrite: { host: two.internal } }]
        sticky: { header: x-user }
        rewrite: { host: both.internal }
      - match: { prefix: /named/ }
        cluster_header: x-cluster
        among: [two]
clusters:
  - { name: one, endpoints: ['127.0.0.1:9000'] }
  - { name: two, endpoints: ['127.0.0.1:9001'] }
";

/// The start line and the host under which a request goes on.
fn goes_on_as(talk: &mut Talk<'_>, request: &str) -> (String, String) {
    let client = talk.client();
    let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
    let fields: String = fields.lines().map(|field| format!("{field}\r\n")).collect();
    talk.says(client, format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"));
    let upstream = talk.upstream();
    let heard = talk.heard(upstream).to_ascii_lowercase();
    let host = heard.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let result =
        (heard.lines().next().unwrap_or_default().replace(" http/1.1", ""), host.to_owned());
    talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    talk.heard(client);
    result
}

#[test]
fn a_request_goes_on_as_its_rule_rewrites_it() {
    hold(FORWARDED, |talk| {
        for (request, line, host) in [
            ("GET /api/x?y=1", "get /v2/x?y=1", "api.internal:81"),
            ("GET /api/", "get /v2/", "api.internal:81"),
            // What is behind the prefix cannot lead out of the new one, nor to another host.
            ("GET /api/%2e%2e/api//evil.example/x", "get /v2//evil.example/x", "api.internal:81"),
            ("GET /tenant/x", "get /x", "a"),
            ("GET /tenant//evil.example/x", "get /evil.example/x", "a"),
            ("GET /tenant", "get /", "a"),
            ("GET /exact?q", "get /whole?q", "a"),
            ("GET /users/7/orders", "get /orders?of=7", "a"),
            ("GET /users/7/orders?x=y", "get /orders?of=7&x=y", "a"),
            ("GET /users/%37/orders", "get /orders?of=7", "a"),
            ("GET /swap/xax/a", "get /swbap/xbax/ba", "a"),
            ("GET /up/y", "get /y", "a"),
            ("GET /items/7/a/b?q", "get /v3/a/b/of/7?q", "a"),
            ("GET /items/7/a\nx-host: b.internal:82", "get /v3/a/of/7", "b.internal:82"),
            ("GET /items/7/a\nx-host: b/c", "get /v3/a/of/7", "a"),
            ("GET /items/7/a\nx-host:", "get /v3/a/of/7", "a"),
            ("GET /items/%2e%2e%2f/a", "get /v3/a/of/..%2f", "a"),
        ] {
            assert_eq!(goes_on_as(talk, request), (line.to_owned(), host.to_owned()), "{request}");
        }
    });
}

#[test]
fn clients_are_shared_among_clusters_and_stay_where_they_are() {
    hold(FORWARDED, |talk| {
        let mut hosts = std::collections::BTreeSet::new();
        for user in 0..12 {
            let request = format!("GET /half/x\nx-user: {user}");
            let (_, host) = goes_on_as(talk, &request);
            assert_eq!(goes_on_as(talk, &request).1, host, "{user}");
            hosts.insert(host);
        }
        assert_eq!(hosts, ["one.internal", "two.internal"].map(str::to_owned).into());
    });
}

#[test]
fn a_header_names_no_cluster_but_those_that_the_rule_lists() {
    hold(FORWARDED, |talk| {
        assert_eq!(goes_on_as(talk, "GET /named/x\nx-cluster: two").0, "get /named/x");
        for fields in [
            "",
            "x-cluster: one",
            "x-cluster: TWO",
            "x-cluster: two\nx-cluster: two",
            "x-cluster: t\two",
        ] {
            let body = asks(talk, &format!("GET /named/x\n{fields}"));
            assert_eq!(body, "Service Unavailable: no_cluster\n", "{fields}");
        }
    });
}

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

/// One rule with a timeout and a rewrite, behind a listener with these options.
fn timed(http: &str) -> String {
    format!(
        "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: all
    http: {{ forwarded: off, request_id: false{http} }}
routes:
  - name: all
    rules:
      - match: {{ prefix: / }}
        cluster: one
        timeout: 15s
        rewrite: {{ prefix: /v2/, original_path: true }}
clusters: [{{ name: one, endpoints: ['127.0.0.1:9000'] }}]
"
    )
}

#[test]
fn a_request_says_how_long_it_may_take_where_its_listener_trusts_it() {
    for (asked, seen, waits) in [
        ("250", "x-envoy-expected-rq-timeout-ms: 250\r\n", Some(250)),
        ("20000", "x-envoy-expected-rq-timeout-ms: 20000\r\n", Some(20_000)),
        ("0", "", None),
        ("1s", "", Some(15_000)),
    ] {
        hold(&timed(", trust_timeouts: true"), |talk| {
            let client = talk.client();
            talk.says(
                client,
                format!(
                    "GET /a HTTP/1.1\r\nHost: x\r\nX-Envoy-Upstream-Rq-Timeout-Ms: {asked}\r\n\
                     x-envoy-upstream-rq-per-try-timeout-ms: 1\r\n\r\n"
                ),
            );
            let upstream = talk.upstream();
            let heard = talk.heard(upstream);
            assert_eq!(
                heard,
                format!("GET /v2/a HTTP/1.1\r\nHost: x\r\nx-envoy-original-path: /a\r\n{seen}\r\n")
            );
            let Some(waits) = waits else {
                talk.passes(Duration::from_secs(29));
                talk.says(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                return talk.hears(client, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            };
            talk.passes(Duration::from_millis(waits - 20));
            assert_eq!(talk.heard(client), "");
            talk.passes(Duration::from_millis(120));
            assert!(talk.heard(client).starts_with("HTTP/1.1 504 "));
        });
    }
}

#[test]
fn what_others_say_of_timeouts_and_former_paths_goes_no_further() {
    hold(&timed(", headers_with_underscores: pass"), |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET /a?b=c HTTP/1.1\r\nHost: x\r\nx-envoy-upstream-rq-timeout-ms: 1\r\nX-A: b\r\n\
             x-envoy-original-path: /admin\r\nX_Envoy_Expected-rq-timeout-ms: 2\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.hears(
            upstream,
            "GET /v2/a?b=c HTTP/1.1\r\nHost: x\r\nX-A: b\r\nx-envoy-original-path: /a?b=c\r\n\r\n",
        );
        talk.passes(Duration::from_secs(14));
        assert_eq!(talk.heard(client), "");
        talk.passes(Duration::from_secs(2));
        assert!(talk.heard(client).starts_with("HTTP/1.1 504 "));
    });
}

#[test]
fn a_port_counts_for_tables_that_say_so() {
    let config = "
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: [exact, ported, all], http: { forwarded: off } }]
routes:
  - { name: exact, hosts: [a.example], rules: [{ match: { prefix: / }, respond: { body: any port } }] }
  - { name: ported, ports: true, hosts: ['a.example:8443', '*.a.example:8443', b.example], rules: [{ match: { prefix: / }, respond: { body: this port } }] }
  - { name: all, hosts: ['*'], rules: [{ match: { prefix: / }, respond: { body: others } }] }
";
    hold(config, |talk| {
        for (host, body) in [
            ("A.Example:8443", "this port"),
            ("a.example:443", "any port"),
            ("a.example", "any port"),
            ("x.a.example:8443", "this port"),
            ("x.a.example", "others"),
            ("b.example", "this port"),
            ("b.example:80", "others"),
        ] {
            let client = talk.client();
            talk.says(client, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(talk.heard(client).ends_with(body), "{host}");
        }
    });
}
