//! HAProxy never sees two requests where Strait saw one.

use anyhow::Result;

use super::table::{self, Bodies};
use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Haproxy], holds };

fn holds(lab: &Lab) -> Result<()> {
    let haproxy = Haproxy::start(
        lab,
        "  bind LISTEN
  http-request return status 200 content-type text/plain lf-string \"%[pathq]\"",
    )?;
    table::try_all(lab, haproxy.address(), Bodies::AnsweredUnread, || haproxy.output())
}
