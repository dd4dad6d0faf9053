//! Health checks, as an operator sees them.

use std::thread;
use std::time::Duration;

use crate::handover::{Successors, upgraded, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, get, text, until};

fn config(workers: u32, endpoints: &[String], checks: &str) -> String {
    format!(
        "workers: {workers}
listeners: [{{ name: edge, address: 127.0.0.1:0, routes: all }}]
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: web }}] }}]
clusters:
  - name: web
    endpoints: {endpoints:?}
    checks: [{checks}]
"
    )
}

fn state(process: &Strait, endpoint: usize) -> (String, String) {
    let clusters = process.admin_json("/clusters");
    let health = &clusters["clusters"][0]["endpoints"][endpoint]["health"];
    let word = |key: &str| health[key].as_str().unwrap_or_default().to_owned();
    (word("state"), word("reason"))
}

/// A service that is a process, and answers with this.
fn service(address: &str, body: &str) -> Strait {
    Strait::run(&format!(
        "listeners: [{{ name: service, address: '{address}', routes: all }}]
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, respond: {{ body: {body} }} }}] }}]
"
    ))
}

#[test]
fn an_endpoint_that_dies_gets_no_requests_and_gets_them_again_when_it_is_back() {
    let services = ["one", "two", "three"].map(|name| service("127.0.0.1:0", name));
    let endpoints = services.each_ref().map(|service| service.listener.to_string());
    let checks =
        "{ http: { path: /healthz }, interval: 200ms, interval_quiet: 200ms, unhealthy: 2 }";
    let mut strait = Strait::run(&config(4, &endpoints, checks));
    until("the first checks", || {
        (0..3).all(|place| state(&strait, place).0 == "healthy").then_some(())
    });
    let [_one, _two, three] = services;
    let address = three.listener.to_string();
    drop(three);
    until("the verdict", || (state(&strait, 2).0 == "unhealthy").then_some(()));
    assert_eq!(state(&strait, 2).1, "connect_failed: ECONNREFUSED");
    let event = strait.wait_for_entry("endpoint unhealthy");
    for (key, expected) in [
        ("level", "WARN"),
        ("cluster", "web"),
        ("endpoint", &address),
        ("reason", "connect_failed: ECONNREFUSED"),
    ] {
        assert_eq!(event[key], expected, "{event}");
    }
    let mut client = Client::connect(strait.listener);
    for _ in 0..50 {
        // A connection each, so that all workers have a part.
        assert_eq!(get(strait.listener, "/").status, 200);
        assert_eq!(client.get("/").status, 200);
    }
    let metrics = get(strait.admin, "/metrics").text();
    for sample in [
        "strait_upstream_endpoints_unhealthy{cluster=\"web\"} 1",
        "strait_upstream_panic{cluster=\"web\"} 0",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "{sample} in {metrics}");
    }
    let admin = strait.admin.to_string();
    let explained = crate::kit::strait(&["explain", "--admin", &admin, "GET", "http://localhost/"]);
    let explained = text(&explained.stdout);
    let of_dead = format!("{address} (unhealthy, weight 1, 0.0 % of requests)");
    assert!(explained.contains(&of_dead), "{explained}");
    let _back = service(&address, "three");
    until("the return", || (state(&strait, 2).0 == "healthy").then_some(()));
    strait.wait_for_log("endpoint healthy");
    until("a request there", || (get(strait.listener, "/").text() == "three").then_some(()));
}

#[test]
fn a_new_cluster_waits_for_the_first_checks_of_its_endpoints() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    // A service that answers checks late, and one that is not there.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoints = [service.address.to_string(), gone.to_string()];
    let checks = "{ http: { path: /gate }, timeout: 1h }";
    let scratch = Scratch::new();
    let config = config(2, &endpoints, checks) + "    panic: 0\n    initial_check_timeout: 1h\n";
    let config = with_handover(&scratch, &config, "probation: 1m");
    let mut strait = Strait::run_in(scratch, &config);
    service.wait_at_gate();
    let event = strait.wait_for_entry("endpoint unhealthy");
    assert_eq!(event["reason"], "connect_failed: ECONNREFUSED");
    let ready = get(strait.admin, "/ready?verbose");
    let words = ready.text();
    assert_eq!(ready.status, 503, "{words}");
    assert!(words.starts_with("warming: 1 cluster waits for the first checks"), "{words}");
    assert!(words.contains("\ncluster web waits for the first checks of its endpoints\n"));
    let shown = strait.admin_json("/clusters")["clusters"][0].clone();
    assert_eq!((&shown["warming"], &shown["panic"]), (&true.into(), &false.into()));
    let admin = strait.admin.to_string();
    let explained = crate::kit::strait(&["explain", "--admin", &admin, "GET", "http://localhost/"]);
    let explained = text(&explained.stdout);
    assert!(explained.contains("warming   requests wait until"), "{explained}");
    let mut clients = [(); 8].map(|()| Client::connect(strait.listener));
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n"));
    until("all wait", || {
        let shown = strait.admin_json("/clusters")["clusters"][0].clone();
        (shown["exchanges"]["pending"] == 8).then_some(())
    });
    service.open_gate();
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    let event = strait.wait_for_entry("cluster serves");
    assert_eq!((&event["endpoints"], &event["passed"]), (&2.into(), &1.into()), "{event}");
    assert_eq!(get(strait.admin, "/ready").status, 200);
    // Another process goes on with what this one knows.
    upgraded(&strait, &mut successors);
    assert_eq!(get(strait.admin, "/ready").text(), "ready\n");
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_process_that_drains_waits_for_no_first_checks() {
    let service = Service::start("one");
    let checks = "{ http: { path: /gate }, timeout: 1h }";
    let config = config(2, &[service.address.to_string()], checks);
    let strait = Strait::run(&(config + "    initial_check_timeout: 1h\n"));
    service.wait_at_gate();
    let mut client = Client::connect(strait.listener);
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    until("it waits", || {
        let shown = strait.admin_json("/clusters")["clusters"][0].clone();
        (shown["exchanges"]["pending"] == 1).then_some(())
    });
    strait.signal(rustix::process::Signal::TERM);
    assert_eq!(client.receive().status, 200);
}

#[test]
fn an_endpoint_that_answers_nothing_is_found_out_and_held_by_none() {
    let stuck = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let good = service("127.0.0.1:0", "good");
    let endpoints = [good.listener.to_string(), stuck.local_addr().unwrap().to_string()];
    let checks = "{ http: { path: / }, interval: 100ms, interval_quiet: 100ms, timeout: 50ms }";
    let strait = Strait::run(&config(2, &endpoints, checks));
    until("the verdict", || (state(&strait, 1).0 == "unhealthy").then_some(()));
    assert_eq!(state(&strait, 1).1, "no answer after 50ms");
    for _ in 0..50 {
        assert_eq!(get(strait.listener, "/").text(), "good");
    }
    // Each check that found it so has closed its connection.
    let open = || strait.metric("strait_upstream_connections_active");
    until("more checks", || (strait.metric("strait_upstream_checks_total") > 20.0).then_some(()));
    assert!(open() <= 6.0, "{} connections", open());
}

#[test]
fn an_endpoint_that_says_it_is_degraded_gets_what_healthy_ones_are_too_few_for() {
    let healthy = service("127.0.0.1:0", "healthy");
    let degraded = Strait::run(
        "listeners: [{ name: service, address: '127.0.0.1:0', routes: all }]
routes:
  - name: all
    rules:
      - { match: { path: /healthz }, respond: { headers: { x-envoy-degraded: 'true' } } }
      - { match: { prefix: / }, respond: { body: degraded } }
",
    );
    let endpoints = [&healthy, &degraded].map(|service| service.listener.to_string());
    let checks = "{ http: { path: /healthz }, interval: 100ms, interval_quiet: 100ms }";
    let mut strait = Strait::run(&config(2, &endpoints, checks));
    until("the verdict", || (state(&strait, 1).0 == "degraded").then_some(()));
    strait.wait_for_log("endpoint degraded");
    let metrics = get(strait.admin, "/metrics").text();
    let sample = "strait_upstream_endpoints_degraded{cluster=\"web\"} 1";
    assert!(metrics.lines().any(|line| line == sample), "{metrics}");
    let admin = strait.admin.to_string();
    let explained = crate::kit::strait(&["explain", "--admin", &admin, "GET", "http://localhost/"]);
    let explained = text(&explained.stdout);
    let share = format!("{} (degraded, weight 1, 30.0 % of requests)", endpoints[1]);
    assert!(explained.contains(&share), "{explained}");
    let answers: Vec<_> = (0..100).map(|_| get(strait.listener, "/").text()).collect();
    let by_degraded = answers.iter().filter(|body| *body == "degraded").count();
    assert!((5..65).contains(&by_degraded), "{by_degraded} of 100");
    let page = get(strait.admin, "/metrics").text();
    let counted = "strait_upstream_choices_total{cluster=\"web\",kind=\"degraded\"} ";
    let counted = page.lines().find_map(|line| line.strip_prefix(counted)).expect("it is counted");
    assert_eq!(counted.parse(), Ok(by_degraded), "{page}");
    // Where it is alone it gets all.
    drop(healthy);
    until("the other verdict", || (state(&strait, 0).0 == "unhealthy").then_some(()));
    for _ in 0..20 {
        assert_eq!(get(strait.listener, "/").text(), "degraded");
    }
}

/// The time of day of `"2026-11-26T10:20:42.998Z"`.
fn milliseconds(time: &str) -> i64 {
    let digits = |from: usize, to: usize| time[from..to].parse::<i64>().unwrap();
    (digits(12, 14) * 3_600 + digits(15, 17) * 60 + digits(18, 20)) * 1_000 + digits(21, 24)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what it knows has to be older than the new process")]
fn an_endpoint_stays_unhealthy_through_a_handover() {
    let (good, mut successors) = (service("127.0.0.1:0", "good"), Successors::default());
    let bad = service("127.0.0.1:0", "bad");
    let endpoints = [good.listener.to_string(), bad.listener.to_string()];
    // It would take long to find out again.
    let checks = "{ http: { path: /, body: good }, interval: 1h, interval_quiet: 1h }";
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &config(2, &endpoints, checks), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    until("the verdict", || (state(&strait, 1).0 == "unhealthy").then_some(()));
    let since = |strait: &Strait| {
        strait.admin_json("/clusters")["clusters"][0]["endpoints"][1]["health"]["since"].clone()
    };
    let before = since(&strait);
    // For longer than the other process takes to begin.
    thread::sleep(Duration::from_secs(3));
    upgraded(&strait, &mut successors);
    assert_eq!(state(&strait, 1).0, "unhealthy");
    let (before, after) = (before.to_string(), since(&strait).to_string());
    // What a handover carries is how long ago it was.
    let difference = milliseconds(&after) - milliseconds(&before);
    assert!(difference.abs() < 1_000, "{before} and {after}");
    for _ in 0..20 {
        assert_eq!(get(strait.listener, "/").text(), "good");
    }
}

#[test]
fn an_endpoint_stays_healthy_through_a_handover_until_enough_checks_fail() {
    let (service, mut successors) = (service("127.0.0.1:0", "good"), Successors::default());
    let checks = "{ http: { path: / }, interval: 1h, interval_quiet: 1h, unhealthy: 3 }";
    let scratch = Scratch::new();
    let endpoints = [service.listener.to_string()];
    let config = with_handover(&scratch, &config(2, &endpoints, checks), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    until("the first check", || (state(&strait, 0).0 == "healthy").then_some(()));
    drop(service);
    upgraded(&strait, &mut successors);
    // The first check of the new process fails; the next comes within an hour.
    until("the failure", || (!state(&strait, 0).1.is_empty()).then_some(()));
    assert_eq!(state(&strait, 0).0, "healthy");
}
