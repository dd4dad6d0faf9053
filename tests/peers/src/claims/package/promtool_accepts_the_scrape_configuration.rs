//! promtool finds no mistake in the scrape configuration.

use anyhow::Result;

use super::packaging;
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Promtool], holds };

fn holds(lab: &Lab) -> Result<()> {
    let file = packaging("prometheus.yml");
    lab.run("promtool", &["check", "config", &file.to_string_lossy()])?.ok()?;
    Ok(())
}
