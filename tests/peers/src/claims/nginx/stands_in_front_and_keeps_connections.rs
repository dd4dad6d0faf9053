//! nginx in front keeps its connections to Strait and loses no request over them.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let http = format!(
        "  upstream strait {{ server {}; keepalive 32; keepalive_requests 1000000; }}
  server {{
    listen LISTEN;
    location / {{
      proxy_pass http://strait;
      proxy_http_version 1.1;
      proxy_set_header connection '';
    }}
  }}",
        strait.address()
    );
    let nginx = Nginx::start(lab, &http)?;
    let url = format!("http://{}/bytes/2000", nginx.address());
    let options = ["--h1", "-n", "5000", "-c", "16", "-t", "1", &url];
    let printed = lab.run("h2load", &options)?.ok()?;
    ensure!(printed.contains("5000 2xx") && printed.contains("0 failed"), "{printed}");
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened <= 16.0, "nginx needed {opened} connections");
    Ok(())
}
