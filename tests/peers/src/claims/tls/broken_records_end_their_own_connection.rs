//! What is no TLS, or was changed, cut or sent twice on its way, ends its connection at once and gets
//! no answer; another connection is served all the while.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::python;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Python], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    // Longer than the script waits.
    let listener = format!("timeouts: {{ tls_handshake: 60s, idle: 60s }}\n{}", super::SITE);
    let options = Options { listener: &listener, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    python::speak_tls(lab, strait.address(), &["break"])?;
    wait::until("all connections to end", wait::SOON, || {
        strait.metric("strait_downstream_connections_active").is_ok_and(|active| active == 0.0)
    })?;
    let page = strait.admin("/metrics")?.text();
    ensure!(page.contains("cause=\"tls_invalid\""), "{page}");
    Ok(())
}
