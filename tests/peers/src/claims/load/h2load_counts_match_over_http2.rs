//! h2load sends an exact number of requests over HTTP/2, fifty at a time on each connection; each
//! succeeds, each is counted once, and one upstream connection of HTTP/2 carries as many as that
//! allows.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2load, Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    for (protocol, http, connects_max) in [("http1", super::SMALL, 500.0), ("http2", HTTP2, 8.0)] {
        let nginx = Nginx::start(lab, http)?;
        let cluster = format!("protocol: {protocol}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, nginx.address(), options)?;
        let url = strait.url("/");
        let options = ["-n", "30000", "-c", "10", "-m", "50", "-t", "1", &url];
        let printed = lab.run("h2load", &options)?.ok()?;
        ensure!(printed.contains("30000 succeeded, 0 failed, 0 errored, 0 timeout"), "{printed}");
        ensure!(printed.contains("30000 2xx"), "{printed}");
        wait::until("all to be counted", wait::SOON, || {
            strait.metric("strait_exchanges_finished_total").is_ok_and(|count| count == 30_000.0)
        })?;
        let faults = strait.metric("strait_exchange_causes_total")?;
        ensure!(faults == 0.0, "{faults} exchanges ended with a cause");
        let connects = strait.metric("strait_upstream_connections_opened_total")?;
        ensure!(connects <= connects_max, "{connects} upstream connections of {protocol}");
    }
    Ok(())
}

const HTTP2: &str = "  server { listen LISTEN http2; location / { return 200 ok; } }";
