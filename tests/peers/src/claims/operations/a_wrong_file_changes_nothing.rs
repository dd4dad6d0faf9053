//! A configuration with a mistake leaves the former one serving and is named on the admin interface.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    strait.replace_in_file("cluster: upstream", "cluster: upstraem")?;
    wait::until("the mistake to be named", wait::SOON, || {
        strait.admin("/config").is_ok_and(|config| config.text().contains("upstraem"))
    })?;
    let seen = lab.curl(&[&strait.url("/still")])?;
    ensure!(seen.starts_with("GET /still"), "{seen}");
    Ok(())
}
