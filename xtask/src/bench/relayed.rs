//! Scenarios `h2`, `grpc`, `tcp` and `tls`: one load on each setup, as fast as it is answered.

use anyhow::Result;

use super::Options;
use super::generator::Load;
use super::lineup::Lineup;
use super::machine::Machine;
use super::report::{Report, Target};
use super::sample::Sample;
use super::setup::{Setup, Tls};
use super::tools::Tools;

/// What Strait's CPU time may be at most, to that of another, or to the least of several.
const CPU_MAX: [(Setup, &[&str], f64); 13] = [
    (Setup::Http2ToHttp1, &["haproxy"], 0.85),
    (Setup::Http2ToHttp1, &["envoy"], 0.25),
    (Setup::Http2, &["haproxy"], 0.85),
    (Setup::Http2, &["envoy"], 0.45),
    (Setup::Http2ToNginx, &["haproxy"], 0.75),
    (Setup::Grpc, &["haproxy"], 0.85),
    (Setup::Tcp, &["relay"], 1.05),
    (Setup::Tcp, &["nginx"], 0.92),
    (Setup::Stream, &["relay"], 1.05),
    (Setup::Stream, &["nginx"], 0.92),
    (Setup::Tls(Tls::NewP256), &["haproxy", "nginx", "envoy"], 0.88),
    (Setup::Tls(Tls::Resumed), &["haproxy", "nginx", "envoy"], 1.0),
    (Setup::Tls(Tls::Keep), &["haproxy", "nginx"], 0.85),
];

/// What RSA in batches may cost, beside another and beside Strait without.
const BATCHED_MAX: [(Setup, &str, f64); 4] = [
    (Setup::Tls(Tls::NewRsa13), "nginx", 0.65),
    (Setup::Tls(Tls::NewRsa13), "strait", 0.78),
    (Setup::Tls(Tls::NewRsa12), "nginx", 0.65),
    (Setup::Tls(Tls::NewRsa12), "strait", 0.78),
];

/// The same where the proxy is half idle, so that clients mostly come alone.
const HALF_IDLE_MAX: [(Setup, &str, f64); 2] =
    [(Setup::Tls(Tls::NewRsa13), "nginx", 0.60), (Setup::Tls(Tls::NewRsa12), "nginx", 0.60)];

/// Whose speed Strait's is to reach, where it is what is measured.
const SPEED_MIN: [(Setup, &str); 2] =
    [(Setup::Stream, "haproxy"), (Setup::Tls(Tls::Download), "nginx")];

/// Measures all setups of the scenario.
///
/// # Errors
///
/// If a proxy or a generator fails.
pub(crate) fn run(tools: &Tools, options: &Options) -> Result<Report> {
    let mut report = Report::new(options.scenario.name(), Machine::look(tools)?);
    for &setup in options.scenario.setups() {
        let lineup = Lineup::start(tools, options, setup, &mut report.commands)?;
        let load = Load::usual(setup, options.seconds);
        report.cells.push(lineup.highest(load, &mut report.commands)?);
        report.system_calls.extend(lineup.system_calls(load, &mut report.commands)?);
        report.targets.extend(targets(&report, load));
        if let Some(rate) = half_rate(&report, load) {
            // Enough places that slower proxies keep the schedule, too.
            let load = Load { rate: Some(rate), connections: 4 * load.connections, ..load };
            report.cells.push(lineup.rounds(load, options.rounds, &mut report.commands)?);
            report.targets.extend(half_idle_targets(&report, load));
        }
    }
    Ok(report)
}

/// Half of the rate that Strait reached with batches, where those are measured.
fn half_rate(report: &Report, load: Load) -> Option<u64> {
    let batched = report.find("strait+batched", load.key())?;
    let rates = batched.samples.iter().map(|sample| sample.requests_per_second);
    let rate = rates.fold(0.0, f64::max) / 2.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and below a million"
    )]
    Some(rate as u64).filter(|&rate| rate > 0)
}

/// Strait's targets at half of its rate.
fn half_idle_targets(report: &Report, load: Load) -> Vec<Target> {
    let bounds = HALF_IDLE_MAX.iter().filter(|(setup, ..)| *setup == load.setup);
    let target = |&(_, other, at_most): &(Setup, &str, f64)| {
        let measured = report.cpu_ratio(("strait+batched", other), load.key());
        Target::new(
            format!("CPU, {}, `signing: batched` to {other}", load.name()),
            at_most,
            measured,
        )
    };
    bounds.map(target).collect()
}

/// Strait's targets under `load`.
fn targets(report: &Report, load: Load) -> Vec<Target> {
    let (name, cell) = (load.name(), load.key());
    let bounds = CPU_MAX.iter().filter(|(setup, ..)| *setup == load.setup);
    let mut targets: Vec<Target> = bounds
        .map(|&(_, others, at_most)| {
            // The least CPU time of the others makes the highest ratio.
            let measured = others
                .iter()
                .filter_map(|other| report.cpu_ratio(("strait", other), cell))
                .max_by(f64::total_cmp);
            let others = others.join(", ");
            Target::new(format!("CPU, {name}, to {others}"), at_most, measured)
        })
        .collect();
    let batched = BATCHED_MAX.iter().filter(|(setup, ..)| *setup == load.setup);
    targets.extend(batched.map(|(_, other, at_most)| {
        let measured = report.cpu_ratio(("strait+batched", other), cell);
        Target::new(format!("CPU, {name}, `signing: batched` to {other}"), *at_most, measured)
    }));
    targets.extend(SPEED_MIN.iter().filter(|(setup, _)| *setup == load.setup).map(|(_, other)| {
        let speed = |sample: &Sample| Some(sample.requests_per_second);
        let measured = report.ratio((other, "strait"), cell, speed);
        Target::new(format!("{other}'s MiB/s, {name}, to Strait's"), 1.0, measured)
    }));
    targets
}
