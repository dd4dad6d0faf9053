//! With a ticket that it got without a certificate, a client gets nowhere where it needs one: neither
//! at another listener of the same name, nor at the same one after a reload.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::ports;
use crate::strait::{Options, Strait, local};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    Authority::new(lab, "clients")?.issue(lab, "client", "member.example")?;
    let strict = local(ports::free()?);
    let required = "client: { ca: clients.pem }, certificates";
    let listeners = format!(
        "- name: strict
  address: \"{strict}\"
  routes: everything
  {}",
        super::SITE.replace("certificates", required)
    );
    let options = Options { listener: super::SITE, listeners: &listeners, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let seen = "GET /seen HTTP/1.1";
    for (_, version) in super::VERSIONS {
        let printed = super::visit(lab, strait.address(), &[version, "-sess_out", version])?;
        ensure!(printed.contains(seen), "{printed}");
        let printed = super::visit(lab, strict, &[version, "-sess_in", version])?;
        ensure!(printed.contains("alert") && !printed.contains(seen), "{version}: {printed}");
        let own = ["-cert", "client.pem", "-cert_chain", "client.pem", "-key", "client.key"];
        let printed = super::visit(lab, strict, &[&[version], &own[..]].concat())?;
        ensure!(printed.contains(seen), "{version}: {printed}");
    }
    strait.reconfigure("tls: { certificates", &format!("tls: {{ {required}"))?;
    for (_, version) in super::VERSIONS {
        let printed = super::visit(lab, strait.address(), &[version, "-sess_in", version])?;
        ensure!(printed.contains("alert") && !printed.contains(seen), "{version}: {printed}");
    }
    Ok(())
}
