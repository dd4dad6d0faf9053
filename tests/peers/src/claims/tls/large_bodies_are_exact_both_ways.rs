//! Large bodies pass records of either version of TLS, and either version of HTTP in them, byte by
//! byte.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

const LEN: usize = 20_000_000;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    let path = lab.folder().join("upload");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    let file = path.to_string_lossy();
    for (tls, _) in super::VERSIONS {
        for version in ["--http1.1", "--http2"] {
            for framing in ["bytes", "chunked"] {
                let options = [&[version, "-o", "down"], tls].concat();
                super::curl(lab, strait.address(), &options, &format!("/{framing}/{LEN}"))?;
                pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
            }
            let options = [&[version, "-T", &file], tls].concat();
            let printed = super::curl(lab, strait.address(), &options, &format!("/check/{LEN}"))?;
            ensure!(printed == "as sent", "{version}: {printed}");
        }
    }
    Ok(())
}
