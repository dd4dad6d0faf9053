//! Python's packages, in an environment of their own below the build folder.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::process::Process;
use crate::strait::local;
use crate::{peer, ports};

/// Exact versions and hashes. If one of these cannot be installed here, the other may be.
const REQUIREMENTS: [&str; 3] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/python.txt"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/sslyze.txt"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/envoy.txt"),
];

const CUT_OFF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/cut_off.py");
const ECHO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/echo.py");
const ECHO_HTTP2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/echo_http2.py");
const ENVOY_FAILURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/envoy_failures.py");
const ENVOY_ROUTES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/envoy_routes.py");
const KEEP_TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/keep_tls.py");
const SPEAK_TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/speak_tls.py");
const TALK_HTTP2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/talk_http2.py");

/// A program of the environment, if it is there.
pub(crate) fn environment_program(name: &str) -> Option<PathBuf> {
    let path = environment()?.join("bin").join(name);
    path.is_file().then_some(path)
}

/// Whether Python is there with all that `venv` needs, which Debian puts into a package of its own.
pub(crate) fn makes_environments() -> bool {
    let check = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    check.is_ok_and(|check| check.status.success())
}

/// The commands that make the environment.
pub(crate) fn how_to_install() -> String {
    "cargo xtask test peers (makes a Python environment)".to_owned()
}

/// Makes the environment.
pub(crate) fn install_environment() {
    let Some(environment) = environment() else { return };
    let folder = environment.to_string_lossy();
    peer::run("python3", &["-m", "venv", &folder]);
    let pip = environment.join("bin/pip");
    let options = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes"];
    for requirements in REQUIREMENTS {
        peer::run(&pip.to_string_lossy(), &[&options[..], &["-r", requirements]].concat());
    }
}

/// Beside this program, so that it goes with the build folder.
fn environment() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.parent().and_then(Path::parent).map(|target| target.join("peers-python"))
}

/// The WebSocket server that sends back what it gets.
#[derive(Debug)]
pub(crate) struct Echo {
    _process: Process,
    address: SocketAddr,
}

impl Echo {
    /// Over HTTP/1.1.
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        Self::start_script(lab, ECHO)
    }

    /// Over HTTP/1.1 and HTTP/2. It leaves the end of a stream to its client.
    pub(crate) fn start_with_http2(lab: &Lab) -> Result<Self> {
        Self::start_script(lab, ECHO_HTTP2)
    }

    fn start_script(lab: &Lab, script: &str) -> Result<Self> {
        let address = local(ports::free()?);
        let python = environment_program("python3").context("the Python environment")?;
        let port = address.port().to_string();
        let mut process = Process::start(lab.folder(), python, &[script, &port])?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { _process: process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Opens so many WebSockets at once on one connection of HTTP/2; they end with `finish` or `reset`.
pub(crate) fn talk_over_http2(
    lab: &Lab,
    server: SocketAddr,
    streams: u32,
    end: &str,
) -> Result<()> {
    let python = environment_program("python3").context("the Python environment")?;
    let (port, streams) = (server.port().to_string(), streams.to_string());
    lab.run(&python.to_string_lossy(), &[TALK_HTTP2, &port, &streams, end])?.ok()?;
    Ok(())
}

/// Has Strait and Envoy route the same requests by the same tables, which follow from a seed; what the script printed.
pub(crate) fn compare_routes(lab: &Lab, seed: u64, tables: u32, requests: u32) -> Result<String> {
    let envoy = environment_program("envoy").context("the Python environment")?;
    let (strait, envoy) = (lab.strait.to_string_lossy(), envoy.to_string_lossy());
    let (seed, tables, requests) = (seed.to_string(), tables.to_string(), requests.to_string());
    lab.run("python3", &[ENVOY_ROUTES, &strait, &envoy, ".", &seed, &tables, &requests])?.ok()
}

/// Has services fail in the same ways behind Strait and behind Envoy, by scripts that follow from a seed; what the script printed.
pub(crate) fn compare_failures(lab: &Lab, seed: u64, scripts: u32) -> Result<String> {
    let envoy = environment_program("envoy").context("the Python environment")?;
    let (strait, envoy) = (lab.strait.to_string_lossy(), envoy.to_string_lossy());
    let (seed, scripts) = (seed.to_string(), scripts.to_string());
    lab.run("python3", &[ENVOY_FAILURES, &strait, &envoy, ".", &seed, &scripts])?.ok()
}

/// Has Python's own `ssl` speak to a server that is shop.example by the word of `ca.pem`, in the way
/// that the script names; what it prints.
pub(crate) fn speak_tls(lab: &Lab, server: SocketAddr, how: &[&str]) -> Result<String> {
    let port = server.port().to_string();
    lab.run("python3", &[&[SPEAK_TLS, &port, "ca.pem"], how].concat())?.ok()
}

/// Has Python's own `ssl` open so many connections of TLS 1.3 and of 1.2 to a server that is shop.example by the word of `ca.pem`. It
/// prints "open", asks on all of them for each line of its input, and prints "answered" and how many were.
pub(crate) fn keep_tls(
    lab: &Lab,
    server: SocketAddr,
    newer: usize,
    older: usize,
) -> Result<(Process, ChildStdin)> {
    let (port, newer, older) = (server.port().to_string(), newer.to_string(), older.to_string());
    Process::start_with_input(lab.folder(), "python3", &[KEEP_TLS, &port, "ca.pem", &newer, &older])
}

/// A way to a server on which every other connection is cut off.
#[derive(Debug)]
pub(crate) struct CutOff {
    _process: Process,
    address: SocketAddr,
}

impl CutOff {
    pub(crate) fn start(lab: &Lab, server: SocketAddr) -> Result<Self> {
        let address = local(ports::free()?);
        let (port, server) = (address.port().to_string(), server.port().to_string());
        let mut process = Process::start(lab.folder(), "python3", &[CUT_OFF, &port, &server])?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { _process: process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
