//! Clients that do not read what they asked for hold no memory to speak of, and are cut off.

use anyhow::{Result, ensure};

use crate::claim::Claim;
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

    let attack = ["-X", "-c", "100", "-r", "100", "-w", "512", "-y", "1024", "-n", "5", "-z", "32"];
    let more = ["-k", "1", "-l", "9", "-u"];
    super::attack(lab, &strait, &[&attack[..], &more].concat(), "/bytes/20000000")?;
    let cut = super::cause(&strait, "response_write_timeout")?;
    ensure!(cut >= 75.0, "{cut} of 100 were cut off");
    Ok(())
}
