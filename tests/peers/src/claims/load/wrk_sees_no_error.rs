//! wrk at full speed: no error, no odd status, and Strait counts what wrk counts.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    let nginx = Nginx::start(lab, super::SMALL)?;
    let strait = Strait::in_front_of(lab, nginx.address())?;
    let wrk = lab.run("wrk", &["-t1", "-c32", "-d4s", &strait.url("/")])?.ok()?;
    ensure!(!wrk.contains("Socket errors") && !wrk.contains("Non-2xx"), "{wrk}");
    let requests: f64 = wrk
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .and_then(|(requests, _)| requests.parse().ok())
        .context("wrk says no count")?;
    let counted = strait.metric("strait_exchanges_started_total")?;
    // wrk stops in the middle of at most one request a connection.
    ensure!((requests..=requests + 32.0).contains(&counted), "wrk {requests}, Strait {counted}");
    Ok(())
}
