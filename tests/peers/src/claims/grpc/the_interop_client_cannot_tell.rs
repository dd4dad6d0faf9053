//! Every case of gRPC's interoperability client passes through Strait as it does without it; what
//! it cancels leaves nothing behind, and all calls share one upstream connection.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::GrpcClient, Peer::GrpcServer], holds };

fn holds(lab: &Lab) -> Result<()> {
    let server = super::Server::start(lab)?;
    let options = Options { cluster: "protocol: http2", ..Options::default() };
    let strait = Strait::forwarding_to(lab, server.address, options)?;
    for case in super::CASES.iter().chain(&["orca_per_rpc", "orca_oob"]) {
        super::holds_for(lab, case, strait.address())?;
    }
    wait::until("all calls to end", wait::SOON, || {
        let started = strait.metric("strait_exchanges_started_total").unwrap_or(-1.0);
        strait.metric("strait_exchanges_finished_total").is_ok_and(|ended| ended == started)
    })?;
    let connects = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!(connects == 1.0, "{connects} upstream connections");
    Ok(())
}
