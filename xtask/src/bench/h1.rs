//! Scenario `h1`: GET and POST of 1 KiB at 64, 500 and 1 connections.
//!
//! First come the cells in which the generator asks as fast as it is answered (CPU per request),
//! then the latency at a fixed rate, which follows from what HAProxy did before, last the system
//! calls.

use anyhow::Result;

use super::Options;
use super::generator::{Load, Method};
use super::lineup::Lineup;
use super::machine::Machine;
use super::report::{CellKey, Report, Target};
use super::sample::Sample;
use super::setup::Setup;
use super::tools::Tools;

const CONNECTIONS: [u32; 3] = [64, 500, 1];
/// Where latency is measured at a fixed rate, and what share of HAProxy's highest rate that is.
const FIXED_RATE_CONNECTIONS: [u32; 2] = [64, 500];
const FIXED_RATE_SHARE: f64 = 0.7;
const FIXED_RATE_ROUNDS_MIN: u32 = 5;

/// Measures all cells.
///
/// # Errors
///
/// If a proxy or a generator fails.
pub(crate) fn run(tools: &Tools, options: &Options) -> Result<Report> {
    let mut report = Report::new(options.scenario.name(), Machine::look(tools)?);
    let lineup = Lineup::start(tools, options, Setup::Http1, &mut report.commands)?;
    let usual = Load::usual(Setup::Http1, options.seconds);
    for connections in options.connections_of(&CONNECTIONS) {
        for method in [Method::Get, Method::Post] {
            let load = Load { method, connections, ..usual };
            report.cells.push(lineup.highest(load, &mut report.commands)?);
        }
    }
    for connections in options.connections_of(&FIXED_RATE_CONNECTIONS) {
        if let Some(rate) = report.rate_for(connections) {
            let load = Load { connections, rate: Some(rate), ..usual };
            let rounds = options.rounds.max(FIXED_RATE_ROUNDS_MIN);
            report.cells.push(lineup.rounds(load, rounds, &mut report.commands)?);
        }
    }
    report.system_calls = lineup.system_calls(usual, &mut report.commands)?;
    report.targets = targets(&report);
    Ok(report)
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
        let haproxy = self.find("haproxy", key(Method::Get, connections))?;
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

/// The cell in which this was asked as fast as it was answered.
fn key(method: Method, connections: u32) -> CellKey {
    (Setup::Http1, method, connections, false)
}

/// Strait's targets.
fn targets(report: &Report) -> Vec<Target> {
    let cpu_us = |sample: &Sample| Some(sample.cpu_us());
    let cpu = |method, connections, other: &str| {
        report.ratio(("strait", other), key(method, connections), cpu_us)
    };
    let p99 = |connections| {
        let cell = (Setup::Http1, Method::Get, connections, true);
        report.ratio(("strait", "haproxy"), cell, |sample| sample.p99_us)
    };
    let log = key(Method::Get, 64);
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
    let user = report.median("strait", key(Method::Get, 64), |sample| Some(sample.user_us));
    let calls = report.system_calls.iter().find(|calls| calls.proxy == "strait");
    targets.extend([
        Target::new("user time, GET, 64 connections, µs", 1.5, user),
        Target::new("system calls, GET, 64 connections", 4.5, calls.map(|calls| calls.each)),
        Target::new("p99 at a fixed rate, 64 connections, to HAProxy", 1.05, p99(64)),
        Target::new("p99 at a fixed rate, 500 connections, to HAProxy", 1.05, p99(500)),
        Target::new(
            "CPU with access log and stage times, to without, GET, 64 connections",
            1.10,
            report.ratio(("strait+log", "strait"), log, cpu_us),
        ),
    ]);
    targets
}
