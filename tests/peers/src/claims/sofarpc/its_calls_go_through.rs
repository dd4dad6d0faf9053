//! Thousands of calls of SOFARPC's client reach two of its servers over one connection, and each gets its own
//! answer: long ones, exceptions, timeouts, futures, one-way calls, and calls behind heartbeats.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::java::Sofa;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Java, Peer::Maven], holds };

/// Calls that the client makes at least, of which one is timed out.
const CALLS_MIN: f64 = 10_000.0;

fn holds(lab: &Lab) -> Result<()> {
    let sofa = Sofa::build(lab)?;
    let (one, other) = (sofa.serve(lab, "one")?, sofa.serve(lab, "other")?);
    let options = Options {
        listener: "protocol: bolt",
        endpoints: &[other.address()],
        cluster: "protocol: bolt",
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, one.address(), options)?;
    sofa.call(lab, strait.address())?;
    let answered = strait.metric("strait_upstream_exchanges_total")?;
    ensure!(answered >= CALLS_MIN, "{answered} calls went through Strait");
    // Bolt's client gives a connection up whose heartbeats have no answer.
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened < 1.5, "{opened} connections of one client");
    let broken =
        strait.metric("strait_downstream_connections_ended_total{cause=\"rpc_invalid\"}")?;
    ensure!(broken < 0.5, "{broken} connections ended as no Bolt");
    Ok(())
}
