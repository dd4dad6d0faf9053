//! A request that waits for its upstream when SIGTERM comes is answered, with `connection: close`.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let mut strait = Strait::in_front_of(lab, origin.address())?;
    let mut client = Client::connect(strait.address())?;
    client.send("GET /hold HTTP/1.1\r\nhost: here\r\n\r\n")?;
    wait::until("the upstream to hold", wait::SOON, || origin.waiting() == 1)?;
    strait.terminate()?;
    wait::until("the port to close", wait::SOON, || Client::connect(strait.address()).is_err())?;
    origin.release();
    let response = client.response()?;
    ensure!(response.status == 200, "{}", response.head);
    ensure!(response.field("connection") == Some("close"), "{}", response.head);
    client.expect_close()?;
    strait.expect_clean_end(wait::SOON)
}
