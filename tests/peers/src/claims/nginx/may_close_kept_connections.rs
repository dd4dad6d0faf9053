//! An upstream that closes a connection after a few requests loses none of them.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    let http = "  server { listen LISTEN; keepalive_requests 7; location / { return 200 ok; } }";
    // The place for this number in the configuration is within the server; the lab's own is outside.
    let nginx = Nginx::start(lab, http)?;
    let strait = Strait::in_front_of(lab, nginx.address())?;
    let url = strait.url("/");
    let options = ["--h1", "-n", "5000", "-c", "20", "-t", "1", &url];
    let printed = lab.run("h2load", &options)?.ok()?;
    ensure!(printed.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{printed}");
    ensure!(printed.contains("5000 2xx"), "{printed}");
    Ok(())
}
