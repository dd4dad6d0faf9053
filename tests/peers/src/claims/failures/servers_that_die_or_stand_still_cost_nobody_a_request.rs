//! nginx, HAProxy and Go's server are killed, stand still and come back, one after the other, while wrk and h2load run: not one
//! error.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{becomes_healthy, becomes_unhealthy, expect_no_error_of_wrk, forwarding_to};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::ports;
use crate::process::Process;
use crate::strait::{Strait, local};

pub(super) const CLAIM: Claim = Claim {
    module: module_path!(),
    needs: &[Peer::Nginx, Peer::Haproxy, Peer::GoServer, Peer::Wrk, Peer::H2load],
    holds,
};

/// A server that can be started again where it was, one process without children.
struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    address: SocketAddr,
}

impl Server {
    fn start(&self, lab: &Lab) -> Result<Process> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut process = Process::start(lab.folder(), &self.program, &arguments)?;
        process.ready(|| TcpStream::connect(self.address).is_ok())?;
        Ok(process)
    }
}

fn nginx(lab: &Lab) -> Result<Server> {
    let address = local(ports::free()?);
    let http = format!("server {{ listen {address}; location / {{ return 200 nginx; }} }}");
    let mut arguments = Nginx::arguments(lab, &http)?;
    if let Some(directives) = arguments.last_mut() {
        directives.push_str(" master_process off;");
    }
    Ok(Server { program: Nginx::program()?, arguments, address })
}

fn haproxy(lab: &Lab) -> Result<Server> {
    let address = local(ports::free()?);
    let config = format!(
        "defaults\n  mode http\n  timeout client 30s\nfrontend all\n  bind {address}\n  http-request return status 200 content-type text/plain string haproxy\n"
    );
    let file = lab.write("haproxy.cfg", config)?;
    let arguments = ["-db", "-f", &file.to_string_lossy()].map(str::to_owned).into();
    let program = Peer::Haproxy.program().context("haproxy")?;
    Ok(Server { program, arguments, address })
}

fn go() -> Result<Server> {
    let address = local(ports::free()?);
    let program = Peer::GoServer.program().context("h2server")?;
    Ok(Server { program, arguments: vec![address.port().to_string()], address })
}

fn holds(lab: &Lab) -> Result<()> {
    let servers = [nginx(lab)?, haproxy(lab)?, go()?];
    let mut running = Vec::new();
    for server in &servers {
        running.push(server.start(lab)?);
    }
    let addresses = servers.each_ref().map(|server| server.address);
    let strait = Strait::configured(lab, &forwarding_to(&addresses))?;
    for server in &servers {
        becomes_healthy(&strait, server.address)?;
    }
    let url = strait.url("/");
    let mut wrk = Process::start(lab.folder(), "wrk", &["-t1", "-c16", "-d20s", &url])?;
    let mut h2load = Process::start(lab.folder(), "h2load", &["-c2", "-m4", "-D20", &url])?;
    for (server, process) in servers.iter().zip(&mut running) {
        process.signal(Signal::KILL)?;
        becomes_unhealthy(&strait, server.address, "")?;
        _ = process.wait(Duration::from_secs(10))?;
        *process = server.start(lab)?;
        becomes_healthy(&strait, server.address)?;
        process.signal(Signal::STOP)?;
        becomes_unhealthy(&strait, server.address, "no answer")?;
        process.signal(Signal::CONT)?;
        becomes_healthy(&strait, server.address)?;
    }
    ensure!(wrk.is_running(), "wrk ended before the last change");
    ensure!(wrk.wait(Duration::from_secs(40))?.success(), "{}", wrk.output());
    expect_no_error_of_wrk(&wrk.output())?;
    ensure!(h2load.wait(Duration::from_secs(40))?.success(), "{}", h2load.output());
    let printed = h2load.output();
    let is_clean = printed.contains(" 0 failed, 0 errored, 0 timeout")
        && printed.contains(" 0 3xx, 0 4xx, 0 5xx");
    ensure!(is_clean, "{printed}");
    Ok(())
}
