//! curl follows a redirect that Strait made.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let options = Options {
        rules: "- match: { prefix: /old/ }
  redirect: { prefix: /new/, status: 308 }",
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let seen = lab.curl(&["-L", "-d", "kept", &strait.url("/old/a?b=c")])?;
    ensure!(seen.starts_with("POST /new/a?b=c HTTP/1.1\r\n"), "{seen}");
    Ok(())
}
