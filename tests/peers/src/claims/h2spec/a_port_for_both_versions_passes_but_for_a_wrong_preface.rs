//! Where both versions share a port, whatever is not HTTP/2's preface is HTTP/1: its refusal has
//! the form that such a client reads, which h2spec, for one case, does not.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client::Client;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2spec, Peer::GoServer], holds };

fn holds(lab: &Lab) -> Result<()> {
    let server = GoHttp2::start(lab)?;
    let strait = Strait::in_front_of(lab, server.address())?;
    let printed = super::run(lab, strait.address())?;
    ensure!(printed.contains("146 tests, 145 passed, 0 skipped, 1 failed"), "{printed}");
    let (_, failures) = printed.split_once("Failures:").unwrap_or_default();
    ensure!(failures.contains("Sends invalid connection preface"), "{printed}");
    let mut client = Client::connect(strait.address())?;
    client.send("INVALID CONNECTION PREFACE\r\n\r\n")?;
    let refused = client.response()?;
    ensure!(refused.status == 400, "{}", refused.head);
    client.expect_close()
}
