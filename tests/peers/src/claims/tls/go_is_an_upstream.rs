//! Go's `net/http` as upstream over TLS asks for a certificate: what passes is whole in each pair of
//! versions of HTTP and TLS, and the next connection resumes the session of the one before.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::GoClient, Peer::GoServer, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let site = Authority::new(lab, "ca")?.issue(lab, "site", super::NAME)?;
    Authority::new(lab, "clients")?.issue(lab, "strait", "strait.example")?;
    let client = Peer::GoClient.program().context("h2client")?.to_string_lossy().into_owned();
    for (protocol, http) in [("http1", "1.1"), ("http2", "2.0")] {
        for tls in ["1.2", "1.3"] {
            let server = GoHttp2::start_secured(lab, &site, "clients.pem")?;
            let cluster = super::showing_a_certificate(protocol, tls);
            let options = Options { cluster: &cluster, ..Options::default() };
            let strait = Strait::forwarding_to(lab, server.address(), options)?;
            for resumed in [false, true] {
                let printed = lab.curl(&[&strait.url("/last")])?;
                ensure!(printed.starts_with(&format!("HTTP/{http} GET /last\n")), "{printed}");
                let secure = format!(
                    "\ntls {tls} for shop.example, client strait for strait.example, \
                     resumed: {resumed}\n"
                );
                ensure!(printed.contains(&secure), "{protocol}: {secure} in {printed}");
            }
            for check in ["bodies", "trailers", "many"] {
                let printed = lab.run(&client, &["2", &strait.url(""), check])?;
                printed.ok().with_context(|| format!("{check}, {protocol} in TLS {tls}"))?;
            }
        }
    }
    Ok(())
}
