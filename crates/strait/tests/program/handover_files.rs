//! Files of unix sockets that something else removes or replaces.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, process, upgrade, upgraded, with_handover};
use crate::kit::{Scratch, Service, Strait, forward_to, text, until, until_within};

/// A process with a unix listener besides.
fn run(service: &Service, mode: &str) -> (Strait, PathBuf) {
    let scratch = Scratch::new();
    let path = scratch.path("edge.sock");
    let local = format!(
        "routes: all }}\n  - {{ name: local, address: 'unix:{}', {mode}routes: all }}",
        path.display()
    );
    let config = forward_to(service.address).replacen("routes: all }", &local, 1);
    let config = with_handover(&scratch, &config, "probation: 1m");
    (Strait::run_in(scratch, &config), path)
}

/// The status line that a listener at `path` answers with, if one does.
fn answer(path: &Path) -> Option<String> {
    let mut stream = UnixStream::connect(path).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    response.lines().next().map(str::to_owned)
}

fn serves(path: &Path) -> Option<()> {
    answer(path).filter(|line| line.starts_with("HTTP/1.0 200 ")).map(drop)
}

#[test]
fn another_programs_socket_keeps_its_permissions_in_an_upgrade() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let [edge, admin] = ["edge.sock", "admin.sock"].map(|name| scratch.path(name));
    let local = format!(
        "routes: all }}\n  - {{ name: local, address: 'unix:{}', mode: '0666', routes: all }}",
        edge.display()
    );
    let config = forward_to(service.address).replacen("routes: all }", &local, 1);
    let at = format!("address: 'unix:{}', metrics: 127.0.0.1:0", admin.display());
    let config = with_handover(&scratch, &config, "probation: 1m");
    let config = format!("admin: {{ {at}, mode: '0666' }}\n{config}");
    let path = scratch.write("strait.yaml", &config);
    let mut strait = Strait::start(scratch, &["run", "-c", &path]);
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&edge), mode(&admin)), (0o666, 0o666));
    let others = [&edge, &admin].map(|path| {
        fs::remove_file(path).unwrap();
        let other = UnixListener::bind(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        other
    });
    upgraded(&strait, &mut successors);
    assert_eq!((mode(&edge), mode(&admin)), (0o600, 0o600), "after the upgrade");
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!((mode(&edge), mode(&admin)), (0o600, 0o600), "after the way back");
    strait.wait_for_log("edge.sock is not the socket's file any more");
    drop(others);
}

#[test]
fn a_unix_listener_whose_file_was_removed_is_bound_anew_by_an_upgrade() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (mut strait, path) = run(&service, "mode: '0640', ");
    let mut kept = UnixStream::connect(&path).unwrap();
    fs::remove_file(&path).unwrap();
    upgraded(&strait, &mut successors);
    strait.wait_for_log("edge.sock was removed by another program, and is bound anew");
    assert_eq!(serves(&path), Some(()), "{}", strait.all_logged());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    // One that was there before goes on.
    kept.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    kept.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.0 200 "), "{response}");
    // The file of the new process goes with that, however it ends, and the old one makes its own.
    kill_process(process(successors.0[0]), Signal::KILL).unwrap();
    until("the old process at the path", || serves(&path));
    fs::remove_file(&path).unwrap();
    upgraded(&strait, &mut successors);
    assert_eq!(serves(&path), Some(()), "{}", strait.all_logged());
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    until("the end of the process that gave back", || strait.children().is_empty().then_some(()));
    until("the old process at the path", || serves(&path));
}

#[test]
fn a_unix_listener_whose_file_was_removed_is_bound_anew_by_a_reload() {
    let service = Service::start("one");
    let (strait, path) = run(&service, "");
    assert_eq!(serves(&path), Some(()));
    for round in 1..=2 {
        fs::remove_file(&path).unwrap();
        strait.signal(Signal::HUP);
        until("the listener", || serves(&path));
        let times = strait.times_logged("was removed by another program, and is bound anew");
        assert_eq!(times, round, "{}", strait.all_logged());
    }
    // Another program's socket stays, and a file in its place does.
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    strait.signal(Signal::HUP);
    strait.wait_for_version(4);
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "nothing connects to it");
    drop(other);
    strait.signal(Signal::HUP);
    until("the listener in the place of a stale file", || serves(&path));
    drop(strait);
    until("the file's end", || (!path.exists()).then_some(()));
}

#[test]
fn a_socket_of_the_admin_interface_whose_file_was_removed_is_bound_anew_by_a_reload() {
    // Metrics have no page at /.
    for (of, tcp, status) in [("address", "metrics", "200 "), ("metrics", "address", "404 ")] {
        let (service, scratch) = (Service::start("one"), Scratch::new());
        let socket = scratch.path("admin.sock");
        let at = format!("{of}: 'unix:{}', {tcp}: 127.0.0.1:0", socket.display());
        let config = format!("admin: {{ {at}, mode: '0640' }}\n{}", forward_to(service.address));
        let path = scratch.write("strait.yaml", &config);
        let mut strait = Strait::start(scratch, &["run", "-c", &path]);
        let is_answer = |line: &str| line.starts_with(&format!("HTTP/1.0 {status}"));
        let is_there = || answer(&socket).filter(|line| is_answer(line));
        until(of, is_there);
        for round in 1..=2 {
            // What is open goes on to its next answer.
            let mut kept = UnixStream::connect(&socket).unwrap();
            fs::remove_file(&socket).unwrap();
            strait.signal(Signal::HUP);
            until(of, is_there);
            assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o640);
            kept.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut response = String::new();
            kept.read_to_string(&mut response).unwrap();
            assert!(is_answer(&response), "{response}");
            let times = strait.times_logged("was removed by another program, and is bound anew");
            assert_eq!(times, round, "{}", strait.all_logged());
        }
        // Another program's socket stays.
        fs::remove_file(&socket).unwrap();
        let other = UnixListener::bind(&socket).unwrap();
        strait.signal(Signal::HUP);
        strait.wait_for_log("cannot be bound anew");
        drop(other);
        strait.signal(Signal::HUP);
        until("the admin interface in the place of a stale file", is_there);
        strait.signal(Signal::TERM);
        assert_eq!(strait.wait_for_end().code(), Some(0));
        assert!(!socket.exists());
    }
}

#[test]
fn a_process_is_found_again_whose_socket_of_handovers_was_removed() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (mut strait, _) = run(&service, "");
    let folder = strait.path("handover");
    let all: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
    for file in &all {
        fs::remove_file(file).unwrap();
    }
    let output = upgrade(&strait, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let is_there = || all.iter().all(|file| file.exists()).then_some(());
    until_within(15, "the socket", is_there);
    strait.wait_for_log("was removed by another program, and is bound anew");
    upgraded(&strait, &mut successors);
}
