//! Java's own client and the files that it keeps certificates in, and SOFARPC.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::pki::Pair;
use crate::ports;
use crate::process::{Finished, Process};
use crate::strait::local;

const FETCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/Fetch.java");

const OFTEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/Often.java");

/// Of the files; the clients know it.
const PASSWORD: &str = "nothing secret";

/// Has `java.net.http` send bodies to `/echo` of a server with this name and a certificate from
/// `ca.pem`, and show a certificate if it is given one.
pub(crate) fn fetch(
    lab: &Lab,
    server: SocketAddr,
    name: &str,
    own: Option<&Pair>,
) -> Result<Finished> {
    let (hosts, url) = echo(lab, server, name)?;
    let mut arguments = vec![&*hosts, FETCH, &*url, trust(lab)?];
    if let Some(own) = own {
        arguments.push(wrap(lab, own)?);
    }
    lab.run("java", &arguments)
}

/// Has `java.net.http` send bodies to the same place again and again, over HTTP/1.1 and HTTP/2, until the pipe is closed. It has
/// begun once this returns.
pub(crate) fn ask_often(
    lab: &Lab,
    server: SocketAddr,
    name: &str,
) -> Result<(Process, ChildStdin)> {
    let (hosts, url) = echo(lab, server, name)?;
    let arguments = [&*hosts, OFTEN, &*url, trust(lab)?];
    let (mut process, input) = Process::start_with_input(lab.folder(), "java", &arguments)?;
    let output = process.output_file().to_owned();
    let has_begun = || std::fs::read_to_string(&output).is_ok_and(|text| text.contains("begun"));
    process.ready(has_begun)?;
    Ok((process, input))
}

/// Where bodies come back from a server of this name, and the option for Java that says where it is.
fn echo(lab: &Lab, server: SocketAddr, name: &str) -> Result<(String, String)> {
    let hosts = lab.write("hosts", format!("{} {name}\n", server.ip()))?;
    let hosts = format!("-Djdk.net.hosts.file={}", hosts.to_string_lossy());
    Ok((hosts, format!("https://{name}:{}/echo", server.port())))
}

/// Writes `trusted.p12`, with what `ca.pem` holds.
fn trust(lab: &Lab) -> Result<&'static str> {
    let file = "trusted.p12";
    _ = std::fs::remove_file(lab.folder().join(file));
    let import = ["-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem"];
    let store = ["-keystore", file, "-storetype", "PKCS12", "-storepass", PASSWORD];
    lab.run("keytool", &[&import[..], &store].concat())?.ok().context("keytool")?;
    Ok(file)
}

/// Writes `own.p12`, with a certificate and its key.
fn wrap(lab: &Lab, pair: &Pair) -> Result<&'static str> {
    let (chain, key) = (pair.chain.to_string_lossy(), pair.key.to_string_lossy());
    let (file, password) = ("own.p12", format!("pass:{PASSWORD}"));
    let export = ["pkcs12", "-export", "-in", &chain, "-inkey", &key, "-out", file];
    lab.run("openssl", &[&export[..], &["-passout", &password]].concat())?.ok()?;
    Ok(file)
}

const SOFA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/java/Sofa.java");
const SOFA_LIBRARIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/java/pom.xml");

/// How long Maven may take for a hundred libraries, and the compiler on a busy machine.
const FETCH_PATIENCE: Duration = Duration::from_secs(200);

/// How long the client may take for its calls, and for its pauses among them.
const CALLS_PATIENCE: Duration = Duration::from_secs(120);

/// SOFARPC's client and server, compiled.
#[derive(Debug)]
pub(crate) struct Sofa {
    /// The libraries and the classes.
    class_path: String,
}

/// A running server of SOFARPC.
#[derive(Debug)]
pub(crate) struct SofaServer {
    _process: Process,
    address: SocketAddr,
}

impl SofaServer {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Sofa {
    /// Fetches the libraries, which are kept in the build folder, and compiles both.
    pub(crate) fn build(lab: &Lab) -> Result<Self> {
        let libraries = libraries().context("the build folder")?;
        let folder = format!("-DoutputDirectory={}", libraries.to_string_lossy());
        let fetch = ["-q", "-B", "-f", SOFA_LIBRARIES, "dependency:copy-dependencies", &folder];
        Process::run(lab.folder(), "mvn", &fetch, FETCH_PATIENCE)?.ok().context("mvn")?;
        let classes = lab.folder().join("classes");
        let class_path = format!("{}/*:{}", libraries.to_string_lossy(), classes.to_string_lossy());
        let compile = ["-nowarn", "-cp", &class_path, "-d", &classes.to_string_lossy(), SOFA];
        Process::run(lab.folder(), "javac", &compile, FETCH_PATIENCE)?.ok().context("javac")?;
        Ok(Self { class_path })
    }

    /// Starts a server that says this name.
    pub(crate) fn serve(&self, lab: &Lab, name: &str) -> Result<SofaServer> {
        let address = local(ports::free()?);
        let port = address.port().to_string();
        let arguments = self.arguments(&["serve", &port, name]);
        let mut process = Process::start(lab.folder(), "java", &arguments)?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(SofaServer { _process: process, address })
    }

    /// Makes all calls through what listens at `address`; an error if one has a wrong answer.
    pub(crate) fn call(&self, lab: &Lab, address: SocketAddr) -> Result<String> {
        let port = address.port().to_string();
        let arguments = self.arguments(&["call", &port]);
        Process::run(lab.folder(), "java", &arguments, CALLS_PATIENCE)?.ok()
    }

    fn arguments<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let machine = [
            "-cp",
            &*self.class_path,
            // Its serialization looks into Java's own classes.
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            // In place of 15 s, so that an idle connection has some.
            "-Dbolt.tcp.heartbeat.interval=500",
            "Sofa",
        ];
        [&machine, words].concat()
    }
}

/// Beside this program, so that they go with the build folder.
fn libraries() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.parent().and_then(Path::parent).map(|target| target.join("peers-java"))
}
