//! What asks, on the core that the upstream is on too: `wrk` or `load` of `bench/` in HTTP/1.1,
//! `h2load` in HTTP/2, `stream` of `bench/` for many bytes, `tls-load` of `bench/` where each request
//! has its own connection of TLS.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::Options;
use super::report::CellKey;
use super::setup::{Setup, Tls};
use super::tools::Tools;
use crate::plain::Plain;

use crate::bench::kinds::GeneratorKind;
use crate::bench::tools::GRPC_MESSAGE_BYTES;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
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

/// The result of one run of the generator.
#[derive(Debug, Deserialize)]
pub(crate) struct Outcome {
    /// Answered requests that count for rate and latency.
    pub(crate) requests: u64,
    /// Time that they took.
    pub(crate) seconds: f64,
    /// Failed connections and wrong answers.
    pub(crate) errors: u64,
    /// Median latency, if the generator reports it.
    pub(crate) p50_ns: Option<f64>,
    /// 99th percentile of latency, if the generator reports it.
    pub(crate) p99_ns: Option<f64>,
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

    /// Answered requests each second.
    pub(crate) fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let requests = self.requests as f64;
        if self.seconds > 0.0 { requests / self.seconds } else { 0.0 }
    }

    /// All that went wrong.
    pub(crate) fn failures(&self) -> u64 {
        self.errors + self.unanswered
    }
}

/// One run of a generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// What is spoken.
    pub(crate) setup: Setup,
    /// What is asked for.
    pub(crate) method: Method,
    /// Connections that are kept.
    pub(crate) connections: u32,
    /// How long.
    pub(crate) seconds: u32,
    /// Requests each second, or none for as many as are answered.
    pub(crate) rate: Option<u64>,
}

/// Streams that are open at a time on each connection of HTTP/2.
const STREAMS: u32 = 100;

/// Handshakes that run at a time, so that no proxy waits for the generator.
const HANDSHAKES: u32 = 16;

/// Length of a stream of bytes.
const STREAM_MIB: u32 = 1024;

impl Load {
    /// As fast as answered, with the connections that `setup` is measured at.
    pub(crate) fn usual(setup: Setup, seconds: u32) -> Self {
        let (method, connections) = match setup {
            Setup::Http1 | Setup::Routes => (Method::Get, 64),
            Setup::Http2ToHttp1 | Setup::Http2 | Setup::Http2ToNginx | Setup::Silent => {
                (Method::Get, 5)
            }
            Setup::Grpc => (Method::Post, 5),
            Setup::Tcp => (Method::Post, 64),
            Setup::Stream | Setup::Tls(Tls::Download) => (Method::Get, 1),
            Setup::Tls(Tls::Keep) => (Method::Get, 64),
            Setup::Tls(_) => (Method::Get, HANDSHAKES),
        };
        Self { setup, method, connections, seconds, rate: None }
    }

    /// The cell that it fills.
    pub(crate) fn key(&self) -> CellKey {
        (self.setup, self.method, self.connections, self.rate.is_some())
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        let method = self.method.name();
        let what = match self.setup {
            Setup::Http1 => method.to_owned(),
            Setup::Routes => format!("{method} of one user"),
            Setup::Http2ToHttp1 => format!("{method}, HTTP/2 to HTTP/1.1"),
            Setup::Http2 => format!("{method}, HTTP/2 to HTTP/2"),
            Setup::Http2ToNginx => format!("{method}, HTTP/2 to HTTP/2 of nginx"),
            Setup::Grpc => "unary gRPC".to_owned(),
            Setup::Silent => "without an answer".to_owned(),
            Setup::Tcp => "1 KiB each way over TCP".to_owned(),
            Setup::Stream => "1 GiB over TCP".to_owned(),
            Setup::Tls(tls) => match tls {
                Tls::NewRsa13 => "new TLS 1.3, RSA".to_owned(),
                Tls::NewRsa12 => "new TLS 1.2, RSA".to_owned(),
                Tls::NewP256 => "new TLS 1.3, P-256".to_owned(),
                Tls::Resumed => "resumed TLS 1.3".to_owned(),
                Tls::Keep => format!("{method} over TLS 1.3"),
                Tls::Download => "1 GiB over TLS 1.3".to_owned(),
            },
        };
        let plural = if self.connections == 1 { "" } else { "s" };
        let name = format!("{what}, {} connection{plural}", self.connections);
        match self.rate {
            Some(rate) => format!("{name}, {rate} requests/s"),
            None => name,
        }
    }

    /// The command that asks `target`, to be run as it is or behind another one.
    fn words(&self, tools: &Tools, options: &Options, target: SocketAddr) -> Vec<String> {
        let Self { connections, seconds, .. } = *self;
        let words = match self.setup {
            Setup::Http1 | Setup::Routes | Setup::Tcp => self.words_http1(tools, options, target),
            Setup::Http2ToHttp1
            | Setup::Http2
            | Setup::Http2ToNginx
            | Setup::Grpc
            | Setup::Silent => h2load(
                tools,
                self.setup,
                target,
                &format!("-c{connections} -m{STREAMS} -D{seconds}"),
            ),
            Setup::Stream => stream(tools, target, seconds),
            Setup::Tls(Tls::Download) => stream(tools, target, seconds) + " --tls yes",
            Setup::Tls(Tls::Keep) => format!(
                "env OPENSSL_CONF=bench/configs/tls/wrk.cnf wrk -t1 -c{connections} -d{seconds}s \
                 --latency -s bench/configs/wrk.lua https://{target}/bench"
            ),
            Setup::Tls(tls) => {
                tls_load(tools, tls, target, connections, seconds)
                    + &self.rate.map_or_else(String::new, |rate| format!(" --rate {rate}"))
            }
        };
        on_load_core(options, &words)
    }

    fn words_http1(&self, tools: &Tools, options: &Options, target: SocketAddr) -> String {
        let Self { method, connections, seconds, rate, .. } = *self;
        if let (GeneratorKind::Wrk, None) = (options.generator, rate) {
            let post = match (method, self.setup) {
                (Method::Post, _) => " -- post",
                (Method::Get, Setup::Routes) => " -- user",
                (Method::Get, _) => "",
            };
            return format!(
                "wrk -t1 -c{connections} -d{seconds}s --latency \
                 -s bench/configs/wrk.lua http://{target}/bench{post}"
            );
        }
        let body = if method == Method::Post { "yes" } else { "no" };
        let program = tools.program("load");
        let rate = rate.map_or_else(String::new, |rate| format!(" --rate {rate} --warmup 1"));
        format!(
            "{} --target {target} --connections {connections} \
             --seconds {seconds} --body {body}{rate}",
            program.display()
        )
    }

    /// The command without paths of this machine.
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

/// The arguments of `h2load`.
fn h2load(tools: &Tools, setup: Setup, target: SocketAddr, how: &str) -> String {
    if setup == Setup::Grpc {
        let message = tools.grpc_message();
        let message = message.display();
        format!(
            "h2load {how} -d {message} -H content-type:application/grpc -H te:trailers \
             http://{target}/bench.Echo/Unary"
        )
    } else {
        format!("h2load {how} http://{target}/bench")
    }
}

/// The arguments of `stream`.
fn stream(tools: &Tools, target: SocketAddr, seconds: u32) -> String {
    let program = tools.program("stream");
    format!("{} --target {target} --mib {STREAM_MIB} --seconds {seconds}", program.display())
}

/// The arguments of `tls-load`.
fn tls_load(tools: &Tools, tls: Tls, target: SocketAddr, connections: u32, seconds: u32) -> String {
    let program = tools.program("tls-load");
    let version = if tls == Tls::NewRsa12 { "1.2" } else { "1.3" };
    let resume = if tls == Tls::Resumed { "yes" } else { "no" };
    format!(
        "{} --target {target} --connections {connections} --seconds {seconds} \
         --version {version} --resume {resume}",
        program.display()
    )
}

fn on_load_core(options: &Options, words: &str) -> Vec<String> {
    let pinned = format!("taskset -c {} {words}", options.load_core);
    pinned.split_whitespace().map(str::to_owned).collect()
}

/// Makes sure that `target` answers what it will be asked, each time with success.
///
/// # Errors
///
/// If it does not.
pub(crate) fn check(
    tools: &Tools,
    options: &Options,
    setup: Setup,
    target: SocketAddr,
) -> Result<()> {
    match setup {
        Setup::Http1 | Setup::Routes | Setup::Tcp => check_http1(tools, options, setup, target),
        Setup::Http2ToHttp1 | Setup::Http2 | Setup::Http2ToNginx => {
            check_http2(tools, options, setup, target)
        }
        Setup::Grpc => {
            check_http2(tools, options, setup, target)?;
            check_trailers(tools, options, target)
        }
        // This service never answers; `idle` checks that the requests are kept.
        Setup::Silent => Ok(()),
        Setup::Stream | Setup::Tls(Tls::Download) => {
            let outcome = Load::usual(setup, 1).run(tools, options, target)?;
            if outcome.failures() > 0 {
                bail!("{outcome:?}");
            }
            Ok(())
        }
        Setup::Tls(tls) => {
            let words = on_load_core(options, &tls_load(tools, tls, target, 2, 1));
            let outcome = parse(&plain(&tools.root, &words)?.read()?)?;
            if outcome.failures() > 0 || outcome.requests == 0 {
                bail!("{outcome:?}");
            }
            Ok(())
        }
    }
}

fn check_http1(tools: &Tools, options: &Options, setup: Setup, target: SocketAddr) -> Result<()> {
    for method in [Method::Get, Method::Post] {
        let load = Load { setup, method, connections: 2, seconds: 1, rate: Some(50) };
        let outcome = load.run(tools, options, target)?;
        if outcome.failures() > 0 || outcome.requests == 0 {
            bail!("{}: {outcome:?}", method.name());
        }
    }
    Ok(())
}

/// Asks 100 times, and counts the bytes of the answers.
fn check_http2(tools: &Tools, options: &Options, setup: Setup, target: SocketAddr) -> Result<()> {
    let words = on_load_core(options, &h2load(tools, setup, target, "-n100 -c2 -m10"));
    let output = plain(&tools.root, &words)?.read()?;
    let outcome = parse(&output)?;
    let body = if setup == Setup::Grpc { GRPC_MESSAGE_BYTES } else { 1024 };
    let bytes = format!("({}) data", 100 * body);
    if outcome.failures() > 0 || outcome.requests != 100 || !output.contains(&bytes) {
        bail!("{outcome:?}, {output}");
    }
    Ok(())
}

/// The status of a call comes behind its messages, where h2load does not look.
fn check_trailers(tools: &Tools, options: &Options, target: SocketAddr) -> Result<()> {
    let words = format!(
        "curl -s --http2-prior-knowledge -D - -o /dev/null --data-binary @{} \
         -H content-type:application/grpc -H te:trailers http://{target}/bench.Echo/Unary",
        tools.grpc_message().display()
    );
    let output = plain(&tools.root, &on_load_core(options, &words))?.read()?;
    if !output.lines().any(|line| line == "grpc-status: 0") {
        bail!("no grpc-status of 0 in {output}");
    }
    Ok(())
}

fn plain(root: &Path, words: &[String]) -> Result<Plain> {
    let (program, arguments) = words.split_first().context("no command")?;
    Ok(arguments.iter().fold(Plain::new(root, program, &[]), Plain::arg))
}

/// Reads what a generator printed: a line of JSON among others, or the words of h2load.
fn parse(output: &str) -> Result<Outcome> {
    if let Some(line) = output.lines().rev().find(|line| line.starts_with('{')) {
        return serde_json::from_str(line).with_context(|| format!("the generator printed {line}"));
    }
    parse_h2load(output).with_context(|| format!("the generator printed no result: {output}"))
}

/// Reads `finished in 1.00s, 92.50 req/s, …` and `requests: 100 total, …, 93 succeeded, …`. What
/// was on its way when time was up is in none of the counts.
fn parse_h2load(output: &str) -> Option<Outcome> {
    let rest_of = |start: &str| output.lines().find_map(|line| line.strip_prefix(start));
    let rate = rest_of("finished in ")?.split(", ").find_map(|part| part.strip_suffix(" req/s"))?;
    let rate: f64 = rate.parse().ok()?;
    let counts = rest_of("requests: ")?;
    let count = |name: &str| -> Option<u64> {
        counts.split(", ").find_map(|part| part.strip_suffix(name))?.trim().parse().ok()
    };
    let requests = count("succeeded")?;
    // Among the failed are those with an error, and those whose time was up.
    let errors = count("failed")?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let seconds = (requests + errors) as f64 / rate;
    Some(Outcome {
        requests,
        seconds,
        errors,
        p50_ns: None,
        p99_ns: None,
        answered: None,
        unanswered: 0,
    })
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
    fn the_words_of_h2load_are_read() {
        let text = "starting benchmark...\nfinished in 1.01s, 50.00 req/s, 5MB/s\n\
                    requests: 100 total, 120 started, 100 done, 95 succeeded, 5 failed, \
                    3 errored, 0 timeout\nstatus codes: 95 2xx, 0 3xx, 0 4xx, 2 5xx\n";
        let outcome = parse(text).unwrap();
        assert_eq!((outcome.answered(), outcome.failures(), outcome.seconds), (95, 5, 2.0));
        assert!(outcome.p99_ns.is_none());
        assert!(parse("finished in 1.01s\n").is_err());
    }

    #[test]
    fn a_count_of_perf_is_read_and_its_absence_is_none() {
        let text = "# started on some day\n\n1025796,,raw_syscalls:sys_enter,297918,100.00,,\n";
        assert_eq!(parse_perf(text), Some(1_025_796));
        assert_eq!(parse_perf("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), None);
    }
}
