//! HAProxy in front names its client with either version of the PROXY protocol; Strait believes it.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    for send in ["send-proxy", "send-proxy-v2"] {
        let options = Options { listener: "proxy_protocol: true", ..Options::default() };
        let strait = Strait::forwarding_to(lab, origin.address(), options)?;
        let backend = format!(
            "  bind LISTEN
  default_backend strait
backend strait
  server strait {} {send}",
            strait.address()
        );
        let haproxy = Haproxy::start(lab, &backend)?;
        let url = format!("http://{}/", haproxy.address());
        let seen = lab.curl(&["--interface", "127.0.0.2", &url])?.to_lowercase();
        ensure!(seen.contains("\r\nx-forwarded-for: 127.0.0.2\r\n"), "{send}: {seen}");
    }
    Ok(())
}
