//! The admin interface.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::kit::{Client, Service, Strait, claim_port, forward_to, get, read, until};

fn run(service: &Service) -> Strait {
    Strait::run(&forward_to(service.address))
}

#[test]
fn every_page_that_the_index_names_answers() {
    let service = Service::start("one");
    let strait = run(&service);
    let index = get(strait.admin, "/");
    assert_eq!(index.field("content-type"), Some("text/html; charset=utf-8"));
    let index = index.text();
    let paths: Vec<_> =
        index.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(paths.len() >= 9, "{paths:?}");
    let mut client = Client::connect(strait.admin);
    for path in paths {
        let response = client.get(path);
        assert_eq!(response.status, 200, "{path}");
        if response.field("content-type") == Some("application/json") {
            serde_json::from_slice::<Value>(&response.body).expect(path);
        }
        assert_eq!(response.field("cache-control"), Some("no-store"), "{path}");
    }
}

/// The keys of JSON pages as their tables in the documentation have them.
#[test]
fn the_configuration_and_the_clusters_have_the_keys_that_are_documented() {
    let service = Service::start("one");
    let strait = run(&service);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin.md");
    let page = read(Path::new(page));
    let documented = |title: &str| -> Vec<String> {
        let section = page.split("\n## ").find(|section| section.starts_with(title)).expect(title);
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
    };
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&strait.config()), documented("`/config`"));
    let cluster = strait.admin_json("/clusters")["clusters"][0].clone();
    let parts = ["connections", "exchanges", "high_priority"];
    let [connections, exchanges, high_priority] = parts;
    assert_eq!(
        keys(&cluster),
        [
            "name",
            "endpoints",
            "panic",
            "warming",
            "original_destination",
            connections,
            exchanges,
            high_priority
        ]
    );
    // There was no request of high priority.
    let inner = [connections, exchanges]
        .into_iter()
        .flat_map(|part| keys(&cluster[part]).into_iter().map(move |key| format!("{part}.{key}")));
    let inner = inner.chain([high_priority.to_owned()]);
    assert_eq!(inner.collect::<Vec<_>>(), documented("`/clusters`"));
}

#[test]
fn wrong_paths_and_methods_get_a_hint() {
    let service = Service::start("one");
    let strait = run(&service);
    let mut client = Client::connect(strait.admin);
    let unknown = client.get("/metric");
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("did you mean /metrics?"));
    let wrong = client.request("PUT", "/metrics");
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("GET, HEAD")));
    let wrong = client.get("/drain");
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("POST")));
    client.send("POST /drain HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: cross-site\r\n\r\n");
    assert_eq!(client.receive().status, 403);
    assert_eq!(client.get("/ready").status, 200);
}

#[test]
fn a_runtime_value_counts_for_the_next_request_until_it_is_taken_back() {
    let service = Service::start("one");
    let rule = "rules: [{ match: { prefix: /, fraction: { percent: 0, runtime: canary } }, respond: { body: canary } }, ";
    let file = forward_to(service.address).replace("rules: [", rule);
    let strait = Strait::run(&file);
    let asked = || get(strait.listener, "/").text() == "canary";
    let shown = || strait.config()["runtime"][0].clone();
    let mut admin = Client::connect(strait.admin);
    assert!(!asked());
    assert_eq!(shown()["from"], "rules");
    for (value, is_canary) in [("100", true), ("0", false), ("100%25", true)] {
        let answer = admin.request("POST", &format!("/runtime?canary={value}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!((0..8).all(|_| asked() == is_canary), "{value}, on each worker");
        assert_eq!(shown()["from"], "admin");
    }
    // A reload keeps it, and so does a value in the file.
    strait.rewrite(&format!("runtime: {{ canary: 0 }}\n{file}"));
    strait.wait_for_version(2);
    assert!(asked());
    assert_eq!((&shown()["from"], &shown()["file"]), (&"admin".into(), &"0%".into()));
    assert_eq!(admin.request("POST", "/runtime?canary=").status, 200);
    assert!(!asked());
    assert_eq!((&shown()["from"], &shown()["value"]), (&"file".into(), &"0%".into()));
    for (query, status, hint) in [
        ("?canery=1", 404, "did you mean `canary`?"),
        ("?canary=101", 400, "at most 100 %"),
        ("", 400, "/runtime?canary=50"),
    ] {
        let answer = admin.request("POST", &format!("/runtime{query}"));
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.text().contains(hint), "{}", answer.text());
    }
    admin.send("POST /runtime?canary=100 HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: cross-site\r\n\r\n");
    assert_eq!(admin.receive().status, 403);
    assert!(!asked());
}

#[test]
fn a_request_for_a_name_that_the_file_does_not_list_gets_421_and_changes_nothing() {
    let service = Service::start("one");
    let strait = run(&service);
    let mut client = Client::connect(strait.admin);
    for line in ["GET /config", "GET /ready", "POST /drain"] {
        client.send(&format!("{line} HTTP/1.1\r\nhost: rebound.example:9901\r\n\r\n"));
        let response = client.receive();
        assert_eq!(response.status, 421, "{line}");
        assert!(response.text().contains("admin.hosts"), "{}", response.text());
    }
    client.send("GET /ready HTTP/1.1\r\nhost: [::1]:9901\r\n\r\n");
    assert_eq!(client.receive().status, 200);
}

#[test]
fn what_may_be_scraped_is_apart_from_what_may_be_done() {
    let service = Service::start("one");
    let strait = run(&service);
    let metrics = strait.logged("starting", "metrics");
    let mut client = Client::connect(metrics);
    client.send("GET /metrics HTTP/1.1\r\nhost: strait.mesh.svc:9902\r\n\r\n");
    let scraped = client.receive();
    assert_eq!(scraped.status, 200);
    assert!(scraped.text().contains("strait_uptime_seconds") || scraped.text().contains("# TYPE"));
    assert_eq!(client.get("/ready").status, 200);
    assert_eq!(client.get("/healthz").status, 200);
    for path in
        ["/", "/config", "/clusters", "/listeners", "/routes", "/connections", "/slow", "/stats"]
    {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    assert_eq!(client.request("POST", "/drain").status, 404);
    assert_eq!(get(strait.admin, "/ready").status, 200);
}

#[test]
fn metrics_count_requests_and_are_well_formed() {
    let service = Service::start("one");
    let strait = run(&service);
    for _ in 0..3 {
        get(strait.listener, "/");
    }
    until("three requests", || {
        let total = strait.admin_json("/clusters")["clusters"][0]["exchanges"]["total"].clone();
        (total == 3).then_some(())
    });
    assert_eq!(strait.admin_json("/listeners")["listeners"][0]["exchanges"]["total"], 3);
    let metrics = get(strait.admin, "/metrics");
    assert_eq!(metrics.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    check_with_promtool(&metrics.body);
}

/// Skipped with a line where promtool is not installed, unless in CI.
fn check_with_promtool(metrics: &[u8]) {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            #[expect(clippy::disallowed_methods, reason = "CI says that nothing may be skipped")]
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "promtool: {error}");
            println!("skipped: promtool is not installed (apt install prometheus)");
            return;
        }
    };
    child.stdin.take().unwrap().write_all(metrics).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn open_connections_are_shown_page_by_page() {
    let service = Service::start("one");
    let strait = run(&service);
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(strait.listener)).collect();
    for client in &mut clients {
        client.get("/");
    }
    client_sides(&strait, 5);
    let (mut path, mut pages, mut seen) = ("/connections?limit=2".to_owned(), 0, 0);
    loop {
        let page = strait.admin_json(&path);
        let connections = page["connections"].as_array().unwrap();
        assert!(connections.len() <= 2);
        seen += connections.iter().filter(|connection| connection["side"] == "downstream").count();
        pages += 1;
        match page["next"].as_str() {
            Some(next) => path = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, 5);
    assert!(pages >= 3, "{pages}");
    assert_eq!(get(strait.admin, "/connections?limit=0").status, 400);
}

/// Waits until that many clients' connections are shown idle, with their listener's name.
fn client_sides(strait: &Strait, count: usize) {
    until("idle connections", || {
        let page = strait.admin_json("/connections?limit=1000");
        let connections = page["connections"].as_array().unwrap();
        let is_ours = |connection: &&Value| {
            connection["side"] == "downstream"
                && connection["listener"] == "edge"
                && connection["state"] == "idle"
        };
        (connections.iter().filter(is_ours).count() == count).then_some(())
    });
}

#[test]
fn slow_requests_come_as_json_or_text() {
    let service = Service::start("one");
    let strait = run(&service);
    get(strait.listener, "/slowly");
    until("the request among the slow", || {
        let slow = strait.admin_json("/slow");
        (slow["requests"][0]["target"] == "/slowly").then_some(())
    });
    let text = get(strait.admin, "/slow?format=text").text();
    assert!(text.contains("/slowly") && text.contains("first_byte"), "{text}");
}

#[test]
fn a_client_that_reads_nothing_stalls_no_other() {
    let service = Service::start("one");
    let strait = run(&service);
    let mut silent: Vec<_> = (0..20).map(|_| Client::connect(strait.admin)).collect();
    for client in &mut silent {
        client.send(&"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100));
    }
    assert_eq!(get(strait.admin, "/ready").status, 200);
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn heads_beyond_the_bound_are_refused() {
    let service = Service::start("one");
    let strait = run(&service);
    let mut client = Client::connect(strait.admin);
    let long = "a".repeat(130 << 10);
    client.send(&format!("GET /ready HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"));
    assert_eq!(client.receive().status, 431);
}

#[test]
fn an_endpoint_that_does_not_serve_shows_while_another_does() {
    let service = Service::start("one");
    // A port that nothing listens on.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], claim_port()));
    let one = format!("['{}']", service.address);
    let both = format!("['{}', '{nowhere}']", service.address);
    let config = forward_to(service.address).replace(&one, &both);
    let strait = Strait::run(&config);
    for _ in 0..6 {
        assert_eq!(get(strait.listener, "/").status, 200);
    }
    // An exchange is counted behind the last byte that its client gets.
    let endpoints = until("six exchanges", || {
        let endpoints = strait.admin_json("/clusters")["clusters"][0]["endpoints"].clone();
        (endpoints[0]["exchanges"]["total"] == 6).then_some(endpoints)
    });
    let (good, bad) = (&endpoints[0], &endpoints[1]);
    assert_eq!(good["exchanges"], serde_json::json!({ "total": 6, "failed_total": 0 }));
    assert_eq!(
        (&good["last_error"], &good["connect_failures"]),
        (&Value::Null, &serde_json::json!({}))
    );
    assert_eq!(bad["address"], nowhere.to_string());
    assert!(bad["connect_failures"]["ECONNREFUSED"].as_u64() > Some(0), "{bad}");
    assert_eq!(bad["last_error"]["cause"], "connect_failed");
    assert_eq!(bad["last_error"]["reason"], "ECONNREFUSED");
    assert!(bad["last_error"]["at"].as_str().is_some_and(|at| at.starts_with("20")), "{bad}");
}
