//! POST with a length and PUT in chunks arrive byte by byte as they were sent.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::Pattern;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    const LEN: usize = 300_000;
    let mut bytes = Vec::new();
    Pattern::new().write(&mut bytes, LEN)?;
    let file = lab.write("upload", &bytes)?;
    let file = file.to_string_lossy();
    let url = strait.url(&format!("/check/{LEN}"));
    for how in [
        &["--data-binary", &format!("@{file}")][..],
        &["-T", &file],
        &["-T", &file, "-H", "Transfer-Encoding: chunked"],
    ] {
        let verdict = lab.curl(&[how, &[&url]].concat())?;
        ensure!(verdict == "as sent", "{how:?}: {verdict}");
    }
    Ok(())
}
