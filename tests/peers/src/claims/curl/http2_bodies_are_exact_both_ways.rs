//! Large bodies pass a connection of HTTP/2 both ways byte by byte, from and to either version.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

const LEN: usize = 10 << 20;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let path = lab.folder().join("upload");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    let file = path.to_string_lossy();

    for framing in ["bytes", "chunked"] {
        let url = strait.url(&format!("/{framing}/{LEN}"));
        let printed = lab.curl(&[super::HTTP2, "-o", "down", "-w", "%{http_version}", &url])?;
        ensure!(printed == "2", "{framing}: HTTP/{printed}");
        pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
    }
    let check = strait.url(&format!("/check/{LEN}"));
    let printed = lab.curl(&[super::HTTP2, "-T", &file, &check])?;
    ensure!(printed == "as sent", "with a length: {printed}");
    // Without a length, so that HTTP/1.1 needs chunks.
    let script = format!("curl -sS {} -T - {check} < upload", super::HTTP2);
    let printed = lab.run("sh", &["-c", &script])?.ok()?;
    ensure!(printed == "as sent", "without a length: {printed}");
    Ok(())
}
