//! A hundred megabytes go up and come down without a byte changed.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

const LEN: usize = 100_000_000;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    let path = lab.folder().join("large");
    let mut file = BufWriter::new(File::create(&path)?);
    Pattern::new().write(&mut file, LEN)?;
    file.flush()?;
    let verdict =
        lab.curl(&["-T", &path.to_string_lossy(), &strait.url(&format!("/check/{LEN}"))])?;
    ensure!(verdict == "as sent", "up: {verdict}");
    for kind in ["bytes", "chunked"] {
        lab.curl(&["-o", "down", &strait.url(&format!("/{kind}/{LEN}"))])?;
        pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
    }
    Ok(())
}
