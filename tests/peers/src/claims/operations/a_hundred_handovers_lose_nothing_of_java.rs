//! A hundred processes take each other's place while Java's own client asks over TLS, HTTP/1.1 and HTTP/2: no request fails, every body
//! is the right one, and no connection is opened anew.

use anyhow::{Context as _, Result, ensure};

use super::{handover, upgrade_often};
use crate::claim::Claim;
use crate::claims::tls;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::{java, wait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Java], holds };

fn holds(lab: &Lab) -> Result<()> {
    tls::issue_site(lab)?;
    let (origin, file) = (Origin::start()?, handover(lab));
    let options = Options { listener: tls::SITE, file: &file, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let (mut client, input) = java::ask_often(lab, strait.address(), tls::NAME)?;
    let replaced = upgrade_often(lab, &strait);
    drop(input);
    let status = client.wait(wait::SOON)?;
    replaced.with_context(|| client.output())?;
    let output = client.output();
    ensure!(status.success() && output.contains(", failed 0"), "{output}");
    // One for each client of HTTP/1.1, and one that the others share.
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened == 5.0, "{opened} connections");
    let answered = output.lines().find_map(|line| line.strip_prefix("answered ")?.split_once(','));
    let answered: f64 = answered.context("Java counts")?.0.parse()?;
    // The first one, which opened the shared connection, is not among them.
    let finished = strait.metric("strait_exchanges_finished_total")?;
    ensure!(finished == answered + 1.0, "{finished} exchanges, and Java counted {answered}");
    Ok(())
}
