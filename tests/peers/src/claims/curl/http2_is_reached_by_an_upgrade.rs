//! curl and nghttp ask over HTTP/1.1 for HTTP/2, get it, and go on with it; the upstream is not told.

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
    let told = lab.curl(&["--http2", "-w", "%{http_version};", &first, &second])?.to_lowercase();
    ensure!(told.contains("get /first http/1.1\r\n"), "{told}");
    ensure!(told.contains("get /second http/1.1\r\n"), "{told}");
    ensure!(told.matches("2;").count() == 2, "{told}");
    ensure!(!told.contains("upgrade") && !told.contains("http2-settings"), "{told}");
    let accepted = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(accepted == 1.0, "{accepted} connections");
    let told = lab.run("nghttp", &["--upgrade", &first, &second])?.ok()?.to_lowercase();
    ensure!(told.contains("get /first http/1.1\r\n"), "{told}");
    ensure!(told.contains("get /second http/1.1\r\n"), "{told}");
    // A request with a body need not be upgraded; it must be answered.
    let path = lab.write("body", "a body")?;
    let told = lab.curl(&["--http2", "-T", &path.to_string_lossy(), &strait.url("/echo")])?;
    ensure!(told == "a body", "{told}");
    Ok(())
}
