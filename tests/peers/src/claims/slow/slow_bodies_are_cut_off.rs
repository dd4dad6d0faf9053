//! R.U.D.Y.: clients that send a body byte by byte, ever more slowly, are answered 408 and closed, while others are served.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Slowhttptest], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let options = Options {
        listener: "timeouts: { request_head: 2s, request_body: 2s, response_write: 2s, idle: 60s }",
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;

    let attack = ["-B", "-c", "200", "-r", "200", "-i", "4", "-l", "8", "-s", "8192", "-u"];
    super::attack(lab, &strait, &attack, "/echo")?;
    let cut = super::cause(&strait, "request_body_timeout")?;
    ensure!(cut >= 150.0, "{cut} of 200 were cut off");

    let mut client = Client::connect(strait.address())?;
    client.send("POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\nslow")?;
    let response = client.response()?;
    ensure!(response.status == 408, "{}", response.head);
    client.expect_close()
}
