//! A tunnel within TLS: bytes pass both ways, each side may end before the other, and both learn of
//! it that it was the end.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::python;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Python], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    python::speak_tls(lab, strait.address(), &["tunnel"])?;
    let tunnels = strait.metric("strait_tunnels_started_total")?;
    ensure!(tunnels == 2.0, "{tunnels} tunnels");
    Ok(())
}
