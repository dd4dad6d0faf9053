//! The access log's files.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::handover::{Successors, process, upgraded_to, with_handover};
use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, read, strait, text, until,
    with_admin,
};

fn logging_to(service: &Service, file: &str, format: &str) -> String {
    let config = forward_to(service.address);
    format!("{config}access_log: {{ output: '{file}', format: {format} }}\n")
}

#[test]
fn every_request_is_a_line_with_the_documented_fields() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let file = scratch.path("access.log");
    let strait = Strait::run_in(scratch, &logging_to(&service, file.to_str().unwrap(), "json"));
    for path in ["/a?b=c", "/d"] {
        get(strait.listener, path);
    }
    let lines = until("two lines", || {
        let text = read(&file);
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        (lines.len() == 2 && text.ends_with('\n')).then_some(lines)
    });
    let documented = include_str!("../../../../docs/access-log.md");
    let mut targets = Vec::new();
    for line in lines {
        let entry: serde_json::Map<String, Value> = serde_json::from_str(&line).unwrap();
        for name in entry.keys() {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
        }
        assert_eq!(entry["method"], "GET");
        assert_eq!(entry["status"], 200);
        assert_eq!(entry["listener"], "edge");
        assert_eq!(entry["route"], "all");
        assert_eq!(entry["cluster"], "service");
        assert_eq!(entry["endpoint"], service.address.to_string());
        assert!(entry["duration_us"].as_f64().unwrap() > 0.0);
        targets.push(entry["target"].as_str().unwrap().to_owned());
    }
    targets.sort();
    assert_eq!(targets, ["/a?b=c", "/d"]);
}

#[test]
fn lines_have_the_fields_and_are_of_the_exchanges_that_the_configuration_says() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let file = scratch.path("access.log");
    let log = |rest: &str| {
        let config = forward_to(service.address);
        format!("{config}access_log: {{ output: '{}', {rest} }}\n", file.display())
    };
    let first =
        log("fields: [target, status, request_headers.host, response_headers.content-length], \
                     only: [{ status: [2xx] }], except: [{ prefixes: [/healthz] }]");
    let strait = Strait::run_in(scratch, &first);
    for path in ["/healthz", "/a"] {
        assert_eq!(get(strait.listener, path).status, 200);
    }
    let line = until("the line", || {
        let text = read(&file);
        text.ends_with('\n').then_some(text)
    });
    let entry: serde_json::Map<String, Value> = serde_json::from_str(&line).unwrap();
    let names: Vec<&str> = entry.keys().map(String::as_str).collect();
    let expected = ["target", "status", "request_headers.host", "response_headers.content-length"];
    assert_eq!(names, expected, "{line}");
    assert_eq!((&entry["target"], &entry["status"]), (&"/a".into(), &200.into()));
    // A reload changes the form of lines in the same file.
    strait.rewrite(&log("format: combined"));
    strait.wait_for_version(2);
    get(strait.listener, "/b");
    let line = until("the second line", || read(&file).lines().nth(1).map(str::to_owned));
    assert!(line.contains("\"GET /b HTTP/1.1\" 200 "), "{line}");
    assert!(line.ends_with(" \"-\" \"-\""), "{line}");
}

#[test]
fn the_access_log_goes_to_standard_error() {
    let service = Service::start("one");
    let strait = Strait::run(&logging_to(&service, "stderr", "json"));
    get(strait.listener, "/to-standard-error");
    until("the line", || strait.all_logged().contains("/to-standard-error").then_some(()));
}

#[test]
fn the_kernels_error_is_in_the_log_and_on_the_page_of_slow_requests() {
    let scratch = Scratch::new();
    let file = scratch.path("access.log");
    // A port that nothing listens on.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], claim_port()));
    let config = forward_to(nowhere);
    let log = format!("access_log: {{ output: '{}', format: json }}\n", file.display());
    let strait = Strait::run_in(scratch, &format!("{config}{log}"));
    assert_eq!(get(strait.listener, "/a").status, 503);
    let line = until("the line", || read(&file).lines().next().map(str::to_owned));
    let entry: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(entry["cause"], "connect_failed");
    assert_eq!(entry["cause_detail"], "ECONNREFUSED");
    let page = get(strait.admin, "/slow").text();
    assert!(page.contains("\"cause_detail\":\"ECONNREFUSED\""), "{page}");
}

#[test]
fn the_path_of_the_file_is_relative_to_the_configurations_folder() {
    let service = Service::start("one");
    let strait = Strait::run(&logging_to(&service, "./relative.log", "text"));
    get(strait.listener, "/x");
    let file = strait.path("relative.log");
    until("the line", || read(&file).contains("/x").then_some(()));
}

#[test]
fn sigusr1_opens_a_renamed_file_again() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let (file, rotated) = (scratch.path("access.log"), scratch.path("access.log.1"));
    let config = logging_to(&service, file.to_str().unwrap(), "text");
    let mut strait = Strait::run_in(scratch, &config);
    get(strait.listener, "/before");
    until("the first line", || read(&file).contains("/before").then_some(()));
    std::fs::rename(&file, &rotated).unwrap();
    strait.signal(Signal::USR1);
    strait.wait_for_log("access log opened again");
    get(strait.listener, "/after");
    until("the second line", || read(&file).contains("/after").then_some(()));
    assert!(!read(&rotated).contains("/after") && !read(&file).contains("/before"));
}

#[test]
fn a_process_that_was_replaced_follows_a_renamed_file() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let (file, rotated) = (scratch.path("access.log"), scratch.path("access.log.1"));
    let config = logging_to(&service, file.to_str().unwrap(), "text");
    let after = with_handover(&scratch, &config, "probation: 60s");
    // A listener that the new process does not have, so that the old one goes on serving it.
    let gone = claim_port();
    let edge = "  - { name: edge,";
    let listener = format!("  - {{ name: gone, address: '127.0.0.1:{gone}', routes: all }}\n");
    let before = after.replacen(edge, &format!("{listener}{edge}"), 1);
    let strait = Strait::run_in(scratch, &before);
    strait.write("after.yaml", &after);
    upgraded_to(&strait, "after.yaml", &mut successors);
    std::fs::rename(&file, &rotated).unwrap();
    kill_process(process(successors.0[0]), Signal::USR1).unwrap();
    until("the file", || file.exists().then_some(()));
    let at = SocketAddr::from(([127, 0, 0, 1], gone));
    until("a line of the old process", || {
        get(at, "/of-the-old-process");
        read(&file).contains("/of-the-old-process").then_some(())
    });
}

#[test]
fn a_full_disk_costs_lines_that_are_counted_and_nothing_else() {
    let service = Service::start("one");
    let mut strait = Strait::run(&logging_to(&service, "/dev/full", "json"));
    get(strait.listener, "/");
    strait.wait_for_log("access log: lines are lost");
    until("a lost line", || {
        (strait.metric("strait_access_log_lines_lost_total") >= 1.0).then_some(())
    });
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_log_that_cannot_be_opened_refuses_the_configuration() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    strait.rewrite(&logging_to(&service, "/nonexistent/access.log", "json"));
    let error = strait.wait_for_error();
    assert!(error.contains("this file cannot be opened for appending"), "{error}");
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_named_pipe_is_a_log_if_it_has_a_reader_and_a_mistake_if_not() {
    let service = Service::start("one");
    let running = Strait::run(&forward_to(service.address));
    let pipe = running.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let config = logging_to(&service, pipe.to_str().unwrap(), "text");
    running.rewrite(&config);
    let error = running.wait_for_error();
    assert!(error.contains("this pipe has no reader; start its reader first"), "{error}");
    assert_eq!(get(running.admin, "/ready").status, 200);

    running.write("first.yaml", &config);
    let output = strait(&["run", "-c", running.path("first.yaml").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("this pipe has no reader; start its reader first"),
        "{}",
        text(&output.stderr)
    );

    // Open for both, so that it does not wait for a writer, nor end with one.
    let both = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    running.signal(Signal::HUP);
    running.wait_for_version(2);
    get(running.listener, "/piped");
    let mut line = String::new();
    BufReader::new(both).read_line(&mut line).unwrap();
    assert!(line.contains("/piped"), "{line}");
}

#[test]
fn what_was_logged_before_the_end_is_written_at_the_end() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let log = scratch.path("access.log");
    let config = logging_to(&service, log.to_str().unwrap(), "json");
    let mut strait = Strait::run_in(scratch, &config);
    for _ in 0..50 {
        get(strait.listener, "/");
    }
    strait.signal(Signal::TERM);
    assert!(strait.wait_for_end().success());
    assert_eq!(read(&log).lines().count(), 50);
}

#[test]
fn a_pipe_that_is_not_read_costs_lines_and_stalls_nothing() {
    let service = Service::start("one");
    let config = forward_to(service.address) + "access_log: { output: stdout }\n";
    let mut strait = Strait::run_unread(&config);
    let mut client = Client::connect(strait.listener);
    // A pipe holds 64 KiB and the writer's buffers 1 MiB; a line has some 300 bytes.
    until("lost lines", || {
        (0..500).for_each(|_| assert_eq!(client.get("/").status, 200));
        (strait.metric("strait_access_log_lines_lost_total") > 0.0).then_some(())
    });
    strait.wait_for_log("access log: lines are lost: its output blocks");
    assert_eq!(get(strait.admin, "/ready").status, 200);
    assert_eq!(get(strait.admin, "/slow").status, 200);

    // A change to a file is taken up, the pipe being as full as before.
    strait.rewrite(&config.replace("output: stdout", "output: ./after.log"));
    strait.wait_for_version(2);
    assert_eq!(client.get("/after").status, 200);
    let file = strait.path("after.log");
    until("the line", || read(&file).contains("/after").then_some(()));
    drop(client);
    strait.signal(Signal::TERM);
    assert!(strait.wait_for_end().success());
}

#[test]
fn a_pipe_that_is_read_again_gets_lines_again() {
    let service = Service::start("one");
    let running = Strait::run(&forward_to(service.address));
    let pipe = running.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let both = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let config = logging_to(&service, pipe.to_str().unwrap(), "text");
    running.rewrite(&config);
    running.wait_for_version(2);
    let mut client = Client::connect(running.listener);
    until("lost lines", || {
        (0..500).for_each(|_| assert_eq!(client.get("/").status, 200));
        (running.metric("strait_access_log_lines_lost_total") > 0.0).then_some(())
    });
    // The same pipe again is no other output, and the one that blocks is not waited for.
    running.rewrite(&(config + "\n"));
    running.wait_for_version(3);
    let mut lines = BufReader::new(both).lines();
    client.get("/marked");
    assert!(lines.any(|line| line.unwrap().contains("/marked")));
}

#[test]
fn with_nothing_configured_the_log_says_once_a_minute_that_requests_fail() {
    // A port that nothing listens on.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], claim_port()));
    let mut strait = Strait::run(&forward_to(nowhere));
    for _ in 0..30 {
        assert_eq!(get(strait.listener, "/a").status, 503);
    }
    strait.wait_for_log("requests fail");
    let line = strait.all_logged();
    for part in ["cluster service", "connect_failed", "ECONNREFUSED", &nowhere.to_string()] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(get(strait.listener, "/a").status, 503);
    assert_eq!(strait.times_logged("requests fail"), 1);
}

#[test]
fn the_debug_level_tells_the_life_of_a_connection() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", &with_admin(&forward_to(service.address)));
    let mut strait = Strait::start(scratch, &["run", "-c", &file, "--log-level", "debug"]);
    get(strait.listener, "/a?key=secret");
    for part in [
        "accepted from 127.0.0.1:",
        ": request GET /a HTTP/1.1, host",
        &format!(": endpoint {} of cluster service over connection", service.address),
        ": response 200 over connection",
        ": end: done, status 200, ",
        ": client closed: ",
    ] {
        strait.wait_for_log(part);
    }
    assert!(!strait.all_logged().contains("secret"), "{}", strait.all_logged());
}
