//! A client that waits for `100 Continue` gets it, then its response.

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

    // A minute of patience: if nothing answered the expectation, the claim would time out.
    let expect = ["-v", "-H", "Expect: 100-continue", "--expect100-timeout", "60"];
    let printed = lab.curl(&[&expect[..], &["-d", "three", &strait.url("/echo")]].concat())?;
    ensure!(printed.contains("< HTTP/1.1 100"), "{printed}");
    ensure!(printed.contains("< HTTP/1.1 200") && printed.contains("three"), "{printed}");
    Ok(())
}
