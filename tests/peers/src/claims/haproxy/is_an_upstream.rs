//! HAProxy as upstream: early hints pass, then the response; its connection is kept.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let haproxy = Haproxy::start(
        lab,
        "  bind LISTEN
  http-request early-hint link </style.css>;rel=preload if { path /hinted }
  http-request return status 200 content-type text/plain lf-string \"%[path] for %[src]\"",
    )?;
    let strait = Strait::in_front_of(lab, haproxy.address())?;
    let hinted = lab.curl(&["-v", &strait.url("/hinted")])?;
    ensure!(hinted.contains("< HTTP/1.1 103"), "{hinted}");
    ensure!(hinted.contains("</style.css>"), "{hinted}");
    ensure!(hinted.contains("/hinted for 127.0.0.1"), "{hinted}");
    let plain = lab.curl(&[&strait.url("/plain")])?;
    ensure!(plain == "/plain for 127.0.0.1", "{plain}");
    let connects = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!(connects == 1.0, "{connects} connections for requests one after the other");
    Ok(())
}
