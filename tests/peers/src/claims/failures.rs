//! Services that fail, as real servers and real networks do.

mod gos_grpc_library_reports_its_health;
mod servers_that_die_or_stand_still_cost_nobody_a_request;
mod toxiproxy_slows_and_resets_and_nobody_notices;

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIMS: &[Claim] = &[
    gos_grpc_library_reports_its_health::CLAIM,
    servers_that_die_or_stand_still_cost_nobody_a_request::CLAIM,
    toxiproxy_slows_and_resets_and_nobody_notices::CLAIM,
];

/// Forwards everything to these endpoints, with checks, and as many retries as may be.
fn forwarding_to(endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<String> = endpoints.iter().map(|address| format!("\"{address}\"")).collect();
    format!(
        "listeners: [{{ name: edge, address: \"LISTEN\", routes: all }}]
routes:
  - name: all
    rules:
      - match: {{ prefix: / }}
        cluster: api
        retry:
          on: [gateway_error, reset, connect_failure]
          attempts_max: 5
          try_timeout: 500ms
          elsewhere: previous_endpoints
          backoff: {{ base: 5ms, max: 50ms }}
clusters:
  - name: api
    endpoints: [{}]
    connect_timeout: 500ms
    retry_budget: {{ share: 100%, at_least: 100 }}
    checks: [{{ http: {{ path: / }}, interval: 200ms, interval_quiet: 200ms, timeout: 500ms, healthy: 1, unhealthy: 1 }}]
",
        endpoints.join(", ")
    )
}

/// What the checks of the cluster at `place` say of an endpoint, and why it is unhealthy if it is.
fn checked(strait: &Strait, place: usize, endpoint: SocketAddr) -> Result<(String, String)> {
    let clusters: serde_json::Value = serde_json::from_str(&strait.admin("/clusters")?.text())?;
    let endpoints = clusters.pointer(&format!("/clusters/{place}/endpoints"));
    let endpoints = endpoints.and_then(serde_json::Value::as_array).into_iter().flatten();
    let text = |value: &serde_json::Value, path| {
        value.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let mut found = endpoints.filter(|one| text(one, "/address") == endpoint.to_string());
    let found = found.next().unwrap_or_default();
    Ok((text(found, "/health/state"), text(found, "/health/reason")))
}

/// Waits until the first cluster's endpoint is healthy.
fn becomes_healthy(strait: &Strait, endpoint: SocketAddr) -> Result<()> {
    wait::until("a healthy endpoint", wait::SOON, || {
        checked(strait, 0, endpoint).is_ok_and(|(state, _)| state == "healthy")
    })
}

/// Waits until it is unhealthy, for a reason with these words.
fn becomes_unhealthy(strait: &Strait, endpoint: SocketAddr, reason: &str) -> Result<()> {
    wait::until("an unhealthy endpoint", wait::SOON, || {
        checked(strait, 0, endpoint).is_ok_and(|(state, _)| state == "unhealthy")
    })?;
    let (_, said) = checked(strait, 0, endpoint)?;
    ensure!(said.contains(reason), "{said:?} does not say {reason:?}");
    Ok(())
}

/// Whether wrk met no error.
fn expect_no_error_of_wrk(printed: &str) -> Result<()> {
    ensure!(!printed.contains("Socket errors") && !printed.contains("Non-2xx"), "{printed}");
    Ok(())
}
