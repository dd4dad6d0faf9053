//! Strait, started with a configuration that fits on a screen.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::client::{self, Response};
use crate::lab::Lab;
use crate::process::Process;
use crate::{ports, wait};

/// A running Strait.
#[derive(Debug)]
pub(crate) struct Strait {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    file: PathBuf,
    access_log: PathBuf,
    /// Processes that take its place. They start others in their turn, which end with them.
    successors: RefCell<Vec<Process>>,
}

/// What differs from a plain forwarding configuration: lines of YAML in their places.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options<'o> {
    /// Of the listener, such as `proxy_protocol: true`.
    pub(crate) listener: &'o str,
    /// Further listeners.
    pub(crate) listeners: &'o str,
    /// Rules in front of the one that forwards everything.
    pub(crate) rules: &'o str,
    /// Further endpoints of the cluster.
    pub(crate) endpoints: &'o [SocketAddr],
    /// Of the cluster.
    pub(crate) cluster: &'o str,
    /// Of the file.
    pub(crate) file: &'o str,
}

impl Strait {
    /// Forwards everything to `upstream`.
    pub(crate) fn forwarding_to(
        lab: &Lab,
        upstream: SocketAddr,
        options: Options<'_>,
    ) -> Result<Self> {
        let address = local(ports::free()?);
        let admin = local(ports::free()?);
        let (config_file, access_log) = files(lab)?;
        let mut config = format!(
            "admin: {{ address: \"{admin}\" }}
workers: 1
listeners:
  - name: edge
    address: \"{address}\"
    routes: everything
",
        );
        push(&mut config, 4, options.listener);
        push(&mut config, 2, options.listeners);
        config.push_str(
            "routes:
  - name: everything
    hosts: [\"*\"]
    rules:
",
        );
        push(&mut config, 6, options.rules);
        config.push_str(
            "      - match: { prefix: / }
        cluster: upstream
clusters:
  - name: upstream
",
        );
        let endpoints = [upstream].into_iter().chain(options.endpoints.iter().copied());
        let endpoints: Vec<String> = endpoints.map(|address| format!("\"{address}\"")).collect();
        let endpoints = format!("endpoints: [{}]\n{}", endpoints.join(", "), options.cluster);
        push(&mut config, 4, &endpoints);
        push(&mut config, 0, options.file);
        push(
            &mut config,
            0,
            &format!("access_log: {{ output: \"{}\", format: json }}", access_log.display()),
        );
        let file = lab.write(&config_file, config)?;
        Self::start(lab, file, (address, admin), access_log)
    }

    /// Runs this configuration, with `LISTEN` for the address of its listener.
    pub(crate) fn configured(lab: &Lab, config: &str) -> Result<Self> {
        let (address, admin) = (local(ports::free()?), local(ports::free()?));
        let (config_file, access_log) = files(lab)?;
        let config = format!(
            "admin: {{ address: \"{admin}\" }}\nworkers: 1\n\
             access_log: {{ output: \"{}\", format: json }}\n{}",
            access_log.display(),
            config.replace("LISTEN", &address.to_string())
        );
        let file = lab.write(&config_file, config)?;
        Self::start(lab, file, (address, admin), access_log)
    }

    fn start(
        lab: &Lab,
        file: PathBuf,
        (address, admin): (SocketAddr, SocketAddr),
        access_log: PathBuf,
    ) -> Result<Self> {
        let arguments = ["run", "-c", &file.to_string_lossy()];
        let mut process = Process::start(lab.folder(), &lab.strait, &arguments)?;
        process.ready(|| client::get(admin, "/ready").is_ok_and(|ready| ready.status == 200))?;
        Ok(Self { process, address, admin, file, access_log, successors: RefCell::default() })
    }

    /// Forwards everything to `upstream`, with defaults.
    pub(crate) fn in_front_of(lab: &Lab, upstream: SocketAddr) -> Result<Self> {
        Self::forwarding_to(lab, upstream, Options::default())
    }

    /// Has a process that takes its place end with it.
    pub(crate) fn own(&self, successor: Process) {
        self.successors.borrow_mut().push(successor);
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of the listener.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Where the admin interface is.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Asks the admin interface.
    pub(crate) fn admin(&self, path: &str) -> Result<Response> {
        client::get(self.admin, path)
    }

    /// Sum over all labels of one metric; 0 if it is not there.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        metric(self.admin, name)
    }

    /// The access log's lines so far.
    pub(crate) fn logged(&self) -> Result<Vec<serde_json::Value>> {
        let mut lines = Vec::new();
        self.look_at_log(|line| {
            lines.push(line);
            Ok(())
        })?;
        Ok(lines)
    }

    /// Looks at one line of the access log after the other, which may be more than fit into memory. Returns how many there are so far.
    pub(crate) fn look_at_log(
        &self,
        mut look: impl FnMut(serde_json::Value) -> Result<()>,
    ) -> Result<usize> {
        let lines = BufReader::new(File::open(&self.access_log)?).lines();
        let mut count = 0;
        for line in lines {
            look(serde_json::from_str(&line?).context("access log")?)?;
            count += 1;
        }
        Ok(count)
    }

    /// Replaces one text of the configuration by another and waits until it serves.
    pub(crate) fn reconfigure(&self, from: &str, to: &str) -> Result<()> {
        let version = self.version()?;
        self.replace_in_file(from, to)?;
        wait::until("the next configuration", wait::SOON, || {
            self.version().is_ok_and(|now| now != version)
        })
    }

    /// Replaces one text of the configuration by another, without waiting.
    pub(crate) fn replace_in_file(&self, from: &str, to: &str) -> Result<()> {
        let text = std::fs::read_to_string(&self.file)?;
        ensure!(text.contains(from), "the configuration has no {from:?}");
        // Renamed over, as editors do, so that no half file is ever seen.
        let next = self.file.with_extension("next");
        std::fs::write(&next, text.replace(from, to))?;
        Ok(std::fs::rename(&next, &self.file)?)
    }

    /// What is wrong with the configuration that was read last; null if nothing is.
    pub(crate) fn last_error(&self) -> Result<serde_json::Value> {
        self.config("last_error")
    }

    fn version(&self) -> Result<String> {
        Ok(self.config("version")?.to_string())
    }

    fn config(&self, key: &str) -> Result<serde_json::Value> {
        let mut config: serde_json::Value = serde_json::from_slice(&self.admin("/config")?.body)?;
        let value = config.get_mut(key).map(serde_json::Value::take);
        value.with_context(|| format!("/config says no {key}"))
    }

    /// Its configuration file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.process.resident_bytes()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.process.output()
    }

    /// Asks it to drain and end, without waiting.
    pub(crate) fn terminate(&self) -> Result<()> {
        self.process.signal(Signal::TERM)
    }

    /// Waits for its end, whatever that is.
    pub(crate) fn wait_for_end(&mut self, patience: Duration) -> Result<ExitStatus> {
        self.process.wait(patience)
    }

    /// Waits for its end, which must be clean.
    pub(crate) fn expect_clean_end(&mut self, patience: Duration) -> Result<()> {
        let status = self.process.wait(patience)?;
        ensure!(status.success(), "{status}:\n{}", self.process.output());
        Ok(())
    }
}

/// Sum over all labels of one metric at an admin interface; 0 if it is not there.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> Result<f64> {
    let page = client::get(admin, "/metrics")?.text();
    page.lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with([' ', '{']))
        .map(|rest| {
            let value = rest.rsplit(' ').next().unwrap_or_default();
            value.parse::<f64>().with_context(|| format!("value of {name}: {rest}"))
        })
        .try_fold(0.0, |sum, value: Result<f64>| Ok(sum + value?))
}

/// Names of a configuration and of its access log that no other Strait of the claim has: one that
/// runs looks at its file, and would take up what is meant for another.
fn files(lab: &Lab) -> Result<(String, PathBuf)> {
    let names = std::iter::once(String::new()).chain((1..).map(|n| format!("-{n}")));
    let mut names = names.map(|end| (format!("strait{end}.yaml"), format!("access{end}.log")));
    let free = |name: &str| !lab.folder().join(name).exists();
    let (config, log) = names.find(|(config, _)| free(config)).context("numbers do not run out")?;
    Ok((config, lab.folder().join(log)))
}

/// An address of this machine.
pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn push(config: &mut String, indent: usize, lines: &str) {
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        config.extend(std::iter::repeat_n(' ', indent));
        config.push_str(line);
        config.push('\n');
    }
}
