//! A client that does not wait for the answer loses nothing of what it sent.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let mut client = Client::connect(strait.address())?;
    client.send(format!("{}early", super::UPGRADE))?;
    let response = client.response()?;
    ensure!(response.status == 101, "{}", response.head);
    let back = client.read(5)?;
    ensure!(back == b"early", "{back:?}");
    Ok(())
}
