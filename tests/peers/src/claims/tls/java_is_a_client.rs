//! Java's `java.net.http` with a certificate gets what it asks for whole, in each pair of versions of
//! HTTP and TLS, and resumes its sessions; without one it is refused.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::java;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Java, Peer::Openssl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    let client = Authority::new(lab, "clients")?.issue(lab, "client", "member.example")?;
    let options = Options { listener: super::MEMBERS, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    java::fetch(lab, strait.address(), super::NAME, Some(&client))?.ok()?;
    for pair in super::PAIRS {
        // Two requests on each of two connections.
        super::are_logged(&strait, 4, pair, Some("member.example"))?;
    }
    let shaken = strait.metric("strait_tls_handshakes_total")?;
    ensure!(shaken == 8.0, "{shaken} handshakes");

    let finished = java::fetch(lab, strait.address(), super::NAME, None)?;
    ensure!(finished.output.contains("Received fatal alert"), "{}", finished.output);
    ensure!(!finished.status.success(), "{}", finished.output);
    let asked = strait.metric("strait_exchanges_started_total")?;
    ensure!(asked == 16.0, "{asked} requests");
    Ok(())
}
