//! The upstream on Go's `net/http`.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::ports;
use crate::process::Process;
use crate::strait::local;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/upstream.go");

/// A cold build compiles the standard library, too.
const BUILD_PATIENCE: Duration = Duration::from_secs(180);

/// The running upstream.
#[derive(Debug)]
pub(crate) struct Go {
    process: Process,
    address: SocketAddr,
}

impl Go {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let address = local(ports::free()?);
        let build = ["build", "-o", "upstream-go", SOURCE];
        Process::run(lab.folder(), "go", &build, BUILD_PATIENCE)?.ok().context("go build")?;
        let program = lab.folder().join("upstream-go");
        let port = address.port().to_string();
        let mut process = Process::start(lab.folder(), program, &[&port])?;
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
