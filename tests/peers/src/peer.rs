//! The real programs, and where they come from.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{python, say};

/// A program that Strait is tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The client that everybody has.
    Curl,
    /// The compiler of the `net/http` upstream.
    Go,
    /// Load, with exact counts.
    H2load,
    /// As upstream and in front.
    Haproxy,
    /// As upstream and in front.
    Nginx,
    /// The upstream with Node's parser.
    Node,
    /// Makes certificates.
    Openssl,
    /// Reads the metrics.
    Promtool,
    /// With `venv`: makes the environment of the WebSocket suite.
    Python,
    /// The WebSocket suite and its server.
    WebSocketSuite,
    /// Slow clients of three kinds.
    Slowhttptest,
    /// Load, as fast as it goes.
    Wrk,
}

/// Where a peer comes from.
enum Source {
    /// A package of Debian.
    Debian(&'static str),
    /// The packages of `python.txt`, in an environment of their own.
    PythonEnvironment,
}

impl Peer {
    /// In the order in which they are installed.
    const ALL: [Self; 12] = [
        Self::Curl,
        Self::Go,
        Self::H2load,
        Self::Haproxy,
        Self::Nginx,
        Self::Node,
        Self::Openssl,
        Self::Promtool,
        Self::Python,
        Self::Slowhttptest,
        Self::Wrk,
        Self::WebSocketSuite,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Go => "go",
            Self::H2load => "h2load",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Node => "node",
            Self::Openssl => "openssl",
            Self::Promtool => "promtool",
            Self::Python => "python3",
            Self::Slowhttptest => "slowhttptest",
            Self::WebSocketSuite => "kosoku",
            Self::Wrk => "wrk",
        }
    }

    /// Where its program is, if it is installed.
    pub(crate) fn program(self) -> Option<PathBuf> {
        match self.source() {
            Source::PythonEnvironment => python::environment_program(self.name()),
            Source::Debian(_) => on_path(self.name()),
        }
    }

    pub(crate) fn is_installed(self) -> bool {
        match self {
            Self::Python => python::makes_environments(),
            _ => self.program().is_some(),
        }
    }

    /// The command that installs it.
    pub(crate) fn how_to_install(self) -> String {
        match self.source() {
            Source::Debian(package) => format!("apt-get install {package}"),
            Source::PythonEnvironment => python::how_to_install(),
        }
    }

    fn source(self) -> Source {
        match self {
            Self::Curl => Source::Debian("curl"),
            Self::Go => Source::Debian("golang-go"),
            Self::H2load => Source::Debian("nghttp2-client"),
            Self::Haproxy => Source::Debian("haproxy"),
            Self::Nginx => Source::Debian("nginx"),
            Self::Node => Source::Debian("nodejs"),
            Self::Openssl => Source::Debian("openssl"),
            Self::Promtool => Source::Debian("prometheus"),
            Self::Python => Source::Debian("python3-venv"),
            Self::Slowhttptest => Source::Debian("slowhttptest"),
            Self::WebSocketSuite => Source::PythonEnvironment,
            Self::Wrk => Source::Debian("wrk"),
        }
    }
}

/// Installs what is missing: Debian's packages as root, Python's as anybody. What cannot be
/// installed is named with its command; the claims that need it will say so, too.
pub(crate) fn install() {
    let packages: Vec<&str> = Peer::ALL
        .into_iter()
        .filter(|peer| !peer.is_installed())
        .filter_map(|peer| match peer.source() {
            Source::Debian(package) => Some(package),
            Source::PythonEnvironment => None,
        })
        .collect();
    if !packages.is_empty() {
        install_packages(&packages);
    }
    if !Peer::WebSocketSuite.is_installed() && Peer::Python.is_installed() {
        python::install_environment();
    }
}

fn install_packages(packages: &[&str]) {
    if !rustix::process::geteuid().is_root() || on_path("apt-get").is_none() {
        say::line(format_args!("missing; as root: apt-get install {}", packages.join(" ")));
        return;
    }
    run("apt-get", &["update", "-qq"]);
    let options = ["install", "-y", "-qq", "--no-install-recommends"];
    run("apt-get", &[&options, packages].concat());
}

/// Runs a command that installs something, printed first. A failure shows in the claims.
pub(crate) fn run(program: &str, arguments: &[&str]) {
    say::line(format_args!("$ {program} {}", arguments.join(" ")));
    let status = Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Packages of servers start them once installed; not at this run level.
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => say::line(format_args!("{program}: {status}")),
        Err(error) => say::line(format_args!("{program}: {error}")),
    }
}

/// Looks for `program` where a shell would, and where Debian puts servers.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|path| Path::is_file(path))
}
