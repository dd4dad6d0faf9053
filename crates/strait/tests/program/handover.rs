//! One process takes another's place, on real sockets: who notices, and what comes of failures.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ::tls::Version;
use io::packets::ProcessHandle;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::handover_refusals::failures;
use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, get_from_either, strait, text,
    until, with_admin,
};
use crate::tls::certificates;
use crate::tls_client::{self, TlsClient};

/// The processes that took over, ended with the test.
#[derive(Default)]
pub(crate) struct Successors(pub(crate) Vec<u32>);

impl Drop for Successors {
    fn drop(&mut self) {
        let open = |pid: &u32| ProcessHandle::open(*pid).ok();
        let handles: Vec<_> = self.0.iter().filter_map(open).collect();
        for pid in &self.0 {
            let _ = kill_process(process(*pid), Signal::KILL);
        }
        // What comes next in a test may want the same addresses.
        for handle in handles {
            let _ = handle.wait(Duration::from_secs(10));
        }
    }
}

pub(crate) fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// A configuration with handovers, in a scratch folder.
pub(crate) fn with_handover(scratch: &Scratch, config: &str, options: &str) -> String {
    let socket = scratch.path("handover/strait.sock");
    format!("handover: {{ socket: {}, {options} }}\n{config}", socket.display())
}

fn run(service: &Service, options: &str) -> Strait {
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), options);
    Strait::run_in(scratch, &config)
}

/// Runs `strait upgrade` on the process's own file.
pub(crate) fn upgrade(strait: &Strait, more: &[&str]) -> Output {
    upgrade_with(strait, "strait.yaml", more)
}

fn upgrade_with(strait: &Strait, file: &str, more: &[&str]) -> Output {
    let file = strait.path(file);
    let file = file.to_str().unwrap();
    self::strait(&[&["upgrade", "-c", file], more].concat())
}

/// What `/handover` says of the last one, once it has come to this: who began it may hear of the end before that is noted.
pub(crate) fn ended_with(strait: &Strait, result: &str) -> Value {
    until("the end of the attempt", || {
        let last = strait.admin_json("/handover")["last"].take();
        (last["result"] == result).then_some(last)
    })
}

/// Upgrades, and says which process serves now.
pub(crate) fn upgraded(strait: &Strait, successors: &mut Successors) -> String {
    upgraded_to(strait, "strait.yaml", successors)
}

/// The same with another file, which the running process does not read.
pub(crate) fn upgraded_to(strait: &Strait, file: &str, successors: &mut Successors) -> String {
    let output = upgrade_with(strait, file, &[]);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{error}{}", strait.all_logged());
    let pid = out.lines().find_map(|line| line.strip_prefix("process ")?.split(' ').next());
    successors.0.push(pid.unwrap().parse().unwrap());
    out
}

#[test]
fn kept_and_busy_connections_go_on_in_the_new_process() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 0s");
    let mut kept: Vec<_> = (0..100).map(|_| Client::connect(strait.listener)).collect();
    for client in &mut kept {
        assert_eq!(client.get("/").status, 200);
    }
    let mut busy = Client::connect(strait.listener);
    busy.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    let mut amid_head = Client::connect(strait.listener);
    amid_head.send("GET /slow HTTP/1.1\r\nho");

    let out = upgraded(&strait, &mut successors);
    assert!(out.contains("connections after"), "{out}");
    assert_eq!(strait.wait_for_end().code(), Some(0), "the former process has nothing left");

    service.open_gate();
    let response = busy.receive();
    assert_eq!((response.status, response.field("connection")), (200, None));
    amid_head.send("st: test\r\n\r\n");
    assert_eq!(amid_head.receive().status, 200);
    for client in kept.iter_mut().chain([&mut busy, &mut amid_head]) {
        let response = client.get("/again");
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(get(strait.admin, "/ready").text(), "ready\n");
    let page = strait.admin_json("/handover");
    let last = &page["last"];
    assert_eq!((&page["generation"], &page["state"]), (&1.into(), &"none".into()), "{page}");
    assert_eq!((&last["role"], &last["result"]), (&"taker".into(), &"completed".into()), "{page}");
    assert_eq!(last["version"], env!("CARGO_PKG_VERSION"));
    assert!(last["groups_moved"].as_u64().unwrap() >= 102, "{page}");
    let phases: Vec<_> = last["phases"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(phases.contains(&&"config".into()) && phases.contains(&&"commit".into()), "{page}");
    assert_eq!(strait.metric("strait_handovers_total"), 1.0);
    assert_eq!(
        strait.metric("strait_handover_groups_total"),
        last["groups_moved"].as_f64().unwrap()
    );
}

#[test]
fn counters_go_on_and_gauges_are_right() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 0s");
    let mut kept: Vec<_> = (0..10).map(|_| Client::connect(strait.listener)).collect();
    kept.iter_mut().for_each(|client| drop(client.get("/")));
    for _ in 0..3 {
        upgraded(&strait, &mut successors);
        kept.iter_mut().for_each(|client| drop(client.get("/")));
    }
    until("all that was counted", || {
        (strait.metric("strait_exchanges_finished_total") == 40.0).then_some(())
    });
    assert_eq!(strait.metric("strait_downstream_connections_opened_total"), 10.0);
    assert_eq!(strait.metric("strait_downstream_connections_active"), 10.0);
    let metrics = get(strait.admin, "/metrics").text();
    let histogram = "strait_exchange_stage_seconds_count{stage=\"total\"} 40\n";
    assert!(metrics.contains(histogram), "{metrics}");
    drop(kept);
    until("the end of all", || {
        (strait.metric("strait_downstream_connections_active") == 0.0).then_some(())
    });
    assert_eq!(strait.metric("strait_downstream_connections_closed_total"), 10.0);
}

#[test]
fn slow_requests_of_former_processes_are_still_shown() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 0s");
    let shown = |strait: &Strait, count: usize| {
        until("the slow requests", || {
            let requests = strait.admin_json("/slow")["requests"].take();
            let requests = requests.as_array().unwrap();
            let targets = requests.iter().map(|it| it["target"].as_str().unwrap().to_owned());
            let mut targets: Vec<_> = targets.collect();
            targets.sort();
            (targets.len() == count).then_some(targets)
        })
    };
    let mut expected = Vec::new();
    for number in 0..3 {
        let target = format!("/of/{number}");
        assert_eq!(get(strait.listener, &target).status, 200);
        expected.push(target);
        assert_eq!(shown(&strait, expected.len()), expected);
        upgraded(&strait, &mut successors);
        assert_eq!(shown(&strait, expected.len()), expected);
    }
    let text = get(strait.admin, "/slow?format=text").text();
    assert!(expected.iter().all(|target| text.contains(&**target)), "{text}");
    assert!(text.contains("first_byte"), "{text}");
}

#[test]
fn admin_requests_are_answered_while_processes_replace_each_other() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 0s");
    let (admin, is_over) = (strait.admin, AtomicBool::new(false));
    thread::scope(|scope| {
        let ask = |path: &'static str| {
            let is_over = &is_over;
            move || {
                let mut answered = 0;
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(get(admin, path).status, 200, "{path}");
                    answered += 1;
                }
                answered
            }
        };
        let asking = ["/metrics", "/ready", "/clusters"].map(|path| scope.spawn(ask(path)));
        for _ in 0..10 {
            upgraded(&strait, &mut successors);
        }
        is_over.store(true, Ordering::Relaxed);
        for asking in asking {
            assert!(asking.join().unwrap() > 10);
        }
    });
}

#[test]
fn a_kept_admin_connection_is_answered_once_more_and_then_closed() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 1m");
    let mut kept = Client::connect(strait.admin);
    assert_eq!(kept.get("/ready").field("connection"), None);
    kept.send("GET /ready HTTP/1.1\r\nho");
    upgraded(&strait, &mut successors);
    kept.send("st: localhost\r\n\r\n");
    let response = kept.receive();
    assert_eq!((response.status, response.field("connection")), (200, Some("close")));
    assert!(kept.is_closed());
}

/// A configuration that ends TLS.
pub(crate) fn over_tls(scratch: &Scratch, service: &Service) -> String {
    let (chain, key) = (scratch.path("site.pem"), scratch.path("site.key"));
    let tls = format!(
        "routes: all, tls: {{ certificates: [{{ chain: {}, key: {} }}] }} }}",
        chain.display(),
        key.display()
    );
    forward_to(service.address).replace("routes: all }", &tls)
}

#[test]
fn sessions_are_resumed_after_two_handovers() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let config = over_tls(&scratch, &service);
    let config = with_handover(&scratch, &config, "probation: 0s");
    let strait = Strait::run_in(scratch, &config);
    for version in [Version::Tls12, Version::Tls13] {
        let context = tls_client::context(version);
        let mut first = TlsClient::connect(strait.listener, &context);
        assert!(first.get("/").starts_with("HTTP/1.1 200 OK"));
        assert!(!first.is_resumed);
        for _ in 0..2 {
            upgraded(&strait, &mut successors);
        }
        let mut second = TlsClient::connect(strait.listener, &context);
        assert!(second.get("/").starts_with("HTTP/1.1 200 OK"));
        assert!(second.is_resumed, "{version}");
        assert!(first.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    assert_eq!(strait.metric("strait_generation"), 4.0);
}

#[test]
fn a_new_process_that_cannot_serve_changes_nothing() {
    let service = Service::start("one");
    let strait = run(&service, "timeout: 2s");
    let mut client = Client::connect(strait.listener);
    assert_eq!(client.get("/").status, 200);
    let scripts = Scratch::new();
    let script = |name: &str, text: &str| {
        let path = scripts.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let exits = script("exits", "#!/bin/sh\nexit 3\n");
    let hangs = script("hangs", "#!/bin/sh\nexec sleep 60\n");
    let not_executable = scripts.write("not_executable", "x");
    let missing = scripts.path("missing");
    let wrong = scripts.write("wrong.yaml", "listeners: 7\n");
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    for (arguments, expected) in [
        (["--binary", missing.to_str().unwrap()], "cannot be started: No such file"),
        (["--binary", &not_executable], "cannot be started: Permission denied"),
        (["--binary", &exits], "ended before it took over (exit status: 3)"),
        (["--binary", &hangs], "did not ask to take over in time"),
    ] {
        let output = upgrade(&strait, &arguments);
        let error = text(&output.stderr);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let response = client.get("/");
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
    assert_eq!(failures(&strait, "start"), 4);
    let output = self::strait(&["upgrade", "-c", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    // One that cannot have what it is configured to.
    let taken = config.replace(
        "listeners:",
        &format!("listeners:\n  - {{ name: new, address: '{}', routes: all }}", service.address),
    );
    strait.write("taken.yaml", &taken);
    let file = strait.path("taken.yaml");
    let output = self::strait(&["upgrade", "-c", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let error = text(&output.stderr);
    assert!(error.contains("the address is in use"), "{error}");
    let last = ended_with(&strait, "rolled_back");
    assert_eq!(last["role"], "giver", "{last}");
    assert!(last["reason"].as_str().unwrap().contains("the address is in use"), "{last}");
    let response = client.get("/");
    assert_eq!((response.status, response.field("connection")), (200, None));
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(get(strait.admin, "/ready").text(), "ready\n");
}

#[test]
fn a_check_says_what_would_not_move_and_changes_nothing() {
    let service = Service::start("one");
    let strait = run(&service, "probation: 0s");
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait
        .write("next.yaml", &config.replace("name: service, ", "name: service, protocol: http2, "));
    let next = strait.path("next.yaml");
    let output = self::strait(&["upgrade", "--check", "-c", next.to_str().unwrap()]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    assert!(out.contains("cluster service differs: its connections stay\n"), "{out}");
    let output = upgrade(&strait, &["--check"]);
    let out = text(&output.stdout);
    assert!(!out.contains("stay") && out.contains("checked: this process continues"), "{out}");
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(strait.times_logged("rolled back"), 0, "nothing has failed");
    until("the end of the processes that compared", || strait.children().is_empty().then_some(()));
}

#[test]
fn a_check_names_each_listener_chain_and_cluster_whose_connections_would_stay() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let ports = [(); 2].map(|()| claim_port());
    let chains = "chains: [{ name: first, match: { protocols: [http1] }, routes: all }, { name: second, match: { protocols: [http2] }, routes: all }]";
    let more = format!(
        "  - {{ name: chained, address: '127.0.0.1:{}', {chains} }}\n  - {{ name: gone, address: '127.0.0.1:{}', routes: all }}\n",
        ports[0], ports[1]
    );
    let clusters = format!("  - {{ name: other, endpoints: ['{}'] }}\n", service.address);
    let config =
        forward_to(service.address).replace("routes:\n", &format!("{more}routes:\n")) + &clusters;
    let strait = Strait::run_in(Scratch::new(), &with_handover(&scratch, &config, "probation: 0s"));
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let check = |next: &str| {
        strait.write("next.yaml", next);
        let next = strait.path("next.yaml");
        let output = self::strait(&["upgrade", "--check", "-c", next.to_str().unwrap()]);
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
        let stay = out.lines().filter_map(|line| line.strip_suffix(": its connections stay"));
        stay.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(check(&config), [""; 0]);
    let gone = config.lines().find(|line| line.contains("name: gone")).unwrap();
    let next = config
        .replace(&format!("{gone}\n"), "")
        .replace(
            "{ name: first, match: { protocols: [http1] }",
            "{ name: renamed, match: { protocols: [http1] }",
        )
        .replace(
            "{ protocols: [http2] }, routes",
            "{ protocols: [http2], sources: [127.0.0.0/8] }, routes",
        )
        .replace("name: edge, ", "name: edge, proxy_protocol: { from: [10.0.0.0/8] }, ")
        .replace("name: other, ", "name: other, mark: 7, ");
    let expected = [
        "listener edge differs",
        "listener gone is missing",
        "chain chained/first is missing",
        "chain chained/second differs",
        "cluster other differs",
    ];
    assert_eq!(check(&next), expected);
}

/// What a connection was let in for is not what it would meet in the next process: it stays, and keeps its routes.
#[test]
fn connections_stay_that_the_next_configuration_gives_to_another_chain_or_listener() {
    let (one, other) = (claim_port(), claim_port());
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let listener = |name: &str, port: u16, more: &str| {
        format!("  - {{ name: {name}, address: '127.0.0.1:{port}', {more} }}\n")
    };
    let routes = "routes:\n\
        \x20 - { name: pub, rules: [{ match: { prefix: / }, respond: { body: public } }] }\n\
        \x20 - { name: priv, rules: [{ match: { prefix: / }, respond: { body: private } }] }\n";
    let text = |listeners: &[String]| format!("listeners:\n{}{routes}", listeners.concat());
    let before = text(&[listener("a", one, "routes: pub"), listener("b", other, "routes: priv")]);
    let chain =
        "routes: priv, chains: [{ name: local, match: { sources: [127.0.0.0/8] }, routes: pub }]";
    // A chain for it that is new, and two listeners that exchanged their addresses.
    for after in [
        text(&[listener("a", one, chain), listener("b", other, "routes: priv")]),
        text(&[listener("a", other, "routes: priv"), listener("b", one, "routes: pub")]),
    ] {
        let (scratch, mut successors) = (Scratch::new(), Successors::default());
        let [before, after] =
            [&before, &after].map(|text| with_handover(&scratch, text, "probation: 0s"));
        let strait = Strait::run(&before);
        let mut client = Client::connect(address(one));
        assert_eq!(client.get("/").text(), "public");
        let version = strait.metric("strait_config_version");
        strait.write("next.yaml", &with_admin(&after));
        let printed = upgraded_to(&strait, "next.yaml", &mut successors);
        assert!(printed.contains("1 stay: its "), "{printed}");
        // Within the 5 s that idle connections have from the end of the probation on.
        assert_eq!(client.get("/").text(), "public", "{after}");
        until("the end of the probation", || {
            let output = upgrade(&strait, &["--back"]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let why = "there is no old process that could take back, or its probation is over";
            String::from_utf8_lossy(&output.stderr).contains(why).then_some(())
        });
        assert_eq!(get(address(one), "/").text(), "public");
        until("the new process", || {
            (strait.metric("strait_config_version") == version + 1.0).then_some(())
        });
    }
}

/// Who sent a PROXY header is not handed over: where a new chain asks for it, connections stay.
#[test]
fn connections_stay_if_a_new_chain_asks_who_connected_for_them() {
    let port = claim_port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let text = |chain: &str| {
        format!(
            "listeners: [{{ name: edge, address: '127.0.0.1:{port}', proxy_protocol: true, routes: all, chains: [{chain}] }}]\n\
             routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, respond: {{}} }}] }}]\n"
        )
    };
    let chain = |asked: &str| format!("{{ name: one, match: {{ {asked} }}, routes: all }}");
    for (chain, is_kept) in
        [(chain("direct_sources: [10.0.0.0/8]"), false), (chain("sources: [10.0.0.0/8]"), true)]
    {
        let (scratch, mut successors) = (Scratch::new(), Successors::default());
        let [before, after] =
            [text(""), text(&chain)].map(|text| with_handover(&scratch, &text, "probation: 0s"));
        let strait = Strait::run(&before);
        let mut client = Client::connect(address);
        client.send("PROXY TCP4 192.0.2.7 192.0.2.1 1234 443\r\n");
        assert_eq!(client.get("/").status, 200);
        strait.write("next.yaml", &with_admin(&after));
        let printed = upgraded_to(&strait, "next.yaml", &mut successors);
        assert_eq!(printed.contains("1 stay: its chain"), !is_kept, "{printed}");
        assert_eq!(client.get("/").status, 200);
    }
}

/// One address, all addresses, and back: the process before listens on the same port meanwhile.
#[test]
fn a_listener_may_have_all_addresses_of_its_port_in_the_next_process_and_one_again() {
    let port = claim_port();
    let (scratch, mut successors) = (Scratch::new(), Successors::default());
    let text = |ip: &str| {
        let text = format!(
            "listeners: [{{ name: edge, address: '{ip}:{port}', routes: all }}]\n\
             routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, respond: {{}} }}] }}]\n"
        );
        with_handover(&scratch, &text, "probation: 0s")
    };
    let strait = Strait::run(&text("127.0.0.1"));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut kept = Client::connect(address);
    assert_eq!(kept.get("/").status, 200);
    for ip in ["0.0.0.0", "127.0.0.1"] {
        // Files of their own: the second process follows its one, and would reload it.
        let file = format!("{ip}.yaml");
        strait.write(&file, &with_admin(&text(ip)));
        upgraded_to(&strait, &file, &mut successors);
        let response = kept.get("/");
        assert_eq!((response.status, response.field("connection")), (200, None), "{ip}");
        assert_eq!(get_from_either(address, "/").status, 200, "{ip}");
    }
}

#[test]
fn processes_with_more_and_with_fewer_workers_replace_each_other() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 0s");
    let mut kept: Vec<_> = (0..40).map(|_| Client::connect(strait.listener)).collect();
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    for workers in [4, 1, 3, 2] {
        kept.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
        strait.write("strait.yaml", &config.replace("workers: 2", &format!("workers: {workers}")));
        upgraded(&strait, &mut successors);
        for client in &mut kept {
            let response = client.get("/");
            assert_eq!((response.status, response.field("connection")), (200, None), "{workers}");
        }
        // Each queue has a worker.
        for _ in 0..40 {
            assert_eq!(get(strait.listener, "/").status, 200, "{workers}");
        }
    }
}

#[test]
fn connections_are_listed_where_one_worker_has_ended_and_another_not() {
    // Of a listener that the next process does not have: this one has it, or has dropped it before.
    for is_reloaded in [false, true] {
        let (service, mut successors) = (Service::start("one"), Successors::default());
        let port = claim_port();
        let scratch = Scratch::new();
        let other = format!("  - {{ name: other, address: '127.0.0.1:{port}', routes: all }}\n");
        let config = forward_to(service.address).replace("routes:\n", &format!("{other}routes:\n"));
        let config = with_handover(&scratch, &config, "probation: 0s");
        let strait = Strait::run_in(scratch, &config);
        let mut kept = Client::connect(strait.admin);
        assert_eq!(kept.get("/ready").status, 200);
        let mut stays = Client::connect(SocketAddr::from(([127, 0, 0, 1], port)));
        stays.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
        service.wait_at_gate();
        let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
        let file = if is_reloaded { "strait.yaml" } else { "next.yaml" };
        strait.write(file, &config.replace(&other, ""));
        if is_reloaded {
            until("the new version", || {
                (strait.metric("strait_config_version") == 2.0).then_some(())
            });
        }
        upgraded_to(&strait, file, &mut successors);
        let response = kept.get("/connections");
        assert_eq!(response.status, 200, "{is_reloaded}: {}", response.text());
        let is_listed = response.text().contains("\"target\":\"/gate\"");
        assert!(is_listed, "{is_reloaded}: {}", response.text());
        service.open_gate();
        assert_eq!(stays.receive().status, 200, "{is_reloaded}");
    }
}

#[test]
fn a_new_process_that_ends_in_its_probation_is_stood_in_for() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 1m");
    upgraded(&strait, &mut successors);
    assert_eq!(get(strait.listener, "/").status, 200);
    kill_process(process(successors.0[0]), Signal::KILL).unwrap();
    strait.wait_for_log("accepts connections again");
    assert_eq!(get(strait.listener, "/").status, 200);
    until("the admin interface", || (get(strait.admin, "/ready").status == 200).then_some(()));
    // And once more.
    upgraded(&strait, &mut successors);
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn connections_that_end_with_a_new_process_in_its_probation_are_open_no_more() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 1m");
    let mut kept: Vec<_> = (0..10).map(|_| Client::connect(strait.listener)).collect();
    kept.iter_mut().for_each(|client| drop(client.get("/")));
    // One with a request that is not whole moves as an exchange.
    kept[0].send("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nfour");
    let open = ["downstream_connections", "exchanges", "upstream_connections"];
    let open =
        |strait: &Strait| open.map(|family| strait.metric(&format!("strait_{family}_active")));
    until("the exchange", || (open(&strait)[1] == 1.0).then_some(()));
    let before = open(&strait);
    assert!(before[0] == 10.0 && before[2] >= 1.0, "{before:?}");
    for _ in 0..2 {
        upgraded(&strait, &mut successors);
        assert_eq!(open(&strait)[..2], before[..2]);
        kill_process(process(successors.0.pop().unwrap()), Signal::KILL).unwrap();
        strait.wait_for_log("accepts connections again");
        until("the admin interface", || (get(strait.admin, "/ready").status == 200).then_some(()));
        until("the end of what was lost", || (open(&strait) == [0.0; 3]).then_some(()));
        kept = (0..10).map(|_| Client::connect(strait.listener)).collect();
        kept.iter_mut().for_each(|client| drop(client.get("/")));
        kept[0].send("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nfour");
        until("the exchange", || (open(&strait)[1] == 1.0).then_some(()));
        assert_eq!(open(&strait)[..2], before[..2]);
    }
}

#[test]
fn a_new_process_that_is_asked_to_end_is_not_stood_in_for() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 1m");
    upgraded(&strait, &mut successors);
    kill_process(process(successors.0[0]), Signal::TERM).unwrap();
    assert_eq!(strait.wait_for_end().code(), Some(0));
    until("the listener's end", || TcpStream::connect(strait.listener).err().map(drop));
}

#[test]
fn a_process_takes_over_by_itself_or_starts_as_ever() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut first = run(&service, "probation: 0s");
    let mut client = Client::connect(first.listener);
    assert_eq!(client.get("/").status, 200);
    let file = first.path("strait.yaml");
    let mut second = Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(["run", "--take-over=required", "-c", file.to_str().unwrap()])
        .spawn()
        .unwrap();
    successors.0.push(second.id());
    assert_eq!(first.wait_for_end().code(), Some(0));
    assert_eq!(client.get("/").status, 200);
    assert!(second.try_wait().unwrap().is_none());
    kill_process(process(second.id()), Signal::KILL).unwrap();
    second.wait().unwrap();

    let output = strait(&["run", "--take-over=required", "-c", file.to_str().unwrap()]);
    let error = text(&output.stderr);
    assert!(error.contains("there is no process to take over from"), "{error}");
    assert_eq!(output.status.code(), Some(1));
    drop(first);
}

/// As in two containers: each process sees itself as process 1, or so, and has no id for the other.
pub(crate) struct InNamespaces {
    pub(crate) first: Strait,
    /// `unshare`, which started the process that has taken over.
    pub(crate) second: Child,
    /// A client from before.
    pub(crate) kept: Client,
    pub(crate) service: Service,
    /// Where other processes find them.
    #[expect(dead_code, reason = "it is removed with this")]
    scratch: Scratch,
}

impl InNamespaces {
    /// None where no namespace can be made.
    pub(crate) fn hand_over(options: &str) -> Option<Self> {
        Self::hand_over_to(options, str::to_owned, |kept, _| assert_eq!(kept.get("/").status, 200))
    }

    /// As [`InNamespaces::hand_over`], but the client has a request under way, which stays with the first process.
    pub(crate) fn hand_over_with_rest(options: &str) -> Option<Self> {
        let next =
            |config: &str| config.replace("name: service, ", "name: service, protocol: http2, ");
        Self::hand_over_to(options, next, |kept, service| {
            kept.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
            service.wait_at_gate();
        })
    }

    fn hand_over_to(
        options: &str,
        next: impl Fn(&str) -> String,
        begin: impl FnOnce(&mut Client, &Service),
    ) -> Option<Self> {
        let in_namespace = r#"exec unshare --pid --fork --kill-child "$0" "$@""#;
        let has_namespaces = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
        if !has_namespaces.is_ok_and(|it| it.success()) {
            println!("skipped: PID namespaces cannot be made here");
            return None;
        }
        let (service, scratch) = (Service::start("one"), Scratch::new());
        let config = with_handover(&scratch, &forward_to(service.address), options);
        let first = Strait::run_by(in_namespace, Stdio::null(), &[], &config);
        let mut kept = Client::connect(first.listener);
        begin(&mut kept, &service);
        let file = first.path("next.yaml");
        let config = fs::read_to_string(first.path("strait.yaml")).unwrap();
        fs::write(&file, next(&config)).unwrap();
        let second = Command::new("sh")
            .args(["-c", in_namespace, env!("CARGO_BIN_EXE_strait")])
            .args(["run", "--take-over=required", "-c", file.to_str().unwrap()])
            .spawn()
            .unwrap();
        until("the handover", || (first.metric("strait_generation") == 1.0).then_some(()));
        Some(Self { first, second, kept, service, scratch })
    }
}

#[test]
fn processes_of_two_pid_namespaces_replace_each_other() {
    let Some(both) = InNamespaces::hand_over("probation: 1m") else { return };
    let InNamespaces { mut first, mut second, mut kept, service: _service, .. } = both;
    let response = kept.get("/");
    assert_eq!((response.status, response.field("connection")), (200, None));
    assert_eq!(
        first.admin_json("/handover")["last"]["groups_moved"].as_u64().map(|it| it > 0),
        Some(true)
    );
    // Its end in probation shows by the connection alone.
    second.kill().unwrap();
    second.wait().unwrap();
    first.wait_for_log("accepts connections again");
    until("the admin interface", || (get(first.admin, "/ready").status == 200).then_some(()));
    assert_eq!(first.metric("strait_generation"), 0.0);
    assert_eq!(get(first.listener, "/").status, 200);
}

#[test]
fn the_files_of_unix_sockets_stay_for_the_new_process() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = Scratch::new();
    let path = scratch.path("edge.sock");
    let beside = SocketAddr::from(([127, 0, 0, 2], claim_port()));
    let config = forward_to(service.address).replace(
        "routes: all }",
        &format!(
            "routes: all }}\n  - {{ name: local, address: ['127.0.0.2:{}', 'unix:{}'], routes: all }}",
            beside.port(),
            path.display()
        ),
    );
    let config = with_handover(&scratch, &config, "probation: 0s");
    let mut strait = Strait::run_in(scratch, &config);
    let answers = |path: &Path| {
        let output = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket"])
            .arg(path)
            .arg("http://localhost/")
            .output();
        output.map_or_else(|_| "200".to_owned(), |output| text(&output.stdout))
    };
    assert_eq!((answers(&path).as_str(), get(beside, "/").status), ("200", 200));
    // One that has the sockets and cannot listen where else it should leaves the file.
    let new =
        format!("listeners:\n  - {{ name: new, address: '{}', routes: all }}", service.address);
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait.write("taken.yaml", &config.replace("listeners:", &new));
    let output = upgrade_with(&strait, "taken.yaml", &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    ended_with(&strait, "rolled_back");
    until("its end", || strait.children().is_empty().then_some(()));
    assert!(path.exists());
    assert_eq!((answers(&path).as_str(), get(beside, "/").status), ("200", 200));
    upgraded(&strait, &mut successors);
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert!(path.exists());
    assert_eq!((answers(&path).as_str(), get(beside, "/").status), ("200", 200));
    kill_process(process(successors.0[0]), Signal::TERM).unwrap();
    until("the file's end", || (!path.exists()).then_some(()));
}

#[test]
fn a_listener_that_the_new_process_does_not_have_is_served_by_the_old_one_until_that_ends() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (gone, moved, to) = (claim_port(), claim_port(), claim_port());
    let edge = "  - { name: edge,";
    let listeners = |more: &str| {
        let config = forward_to(service.address);
        config.replacen(edge, &format!("{more}{edge}"), 1)
    };
    let listener = |name: &str, port: u16| {
        format!("  - {{ name: {name}, address: '127.0.0.1:{port}', routes: all }}\n")
    };
    let two = |ports: &[String]| {
        format!("  - {{ name: two, address: [{}], routes: all }}\n", ports.join(", "))
    };
    let (one, other) = (claim_port(), claim_port());
    let both = [one, other].map(|port| format!("'127.0.0.1:{port}'"));
    let scratch = Scratch::new();
    let local = scratch.path("local.sock");
    let both = [both[0].clone(), both[1].clone(), format!("'unix:{}'", local.display())];
    let before = listener("gone", gone) + &listener("moved", moved) + &two(&both);
    let before = with_handover(&scratch, &listeners(&before), "probation: 2s");
    let after = listener("moved", to) + &two(&both[..1]);
    let after = with_handover(&scratch, &listeners(&after), "probation: 2s");
    let mut strait = Strait::run_in(scratch, &before);
    let (admin, metrics) = (claim_port(), claim_port());
    let admin = format!("admin: {{ address: 127.0.0.1:{admin}, metrics: 127.0.0.1:{metrics} }}\n");
    strait.write("after.yaml", &(admin + &after));
    upgraded_to(&strait, "after.yaml", &mut successors);
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    for port in [gone, moved, to, one, other] {
        let mut client = Client::connect(at(port));
        assert_eq!(client.get("/").status, 200, "port {port}");
    }
    let mut over_unix = UnixStream::connect(&local).unwrap();
    over_unix.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    over_unix.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.0 200 "), "{response}");
    assert_eq!(get(strait.listener, "/").status, 200);
    // The old process answers for itself where the new one does not listen.
    assert_eq!(strait.admin_json("/handover")["state"], "given");
    assert_eq!(get(at(metrics), "/ready").status, 200);
    strait.wait_for_end();
    for port in [gone, moved, other, strait.admin.port()] {
        let error = TcpStream::connect(at(port)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "port {port}");
    }
    assert!(!local.exists());
    for port in [to, one] {
        assert_eq!(get(at(port), "/").status, 200, "port {port}");
    }
}
