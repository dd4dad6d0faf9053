//! Clients that are slow on purpose.

mod half_heads_beyond_the_bound_cost_nobody_else;
mod one_host_cannot_take_a_cluster_away;
mod slow_bodies_are_cut_off;
mod slow_heads_are_cut_off;
mod slow_readers_are_cut_off;

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client;
use crate::lab::Lab;
use crate::process::Process;
use crate::strait::Strait;
use crate::wait::{self, Stopwatch};

pub(super) const CLAIMS: &[Claim] = &[
    slow_heads_are_cut_off::CLAIM,
    slow_bodies_are_cut_off::CLAIM,
    slow_readers_are_cut_off::CLAIM,
    half_heads_beyond_the_bound_cost_nobody_else::CLAIM,
    one_host_cannot_take_a_cluster_away::CLAIM,
];

/// Memory that an attack may cost. The dearest is that of the hundred that do not read: up to 128 KiB
/// of a response wait for each, which stand in up to three buffers of 64 KiB.
const GATHERED_BYTES_MAX: u64 = 24 << 20;

/// How long a well-behaved client may wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs slowhttptest against `path` with `options`, of which the last is `-u`, and asks for
/// something else all the while.
fn attack(lab: &Lab, strait: &Strait, options: &[&str], path: &str) -> Result<()> {
    let before = strait.resident_bytes()?;
    let url = strait.url(path);
    let mut attacker = Process::start(lab.folder(), "slowhttptest", &[options, &[&url]].concat())?;
    let (mut most, mut slowest, mut failed) = (before, Duration::ZERO, None);
    wait::until("the attack to end", Duration::from_secs(40), || {
        let stopwatch = Stopwatch::start();
        if let Err(error) = client::get(strait.address(), "/well-behaved") {
            failed = Some(error);
        }
        slowest = slowest.max(stopwatch.elapsed());
        most = most.max(strait.resident_bytes().unwrap_or(u64::MAX));
        !attacker.is_running()
    })?;
    if let Some(error) = failed {
        return Err(error.context("a well-behaved client"));
    }
    ensure!(slowest < PATIENCE, "a well-behaved client waited {slowest:?}");
    let gathered = most.saturating_sub(before);
    ensure!(gathered < GATHERED_BYTES_MAX, "{gathered} bytes more than before");
    Ok(())
}

/// How many exchanges and connections ended with this cause.
fn cause(strait: &Strait, cause: &str) -> Result<f64> {
    let label = format!("cause=\"{cause}\"");
    let page = strait.admin("/metrics")?.text();
    page.lines()
        .filter(|line| {
            line.starts_with("strait_exchange_causes_total{")
                || line.starts_with("strait_downstream_connections_ended_total{")
        })
        .filter(|line| line.contains(&label))
        .map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<f64>()?))
        .try_fold(0.0, |most: f64, value: Result<f64>| Ok(most.max(value?)))
}
