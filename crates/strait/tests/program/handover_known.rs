//! What a new process goes on with beside connections, and what it does otherwise than the old one, as it is configured.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, process, upgrade, upgraded, upgraded_to, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, forward_to, get, text, until};

/// A user without rights.
const OTHER_USER: u32 = 65_534;

#[test]
fn endpoints_go_on_taking_turns_in_a_new_process() {
    let services = ["one", "two", "three"].map(Service::start);
    let mut successors = Successors::default();
    let own = |service: &Service| format!("'{}'", service.address);
    let all = services.each_ref().map(own).join(", ");
    let config = forward_to(services[0].address).replacen(&own(&services[0]), &all, 1);
    let config = config.replacen("workers: 2", "workers: 1", 1);
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &config, "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let answers = || get(strait.listener, "/").text().lines().next().unwrap().to_owned();
    let first: Vec<_> = (0..4).map(|_| answers()).collect();
    assert_eq!(first[0], first[3], "{first:?}");
    for _ in 0..2 {
        upgraded(&strait, &mut successors);
        let next: Vec<_> = (0..3).map(|_| answers()).collect();
        assert_eq!(next, first[1..], "after {first:?}");
    }
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(answers(), first[1]);
}

/// How often the workers of a process have waited.
fn waits_of_workers(strait: &Strait) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", strait.pid())).unwrap();
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")));
    let of_workers = statuses
        .filter_map(Result::ok)
        .filter(|status| status.starts_with("Name:\tstrait-worker-"));
    let waits = of_workers.map(|status| {
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits.unwrap().trim().parse::<u64>().unwrap()
    });
    waits.sum()
}

#[test]
fn a_process_that_stands_by_is_not_woken_by_what_its_successor_serves() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let mut client = Client::connect(strait.listener);
    assert_eq!(client.get("/").status, 200);
    upgraded(&strait, &mut successors);
    let before = waits_of_workers(&strait);
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 200);
    }
    let woken = waits_of_workers(&strait) - before;
    assert!(before > 0 && woken < 50, "woken {woken} times, after {before}");
}

#[test]
fn a_new_process_does_not_measure_anew_how_many_requests_a_cluster_takes() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let policy = "adaptive_concurrency: { min_rtt: { requests: 4, interval: 1h } }, endpoints";
    let config = forward_to(service.address).replacen("endpoints", policy, 1);
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &config, "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let min_rtt = || strait.metric("strait_upstream_min_rtt_seconds");
    assert_eq!(min_rtt(), 0.0);
    let measured = until("the measurement", || {
        assert_eq!(get(strait.listener, "/").status, 200);
        Some(min_rtt()).filter(|measured| *measured > 0.0)
    });
    upgraded(&strait, &mut successors);
    assert_eq!(min_rtt(), measured);
}

#[test]
fn a_new_process_gives_the_files_of_unix_sockets_the_permissions_it_is_configured_with() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let (edge, admin) = (scratch.path("edge.sock"), scratch.path("admin.sock"));
    let file = |edge_mode: &str, admin_mode: &str| {
        let local = format!(
            "routes: all }}\n  - {{ name: local, address: 'unix:{}', mode: '{edge_mode}', routes: all }}",
            edge.display()
        );
        let config = forward_to(service.address).replacen("routes: all }", &local, 1);
        let at = format!("address: 'unix:{}', metrics: 127.0.0.1:0", admin.display());
        let config = with_handover(&scratch, &config, "probation: 1m");
        format!("admin: {{ {at}, mode: '{admin_mode}' }}\n{config}")
    };
    let path = scratch.write("strait.yaml", &file("0660", "0600"));
    scratch.write("after.yaml", &file("0600", "0666"));
    let modes =
        || [&edge, &admin].map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
    let strait = Strait::start(scratch, &["run", "-c", &path]);
    assert_eq!(modes(), [0o660, 0o600]);
    upgraded_to(&strait, "after.yaml", &mut successors);
    assert_eq!(modes(), [0o600, 0o666]);
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(modes(), [0o660, 0o600]);
    // The same where the new process ends all of a sudden.
    upgraded_to(&strait, "after.yaml", &mut successors);
    assert_eq!(modes(), [0o600, 0o666]);
    kill_process(process(successors.0[1]), Signal::KILL).unwrap();
    until("the old permissions", || (modes() == [0o660, 0o600]).then_some(()));
}

/// Whether the kernel probes a connection of `listener` that is idle (proc_pid_net(5): the kind of its timer).
fn is_kept_alive(listener: SocketAddr) -> bool {
    let mut client = Client::connect(listener);
    assert_eq!(client.get("/").status, 200);
    let (local, peer) = (listener.port(), client.address().port());
    let (local, peer) = (format!(":{local:04X} "), format!(":{peer:04X} "));
    let all = fs::read_to_string("/proc/net/tcp").unwrap();
    let line = all.lines().find(|line| {
        line.contains(&local) && line.contains(&peer) && {
            let (at, from) = (line.find(&local).unwrap(), line.find(&peer).unwrap());
            at < from
        }
    });
    line.unwrap().split_whitespace().any(|word| word.starts_with("02:"))
}

#[test]
fn options_of_sockets_are_those_of_the_process_that_has_them() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    for is_probing in [false, true] {
        let scratch = Scratch::new();
        let file = |probes: bool| {
            let options = if probes { "keepalive: {}, routes: all }" } else { "routes: all }" };
            let config = forward_to(service.address).replacen("routes: all }", options, 1);
            with_handover(&scratch, &config, "probation: 1m")
        };
        let (before, after) = (file(is_probing), file(!is_probing));
        let strait = Strait::run_in(scratch, &before);
        let listener = strait.listener;
        assert_eq!(is_kept_alive(listener), is_probing);
        // One that cannot listen somewhere changes nothing.
        let new =
            format!("listeners:\n  - {{ name: new, address: '{}', routes: all }}", service.address);
        strait.write("taken.yaml", &after.replacen("listeners:", &new, 1));
        let file = strait.path("taken.yaml");
        let output = crate::kit::strait(&["upgrade", "-c", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        assert_eq!(is_kept_alive(listener), is_probing);
        strait.write("after.yaml", &after);
        upgraded_to(&strait, "after.yaml", &mut successors);
        assert_eq!(is_kept_alive(listener), !is_probing);
        let output = upgrade(&strait, &["--back"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(is_kept_alive(listener), is_probing);
        upgraded_to(&strait, "after.yaml", &mut successors);
        kill_process(process(*successors.0.last().unwrap()), Signal::KILL).unwrap();
        until("the old options", || (is_kept_alive(listener) == is_probing).then_some(()));
    }
}

/// A process that takes over, ended with the test.
struct Taker(Child);

impl Drop for Taker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Needs to be root, as in CI.
#[test]
fn a_process_of_another_user_takes_over_if_the_configuration_names_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let config = |users: &str| {
        let options = format!("probation: 1m, users: [{users}]");
        with_handover(&scratch, &forward_to(service.address), &options)
    };
    let (without, with) = (config(""), config(&OTHER_USER.to_string()));
    // The folder of a build may be closed to others.
    let program = scratch.path("strait");
    fs::copy(env!("CARGO_BIN_EXE_strait"), &program).unwrap();
    let mut strait = Strait::run_in(scratch, &with);
    strait.write("without.yaml", &without);
    let take_over = |user: u32, file: &str| {
        let mut command = Command::new(&program);
        command.args(["run", "--take-over=required", "-c"]).arg(strait.path(file));
        command.uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(strait.path("taker.log")).unwrap());
        Taker(command.spawn().unwrap())
    };
    let log = || fs::read_to_string(strait.path("taker.log")).unwrap();
    let status = take_over(OTHER_USER - 1, "strait.yaml").0.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{}", log());
    // Users in the list may not have this process's user run what they choose.
    let upgrade_as = |user: u32, more: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("upgrade").args(more).uid(user).gid(user);
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let file = strait.path("strait.yaml");
    let file = file.to_str().unwrap();
    let other = strait.path("without.yaml");
    for chosen in [&["-c", file, "--binary", "/bin/true"][..], &["-c", other.to_str().unwrap()]] {
        let (status, error) = upgrade_as(OTHER_USER, chosen);
        assert_eq!(status, Some(1), "{error}");
        assert!(
            error.contains("not choose a program or a file") || error.contains("chmod 700"),
            "{error}"
        );
    }
    let (status, error) = upgrade_as(OTHER_USER, &["-c", file, "--check"]);
    assert_eq!(status, Some(0), "{error}");
    let status = take_over(OTHER_USER, "without.yaml").0.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{}", log());
    assert!(log().contains("others may enter it (mode 711): chmod 700"), "{}", log());
    assert_eq!(strait.metric("strait_generation"), 0.0);
    let _taker = take_over(OTHER_USER, "strait.yaml");
    until("the other user's process", || (strait.metric("strait_generation") == 1.0).then_some(()));
    assert_eq!(get(strait.listener, "/").status, 200);
    // It cannot set the socket's permissions, and need not.
    assert!(!log().contains("cannot set who may connect"), "{}", log());
    // And back again, as root.
    upgraded(&strait, &mut successors);
    assert_eq!(get(strait.listener, "/").status, 200);
    strait.wait_for_log("handed over");
}
