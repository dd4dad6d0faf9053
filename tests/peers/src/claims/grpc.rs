//! gRPC's own interoperability tests.

mod nginx_may_stand_in_front;
mod the_interop_client_cannot_tell;

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::ports;
use crate::process::Process;
use crate::strait::local;

pub(super) const CLAIMS: &[Claim] =
    &[the_interop_client_cannot_tell::CLAIM, nginx_may_stand_in_front::CLAIM];

/// Those that need neither TLS nor credentials of a cloud provider, and that the server supports:
/// `pick_first_unary` needs a server that sends its id.
const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "rpc_soak",
    "channel_soak",
];

/// The interoperability server.
#[derive(Debug)]
pub(super) struct Server {
    _process: Process,
    pub(super) address: SocketAddr,
}

impl Server {
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        let address = local(ports::free()?);
        let program = Peer::GrpcServer.program().context("the interop server")?;
        let port = format!("-port={}", address.port());
        let mut process = Process::start(lab.folder(), program, &[&port])?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { _process: process, address })
    }
}

/// Runs one case against a server.
fn holds_for(lab: &Lab, case: &str, server: SocketAddr) -> Result<()> {
    let program = Peer::GrpcClient.program().context("the interop client")?;
    let port = format!("-server_port={}", server.port());
    let case = format!("-test_case={case}");
    let arguments = ["-server_host=127.0.0.1", &port, &case, LOAD_REPORTS, SOAK, SOAK_PATIENCE];
    lab.run(&program.to_string_lossy(), &arguments)?.ok().context(case)?;
    Ok(())
}

/// Calls of each case that makes the same one over and over, and what each may take on a machine
/// that does something else beside.
const SOAK: &str = "-soak_iterations=20";
const SOAK_PATIENCE: &str = "-soak_per_iteration_max_acceptable_latency_ms=5000";

/// The cases about load reports want this balancer, the others do not mind.
const LOAD_REPORTS: &str = concat!(
    "-service_config_json=",
    r#"{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}"#
);
