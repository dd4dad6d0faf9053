//! HAProxy as upstream over HTTP/2: early hints pass to clients of both versions; one connection
//! serves all.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::Curl, Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    let haproxy = Haproxy::start(
        lab,
        "  bind LISTEN proto h2
  http-request early-hint link </style.css>;rel=preload if { path /hinted }
  http-request return status 200 content-type text/plain lf-string \"%[path] on %[req.ver]\"",
    )?;
    let options = Options { cluster: "protocol: http2", ..Options::default() };
    let strait = Strait::forwarding_to(lab, haproxy.address(), options)?;
    for (version, line) in
        [("--http1.1", "HTTP/1.1 103"), ("--http2-prior-knowledge", "HTTP/2 103")]
    {
        let hinted = lab.curl(&[version, "-v", &strait.url("/hinted")])?;
        ensure!(hinted.contains(line), "{hinted}");
        ensure!(hinted.contains("</style.css>"), "{hinted}");
        ensure!(hinted.contains("/hinted on 2.0"), "{hinted}");
    }
    let url = strait.url("/plain");
    let printed =
        lab.run("h2load", &["-n", "5000", "-c", "4", "-m", "20", "-t", "1", &url])?.ok()?;
    ensure!(printed.contains("5000 2xx") && printed.contains("0 failed"), "{printed}");
    let connects = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!(connects == 1.0, "{connects} connections for eighty requests at a time");
    Ok(())
}
