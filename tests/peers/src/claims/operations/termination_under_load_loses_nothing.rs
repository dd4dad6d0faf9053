//! SIGTERM while h2load runs: what was accepted is answered; the rest finds the port closed.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let url = strait.url("/bytes/1000");
    super::terminate_under_load(lab, strait, "--h1", &url)
}
