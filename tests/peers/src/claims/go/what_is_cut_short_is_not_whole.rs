//! A response that its upstream breaks off is an error to the client, in every version.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: super::NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    super::holds_for(lab, "breaks", super::ALL)
}
