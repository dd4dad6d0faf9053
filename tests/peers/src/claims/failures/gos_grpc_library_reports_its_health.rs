//! The health service of gRPC's Go library is understood in all that it says, and in its silence.

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use std::net::TcpStream;

use super::{becomes_healthy, becomes_unhealthy, checked};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Strait, local};
use crate::{ports, wait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::GrpcHealth], holds };

fn holds(lab: &Lab) -> Result<()> {
    let address = local(ports::free()?);
    let program = Peer::GrpcHealth.program().context("health")?;
    let listen = address.to_string();
    let start = || -> Result<Process> {
        let mut server = Process::start(lab.folder(), &program, &[&listen])?;
        server.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(server)
    };
    let server = start()?;
    let pace = "interval: 100ms, interval_quiet: 100ms, timeout: 500ms, healthy: 1, unhealthy: 1";
    let cluster = |name: &str, service: &str| {
        format!(
            "  - name: {name}\n    protocol: http2\n    endpoints: [\"{address}\"]\n    checks: [{{ grpc: {{ {service} }}, {pace} }}]\n"
        )
    };
    let config = [
        "listeners: [{ name: edge, address: \"LISTEN\", routes: all }]\n\
         routes: [{ name: all, rules: [{ match: { prefix: / }, clusters: [{ cluster: api, weight: 1 }, { cluster: server, weight: 1 }, { cluster: other, weight: 1 }] }] }]\n\
         clusters:\n",
        &cluster("api", "service: api"),
        &cluster("server", ""),
        &cluster("other", "service: other"),
    ];
    let strait = Strait::configured(lab, &config.concat())?;
    let of_others =
        || Ok::<_, anyhow::Error>([checked(&strait, 1, address)?, checked(&strait, 2, address)?]);
    becomes_healthy(&strait, address)?;
    wait::until("a verdict of the others", wait::SOON, || {
        of_others().is_ok_and(|all| all.iter().all(|(state, _)| state != "unknown"))
    })?;
    let [(server_state, _), (state, reason)] = of_others()?;
    ensure!(server_state == "healthy", "the server itself is {server_state}");
    ensure!(state == "unhealthy" && reason.contains("NOT_FOUND"), "{state}: {reason}");

    server.signal(Signal::USR1)?;
    becomes_unhealthy(&strait, address, "NOT_SERVING")?;
    server.signal(Signal::USR2)?;
    becomes_healthy(&strait, address)?;
    server.signal(Signal::STOP)?;
    becomes_unhealthy(&strait, address, "no answer after 500ms")?;
    server.signal(Signal::CONT)?;
    becomes_healthy(&strait, address)?;
    drop(server);
    becomes_unhealthy(&strait, address, "")?;
    wait::until("the reason of a refused connection", wait::SOON, || {
        checked(&strait, 0, address).is_ok_and(|(_, reason)| reason.contains("ECONNREFUSED"))
    })?;
    let _server = start()?;
    becomes_healthy(&strait, address)
}
