//! Routing: each kind of matcher and action once, by clients and services of others, in either version of HTTP.

mod curl_meets_each_rule;
mod go_meets_each_rule;

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::ports;
use crate::strait::{Strait, local};

pub(super) const CLAIMS: &[Claim] = &[curl_meets_each_rule::CLAIM, go_meets_each_rule::CLAIM];

/// A rule for each kind of matcher and action, in the order of the guide's pages.
const CONFIG: &str = r#"
runtime: { canary: 100, off: 0 }
listeners: [{ name: edge, address: "LISTEN", routes: [other, shop] }]
routes:
  - { name: other, hosts: ["other.example"], rules: [{ match: { prefix: / }, respond: { status: 201, body: other } }] }
  - name: shop
    hosts: ["shop.example", "*.shop.example", "shop.*", "*"]
    headers: { request: { set: { x-seen: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %ROUTE_NAME%" } } }
    rules:
      - { match: { prefix: /, fraction: { percent: 100, runtime: off } }, respond: { status: 500 } }
      - { name: health, match: { path: /healthz }, respond: { status: 200, body: ok } }
      - name: canary
        match:
          prefix: /api/
          methods: [GET, HEAD]
          headers: { x-team: { prefix: a }, x-debug: { present: false }, x-age: { range: [18, 99] }, x-mode: { not: off } }
          query: { page: { regex: "[0-9]+" } }
          cookies: { beta: "yes" }
          sources: [127.0.0.0/8]
          fraction: { percent: 0, runtime: canary }
        clusters: [{ cluster: api, weight: 0 }, { cluster: next, weight: 1, headers: { response: { set: { x-canary: v2 } } } }]
        sticky: { header: x-user }
        rewrite: { prefix: /v2/, host: api.internal }
      - { name: regex, match: { regex: "/users/([0-9]+)/orders" }, rewrite: { regex: "^/users/([0-9]+)/orders$", with: '/orders?of=\1' }, cluster: api }
      - { name: template, match: { template: "/items/{id}/{rest=**}" }, rewrite: { template: "/v3/{rest}/of/{id}" }, cluster: api }
      - { name: segments, match: { segments: /tenant }, cluster_header: x-cluster }
      - { name: case, match: { path: /docs, case: insensitive }, cluster: next, rewrite: { host_endpoint: true } }
      - { name: moved, match: { prefix: /old/ }, redirect: { prefix: /new/, status: 308 } }
      - { name: contains, match: { prefix: /c/, headers: { x-list: { contains: "b" } } }, cluster: api }
      - name: rest
        match: { prefix: / }
        cluster: web
        mirror: [{ cluster: shadow }]
        subset: { unit: { header: x-unit } }
clusters:
  - { name: api, PROTOCOL, balance: least_request, endpoints: ["API"] }
  - { name: next, PROTOCOL, balance: { peak_ewma: { decay: 10s } }, endpoints: [{ address: "NEXT", host: next.internal }] }
  - { name: shadow, PROTOCOL, balance: random, endpoints: ["SHADOW"] }
  - name: web
    PROTOCOL
    balance: maglev
    subsets: { by: [[unit]], fallback: none }
    endpoints:
      - { address: "WEB_A", metadata: { unit: a } }
      - { address: "WEB_B", metadata: { unit: b }, priority: 1 }
"#;

/// What a client asks.
struct Ask {
    method: &'static str,
    target: &'static str,
    /// One of them may be `host`.
    fields: &'static [(&'static str, &'static str)],
    /// The body, with names of ports for their numbers; then the status, `location` and `x-canary`.
    answer: &'static str,
}

const CANARY: &[(&str, &str)] = &[
    ("x-team", "alpha"),
    ("x-age", "42"),
    ("cookie", "a=b; beta=yes"),
    ("x-mode", "on"),
    ("x-unit", "a"),
];

#[rustfmt::skip]
const ASKS: &[Ask] = &[
    ask("GET", "/healthz", &[], "ok|200||"),
    ask("GET", "/any", &[("host", "other.example")], "other|201||"),
    ask("GET", "/api/x?page=7", CANARY, "NEXT GET /v2/x?page=7 api.internal 127.0.0.1 canary|200||v2"),
    // Each of these is what one criterion of the rule before refuses.
    ask("DELETE", "/api/x?page=7", CANARY, "WEB_A DELETE /api/x?page=7 HOST 127.0.0.1 rest|200||"),
    ask("GET", "/api/x?page=none", CANARY, "WEB_A GET /api/x?page=none HOST 127.0.0.1 rest|200||"),
    ask("GET", "/api/x?page=7", &[("x-team", "beta"), ("x-age", "42"), ("cookie", "beta=yes"), ("x-mode", "on"), ("x-unit", "a")],
        "WEB_A GET /api/x?page=7 HOST 127.0.0.1 rest|200||"),
    ask("GET", "/api/x?page=7", &[("x-team", "alpha"), ("x-age", "17"), ("cookie", "beta=yes"), ("x-mode", "on"), ("x-unit", "a")],
        "WEB_A GET /api/x?page=7 HOST 127.0.0.1 rest|200||"),
    ask("GET", "/api/x?page=7", &[("x-team", "alpha"), ("x-age", "42"), ("cookie", "beta=no"), ("x-mode", "on"), ("x-unit", "a")],
        "WEB_A GET /api/x?page=7 HOST 127.0.0.1 rest|200||"),
    ask("GET", "/api/x?page=7", &[("x-team", "alpha"), ("x-age", "42"), ("cookie", "beta=yes"), ("x-mode", "off"), ("x-unit", "a")],
        "WEB_A GET /api/x?page=7 HOST 127.0.0.1 rest|200||"),
    ask("GET", "/users/42/orders", &[], "API GET /orders?of=42 HOST 127.0.0.1 regex|200||"),
    ask("GET", "/items/7/a/b?c=d", &[], "API GET /v3/a/b/of/7?c=d HOST 127.0.0.1 template|200||"),
    ask("GET", "/tenant/x", &[("x-cluster", "next")], "NEXT GET /tenant/x HOST 127.0.0.1 segments|200||"),
    ask("GET", "/tenant/x", &[("x-cluster", "none")], "|503||"),
    ask("GET", "/tenants", &[("x-unit", "b")], "WEB_B GET /tenants HOST 127.0.0.1 rest|200||"),
    ask("GET", "/DocS", &[], "NEXT GET /DocS next.internal 127.0.0.1 case|200||"),
    ask("GET", "/old/a?b=c", &[("host", "www.shop.example")], "|308|/new/a?b=c|"),
    ask("GET", "/c/", &[("x-list", "abc")], "API GET /c/ HOST 127.0.0.1 contains|200||"),
    ask("GET", "/", &[("x-unit", "a"), ("host", "shop.any")], "WEB_A GET / shop.any 127.0.0.1 rest|200||"),
    ask("GET", "/", &[("x-unit", "none")], "|503||"),
];

const fn ask(
    method: &'static str,
    target: &'static str,
    fields: &'static [(&'static str, &'static str)],
    answer: &'static str,
) -> Ask {
    Ask { method, target, fields, answer }
}

/// Services, and Strait in front of them.
struct Routed {
    strait: Strait,
    _nginx: Nginx,
    ports: Vec<(&'static str, SocketAddr)>,
    lab_log: std::path::PathBuf,
}

impl Routed {
    /// nginx has a port for each endpoint, speaks this protocol, and says what it was asked and where.
    fn start(lab: &Lab, protocol: &str) -> Result<Self> {
        let mut ports = Vec::new();
        for name in ["WEB_A", "WEB_B", "SHADOW", "NEXT", "API"] {
            ports.push((name, local(ports::free()?)));
        }
        let flag = if protocol == "http2" { " http2" } else { "" };
        let listens: Vec<_> = ports.iter().map(|(_, at)| format!("listen {at}{flag};")).collect();
        let http = format!(
            "  server {{
    listen LISTEN;
    {}
    location / {{ return 200 \"$server_port $request_method $request_uri $host $http_x_seen\"; }}
  }}",
            listens.join(" ")
        );
        let nginx = Nginx::start(lab, &http)?;
        let mut config = CONFIG.replace("PROTOCOL", &format!("protocol: {protocol}"));
        for (name, address) in &ports {
            config = config.replace(&format!("\"{name}\""), &format!("\"{address}\""));
        }
        let strait = Strait::configured(lab, &config)?;
        let lab_log = lab.folder().join("nginx.log");
        Ok(Self { strait, _nginx: nginx, ports, lab_log })
    }

    /// Whether an answer, as `BODY|STATUS|LOCATION|X-CANARY`, is the one that was asked for.
    fn check(&self, ask: &Ask, heard: &str) -> Result<()> {
        let mut expected = ask.answer.replace("HOST", &self.strait.address().ip().to_string());
        for (name, address) in &self.ports {
            expected = expected.replace(name, &address.port().to_string());
        }
        // What a reply of Strait's own says is not compared.
        let heard = match expected.starts_with('|') {
            true => heard.find('|').and_then(|at| heard.get(at..)).unwrap_or_default(),
            false => heard,
        };
        ensure!(heard == expected, "{} {}: {heard}, not {expected}", ask.method, ask.target);
        Ok(())
    }

    /// How many copies of requests arrived, which is how many met the last rule.
    fn check_copies(&self, rounds: usize) -> Result<()> {
        // One of a request that no endpoint can take is sent all the same.
        let met = |ask: &&Ask| ask.answer.contains(" rest|") || ask.target == "/";
        let met = ASKS.iter().filter(met).count();
        let wanted = f64::from(u32::try_from(met * rounds)?);
        crate::wait::until("the copies to arrive", crate::wait::SOON, || {
            self.strait.metric("strait_upstream_mirrored_total").is_ok_and(|sent| sent == wanted)
        })?;
        let log = std::fs::read_to_string(&self.lab_log)?;
        let seen = log.lines().count();
        let forwarded =
            ASKS.iter().filter(|ask| ask.answer.contains("|200|") && ask.target != "/healthz");
        let all = (forwarded.count() + met) * rounds;
        ensure!(seen == all, "the services saw {seen} requests, not {all}");
        Ok(())
    }
}
