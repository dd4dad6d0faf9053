//! Signals, the admin interface and the drain work while outputs block and builds take long.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::kit::{Scratch, Service, Strait, forward_to, get, until};

/// A pipe that holds all that it can.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    // By whole pages, and then what is left in the last one.
    for piece in [&[b'.'; 4096][..], b"."] {
        while writer.write(piece).is_ok() {}
    }
    assert_eq!(writer.write(b".").unwrap_err().kind(), ErrorKind::WouldBlock);
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// A Strait of whose messages nothing can be read: it listens on paths that are known.
struct Unheard {
    child: Child,
    scratch: Scratch,
}

impl Unheard {
    /// Runs a listener for everything that forwards to `service`, and an access log on standard output.
    fn run(service: &Service, stdout: Stdio, stderr: Stdio) -> Self {
        let scratch = Scratch::new();
        let config = Self::config(&scratch, service);
        let file = scratch.write("strait.yaml", &config);
        let child = Command::new(env!("CARGO_BIN_EXE_strait"))
            .args(["run", "-c", &file])
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap();
        let this = Self { child, scratch };
        until("it to be ready", || this.admin("/ready").filter(|page| page.contains(" 200 ")));
        this
    }

    fn config(scratch: &Scratch, service: &Service) -> String {
        let (admin, edge) = (scratch.path("admin.sock"), scratch.path("edge.sock"));
        let (admin, edge) = (admin.display(), edge.display());
        let config = forward_to(service.address).replace("127.0.0.1:0", &format!("'unix:{edge}'"));
        format!("admin: {{ address: 'unix:{admin}' }}\naccess_log: {{ output: stdout }}\n{config}")
    }

    /// A response of the admin interface, once it is there.
    fn admin(&self, path: &str) -> Option<String> {
        self.ask("admin.sock", path)
    }

    fn ask(&self, socket: &str, path: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.scratch.path(socket)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        Some(response)
    }

    fn rewrite(&self, config: &str) {
        self.scratch.write("new", config);
        fs::rename(self.scratch.path("new"), self.scratch.path("strait.yaml")).unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn wait_for_end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("its end", || child.try_wait().unwrap())
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn standard_error_that_is_not_read_leaves_admin_reload_and_drain_at_work() {
    let service = Service::start("one");
    let (_reader, writer) = full_pipe();
    let mut strait = Unheard::run(&service, Stdio::null(), writer.into());
    strait.rewrite(&(Unheard::config(&strait.scratch, &service) + "\n"));
    until("the change", || strait.admin("/config").filter(|page| page.contains("\"version\": 2")));
    assert!(strait.ask("edge.sock", "/").unwrap().contains(" 200 "));
    strait.signal(Signal::TERM);
    assert!(strait.wait_for_end().success());
}

#[test]
fn standard_error_that_is_not_read_leaves_a_second_signal_at_work() {
    let service = Service::start("one");
    let (_reader, writer) = full_pipe();
    let mut strait = Unheard::run(&service, Stdio::null(), writer.into());
    let mut waiting = UnixStream::connect(strait.scratch.path("edge.sock")).unwrap();
    waiting.write_all(b"GET /gate HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    service.wait_at_gate();
    strait.signal(Signal::TERM);
    until("the drain", || strait.admin("/ready").filter(|page| page.contains("draining")));
    assert!(strait.child.try_wait().unwrap().is_none());
    strait.signal(Signal::TERM);
    assert_eq!(strait.wait_for_end().code(), Some(1));
}

#[test]
fn outputs_that_were_closed_end_nothing() {
    let service = Service::start("one");
    let broken = || Stdio::from(std::io::pipe().unwrap().1);
    let mut strait = Unheard::run(&service, broken(), broken());
    for _ in 0..3 {
        assert!(strait.ask("edge.sock", "/").unwrap().contains(" 200 "));
    }
    until("the loss to be counted", || {
        let page = strait.admin("/stats?filter=strait_access_log_lines_lost_total").unwrap();
        page.contains("strait_access_log_lines_lost_total 3").then_some(())
    });
    strait.signal(Signal::TERM);
    assert!(strait.wait_for_end().success());
}

/// A configuration with 100,000 hosts more, in 10,000 route tables.
fn with_many_hosts(config: &str) -> String {
    let (mut names, mut tables) = (String::new(), String::new());
    for table in 0..10_000 {
        let hosts = (0..10).map(|host| format!("h{host}.t{table}.test")).collect::<Vec<_>>();
        let hosts = hosts.join(", ");
        write!(names, ", t{table}").unwrap();
        let rules = "[{ match: { prefix: / }, respond: {} }]";
        writeln!(tables, "  - {{ name: t{table}, hosts: [{hosts}], rules: {rules} }}").unwrap();
    }
    config
        .replace("routes: all }", &format!("routes: [all{names}] }}"))
        .replace("clusters:\n", &format!("{tables}clusters:\n"))
}

/// Waits until the builder's thread has worked for some time.
fn wait_for_build(strait: &Strait) {
    let before = strait.thread_ticks("strait-builder");
    until("a build", || (strait.thread_ticks("strait-builder") >= before + 5).then_some(()));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the time that answers take is what is tested")]
fn a_large_configuration_is_built_while_the_admin_interface_answers() {
    let service = Service::start("one");
    let small = forward_to(service.address);
    let large = with_many_hosts(&small);
    let mut strait = Strait::run(&small);
    strait.rewrite(&large);
    let began = Instant::now();
    let (mut asked, mut slowest) = (0, Duration::ZERO);
    while strait.times_logged("configuration applied") == 0 {
        let before = began.elapsed();
        assert_eq!(get(strait.admin, "/healthz").status, 200);
        slowest = slowest.max(began.elapsed() - before);
        asked += 1;
        let error = strait.times_logged("configuration refused");
        assert!(error == 0 && before < Duration::from_secs(120), "not taken up");
    }
    let took = began.elapsed();
    println!("built in {took:?}; {asked} times asked; the slowest answer took {slowest:?}");
    assert!(slowest < took / 4, "{slowest:?} of {took:?}");

    // Configurations that come during a build are built afterwards, and the last one wins.
    strait.rewrite(&(large.clone() + "#\n"));
    wait_for_build(&strait);
    strait.rewrite(&small);
    until("the small one again", || {
        let tables = strait.admin_json("/config")["effective"]["routes"].as_array().unwrap().len();
        (tables == 1).then_some(())
    });
    // A signal during a build ends the process at once.
    strait.rewrite(&large);
    wait_for_build(&strait);
    strait.signal(Signal::TERM);
    let before = Instant::now();
    assert!(strait.wait_for_end().success());
    let (ended, took) = (before.elapsed(), took / 4);
    assert!(ended < took, "{ended:?}, {took:?}");
}
