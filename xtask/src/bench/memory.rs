//! Scenario `idle`: what 10,000 keep-alive connections cost in memory after one request each.
//!
//! Each proxy is started anew in each round, warmed up by connections that come and go, and then
//! measured before and after. The open-file limit of 20,000 that is common keeps the number down.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Options;
use super::h1::start_upstream;
use super::machine::Machine;
use super::proxy::{Running, pause};
use super::report::{IdleSample, IdleSeries, Report, Target};
use super::sample::median;
use super::tools::Tools;
use crate::say;

const CONNECTIONS: u32 = 10_000;
const WARM_UP_CONNECTIONS: u32 = 64;
/// For a proxy to take notice that connections went, or to settle.
const SETTLE: Duration = Duration::from_secs(2);

/// Measures all proxies.
///
/// # Errors
///
/// If a proxy closes a connection that it should keep, or fails.
pub(crate) fn run(tools: &Tools, options: &Options) -> Result<Report> {
    let mut report = Report::new(options.scenario.name(), Machine::look(tools)?);
    let (_service, upstream) = start_upstream(tools, options)?;
    report.idle.extend(tools.binaries.iter().map(|binary| IdleSeries::new(&binary.name)));
    for round in 1..=options.rounds {
        for (binary, series) in tools.binaries.iter().zip(&mut report.idle) {
            let proxy = Running::start(tools, options, binary, upstream)?;
            let sample = measure(tools, options, &proxy, round)
                .with_context(|| format!("{} with idle connections", binary.name))?;
            say::line(format_args!(
                "{:>10} round {round}: {} KiB, then {} KiB: {:.0} bytes each",
                binary.name,
                sample.rss_before_kib,
                sample.rss_after_kib,
                sample.bytes_each()
            ));
            if round == 1 {
                report.commands.push(proxy.command.clone());
                let program = tools.program("idle");
                let text = format!(
                    "{} --target {} --connections {CONNECTIONS}",
                    program.display(),
                    proxy.address
                );
                report.commands.push(tools.without_places(&text));
            }
            series.samples.push(sample);
        }
    }
    let bytes = report.idle.iter().find(|series| series.proxy == "strait");
    let bytes = bytes.and_then(|series| median(series.samples.iter().map(IdleSample::bytes_each)));
    report.targets = vec![Target::new("bytes of an idle keep-alive connection", 400.0, bytes)];
    Ok(report)
}

fn measure(tools: &Tools, options: &Options, proxy: &Running, round: u32) -> Result<IdleSample> {
    Crowd::gather(tools, options, proxy.address, WARM_UP_CONNECTIONS)?.disperse()?;
    pause(SETTLE);
    let rss_before_kib = proxy.rss_kib()?;
    let crowd = Crowd::gather(tools, options, proxy.address, CONNECTIONS)?;
    pause(SETTLE);
    let rss_after_kib = proxy.rss_kib()?;
    match crowd.disperse()? {
        0 => Ok(IdleSample { round, connections: CONNECTIONS, rss_before_kib, rss_after_kib }),
        closed => bail!("{closed} connections were closed"),
    }
}

/// Idle connections that another program holds.
struct Crowd {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Crowd {
    /// Opens `count` connections and returns when each had its answer.
    fn gather(tools: &Tools, options: &Options, target: SocketAddr, count: u32) -> Result<Self> {
        let mut child = Command::new("taskset")
            .args(["-c", &options.load_core.to_string()])
            .arg(tools.program("idle"))
            .args(["--target", &target.to_string(), "--connections", &count.to_string()])
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
