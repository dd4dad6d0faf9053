//! Scenarios `idle`, `idle-tls` and `h2-memory`: what connections that do nothing cost in memory.
//!
//! Each proxy is restarted in each round, warmed up by connections that come and go, and then
//! measured before and after. The open-file limit of 20,000 that is common keeps the number down.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Options;
use super::lineup::start_service;
use super::machine::Machine;
use super::proxy::{Running, pause};
use super::report::{MemorySample, MemorySeries, Report, Target};
use super::sample::median;
use super::setup::{Setup, Tls};
use super::tools::Tools;
use crate::say;

/// Which connections do nothing.
pub(crate) struct Case {
    setup: Setup,
    connections: u32,
    /// Streams that are open on each, if it speaks HTTP/2.
    streams: Option<u32>,
    warm_up_connections: u32,
    /// What Strait sets out to reach: bytes each at most, as a share of what the named proxy needs
    /// or by themselves.
    what: &'static str,
    at_most: f64,
    to: Option<&'static str>,
}

/// Keep-alive connections after one request each.
pub(crate) const IDLE: Case = Case {
    setup: Setup::Http1,
    connections: 10_000,
    streams: None,
    warm_up_connections: 64,
    what: "bytes of an idle keep-alive connection",
    at_most: 400.0,
    to: None,
};

/// The same within TLS.
pub(crate) const IDLE_TLS: Case = Case {
    setup: Setup::Tls(Tls::Keep),
    what: "bytes of an idle keep-alive connection of TLS",
    at_most: 2048.0,
    ..IDLE
};

/// Connections of HTTP/2 whose streams wait for a response. As many streams are open to the
/// service, so a proxy's connections there are in the figure.
pub(crate) const STREAMS: Case = Case {
    setup: Setup::Silent,
    connections: 100,
    streams: Some(100),
    warm_up_connections: 1,
    what: "memory of a connection with 100 open streams, to HAProxy",
    at_most: 0.5,
    to: Some("haproxy"),
};

/// For a proxy to take notice that connections went, or to settle.
const SETTLE: Duration = Duration::from_secs(2);

/// Measures all proxies.
///
/// # Errors
///
/// If a proxy closes a connection that it should keep, or fails.
pub(crate) fn run(tools: &Tools, options: &Options, case: &Case) -> Result<Report> {
    let mut report = Report::new(options.scenario.name(), Machine::look(tools)?);
    let (_service, upstream) = start_service(tools, options, case.setup)?;
    report.memory.extend(tools.binaries.iter().map(|binary| MemorySeries::new(&binary.name)));
    for round in 1..=options.rounds {
        for (binary, series) in tools.binaries.iter().zip(&mut report.memory) {
            let proxy = Running::start(tools, options, binary, case.setup, upstream)?;
            let sample = measure(tools, options, &proxy, case, round)
                .with_context(|| format!("{} with its connections", binary.name))?;
            say::line(format_args!(
                "{:>10} round {round}: {} KiB, then {} KiB: {:.0} bytes each",
                binary.name,
                sample.rss_before_kib,
                sample.rss_after_kib,
                sample.bytes_each()
            ));
            if round == 1 {
                report.commands.push(proxy.command.clone());
                let words = case.words(tools, proxy.address, case.connections).join(" ");
                report.commands.push(tools.without_places(&words));
            }
            series.samples.push(sample);
        }
    }
    report.targets = vec![Target::new(case.what, case.at_most, measured(&report, case))];
    Ok(report)
}

/// The figure that is to be at most [`Case::at_most`].
fn measured(report: &Report, case: &Case) -> Option<f64> {
    let bytes = |proxy: &str| {
        let series = report.memory.iter().find(|series| series.proxy == proxy)?;
        median(series.samples.iter().map(MemorySample::bytes_each))
    };
    let ours = bytes("strait")?;
    match case.to {
        None => Some(ours),
        Some(other) => Some(ours / bytes(other)?),
    }
}

fn measure(
    tools: &Tools,
    options: &Options,
    proxy: &Running,
    case: &Case,
    round: u32,
) -> Result<MemorySample> {
    let gather = |count| Crowd::gather(options, &case.words(tools, proxy.address, count), count);
    gather(case.warm_up_connections)?.disperse()?;
    pause(SETTLE);
    let rss_before_kib = proxy.rss_kib()?;
    let crowd = gather(case.connections)?;
    pause(SETTLE);
    let rss_after_kib = proxy.rss_kib()?;
    let connections = case.connections;
    match crowd.disperse()? {
        0 => Ok(MemorySample { round, connections, rss_before_kib, rss_after_kib }),
        closed => bail!("{closed} connections were closed or spoken to"),
    }
}

impl Case {
    /// The command that holds `count` connections to `target`.
    fn words(&self, tools: &Tools, target: SocketAddr, count: u32) -> Vec<String> {
        let program = tools.program("idle").display().to_string();
        let mut words = vec![program, "--target".to_owned(), target.to_string()];
        words.extend(["--connections".to_owned(), count.to_string()]);
        if matches!(self.setup, Setup::Tls(_)) {
            words.extend(["--tls".to_owned(), "yes".to_owned()]);
        }
        if let Some(streams) = self.streams {
            words.extend(["--streams".to_owned(), streams.to_string()]);
        }
        words
    }
}

/// Connections that another program holds.
struct Crowd {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Crowd {
    /// Opens `count` connections and returns when each had its answer.
    fn gather(options: &Options, words: &[String], count: u32) -> Result<Self> {
        let mut child = Command::new("taskset")
            .args(["-c", &options.load_core.to_string()])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting idle")?;
        let stdout = child.stdout.take().context("stdout was piped")?;
        let mut crowd = Self { child, lines: BufReader::new(stdout).lines() };
        match crowd.next_number("open ")? {
            open if open == u64::from(count) => Ok(crowd),
            open => bail!("{open} connections are open"),
        }
    }

    /// Closes them, and returns how many had been closed by the other side.
    fn disperse(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let closed = self.next_number("closed ")?;
        self.child.wait()?;
        Ok(closed)
    }

    fn next_number(&mut self, name: &str) -> Result<u64> {
        let line = self.lines.next().context("idle has ended")??;
        let number = line.strip_prefix(name).with_context(|| line.clone())?;
        Ok(number.parse()?)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
