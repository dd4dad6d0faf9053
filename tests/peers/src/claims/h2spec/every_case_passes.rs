//! All cases of h2spec pass, whatever the upstream speaks; afterwards no connection is left of
//! them.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2spec, Peer::GoServer], holds };

fn holds(lab: &Lab) -> Result<()> {
    for protocol in ["http1", "http2"] {
        let server = GoHttp2::start(lab)?;
        let cluster = format!("protocol: {protocol}");
        let options =
            Options { listener: "protocol: http2", cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, server.address(), options)?;
        let printed = super::run(lab, strait.address())?;
        let passed = printed.contains("146 tests, 146 passed, 0 skipped, 0 failed");
        ensure!(passed, "upstream {protocol}: {printed}");
        wait::until("its connections to end", wait::SOON, || {
            strait.metric("strait_downstream_connections_active").is_ok_and(|active| active == 0.0)
        })?;
        let started = strait.metric("strait_exchanges_started_total")?;
        wait::until("its exchanges to end", wait::SOON, || {
            strait.metric("strait_exchanges_finished_total").is_ok_and(|ended| ended == started)
        })?;
        // What it resets and cuts off on one side is no reason to give up the other's connection.
        // One case opens as many streams as there may be, which may need a second.
        let connects = strait.metric("strait_upstream_connections_opened_total")?;
        ensure!(protocol == "http1" || connects <= 2.0, "{connects} upstream connections");
    }
    Ok(())
}
