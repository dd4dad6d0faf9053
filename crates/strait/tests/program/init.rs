//! A process that is the first of its PID namespace, as of a container, and was replaced.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::handover::{InNamespaces, Successors, over_tls, process, upgrade, with_handover};
use crate::handover_stopped::{begin_handshake, upgrade_until_remaining};
use crate::kit::{Client, Scratch, Service, Strait, forward_to, get, read, text, until};
use crate::tls::certificates;

const IN_NAMESPACE: &str = r#"exec unshare --pid --fork --mount-proc --kill-child "$0" "$@""#;

/// Resident memory of what stays, kB.
const RESIDENT_MAX: u64 = 4096;

/// Whether PID namespaces can be made here; says so if not.
fn has_pid_namespaces() -> bool {
    let made = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    let has_namespaces = made.is_ok_and(|it| it.success());
    if !has_namespaces {
        println!("skipped: PID namespaces cannot be made here");
    }
    has_namespaces
}

/// A Strait that is process 1, its id outside, and the folder of the socket; none where that cannot be had.
fn run(service: &Service, options: &str) -> Option<(Strait, u32, Scratch)> {
    if !has_pid_namespaces() {
        return None;
    }
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), options);
    let strait = Strait::run_by(IN_NAMESPACE, Stdio::null(), &[], &config);
    let first = children_of(strait.pid())[0];
    Some((strait, first, scratch))
}

/// As [`run`], over TLS: a handshake that does not end keeps a handover back before its last phase.
fn run_over_tls(service: &Service, options: &str) -> Option<(Strait, u32, Scratch)> {
    if !has_pid_namespaces() {
        return None;
    }
    let scratch = certificates();
    let config = with_handover(&scratch, &over_tls(&scratch, service), options);
    let strait = Strait::run_by(IN_NAMESPACE, Stdio::null(), &[], &config);
    let first = children_of(strait.pid())[0];
    Some((strait, first, scratch))
}

/// The processes whose parent is this one.
fn children_of(parent: u32) -> Vec<u32> {
    // Those of each of its threads.
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
    let children = tasks.map(|task| read(&task.unwrap().path().join("children")));
    let ids = |children: String| {
        children.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()
    };
    children.flat_map(ids).collect()
}

fn upgraded(strait: &Strait) {
    let output = upgrade(strait, &[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stderr), strait.all_logged());
}

/// Has a process in another container take over, as the one of this generation. Returns `unshare`, which started it.
fn take_over_in_another_container(strait: &Strait, generation: f64) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", IN_NAMESPACE, env!("CARGO_BIN_EXE_strait")]);
    take_over_by(command, strait, generation)
}

/// As [`take_over_in_another_container`], in the container of `first`, but started from outside.
fn take_over_from_outside(strait: &Strait, first: u32, generation: f64) -> Child {
    let mut command = Command::new("nsenter");
    command.args(["--pid", "--mount", "-t", &first.to_string(), env!("CARGO_BIN_EXE_strait")]);
    take_over_by(command, strait, generation)
}

fn take_over_by(mut command: Command, strait: &Strait, generation: f64) -> Child {
    let file = strait.path("strait.yaml");
    command.args(["run", "--take-over=required", "-c", file.to_str().unwrap()]);
    let child = command.spawn().unwrap();
    until("the handover", || (strait.metric("strait_generation") == generation).then_some(()));
    child
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

#[test]
fn a_signal_to_the_first_process_of_a_container_during_a_handover_is_for_the_process_that_serves_afterwards()
 {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run_over_tls(&service, "probation: 1m") else {
        return;
    };
    let begun = begin_handshake(&strait);
    let mut upgrade = upgrade_until_remaining(&strait, &[]);
    kill_process(process(first), Signal::TERM).unwrap();
    strait.wait_for_log("the process ends after it");
    drop(begun);
    assert_eq!(upgrade.wait().unwrap().code(), Some(0), "{}", strait.all_logged());
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert_eq!(strait.times_logged("rolled back"), 0, "{}", strait.all_logged());
}

#[test]
fn a_reload_that_the_first_process_of_a_container_is_asked_for_during_a_handover_is_the_next_ones()
{
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run_over_tls(&service, "probation: 1m") else {
        return;
    };
    let begun = begin_handshake(&strait);
    let mut upgrade = upgrade_until_remaining(&strait, &[]);
    kill_process(process(first), Signal::HUP).unwrap();
    // It is read after this one.
    drop(begun);
    assert_eq!(upgrade.wait().unwrap().code(), Some(0), "{}", strait.all_logged());
    strait.wait_for_log("a signal is passed on");
    strait.wait_for_version(3);
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

/// The one that the first process knows has been replaced as well, and stands by.
#[test]
fn a_signal_to_the_first_process_of_a_container_reaches_the_one_that_serves_after_two_upgrades() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 1m") else { return };
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    upgraded(&strait);
    upgraded(&strait);
    wait_for_init(first);
    let second = children_of(first)[0];
    assert_eq!(children_of(second).len(), 1, "{}", strait.all_logged());
    assert_eq!(strait.metric("strait_generation"), 2.0);
    let version = strait.config()["version"].as_u64().unwrap();
    kill_process(process(first), Signal::HUP).unwrap();
    strait.wait_for_version(version + 1);
    // What is for that one alone ends that one alone.
    kill_process(process(second), Signal::HUP).unwrap();
    strait.wait_for_log("send SIGHUP to that process");
    assert_eq!(strait.config()["version"].as_u64(), Some(version + 1));
    kill_process(process(first), Signal::TERM).unwrap();
    assert!(kept.is_closed());
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn a_process_that_was_replaced_ends_alone_if_the_signal_is_sent_to_itself() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 1m") else { return };
    upgraded(&strait);
    upgraded(&strait);
    wait_for_init(first);
    let second = children_of(first);
    kill_process(process(second[0]), Signal::TERM).unwrap();
    until("the end of the second process", || {
        let now = children_of(first);
        (now.len() == 1 && now != second).then_some(())
    });
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(get(strait.admin, "/ready").status, 200);
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn the_first_process_of_a_container_that_takes_back_ends_afterwards_if_it_is_asked_to() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run_over_tls(&service, "probation: 1m") else {
        return;
    };
    upgraded(&strait);
    let begun = begin_handshake(&strait);
    let mut back = upgrade_until_remaining(&strait, &["--back"]);
    kill_process(process(first), Signal::TERM).unwrap();
    strait.wait_for_log("the process ends after it");
    drop(begun);
    assert_eq!(back.wait().unwrap().code(), Some(0), "{}", strait.all_logged());
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert_eq!(strait.times_logged("took over"), 2, "{}", strait.all_logged());
}

/// The process that gives back is no child of the one that serves then.
#[test]
fn the_first_process_of_a_container_that_has_taken_back_ends_as_its_next_successor_does() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 1m") else { return };
    upgraded(&strait);
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stderr), strait.all_logged());
    until("the end of the process that gave back", || children_of(first).is_empty().then_some(()));
    upgraded(&strait);
    assert_eq!(get(strait.listener, "/").status, 200);
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn a_signal_without_a_meaning_to_the_first_process_of_a_container_ends_no_other() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 0s") else { return };
    upgraded(&strait);
    wait_for_init(first);
    for signal in [Signal::ALARM, Signal::XCPU, Signal::TSTP, Signal::IO] {
        kill_process(process(first), signal).unwrap();
    }
    let version = strait.config()["version"].as_u64().unwrap();
    kill_process(process(first), Signal::HUP).unwrap();
    strait.wait_for_version(version + 1);
    assert_eq!(get(strait.listener, "/").status, 200);
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

/// The process that the first one stays for, once that has been replaced from elsewhere and stays, too.
fn wait_for_remaining(first: u32) -> u32 {
    wait_for_init(first);
    until("a process that stays", || {
        let children = children_of(first);
        let line = read(format!("/proc/{}/cmdline", children.first()?).as_ref());
        (children.len() == 1 && line.contains("--stay-as-init-for")).then(|| children[0])
    })
}

#[test]
fn the_first_process_of_a_container_stays_after_upgrades_and_a_successor_in_another_container() {
    for upgrades in [1, 2] {
        let service = Service::start("one");
        let Some((mut strait, first, _scratch)) = run(&service, "probation: 0s") else { return };
        let mut kept = Client::connect(strait.listener);
        assert_eq!(kept.get("/").status, 200);
        for _ in 0..upgrades {
            upgraded(&strait);
        }
        let mut other = take_over_in_another_container(&strait, f64::from(upgrades + 1));
        let _ended = Successors(vec![other.id()]);
        wait_for_remaining(first);
        // Neither is for a process that does not serve.
        for signal in [Signal::HUP, Signal::USR1] {
            kill_process(process(first), signal).unwrap();
        }
        kill_process(process(first), Signal::TERM).unwrap();
        assert_eq!(strait.wait_for_end().code(), Some(0), "{upgrades}");
        assert_eq!(kept.get("/").status, 200);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

/// By then the first process has not begun anew.
#[test]
fn the_first_process_of_a_container_stays_if_its_successor_is_replaced_elsewhere_in_the_probation()
{
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 1m") else { return };
    let file = strait.path("strait.yaml");
    let config = fs::read_to_string(&file).unwrap().replace("probation: 1m", "probation: 0s");
    strait.write("strait.yaml", &config);
    upgraded(&strait);
    let mut other = take_over_in_another_container(&strait, 2.0);
    let _ended = Successors(vec![other.id()]);
    let remaining = wait_for_remaining(first);
    // Something else than a signal to end.
    kill_process(process(remaining), Signal::KILL).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(128 + 9));
    assert_eq!(get(strait.listener, "/").status, 200);
    other.kill().unwrap();
    other.wait().unwrap();
}

/// As by a command of the engine: its parent is not of the container.
#[test]
fn the_first_process_of_a_container_stays_for_one_that_was_started_from_outside() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 0s") else { return };
    upgraded(&strait);
    wait_for_init(first);
    let mut other = take_over_from_outside(&strait, first, 2.0);
    let _ended = Successors(vec![other.id()]);
    wait_for_remaining(first);
    let version = strait.config()["version"].as_u64().unwrap();
    kill_process(process(first), Signal::HUP).unwrap();
    strait.wait_for_version(version + 1);
    // Its own successor is one that the first process adopts.
    upgraded(&strait);
    until("the next one", || {
        let line = read(format!("/proc/{}/cmdline", children_of(first).first()?).as_ref());
        (!line.contains("--stay-as-init-for")).then_some(())
    });
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
    other.wait().unwrap();
}

/// What a command says that runs in the container of a process.
fn ready_in(container: u32, strait: &Strait, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("nsenter")
        .args(["--pid", "--mount", "-t", &container.to_string()])
        .args([env!("CARGO_BIN_EXE_strait"), "ready", "--admin", &strait.admin.to_string()])
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_command_in_a_container_knows_whether_the_process_of_that_container_is_ready() {
    let service = Service::start("one");
    let Some((mut strait, first, _scratch)) = run(&service, "probation: 1m") else { return };
    let ready = (Some(0), String::new());
    for arguments in [&[][..], &["--here"], &["--here=if-any"]] {
        assert_eq!(ready_in(first, &strait, arguments), ready, "{arguments:?}");
    }
    let admin = strait.admin.to_string();
    let output = crate::kit::strait(&["ready", "--here", "--admin", &admin]);
    assert_eq!(output.status.code(), Some(1));
    let elsewhere = "runs in another container";
    assert!(text(&output.stderr).contains(elsewhere), "{}", text(&output.stderr));

    let mut second = take_over_in_another_container(&strait, 1.0);
    let _ended = Successors(vec![second.id()]);
    let other = children_of(second.id())[0];
    assert_eq!(ready_in(other, &strait, &["--here", "--wait", "10s"]), ready);
    for arguments in [&["--here"][..], &["--here=if-any"], &["--here", "--wait", "200ms"]] {
        let (status, said) = ready_in(first, &strait, arguments);
        assert_eq!(status, Some(1), "{arguments:?}");
        assert!(said.starts_with("strait: not ready: ") && said.contains(elsewhere), "{said}");
    }
    assert_eq!(ready_in(first, &strait, &[]), ready, "one of both serves");
    kill_process(process(first), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn a_container_in_which_something_else_runs_is_ready_if_there_is_nothing_to_wait_for() {
    if !has_pid_namespaces() {
        return;
    }
    for (here, status) in [("--here=if-any", 0), ("--here", 1)] {
        let script = format!("\"$0\" ready {here} --admin 127.0.0.1:1; exit $?");
        let output = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", &script])
            .arg(env!("CARGO_BIN_EXE_strait"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    }
}

/// The first process of a container whose successor is in another one: no signal reaches that.
#[test]
fn the_first_process_of_a_container_ends_at_its_first_signal_if_its_successor_is_elsewhere() {
    let Some(both) = InNamespaces::hand_over("probation: 1m") else { return };
    let InNamespaces { mut first, mut second, mut kept, .. } = both;
    let _ended = Successors(vec![second.id()]);
    kill_process(process(children_of(first.pid())[0]), Signal::TERM).unwrap();
    assert_eq!(first.wait_for_end().code(), Some(0));
    assert_eq!(kept.get("/").status, 200);
    second.kill().unwrap();
    second.wait().unwrap();
}

/// The same, where what it still has drains by then.
#[test]
fn the_first_process_of_a_container_that_drains_after_its_probation_goes_on_at_a_first_signal() {
    let Some(both) = InNamespaces::hand_over_with_rest("probation: 0s") else { return };
    let InNamespaces { mut first, mut second, mut kept, service, .. } = both;
    let _ended = Successors(vec![second.id()]);
    first.wait_for_log("draining");
    kill_process(process(children_of(first.pid())[0]), Signal::TERM).unwrap();
    first.wait_for_log("draining: the process ends after that");
    service.open_gate();
    assert_eq!(kept.receive().status, 200);
    assert_eq!(first.wait_for_end().code(), Some(0));
    second.kill().unwrap();
    second.wait().unwrap();
}
