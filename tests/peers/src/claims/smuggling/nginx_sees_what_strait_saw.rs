//! nginx never sees two requests where Strait saw one.

use anyhow::Result;

use super::table::{self, Bodies};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    let http = "  server { listen LISTEN; location / { return 200 $request_uri; } }";
    let nginx = Nginx::start(lab, http)?;
    let log = lab.folder().join("nginx.log");
    let seen = || std::fs::read_to_string(&log).unwrap_or_default();
    table::try_all(lab, nginx.address(), Bodies::AnsweredUnread, seen)
}
