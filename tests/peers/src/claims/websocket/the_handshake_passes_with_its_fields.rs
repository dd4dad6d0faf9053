//! The upgrade and its fields reach the server, the answer reaches the client, then bytes flow both ways.

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
    client.send(super::UPGRADE)?;
    let response = client.response()?;
    ensure!(response.status == 101, "{}", response.head);
    ensure!(response.field("upgrade") == Some("websocket"), "{}", response.head);
    ensure!(response.field("connection").is_some(), "{}", response.head);
    for piece in ["one", "two", "three"] {
        client.send(piece)?;
        let back = client.read(piece.len())?;
        ensure!(back == piece.as_bytes(), "{back:?}");
    }
    Ok(())
}
