//! HEAD, 204 and 304 have no body and keep the fields that describe it.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: super::NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    super::holds_for(lab, "statuses", super::ALL)
}
