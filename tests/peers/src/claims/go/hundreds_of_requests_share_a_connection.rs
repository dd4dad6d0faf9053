//! Hundreds of requests at once on one connection get their own answers.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: super::NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    super::holds_for(lab, "many", super::ALL)
}
