//! systemd finds no mistake in the unit, and little that the unit leaves open to an attacker.

use anyhow::{Result, ensure};

use super::packaging;
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::SystemdAnalyze], holds };

/// The highest exposure that is accepted, in tenths: of 10.0 for a service without any restriction.
const EXPOSURE_MAX: &str = "20";

fn holds(lab: &Lab) -> Result<()> {
    let unit = std::fs::read_to_string(packaging("strait.service"))?;
    // The program is not installed here.
    let unit = unit.replace("/usr/bin/strait", &lab.strait.to_string_lossy());
    let unit = lab.write("strait.service", unit)?;
    let unit = unit.to_string_lossy();
    let said = lab.run("systemd-analyze", &["verify", "--man=no", &unit])?.ok()?;
    ensure!(said.is_empty(), "{said}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let arguments = ["security", "--offline=true", "--no-pager", &threshold, &unit];
    lab.run("systemd-analyze", &arguments)?.ok()?;
    Ok(())
}
