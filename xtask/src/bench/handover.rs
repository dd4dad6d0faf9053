//! Scenario `handover`: what it takes to hand 9,000 idle connections to another process, beside a bare pass of as many sockets
//! (the program `pass`), and the memory of the process that has them then.
//!
//! Each round starts a process, opens connections with one request each, and runs `strait upgrade`. The time is that between
//! the phases `probe` and `commit`, which the running process reports in milliseconds. Then the same happens while another client's
//! 64 connections are busy for a second, and their answers are compared with those of a second before. Two seconds of the same load in
//! which nothing happens, and one in which `pass` passes as many bare sockets, say how much of that is the machine's.
//!
//! The same once more while a group of some 9,000 connections moves, which stands still meanwhile.
//!
//! What it costs that a process could be replaced is counted: instructions of an exchange (callgrind), and memory of an idle
//! connection, with and without the option.
//!
//! What moves between workers (`rebalance`) has no figures: that wants four cores, and this machine's two would measure the clients.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::proxy::{free_address, pause};
use super::rows::{self, Row};
use super::sample::median;
use super::{Options, proxy};
use crate::Surroundings;
use crate::instructions::{Counted, Counter};
use crate::plain::Plain;
use crate::profiling;
use crate::say;

/// A process that may open 20,000 files has room for 9,900 and as many to upstreams (`limits.connections_max`). All are one client's,
/// which may have half of that unless the listener says otherwise.
const CONNECTIONS: u32 = 9_000;

/// For memory to settle.
const SETTLE: Duration = Duration::from_secs(1);

/// Requests a second of the busy connections: a fraction of what both cores can do.
const BUSY_RATE: &str = "5000";

/// When the handover begins in the second of load.
const AMID_LOAD: Duration = Duration::from_millis(300);

/// How often a process is asked whether it is there.
const TRIES_MAX: u32 = 500;

struct Programs {
    strait: PathBuf,
    idle: PathBuf,
    pass: PathBuf,
    load: PathBuf,
    upstream: PathBuf,
    scratch: PathBuf,
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that took over: it is no child of this one.
struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0.to_string()]).status();
    }
}

/// What one handover took.
struct Sample {
    nanos_each: f64,
    rss_share: f64,
}

/// Answers in the second of a handover, to those of the second before.
struct Busy {
    p99: f64,
    longest: f64,
    longest_ms: f64,
}

/// A process that listens.
struct Process {
    program: Running,
    file: PathBuf,
    listen: SocketAddr,
}

/// A process with idle connections.
struct Started {
    process: Process,
    idle: Idle,
}

/// Clients that say nothing.
struct Idle {
    program: Running,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Measures and writes down.
///
/// # Errors
///
/// If a program does not build, a connection is closed, or a handover fails.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    profiling::build(&at.root, &["--package", "strait", "--bin", "strait"])?;
    let bins = ["idle", "pass", "load", "upstream"].map(|bin| ["--bin", bin]).concat();
    profiling::build(&at.root, &[&["--package", "bench"][..], &bins].concat())?;
    let target = at.target_directory()?;
    let scratch = target.join("bench/handover");
    fs::create_dir_all(&scratch).context("making target/bench/handover")?;
    let program = |name| profiling::program(&target, name);
    let programs = Programs {
        strait: program("strait"),
        idle: program("idle"),
        pass: program("pass"),
        load: program("load"),
        upstream: program("upstream"),
        scratch,
    };
    make_certificate(at, &programs.scratch)?;
    let load_before = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let mut samples = Samples::default();
    for round in 1..=options.rounds {
        samples.add_round(at, &programs)?;
        say::line(format_args!("round {round} of {}", options.rounds));
    }
    let intro = "9,000 connections with one request each, one worker; medians of the rounds.";
    rows::publish(at, options, &load_before, intro, &samples.rows(at)?)
}

/// What the rounds have measured.
#[derive(Default)]
struct Samples {
    bare: Vec<f64>,
    plain: Vec<Sample>,
    secure: Vec<Sample>,
    undisturbed: Vec<Busy>,
    beside_pass: Vec<Busy>,
    busy: Vec<Busy>,
    groups: Vec<(Busy, f64)>,
    idle_with: Vec<f64>,
    idle_without: Vec<f64>,
}

impl Samples {
    fn add_round(&mut self, at: &Surroundings, programs: &Programs) -> Result<()> {
        self.bare.push(pass(at, programs)?);
        self.plain.push(hand_over(programs, false)?);
        self.secure.push(hand_over(programs, true)?);
        self.undisturbed.push(while_nothing(programs)?);
        self.beside_pass.push(while_sockets_pass(programs)?);
        self.busy.push(while_busy(programs)?);
        self.groups.push(while_a_group_moves(programs)?);
        self.idle_with.push(idle_bytes(programs, true)?);
        self.idle_without.push(idle_bytes(programs, false)?);
        Ok(())
    }

    fn rows(&self, at: &Surroundings) -> Result<Vec<Row>> {
        let mut rows = Vec::from(self.idle_rows()?);
        rows.extend(self.busy_rows()?);
        let counter = Counter::build(at)?;
        let instructions = |case| counter.count(case, Counted::Operation);
        let exchange = instructions("exchange-handover")? / instructions("exchange-get")?;
        let with = of(&self.idle_with, |bytes| *bytes)?;
        let more_bytes = with - of(&self.idle_without, |bytes| *bytes)?;
        rows.extend([
            Row::new(
                "instructions of an exchange with the option `handover`, to those without",
                "x",
                exchange,
                Some(1.01),
            ),
            Row::new("idle connection of HTTP/1.1 with the option", "bytes", with, None),
            // Memory is resident in pages, some of which are none of a connection's.
            Row::new("more than without the option", "bytes", more_bytes, Some(1.0)),
        ]);
        Ok(rows)
    }

    fn idle_rows(&self) -> Result<[Row; 6]> {
        let floor = of(&self.bare, |nanos| *nanos)?;
        let nanos = |samples: &[Sample]| of(samples, |sample| sample.nanos_each);
        let (plain, secure) = (nanos(&self.plain)?, nanos(&self.secure)?);
        Ok([
            Row::new("bare pass of 9,000 sockets, each", "ns", floor, None),
            Row::new("idle connection of HTTP/1.1", "ns", plain, None),
            Row::new("idle connection of TLS 1.3", "ns", secure, None),
            Row::new(
                "idle connection of HTTP/1.1, to the bare pass",
                "x",
                plain / floor,
                Some(2.0),
            ),
            Row::new(
                "idle connection of TLS 1.3, to the bare pass",
                "x",
                secure / floor,
                Some(2.5),
            ),
            Row::new(
                "memory of the new process with 9,000 connections of TLS 1.3, to the old one's",
                "x",
                of(&self.secure, |sample| sample.rss_share)?,
                Some(1.1),
            ),
        ])
    }

    fn busy_rows(&self) -> Result<[Row; 9]> {
        let p99 = |samples: &[Busy]| of(samples, |sample| sample.p99);
        let longest = |samples: &[Busy]| of(samples, |sample| sample.longest);
        Ok([
            Row::new(
                "p99 of 64 busy connections in the second of a handover, to the second before",
                "x",
                p99(&self.busy)?,
                Some(1.5),
            ),
            Row::new("the same where nothing happens", "x", p99(&self.undisturbed)?, None),
            Row::new(
                "the same beside a bare pass of 9,000 sockets",
                "x",
                p99(&self.beside_pass)?,
                None,
            ),
            Row::new(
                "longest answer of the busy connections, to the second before",
                "x",
                longest(&self.busy)?,
                Some(2.0),
            ),
            Row::new(
                "the same beside a bare pass of 9,000 sockets",
                "x",
                longest(&self.beside_pass)?,
                None,
            ),
            Row::new(
                "longest answer of the busy connections",
                "ms",
                of(&self.busy, |sample| sample.longest_ms)?,
                None,
            ),
            Row::new(
                "p99 of the same while a group of 9,000 clients moves, to the second before",
                "x",
                of(&self.groups, |(busy, _)| busy.p99)?,
                Some(2.0),
            ),
            Row::new(
                "longest answer of the same, to the second before",
                "x",
                of(&self.groups, |(busy, _)| busy.longest)?,
                Some(2.0),
            ),
            Row::new(
                "how long the group is silent, at most",
                "ms",
                of(&self.groups, |(_, silence)| *silence)?,
                Some(500.0),
            ),
        ])
    }
}

/// The median of what the rounds have measured.
fn of<T>(samples: &[T], value: impl Fn(&T) -> f64) -> Result<f64> {
    median(samples.iter().map(value)).context("no round")
}

/// Nanoseconds for each socket.
fn pass(at: &Surroundings, programs: &Programs) -> Result<f64> {
    let count = CONNECTIONS.to_string();
    let program = programs.pass.display().to_string();
    let text = Plain::new(&at.root, &program, &["--connections", &count]).read()?;
    let nanos = text.split(' ').nth(3).context("what pass prints")?;
    Ok(nanos.parse::<f64>()? / f64::from(CONNECTIONS))
}

fn start(programs: &Programs, is_secure: bool) -> Result<Started> {
    let process = Process::start(programs, &Wanted { is_secure, ..Wanted::default() })?;
    let more = if is_secure { &["--tls", "yes"][..] } else { &[] };
    let idle = Idle::open(programs, process.listen, CONNECTIONS, more)?;
    pause(SETTLE);
    Ok(Started { process, idle })
}

impl Process {
    fn start(programs: &Programs, wanted: &Wanted) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = programs.scratch.join("strait.yaml");
        fs::write(&file, wanted.config(&programs.scratch, listen, admin))?;
        let log = File::create(programs.scratch.join("strait.log"))?;
        let mut strait = Command::new(&programs.strait);
        strait.arg("run").arg("-c").arg(&file).stdout(log.try_clone()?).stderr(log);
        let program = Running(strait.spawn().context("starting strait")?);
        let mut tries = 0..TRIES_MAX;
        while TcpStream::connect(listen).is_err() {
            ensure!(tries.next().is_some(), "strait does not listen: see strait.log");
            pause(Duration::from_millis(10));
        }
        Ok(Self { program, file, listen })
    }
}

impl Idle {
    fn open(programs: &Programs, target: SocketAddr, count: u32, more: &[&str]) -> Result<Self> {
        let mut idle = Command::new(&programs.idle);
        idle.args(["--target", &target.to_string(), "--connections", &count.to_string()]);
        idle.args(more);
        let mut program = Running(idle.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let mut lines = lines_of(&mut program)?;
        let open = lines.next().context("idle has ended")??;
        ensure!(open == format!("open {count}"), "{open}");
        Ok(Self { program, lines })
    }

    /// Ends them. None has lost its connection.
    fn finish(mut self) -> Result<()> {
        drop(self.program.0.stdin.take());
        let closed = self.lines.next().context("idle has ended")??;
        ensure!(closed == "closed 0", "{closed}");
        Ok(())
    }
}

fn lines_of(program: &mut Running) -> Result<Lines<BufReader<ChildStdout>>> {
    Ok(BufReader::new(program.0.stdout.take().context("stdout was piped")?).lines())
}

/// Bytes of an idle connection of HTTP/1.1 in a process that may be replaced, or in one that may not.
fn idle_bytes(programs: &Programs, hands_over: bool) -> Result<f64> {
    let process = Process::start(programs, &Wanted { hands_over, ..Wanted::default() })?;
    pause(SETTLE);
    let before = proxy::rss_kib_of(process.program.0.id())? as f64;
    let idle = Idle::open(programs, process.listen, CONNECTIONS, &[])?;
    pause(SETTLE);
    let after = proxy::rss_kib_of(process.program.0.id())? as f64;
    idle.finish()?;
    Ok((after - before) * 1024.0 / f64::from(CONNECTIONS))
}

/// Has the process replaced: what was printed, and the new one.
fn replace(programs: &Programs, process: &Process) -> Result<(String, Successor)> {
    let mut upgrade = Command::new(&programs.strait);
    let upgrade = upgrade.arg("upgrade").arg("-c").arg(&process.file).output()?;
    let text = String::from_utf8_lossy(&upgrade.stdout).into_owned();
    if !upgrade.status.success() {
        bail!("{text}{}", String::from_utf8_lossy(&upgrade.stderr));
    }
    let pid = text.lines().find_map(|line| line.strip_prefix("process ")?.split(' ').next());
    let new = Successor(pid.context("which process serves")?.parse()?);
    Ok((text, new))
}

/// Milliseconds between the phases in which connections move.
fn moving_ms(text: &str) -> Result<f64> {
    let after = |phase: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(phase)?.strip_prefix(" after "));
        Ok(line.and_then(|it| it.strip_suffix(" ms")).context("a phase")?.parse()?)
    };
    Ok(after("commit")? - after("probe")?)
}

fn hand_over(programs: &Programs, is_secure: bool) -> Result<Sample> {
    let Started { process, idle } = start(programs, is_secure)?;
    let before = proxy::rss_kib_of(process.program.0.id())?;
    let (text, new) = replace(programs, &process)?;
    let nanos_each = moving_ms(&text)? * 1e6 / f64::from(CONNECTIONS);
    pause(SETTLE);
    let rss_share = proxy::rss_kib_of(new.0)? as f64 / before as f64;
    idle.finish()?;
    Ok(Sample { nanos_each, rss_share })
}

fn while_busy(programs: &Programs) -> Result<Busy> {
    let Started { process, idle } = start(programs, false)?;
    let (busy, _, new) = busy_while_replaced(programs, &process)?;
    idle.finish()?;
    drop(new);
    Ok(busy)
}

/// The same while a group moves, and for how many milliseconds that is silent at most: 9,000 clients with two streams of HTTP/2 each.
/// A stream of a client before them is the first of the 100 on an upstream connection, so that each upstream connection has a stream of
/// a client that has its other one on the next.
fn while_a_group_moves(programs: &Programs) -> Result<(Busy, f64)> {
    let mut upstream = Command::new(&programs.upstream);
    upstream.args(["--listen", "127.0.0.1:0", "--protocol", "silent"]);
    let mut upstream = Running(upstream.stdout(Stdio::piped()).spawn()?);
    let service = lines_of(&mut upstream)?.next().context("upstream has ended")??.parse()?;
    let group = free_address()?;
    let wanted = Wanted { group: Some((group, service)), ..Wanted::default() };
    let process = Process::start(programs, &wanted)?;
    let first = Idle::open(programs, group, 1, &["--streams", "1"])?;
    let others = Idle::open(programs, group, CONNECTIONS, &["--streams", "2"])?;
    pause(SETTLE);
    let (busy, text, new) = busy_while_replaced(programs, &process)?;
    first.finish()?;
    others.finish()?;
    drop(new);
    Ok((busy, moving_ms(&text)?))
}

/// How busy connections fare in a second in which nothing else happens.
fn while_nothing(programs: &Programs) -> Result<Busy> {
    let process = Process::start(programs, &Wanted::default())?;
    Ok(busy_while(programs, &process, || Ok(()))?.0)
}

/// The same beside a bare pass of as many sockets as move otherwise.
fn while_sockets_pass(programs: &Programs) -> Result<Busy> {
    let process = Process::start(programs, &Wanted::default())?;
    let mut pass = Command::new(&programs.pass);
    pass.args(["--connections", &CONNECTIONS.to_string(), "--wait", "yes"]);
    let mut pass = Running(pass.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let mut lines = lines_of(&mut pass)?;
    let mut line = || lines.next().context("pass has ended")?.context("what pass prints");
    ensure!(line()? == "ready", "pass is not ready");
    let mut input = pass.0.stdin.take().context("stdin was piped")?;
    let passing = || {
        input.write_all(b"\n")?;
        line()
    };
    Ok(busy_while(programs, &process, passing)?.0)
}

/// How others fare while the process is replaced, what was printed, and the new one.
fn busy_while_replaced(
    programs: &Programs,
    process: &Process,
) -> Result<(Busy, String, Successor)> {
    let (busy, (text, new)) = busy_while(programs, process, || replace(programs, process))?;
    Ok((busy, text, new))
}

/// How busy connections to the process fare in a second in which something happens, to the second before.
fn busy_while<T>(
    programs: &Programs,
    process: &Process,
    happens: impl FnOnce() -> Result<T>,
) -> Result<(Busy, T)> {
    let load = || {
        let mut load = Command::new(&programs.load);
        load.args(["--target", &process.listen.to_string(), "--connections", "64"]);
        load.args(["--seconds", "1", "--warmup", "0", "--rate", BUSY_RATE]);
        load.stdout(Stdio::piped()).spawn().context("starting load")
    };
    let latencies = |load: Child| -> Result<(f64, f64)> {
        let output = load.wait_with_output()?;
        let result: Value = serde_json::from_slice(&output.stdout).context("what load prints")?;
        let number = |key| result.get(key).and_then(Value::as_f64).context("what load prints");
        ensure!(number("errors")? == 0.0 && number("unanswered")? == 0.0, "{result}");
        Ok((number("p99_ns")?, number("max_ns")?))
    };
    let (p99_before, longest_before) = latencies(load()?)?;
    let running = load()?;
    pause(AMID_LOAD);
    let what = happens()?;
    let (p99, longest) = latencies(running)?;
    let (p99, longest_ms) = (p99 / p99_before, longest / 1e6);
    Ok((Busy { p99, longest: longest / longest_before, longest_ms }, what))
}

/// What a process is configured to do.
struct Wanted {
    is_secure: bool,
    hands_over: bool,
    /// Where clients of HTTP/2 connect, and the service that they ask.
    group: Option<(SocketAddr, SocketAddr)>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { is_secure: false, hands_over: true, group: None }
    }
}

impl Wanted {
    fn config(&self, scratch: &Path, listen: SocketAddr, admin: SocketAddr) -> String {
        let limits =
            "timeouts: { idle: 10m }, connections_max: 12000, connections_per_client_max: 12000";
        let tls = "tls: { certificates: [{ chain: site.crt, key: site.key }] }, ";
        let tls = if self.is_secure { tls } else { "" };
        // The process before may still have the other one.
        let socket = scratch.join(format!("handover-{}/strait.sock", listen.port()));
        let mut text = format!("workers: 1\nadmin: {{ address: '{admin}' }}\n");
        if self.hands_over {
            text += &format!("handover: {{ socket: {}, probation: 30s }}\n", socket.display());
        }
        text += &format!(
            "listeners:\n  - {{ name: bench, address: '{listen}', routes: all, {tls}{limits} }}\n"
        );
        let mut behind = String::new();
        if let Some((group, service)) = self.group {
            text +=
                &format!("  - {{ name: group, address: '{group}', routes: silent, {limits} }}\n");
            behind = format!(
                "  - {{ name: silent, rules: [{{ match: {{ prefix: / }}, cluster: silent, timeout: 10m }}] }}\nclusters:\n  - {{ \
                 name: silent, protocol: http2, connections_max: 4000, pending_max: 100000, endpoints: ['{service}'] }}\n"
            );
        }
        text + "routes:\n  - { name: all, rules: [{ match: { prefix: / }, respond: { status: 200, body: ok } }] }\n"
            + &behind
    }
}

fn make_certificate(at: &Surroundings, scratch: &Path) -> Result<()> {
    let [certificate, key] =
        ["site.crt", "site.key"].map(|name| scratch.join(name).display().to_string());
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=bench.test -days 3650 -keyout";
    let mut arguments: Vec<&str> = words.split_whitespace().collect();
    arguments.extend([&*key, "-out", &*certificate]);
    Plain::new(&at.root, "openssl", &arguments).read_errors()?;
    Ok(())
}
