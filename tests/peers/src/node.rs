//! The upstream on Node's parser.

use std::net::{SocketAddr, TcpStream};

use anyhow::Result;

use crate::lab::Lab;
use crate::ports;
use crate::process::Process;
use crate::strait::local;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/upstream.js");

/// The running upstream.
#[derive(Debug)]
pub(crate) struct Node {
    process: Process,
    address: SocketAddr,
}

impl Node {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let address = local(ports::free()?);
        let port = address.port().to_string();
        let mut process = Process::start(lab.folder(), "node", &[SOURCE, &port])?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it saw so far: `METHOD TARGET` a line.
    pub(crate) fn output(&self) -> String {
        self.process.output()
    }
}
