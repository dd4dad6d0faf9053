//! Where clients need certificates, one without, and one with a stranger's, get nothing; where they
//! may have one, a stranger's is refused all the same.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    Authority::new(lab, "clients")?.issue(lab, "client", "member.example")?;
    Authority::new(lab, "strangers")?.issue(lab, "stranger", "member.example")?;
    let known = ["--cert", "client.pem", "--key", "client.key"];
    let strange = ["--cert", "stranger.pem", "--key", "stranger.key"];
    for (mode, without) in [("required", false), ("optional", true)] {
        let listener = format!(
            "tls:
  certificates: [{{ chain: site.pem, key: site.key }}]
  client: {{ ca: clients.pem, mode: {mode} }}"
        );
        let options = Options { listener: &listener, ..Options::default() };
        let strait = Strait::forwarding_to(lab, origin.address(), options)?;
        for (version, _) in super::VERSIONS {
            for (certificate, is_served) in
                [(&known[..], true), (&strange[..], false), (&[], without)]
            {
                let options = [&["--cacert", "ca.pem"], certificate, version].concat();
                let finished =
                    super::run_curl(lab, strait.address(), &options, super::NAME, "/in")?;
                let seen = finished.output.starts_with("GET /in");
                ensure!(seen == is_served, "{mode}, {certificate:?}: {}", finished.output);
                ensure!(finished.status.success() == is_served, "{mode}, {certificate:?}");
            }
        }
        let asked = strait.metric("strait_exchanges_started_total")?;
        ensure!(asked == if without { 4.0 } else { 2.0 }, "{mode}: {asked} requests");
    }
    Ok(())
}
