//! An upstream that ends each connection of HTTP/2 after a few requests with GOAWAY, others still
//! on their way, loses none of them.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    // With the latter, each connection is sent more at a time than it ever takes.
    for requests_max in [200, 50] {
        let http = format!(
            "  server {{
    listen LISTEN http2;
    keepalive_requests {requests_max};
    location / {{ return 200 ok; }}
  }}"
        );
        let nginx = Nginx::start(lab, &http)?;
        let options = Options { cluster: "protocol: http2", ..Options::default() };
        let strait = Strait::forwarding_to(lab, nginx.address(), options)?;
        let url = strait.url("/");
        for version in [&["-m", "10"][..], &["--h1"]] {
            let options = ["-n", "5000", "-c", "20", "-t", "1", &url];
            let printed = lab.run("h2load", &[version, &options[..]].concat())?.ok()?;
            ensure!(
                printed.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"),
                "{printed}"
            );
            ensure!(printed.contains("5000 2xx"), "{requests_max}: {printed}");
        }
    }
    Ok(())
}
