//! promtool has nothing to say about /metrics, after traffic of several kinds.

use std::fs::File;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Promtool], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    for path in ["/a", "/bytes/10", "/chunked/10"] {
        client::get(strait.address(), path)?;
    }
    let page = lab.write("metrics", strait.admin("/metrics")?.body)?;
    let judged = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::from(File::open(page)?))
        .output()?;
    let printed = String::from_utf8_lossy(&judged.stderr);
    ensure!(judged.status.success() && printed.is_empty(), "{printed}");
    Ok(())
}
