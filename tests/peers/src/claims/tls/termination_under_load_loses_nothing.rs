//! SIGTERM while h2load runs over TLS: what was accepted is answered, in either version of HTTP.

use anyhow::Result;

use crate::claim::Claim;
use crate::claims::operations::terminate_under_load;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    super::issue_site(lab)?;
    for version in ["--h1", "--npn-list=h2"] {
        let origin = Origin::start()?;
        let options = Options { listener: super::SITE, ..Options::default() };
        let strait = Strait::forwarding_to(lab, origin.address(), options)?;
        let url = format!("https://{}/bytes/1000", strait.address());
        terminate_under_load(lab, strait, version, &url)?;
    }
    Ok(())
}
