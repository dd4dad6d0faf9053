//! A handshake that is not over in its time is closed, however it passes the time: silent, one byte
//! after the other, or between two flights; a connection that is through is not.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::python;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Python], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    let listener = format!("timeouts: {{ tls_handshake: 1s }}\n{}", super::SITE);
    let options = Options { listener: &listener, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    // It checks that each is closed, and none before a second has passed.
    let printed = python::speak_tls(lab, strait.address(), &["dawdle"])?;
    ensure!(printed.trim() == "8 were cut off", "{printed}");
    let page = strait.admin("/metrics")?.text();
    for line in [
        "strait_downstream_connections_ended_total{cause=\"tls_handshake_timeout\"} 8",
        "strait_tls_handshakes_failed_total{listener=\"edge\",reason=\"tls_timeout\"} 8",
    ] {
        ensure!(page.contains(line), "{line} in {page}");
    }
    Ok(())
}
