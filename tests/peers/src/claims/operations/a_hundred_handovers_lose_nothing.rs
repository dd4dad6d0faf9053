//! A hundred processes take each other's place while clients of all kinds work: no client sees an error or connects anew, every byte is
//! the right one, and what clients counted, exchanges that finished and lines of the access log are as many.

use anyhow::Result;

use super::handover_load::{Load, while_clients_work};
use super::upgrade_often;
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    let load = Load { seconds: 40, body_bytes: 1 << 30 };
    while_clients_work(lab, &load, |strait| upgrade_often(lab, strait))
}
