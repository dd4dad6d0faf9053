//! A hundred processes take each other's place while gRPC's Go library has streams in both directions open: none breaks, and no
//! connection is opened anew, to Strait or to the service.

use anyhow::{Context as _, Result, ensure};

use super::{handover, upgrade_often};
use crate::claim::Claim;
use crate::claims::grpc;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::GrpcStreams, Peer::GrpcServer], holds };

fn holds(lab: &Lab) -> Result<()> {
    let server = grpc::Server::start(lab)?;
    let file = handover(lab);
    let options = Options { cluster: "protocol: http2", file: &file, ..Options::default() };
    let strait = Strait::forwarding_to(lab, server.address, options)?;
    let program = Peer::GrpcStreams.program().context("the client")?;
    let arguments = [&*strait.address().to_string(), "4", "8"];
    let (mut client, input) = Process::start_with_input(lab.folder(), program, &arguments)?;
    wait::until("all streams", wait::SOON, || {
        strait.metric("strait_exchanges_active").is_ok_and(|active| active == 32.0)
    })?;
    let upstreams = strait.metric("strait_upstream_connections_opened_total")?;
    upgrade_often(lab, &strait)?;
    ensure!(client.is_running(), "{}", client.output());
    let active = strait.metric("strait_exchanges_active")?;
    ensure!(active == 32.0, "{active} streams are open");
    drop(input);
    ensure!(client.wait(wait::SOON)?.success(), "{}", client.output());
    let output = client.output();
    ensure!(output.contains("connections 4,") && output.contains("calls 32, failed 0"), "{output}");
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened == 4.0, "{opened} connections");
    let now = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!(now == upstreams, "{now} upstream connections, and {upstreams} before");
    let finished = strait.metric("strait_exchanges_finished_total")?;
    ensure!(finished == 32.0, "{finished} exchanges");
    Ok(())
}
