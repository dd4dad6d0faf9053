//! A process with a large configuration: its memory beside Envoy's, and what changes cost it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::configs::{
    Change, ENDPOINTS_FILE, ENDPOINTS_OF, FILES, Size, chains, endpoints, endpoints_of, envoy,
    file_of, strait,
};
use crate::bench::proxy::{free_address, pause};
use crate::bench::rows::Row;
use crate::say;

/// The size of the table.
const SIZE: Size = Size { clusters: 10_000, endpoints: 5, rules: 10_000 };

/// How long a process may take to be ready.
const READY_MAX: Duration = Duration::from_secs(180);

/// Memory is read so long after a process is ready.
const SETTLE: Duration = Duration::from_secs(4);

/// The programs, and a folder for their files.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) strait: PathBuf,
    pub(super) envoy: Option<PathBuf>,
    pub(super) upstream: PathBuf,
    pub(super) load: PathBuf,
    /// Bare threads that wake each other as Strait's do.
    pub(super) wakes: PathBuf,
    pub(super) scratch: PathBuf,
}

/// A program that runs until this is dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(programs: &Programs, program: &Path, arguments: &[&str]) -> Result<Child> {
        let log = File::create(programs.scratch.join("scale.log"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| program.display().to_string())
    }

    fn strait(
        programs: &Programs,
        text: impl FnOnce(SocketAddr, SocketAddr) -> String,
    ) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = programs.file();
        fs::write(&file, text(listen, admin))?;
        programs.replace_endpoints(0)?;
        programs.replace_all_endpoints(&programs.scratch, 0)?;
        let arguments = ["run", "-c", file.to_str().context("a path")?];
        let child = Self::start(programs, &programs.strait, &arguments)?;
        let mut process = Self { child, listen, admin };
        process.wait_until(|it| it.ask("/ready").is_ok_and(|page| page.contains(" 200 ")))?;
        Ok(process)
    }

    fn envoy(programs: &Programs, program: &Path, size: Size) -> Result<(Self, Duration)> {
        let listen = free_address()?;
        let file = programs.scratch.join("scale.json");
        fs::write(&file, envoy(size, listen).to_string())?;
        let began = now();
        let path = file.to_str().context("a path")?;
        let arguments = ["-c", path, "--concurrency", "1", "--disable-hot-restart", "-l", "error"];
        let child = Self::start(programs, program, &arguments)?;
        let mut process = Self { child, listen, admin: listen };
        process.wait_until(|it| TcpStream::connect(it.listen).is_ok())?;
        Ok((process, began.elapsed()))
    }

    fn wait_until(&mut self, mut is_so: impl FnMut(&Self) -> bool) -> Result<()> {
        let began = now();
        while !is_so(self) {
            if let Some(status) = self.child.try_wait()? {
                bail!("ended with {status}: see scale.log");
            }
            if began.elapsed() > READY_MAX {
                bail!("not ready in {READY_MAX:?}");
            }
            pause(Duration::from_millis(2));
        }
        Ok(())
    }

    /// A page of the admin interface.
    fn ask(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.admin)?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    }

    /// The version that was handed to workers last.
    fn version(&self) -> Result<f64> {
        let page = self.ask("/ready?verbose")?;
        let version = page.lines().find_map(|line| line.strip_prefix("configuration version "));
        let version = version.and_then(|rest| rest.split(' ').next()).context("no version")?;
        Ok(version.parse()?)
    }

    /// Samples of the metrics that begin with this.
    fn metrics(&self, filter: &str) -> Result<Metrics> {
        Ok(Metrics(self.ask(&format!("/stats?filter={filter}*"))?))
    }

    /// All metrics, with the buckets of histograms.
    fn histograms(&self) -> Result<Metrics> {
        Ok(Metrics(self.ask("/metrics")?))
    }

    fn rss_kib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
        Ok(kib.trim().parse()?)
    }

    /// CPU time of the threads of this name, µs; of the main thread for none.
    fn cpu_us(&self, name: Option<&str>) -> Result<f64> {
        self.cpu_us_of(|comm, is_main| name.map_or(is_main, |name| comm == name))
    }

    /// The same of all threads.
    fn cpu_us_of_all(&self) -> Result<f64> {
        self.cpu_us_of(|_, _| true)
    }

    /// The same of threads that are chosen by their names, and by whether one is the main thread.
    fn cpu_us_of(&self, is_it: impl Fn(&str, bool) -> bool) -> Result<f64> {
        let id = self.child.id();
        let mut total = 0.0;
        for entry in fs::read_dir(format!("/proc/{id}/task"))? {
            let entry = entry?;
            let is_main = entry.file_name().to_str() == Some(&id.to_string());
            let read = |file: &str| fs::read_to_string(entry.path().join(file));
            // A thread may have ended.
            let (Ok(comm), Ok(times)) = (read("comm"), read("schedstat")) else { continue };
            if is_it(comm.trim(), is_main) {
                let ns: f64 = times.split(' ').next().unwrap_or_default().parse()?;
                total += ns / 1000.0;
            }
        }
        Ok(total)
    }
}

/// A page of metrics.
struct Metrics(String);

impl Metrics {
    fn get(&self, name: &str) -> f64 {
        let lines = self.0.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.filter_map(|value| value.trim().parse::<f64>().ok()).sum()
    }

    /// Turns of control that took longer than `bound` seconds, which is one of the histogram's, since `before`.
    fn turns_above(&self, before: &Self, bound: &str) -> f64 {
        let above = |it: &Self| {
            it.get(TURNS) - it.get(&format!("strait_control_turn_seconds_bucket{{le=\"{bound}\"}}"))
        };
        above(self) - above(before)
    }
}

/// How many turns control has had.
const TURNS: &str = "strait_control_turn_seconds_count";

impl Programs {
    fn file(&self) -> PathBuf {
        self.scratch.join("scale.yaml")
    }

    fn replace_endpoints(&self, number: usize) -> Result<()> {
        self.replace(&self.scratch.join(ENDPOINTS_FILE), &endpoints(number))
    }

    /// Gives all clusters with a file other endpoints, if their files are in this folder.
    fn replace_all_endpoints(&self, folder: &Path, number: usize) -> Result<()> {
        for cluster in 0..FILES {
            self.replace(&folder.join(file_of(cluster)), &endpoints_of(cluster, number))?;
        }
        Ok(())
    }

    fn replace(&self, path: &Path, text: &str) -> Result<()> {
        let part = path.with_file_name("part");
        fs::write(&part, text)?;
        Ok(fs::rename(part, path)?)
    }

    /// A folder for files that no configuration names.
    fn elsewhere(&self) -> PathBuf {
        self.scratch.join("elsewhere")
    }

    /// Starts `upstream`, and says where it listens.
    fn upstream(&self) -> Result<(Process, SocketAddr)> {
        let (child, line) = first_line(&self.upstream, &["--listen", "127.0.0.1:0"])?;
        let address: SocketAddr = line.trim().parse()?;
        Ok((Process { child, listen: address, admin: address }, address))
    }

    /// Starts `wakes`, which watches its folder.
    fn wakes(&self) -> Result<Process> {
        let folder = self.wakes_folder();
        fs::create_dir_all(&folder)?;
        let folder = folder.to_str().context("a path")?;
        let (child, _) = first_line(&self.wakes, &["--folder", folder])?;
        let nowhere: SocketAddr = ([127, 0, 0, 1], 9).into();
        Ok(Process { child, listen: nowhere, admin: nowhere })
    }

    fn wakes_folder(&self) -> PathBuf {
        self.scratch.join("wakes")
    }

    /// What `load` says, in ns or in whatever `key` is.
    fn load(
        &self,
        target: SocketAddr,
        seconds: u32,
        rate: Option<u32>,
    ) -> Result<serde_json::Value> {
        let mut command = Command::new(&self.load);
        command.args(["--target", &target.to_string(), "--connections", "64", "--warmup", "1"]);
        command.args(["--seconds", &seconds.to_string()]);
        if let Some(rate) = rate {
            command.args(["--rate", &rate.to_string()]);
        }
        let output = command.output()?;
        serde_json::from_slice(&output.stdout).context("what load prints")
    }
}

/// Starts a program, and returns what it says first.
fn first_line(program: &Path, arguments: &[&str]) -> Result<(Child, String)> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| program.display().to_string())?;
    let mut line = Vec::new();
    let mut output = child.stdout.take().context("its output")?;
    let mut byte = [0];
    while output.read(&mut byte)? == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    Ok((child, String::from_utf8(line)?))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// All of it.
///
/// # Errors
///
/// If a program does not do what it should.
pub(super) fn run(programs: &Programs, rounds: u32, seconds: u32) -> Result<Vec<Row>> {
    let mut rows = memory(programs)?;
    rows.extend(changes(programs)?);
    rows.extend(under_load(programs, rounds, seconds)?);
    rows.extend(chains_met(programs, rounds)?);
    Ok(rows)
}

fn memory(programs: &Programs) -> Result<Vec<Row>> {
    let nowhere: SocketAddr = ([127, 0, 0, 1], 9).into();
    let rss = |size: Size| -> Result<f64> {
        let process = Process::strait(programs, |listen, admin| {
            strait(size, Change::default(), (listen, admin, nowhere))
        })?;
        pause(SETTLE);
        process.rss_kib()
    };
    let base = rss(SIZE)?;
    let mut rows = vec![Row::new("resident memory", "MiB", base / 1024.0, None)];
    if let Some(program) = &programs.envoy {
        let (process, ready) = Process::envoy(programs, program, SIZE)?;
        pause(SETTLE);
        let other = process.rss_kib()?;
        rows.push(Row::new("resident memory of Envoy", "MiB", other / 1024.0, None));
        rows.push(Row::new("Envoy is ready after", "s", ready.as_secs_f64(), None));
        rows.push(Row::new("resident memory to Envoy's", "x", base / other, Some(0.2)));
    }
    let each = |more: f64, count: usize| (more - base) * 1024.0 / count_f64(count);
    let endpoint = each(rss(Size { endpoints: 25, ..SIZE })?, 20 * SIZE.clusters);
    rows.push(Row::new("memory of an endpoint", "B", endpoint, Some(500.0)));
    let cluster = each(rss(Size { clusters: 2 * SIZE.clusters, ..SIZE })?, SIZE.clusters);
    let cluster = cluster - endpoint * count_f64(SIZE.endpoints);
    rows.push(Row::new("memory of a cluster without endpoints", "B", cluster, Some(4096.0)));
    let rule = each(rss(Size { rules: 2 * SIZE.rules, ..SIZE })?, SIZE.rules);
    rows.push(Row::new("memory of a route", "B", rule, Some(1536.0)));
    Ok(rows)
}

fn count_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// Names of the threads whose time counts: the builder, the worker.
const BUILDER: Option<&str> = Some("strait-builder");
const WORKER: Option<&str> = Some("strait-worker-0");

fn changes(programs: &Programs) -> Result<Vec<Row>> {
    let nowhere: SocketAddr = ([127, 0, 0, 1], 9).into();
    let text = |change: Change, process: &Process| {
        strait(SIZE, change, (process.listen, process.admin, nowhere))
    };
    let mut process = Process::strait(programs, |listen, admin| {
        strait(SIZE, Change::default(), (listen, admin, nowhere))
    })?;
    pause(SETTLE);
    let wakes = programs.wakes()?;
    let mut rows = changed_endpoints(programs, &process, &wakes)?;
    drop(wakes);
    // A cluster, and a rule of a virtual host, in the file of the configuration.
    let turns = process.histograms()?;
    let changed = |name: &str, change: &dyn Fn(usize) -> Change, process: &mut Process| {
        let mut waits = Vec::new();
        let (before, used) = (process.metrics("strait_config_")?, process.cpu_us(BUILDER)?);
        for number in 1..=5 {
            let text = text(change(number), process);
            let known = process.version()?;
            let began = now();
            programs.replace(&programs.file(), &text)?;
            // Metrics of so many clusters take longer. What workers take is beside it.
            process.wait_until(|it| it.version().is_ok_and(|version| version > known))?;
            waits.push(began.elapsed().as_secs_f64() * 1000.0);
        }
        let (after, now_used) = (process.metrics("strait_config_")?, process.cpu_us(BUILDER)?);
        let used = (now_used - used) / 1000.0 / 5.0;
        let seconds = |name: &str| {
            let sum = format!("strait_config_{name}_seconds_sum");
            (after.get(&sum) - before.get(&sum)) * 1000.0 / 5.0
        };
        waits.sort_by(f64::total_cmp);
        let median = waits.get(2).copied().unwrap_or_default();
        let what = format!("a changed {name} in the file: written until workers have it");
        // 0.6 of 486 ms, which the loader alone took before the store was there.
        anyhow::Ok([
            Row::new(&what, "ms", median, Some(292.0)),
            Row::new(&format!("of that, CPU of the builder ({name})"), "ms", used, None),
            Row::new(
                &format!("of that, reading and building ({name})"),
                "ms",
                seconds("build"),
                None,
            ),
            Row::new(&format!("of that, taking up ({name})"), "ms", seconds("take_up"), None),
        ])
    };
    let cluster = |number| Change { connections: number, ..Change::default() };
    rows.extend(changed("cluster", &cluster, &mut process)?);
    let rule = |number| Change { timeout: number, connections: 5 };
    rows.extend(changed("rule", &rule, &mut process)?);
    let what = "turns of control above 10 ms meanwhile";
    rows.push(Row::new(what, "", process.histograms()?.turns_above(&turns, "0.01"), Some(0.0)));
    rows.extend(pages(programs, &process)?);
    Ok(rows)
}

/// How often an endpoint changes by itself.
const SINGLE_CHANGES: u32 = 60;

/// An endpoint of a file, so many times, in turns with what wakes bare threads in the same way; and as long without.
fn changed_endpoints(programs: &Programs, process: &Process, wakes: &Process) -> Result<Vec<Row>> {
    let times = |of: &Process| -> Result<[f64; 4]> {
        let [builder, control, worker] =
            [of.cpu_us(BUILDER)?, of.cpu_us(None)?, of.cpu_us(WORKER)?];
        let others = of.cpu_us_of_all()? - builder - control - worker;
        Ok([builder, control, worker, others])
    };
    // Changes are put together until the folder has been quiet for 100 ms: each of these is taken up by itself.
    let gap = Duration::from_millis(250);
    // Of the process and of the bare threads: with changes, less without.
    let mut used = [[0.0; 4]; 2];
    let version = process.version()?;
    for sign in [-1.0, 1.0] {
        let before = [times(process)?, times(wakes)?];
        for number in 1..=SINGLE_CHANGES {
            if sign > 0.0 {
                programs.replace_endpoints(usize::try_from(number)?)?;
            }
            pause(gap);
            if sign > 0.0 {
                programs.replace(&programs.wakes_folder().join("file"), "")?;
            }
            pause(gap);
        }
        let after = [times(process)?, times(wakes)?];
        for ((used, after), before) in used.iter_mut().zip(after).zip(before) {
            for ((used, after), before) in used.iter_mut().zip(after).zip(before) {
                *used += sign * (after - before);
            }
        }
    }
    let taken = process.version()? - version;
    if taken < 1.0 {
        bail!("no change of the endpoints was taken up");
    }
    let count = f64::from(SINGLE_CHANGES);
    let mut rows =
        vec![Row::new("changed endpoints of a file that were taken up, of 60", "", taken, None)];
    let [used, bare] = used;
    for (of, used, count, bounds) in [
        ("a changed endpoint of a file", used, taken, [Some(200.0), Some(10.0)]),
        ("the same wakes of bare threads", bare, count, [None, None]),
    ] {
        let [builder, control, worker, others] = used.map(|used| used / count);
        let [both_max, worker_max] = bounds;
        rows.push(Row::new(&format!("{of}, the builder"), "us", builder, None));
        rows.push(Row::new(&format!("{of}, control"), "us", control, None));
        rows.push(Row::new(&format!("{of}, both"), "us", builder + control, both_max));
        rows.push(Row::new(&format!("{of}, a worker"), "us", worker, worker_max));
        // Those that watch files and write the log.
        rows.push(Row::new(&format!("{of}, other threads"), "us", others, None));
    }
    Ok(rows)
}

/// Pages of the admin interface, those that list what is configured among them.
const PAGES: [&str; 13] = [
    "/",
    "/ready?verbose",
    "/metrics",
    "/stats?filter=strait_config*",
    "/slow",
    "/connections",
    "/config",
    "/config?resource=cluster/cluster-5000",
    "/clusters",
    "/listeners",
    "/routes",
    "/sources",
    "/handover",
];

/// How long pages are asked for.
const PAGES_FOR: Duration = Duration::from_secs(20);

/// What pages cost control: a client asks for one after the other, while all endpoints in files change four times a second. With
/// two clients, whose pages are written on threads of their own, two cores are busy, and control waits for one of them.
fn pages(programs: &Programs, process: &Process) -> Result<Vec<Row>> {
    let is_over = AtomicBool::new(false);
    let before = process.histograms()?;
    let asked = thread::scope(|scope| {
        let writing = scope.spawn(|| write_often(programs, &programs.scratch, &is_over));
        let ask = || -> Result<u32> {
            let mut count = 0;
            for page in PAGES.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let text = process.ask(page)?;
                if !text.starts_with("HTTP/1.1 200 ") {
                    bail!("{page}: {}", text.lines().next().unwrap_or_default());
                }
                count += 1;
            }
            Ok(count)
        };
        let asking = scope.spawn(ask);
        pause(PAGES_FOR);
        is_over.store(true, Ordering::Relaxed);
        let asked = asking.join().unwrap_or_else(|_| bail!("the client of pages failed"))?;
        writing.join().unwrap_or_else(|_| bail!("the writer failed"))?;
        anyhow::Ok(asked)
    })?;
    let after = process.histograms()?;
    let row = |bound: &str, at_most| {
        let (seconds, above): (f64, _) = (bound.parse()?, after.turns_above(&before, bound));
        let what =
            format!("turns of control above {:.1} ms while pages are asked for", seconds * 1e3);
        anyhow::Ok(Row::new(&what, "", above, at_most))
    };
    let turns = after.get(TURNS) - before.get(TURNS);
    Ok(vec![
        Row::new("pages that were asked for while endpoints change", "", f64::from(asked), None),
        Row::new("turns of control meanwhile", "", turns, None),
        row("0.001", None)?,
        row("0.01", Some(0.0))?,
    ])
}

fn under_load(programs: &Programs, rounds: u32, seconds: u32) -> Result<Vec<Row>> {
    let (_upstream, address) = programs.upstream()?;
    let process = Process::strait(programs, |listen, admin| {
        strait(SIZE, Change::default(), (listen, admin, address))
    })?;
    pause(SETTLE);
    let full = programs.load(process.listen, 3, None)?;
    let number = |value: &serde_json::Value, key: &str| {
        value.get(key).and_then(serde_json::Value::as_f64).unwrap_or_default()
    };
    let half = number(&full, "requests") / number(&full, "seconds").max(1.0) / 2.0;
    let rate = format!("{half:.0}").parse::<u32>()?;
    let elsewhere = programs.elsewhere();
    fs::create_dir_all(&elsewhere).context("making a folder that nothing watches")?;
    // To what it is while nothing is written, to what it is while the same is written elsewhere; and of that to nothing.
    let (mut ratios, mut own, mut written) = (Vec::new(), Vec::new(), Vec::new());
    let mut noise = Vec::new();
    let (mut errors, mut changed, mut taken) = (0.0, 0, 0.0);
    // Of the builder and of control; a worker's is in that of its requests.
    let mut used = [0.0; 2];
    let times = |process: &Process| -> Result<[f64; 2]> {
        Ok([process.cpu_us(BUILDER)?, process.cpu_us(None)?])
    };
    let mut quiet = programs.load(process.listen, seconds, Some(rate))?;
    let load_while_writing = |folder: &Path| -> Result<(usize, serde_json::Value)> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing = scope.spawn(|| write_often(programs, folder, &is_over));
            let load = programs.load(process.listen, seconds, Some(rate));
            is_over.store(true, Ordering::Relaxed);
            let count = writing.join().unwrap_or_else(|_| bail!("the writer failed"))?;
            Ok((count, load?))
        })
    };
    for _ in 0..rounds {
        let (version, before) = (process.version()?, times(&process)?);
        let (count, under) = load_while_writing(&programs.scratch)?;
        changed += count;
        for ((used, after), before) in used.iter_mut().zip(times(&process)?).zip(before) {
            *used += after - before;
        }
        let now = process.version()?;
        taken += now - version;
        // The writer needs processors, too, and is no part of what is measured.
        let (_, beside) = load_while_writing(&elsewhere)?;
        // Before and after: what these two differ by is the machine's.
        let after = programs.load(process.listen, seconds, Some(rate))?;
        let [before_p99, under_p99, beside_p99, after_p99] =
            [&quiet, &under, &beside, &after].map(|it| (number(it, "p99_ns") / 1e6).max(0.001));
        say::line(format_args!(
            "p99 {before_p99:.3} ms, while endpoints change {under_p99:.3} ms, while other files do {beside_p99:.3} ms, then \
             {after_p99:.3} ms"
        ));
        let calm = f64::midpoint(before_p99, after_p99);
        ratios.push(under_p99 / calm);
        own.push(under_p99 / beside_p99);
        written.push(beside_p99 / calm);
        noise.push(before_p99.max(after_p99) / before_p99.min(after_p99));
        errors += number(&under, "errors") + number(&under, "unanswered");
        quiet = after;
    }
    let median = median_of(&mut ratios);
    let per_second = count_f64(changed) / f64::from(rounds * (seconds + 1));
    let [builder, control] = used.map(|used| used / count_f64(changed).max(1.0));
    Ok(vec![
        Row::new("requests a second, half of the most", "", f64::from(rate), None),
        Row::new("changes of an endpoint a second that were written", "", per_second, None),
        Row::new(
            "snapshots a second that came of them",
            "",
            taken / f64::from(rounds * (seconds + 1)),
            None,
        ),
        Row::new("an endpoint among them, the builder", "us", builder, None),
        Row::new("an endpoint among them, control", "us", control, None),
        Row::new("p99 of a client under them to none before and after", "x", median, Some(1.2)),
        Row::new("the same to as many files that nothing watches", "x", median_of(&mut own), None),
        Row::new("p99 beside these files to none", "x", median_of(&mut written), None),
        Row::new(
            "p99 with none to none, the larger to the smaller",
            "x",
            median_of(&mut noise),
            None,
        ),
        Row::new("failed requests under them", "", errors, Some(0.0)),
    ])
}

fn median_of(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Writes all endpoints that have files into a folder, each another, four times a second: what is written within 100 ms is read together,
/// and here each of these is taken up. Returns how many endpoints.
fn write_often(programs: &Programs, folder: &Path, is_over: &AtomicBool) -> Result<usize> {
    let (began, mut count) = (now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        count += 1;
        programs.replace_all_endpoints(folder, count)?;
        let due = Duration::from_millis(250) * u32::try_from(count)?;
        pause(due.saturating_sub(began.elapsed()));
    }
    Ok(count * FILES * ENDPOINTS_OF)
}

fn chains_met(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let (_upstream, address) = programs.upstream()?;
    let connections = 5_000;
    let mut ratios = Vec::new();
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let mut round = [0.0; 2];
        for ((count, cost), costs) in [10, 10_000].into_iter().zip(&mut round).zip(&mut costs) {
            let process =
                Process::strait(programs, |listen, admin| chains(count, (listen, admin, address)))?;
            connect(process.listen, 500)?;
            let before = process.cpu_us(WORKER)?;
            connect(process.listen, connections)?;
            *cost = (process.cpu_us(WORKER)? - before) / count_f64(connections);
            costs.push(*cost);
        }
        let [few, many] = round;
        ratios.push(many / few);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).copied().unwrap_or_default();
    let mut rows = Vec::new();
    for (name, mut costs) in ["10", "10,000"].into_iter().zip(costs) {
        costs.sort_by(f64::total_cmp);
        let cost = costs.get(costs.len() / 2).copied().unwrap_or_default();
        let what = format!("a connection with one request, {name} chains, a worker");
        rows.push(Row::new(&what, "us", cost, None));
    }
    rows.push(Row::new("the second to the first", "x", median, Some(1.2)));
    Ok(rows)
}

/// So many connections, each with one request.
fn connect(to: SocketAddr, count: usize) -> Result<()> {
    let mut answer = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(to)?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
        answer.clear();
        stream.read_to_end(&mut answer)?;
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            bail!("another answer than 200");
        }
    }
    Ok(())
}
