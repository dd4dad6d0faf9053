//! A loader with a filter to try things on and files beside its texts, and a text with every key.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use config::outside::Memory;
use config::snapshot::Snapshot;
use config::{Errors, FilterError, FilterKinds, Prepared, Problem};
use schemars::JsonSchema;
use serde::Deserialize;

/// A filter like the real one of this name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Headers {
    /// What is done to requests.
    pub(crate) request: Edits,
    /// What is done to responses.
    pub(crate) response: Edits,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Edits {
    /// Fields that are set.
    #[schemars(extend("x-literal" = true))]
    pub(crate) set: BTreeMap<String, String>,
    /// Fields that are added.
    #[schemars(extend("x-literal" = true))]
    pub(crate) append: BTreeMap<String, String>,
    /// Fields that are removed.
    pub(crate) remove: Vec<String>,
}

pub(crate) fn kinds() -> FilterKinds<Headers> {
    let mut kinds = FilterKinds::new();
    kinds.register("headers", build).unwrap();
    kinds.register_protocol(&wire::rpc::bolt::Bolt);
    kinds
}

/// A loader, and what is outside of its texts.
pub(crate) struct Loader {
    loader: config::Loader<Headers>,
    pub(crate) outside: Memory,
}

pub(crate) fn loader() -> Loader {
    Loader { loader: config::Loader::new(kinds()).unwrap(), outside: outside() }
}

impl Loader {
    pub(crate) fn load(
        &mut self,
        file: &str,
        text: &str,
    ) -> Result<Arc<Snapshot<Headers>>, Errors> {
        self.loader.load_with(file, text, &self.outside)
    }

    pub(crate) fn prepare(&self, file: &str, text: &str) -> Result<Prepared<Headers>, Errors> {
        self.loader.prepare(file, text, &self.outside)
    }
}

impl Deref for Loader {
    type Target = config::Loader<Headers>;

    fn deref(&self) -> &Self::Target {
        &self.loader
    }
}

impl DerefMut for Loader {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.loader
    }
}

/// In 2033, long before the certificates of the tests expire.
pub(crate) const NOW: u64 = 2_000_000_000;

/// The certificates of the tests and a file of endpoints, under the names that documents use.
pub(crate) fn outside() -> Memory {
    let mut outside = Memory::new(NOW);
    for (name, content) in CERTIFICATES {
        outside.insert(name, content);
    }
    outside.insert("web.endpoints.yaml", "- 10.0.0.1:8080\n");
    outside.insert("conf.d/none.yaml", "clusters: []\n");
    outside.insert("404.html", "<p>{{host}}: {{reason}}\n");
    outside.insert("5xx.json", "{\"status\": {{status}}, \"cause\": \"{{cause}}\"}\n");
    outside.trust(CERTIFICATES[0].1);
    outside
}

macro_rules! certificates {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../certificates/", $name)))),*]
    };
}

pub(crate) const CERTIFICATES: [(&str, &str); 13] = certificates! {
    "ca.pem" "ca.crl" "v1.crl"
    "site.pem" "site.key" "site.ocsp"
    "site-rsa.pem" "site-rsa.key"
    "tenants.pem" "tenants.key"
    "tickets.key"
    "client.pem" "client.key"
};

/// Refuses field names with spaces, which the type lets pass.
fn build(headers: Headers) -> Result<Headers, Vec<FilterError>> {
    let mut errors = Vec::new();
    for (side, edits) in [("request", &headers.request), ("response", &headers.response)] {
        let problem = || Problem::new("a header name has no spaces", "remove them");
        for name in edits.set.keys().filter(|name| name.contains(' ')) {
            errors.push(FilterError::new(problem()).key(side).key("set").key(name));
        }
        for (index, _) in edits.remove.iter().enumerate().filter(|(_, name)| name.contains(' ')) {
            errors.push(FilterError::new(problem()).key(side).key("remove").index(index));
        }
    }
    if errors.is_empty() { Ok(headers) } else { Err(errors) }
}

/// Every key of the file, none with its default.
pub(crate) const EVERY_KEY: &str = r#"
include: [conf.d/none.yaml, "conf.d/more-*.yaml"]
admin: { address: "unix:/run/strait/admin.sock", mode: 0600, hosts: [admin.example.com], metrics: "127.0.0.1:9902" }
workers: { count: 4, pin: true }
runtime: { canary: 5 }
listeners:
  - name: edge
    address: ["[::1]:8443", "127.0.0.1:8443"]
    filters:
      - headers: { request: { set: { x-a: b }, append: { x-a: c }, remove: [x-b] } }
      - headers: { response: { set: { x-c: "1" } } }
    tls:
      certificates: [{ chain: site.pem, key: site.key, ocsp: site.ocsp, signing: batched }, { chain: site-rsa.pem, key: site-rsa.key }]
      mode: permissive
      min_version: "1.3"
      max_version: "1.3"
      cipher_suites: [TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256]
      groups: [x25519, secp256r1]
      alpn: [http/1.1]
      client: { ca: ca.pem, crl: ca.crl, names: ["spiffe://example.org/*"], mode: optional, connection_age_max: 4h }
      session_tickets: false
    routes: [one, two]
    cluster: all
    http:
      error_pages: [{ status: [503, 500-502], cause: [connect_failed], body: "{{status}} {{cause}}", content_type: text/x-a }]
      request_line_max: 4KiB
      head_max: 16KiB
      fields_max: 50
      merge_slashes: false
      body_max: 10MiB
      request_buffer: 32KiB
      request_rate_min: 100B
      response_rate_min: 1KiB
      trusted_hops: 2
      forwarded: both
      forwarded_allowed: [x-forwarded-prefix]
      headers_with_underscores: refuse
      forward_client_cert: append_forward
      client_cert_details: [cert, chain, uri]
      via: strait
      request_id: false
      grpc_web: true
      trust_timeouts: true
      trust_retries: true
    rpc: { requests_max: 100, head_max: 32KiB, body_max: 1MiB }
    http2:
      streams_max: 200
      stream_window_max: 128KiB
      connection_window_max: 25MiB
      header_table_max: 8KiB
      frame_max: 32KiB
      work_max: 20000
      work_per_second: 1000
      early_reset: 1s
      ping: { interval: 60s, timeout: 5s }
    proxy_protocol: { from: [10.0.0.0/8, "2001:db8::1"] }
    timeouts:
      request_head: 5s
      detect: 1s
      tls_handshake: 4s
      idle: 30s
      request_body: 1500ms
      filter: 3s
      response_write: 20s
      tunnel_idle: 24h
      connection_age: 8h
      connection_age_grace: 2m
    connections_max: 1000
    connections_per_client_max: 100
    accept_rate: 5000
    requests_max: 10000
    exchanges_per_client_max: 200
    buffered_max: 256MiB
    backlog: 128
    fast_open: 256
    keepalive: { idle: 30s, interval: 5s, probes: 5 }
  - name: raw
    address: 127.0.0.1:6379
    original_destination: redirect
    chains:
      - name: named
        match: { server_names: [a.example, "*.b.example"], alpn: [h2], protocols: [tls, http2] }
        protocol: tcp
        tls: { certificates: [{ chain: tenants.pem, key: tenants.key }], alpn: [imap], session_ticket_files: [tickets.key] }
        clusters: [{ cluster: all, weight: 2 }]
      - name: near
        match: { direct_sources: ["10.1.0.0/16"], source_type: external, sources: ["10.0.0.0/8"], source_ports: [1023], destinations: ["::1"], destination_ports: [80] }
        tls: { certificates: [{ chain: site.pem, key: site.key }], early_data: true }
        filters:
          - headers: { request: { remove: [x-b] } }
        routes: [one]
    protocol: tcp
    clusters: [{ cluster: all, weight: 3 }, { cluster: onward }, { cluster: apart }]
  - name: local
    address: unix:/run/strait/edge.sock
    mode: 0666
    routes: two
routes:
  - name: one
    hosts: [a.example, "*.a.example:81", "a.*"]
    ports: true
    error_pages: [{ file: 404.html }]
    headers: { response: { set: { x-edge: "%START_TIME(%s)%" }, append: { x-by: strait }, remove: [x-powered-by] } }
    rules:
      - match: { path: "*" }
        respond: { status: 204 }
      - match: { path: /who, client: [A.example, 10.0.0.1, "spiffe://example.org/a", "spiffe://example.org/b/*"] }
        respond: { status: 200 }
      - match: { prefix: /, client: ["*"] }
        cluster: all
      - match: { path: /old }
        redirect: { scheme: https, host: "b.example:8443", path: /new, status: 308, strip_query: true }
      - match: { prefix: /v1/ }
        redirect: { prefix: /v2/, status: 307, port: 8443 }
      - match: { prefix: /users/ }
        redirect: { regex: "^/users/([0-9]+)$", with: '/people?of=\1' }
      - match: { template: "/things/{id}" }
        redirect: { template: "/items/{id}" }
      - match: { prefix: /teapot }
        respond: { status: 418, body: "short\nand stout\n", headers: { content-type: text/html } }
      - match: { prefix: /stream/ }
        cluster: all
        timeout: none
        upgrades: []
      - match:
          prefix: /matched/
          methods: [GET, PURGE]
          headers:
            x-a: b
            x-c: { suffix: d, case: insensitive, missing_as_empty: true }
            x-d: { contains: e }
            x-i: { exact: J, case: insensitive }
            x-e: { range: [-1, 9] }
            x-f: { present: false }
            x-g: { not: h }
            x-h: { not: { prefix: i } }
          query: { page: { regex: "[0-9]+" } }
          cookies: { beta: { prefix: y } }
          sources: { not: [10.0.0.0/8] }
          grpc: false
          fraction: { percent: 12.5, runtime: canary }
        cluster: all
      - name: tenants
        match: { segments: /Tenant, case: insensitive }
        cluster: all
      - match: { regex: "/users/([0-9]+)/orders" }
        cluster: all
      - match: { template: "/items/{id}/{rest=**}" }
        cluster: all
      - match: { prefix: /shared/ }
        clusters: [{ cluster: all, weight: 90 }, { cluster: apart, weight: 0, rewrite: { host: "apart.example:81" }, headers: { response: { set: { x-canary: v2 } } } }]
        headers: { request: { set_if_present: { x-user: "%REQ(x-name)%" }, append_if_absent: { x-as: "%PROTOCOL%" } } }
        sticky: { header: x-user }
        rewrite: { prefix: /v2/, host: api.internal, original_path: true }
      - match: { prefix: /crumbs/ }
        clusters: [{ cluster: all }]
        sticky: { cookie: user }
        rewrite: { host_header: x-host }
      - match: { prefix: /endpoint/ }
        cluster: all
        rewrite: { host_endpoint: true }
      - match: { prefix: /named/ }
        cluster_header: x-cluster
        among: [all, apart]
        subset: { version: v2, unit: { header: x-unit } }
        hash: [{ cookie: { name: at, ttl: 1h, path: / } }, { header: x-user, terminal: true }, { query: user }, { constant: named }, client_ip]
        rewrite: { regex: "^/named/([0-9]+)$", with: '/n?of=\\1' }
      - match: { template: "/boxes/{id}/{rest=**}" }
        cluster: all
        rewrite: { template: "/v3/{rest}/of/{id}" }
      - match: { path: /not, methods: { not: [POST] }, sources: ["::1"] }
        cluster: all
      - match: { prefix: / }
        cluster: all
        timeout: 250ms
        retry: { on: [5xx, gateway_error, reset, connect_failure, refused_stream, retriable_4xx, retriable_status, retriable_headers, cancelled, deadline_exceeded, internal, resource_exhausted, unavailable], status: [429, 500-504], headers: [x-busy], reset_header: retry-after, reset_max: 1m, elsewhere: previous_endpoints, attempt_count: true, attempts_max: 5, try_timeout: 100ms, backoff: { base: 10ms, max: 1s }, methods: any, body_max: 1MiB }
        hedge: { after: try_timeout }
        priority: high
        mirror: [{ cluster: fast, percent: 1.5, runtime: canary, host_suffix: -copy }]
        upgrades: [websocket, tls/1.2]
  - name: two
    rules: []
clusters:
  - name: all
    endpoints: ["unix:/run/app.sock", { address: "[::1]:9000", weight: 65535, priority: 1, locality: eu/a/1, health: degraded, host: one.internal, metadata: { version: v2, unit: t } }, 10.0.0.1:80]
    subsets: { by: [[version], [version, unit]], fallback: default, default: { version: v2 } }
    tls:
      server_name: API.example.com
      names: [api.example.com, "spiffe://example.org/ns/shop/sa/api", 10.0.0.1]
      ca: ca.pem
      crl: ca.crl
      verify: on
      certificate: { chain: client.pem, key: client.key }
      min_version: "1.2"
      max_version: "1.2"
      cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
      groups: [secp384r1]
    connect_timeout: 1s
    timeouts: { pending: 5s, response_head: 1s, response_body: 2s, request_write: 3s, stall: none, idle: 4s, connection_age: 1h }
    connections_max: 10
    connections_per_endpoint_max: 5
    requests_per_connection_max: 10000
    adaptive_concurrency:
      concurrency_max: 500
      percentile: 90%
      update_interval: 200ms
      min_rtt: { interval: 30s, jitter: 10%, requests: 20, concurrency: 5, buffer: 50% }
    pending_max: 0
    retry_budget: { share: 10%, at_least: 5 }
    high_priority: { connections_max: 5, pending_max: 6, requests_max: 7, retry_budget: { share: 30%, at_least: 2 } }
    balance: { least_request: { choices: 3 } }
    slow_start: { window: 30s, aggression: 1.5, weight_min: 20% }
    panic: 40%
    localities: { zone_aware: { percent: 90%, size_min: 3, share: 25% } }
    checks:
      - http:
          path: /healthz?full=1
          method: OPTIONS
          host: app.internal
          headers: { x-probe: edge }
          expect: [200-299, 404]
          body: ready
        interval: 5s
        interval_unhealthy: 1s
        interval_quiet: 60s
        timeout: 1s
        healthy: 2
        unhealthy: 3
        port: 8081
        reuse: false
      - tcp: { send: "50494e47", expect: ["504f4e47"] }
    outlier:
      errors_5xx: 4
      errors_gateway: 3
      errors_local: 6
      interval: 5s
      ejection: { base: 20s, max: 2m, share_max: 25% }
      success_rate: { stdev: 2.5, endpoints: 3, requests: 50 }
      failure_percentage: { threshold: 70%, endpoints: 4, requests: 20 }
    response_parsing: strict
    interim_responses_max: 8
    proxy_protocol: v2
    keepalive: {}
    fast_open: true
  - name: fast
    preconnect: 1.5
    endpoints: [10.0.0.9:80, { address: "10.0.0.10:80", metadata: { version: v2 } }]
    protocol: http2
    transports:
      - name: mesh
        match: { version: v2 }
        tls: { server_name: mesh.example.com, ca: ca.pem, certificate: { chain: client.pem, key: client.key } }
      - { name: plain }
    checks: [{ grpc: { service: shop.Cart, host: cart.internal } }]
    initial_check_timeout: 5s
    balance: { peak_ewma: { decay: 5s } }
    localities: { weights: { eu/a: 2 } }
  - name: onward
    original_destination: true
    mark: 4294967295
  - name: apart
    endpoints: { file: web.endpoints.yaml }
    balance: { maglev: { table: 251, load_max: 125 } }
  - name: named
    endpoints: { dns: api.internal:8080, mode: logical, family: prefer_v4, ttl_min: 2s, ttl_max: 1m }
    balance: { ring_hash: { size_min: 100, size_max: 1000, load_max: 150 } }
resolvers: { servers: [10.0.0.2], timeout: 1s, initial_fetch_timeout: 5s, on_demand_timeout: 3s }
state: { folder: /var/lib/strait, keys: true }
rebalance: off
locality: eu/a
handover: { socket: /run/strait/handover/strait.sock, timeout: 20s, probation: 0s, users: [33], fd_store: listeners }
limits:
  connections_max: 5000
  handshakes_max: 64
  discard_max: 0
  mirrored_max: 1MiB
  memory_max: 512MiB
  linger_timeout: 0s
  linger_max: 10m
  drain_delay: 5s
  drain_timeout: 1m
metrics: { endpoints_max: 20 }
access_log:
  output: ./access.log
  format: text
  fields: [status, request_headers.x-tenant, response_headers.server, request_headers.accept]
  only: [{ status: [503, 4xx, 200-299, none], prefixes: [/api/], slower_than: 1s, one_in: 100 }]
  except: [{ prefixes: [/healthz] }]
  stage_times: false
"#;
