//! h2load sends an exact number of requests over HTTP/1.1; each succeeds, each is counted once.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2load, Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    let nginx = Nginx::start(lab, super::SMALL)?;
    let strait = Strait::in_front_of(lab, nginx.address())?;
    let options = ["--h1", "-n", "30000", "-c", "50", "-t", "1"];
    let url = strait.url("/");
    let printed = lab.run("h2load", &[&options[..], &[&url]].concat())?.ok()?;
    ensure!(printed.contains("30000 succeeded, 0 failed, 0 errored, 0 timeout"), "{printed}");
    wait::until("all to be counted", wait::SOON, || {
        strait.metric("strait_exchanges_finished_total").is_ok_and(|count| count == 30_000.0)
    })?;
    let faults = strait.metric("strait_exchange_causes_total")?;
    ensure!(faults == 0.0, "{faults} exchanges ended with a cause");
    let seen = std::fs::read_to_string(lab.folder().join("nginx.log"))?.lines().count();
    ensure!(seen == 30_000, "nginx saw {seen}");
    Ok(())
}
