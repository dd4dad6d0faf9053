//! Cookies that HTTP/2 cuts into fields reach the upstream in one.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: super::NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    super::holds_for(lab, "cookies", super::ALL)
}
