//! curl refuses a Strait whose CA it does not trust, and one with another name; Strait
//! counts that and serves the others.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

/// curl's word for a certificate that it does not trust.
const NOT_TRUSTED: Option<i32> = Some(60);

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    Authority::new(lab, "stranger")?;
    for (version, _) in super::VERSIONS {
        for (authority, name) in [("stranger.pem", super::NAME), ("ca.pem", "bank.example")] {
            let options = [&["--cacert", authority], version].concat();
            let refused = super::run_curl(lab, strait.address(), &options, name, "/")?;
            ensure!(refused.status.code() == NOT_TRUSTED, "{authority}: {}", refused.output);
        }
        let printed = super::curl(lab, strait.address(), version, "/still")?;
        ensure!(printed.starts_with("GET /still"), "{printed}");
    }
    // It is a name that curl checks after the handshake, and an authority within.
    wait::until("two failed handshakes to be counted", wait::SOON, || {
        strait.metric("strait_tls_handshakes_failed_total").is_ok_and(|failed| failed == 2.0)
    })
}
