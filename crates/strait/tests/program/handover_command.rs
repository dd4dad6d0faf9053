//! `strait upgrade` says how an upgrade ended, whatever becomes of its output, and no command keeps the running process from its
//! work.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};

use handover::{Hello, Message, Purpose, UpgradeRequest};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, geteuid, kill_process};

use crate::handover::{
    Successors, ended_with, over_tls, process, upgrade, upgraded, upgraded_to, with_handover,
};
use crate::handover_refusals::{connect, receive, send};
use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, strait, text, until,
};
use crate::tls::certificates;

/// A user without rights.
const OTHER_USER: u32 = 65_534;

fn run(service: &Service, options: &str) -> Strait {
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), options);
    Strait::run_in(scratch, &config)
}

/// The command, with this standard output.
fn upgrade_into(strait: &Strait, stdout: Stdio, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(["upgrade", "-c"])
        .arg(strait.path("strait.yaml"))
        .args(more)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A program that is Strait once something is written into the file of the name: it waits meanwhile.
fn slow_program(strait: &Strait) -> (String, impl FnOnce() + use<>) {
    let (pipe, program) = (strait.path("go"), strait.path("slow.sh"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let text = format!(
        "#!/bin/sh\nread _ < '{}'\nexec '{}' \"$@\"\n",
        pipe.display(),
        env!("CARGO_BIN_EXE_strait")
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let go = move || OpenOptions::new().write(true).open(pipe).unwrap().write_all(b"\n").unwrap();
    (program.to_str().unwrap().to_owned(), go)
}

fn successor(output: &Output) -> u32 {
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{error}");
    let pid = out.lines().find_map(|line| line.strip_prefix("process ")?.split(' ').next());
    pid.unwrap().parse().unwrap()
}

#[test]
fn while_a_new_process_starts_every_other_one_is_refused_with_the_reason() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 1m");
    let (program, go) = slow_program(&strait);
    let first = upgrade_into(&strait, Stdio::piped(), &["--binary", &program]);
    strait.wait_for_log("upgrade: started the new process");
    let file = strait.path("strait.yaml");
    let file = file.to_str().unwrap();
    for round in 0..20 {
        let other: &[&str] = match round % 3 {
            0 => &["upgrade", "-c", file],
            1 => &["upgrade", "--back", "-c", file],
            _ => &["run", "--take-over=required", "-c", file],
        };
        let output = self::strait(other);
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{other:?}: {out}{error}");
        assert!(error.contains("is taking over already"), "{other:?}: {out}{error}");
    }
    go();
    successors.0.push(successor(&first.wait_with_output().unwrap()));
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_command_hears_that_the_running_process_waits() {
    let service = Service::start("one");
    let mut strait = run(&service, "timeout: 1m");
    let (binary, go) = slow_program(&strait);
    let command = connect(&strait.path("handover/strait.sock"));
    let request = UpgradeRequest { binary: Some(binary), config: None, is_check: true };
    let hello = Hello::new("test", Purpose::Upgrade(request));
    send(&command, &Message::Hello(hello).encode(), 0);
    strait.wait_for_log("upgrade: started the new process");
    let first = receive(&command).expect("a sign that it is at it");
    assert_eq!(Message::decode(&first), Ok(Some(Message::Alive)));
    go();
    ended_with(&strait, "checked");
}

#[test]
fn the_status_is_that_of_the_upgrade_whatever_becomes_of_the_output() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 0s");
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let new =
        format!("listeners:\n  - {{ name: new, address: '{}', routes: all }}", service.address);
    strait.write("taken.yaml", &config.replace("listeners:", &new));
    let taken = strait.path("taken.yaml");
    let outputs = || {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        [Stdio::from(closed), OpenOptions::new().write(true).open("/dev/full").unwrap().into()]
    };
    for stdout in outputs() {
        let arguments = ["--config", taken.to_str().unwrap()];
        let command = Command::new(env!("CARGO_BIN_EXE_strait"))
            .arg("upgrade")
            .args(arguments)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = command.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("cannot listen"), "{error}");
    }
    for (generation, stdout) in (1..).zip(outputs()) {
        let output = upgrade_into(&strait, stdout, &[]).wait_with_output().unwrap();
        let page = until("the new process", || {
            let page = strait.admin_json("/handover");
            (page["generation"] == generation && page["state"] == "none").then_some(page)
        });
        assert_eq!(output.status.code(), Some(0), "{page}: {}", text(&output.stderr));
        let file = strait.path("strait.yaml");
        let marker = file.to_str().unwrap();
        successors.0.extend(pids_with(marker).into_iter().filter(|pid| *pid != strait.pid()));
    }
}

/// Processes that run with this argument.
fn pids_with(argument: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|it| it == argument.as_bytes())
    };
    pids.filter(has).collect()
}

#[test]
fn a_command_that_does_not_read_delays_no_handover() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let clusters = |protocol: &str| {
        let cluster =
            |number| format!("  - {{ name: c{number}, endpoints: ['127.0.0.1:1']{protocol} }}\n");
        (0..3000).map(cluster).collect::<String>()
    };
    let config = with_handover(&scratch, &forward_to(service.address), "probation: 0s");
    let strait = Strait::run_in(scratch, &format!("{config}{}", clusters("")));
    let text = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait.write("other.yaml", &text.replace(&clusters(""), &clusters(", protocol: http2")));
    let other = strait.path("other.yaml");
    let command = connect(&strait.path("handover/strait.sock"));
    let config = Some(other.to_str().unwrap().to_owned());
    let request = UpgradeRequest { binary: None, config, is_check: true };
    let hello = Hello::new("test", Purpose::Upgrade(request));
    send(&command, &Message::Hello(hello).encode(), 0);
    ended_with(&strait, "checked");
    until("the end of the handover", || {
        (strait.admin_json("/handover")["state"] == "none").then_some(())
    });
    // One that reads gets every line.
    let output = upgrade(&strait, &["--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::text(&output.stderr));
    let output = self::strait(&["upgrade", "--check", "-c", other.to_str().unwrap()]);
    let out = self::text(&output.stdout);
    assert_eq!(out.lines().filter(|line| line.contains(" differs: ")).count(), 3000);
    assert!(out.ends_with("checked: this process continues\n"), "{out}");
}

#[test]
fn a_process_that_had_no_descriptor_for_a_command_is_replaced_later() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 0s");
    let open = fs::read_dir(format!("/proc/{}/fd", strait.pid())).unwrap();
    let numbers: Vec<u64> =
        open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    strait.limit_open_files((0..).find(|number| !numbers.contains(number)).unwrap());
    let command = connect(&strait.path("handover/strait.sock"));
    strait.wait_for_log("handover: cannot accept a connection");
    strait.limit_open_files(1024);
    drop(command);
    upgraded(&strait, &mut successors);
    assert!(strait.times_logged("handover: cannot accept a connection") < 4);
}

#[test]
fn a_client_that_stays_in_its_handshake_makes_no_handover_fail() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let config = over_tls(&scratch, &service);
    let config = with_handover(&scratch, &config, "timeout: 2s, probation: 0s");
    let strait = Strait::run_in(scratch, &config);
    let mut client = Client::connect(strait.listener);
    client.send("\x16\x03\x01\x02");
    until("the connection", || {
        (strait.metric("strait_downstream_connections_active") == 1.0).then_some(())
    });
    let out = upgraded(&strait, &mut successors);
    assert!(out.contains("remaining after") && out.contains("commit after 1"), "{out}");
    // The process that serves says what stays with the other one, and how it went there.
    let last = ended_with(&strait, "completed");
    assert_eq!(last["role"], "taker");
    let left = last["connections_left"].as_array().unwrap();
    assert_eq!((left.len(), &left[0]["count"]), (1, &1.into()), "{last}");
    assert!(left[0]["reason"].as_str().unwrap().contains("handshake"), "{last}");
    let phases: Vec<_> = last["phases"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(phases.contains(&&"probe".into()) && phases.contains(&&"remaining".into()), "{last}");
}

/// Such a client holds up COMMIT: until then the new process accepts connections, and the old one hears of what is decided.
#[test]
fn what_is_decided_and_found_out_during_a_handover_counts_at_once() {
    let (one, other) = (Service::start("one"), Service::start("other"));
    let mut successors = Successors::default();
    let scratch = certificates();
    let (chain, key) = (scratch.path("site.pem"), scratch.path("site.key"));
    let secure = claim_port();
    let config = format!(
        "workers: 2
listeners:
  - {{ name: edge, address: 127.0.0.1:0, routes: all }}
  - {{ name: secure, address: '127.0.0.1:{secure}', routes: all, tls: {{ certificates: [{{ chain: {}, key: {} }}] }} }}
routes:
  - name: all
    rules:
      - {{ match: {{ prefix: /canary, fraction: {{ percent: 0, runtime: canary }} }}, respond: {{ body: canary }} }}
      - {{ match: {{ prefix: / }}, cluster: web }}
clusters: [{{ name: web, endpoints: ['{}', '{}'] }}]
",
        chain.display(),
        key.display(),
        one.address,
        other.address
    );
    let config = with_handover(&scratch, &config, "probation: 0s");
    let strait = Strait::run_in(scratch, &config);
    // One that has sent nothing moves, and one that has begun does not.
    let mut silent = TcpStream::connect(("127.0.0.1", secure)).unwrap();
    let mut client = Client::connect(SocketAddr::from(([127, 0, 0, 1], secure)));
    client.send("\x16\x03\x01\x02");
    until("the connections", || {
        let page = strait.admin_json("/connections");
        let rows = page["connections"].as_array().unwrap().iter();
        (rows.filter(|row| row["listener"] == "secure").count() == 2).then_some(())
    });
    let command = upgrade_into(&strait, Stdio::piped(), &[]);
    until("the last phase before COMMIT", || {
        let last = strait.admin_json("/handover")["last"].take();
        let phases = last["phases"].as_array()?.clone();
        phases.iter().any(|phase| phase["name"] == "remaining").then_some(())
    });
    let post = |path: &str| Client::connect(strait.admin).request("POST", path);
    let path = format!("/clusters/web/endpoints/{}?health=drain", one.address);
    let answer = post(&path);
    let drained = format!("{} of cluster web: drained\n", one.address);
    assert_eq!((answer.status, answer.text()), (200, drained));
    assert_eq!(post("/runtime?canary=100").status, 200);
    until("both in the new process", || {
        let all = (0..10).map(|_| get(strait.listener, "/").text());
        let is_drained = all.into_iter().all(|text| text.starts_with("other"));
        (is_drained && get(strait.listener, "/canary").text() == "canary").then_some(())
    });
    assert_eq!(strait.admin_json("/handover")["state"], "giving", "it was not over meanwhile");
    drop(client);
    let output = command.wait_with_output().unwrap();
    successors.0.push(successor(&output));
    // Its handshake begins where it is by now.
    silent.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut response = String::new();
    silent.read_to_string(&mut response).unwrap();
    assert!(response.contains("This port speaks HTTPS"), "{response}");
}

#[test]
fn a_new_process_starts_by_itself_where_the_running_one_ends_before_it_could_take_over() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let address = SocketAddr::from(([127, 0, 0, 1], claim_port()));
    let config = forward_to(service.address).replace("127.0.0.1:0", &address.to_string());
    let config = with_handover(&scratch, &config, "");
    let mut strait = Strait::run_in(scratch, &config);
    let (binary, go) = slow_program(&strait);
    let command = upgrade_into(&strait, Stdio::piped(), &["--binary", &binary]);
    strait.wait_for_log("upgrade: started the new process");
    kill_process(process(strait.pid()), Signal::KILL).unwrap();
    strait.wait_for_end();
    go();
    let output = command.wait_with_output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{error}");
    let pid = out.split("process ").filter_map(|rest| rest.split(' ').next()?.parse().ok()).last();
    successors.0.push(pid.unwrap());
    assert!(out.contains("the running process ended"), "{out}");
    assert_eq!(get(address, "/").status, 200);
}

#[test]
fn a_process_that_is_asked_to_end_while_the_new_one_starts_does_not_say_that_it_continues() {
    let service = Service::start("one");
    let mut strait = run(&service, "probation: 1m");
    let mut busy = Client::connect(strait.listener);
    busy.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n1");
    until("the request", || (strait.metric("strait_exchanges_active") == 1.0).then_some(()));
    let (binary, _go) = slow_program(&strait);
    let command = upgrade_into(&strait, Stdio::piped(), &["--binary", &binary]);
    strait.wait_for_log("upgrade: started the new process");
    strait.signal(Signal::TERM);
    let output = command.wait_with_output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{error}");
    assert!(error.contains("this process is ending, and has ended the new one"), "{error}");
    assert!(!error.contains("continues"), "{error}");
    assert_eq!(strait.times_logged("this process continues"), 0, "{}", strait.all_logged());
    busy.send("2");
    assert_eq!(busy.receive().status, 200);
}

/// A process that ends with this.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn while_a_process_drains_another_one_starts_and_can_be_replaced() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    for take_over in [&[][..], &["--take-over"]] {
        let mut strait = run(&service, "probation: 0s");
        let mut busy = Client::connect(strait.listener);
        busy.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n1");
        until("the request", || (strait.metric("strait_exchanges_active") == 1.0).then_some(()));
        strait.signal(Signal::TERM);
        strait.wait_for_log("draining: accepting no new connections");
        let log = strait.path("second.log");
        let child = Command::new(env!("CARGO_BIN_EXE_strait"))
            .args(["run", "-c"])
            .arg(strait.path("strait.yaml"))
            .args(take_over)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let _second = Started(child);
        until("the second process", || {
            let log = fs::read_to_string(&log).unwrap();
            assert!(!log.contains("cannot start"), "{take_over:?}: {log}");
            log.contains("ready workers=").then_some(())
        });
        upgraded(&strait, &mut successors);
        busy.send("2");
        assert_eq!(busy.receive().status, 200);
        assert_eq!(strait.wait_for_end().code(), Some(0));
    }
}

#[test]
fn root_upgrades_the_process_of_another_user_and_others_hear_how_to() {
    if !geteuid().is_root() {
        return println!("skipped: this needs root");
    }
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let folder = Scratch::new();
    DirBuilder::new().mode(0o700).create(folder.path("handover")).unwrap();
    chown(folder.path("handover"), Some(OTHER_USER), None).unwrap();
    let config = with_handover(&folder, &forward_to(service.address), "probation: 0s");
    let script = format!("exec setpriv --reuid {OTHER_USER} --clear-groups \"$0\" \"$@\"");
    let strait = Strait::run_by(&script, Stdio::null(), &[], &config);
    let uid = fs::metadata(format!("/proc/{}", strait.pid())).unwrap().uid();
    assert_eq!(uid, OTHER_USER);
    let other = Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(["upgrade", "-c"])
        .arg(strait.path("strait.yaml"))
        .uid(OTHER_USER - 1)
        .current_dir("/")
        .output();
    match other {
        Ok(other) => {
            let error = text(&other.stderr);
            assert_eq!(other.status.code(), Some(1), "{error}");
            assert!(error.contains("run this as the user of the process, or as root"), "{error}");
        }
        Err(error) => println!("another user cannot run the program: {error}"),
    }
    upgraded(&strait, &mut successors);
    let uid = fs::metadata(format!("/proc/{}", successors.0[0])).unwrap().uid();
    assert_eq!(uid, OTHER_USER);
}

#[test]
fn what_is_wrong_elsewhere_in_the_file_is_reported_by_the_new_process_and_does_not_hinder_a_return()
{
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 1m");
    let good = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let bad = format!("{good}of_a_later_version: 3\n");
    strait.write("new.yaml", &bad);
    let new = strait.path("new.yaml");
    let new = new.to_str().unwrap();
    for more in [&[][..], &["--check"]] {
        let output = self::strait(&[&["upgrade", "-c", new], more].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let said = "the other process gave up: the configuration is refused";
        assert!(error.contains(said) && error.contains("of_a_later_version"), "{error}");
        assert!(error.contains("the running process continues"), "{error}");
    }
    // What finds the running process is reported by the command itself.
    strait.write("lost.yaml", &good.replace("handover: { socket: ", "handover: { socket: ./"));
    let lost = strait.path("lost.yaml");
    let output = self::strait(&["upgrade", "-c", lost.to_str().unwrap()]);
    let error = text(&output.stderr);
    assert!(error.contains("handover.socket") && error.contains("begins with /"), "{error}");
    upgraded_to(&strait, "strait.yaml", &mut successors);
    strait.write("strait.yaml", &bad);
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_process_under_another_name_is_replaced() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let folder = Scratch::new();
    let config = with_handover(&folder, &forward_to(service.address), "probation: 0s");
    if Command::new("bash").arg("--version").output().is_err() {
        return println!("skipped: bash cannot be run");
    }
    let script = "exec bash -c 'exec -a strait-main \"$0\" \"$@\"' \"$0\" \"$@\"";
    let strait = Strait::run_by(script, Stdio::null(), &[], &config);
    upgraded(&strait, &mut successors);
}

#[test]
fn the_file_of_a_unix_listener_that_the_new_process_does_not_have_is_removed() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let path = scratch.path("edge.sock");
    let plain = with_handover(&scratch, &forward_to(service.address), "probation: 0s");
    let unix = format!(
        "routes: all }}\n  - {{ name: local, address: 'unix:{}', routes: all }}",
        path.display()
    );
    let mut strait = Strait::run_in(scratch, &plain.replace("routes: all }", &unix));
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait.write("other.yaml", &config.replace(&unix, "routes: all }"));
    assert!(path.exists());
    upgraded_to(&strait, "other.yaml", &mut successors);
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn what_another_program_puts_in_the_place_of_a_unix_socket_outlives_an_upgraded_process() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let [edge, beside] = ["edge.sock", "beside.sock"].map(|name| scratch.path(name));
    let config = with_handover(&scratch, &forward_to(service.address), "probation: 0s");
    let unix = format!(
        "routes: all }}\n  - {{ name: local, address: ['unix:{}', 'unix:{}'], routes: all }}",
        edge.display(),
        beside.display()
    );
    let mut strait = Strait::run_in(scratch, &config.replace("routes: all }", &unix));
    fs::remove_file(&edge).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&edge).unwrap();
    fs::remove_file(&beside).unwrap();
    fs::write(&beside, "of another program").unwrap();
    upgraded_to(&strait, "strait.yaml", &mut successors);
    strait.wait_for_log("edge.sock is not the socket's file any more");
    strait.wait_for_log("beside.sock is not the socket's file any more");
    assert_eq!(strait.wait_for_end().code(), Some(0));
    kill_process(process(successors.0[0]), Signal::TERM).unwrap();
    let has_ended = || TcpStream::connect(strait.listener).is_err().then_some(());
    until("the end of the new process", has_ended);
    assert!(edge.exists(), "it is another program's socket");
    assert_eq!(fs::read_to_string(&beside).unwrap(), "of another program");
}
