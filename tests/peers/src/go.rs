//! What is built with Go: an upstream on `net/http`, and the programs of a Go module that pins
//! other people's with all that they are made of.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::peer::Peer;
use crate::pki::Pair;
use crate::process::Process;
use crate::strait::local;
use crate::{peer, ports};

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/go");

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

/// The upstream that speaks HTTP/1.1 and HTTP/2 on one port.
#[derive(Debug)]
pub(crate) struct GoHttp2 {
    process: Process,
    address: SocketAddr,
}

impl GoHttp2 {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        Self::start_with(lab, &[])
    }

    /// Within TLS, for clients with a certificate from the CA in the file `clients`.
    pub(crate) fn start_secured(lab: &Lab, pair: &Pair, clients: &str) -> Result<Self> {
        let (chain, key) = (pair.chain.to_string_lossy(), pair.key.to_string_lossy());
        Self::start_with(lab, &[&chain, &key, clients])
    }

    fn start_with(lab: &Lab, files: &[&str]) -> Result<Self> {
        let address = local(ports::free()?);
        let program = Peer::GoServer.program().context("h2server")?;
        let port = address.port().to_string();
        let mut process = Process::start(lab.folder(), program, &[&[&*port], files].concat())?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it saw so far: `VERSION METHOD TARGET` a line.
    pub(crate) fn output(&self) -> String {
        self.process.output()
    }
}

/// A program of the module, if it was built after the last change to what it is built from.
pub(crate) fn module_program(name: &str) -> Option<PathBuf> {
    let path = programs()?.join(name);
    let built = path.metadata().ok()?.modified().ok()?;
    (newest(Path::new(MODULE))? <= built).then_some(path)
}

/// Builds a program of the module.
pub(crate) fn build_module_program(name: &str, package: &str) {
    let Some(path) = programs().map(|folder| folder.join(name)) else { return };
    // Go leaves alone what it need not link again, its time included.
    _ = std::fs::remove_file(&path);
    let build = ["build", "-buildvcs=false", "-o", &path.to_string_lossy(), package];
    peer::run_in(Path::new(MODULE), "go", &build);
}

/// The command that builds the module's programs.
pub(crate) fn how_to_install() -> String {
    "cargo xtask test peers (builds it with Go)".to_owned()
}

/// Beside this program, so that they go with the build folder.
fn programs() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.parent().and_then(Path::parent).map(|target| target.join("peers-go"))
}

/// When a folder's files last changed.
fn newest(folder: &Path) -> Option<SystemTime> {
    std::fs::read_dir(folder)
        .ok()?
        .filter_map(Result::ok)
        .filter_map(|entry| match entry.file_type().ok()?.is_dir() {
            true => newest(&entry.path()),
            false => entry.metadata().ok()?.modified().ok(),
        })
        .max()
}
