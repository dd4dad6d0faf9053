//! An upgrade that a route does not name is not forwarded: the request is a plain one.

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

    for token in ["tcp", "websocket2"] {
        let upgrade = format!("Upgrade: {token}");
        let fields = ["-H", "Connection: upgrade", "-H", &upgrade];
        let url = strait.url("/");
        let seen = lab.curl(&[&fields[..], &["-w", "%{http_code}", &url]].concat())?.to_lowercase();
        ensure!(seen.ends_with("200"), "{token}: {seen}");
        ensure!(!seen.contains("upgrade"), "{token}: {seen}");
    }
    Ok(())
}
