//! Start, signals and end.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, read, strait, text, until,
};

#[test]
fn requests_go_through_with_the_filters_edits() {
    let service = Service::start("one");
    let config = forward_to(service.address).replace(
        "routes: all }",
        "routes: all, filters: [headers: { request: { set: { x-edge: strait } }, \
         response: { remove: [x-powered-by] } }] }",
    );
    let strait = Strait::run(&config);
    let response = get(strait.listener, "/a/../b?c=d");
    assert_eq!(response.status, 200);
    assert!(response.text().starts_with("one\nGET /b?c=d HTTP/1.1\r\n"), "{}", response.text());
    assert!(response.text().contains("\r\nx-edge: strait\r\n"), "{}", response.text());
    assert_eq!(response.field("x-powered-by"), None);
}

/// With the ports of this run.
#[test]
fn the_example_of_the_readme_serves_and_writes_its_access_log() {
    let readme = read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")));
    let (_, rest) = readme.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```\n").unwrap();
    let service = Service::start("web");
    let config = example
        .replace("127.0.0.1:9901", "127.0.0.1:0")
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:9002", &service.address.to_string());
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", &config);
    let strait = Strait::start(scratch, &["run", "-c", &file]);
    assert_eq!(get(strait.listener, "/healthz").text(), "ok");
    let response = get(strait.listener, "/a");
    assert!(response.text().contains("\r\nx-edge: strait\r\n"), "{}", response.text());
    assert!(strait.wait_for_output("/healthz").contains(" 200 "));
}

#[test]
fn a_configuration_may_come_from_standard_input() {
    let service = Service::start("one");
    let script = r#"command=$1; file=$3; shift 3; exec "$0" "$command" -c - "$@" < "$file""#;
    let strait = Strait::run_by(script, Stdio::null(), &[], &forward_to(service.address));
    assert_eq!(get(strait.listener, "/").status, 200);
}

/// The configuration is a FIFO, so that the process waits for it until the signals have come, and another file by the time that it
/// serves.
#[test]
fn signals_that_come_while_it_starts_do_not_end_it() {
    let service = Service::start("one");
    let script = r#"
        config=$3; mv "$config" "$config.kept"; mkfifo "$config"
        (
            exec 9> "$config"
            for signal in USR1 USR2 HUP; do kill -$signal $$; done
            { cat "$config.kept"; echo "limits: { drain_delay: 1s }"; } > "$config.next"
            mv "$config.next" "$config"
            cat "$config.kept" >&9
        ) &
        exec "$0" "$@"
    "#;
    let strait = Strait::run_by(script, Stdio::null(), &[], &forward_to(service.address));
    assert_eq!(get(strait.listener, "/").status, 200);
    strait.wait_for_version(2);
}

#[test]
fn a_second_process_on_the_same_address_is_refused_clearly() {
    let service = Service::start("one");
    let first = Strait::run(&forward_to(service.address));
    let config = forward_to(service.address).replace("127.0.0.1:0", &first.listener.to_string());
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", &config);
    let output = strait(&["run", "-c", &file]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    let cannot =
        format!("listener edge: cannot listen on {}: the address is in use", first.listener);
    assert!(error.contains(&cannot), "{error}");
    assert_eq!(get(first.listener, "/").status, 200);
}

#[test]
fn an_admin_address_that_is_taken_is_refused_clearly() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let config =
        format!("admin: {{ address: '{}' }}\n{}", service.address, forward_to(service.address));
    let output = strait(&["run", "-c", &scratch.write("strait.yaml", &config)]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("the admin interface cannot listen on"), "{error}");
}

#[test]
fn a_drain_finishes_what_runs_and_says_close() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let service = Service::start("one");
        let mut strait = Strait::run(&forward_to(service.address));
        let mut client = Client::connect(strait.listener);
        client.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
        service.wait_at_gate();

        strait.signal(signal);
        strait.wait_for_log("draining");
        let ready = get(strait.admin, "/ready");
        assert_eq!((ready.status, ready.text().as_str()), (503, "draining\n"));
        until("the listener's end", || {
            std::net::TcpStream::connect(strait.listener).err().map(drop)
        });

        service.open_gate();
        let response = client.receive();
        assert_eq!(response.status, 200);
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.is_closed());
        assert_eq!(strait.wait_for_end().code(), Some(0));
    }
}

#[test]
fn a_process_that_leaves_is_not_ready_and_serves_until_its_delay_is_over() {
    let service = Service::start("one");
    let config = forward_to(service.address) + "limits: { drain_delay: 1s }\n";
    let mut strait = Strait::run(&config);
    strait.signal(Signal::TERM);
    strait.wait_for_log("leaving");
    assert_eq!(get(strait.admin, "/ready").status, 503);
    assert_eq!(get(strait.listener, "/").status, 200);
    strait.wait_for_log("draining");
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_delay_and_a_third_would_stop() {
    let service = Service::start("one");
    let config = forward_to(service.address) + "limits: { drain_delay: 1h }\n";
    let mut strait = Strait::run(&config);
    strait.signal(Signal::TERM);
    strait.wait_for_log("leaving");
    strait.signal(Signal::TERM);
    strait.wait_for_log("draining");
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn a_signal_that_means_a_successor_elsewhere_ends_nothing() {
    let service = Service::start("one");
    let mut strait = Strait::run(&forward_to(service.address));
    strait.signal(Signal::USR2);
    strait.wait_for_log("SIGUSR2 does nothing");
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_successor_takes_the_addresses_of_a_process_that_drains() {
    let service = Service::start("one");
    let [listener, admin, metrics] = [(); 3].map(|()| format!("127.0.0.1:{}", claim_port()));
    let config = format!("admin: {{ address: '{admin}', metrics: '{metrics}' }}\n")
        + &forward_to(service.address).replace("127.0.0.1:0", &listener);
    let start = || {
        let scratch = Scratch::new();
        let file = scratch.write("strait.yaml", &config);
        Strait::start(scratch, &["run", "-c", &file])
    };
    let mut former = start();
    let mut client = Client::connect(former.listener);
    client.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    former.signal(Signal::TERM);
    former.wait_for_log("draining");
    assert_eq!(get(former.admin, "/ready").status, 503, "what it waits for can be seen");

    let successor = start();
    assert_eq!(get(successor.admin, "/ready").status, 200);
    assert_eq!(get(successor.listener, "/").status, 200);
    former.wait_for_log("released for another process");
    service.open_gate();
    assert_eq!(client.receive().status, 200);
    assert_eq!(former.wait_for_end().code(), Some(0));
}

#[test]
fn each_line_of_the_log_names_its_process() {
    let service = Service::start("one");
    let mut running = Strait::run(&forward_to(service.address));
    let entry = running.wait_for_entry("ready");
    assert_eq!((&entry["level"], &entry["process"]), (&"INFO".into(), &running.pid().into()));
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", &forward_to(service.address));
    let mut process = Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(["run", "-c", &file])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stderr.take().unwrap()).read_line(&mut line).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    let begins = format!("Z [{}]  INFO starting version=", process.id());
    assert!(line.contains(&begins), "{line}");
    // Its last words, too.
    let bad = scratch.write("bad.yaml", "listeners: [{}]");
    let output = strait(&["run", "-c", &bad, "--log-format", "json"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(
        last["message"].as_str().unwrap().starts_with("the configuration is refused\n"),
        "{said}"
    );
    assert!(last["process"].is_number(), "{said}");
}

#[test]
fn a_second_signal_stops_at_once() {
    let (service, scratch) = (Service::start("one"), Scratch::new());
    let log = scratch.path("access.log");
    let config = format!("access_log: {{ output: {} }}\n", log.display());
    let mut strait = Strait::run_in(scratch, &(forward_to(service.address) + &config));
    let mut client = Client::connect(strait.listener);
    client.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    strait.signal(Signal::TERM);
    strait.wait_for_log("draining");
    strait.signal(Signal::TERM);
    assert_eq!(strait.wait_for_end().code(), Some(1));
    let log = read(&strait.path("access.log"));
    for part in ["\"target\":\"/gate\"", "\"cause\":\"drain_timeout\"", "stopped at once"] {
        assert!(log.contains(part), "{part} in {log}");
    }
    strait.wait_for_log("exchanges were cut off: this process stops at once");
}

#[test]
fn a_drain_ends_what_runs_when_its_time_is_up_and_always_says_so() {
    for _ in 0..8 {
        let service = Service::start("one");
        let config = forward_to(service.address) + "limits: { drain_timeout: 50ms }\n";
        let mut strait = Strait::run(&config);
        let mut client = Client::connect(strait.listener);
        client.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
        service.wait_at_gate();
        strait.signal(Signal::TERM);
        assert_eq!(strait.wait_for_end().code(), Some(0));
        until("what was cut off, in the log", || {
            (strait.times_logged("exchanges were cut off") == 1).then_some(())
        });
    }
}

#[test]
fn the_admin_interface_drains_on_post() {
    let service = Service::start("one");
    let mut strait = Strait::run(&forward_to(service.address));
    let response = Client::connect(strait.admin).request("POST", "/drain");
    assert_eq!((response.status, response.text().as_str()), (202, "draining\n"));
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn the_files_of_unix_sockets_have_the_permissions_that_the_file_says() {
    use std::os::unix::fs::PermissionsExt as _;

    let scratch = Scratch::new();
    let folder = scratch.path("");
    let config = format!(
        "admin: {{ address: 127.0.0.1:0, metrics: 'unix:{0}/metrics.sock', mode: 0600 }}
listeners:
  - {{ name: edge, address: 127.0.0.1:0, routes: all }}
  - {{ name: open, address: 'unix:{0}/open.sock', mode: 0666, routes: all }}
  - {{ name: usual, address: 'unix:{0}/usual.sock', routes: all }}
routes:
  - {{ name: all, rules: [] }}
",
        folder.display()
    );
    let file = scratch.write("strait.yaml", &config);
    let strait = Strait::start(scratch, &["run", "-c", &file]);
    for (name, mode) in [("metrics.sock", 0o600), ("open.sock", 0o666), ("usual.sock", 0o660)] {
        let found = std::fs::metadata(strait.path(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{name}");
    }
}
