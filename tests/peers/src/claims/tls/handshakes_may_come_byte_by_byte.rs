//! Python's ssl shakes hands, asks and is answered although each byte that it sends comes alone; in
//! either version, also where the protocol is detected by first bytes.

use anyhow::Result;

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
    let permissive = super::SITE.replace("tls: {", "tls: { mode: permissive,");
    for listener in [super::SITE, &permissive] {
        let options = Options { listener, ..Options::default() };
        let strait = Strait::forwarding_to(lab, origin.address(), options)?;
        python::speak_tls(lab, strait.address(), &["byte_by_byte"])?;
    }
    Ok(())
}
