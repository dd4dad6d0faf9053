//! `strait top` of a running process.

use std::fs;
use std::io::Read as _;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::{Service, Strait, claim_port, forward_to, get, strait, text, until};

fn once(admin: &str, arguments: &[&str]) -> Vec<Vec<String>> {
    let all = [&["top", "--once", "--interval", "100ms", "--admin", admin], arguments].concat();
    let output = strait(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    table.lines().map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn a_table_is_printed_once_for_scripts() {
    let service = Service::start("one");
    let other = "  - { name: other, endpoints: ['127.0.0.1:1', '127.0.0.1:2'] }\n";
    let process = Strait::run(&(forward_to(service.address) + other));
    get(process.listener, "/");
    let admin = process.admin.to_string();
    let names = |rows: &[Vec<String>]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    let rows = once(&admin, &["--sort", "name"]);
    assert_eq!(names(&rows), ["CLUSTER", "other", "service"]);
    assert_eq!(rows[1][1], "2", "endpoints");
    assert_eq!(names(&once(&admin, &["--sort", "name", "--limit", "1"])), ["CLUSTER", "other"]);
    assert_eq!(names(&once(&admin, &["--filter", "s*v"])), ["CLUSTER", "service"]);
    let listeners = once(&admin, &["--view", "listeners"]);
    assert_eq!(names(&listeners), ["LISTENER", "edge"]);
    assert_eq!(listeners[1][1], process.listener.to_string());
    let sources = once(&admin, &["--view", "sources"]);
    assert_eq!(names(&sources), ["SOURCE", "file", "dns"]);
    assert!(once(&admin, &["--view", "slow"]).len() > 1);
}

#[test]
fn weighted_clusters_get_what_their_weights_ask_for() {
    let service = Service::start("one");
    let one = service.address;
    let text = forward_to(one).replace(
        "cluster: service }",
        "clusters: [{ cluster: service, weight: 3 }, { cluster: other, weight: 1 }] }",
    ) + &format!("  - {{ name: other, endpoints: ['{one}'] }}\n");
    assert!(text.contains("weight: 3"), "{text}");
    let process = Strait::run(&text);
    for _ in 0..400 {
        get(process.listener, "/");
    }
    let rows = once(&process.admin.to_string(), &["--view", "weights"]);
    let row = |at: usize| rows[at].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(row(0)[..4], ["CLUSTER", "WEIGHT", "WANTED", "SHARE"]);
    assert_eq!(
        [row(1)[0], row(1)[2], row(2)[0], row(2)[2]],
        ["service", "75.0%", "other", "25.0%"]
    );
    let count = |at: usize| row(at)[4].parse::<u32>().unwrap();
    assert_eq!(count(1) + count(2), 400);
    // Of 400 with one of four each: for p = 10^-6, 57 to 149.
    assert!((57..=149).contains(&count(2)), "{rows:?}");
    let page = process.admin_json("/routes");
    assert_eq!(page["rules"][0]["exchanges_total"], 400);
    assert_eq!(page["rules"][0]["clusters"][1]["name"], "other");
    assert_eq!(process.admin_json("/routes?filter=none")["matched"], 0);
}

#[test]
fn who_cannot_be_shown_is_named() {
    let unused = format!("127.0.0.1:{}", claim_port());
    let service = Service::start("one");
    let process = Strait::run(&forward_to(service.address));
    for (arguments, part) in [
        (&["--admin", &unused, "--once"][..], "is the process running"),
        (&["--admin", &service.address.to_string(), "--once"], "not the admin interface of Strait"),
        // A test has no terminal.
        (
            &["--admin", &process.admin.to_string()],
            "standard output is none): with --once it prints a table",
        ),
        (&["--interval", "1ms"], "at least 100ms"),
        (&["--interval", "1"], "a duration needs a unit"),
    ] {
        let output = strait(&[&["top"], arguments].concat());
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(part), "{part:?} in {}", text(&output.stderr));
    }
}

/// `strait top` in a terminal, that of `script`.
struct InTerminal {
    script: Child,
    screen: ChildStdout,
    shown: String,
    pid: u32,
}

impl InTerminal {
    /// Starts it, and waits until it has drawn.
    fn start(admin: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_strait");
        let command = format!(
            "stty rows 24 cols 80; echo \"pid $$ \"; exec '{program}' top --admin '{admin}'"
        );
        let mut script = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, which comes with util-linux");
        let screen = script.stdout.take().unwrap();
        let mut it = Self { script, screen, shown: String::new(), pid: 0 };
        // Its last line.
        it.wait_for("q quit");
        let (_, behind) = it.shown.split_once("pid ").unwrap();
        it.pid = behind.split(' ').next().unwrap().parse().unwrap();
        it
    }

    fn wait_for(&mut self, part: &str) {
        let mut bytes = [0; 4096];
        while !self.shown.contains(part) {
            let n = self.screen.read(&mut bytes).unwrap();
            assert!(n > 0, "{part:?} is not in {:?}", self.shown);
            self.shown += &String::from_utf8_lossy(&bytes[..n]);
        }
    }

    /// Another may be its parent by now, and not have heard of its end.
    fn has_ended(&self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return true };
        stat.contains(") Z ")
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = kill_process(pid_of(self.pid), Signal::KILL);
        }
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

#[test]
fn it_ends_with_its_terminal() {
    let mut top = InTerminal::start("127.0.0.1:1");
    top.script.kill().unwrap();
    until("its end", || top.has_ended().then_some(()));
}

#[test]
fn a_signal_that_ends_it_leaves_the_terminal_as_it_was() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut top = InTerminal::start("127.0.0.1:1");
        kill_process(pid_of(top.pid), signal).unwrap();
        top.wait_for("\u{1b}[?25h");
        top.wait_for("\u{1b}[?1049l");
        assert!(top.script.wait().unwrap().success(), "{signal:?}");
    }
}
