//! `cargo xtask bench`: Strait beside other proxies and beside the bare relay, in one run.
//!
//! `bench/README.md` explains the method. A scenario is a module; it measures, in rounds that go
//! through all proxies in turn, and hands samples to `report`, which alone compares and prints.

mod balance;
pub(crate) mod binary;
mod generator;
mod h1;
mod handover;
pub(crate) mod kinds;
mod lineup;
mod machine;
mod memory;
mod policies;
mod proxy;
mod relayed;
mod report;
mod routes;
mod rows;
mod sample;
mod scale;
mod setup;
mod tools;

use anyhow::Result;
use kinds::GeneratorKind;
use kinds::ProxyKind;
use setup::{Setup, Tls};

use crate::Surroundings;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to measure.
    scenario: Scenario,
    /// Rounds through all proxies (latency at a fixed rate takes at least five).
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement, after one second of the same load that does not count.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Only these, comma-separated. The result then goes below `target`, not to `bench/results`.
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<ProxyKind>>,
    /// Also measures Strait as of this commit, branch or tag.
    #[arg(long, value_name = "REF")]
    against: Option<String>,
    /// What asks in HTTP/1.1 as fast as it is answered (requests at a fixed rate always come from
    /// `load`).
    #[arg(long, default_value = "wrk")]
    generator: GeneratorKind,
    /// Only these numbers of connections, comma-separated (scenario h1).
    #[arg(long, value_delimiter = ',', value_name = "N")]
    connections: Option<Vec<u32>>,
    /// Core of the proxy.
    #[arg(long, default_value_t = 0)]
    proxy_core: u32,
    /// Core of the load and of the upstream.
    #[arg(long, default_value_t = 1)]
    load_core: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    /// GET and POST of 1 KiB over HTTP/1.1: CPU per request, throughput, latency at a fixed rate.
    H1,
    /// GET of 1 KiB over HTTP/2, to HTTP/1.1 and to HTTP/2: CPU per request, throughput.
    H2,
    /// Unary calls of gRPC with 1 KiB each way: CPU per call, throughput.
    Grpc,
    /// 1 KiB each way over relayed TCP connections, and 1 GiB one way: CPU, throughput.
    Tcp,
    /// TLS that the proxy ends: CPU per handshake, per GET of 1 KiB and per MiB, throughput.
    Tls,
    /// Memory of 10,000 keep-alive connections that do nothing.
    Idle,
    /// The same of connections of TLS.
    IdleTls,
    /// Memory of 100 connections of HTTP/2 with 100 requests each that wait for their answers.
    H2Memory,
    /// GET through 10 to 10,000 rules, and through rules that use everything, beside the same in Envoy: CPU per request.
    Routes,
    /// GET through checks, limits, retries and all else for when services fail, while none does, beside the same in Envoy: CPU per
    /// request.
    Policies,
    /// Instructions of the choice of an endpoint by each balancer, among 5 and 5,000 of them.
    Balance,
    /// 5,000 idle connections that move to another process, beside a bare pass of as many sockets: time, memory.
    Handover,
    /// 10,000 clusters, 50,000 endpoints and 10,000 rules: memory beside Envoy, and what changed endpoints, clusters and rules
    /// cost.
    Scale,
}

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
            Self::Grpc => "grpc",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Idle => "idle",
            Self::IdleTls => "idle-tls",
            Self::H2Memory => "h2-memory",
            Self::Routes => "routes",
            Self::Policies => "policies",
            Self::Balance => "balance",
            Self::Handover => "handover",
            Self::Scale => "scale",
        }
    }

    /// Its setups, one after another.
    fn setups(self) -> &'static [Setup] {
        match self {
            Self::H1 | Self::Idle => &[Setup::Http1],
            Self::H2 => &[Setup::Http2ToHttp1, Setup::Http2, Setup::Http2ToNginx],
            Self::Grpc => &[Setup::Grpc],
            Self::Tcp => &[Setup::Tcp, Setup::Stream],
            Self::Tls => &[
                Setup::Tls(Tls::NewRsa13),
                Setup::Tls(Tls::NewRsa12),
                Setup::Tls(Tls::NewP256),
                Setup::Tls(Tls::Resumed),
                Setup::Tls(Tls::Keep),
                Setup::Tls(Tls::Download),
            ],
            Self::IdleTls => &[Setup::Tls(Tls::Keep)],
            Self::H2Memory => &[Setup::Silent],
            Self::Routes | Self::Policies => &[Setup::Routes],
            Self::Balance | Self::Handover | Self::Scale => &[],
        }
    }

    fn is_of_memory(self) -> bool {
        matches!(self, Self::Idle | Self::IdleTls | Self::H2Memory)
    }
}

/// Measures, prints and writes the result.
///
/// # Errors
///
/// If a program is missing (all that are missing are named, each with the way to install it), or
/// one of them failed.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    match options.scenario {
        Scenario::Scale => return scale::run(at, options),
        Scenario::Balance => return balance::run(at, options),
        Scenario::Handover => return handover::run(at, options),
        _ => {}
    }
    let tools = tools::Tools::prepare(at, options)?;
    let report = match options.scenario {
        // They are done: they need none of these tools.
        Scenario::Balance | Scenario::Handover | Scenario::Scale => return Ok(()),
        Scenario::H1 => h1::run(&tools, options)?,
        Scenario::Routes => routes::run(&tools, options)?,
        Scenario::Policies => policies::run(&tools, options)?,
        Scenario::H2 | Scenario::Grpc | Scenario::Tcp | Scenario::Tls => {
            relayed::run(&tools, options)?
        }
        Scenario::Idle => memory::run(&tools, options, &memory::IDLE)?,
        Scenario::IdleTls => memory::run(&tools, options, &memory::IDLE_TLS)?,
        Scenario::H2Memory => memory::run(&tools, options, &memory::STREAMS)?,
    };
    report.publish(&tools, options)
}
