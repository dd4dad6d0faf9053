//! A client that takes Strait for its proxy names the host in the target, which wins.

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

    let proxy = strait.url("");
    let host = ["-H", "Host: other.example"];
    let seen = lab.curl(&[&["-x", &proxy][..], &host, &["http://shop.example/a?b"]].concat())?;
    let seen = seen.to_lowercase();
    ensure!(seen.starts_with("get /a?b http/1.1\r\n"), "{seen}");
    ensure!(seen.contains("\r\nhost: shop.example\r\n"), "{seen}");
    ensure!(!seen.contains("other.example"), "{seen}");
    Ok(())
}
