//! Each side may wait for the other's next piece, if its upstream can do that, as HTTP/2 can.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: super::NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    super::holds_for(lab, "talk", super::TO_HTTP2)
}
