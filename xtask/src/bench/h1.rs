//! Scenario `h1`: GET and POST of 1 KiB at 64, 500 and 1 connections.
//!
//! All proxies are started once and stay up; only the one whose turn it is gets requests. First
//! come the cells in which the generator asks as fast as it is answered (CPU per request), then
//! the latency at a fixed rate, which follows from what HAProxy did before, last the system calls.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use super::Options;
use super::generator::{Load, Method};
use super::machine::Machine;
use super::proxy::{Process, Running, free_address};
use super::report::{Cell, Report, Series, Target};
use super::sample::Sample;
use super::tools::Tools;
use crate::say;

const CONNECTIONS: [u32; 3] = [64, 500, 1];
/// Where latency is measured at a fixed rate, and what share of HAProxy's highest rate that is.
const FIXED_RATE_CONNECTIONS: [u32; 2] = [64, 500];
const FIXED_RATE_SHARE: f64 = 0.7;
const FIXED_RATE_ROUNDS_MIN: u32 = 5;
const WARM_UP_SECONDS: u32 = 1;

/// Measures all cells.
///
/// # Errors
///
/// If a proxy or a generator fails.
pub(crate) fn run(tools: &Tools, options: &Options) -> Result<Report> {
    let mut report = Report::new(options.scenario.name(), Machine::look(tools)?);
    let (_service, upstream) = start_upstream(tools, options)?;
    let mut proxies = Vec::new();
    for binary in &tools.binaries {
        proxies.push(Running::start(tools, options, binary, upstream)?);
    }
    let bench = Bench { tools, options, upstream, proxies };
    report.commands.extend(bench.proxies.iter().map(|proxy| proxy.command.clone()));
    for connections in options.connections_of(&CONNECTIONS) {
        for method in [Method::Get, Method::Post] {
            report.cells.push(bench.highest(method, connections, &mut report.commands)?);
        }
    }
    for connections in options.connections_of(&FIXED_RATE_CONNECTIONS) {
        if let Some(rate) = report.rate_for(connections) {
            report.cells.push(bench.fixed(connections, rate, &mut report.commands)?);
        }
    }
    if tools.has_perf {
        report.system_calls = bench.system_calls(&mut report.commands)?;
    } else {
        say::line("system calls are not counted: perf is missing (apt-get install linux-perf)");
    }
    report.targets = targets(&report);
    Ok(report)
}

/// Starts the upstream on the core of the load.
pub(crate) fn start_upstream(tools: &Tools, options: &Options) -> Result<(Process, SocketAddr)> {
    let address = free_address()?;
    let arguments = ["--listen".to_owned(), address.to_string()];
    let log = tools.scratch.join("upstream.log");
    let program = tools.program("upstream");
    let (mut process, _) = Process::start(tools, options.load_core, &program, &arguments, &log)?;
    process.wait_until_listening(address).context("the upstream")?;
    Ok((process, address))
}

struct Bench<'a> {
    tools: &'a Tools,
    options: &'a Options,
    upstream: SocketAddr,
    proxies: Vec<Running>,
}

impl Bench<'_> {
    /// As many requests as are answered.
    fn highest(
        &self,
        method: Method,
        connections: u32,
        commands: &mut Vec<String>,
    ) -> Result<Cell> {
        let load = Load { method, connections, seconds: self.options.seconds, rate: None };
        let mut cell = self.rounds(load, self.options.rounds, commands)?;
        let direct = load.run(self.tools, self.options, self.upstream)?;
        cell.direct_requests_per_second = Some(per_second(direct.requests, direct.seconds));
        Ok(cell)
    }

    /// The same number of requests for all.
    fn fixed(&self, connections: u32, rate: u64, commands: &mut Vec<String>) -> Result<Cell> {
        let load = Load {
            method: Method::Get,
            connections,
            seconds: self.options.seconds,
            rate: Some(rate),
        };
        self.rounds(load, self.options.rounds.max(FIXED_RATE_ROUNDS_MIN), commands)
    }

    fn rounds(&self, load: Load, rounds: u32, commands: &mut Vec<String>) -> Result<Cell> {
        let mut cell = Cell::new(load);
        cell.series.extend(self.proxies.iter().map(|proxy| Series::new(&proxy.name)));
        for round in 1..=rounds {
            for (proxy, series) in self.proxies.iter().zip(&mut cell.series) {
                let text = load.text(self.tools, self.options, proxy.address);
                if round == 1 {
                    commands.push(text.clone());
                }
                let sample = self.measure(proxy, load, round)?;
                say::line(format_args!(
                    "{} | {:>10} round {round}: {:>6.0} requests/s, CPU {:>5.2} µs \
                     (user {:.2}), p99 {:.0} µs, errors {}",
                    cell.name,
                    proxy.name,
                    sample.requests_per_second,
                    sample.cpu_us(),
                    sample.user_us,
                    sample.p99_us,
                    sample.errors
                ));
                series.samples.push(sample);
            }
        }
        Ok(cell)
    }

    fn measure(&self, proxy: &Running, load: Load, round: u32) -> Result<Sample> {
        if load.rate.is_none() {
            let warm_up = Load { seconds: WARM_UP_SECONDS, ..load };
            warm_up.run(self.tools, self.options, proxy.address)?;
        }
        let before = proxy.cpu()?;
        let outcome = load.run(self.tools, self.options, proxy.address)?;
        let after = proxy.cpu()?;
        let requests = outcome.answered();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let count = requests.max(1) as f64;
        Ok(Sample {
            round,
            requests,
            requests_per_second: per_second(outcome.requests, outcome.seconds),
            errors: outcome.failures(),
            p50_us: outcome.p50_ns / 1e3,
            p99_us: outcome.p99_ns / 1e3,
            user_us: (after.user_us - before.user_us) / count,
            system_us: (after.system_us - before.system_us) / count,
            rss_kib: proxy.rss_kib()?,
        })
    }

    /// Counted apart from what is timed, as counting costs time.
    fn system_calls(&self, commands: &mut Vec<String>) -> Result<Vec<(String, f64)>> {
        let load = Load { method: Method::Get, connections: 64, seconds: 2, rate: None };
        let mut counts = Vec::new();
        for proxy in &self.proxies {
            let (address, ids) = (proxy.address, proxy.ids()?);
            let text = load.text(self.tools, self.options, address);
            let perf = "perf stat -x, -e raw_syscalls:sys_enter -p PID --";
            commands.push(format!("{perf} {text}"));
            match load.count_system_calls(self.tools, self.options, address, &ids) {
                Ok(count) => {
                    say::line(format_args!("{}: {count:.2} system calls", proxy.name));
                    counts.push((proxy.name.clone(), count));
                }
                Err(error) => say::line(format_args!("{}: not counted: {error:#}", proxy.name)),
            }
        }
        Ok(counts)
    }
}

impl Options {
    fn connections_of(&self, all: &[u32]) -> Vec<u32> {
        let is_wanted = |n: &u32| self.connections.as_ref().is_none_or(|only| only.contains(n));
        all.iter().copied().filter(is_wanted).collect()
    }
}

impl Report {
    /// The rate at which latency is compared, from what HAProxy did as fast as it could.
    fn rate_for(&self, connections: u32) -> Option<u64> {
        let haproxy = self.series("haproxy", Method::Get, connections)?;
        let rates = haproxy.samples.iter().map(|sample| sample.requests_per_second);
        let rate = rates.fold(0.0, f64::max) * FIXED_RATE_SHARE;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is positive and below a million"
        )]
        Some(rate as u64).filter(|&rate| rate > 0)
    }
}

fn per_second(requests: u64, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let requests = requests as f64;
    if seconds > 0.0 { requests / seconds } else { 0.0 }
}

/// What Strait sets out to reach.
fn targets(report: &Report) -> Vec<Target> {
    let cpu = |method, connections, other: &str| {
        report.ratio(("strait", other), (method, connections, false), Sample::cpu_us)
    };
    let p99 = |connections| {
        let cell = (Method::Get, connections, true);
        report.ratio(("strait", "haproxy"), cell, |sample| sample.p99_us)
    };
    let log = (Method::Get, 64, false);
    let mut targets = vec![
        Target::new("CPU, GET, 64 connections, to HAProxy", 0.80, cpu(Method::Get, 64, "haproxy")),
        Target::new("CPU, GET, 64 connections, to Envoy", 0.31, cpu(Method::Get, 64, "envoy")),
        Target::new("CPU, GET, 64 connections, to the relay", 1.12, cpu(Method::Get, 64, "relay")),
        Target::new(
            "CPU, POST, 64 connections, to HAProxy",
            0.80,
            cpu(Method::Post, 64, "haproxy"),
        ),
    ];
    for method in [Method::Get, Method::Post] {
        let to = |other| format!("CPU, {}, 500 connections, to {other}", method.name());
        targets.push(Target::new(to("HAProxy"), 0.72, cpu(method, 500, "haproxy")));
        targets.push(Target::new(to("the relay"), 1.20, cpu(method, 500, "relay")));
    }
    for method in [Method::Get, Method::Post] {
        let what = format!("CPU, {}, 1 connection, to HAProxy", method.name());
        targets.push(Target::new(what, 0.85, cpu(method, 1, "haproxy")));
    }
    let user = report.median("strait", (Method::Get, 64, false), |sample| sample.user_us);
    let calls = report.system_calls.iter().find(|(name, _)| name == "strait");
    targets.extend([
        Target::new("user time, GET, 64 connections, µs", 1.5, user),
        Target::new("system calls, GET, 64 connections", 4.5, calls.map(|(_, count)| *count)),
        Target::new("p99 at a fixed rate, 64 connections, to HAProxy", 1.05, p99(64)),
        Target::new("p99 at a fixed rate, 500 connections, to HAProxy", 1.05, p99(500)),
        Target::new(
            "CPU with access log and stage times, to without, GET, 64 connections",
            1.10,
            report.ratio(("strait+log", "strait"), log, Sample::cpu_us),
        ),
    ]);
    targets
}
