//! `cargo xtask sim`: whole workers in a virtual world, under a seed.

use anyhow::Result;

use crate::Surroundings;
use crate::plain::Plain;

/// What to simulate.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Replays this seed and stops.
    #[arg(long)]
    seed: Option<u64>,
    /// Goes through the seeds from this one on, instead of new ones.
    #[arg(long, conflicts_with = "seed")]
    from: Option<u64>,
    /// Goes through seeds for this long (half a minute unless said).
    #[arg(long, conflicts_with = "seed")]
    hours: Option<f64>,
}

/// Simulates.
///
/// # Errors
///
/// If an invariant broke; the simulation printed which, and the seed.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    let plain = Plain::cargo(&at.root, &["run", "--quiet", "--release", "--package", "sim", "--"]);
    if let Some(seed) = options.seed {
        return plain.arg("--seed").arg(seed.to_string()).run();
    }
    let seconds = options.hours.map_or(30.0, |hours| hours * 3600.0);
    let plain = plain.arg("--seconds").arg(format!("{seconds:.0}"));
    match options.from {
        Some(from) => plain.arg("--from").arg(from.to_string()).run(),
        None => plain.run(),
    }
}
