//! An answer in front of the end of a large body reaches a client of HTTP/2, and the connection
//! stays.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: super::NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    super::holds_for(lab, "early", super::FROM_HTTP2)
}
