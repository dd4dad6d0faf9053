//! `cargo xtask sim`: one seed again, or new ones for a while.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::{Outcome, Random, Returns, Scenario, SeedLimit, Simulation, Summary};

/// The options of the command line.
#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    /// The first of seeds in a row; new ones if there is none.
    from: Option<u64>,
    seconds: Option<u64>,
    is_loud: bool,
}

const USAGE: &str = "usage: sim [--seed N [--trace] | [--from N] [--seconds S]]";

#[expect(clippy::print_stderr, clippy::print_stdout, reason = "this is a command for people")]
fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let limit = SeedLimit::ending_the_process();
    if let Some(seed) = arguments.seed {
        limit.begin(seed);
        return match replay(&Scenario::of(seed), arguments.is_loud) {
            Ok(summary) => {
                println!("seed {seed}: {summary:#?}");
                ExitCode::SUCCESS
            }
            Err(what) => {
                eprintln!("{what}\nseed {seed} again: cargo xtask sim --seed {seed}");
                ExitCode::FAILURE
            }
        };
    }
    let (first, span) = (first_seed(), Duration::from_secs(arguments.seconds.unwrap_or(30)));
    let began = now();
    let mut totals = Totals::default();
    let mut seeds = Random::new(first);
    while now() - began < span {
        let seed = match arguments.from {
            Some(from) => from.wrapping_add(totals.seeds),
            // Small numbers are easier to type, and no worse.
            None => seeds.below(1 << 40),
        };
        limit.begin(seed);
        // Printed before, because a panic ends the process.
        std::panic::set_hook(Box::new(move |panic| {
            eprintln!("{panic}\nseed {seed} again: cargo xtask sim --seed {seed}");
        }));
        match Simulation::new(&Scenario::of(seed)).run() {
            Ok(summary) => totals.add(&summary),
            Err(what) => {
                eprintln!("{what}\nseed {seed} again: cargo xtask sim --seed {seed}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{totals:#?}");
    ExitCode::SUCCESS
}

/// The totals of many runs.
#[derive(Debug, Default)]
struct Totals {
    seeds: u64,
    happenings: u64,
    turns: u64,
    virtual_hours: f64,
    retried: usize,
    rewritten: usize,
    delivered: usize,
    moved: usize,
    replaced: usize,
    stopped: usize,
    returns: Returns,
    ejected: usize,
    checked: usize,
    secure: usize,
    outcomes: BTreeMap<Outcome, usize>,
}

impl Totals {
    fn add(&mut self, summary: &Summary) {
        self.seeds += 1;
        self.happenings += summary.happenings;
        self.turns += summary.turns;
        self.virtual_hours += summary.duration.as_secs_f64() / 3600.0;
        self.retried += summary.retried;
        self.rewritten += summary.rewritten;
        self.delivered += summary.delivered;
        self.moved += summary.moved;
        self.replaced += summary.replaced;
        self.stopped += summary.stopped;
        self.returns = self.returns + summary.returns;
        self.ejected += summary.ejected;
        self.checked += summary.checked;
        self.secure += summary.secure;
        for (outcome, count) in &summary.outcomes {
            *self.outcomes.entry(*outcome).or_default() += count;
        }
    }
}

fn replay(scenario: &Scenario, is_loud: bool) -> Result<Summary, sim::Violations> {
    let simulation = Simulation::new(scenario);
    simulation.keep_trace();
    if is_loud {
        simulation.be_loud();
    }
    simulation.run()
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or_else(|| format!("{word} wants a number"))?;
            value.parse().map_err(|_| format!("{word} wants a number, not {value}"))
        };
        match word.as_str() {
            "--seed" => arguments.seed = Some(number()?),
            "--from" => arguments.from = Some(number()?),
            "--seconds" => arguments.seconds = Some(number()?),
            "--trace" => arguments.is_loud = true,
            _ => return Err(format!("what is {word}?")),
        }
    }
    Ok(arguments)
}

#[expect(clippy::disallowed_methods, reason = "how long to go on is real time")]
fn now() -> Instant {
    Instant::now()
}

/// New seeds every time.
#[expect(clippy::disallowed_methods, reason = "new seeds come from the clock")]
fn first_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() ^ u64::from(since.subsec_nanos()) << 32)
}
