//! A loader with a filter to try things on, and a text with every key.

use std::collections::BTreeMap;

use config::{FilterError, FilterKinds, Loader, Problem};
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
    pub(crate) set: BTreeMap<String, String>,
    /// Fields that are added.
    pub(crate) append: BTreeMap<String, String>,
    /// Fields that are removed.
    pub(crate) remove: Vec<String>,
}

pub(crate) fn kinds() -> FilterKinds<Headers> {
    let mut kinds = FilterKinds::new();
    kinds.register("headers", build).unwrap();
    kinds
}

pub(crate) fn loader() -> Loader<Headers> {
    Loader::new(kinds()).unwrap()
}

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
admin: { address: "unix:/run/strait/admin.sock" }
workers: { count: 4, pin: true }
listeners:
  - name: edge
    address: "[::1]:8443"
    filters:
      - headers: { request: { set: { x-a: b }, append: { x-a: c }, remove: [x-b] } }
      - headers: { response: { set: { x-c: "1" } } }
    routes: [one, two]
    cluster: all
    http:
      request_line_max: 4KiB
      head_max: 16KiB
      fields_max: 50
      body_max: 10MiB
      trusted_hops: 2
      forwarded: both
      via: strait
      request_id: false
      grpc_web: true
    http2:
      streams_max: 200
      stream_window_max: 128KiB
      connection_window_max: 1MiB
      header_table_max: 8KiB
      frame_max: 32KiB
      ping: { interval: 60s, timeout: 5s }
    proxy_protocol: true
    timeouts:
      request_head: 5s
      detect: 1s
      idle: 30s
      request_body: 1500ms
      filter: 3s
      response_write: 20s
      tunnel_idle: 24h
    connections_max: 1000
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
        clusters: [{ cluster: all, weight: 2 }]
      - name: near
        match: { sources: ["10.0.0.0/8"], destinations: ["::1"], destination_ports: [80] }
        filters:
          - headers: { request: { remove: [x-b] } }
        routes: [one]
    protocol: tcp
    clusters: [{ cluster: all, weight: 3 }, { cluster: onward }]
routes:
  - name: one
    hosts: [a.example, "*.a.example"]
    rules:
      - match: { path: "*" }
        respond: { status: 204 }
      - match: { path: /old }
        redirect: { scheme: https, host: "b.example:8443", path: /new, status: 308, strip_query: true }
      - match: { prefix: /v1/ }
        redirect: { prefix: /v2/, status: 307 }
      - match: { prefix: /teapot }
        respond: { status: 418, body: "short\nand stout\n", headers: { content-type: text/html } }
      - match: { prefix: /stream/ }
        cluster: all
        timeout: none
        upgrades: []
      - match: { prefix: / }
        cluster: all
        timeout: 250ms
        upgrades: [websocket, tls/1.2]
  - name: two
    rules: []
clusters:
  - name: all
    endpoints: ["unix:/run/app.sock", { address: "[::1]:9000", weight: 65535 }, 10.0.0.1:80]
    connect_timeout: 1s
    timeouts: { pending: 5s, response_head: 1s, response_body: 2s, request_write: 3s, idle: 4s }
    connections_max: 10
    pending_max: 0
    proxy_protocol: v2
    keepalive: {}
    fast_open: true
  - name: onward
    original_destination: true
    mark: 4294967295
limits:
  connections_max: 5000
  discard_max: 0
  linger_timeout: 0s
  drain_timeout: 1m
access_log: { output: ./access.log, format: text, stage_times: false }
"#;
