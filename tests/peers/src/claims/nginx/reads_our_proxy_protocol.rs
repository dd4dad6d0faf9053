//! Strait sends nginx the client's address with the PROXY protocol, version 1.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let http = "  server {
    listen LISTEN proxy_protocol;
    location / { return 200 $proxy_protocol_addr; }
  }";
    let nginx = Nginx::start(lab, http)?;
    let options = Options { cluster: "proxy_protocol: v1", ..Options::default() };
    let strait = Strait::forwarding_to(lab, nginx.address(), options)?;
    for client in ["127.0.0.2", "127.0.0.3"] {
        let seen = lab.curl(&["--interface", client, &strait.url("/")])?;
        ensure!(seen == client, "{client} became {seen}");
    }
    Ok(())
}
