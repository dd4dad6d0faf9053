//! A thousand connections at once, each served, upstream connections reused.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2load, Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    let nginx = Nginx::start(lab, super::SMALL)?;
    let strait = Strait::in_front_of(lab, nginx.address())?;
    let options = ["--h1", "-n", "20000", "-c", "1000", "-t", "1"];
    let url = strait.url("/");
    let printed = lab.run("h2load", &[&options[..], &[&url]].concat())?.ok()?;
    ensure!(printed.contains("20000 succeeded, 0 failed, 0 errored, 0 timeout"), "{printed}");
    let connects = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!((1.0..=1024.0).contains(&connects), "{connects} upstream connections");
    Ok(())
}
