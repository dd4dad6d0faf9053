//! Go's net/http never sees two requests where Strait saw one.

use anyhow::Result;

use super::table::{self, Bodies};
use crate::claim::Claim;
use crate::go::Go;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Go], holds };

fn holds(lab: &Lab) -> Result<()> {
    let go = Go::start(lab)?;
    table::try_all(lab, go.address(), Bodies::ReadFirst, || go.output())
}
