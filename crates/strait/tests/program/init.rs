//! A process that is the first of its PID namespace, as of a container, and was replaced.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::handover::{process, upgrade, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, forward_to, get, read, text, until};

const IN_NAMESPACE: &str = r#"exec unshare --pid --fork --mount-proc --kill-child "$0" "$@""#;

/// Resident memory of what stays, kB.
const RESIDENT_MAX: u64 = 4096;

/// A Strait that is process 1, its id outside, and the folder of the socket; none where that cannot be had.
fn run(service: &Service, options: &str) -> Option<(Strait, u32, Scratch)> {
    let is_there =
        Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    if !is_there.is_ok_and(|it| it.success()) {
        println!("skipped: PID namespaces cannot be made here");
        return None;
    }
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), options);
    let strait = Strait::run_by(IN_NAMESPACE, Stdio::null(), &[], &config);
    let first = children_of(strait.pid())[0];
    Some((strait, first, scratch))
}

/// The processes whose parent is this one.
fn children_of(parent: u32) -> Vec<u32> {
    let tasks = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(tasks).unwrap_or_default();
    children.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn upgraded(strait: &Strait) {
    let output = upgrade(strait, &[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stderr), strait.all_logged());
}

fn status(pid: u32, key: &str) -> String {
    let status = read(format!("/proc/{pid}/status").as_ref());
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn wait_for_init(pid: u32) {
    until("the first process to begin anew", || {
        let line = read(format!("/proc/{pid}/cmdline").as_ref());
        line.contains("--stay-as-init-for").then_some(())
    });
}

#[test]
fn the_first_process_of_a_container_stays_small_and_ends_as_its_successors_do() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 0s") else { return };
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    upgraded(&strait);
    wait_for_init(first);
    assert_eq!(kept.get("/").status, 200);
    // It lets files go first of all.
    until("little memory", || {
        let resident = status(first, "VmRSS").replace(" kB", "").parse::<u64>().unwrap();
        println!("resident: {resident} kB");
        (resident < RESIDENT_MAX).then_some(())
    });
    let descriptors = fs::read_dir(format!("/proc/{first}/fd")).unwrap();
    let open: Vec<_> = descriptors.map(|it| fs::read_link(it.unwrap().path()).unwrap()).collect();
    assert!(!open.iter().any(|it| it.to_string_lossy().starts_with("socket:")), "{open:?}");

    // An orphan is waited for.
    let status_of_orphans = Command::new("nsenter")
        .args(["--pid", "--mount", "-t", &first.to_string(), "sh", "-c", "sh -c 'exit 3' & :"])
        .status()
        .unwrap();
    assert!(status_of_orphans.success());
    until("the orphans' end", || (children_of(first).len() == 1).then_some(()));

    // The next one is the child of one that ends, and so an orphan, too.
    let second = children_of(first);
    upgraded(&strait);
    until("the end of the second process", || {
        let now = children_of(first);
        (now.len() == 1 && now != second[..1]).then_some(())
    });
    assert_eq!(kept.get("/").status, 200);
    assert_eq!(strait.metric("strait_generation"), 2.0);
    // Signals reach it.
    kill_process(process(first), Signal::HUP).unwrap();
    strait.wait_for_version(4);
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn the_first_process_of_a_container_ends_with_the_status_of_its_successor() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 0s") else { return };
    upgraded(&strait);
    wait_for_init(first);
    kill_process(process(children_of(first)[0]), Signal::KILL).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(128 + 9));
}

#[test]
fn a_signal_to_the_first_process_of_a_container_is_for_its_successor_in_the_probation_too() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 1m") else { return };
    upgraded(&strait);
    kill_process(process(first), Signal::HUP).unwrap();
    strait.wait_for_version(3);
    assert_eq!(get(strait.listener, "/").status, 200);
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
}
