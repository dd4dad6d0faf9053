//! A client that says it has sent everything still gets all that comes back, then the end.

use std::io::Write as _;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::Pattern;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let mut client = Client::connect(strait.address())?;
    client.send(super::UPGRADE)?;
    let response = client.response()?;
    ensure!(response.status == 101, "{}", response.head);
    let mut sent = Vec::new();
    Pattern::new().write(&mut sent, 50_000)?;
    sent.write_all(b"end")?;
    client.send(&sent)?;
    client.finish()?;
    let back = client.read(sent.len())?;
    ensure!(back == sent, "other bytes came back");
    client.expect_close()
}
