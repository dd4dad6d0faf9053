//! Notifications to a service manager, and the sockets that it passes on.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use io::packets::ProcessHandle;
use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, process, upgraded, with_handover};
use crate::kit::{
    Scratch, Service, Strait, claim_port, forward_to, get, read, strait, text, until,
};

/// Gives the process descriptor 3, which is what the test hands over as standard input.
const SOCKET: &str = r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@""#;

/// A service manager's socket, at a path.
struct Manager {
    socket: UnixDatagram,
    path: String,
    _scratch: Scratch,
}

impl Manager {
    fn new() -> Self {
        let scratch = Scratch::new();
        let path = scratch.path("notify").to_str().unwrap().to_owned();
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, path, _scratch: scratch }
    }

    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a message");
        text(&buffer[..length])
    }

    /// Skips what is not `state`, and gives the rest of that message.
    fn wait_for(&self, state: &str) -> String {
        loop {
            let message = self.next();
            if let Some(rest) = message.strip_prefix(state) {
                return rest.trim_start().to_owned();
            }
        }
    }
}

#[test]
fn a_service_manager_is_notified_of_start_reloads_and_end() {
    let (service, manager) = (Service::start("one"), Manager::new());
    let variables = [("NOTIFY_SOCKET", &*manager.path)];
    let run = r#"exec "$0" "$@""#;
    let mut strait = Strait::run_by(run, Stdio::null(), &variables, &forward_to(service.address));
    assert_eq!(manager.next(), "READY=1\nSTATUS=configuration version 1 serves");

    strait.signal(Signal::HUP);
    let reloading = manager.wait_for("RELOADING=1\nMONOTONIC_USEC=");
    let (began, status) = reloading.split_once('\n').unwrap();
    assert!(began.parse::<u64>().is_ok_and(|began| began > 0), "{began}");
    assert!(status.starts_with("STATUS=reading /"), "{status}");
    assert_eq!(manager.wait_for("READY=1"), "STATUS=configuration version 2 serves");

    strait.rewrite("listeners: 1");
    let refused = manager.wait_for("STATUS=");
    assert!(refused.starts_with("configuration version 2 serves; a later one was refused at "));

    strait.signal(Signal::TERM);
    let end = manager.wait_for("STOPPING=1");
    assert!(end.starts_with("EXTEND_TIMEOUT_USEC="), "{end}");
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

/// The arguments of a command of the packaging's unit.
fn command_of_unit(key: &str) -> Vec<String> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/strait.service");
    let unit = read(&unit);
    let command = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let mut words = command.unwrap().split(' ').map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("/usr/bin/strait"));
    words.collect()
}

#[test]
fn a_reload_of_the_unit_is_an_upgrade_that_the_service_manager_follows() {
    let (service, manager, folder) = (Service::start("one"), Manager::new(), Scratch::new());
    let runtime = folder.path("run").to_str().unwrap().to_owned();
    fs::create_dir(&runtime).unwrap();
    let variables = [("NOTIFY_SOCKET", &*manager.path), ("RUNTIME_DIRECTORY", &*runtime)];
    let config = format!("handover: {{ probation: 0s }}\n{}", forward_to(service.address));
    let mut strait = Strait::run_by(r#"exec "$0" "$@""#, Stdio::null(), &variables, &config);
    manager.wait_for("READY=1");
    let file = strait.path("strait.yaml");
    let arguments = command_of_unit("ExecReload").into_iter();
    let arguments =
        arguments.map(|it| it.replace("/etc/strait/strait.yaml", file.to_str().unwrap()));
    let output = Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(arguments)
        .env("RUNTIME_DIRECTORY", &runtime)
        .output()
        .unwrap();
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    let successor = manager.wait_for("MAINPID=");
    let mut successors = Successors::default();
    successors.0.push(successor.parse().unwrap());
    assert!(out.contains(&format!("process {successor} serves")), "{out}");
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert_eq!(get(strait.listener, "/").status, 200);
    kill_process(process(successors.0[0]), Signal::TERM).unwrap();
    assert!(manager.wait_for("STOPPING=1").contains("STATUS=draining"));
}

#[test]
fn a_service_manager_that_cannot_be_reached_is_logged_once() {
    let (service, scratch) = (Service::start("one"), Scratch::new());
    let path = scratch.path("notify");
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let run = r#"exec "$0" "$@""#;
    let mut strait = Strait::run_by(run, Stdio::null(), &variables, &forward_to(service.address));
    let line = strait.wait_for_log("NOTIFY_SOCKET: ");
    assert!(line.contains("No such file or directory"), "{line}");
    assert!(line.contains(r"not sent: READY=1\nSTATUS="), "{line}");
    strait.signal(Signal::HUP);
    strait.wait_for_version(2);
    assert_eq!(strait.times_logged("NOTIFY_SOCKET: "), 1);
}

#[test]
fn a_watchdog_that_is_asked_for_comes_again_and_again() {
    let (service, manager) = (Service::start("one"), Manager::new());
    let variables = [("NOTIFY_SOCKET", &*manager.path), ("WATCHDOG_USEC", "200000")];
    let run = r#"exec "$0" "$@""#;
    let _strait = Strait::run_by(run, Stdio::null(), &variables, &forward_to(service.address));
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
}

#[test]
fn a_listener_takes_the_socket_that_was_handed_over_and_keeps_it_over_reloads() {
    let service = Service::start("one");
    // No listener of Strait's own could share it: it is without SO_REUSEPORT, and stays open here.
    let socket = TcpListener::bind(("127.0.0.1", claim_port())).unwrap();
    let address = socket.local_addr().unwrap();
    let handed = Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
    let config = forward_to(service.address).replace("127.0.0.1:0", &address.to_string());
    let strait = Strait::run_by(SOCKET, handed, &[], &config);
    assert_eq!(strait.listener, address);
    for _ in 0..8 {
        assert_eq!(get(address, "/").status, 200);
    }
    // Another name is another listener, on the same socket.
    strait.rewrite(&config.replace("name: edge", "name: door"));
    strait.wait_for_version(2);
    for _ in 0..8 {
        assert_eq!(get(address, "/").status, 200);
    }
}

#[test]
fn a_socket_that_no_listener_has_is_named_at_the_start() {
    let service = Service::start("one");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", &forward_to(service.address));
    let output = Command::new("sh")
        .args(["-c", SOCKET, env!("CARGO_BIN_EXE_strait"), "run", "-c", &file])
        .env("LISTEN_FDNAMES", "web.socket")
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    let expected = format!(
        "descriptor 3 (web.socket) listens on {address}, which is the address of no listener"
    );
    assert!(error.contains(&expected), "{error}");
    assert!(strait(&["check", "-c", &file]).status.success());
}

#[test]
fn descriptors_that_cannot_be_used_are_named_with_what_is_wrong() {
    let service = Service::start("one");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let scratch = Scratch::new();
    let config = forward_to(service.address).replace("127.0.0.1:0", &address.to_string());
    let file = scratch.write("strait.yaml", &config);
    let started = |descriptors: &str, count: &str, names: &str| {
        let script = format!("exec {descriptors} </dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_strait"), "run", "-c", &file])
            .envs([("LISTEN_FDS", count), ("LISTEN_FDNAMES", names)])
            .stdin(Stdio::from(OwnedFd::from(socket.try_clone().unwrap())))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let error = started("3<&0 4<&0", "2", ":second");
    let expected = format!("descriptor 4 (second) listens on {address} as another one does");
    assert!(error.contains(&expected), "{error}");
    let error = started("3</dev/null", "1", "");
    assert!(error.contains("only sockets can be listened on"), "{error}");
    let error = started("3<&0", "9999", "");
    assert!(error.contains("LISTEN_FDS exceeds the number of descriptors"), "{error}");
    assert!(error.contains("\nand 4075 more"), "{error}");
}

/// A process with two unix sockets, one of which a socket unit has bound: that of the listener `local`, or one of the admin interface's.
struct Activated {
    strait: Strait,
    /// The unit's, which it has as long as the test runs.
    unit: PathBuf,
    _socket: UnixListener,
    inode: u64,
    /// The process's own.
    own: PathBuf,
    _service: Service,
    _scratch: Scratch,
}

impl Activated {
    fn new(is_admin: bool, probation: &str) -> Self {
        let (service, scratch) = (Service::start("one"), Scratch::new());
        let [unit, own] = ["unit.sock", "own.sock"].map(|name| scratch.path(name));
        let socket = UnixListener::bind(&unit).unwrap();
        let inode = fs::symlink_metadata(&unit).unwrap().ino();
        let (local, admin) = if is_admin { (&own, &unit) } else { (&unit, &own) };
        let (local, admin) = (local.display(), admin.display());
        let local =
            format!("  - {{ name: local, address: 'unix:{local}', routes: all }}\nroutes:\n");
        let config = forward_to(service.address).replace("routes:\n", &local);
        let config = with_handover(&scratch, &config, &format!("probation: {probation}"));
        let config =
            format!("admin: {{ address: '127.0.0.1:0', metrics: 'unix:{admin}' }}\n{config}");
        let handed = Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
        let strait = Strait::run_by(SOCKET, handed, &[], &config);
        Self { strait, unit, _socket: socket, inode, own, _service: service, _scratch: scratch }
    }

    /// What is left once all processes have ended.
    fn assert_files_are_right(&self) {
        let inode = fs::symlink_metadata(&self.unit).ok().map(|found| found.ino());
        assert_eq!(inode, Some(self.inode), "the unit's file");
        assert!(!self.own.exists(), "the process's own file");
    }
}

fn end(pid: u32) {
    let handle = ProcessHandle::open(pid).unwrap();
    kill_process(process(pid), Signal::TERM).unwrap();
    assert!(handle.wait(Duration::from_secs(20)).unwrap());
}

#[test]
fn files_of_a_socket_unit_outlive_each_process_and_others_do_not() {
    for is_admin in [false, true] {
        let (activated, mut successors) = (Activated::new(is_admin, "0s"), Successors::default());
        for _ in 0..2 {
            upgraded(&activated.strait, &mut successors);
            assert!(activated.own.exists() && activated.unit.exists());
        }
        end(successors.0[1]);
        activated.assert_files_are_right();
    }
}

#[test]
fn the_file_of_a_socket_unit_stays_where_a_reload_of_a_new_process_removes_its_listener() {
    let (activated, mut successors) = (Activated::new(false, "0s"), Successors::default());
    upgraded(&activated.strait, &mut successors);
    let config = read(&activated.strait.path("strait.yaml"));
    let without = config.lines().filter(|line| !line.contains("name: local"));
    let version = activated.strait.config()["version"].as_u64().unwrap();
    activated.strait.rewrite(&without.map(|line| format!("{line}\n")).collect::<String>());
    activated.strait.wait_for_version(version + 1);
    end(successors.0[0]);
    activated.assert_files_are_right();
}

#[test]
fn the_file_of_a_socket_unit_stays_where_a_process_serves_again_that_was_replaced() {
    for is_admin in [false, true] {
        let (mut activated, mut successors) =
            (Activated::new(is_admin, "1m"), Successors::default());
        upgraded(&activated.strait, &mut successors);
        kill_process(process(successors.0[0]), Signal::KILL).unwrap();
        activated.strait.wait_for_log("accepts connections again");
        let admin = activated.strait.admin;
        until("the admin interface", || (get(admin, "/ready").status == 200).then_some(()));
        activated.strait.signal(Signal::TERM);
        assert_eq!(activated.strait.wait_for_end().code(), Some(0));
        activated.assert_files_are_right();
    }
}
