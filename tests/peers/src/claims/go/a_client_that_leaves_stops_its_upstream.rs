//! When a client of HTTP/2 cancels a stream, the upstream learns of it, and both connections serve
//! on.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: super::NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    let client = Peer::GoClient.program().context("h2client")?;
    for protocol in ["http1", "http2"] {
        let server = GoHttp2::start(lab)?;
        let cluster = format!("protocol: {protocol}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, server.address(), options)?;
        lab.run(&client.to_string_lossy(), &["2", &strait.url(""), "cancel"])?.ok()?;
        wait::until("the upstream to learn of each", wait::SOON, || {
            server.output().matches("the client is gone").count() == 5
        })?;
        let accepted = strait.metric("strait_downstream_connections_opened_total")?;
        ensure!(accepted == 1.0, "{accepted} downstream connections");
        let connects = strait.metric("strait_upstream_connections_opened_total")?;
        ensure!(protocol == "http1" || connects == 1.0, "{connects} upstream connections");
    }
    Ok(())
}
