//! Host names among endpoints, with a DNS server that answers as a test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use rustix::process::Signal;

use crate::dns_server::{DnsServer, Says, service};
use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, read, strait, text, until,
};

/// A configuration whose only cluster has these endpoints, and asks this server.
fn config(dns: &DnsServer, endpoints: &str, resolvers: &str) -> String {
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let config = forward_to(nowhere).replace("['127.0.0.1:1']", endpoints);
    let server = dns.address;
    format!("resolvers: {{ servers: ['{server}'], timeout: 100ms, {resolvers} }}\n{config}")
}

/// A service at each of these addresses, and the port that all have.
fn services(names: &[(&'static str, &str)]) -> (Vec<Service>, u16) {
    let port = claim_port();
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
    (names.iter().map(|(name, ip)| Service::start_at(name, at(ip))).collect(), port)
}

/// What is known of the only name.
fn shown(strait: &Strait) -> serde_json::Value {
    strait.config()["host_names"][0].clone()
}

#[test]
fn addresses_move_under_load_and_no_request_fails() {
    let (_services, port) =
        services(&[("one", "127.0.0.1"), ("two", "127.0.0.2"), ("three", "127.0.0.3")]);
    let dns = DnsServer::start();
    dns.set_addresses("api.test", 0, &["127.0.0.1"]);
    let endpoints = format!("{{ dns: 'api.test:{port}', ttl_min: 100ms }}");
    let strait = Strait::run(&config(&dns, &endpoints, ""));
    let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients = (0..4).map(|_| {
        let (address, is_over, count) = (strait.listener, Arc::clone(&is_over), Arc::clone(&count));
        thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut failed = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let response = client.get("/");
                if response.status != 200 {
                    failed.push(response.text());
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            failed
        })
    });
    let clients: Vec<_> = clients.collect();
    let serves = |expected: &[&str]| {
        until("all of these services to serve, and no other", || {
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..8 {
                seen.insert(get(strait.listener, "/").text().lines().next().unwrap().to_owned());
            }
            seen.iter().eq(expected.iter()).then_some(())
        });
    };
    for (addresses, expected) in [
        (&["127.0.0.1"][..], &["one"][..]),
        (&["127.0.0.2"], &["two"]),
        (&["127.0.0.2", "127.0.0.3"], &["three", "two"]),
        (&["127.0.0.3"], &["three"]),
        (&["127.0.0.1", "127.0.0.2", "127.0.0.3"], &["one", "three", "two"]),
        (&["127.0.0.1"], &["one"]),
    ] {
        dns.set_addresses("api.test", 0, addresses);
        serves(expected);
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        assert_eq!(client.join().unwrap(), [""; 0]);
    }
    assert!(count.load(Ordering::Relaxed) > 100, "there was no load");
}

#[test]
fn failures_keep_the_addresses_and_what_does_not_exist_has_none() {
    let (_services, port) = services(&[("one", "127.0.0.1")]);
    let dns = DnsServer::start();
    dns.set_addresses("api.test", 0, &["127.0.0.1"]);
    let endpoints = format!("{{ dns: 'api.test:{port}', ttl_min: 100ms }}");
    let strait = Strait::run(&config(&dns, &endpoints, ""));
    assert_eq!(shown(&strait)["state"], "fresh");
    for (says, reason) in [
        (Says::Code(ResponseCode::ServFail), "servfail"),
        (Says::Code(ResponseCode::Refused), "refused"),
        (Says::Silence, "timeout"),
    ] {
        dns.set_all("api.test", &says);
        until(reason, || (shown(&strait)["last_error"]["reason"] == reason).then_some(()));
        assert_eq!(shown(&strait)["state"], "stale");
        let stats = get(strait.admin, "/stats?filter=strait_source_*").text();
        let failures = format!(
            "strait_source_failures_total{{source=\"dns\",kind=\"assignment\",reason=\"{reason}\"}} "
        );
        assert!(stats.contains(&failures), "{stats}");
        let stale = "strait_source_resources{source=\"dns\",state=\"stale\"} 1\n";
        assert!(stats.contains(stale), "{stats}");
        assert!(get(strait.listener, "/").text().starts_with("one\n"));
    }
    dns.remove("api.test");
    until("no endpoints", || (get(strait.listener, "/").status == 503).then_some(()));
    assert_eq!(shown(&strait)["endpoints"], serde_json::json!([]));
    dns.set_addresses("api.test", 0, &["127.0.0.1"]);
    until("endpoints again", || (get(strait.listener, "/").status == 200).then_some(()));
}

#[test]
fn a_start_is_ready_once_each_name_has_an_answer() {
    let (_services, port) = services(&[("one", "127.0.0.1")]);
    let dns = DnsServer::start();
    dns.set_all("api.test", &Says::Silence);
    let (later, has_begun) = (dns.clone(), Arc::new(AtomicBool::new(false)));
    let begun = Arc::clone(&has_begun);
    thread::spawn(move || {
        until("questions", || (later.asked() >= 4).then_some(()));
        begun.store(true, Ordering::Relaxed);
        later.set_addresses("api.test", 60, &["127.0.0.1"]);
    });
    // It returns when the process is ready.
    let strait = Strait::run(&config(&dns, &format!("['api.test:{port}']"), ""));
    assert!(has_begun.load(Ordering::Relaxed), "it did not wait");
    assert!(get(strait.listener, "/").text().starts_with("one\n"), "from the first request on");
    assert_eq!(strait.config()["version"], 1);
    assert_eq!(strait.times_logged("waits for first answers of DNS: api.test"), 1);
}

#[test]
fn a_start_goes_on_without_an_answer_and_says_why() {
    let (_services, port) = services(&[("one", "127.0.0.1")]);
    let dns = DnsServer::start();
    dns.set_all("api.test", &Says::Code(ResponseCode::ServFail));
    let config = config(&dns, &format!("['api.test:{port}']"), "initial_fetch_timeout: 1s");
    let strait = Strait::run(&config);
    assert_eq!(strait.times_logged("no DNS answer within resolvers.initial_fetch_timeout"), 1);
    assert_eq!(get(strait.listener, "/").status, 503);
    assert_eq!(shown(&strait)["state"], "failed");
    // A reload does not wait for the same name again.
    strait.signal(Signal::HUP);
    strait.wait_for_version(2);
    dns.set_addresses("api.test", 60, &["127.0.0.1"]);
    until("the first answer", || (get(strait.listener, "/").status == 200).then_some(()));
}

#[test]
fn a_reload_with_a_new_name_leaves_the_former_configuration_until_it_has_an_answer() {
    let (_services, port) = services(&[("one", "127.0.0.1"), ("two", "127.0.0.2")]);
    let dns = DnsServer::start();
    dns.set_addresses("a.test", 60, &["127.0.0.1"]);
    dns.set_all("b.test", &Says::Silence);
    let of = |name: &str, more| config(&dns, &format!("['{name}:{port}']"), more);
    let strait = Strait::run(&of("a.test", ""));
    strait.rewrite(&of("b.test", ""));
    let waits = || strait.config()["waits_for"].clone();
    until("it to wait", || {
        (waits() == serde_json::json!([format!("b.test:{port}")])).then_some(())
    });
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    assert_eq!(strait.config()["version"], 1);
    // Back again, and there is nothing to wait for.
    strait.rewrite(&of("a.test", ""));
    strait.wait_for_version(2);
    assert_eq!(waits(), serde_json::json!([]));
    strait.rewrite(&of("b.test", ""));
    until("it to wait", || (waits() != serde_json::json!([])).then_some(()));
    dns.set_addresses("b.test", 60, &["127.0.0.2"]);
    strait.wait_for_version(3);
    assert!(get(strait.listener, "/").text().starts_with("two\n"));
    // The wait ends.
    dns.set_all("c.test", &Says::Code(ResponseCode::Refused));
    strait.rewrite(&of("c.test", "initial_fetch_timeout: 500ms"));
    strait.wait_for_version(4);
    assert_eq!(get(strait.listener, "/").status, 503);
    // Other servers are asked from the next reload on.
    let other = DnsServer::start();
    other.set_addresses("c.test", 60, &["127.0.0.1"]);
    strait.rewrite(&config(&other, &format!("['c.test:{port}']"), ""));
    until("what the other server says", || {
        get(strait.listener, "/").text().starts_with("one\n").then_some(())
    });
}

#[test]
fn a_logical_name_takes_new_connections_elsewhere_and_keeps_those_that_are_open() {
    let (_services, port) = services(&[("one", "127.0.0.1"), ("two", "127.0.0.2")]);
    let dns = DnsServer::start();
    dns.set_addresses("api.test", 0, &["127.0.0.1", "127.0.0.2"]);
    let endpoints = format!("{{ dns: 'api.test:{port}', mode: logical, ttl_min: 100ms }}");
    // One worker, so that the connection of before is the one that the next request gets.
    let config = config(&dns, &endpoints, "").replace("workers: 2", "workers: 1");
    let strait = Strait::run(&config);
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    dns.set_addresses("api.test", 0, &["127.0.0.2"]);
    strait.wait_for_version(2);
    assert!(get(strait.listener, "/").text().starts_with("one\n"), "it goes on in use");
    // One more connection than there are.
    let one = _services.first().unwrap();
    let mut busy = Client::connect(strait.listener);
    busy.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    one.wait_at_gate();
    assert!(get(strait.listener, "/").text().starts_with("two\n"));
    one.open_gate();
    assert!(busy.receive().text().starts_with("one\n"));
    assert_eq!(
        strait.admin_json("/clusters")["clusters"][0]["endpoints"][0]["address"],
        format!("127.0.0.2:{port}")
    );
}

#[test]
fn records_of_services_say_the_port() {
    let (_services, port) = services(&[("one", "127.0.0.1"), ("two", "127.0.0.2")]);
    let dns = DnsServer::start();
    let name = "_http._tcp.api.test";
    dns.set_addresses("one.test", 60, &["127.0.0.1"]);
    dns.set_addresses("two.test", 60, &["127.0.0.2"]);
    let of = |priority, target| (name.to_owned(), 60, service(priority, 1, port, target));
    dns.set(name, RecordType::SRV, Says::Records(vec![of(2, "two.test"), of(1, "one.test")]));
    let strait = Strait::run(&config(&dns, &format!("{{ dns: {name}, mode: srv }}"), ""));
    for _ in 0..4 {
        assert!(get(strait.listener, "/").text().starts_with("one\n"));
    }
}

#[test]
fn tls_asks_for_the_name_that_led_to_the_endpoint() {
    let service = Service::start("one");
    let from =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tests/certificates");
    let folder = |files: &[&str]| {
        let scratch = Scratch::new();
        files.iter().for_each(|file| drop(scratch.write(file, &read(&from.join(file)))));
        scratch
    };
    let ends = forward_to(service.address).replace(
        "routes: all }",
        "routes: all, tls: { certificates: [{ chain: site.pem, key: site.key }] } }",
    );
    let ends = Strait::run_in(folder(&["site.pem", "site.key"]), &ends);
    let dns = DnsServer::start();
    for name in ["shop.example.com", "other.example.com"] {
        dns.set_addresses(name, 60, &["127.0.0.1"]);
    }
    let port = ends.listener.port();
    for (name, status) in [("shop.example.com", 200), ("other.example.com", 503)] {
        let begins = config(&dns, &format!("['{name}:{port}']"), "")
            .replace("'] }\n", "'], tls: { ca: ca.pem } }\n");
        assert!(begins.contains("tls:"), "{begins}");
        let begins = Strait::run_in(folder(&["ca.pem"]), &begins);
        assert_eq!(get(begins.listener, "/").status, status, "{name}: {}", begins.all_logged());
    }
}

#[test]
fn the_admin_interface_answers_while_a_start_waits_for_dns() {
    let dns = DnsServer::start();
    dns.set_all("api.test", &Says::Code(ResponseCode::ServFail));
    let (admin, metrics) = (claim_port(), claim_port());
    let config = config(&dns, "['api.test:80']", "initial_fetch_timeout: 0s");
    let addresses =
        format!("admin: {{ address: 127.0.0.1:{admin}, metrics: 127.0.0.1:{metrics} }}");
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", &format!("{addresses}\n{config}"));
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let started = thread::spawn(move || Strait::start(scratch, &["run", "-c", &file]));
    let asked = |port: u16, path: &str| {
        until("the admin interface", || std::net::TcpStream::connect(at(port)).ok());
        get(at(port), path)
    };
    let healthz = asked(admin, "/healthz");
    assert_eq!((healthz.status, healthz.text()), (200, "ok\n".to_owned()));
    let waits = "starting: waits for first answers of DNS: api.test:80\n";
    for port in [admin, metrics] {
        let ready = asked(port, "/ready");
        assert_eq!((ready.status, ready.text().as_str()), (503, waits));
        until("the reason", || {
            let ready = asked(port, "/ready?verbose");
            ready.text().contains("SERVFAIL").then(|| assert_eq!(ready.status, 503))
        });
    }
    let shown: serde_json::Value = serde_json::from_slice(&asked(admin, "/config").body).unwrap();
    assert_eq!(shown["version"], 0);
    assert_eq!(shown["host_names"][0]["state"], "failed");
    assert_eq!(shown["effective"]["clusters"][0]["name"], "service");
    assert_eq!(asked(admin, "/config?resource=cluster/service").status, 200);
    assert_eq!(asked(admin, "/metrics").status, 200);
    for path in ["/clusters", "/listeners"] {
        let answer = asked(admin, path);
        assert_eq!((answer.status, answer.text().as_str()), (503, waits), "{path}");
    }
    // The same sockets go on when it serves.
    dns.set_addresses("api.test", 60, &["127.0.0.1"]);
    let strait = started.join().unwrap();
    assert_eq!((strait.admin, get(at(admin), "/ready").status), (at(admin), 200));
    assert_eq!(get(at(admin), "/ready?verbose").text().lines().count(), 2);
    dns.set_all("api.test", &Says::Code(ResponseCode::ServFail));
    assert_eq!(get(at(metrics), "/ready").text(), "ready\n");
}

#[test]
fn a_start_that_waits_for_dns_is_ended_by_the_admin_interface() {
    let dns = DnsServer::start();
    dns.set_all("api.test", &Says::Silence);
    let admin = claim_port();
    let config = config(&dns, "['api.test:80']", "initial_fetch_timeout: 0s");
    let scratch = Scratch::new();
    let file =
        scratch.write("strait.yaml", &format!("admin: {{ address: 127.0.0.1:{admin} }}\n{config}"));
    let ended = thread::spawn(move || strait(&["run", "-c", &file]));
    let admin = SocketAddr::from(([127, 0, 0, 1], admin));
    let mut client = until("the admin interface", || {
        std::net::TcpStream::connect(admin).ok().map(|_| Client::connect(admin))
    });
    assert_eq!(client.request("POST", "/drain").status, 202);
    let output = ended.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("stopped while it waited for first answers of DNS"));
    drop(scratch);
}

#[test]
fn an_end_does_not_wait_for_dns() {
    let dns = DnsServer::start();
    dns.set_addresses("api.test", 0, &["127.0.0.1"]);
    let config = config(&dns, "{ dns: 'api.test:1', ttl_min: 100ms }", "timeout: 24h");
    let config = config.replace("timeout: 100ms, ", "");
    let mut strait = Strait::run(&config);
    dns.set_all("api.test", &Says::Silence);
    let before = dns.asked();
    until("a question", || (dns.asked() > before).then_some(()));
    // Longer than a test waits for an end.
    strait.signal(Signal::TERM);
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn a_check_asks_no_server() {
    let dns = DnsServer::start();
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", &config(&dns, "['api.test:80']", ""));
    let output = strait(&["check", "-c", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(dns.asked(), 0);
}
