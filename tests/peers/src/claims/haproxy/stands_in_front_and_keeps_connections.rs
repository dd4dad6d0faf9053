//! HAProxy in front reuses its connections to Strait and loses no request over them.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let backend = format!(
        "  bind LISTEN
  default_backend strait
backend strait
  http-reuse always
  server strait {}",
        strait.address()
    );
    let haproxy = Haproxy::start(lab, &backend)?;
    let url = format!("http://{}/bytes/2000", haproxy.address());
    let options = ["--h1", "-n", "5000", "-c", "16", "-t", "1", &url];
    let printed = lab.run("h2load", &options)?.ok()?;
    ensure!(printed.contains("5000 2xx") && printed.contains("0 failed"), "{printed}");
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened <= 16.0, "HAProxy needed {opened} connections");
    Ok(())
}
