//! What asks: `wrk`, or `load` of `bench/`, on the core that the upstream is on too.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::Options;
use super::tools::Tools;
use crate::plain::Plain;

/// Which program asks as fast as it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// wrk, one thread.
    Wrk,
    /// `load` of `bench/`: a fourth cheaper, so faster proxies are less held up by it.
    Load,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// GET, 1 KiB in the response.
    Get,
    /// POST, 1 KiB in the request and in the response.
    Post,
}

impl Method {
    /// As on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// What one run of the generator saw.
#[derive(Debug, Deserialize)]
pub(crate) struct Outcome {
    /// Answered requests that count for rate and latency.
    pub(crate) requests: u64,
    /// Time that they took.
    pub(crate) seconds: f64,
    /// Failed connections and wrong answers.
    pub(crate) errors: u64,
    /// Median latency.
    pub(crate) p50_ns: f64,
    /// 99th percentile of latency.
    pub(crate) p99_ns: f64,
    /// All answered requests, where some do not count.
    answered: Option<u64>,
    /// Requests of a schedule that had no answer.
    #[serde(default)]
    unanswered: u64,
}

impl Outcome {
    /// Answered requests, those included that do not count for rate and latency.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.unwrap_or(self.requests)
    }

    /// All that went wrong.
    pub(crate) fn failures(&self) -> u64 {
        self.errors + self.unanswered
    }
}

/// One run of a generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// What is asked for.
    pub(crate) method: Method,
    /// Keep-alive connections.
    pub(crate) connections: u32,
    /// How long.
    pub(crate) seconds: u32,
    /// Requests each second, or none for as many as are answered.
    pub(crate) rate: Option<u64>,
}

impl Load {
    /// The command that asks `target`, to be run as it is or behind another one.
    fn words(&self, tools: &Tools, options: &Options, target: SocketAddr) -> Vec<String> {
        let Self { method, connections, seconds, rate } = *self;
        let core = options.load_core;
        let words = if let (Kind::Wrk, None) = (options.generator, rate) {
            let post = if method == Method::Post { " -- post" } else { "" };
            format!(
                "taskset -c {core} wrk -t1 -c{connections} -d{seconds}s --latency \
                 -s bench/configs/wrk.lua http://{target}/bench{post}"
            )
        } else {
            let body = if method == Method::Post { "yes" } else { "no" };
            let program = tools.program("load");
            let rate = rate.map_or_else(String::new, |rate| format!(" --rate {rate} --warmup 1"));
            format!(
                "taskset -c {core} {} --target {target} --connections {connections} \
                 --seconds {seconds} --body {body}{rate}",
                program.display()
            )
        };
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// The command as anybody may see it.
    pub(crate) fn text(&self, tools: &Tools, options: &Options, target: SocketAddr) -> String {
        tools.without_places(&self.words(tools, options, target).join(" "))
    }

    /// Asks `target`.
    ///
    /// # Errors
    ///
    /// If the generator fails.
    pub(crate) fn run(
        &self,
        tools: &Tools,
        options: &Options,
        target: SocketAddr,
    ) -> Result<Outcome> {
        let output = plain(&tools.root, &self.words(tools, options, target))?.read()?;
        parse(&output)
    }

    /// Asks `target` while `perf` counts the system calls of the processes `ids`; returns how many
    /// there were for each request.
    ///
    /// # Errors
    ///
    /// If `perf` may not count, or the generator fails.
    pub(crate) fn count_system_calls(
        &self,
        tools: &Tools,
        options: &Options,
        target: SocketAddr,
        ids: &[u32],
    ) -> Result<f64> {
        let counts = tools.scratch.join("system-calls.csv");
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        let perf = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p"];
        let mut words: Vec<String> = perf.iter().map(|&word| word.to_owned()).collect();
        words.extend([ids.join(","), "-o".to_owned(), counts.display().to_string()]);
        words.push("--".to_owned());
        words.extend(self.words(tools, options, target));
        let outcome = parse(&plain(&tools.root, &words)?.read()?)?;
        let text = std::fs::read_to_string(&counts).context("what perf counted")?;
        let count = parse_perf(&text).context("perf counted nothing (root is needed)")?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = count as f64 / outcome.answered() as f64;
        Ok(each)
    }
}

/// Makes sure that `target` answers both methods, each with success.
///
/// # Errors
///
/// If it does not.
pub(crate) fn check(tools: &Tools, options: &Options, target: SocketAddr) -> Result<()> {
    for method in [Method::Get, Method::Post] {
        let load = Load { method, connections: 2, seconds: 1, rate: Some(50) };
        let outcome = load.run(tools, options, target)?;
        if outcome.failures() > 0 || outcome.requests == 0 {
            bail!("{}: {outcome:?}", method.name());
        }
    }
    Ok(())
}

fn plain(root: &Path, words: &[String]) -> Result<Plain> {
    let (program, arguments) = words.split_first().context("no command")?;
    Ok(arguments.iter().fold(Plain::new(root, program, &[]), Plain::arg))
}

/// Finds the line of JSON in what a generator printed.
fn parse(output: &str) -> Result<Outcome> {
    let line = output.lines().rev().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("the generator printed no result: {output}"))?;
    serde_json::from_str(line).with_context(|| format!("the generator printed {line}"))
}

/// The first number in what `perf stat -x,` wrote.
fn parse_perf(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_both_generators_are_read() {
        let wrk = "Running 1s test\n  2 requests in 1s\n\n\
                   {\"requests\":2,\"seconds\":1.5,\"errors\":1,\"p50_ns\":10,\"p99_ns\":20}\n";
        let outcome = parse(wrk).unwrap();
        assert_eq!((outcome.answered(), outcome.failures()), (2, 1));
        let load = "{\"requests\":2,\"seconds\":1,\"answered\":3,\"errors\":1,\"unanswered\":4,\
                    \"p50_ns\":10,\"p90_ns\":11,\"p99_ns\":20,\"p999_ns\":20,\"max_ns\":21}\n";
        let outcome = parse(load).unwrap();
        assert_eq!((outcome.answered(), outcome.failures()), (3, 5));
        assert!(parse("unable to connect\n").is_err());
    }

    #[test]
    fn a_count_of_perf_is_read_and_its_absence_is_none() {
        let text = "# started on some day\n\n1025796,,raw_syscalls:sys_enter,297918,100.00,,\n";
        assert_eq!(parse_perf(text), Some(1_025_796));
        assert_eq!(parse_perf("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), None);
    }
}
