//! curl and nghttp ask over HTTP/1.1 for HTTP/2, get it, and go on with it; the upstream does not
//! see the upgrade.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Curl, Peer::Nghttp], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    let (first, second) = (strait.url("/first"), strait.url("/second"));
    let printed = lab.curl(&["--http2", "-w", "%{http_version};", &first, &second])?.to_lowercase();
    ensure!(printed.contains("get /first http/1.1\r\n"), "{printed}");
    ensure!(printed.contains("get /second http/1.1\r\n"), "{printed}");
    ensure!(printed.matches("2;").count() == 2, "{printed}");
    ensure!(!printed.contains("upgrade") && !printed.contains("http2-settings"), "{printed}");
    let accepted = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(accepted == 1.0, "{accepted} connections");
    let printed = lab.run("nghttp", &["--upgrade", &first, &second])?.ok()?.to_lowercase();
    ensure!(printed.contains("get /first http/1.1\r\n"), "{printed}");
    ensure!(printed.contains("get /second http/1.1\r\n"), "{printed}");
    // A request with a body need not be upgraded; it must be answered.
    let path = lab.write("body", "a body")?;
    let printed = lab.curl(&["--http2", "-T", &path.to_string_lossy(), &strait.url("/echo")])?;
    ensure!(printed == "a body", "{printed}");
    Ok(())
}
