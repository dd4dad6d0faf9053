//! A GET arrives with its path, query and host, and the client is named to the upstream.

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

    let seen = lab.curl(&["-H", "Host: shop.example", &strait.url("/a/b?c=d%20e")])?.to_lowercase();
    ensure!(seen.starts_with("get /a/b?c=d%20e http/1.1\r\n"), "{seen}");
    ensure!(seen.contains("\r\nhost: shop.example\r\n"), "{seen}");
    ensure!(seen.contains("\r\nx-forwarded-for: 127.0.0.1\r\n"), "{seen}");
    ensure!(seen.contains("\r\nx-request-id: "), "{seen}");
    Ok(())
}
