//! HAProxy in front verifies Strait, and speaks either version of HTTP to it over TLS, behind a PROXY
//! protocol header, too; no request and no byte is lost.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::H2load, Peer::Curl], holds };

const LEN: usize = 10 << 20;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    let path = lab.folder().join("upload");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    for (protocol, proxy_protocol) in [("http/1.1", false), ("h2", false), ("h2", true)] {
        let listener = format!("proxy_protocol: {proxy_protocol}\n{}", super::SITE);
        let options = Options { listener: &listener, ..Options::default() };
        let strait = Strait::forwarding_to(lab, origin.address(), options)?;
        let frontend = format!(
            "  bind LISTEN proto h2
  default_backend strait
backend strait
  http-reuse always
  server strait {} ssl verify required ca-file {}/ca.pem sni str(shop.example) \
             verifyhost shop.example alpn {protocol} {}",
            strait.address(),
            lab.folder().display(),
            if proxy_protocol { "send-proxy-v2" } else { "" },
        );
        let haproxy = Haproxy::start(lab, &frontend)?;
        let url = |path: &str| format!("http://{}{path}", haproxy.address());
        let options = ["-n", "3000", "-c", "4", "-m", "20", "-t", "1", &url("/bytes/2000")];
        let printed = lab.run("h2load", &options)?.ok()?;
        ensure!(
            printed.contains("3000 2xx") && printed.contains("0 failed"),
            "{protocol}: {printed}"
        );
        lab.curl(&[HTTP2, "-o", "down", &url(&format!("/chunked/{LEN}"))])?;
        pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
        let check = url(&format!("/check/{LEN}"));
        let printed = lab.curl(&[HTTP2, "-T", &path.to_string_lossy(), &check])?;
        ensure!(printed == "as sent", "{protocol}: {printed}");
        let opened = strait.metric("strait_downstream_connections_opened_total")?;
        // As many as there are requests before it knows what is agreed on.
        ensure!(opened <= 90.0, "{protocol}: HAProxy needed {opened} connections");
    }
    Ok(())
}

const HTTP2: &str = "--http2-prior-knowledge";
