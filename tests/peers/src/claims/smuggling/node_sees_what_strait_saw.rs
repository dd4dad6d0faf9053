//! Node never sees two requests where Strait saw one.

use anyhow::Result;

use super::table::{self, Bodies};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::node::Node;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Node], holds };

fn holds(lab: &Lab) -> Result<()> {
    let node = Node::start(lab)?;
    table::try_all(lab, node.address(), Bodies::ReadFirst, || node.output())
}
