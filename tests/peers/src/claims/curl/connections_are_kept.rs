//! Requests of one client share a connection, on both sides.

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

    let url = strait.url("/bytes/10");
    let format = ["-w", "%{num_connects}\n", "-o", "/dev/null"];
    let one = [&format[..], &[&url, "--next"]].concat();
    let all = [&one[..], &one, &one, &format[..], &[&url]].concat();
    let connects = lab.curl(&all)?;
    ensure!(connects == "1\n0\n0\n0\n", "connections of curl: {connects:?}");
    ensure!(origin.connections() == 1, "connections of Strait: {}", origin.connections());
    Ok(())
}
