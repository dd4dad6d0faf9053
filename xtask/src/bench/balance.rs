//! Scenario `balance`: instructions of the choice of an endpoint, among 5 and among 5,000 of them.
//!
//! The same exchange as in `cargo xtask instructions`, of which callgrind counts the function that chooses. What a Maglev
//! table and subsets take in memory is counted by a test of the simulation (`tests/memory.rs`).

use std::fs;

use anyhow::{Context as _, Result};

use super::Options;
use super::rows::{self, Row};
use crate::Surroundings;
use crate::instructions::{Counted, Counter};

/// Names of balancers in the cases.
const BALANCERS: [&str; 6] =
    ["round_robin", "random", "least_request", "peak_ewma", "maglev", "ring_hash"];

/// The function that chooses an endpoint.
const CHOICE: &str = "proxy::upstream::pool::choice::*::choose";

/// Counts and writes down.
///
/// # Errors
///
/// If valgrind is missing, a program does not build, or the compiler has made the choice a part of its caller.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    let load_before = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let counter = Counter::build(at)?;
    let mut rows = Vec::new();
    for balancer in BALANCERS {
        let choice = |endpoints: u32| {
            counter.count(&format!("choice-{balancer}-{endpoints}"), Counted::Function(CHOICE))
        };
        let (few, many) = (choice(5)?, choice(5_000)?);
        for (endpoints, count) in [("5", few), ("5,000", many)] {
            let what = format!("{balancer}: a choice among {endpoints} endpoints");
            rows.push(Row::new(&what, "instructions", count, None));
        }
        rows.push(Row::new(&format!("{balancer}: 5,000 to 5"), "x", many / few, Some(1.2)));
    }
    let intro = "Instructions of one choice, of a cluster whose endpoints all have a connection in the pool.";
    rows::publish(at, options, &load_before, intro, &rows)
}
