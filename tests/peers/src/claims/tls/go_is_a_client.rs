//! Go's `net/http` with a certificate gets what it asks for whole, in each pair of versions of HTTP and
//! TLS, and resumes its sessions; without one it is refused.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};
use crate::wait;

/// Handshakes that failed as the client had no certificate.
const REFUSED: &str =
    "strait_tls_handshakes_failed_total{listener=\"edge\",reason=\"certificate_required\"}";

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::GoClient, Peer::GoServer], holds };

fn holds(lab: &Lab) -> Result<()> {
    let server = GoHttp2::start(lab)?;
    super::issue_site(lab)?;
    let pair = Authority::new(lab, "clients")?.issue(lab, "client", "member.example")?;
    let options = Options { listener: super::MEMBERS, ..Options::default() };
    let strait = Strait::forwarding_to(lab, server.address(), options)?;
    let client = Peer::GoClient.program().context("h2client")?.to_string_lossy().into_owned();
    let url = format!("https://{}", strait.address());
    for (http, tls) in super::PAIRS {
        let version = http.split('.').next().unwrap_or_default();
        for check in ["resumes", "bodies", "trailers", "many"] {
            let finished = lab.run(&client, &[version, &url, check, tls])?;
            finished.ok().with_context(|| format!("{check}, HTTP/{http} in TLS {tls}"))?;
            if check == "resumes" {
                super::are_logged(&strait, 2, (http, tls), Some("member.example"))?;
            }
        }
    }
    std::fs::remove_file(pair.chain)?;
    for (before, tls) in [(0.0, "1.2"), (1.0, "1.3")] {
        let finished = lab.run(&client, &["2", &url, "resumes", tls])?;
        // In TLS 1.3 the client has sent all of its handshake before it is refused. Where it reads the
        // alert before it sends a request, its request names no alert.
        let is_refused = finished.output.contains("remote error: tls: ")
            || tls == "1.3"
                && finished.output.contains("http2: client conn could not be established");
        ensure!(is_refused, "TLS {tls}: {}", finished.output);
        ensure!(!finished.status.success(), "TLS {tls}");
        wait::until("the refusal to be counted", wait::SOON, || {
            strait.metric(REFUSED).is_ok_and(|refused| refused > before)
        })?;
    }
    Ok(())
}
