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
    /// Goes through new seeds for this long (half a minute unless said).
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
    match (options.seed, options.hours) {
        (Some(seed), _) => plain.arg("--seed").arg(seed.to_string()).run(),
        (None, hours) => {
            let seconds = hours.map_or(30.0, |hours| hours * 3600.0);
            plain.arg("--seconds").arg(format!("{seconds:.0}")).run()
        }
    }
}
