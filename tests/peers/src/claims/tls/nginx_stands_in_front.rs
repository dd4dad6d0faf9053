//! nginx in front verifies Strait, speaks TLS to it on few connections, and loses no request.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::origin::Origin;
use crate::peer::Peer;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::H2load, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    let (folder, address) = (lab.folder().display(), strait.address());
    let http = format!(
        "  upstream strait {{ server {address}; keepalive 32; keepalive_requests 1000000; }}
  proxy_http_version 1.1;
  proxy_ssl_protocols TLSv1.3;
  proxy_ssl_verify on;
  proxy_ssl_verify_depth 2;
  proxy_ssl_trusted_certificate {folder}/ca.pem;
  proxy_ssl_server_name on;
  server {{
    listen LISTEN;
    location / {{
      proxy_pass https://strait;
      proxy_ssl_name shop.example;
      proxy_set_header connection '';
    }}
    location /wrong/ {{ proxy_pass https://strait; proxy_ssl_name bank.example; }}
    location /once/ {{
      proxy_pass https://strait;
      proxy_ssl_name shop.example;
      proxy_set_header connection close;
    }}
  }}"
    );
    let nginx = Nginx::start(lab, &http)?;
    let url = |path: &str| format!("http://{}{path}", nginx.address());
    let options = ["--h1", "-n", "5000", "-c", "16", "-t", "1", &url("/bytes/2000")];
    let printed = lab.run("h2load", &options)?.ok()?;
    ensure!(printed.contains("5000 2xx") && printed.contains("0 failed"), "{printed}");
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened <= 16.0, "nginx needed {opened} connections");
    // A connection for each: its sessions are resumed.
    let options = ["--h1", "-n", "200", "-c", "4", "-t", "1", &url("/once/")];
    let printed = lab.run("h2load", &options)?.ok()?;
    ensure!(printed.contains("200 2xx") && printed.contains("0 failed"), "{printed}");
    let refused = lab.curl(&["-o", "/dev/null", "-w", "%{http_code}", &url("/wrong/")])?;
    ensure!(refused == "502", "{refused}");
    Ok(())
}
