//! `OPTIONS *` arrives as it is.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    let seen = lab.curl(&["-X", "OPTIONS", "--request-target", "*", &strait.url("/")])?;
    ensure!(seen.starts_with("OPTIONS * HTTP/1.1\r\n"), "{seen}");
    Ok(())
}
