//! A process that gives back what it has taken over, and several that live at a time.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use ::handover::{Hello, Message, Purpose};
use ::tls::Version;
use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, over_tls, process, upgrade, upgraded, with_handover};
use crate::handover_refusals::{connect, failures, receive, send, wait_for_end};
use crate::handover_stopped::stop;
use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, strait, text, until,
};
use crate::stopped_worker::StoppedWorker;
use crate::tls::certificates;
use crate::tls_client::{self, TlsClient};

fn run(service: &Service, options: &str) -> Strait {
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), options);
    Strait::run_in(scratch, &config)
}

#[test]
fn everything_is_given_back_in_the_probation() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 1m");
    let mut kept: Vec<_> = (0..50).map(|_| Client::connect(strait.listener)).collect();
    kept.iter_mut().for_each(|client| drop(client.get("/")));
    for round in 1..=2 {
        upgraded(&strait, &mut successors);
        kept.iter_mut().for_each(|client| drop(client.get("/")));
        let mut busy = Client::connect(strait.listener);
        busy.send("GET /slow HTTP/1.1\r\nho");
        let output = upgrade(&strait, &["--back"]);
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{out}{error}{}", strait.all_logged());
        assert!(out.contains(&format!("process {} serves", strait.pid())), "{out}");
        busy.send("st: test\r\n\r\n");
        assert_eq!(busy.receive().status, 200);
        for client in &mut kept {
            let response = client.get("/again");
            assert_eq!((response.status, response.field("connection")), (200, None));
        }
        until("the other process's end", || strait.children().is_empty().then_some(()));
        let page = strait.admin_json("/handover");
        assert_eq!((&page["state"], &page["generation"]), (&"none".into(), &(2 * round).into()));
        assert_eq!(page["last"]["result"], "taken_back", "{page}");
        // Each of the kept ones before it and in both processes; and the one that moved with half of its head.
        let count = f64::from(50 + 101 * round);
        until("all that was counted", || {
            (strait.metric("strait_exchanges_finished_total") == count).then_some(())
        });
        let opened = f64::from(50 + round);
        assert_eq!(strait.metric("strait_downstream_connections_opened_total"), opened);
        drop(busy);
        until("the end of the other", || {
            (strait.metric("strait_downstream_connections_active") == 50.0).then_some(())
        });
    }
    assert_eq!(get(strait.listener, "/").status, 200);
    let log = strait.all_logged();
    assert_eq!(log.matches("the new process has ended, which gave everything back").count(), 2);
    assert!(!log.contains("the old process has ended"), "{log}");
    assert!(!log.contains("passes on what the one before it counts"), "{log}");
    // And it still can be replaced.
    upgraded(&strait, &mut successors);
    assert_eq!(kept[0].get("/").status, 200);
}

#[test]
fn what_is_given_back_goes_to_no_process_but_the_one_that_gave_it() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 1m");
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    upgraded(&strait, &mut successors);
    // The one that is to take back is slower than another one, which claims to be it.
    stop(strait.pid());
    let file = strait.path("strait.yaml");
    let command = Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(["upgrade", "--back", "-c", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    strait.wait_for_log("giving everything back to the old process");
    let other = connect(&strait.path("handover/strait.sock"));
    let takes_back = Purpose::TakeBack { forms_read: (0..100).collect(), descriptors: 1 << 20 };
    send(&other, &Message::Hello(Hello::new("test", takes_back)).encode(), 0);
    let Ok(Some(Message::GiveUp { reason })) = Message::decode(&receive(&other).unwrap()) else {
        panic!("it gets something");
    };
    assert!(reason.contains("to no other"), "{reason}");
    wait_for_end(&other);
    assert_eq!(failures(&strait, "busy"), 1);
    strait.signal(Signal::CONT);
    let output = command.wait_with_output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{error}{}", strait.all_logged());
    assert!(out.contains(&format!("process {} serves", strait.pid())), "{out}");
    let response = kept.get("/again");
    assert_eq!((response.status, response.field("connection")), (200, None));
}

#[test]
fn a_file_that_changed_in_the_probation_is_not_read_by_the_process_that_has_everything_back() {
    let (one, two) = (Service::start("one"), Service::start("two"));
    let mut successors = Successors::default();
    let strait = run(&one, "probation: 1m");
    upgraded(&strait, &mut successors);
    let file = strait.path("strait.yaml");
    let former = fs::read_to_string(&file).unwrap();
    let to_two = former.replace(&one.address.to_string(), &two.address.to_string());
    assert_ne!(former, to_two);
    fs::write(&file, to_two).unwrap();
    let serves = |name: &str| get(strait.listener, "/").text().starts_with(name);
    until("the new file's service", || serves("two").then_some(()));
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", strait.all_logged());
    until("why the file is not read", || {
        strait.all_logged().contains("stays as it was for this process").then_some(())
    });
    assert!(serves("one"), "{}", strait.all_logged());
    strait.signal(Signal::HUP);
    until("the new file's service", || serves("two").then_some(()));
}

#[test]
fn sessions_are_resumed_where_everything_was_given_back() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let config = with_handover(&scratch, &over_tls(&scratch, &service), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let context = tls_client::context(Version::Tls13);
    upgraded(&strait, &mut successors);
    let mut first = TlsClient::connect(strait.listener, &context);
    assert!(first.get("/").starts_with("HTTP/1.1 200 OK"));
    let output = upgrade(&strait, &["--back"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(first.get("/").starts_with("HTTP/1.1 200 OK"));
    let mut second = TlsClient::connect(strait.listener, &context);
    assert!(second.get("/").starts_with("HTTP/1.1 200 OK"));
    assert!(second.is_resumed);
}

#[test]
fn nothing_is_given_back_where_no_process_stands_by() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 0s");
    for _ in 0..2 {
        let output = upgrade(&strait, &["--back"]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("the running process continues"), "{error}");
        assert_eq!(get(strait.listener, "/").status, 200);
        if successors.0.is_empty() {
            upgraded(&strait, &mut successors);
            assert_eq!(strait.wait_for_end().code(), Some(0));
        }
    }
}

#[test]
fn a_process_whose_worker_hangs_in_its_probation_gives_everything_back() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 1m");
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait.rewrite(
        &format!("limits: {{ drain_timeout: 1s }}\n{config}")
            .replace("admin: { address: 127.0.0.1:0, metrics: 127.0.0.1:0 }\n", ""),
    );
    strait.wait_for_version(2);
    let mut kept: Vec<_> = (0..20).map(|_| Client::connect(strait.listener)).collect();
    kept.iter_mut().for_each(|client| drop(client.get("/")));
    upgraded(&strait, &mut successors);
    let Some(stopped) = StoppedWorker::stop(successors.0[0], 0) else { return };
    // It is built while the other ones wait for the worker, and must not hold up the way out.
    let changed = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    for n in 0..3 {
        strait.write(
            "strait.yaml.new",
            &changed.replace("drain_timeout: 1s", &format!("drain_timeout: {}s", n + 2)),
        );
        fs::rename(strait.path("strait.yaml.new"), strait.path("strait.yaml")).unwrap();
        until("the change", || {
            (strait.times_logged("configuration applied") > 1 + n.min(1)).then_some(())
        });
    }
    strait.wait_for_log("does not respond");
    until("what the other worker had", || {
        let page = get(strait.admin, "/handover");
        (page.status == 200 && page.text().contains("taken_back")).then_some(())
    });
    // What the worker that answers had goes on; the rest ends with its process.
    strait.wait_for_log("did not end in time: it is killed");
    drop(stopped);
    let went_on = kept.iter_mut().filter_map(|client| client.try_get("/")).count();
    assert!((1..20).contains(&went_on), "{went_on} of 20");
    assert_eq!(get(strait.listener, "/").status, 200);
    until("the other process's end", || strait.children().is_empty().then_some(()));
}

#[test]
fn the_oldest_of_four_processes_ends_what_it_still_has() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let ports = [("second", claim_port()), ("third", claim_port())];
    let listener = |(name, port): (&str, u16)| {
        format!("  - {{ name: {name}, address: '127.0.0.1:{port}', routes: all }}\n")
    };
    let listeners = ports.map(listener);
    let config = forward_to(service.address)
        .replace("routes:\n", &format!("{}routes:\n", listeners.concat()));
    let config = format!("limits: {{ drain_timeout: 1m }}\n{config}");
    let config = with_handover(&scratch, &config, "probation: 0s");
    let mut first = Strait::run_in(scratch, &config);
    let [second, third] = ports.map(|(_, port)| SocketAddr::from(([127, 0, 0, 1], port)));
    let full = fs::read_to_string(first.path("strait.yaml")).unwrap();
    let without_second = full.replace(&listeners[0], "");
    let without_both = full.replace(&listeners.concat(), "");
    // What the second process does not have stays with the first, and so on.
    let mut of_first = Client::connect(second);
    of_first.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    first.write("strait.yaml", &without_second);
    upgraded(&first, &mut successors);
    let mut of_second = Client::connect(third);
    of_second.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    first.write("strait.yaml", &without_both);
    upgraded(&first, &mut successors);
    let lives = |pid: u32| rustix::process::test_kill_process(process(pid)).is_ok();
    assert!(first.proc("stat").contains("strait"), "three may live");
    assert!(lives(successors.0[0]) && lives(successors.0[1]));
    assert_eq!(get(first.listener, "/").status, 200);

    upgraded(&first, &mut successors);
    first.wait_for_log("two newer processes exist");
    assert_eq!(first.wait_for_end().code(), Some(0), "another one serves");
    assert!(of_first.is_closed());
    assert!(lives(successors.0[0]), "its request still waits");
    service.open_gate();
    assert_eq!(of_second.receive().status, 200);
    assert_eq!(get(first.listener, "/").status, 200);
}

#[test]
fn two_straits_on_one_machine_do_not_meet() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (first, second) = (run(&service, "probation: 0s"), run(&service, "probation: 0s"));
    let mut of_second = Client::connect(second.listener);
    assert_eq!(of_second.get("/").status, 200);
    upgraded(&first, &mut successors);
    assert_eq!(first.metric("strait_generation"), 1.0);
    assert_eq!(second.metric("strait_generation"), 0.0);
    assert_eq!(of_second.get("/").field("connection"), None);
    // One that is started beside the other with its socket does not start.
    let config = fs::read_to_string(second.path("strait.yaml")).unwrap();
    second.write("beside.yaml", &config);
    let file = second.path("beside.yaml");
    let output = strait(&["run", "-c", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("another process has it: start with --take-over"), "{error}");
    assert_eq!(of_second.get("/").field("connection"), None);
    kill_process(process(successors.0[0]), Signal::TERM).unwrap();
}
