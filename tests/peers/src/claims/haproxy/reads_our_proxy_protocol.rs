//! Strait sends HAProxy the client's address, with either version of the PROXY protocol.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    for version in ["v1", "v2"] {
        let haproxy = Haproxy::start(
            lab,
            "  bind LISTEN accept-proxy
  http-request return status 200 content-type text/plain lf-string \"%[src]\"",
        )?;
        let cluster = format!("proxy_protocol: {version}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, haproxy.address(), options)?;
        for client in ["127.0.0.2", "127.0.0.3"] {
            let seen = lab.curl(&["--interface", client, &strait.url("/")])?;
            ensure!(seen == client, "{version}: {client} became {seen}");
        }
    }
    Ok(())
}
