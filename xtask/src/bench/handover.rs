//! Scenario `handover`: what it takes to hand 9,000 idle connections to another process, beside a bare pass of as many sockets
//! (the program `pass`), and the memory of the process that has them then.
//!
//! Each round starts a process, opens connections with one request each, and runs `strait upgrade`. The time is that between
//! the phases `probe` and `commit`, which the running process reports in milliseconds. Then the same happens while another client's
//! 64 connections are busy for a second, and their answers are compared with those of a second before.
//!
//! What moves between workers (`rebalance`) has no figures: that wants four cores, and this machine's two would measure the clients.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Lines};
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

/// A process with idle connections.
struct Started {
    old: Running,
    idle: Running,
    lines: Lines<BufReader<ChildStdout>>,
    file: PathBuf,
    listen: SocketAddr,
}

/// Measures and writes down.
///
/// # Errors
///
/// If a program does not build, a connection is closed, or a handover fails.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    profiling::build(&at.root, &["--package", "strait", "--bin", "strait"])?;
    profiling::build(
        &at.root,
        &["--package", "bench", "--bin", "idle", "--bin", "pass", "--bin", "load"],
    )?;
    let target = at.target_directory()?;
    let scratch = target.join("bench/handover");
    fs::create_dir_all(&scratch).context("making target/bench/handover")?;
    let program = |name| profiling::program(&target, name);
    let programs = Programs {
        strait: program("strait"),
        idle: program("idle"),
        pass: program("pass"),
        load: program("load"),
        scratch,
    };
    make_certificate(at, &programs.scratch)?;
    let load_before = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let (mut bare, mut plain, mut secure) = (Vec::new(), Vec::new(), Vec::new());
    let mut busy = Vec::new();
    for round in 1..=options.rounds {
        bare.push(pass(at, &programs)?);
        plain.push(hand_over(&programs, false)?);
        secure.push(hand_over(&programs, true)?);
        busy.push(while_busy(&programs)?);
        say::line(format_args!("round {round} of {}", options.rounds));
    }
    let of = |samples: &[Sample], value: fn(&Sample) -> f64| {
        median(samples.iter().map(value)).context("no round")
    };
    let floor = median(bare).context("no round")?;
    let nanos = |samples| of(samples, |sample| sample.nanos_each);
    let (plain_each, secure_each) = (nanos(&plain)?, nanos(&secure)?);
    let rows = [
        Row::new("bare pass of 9,000 sockets, each", "ns", floor, None),
        Row::new("idle connection of HTTP/1.1", "ns", plain_each, None),
        Row::new("idle connection of TLS 1.3", "ns", secure_each, None),
        Row::new(
            "idle connection of HTTP/1.1, to the bare pass",
            "x",
            plain_each / floor,
            Some(2.0),
        ),
        Row::new(
            "idle connection of TLS 1.3, to the bare pass",
            "x",
            secure_each / floor,
            Some(2.5),
        ),
        Row::new(
            "memory of the new process with 9,000 connections of TLS 1.3, to the old one's",
            "x",
            of(&secure, |sample| sample.rss_share)?,
            Some(1.1),
        ),
        Row::new(
            "p99 of 64 busy connections in the second of a handover, to the second before",
            "x",
            median(busy.iter().map(|sample| sample.p99)).context("no round")?,
            Some(1.5),
        ),
        Row::new(
            "longest answer of the same, to the second before",
            "x",
            median(busy.iter().map(|sample| sample.longest)).context("no round")?,
            Some(2.0),
        ),
        Row::new(
            "longest answer of the same",
            "ms",
            median(busy.iter().map(|sample| sample.longest_ms)).context("no round")?,
            None,
        ),
    ];
    let intro = "9,000 connections with one request each, one worker; medians of the rounds.";
    rows::publish(at, options, &load_before, intro, &rows)
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
    let (listen, admin) = (free_address()?, free_address()?);
    let file = programs.scratch.join("strait.yaml");
    fs::write(&file, config(&programs.scratch, listen, admin, is_secure))?;
    let log = File::create(programs.scratch.join("strait.log"))?;
    let mut strait = Command::new(&programs.strait);
    strait.arg("run").arg("-c").arg(&file).stdout(log.try_clone()?).stderr(log);
    let old = Running(strait.spawn().context("starting strait")?);
    let mut tries = 0..TRIES_MAX;
    while TcpStream::connect(listen).is_err() {
        ensure!(tries.next().is_some(), "strait does not listen: see strait.log");
        pause(Duration::from_millis(10));
    }
    let mut idle = Command::new(&programs.idle);
    idle.args(["--target", &listen.to_string(), "--connections", &CONNECTIONS.to_string()]);
    if is_secure {
        idle.args(["--tls", "yes"]);
    }
    let mut idle = Running(idle.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let mut lines = BufReader::new(idle.0.stdout.take().context("stdout was piped")?).lines();
    let open = lines.next().context("idle has ended")??;
    ensure!(open == format!("open {CONNECTIONS}"), "{open}");
    pause(SETTLE);
    Ok(Started { old, idle, lines, file, listen })
}

/// Has the process replaced: what was printed, and the new one.
fn replace(programs: &Programs, started: &Started) -> Result<(String, Successor)> {
    let mut upgrade = Command::new(&programs.strait);
    let upgrade = upgrade.arg("upgrade").arg("-c").arg(&started.file).output()?;
    let text = String::from_utf8_lossy(&upgrade.stdout).into_owned();
    if !upgrade.status.success() {
        bail!("{text}{}", String::from_utf8_lossy(&upgrade.stderr));
    }
    let pid = text.lines().find_map(|line| line.strip_prefix("process ")?.split(' ').next());
    let new = Successor(pid.context("which process serves")?.parse()?);
    Ok((text, new))
}

/// Ends the clients, none of which has lost its connection.
fn finish(mut started: Started) -> Result<()> {
    drop(started.idle.0.stdin.take());
    let closed = started.lines.next().context("idle has ended")??;
    ensure!(closed == "closed 0", "{closed}");
    Ok(())
}

fn hand_over(programs: &Programs, is_secure: bool) -> Result<Sample> {
    let started = start(programs, is_secure)?;
    let before = proxy::rss_kib_of(started.old.0.id())?;
    let (text, new) = replace(programs, &started)?;
    let after = |phase: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(phase)?.strip_prefix(" after "));
        Ok(line.and_then(|it| it.strip_suffix(" ms")).context("a phase")?.parse()?)
    };
    let millis = after("commit")? - after("probe")?;
    pause(SETTLE);
    let rss_share = proxy::rss_kib_of(new.0)? as f64 / before as f64;
    finish(started)?;
    Ok(Sample { nanos_each: millis * 1e6 / f64::from(CONNECTIONS), rss_share })
}

fn while_busy(programs: &Programs) -> Result<Busy> {
    let started = start(programs, false)?;
    let load = || {
        let mut load = Command::new(&programs.load);
        load.args(["--target", &started.listen.to_string(), "--connections", "64"]);
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
    let (_, new) = replace(programs, &started)?;
    let (p99, longest) = latencies(running)?;
    finish(started)?;
    drop(new);
    Ok(Busy { p99: p99 / p99_before, longest: longest / longest_before, longest_ms: longest / 1e6 })
}

fn config(scratch: &Path, listen: SocketAddr, admin: SocketAddr, is_secure: bool) -> String {
    let tls = "    tls: { certificates: [{ chain: site.crt, key: site.key }] }\n";
    let tls = if is_secure { tls } else { "" };
    // The process before may still have the other one.
    let socket = scratch.join(format!("handover-{}/strait.sock", listen.port()));
    format!(
        "workers: 1\nadmin: {{ address: '{admin}' }}\nhandover: {{ socket: {}, probation: 30s }}\nlisteners:\n  - name: bench\n    \
         address: '{listen}'\n    routes: all\n    timeouts: {{ idle: 10m }}\n    connections_max: 12000\n    connections_per_client_max: 12000\n{tls}routes:\n  - name: \
         all\n    rules: [{{ match: {{ prefix: / }}, respond: {{ status: 200, body: ok }} }}]\n",
        socket.display()
    )
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
