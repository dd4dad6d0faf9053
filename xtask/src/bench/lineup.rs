//! Proxies side by side in front of one service, and loads that are put on them in rounds.
//!
//! All are started once and stay up; only the one whose turn it is gets requests.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use super::Options;
use super::binary::Binary;
use super::generator::Load;
use super::proxy::{Process, Running, free_address, write_config};
use super::report::{Cell, Series, SystemCalls};
use super::sample::Sample;
use super::setup::{Service, Setup};
use super::tools::Tools;
use crate::plain::{Plain, find};
use crate::say;

const WARM_UP_SECONDS: u32 = 1;
/// Seconds in which system calls are counted.
const COUNTING_SECONDS: u32 = 2;

/// Proxies that run, until this is dropped.
pub(crate) struct Lineup<'a> {
    tools: &'a Tools,
    options: &'a Options,
    setup: Setup,
    service: SocketAddr,
    proxies: Vec<Running>,
    /// Killed behind the proxies.
    _service: Process,
}

/// A proxy with a configuration of its own.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) binary: Binary,
    /// Its configuration, with place holders.
    pub(crate) text: String,
    /// The place of the rule that the request of the load meets.
    pub(crate) met: usize,
}

impl<'a> Lineup<'a> {
    /// Starts the service and these.
    ///
    /// # Errors
    ///
    /// If one of them does not come up.
    pub(crate) fn of_tables(
        tools: &'a Tools,
        options: &'a Options,
        setup: Setup,
        tables: Vec<Table>,
        commands: &mut Vec<String>,
    ) -> Result<Self> {
        let (process, service) = start_service(tools, options, setup)?;
        let mut proxies = Vec::new();
        for Table { binary, text, met } in tables {
            let proxy = Running::start_with(tools, options, &binary, setup, &text, service)?;
            if binary.kind.is_strait() {
                check_met(tools, &binary, &proxy, met)?;
            }
            commands.push(proxy.command.clone());
            proxies.push(proxy);
        }
        Ok(Self { tools, options, setup, service, proxies, _service: process })
    }

    /// Starts the service and the proxies of `setup`.
    ///
    /// # Errors
    ///
    /// If one of them does not come up.
    pub(crate) fn start(
        tools: &'a Tools,
        options: &'a Options,
        setup: Setup,
        commands: &mut Vec<String>,
    ) -> Result<Self> {
        let (process, service) = start_service(tools, options, setup)?;
        let mut proxies = Vec::new();
        for binary in tools.binaries_of(setup) {
            let proxy = Running::start(tools, options, binary, setup, service)?;
            commands.push(proxy.command.clone());
            proxies.push(proxy);
        }
        Ok(Self { tools, options, setup, service, proxies, _service: process })
    }

    /// As many requests as are answered.
    ///
    /// # Errors
    ///
    /// If a proxy or the generator fails.
    pub(crate) fn highest(&self, load: Load, commands: &mut Vec<String>) -> Result<Cell> {
        let mut cell = self.rounds(load, self.options.rounds, commands)?;
        if self.setup.works_without_proxy() {
            let direct = load.run(self.tools, self.options, self.service)?;
            cell.direct_requests_per_second = Some(direct.per_second());
        }
        Ok(cell)
    }

    /// Puts `load` on each proxy in turn, `rounds` times, beginning with another each time.
    ///
    /// # Errors
    ///
    /// If a proxy or the generator fails.
    pub(crate) fn rounds(
        &self,
        load: Load,
        rounds: u32,
        commands: &mut Vec<String>,
    ) -> Result<Cell> {
        let mut cell = Cell::new(load);
        cell.series.extend(self.proxies.iter().map(|proxy| Series::new(&proxy.name)));
        for round in 1..=rounds {
            for place in places(round, self.proxies.len()) {
                let (Some(proxy), Some(series)) =
                    (self.proxies.get(place), cell.series.get_mut(place))
                else {
                    continue;
                };
                if round == 1 {
                    commands.push(load.text(self.tools, self.options, proxy.address));
                }
                let sample = self.measure(proxy, load, round)?;
                say::line(format_args!(
                    "{} | {:>10} round {round}: {:>6.0} {unit}s/s, CPU {:>5.2} µs/{unit} \
                     (user {:.2}), errors {}",
                    cell.name,
                    proxy.name,
                    sample.requests_per_second,
                    sample.cpu_us(),
                    sample.user_us,
                    sample.errors,
                    unit = self.setup.unit(),
                ));
                series.samples.push(sample);
            }
        }
        Ok(cell)
    }

    fn measure(&self, proxy: &Running, load: Load, round: u32) -> Result<Sample> {
        if load.rate.is_none() {
            let warm_up = Load { seconds: WARM_UP_SECONDS, ..load };
            warm_up.run(self.tools, self.options, proxy.address)?;
        }
        let before = proxy.cpu()?;
        let outcome = load.run(self.tools, self.options, proxy.address)?;
        let after = proxy.cpu()?;
        let requests = outcome.answered();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let count = requests.max(1) as f64;
        Ok(Sample {
            round,
            requests,
            requests_per_second: outcome.per_second(),
            errors: outcome.failures(),
            p50_us: outcome.p50_ns.map(|nanoseconds| nanoseconds / 1e3),
            p99_us: outcome.p99_ns.map(|nanoseconds| nanoseconds / 1e3),
            user_us: (after.user_us - before.user_us) / count,
            system_us: (after.system_us - before.system_us) / count,
            rss_kib: proxy.rss_kib()?,
        })
    }

    /// The system calls of each proxy, counted apart from what is timed, as counting costs time.
    /// None if they cannot be counted.
    ///
    /// # Errors
    ///
    /// If a proxy has died.
    pub(crate) fn system_calls(
        &self,
        load: Load,
        commands: &mut Vec<String>,
    ) -> Result<Vec<SystemCalls>> {
        let mut counts = Vec::new();
        if !self.tools.has_perf {
            say::line("system calls are not counted: perf is missing (apt-get install linux-perf)");
            return Ok(counts);
        }
        let load = Load { seconds: COUNTING_SECONDS, ..load };
        for proxy in &self.proxies {
            let (address, ids) = (proxy.address, proxy.ids()?);
            let text = load.text(self.tools, self.options, address);
            let perf = "perf stat -x, -e raw_syscalls:sys_enter -p PID --";
            commands.push(format!("{perf} {text}"));
            match load.count_system_calls(self.tools, self.options, address, &ids) {
                Ok(each) => {
                    say::line(format_args!("{}: {each:.2} system calls", proxy.name));
                    counts.push(SystemCalls { load: load.name(), proxy: proxy.name.clone(), each });
                }
                Err(error) => say::line(format_args!("{}: not counted: {error:#}", proxy.name)),
            }
        }
        Ok(counts)
    }
}

/// The order of a round from 1: each begins with another, so that no proxy always has the same one
/// before it, or always runs at the same distance from the one it is compared with.
fn places(round: u32, count: usize) -> impl Iterator<Item = usize> {
    (round as usize - 1..).take(count).map(move |place| place % count)
}

/// Makes sure that the request of the load meets this rule, as `strait explain` says: another would make the figure one of
/// something else.
fn check_met(tools: &Tools, binary: &Binary, proxy: &Running, met: usize) -> Result<()> {
    let file = proxy.command.rsplit(' ').next().context("the command names the file")?;
    let url = format!("http://{}/bench", proxy.address);
    let arguments = ["explain", "-c", file, "-H", "x-user: 7", "--from", "127.0.0.1", "GET", &url];
    let story = Plain::new(&tools.root, &binary.path, &arguments).read()?;
    let rule = format!("rule {met} ");
    let is_met = story.lines().any(|line| line.starts_with(&rule) && line.ends_with(": matches"));
    anyhow::ensure!(is_met, "{}: the request does not meet rule {met}:\n{story}", proxy.name);
    Ok(())
}

/// Starts the service of `setup` on the core of the load.
///
/// # Errors
///
/// If it does not come up.
pub(crate) fn start_service(
    tools: &Tools,
    options: &Options,
    setup: Setup,
) -> Result<(Process, SocketAddr)> {
    let address = free_address()?;
    let (name, program, arguments) = match setup.service() {
        Service::Ours(name, more) => {
            let mut arguments = vec!["--listen".to_owned(), address.to_string()];
            arguments.extend(more.iter().map(|&word| word.to_owned()));
            (name, tools.program(name), arguments)
        }
        Service::Nginx => {
            let program = find("nginx").context("nginx is missing: apt-get install nginx")?;
            let template = tools.root.join("bench/configs/services/nginx.conf");
            let stem = tools.scratch.join("service-nginx");
            let config = write_config(&template, &stem, None, address, address)?;
            ("service-nginx", program, vec!["-c".to_owned(), config])
        }
    };
    let log = tools.scratch.join(format!("{name}.log"));
    let (mut process, _) = Process::start(tools, options.load_core, &program, &arguments, &log)?;
    process.wait_until_listening(address).context("the service")?;
    Ok((process, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another() {
        let order = |round| places(round, 3).collect::<Vec<_>>();
        assert_eq!(order(1), [0, 1, 2]);
        assert_eq!(order(2), [1, 2, 0]);
        assert_eq!(order(4), [0, 1, 2]);
        assert_eq!(places(1, 0).count(), 0);
    }
}
