//! man has nothing to say against a manual page.

use anyhow::{Result, ensure};

use super::packaging;
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Man], holds };

fn holds(lab: &Lab) -> Result<()> {
    let mut pages = 0;
    for page in std::fs::read_dir(packaging("man"))? {
        let page = page?.path();
        let page = page.to_string_lossy();
        let format = ["--warnings=w", "--local-file", "--encoding=utf8", "--pager=cat", &page];
        let text = lab.run("man", &format)?.ok()?;
        ensure!(!text.contains("warning:") && text.contains("NAME"), "{page}:\n{text}");
        pages += 1;
    }
    ensure!(pages > 2, "{pages} pages");
    Ok(())
}
