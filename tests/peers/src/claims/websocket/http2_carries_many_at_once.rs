//! A client on h2 and wsproto runs many WebSockets on one connection of HTTP/2 (RFC 8441): to a
//! server of HTTP/1.1, where each becomes an upgrade, and to one of HTTP/2.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::python::{self, Echo};
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::WebSocketSuite, Peer::Hypercorn], holds };

const STREAMS: u32 = 20;

fn holds(lab: &Lab) -> Result<()> {
    let (old, new) = (Echo::start(lab)?, Echo::start_with_http2(lab)?);
    for (server, protocol, end) in
        [(&old, "http1", "finish"), (&old, "http1", "reset"), (&new, "http2", "reset")]
    {
        let cluster = format!("protocol: {protocol}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, server.address(), options)?;
        python::talk_over_http2(lab, strait.address(), STREAMS, end)?;
        wait::until("all tunnels to end", wait::SOON, || {
            let finished = strait.metric("strait_exchanges_finished_total");
            finished.is_ok_and(|ended| ended == f64::from(STREAMS) + 1.0)
        })?;
        let tunnels = strait.metric("strait_tunnels_started_total")?;
        ensure!(tunnels == f64::from(STREAMS), "{tunnels} tunnels to {protocol}");
    }
    Ok(())
}
