//! s_client comes back with a ticket and needs no certificate: in either version, after a reload,
//! but not without tickets.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    let options = Options {
        listener: super::SITE,
        rules: "- match: { path: /version }
  respond: { status: 200, body: version-0 }",
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    for (_, version) in super::VERSIONS {
        ask(lab, &strait, &[version, "-sess_out", version], "New, ")?;
        ask(lab, &strait, &[version, "-sess_in", version], "Reused, ")?;
    }
    strait.reconfigure("version-0", "version-1")?;
    for (_, version) in super::VERSIONS {
        ask(lab, &strait, &[version, "-sess_in", version], "Reused, ")?;
    }
    strait.reconfigure("tls: {", "tls: { session_tickets: false,")?;
    for (_, version) in super::VERSIONS {
        ask(lab, &strait, &[version, "-sess_in", version], "New, ")?;
    }
    Ok(())
}

fn ask(lab: &Lab, strait: &Strait, options: &[&str], how: &str) -> Result<()> {
    let printed = super::visit(lab, strait.address(), options)?;
    ensure!(printed.contains("GET /seen HTTP/1.1"), "{options:?}: {printed}");
    ensure!(printed.contains(how), "{options:?}: {printed}");
    Ok(())
}
