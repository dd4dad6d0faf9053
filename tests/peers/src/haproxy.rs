//! HAProxy with one thread and the sections that a claim gives.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::peer::Peer;
use crate::ports;
use crate::process::Process;
use crate::strait::local;

/// A running HAProxy.
#[derive(Debug)]
pub(crate) struct Haproxy {
    process: Process,
    address: SocketAddr,
}

impl Haproxy {
    /// Starts one; `frontend` is what follows `frontend entrance`, with `LISTEN` for its address.
    /// It logs `METHOD TARGET` of each request to its output.
    pub(crate) fn start(lab: &Lab, frontend: &str) -> Result<Self> {
        let address = local(ports::free()?);
        let frontend = frontend.replace("LISTEN", &address.to_string());
        let config = format!(
            "global
  nbthread 1
  log stdout format raw local0
defaults
  mode http
  log global
  option dontlognull
  log-format \"%HM %HU\"
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend entrance
{frontend}
",
        );
        let file = lab.write("haproxy.cfg", config)?;
        let program = Peer::Haproxy.program().context("haproxy")?;
        let mut process =
            Process::start(lab.folder(), program, &["-db", "-f", &file.to_string_lossy()])?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it logged so far.
    pub(crate) fn output(&self) -> String {
        self.process.output()
    }
}
