//! An idle tunnel is closed after its own timeout, and counted.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let options = Options { listener: "timeouts: { tunnel_idle: 500ms }", ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let mut client = Client::connect(strait.address())?;
    client.send(super::UPGRADE)?;
    let response = client.response()?;
    ensure!(response.status == 101, "{}", response.head);
    client.expect_close()?;
    let page = strait.admin("/metrics")?.text();
    let counted = page
        .lines()
        .any(|line| line.contains("cause=\"tunnel_idle_timeout\"") && !line.ends_with(" 0"));
    ensure!(counted, "no such cause in the metrics");
    Ok(())
}
