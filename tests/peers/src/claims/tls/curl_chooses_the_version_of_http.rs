//! curl gets the version of HTTP that it offers (ALPN), with either version of TLS; the upstream is
//! informed that the client's connection was secure.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    for (tls, openssl) in super::VERSIONS {
        for (offer, version) in
            [("--http1.0", "1"), ("--http1.1", "1.1"), ("--http2", "2"), ("--no-alpn", "1.1")]
        {
            let format = ["-v", "-w", "spoke %{http_version}", offer];
            let printed =
                super::curl(lab, strait.address(), &[&format, tls].concat(), "/what?is=seen")?;
            let secure = openssl.replace("-tls1_", "SSL connection using TLSv1.");
            ensure!(printed.contains(&secure), "{offer}: {printed}");
            ensure!(printed.contains(&format!("spoke {version}")), "{offer}: {printed}");
            ensure!(printed.contains("GET /what?is=seen HTTP/1.1\r\n"), "{printed}");
            ensure!(printed.to_lowercase().contains("x-forwarded-proto: https\r\n"), "{printed}");
        }
        // One handshake for several requests.
        let several = ["--http2", "-w", "%{num_connects} ", "-o", "/dev/null", "-o", "/dev/null"];
        let url = format!("https://{}/again", super::NAME);
        let printed =
            super::curl(lab, strait.address(), &[&several, tls, &[&url]].concat(), "/again")?;
        ensure!(printed == "1 0 ", "{printed}");
    }
    let shaken = strait.metric("strait_tls_handshakes_total")?;
    ensure!(shaken == 10.0, "{shaken} handshakes");
    Ok(())
}
