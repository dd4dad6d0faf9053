//! A client of HTTP/1.0 gets no chunks, and its connection closes unless it asks otherwise.

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

    let printed = lab.curl(&["--http1.0", "-i", "-o", "old", &strait.url("/chunked/70000")])?;
    ensure!(printed.is_empty(), "{printed}");
    let response = std::fs::read(lab.folder().join("old"))?;
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_default();
    let (head, body) = response.split_at(end + 4);
    let head = String::from_utf8_lossy(head).to_lowercase();
    ensure!(!head.contains("transfer-encoding"), "{head}");
    crate::pattern::check(body, 70_000)
}
