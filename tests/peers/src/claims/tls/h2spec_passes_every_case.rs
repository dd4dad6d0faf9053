//! All cases of h2spec pass over TLS, whether the listener speaks HTTP/2 alone or what is agreed on;
//! afterwards no connection is left of them.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2spec, Peer::GoServer], holds };

fn holds(lab: &Lab) -> Result<()> {
    super::issue_site(lab)?;
    let program = Peer::H2spec.program().context("h2spec")?;
    for protocol in ["http2", "auto"] {
        let server = GoHttp2::start(lab)?;
        let listener = format!("protocol: {protocol}\n{}", super::SITE);
        let options = Options { listener: &listener, ..Options::default() };
        let strait = Strait::forwarding_to(lab, server.address(), options)?;
        let port = strait.address().port().to_string();
        // Some cases take an answer that was faster than what they do wrong for a failure; hence
        // the path.
        let arguments = ["-t", "-k", "--strict", "--path", "/slow", "-h", "127.0.0.1", "-p", &port];
        let printed = lab.run(&program.to_string_lossy(), &arguments)?.output;
        let passed = printed.contains("146 tests, 146 passed, 0 skipped, 0 failed");
        ensure!(passed, "{protocol}: {printed}");
        wait::until("its connections to end", wait::SOON, || {
            strait.metric("strait_downstream_connections_active").is_ok_and(|active| active == 0.0)
        })?;
    }
    Ok(())
}
