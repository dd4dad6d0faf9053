//! `strait explain --admin`: a running process says where a request would go.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Output;
use std::thread;

use crate::kit::{
    Client, Scratch, Service, Strait, claim_port, forward_to, get, strait, text, until, with_admin,
};

fn ask(admin: &str, arguments: &[&str]) -> Output {
    strait(&[&["explain", "--admin", admin], arguments].concat())
}

fn story_of(admin: &str, arguments: &[&str]) -> String {
    let output = ask(admin, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn what_is_explained_counts_in_no_limit_of_the_process() {
    let service = Service::start("one");
    let limits = "adaptive_concurrency: { min_rtt: { requests: 4, interval: 1h } }, requests_max: 2, \
                  connections_max: 2, connections_per_endpoint_max: 2, endpoints";
    let listener = "requests_max: 2, accept_rate: 4, routes: all";
    let file = forward_to(service.address).replacen("endpoints", limits, 1);
    let file = file.replacen("routes: all", listener, 1);
    let process = Strait::run(&file);
    let admin = process.admin.to_string();
    let asks = || {
        let story = story_of(&admin, &["GET", "http://a.test/"]);
        assert!(story.contains("outcome   forwarded to cluster service"), "{story}");
    };
    // Nothing that is counted begins with it, and nothing is taken from those who are served.
    (0..6).for_each(|_| asks());
    assert_eq!(process.metric("strait_upstream_min_rtt_seconds"), 0.0);
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(process.listener)).collect();
    for _ in 0..4 {
        asks();
        // One after the other: a request may still count when its response is read.
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    }
    assert!(process.metric("strait_upstream_min_rtt_seconds") > 0.0);
    // What is in use does not bear on it.
    let (gated, other) = clients.split_at_mut(2);
    for client in &mut *gated {
        client.send("GET /gate HTTP/1.1\r\nhost: a.test\r\n\r\n");
    }
    until("both requests", || (process.metric("strait_exchanges_active") == 2.0).then_some(()));
    asks();
    assert_eq!(other[0].get("/").status, 503);
    service.open_gate();
    gated.iter_mut().for_each(|client| assert_eq!(client.receive().status, 200));
    until("room", || (other[0].get("/").status == 200).then_some(()));
}

#[test]
fn a_process_answers_with_what_it_knows_at_run_time() {
    let service = Service::start("one");
    let dead = claim_port();
    let rule = "rules: [{ match: { prefix: /, fraction: { percent: 0, runtime: canary } }, respond: { body: canary } }, ";
    let two = format!("endpoints: ['{}', '127.0.0.1:{dead}']", service.address);
    let one = format!("endpoints: ['{}']", service.address);
    let file = forward_to(service.address).replace("rules: [", rule).replace(&one, &two);
    let process = Strait::run(&file);
    let admin = process.admin.to_string();
    let arguments = ["POST", "http://shop.example/api?a=1&b", "-H", "x-user: a b"];

    let story = story_of(&admin, &arguments);
    for part in [
        "process   ready, configuration version 1 of ",
        "listener  edge (127.0.0.1:0), the only one\n",
        "request   POST host shop.example path /api query a=1&b\n",
        ": skipped, ",
        "cluster   service, timeout ",
        "outcome   forwarded to cluster service, this time 127.0.0.1:",
    ] {
        assert!(story.contains(part), "{part:?} in {story}");
    }

    // A value that is put over that of the file counts at once.
    let mut client = Client::connect(process.admin);
    assert_eq!(client.request("POST", "/runtime?canary=100").status, 200);
    let story = story_of(&admin, &arguments);
    assert!(story.contains("respond 200: matches\n"), "{story}");
    assert!(story.ends_with("outcome   Strait replies with 200\n"), "{story}");
    assert_eq!(client.request("POST", "/runtime?canary=").status, 200);

    let refusal = format!("endpoint  127.0.0.1:{dead} (weight 1, 50.0 % of requests); ");
    until("a failure to connect", || {
        get(process.listener, "/");
        let story = story_of(&admin, &arguments);
        let line = story.lines().find(|line| line.starts_with(&refusal))?;
        line.contains("1 ECONNREFUSED; last error connect_failed (ECONNREFUSED) at 2").then_some(())
    });

    process.rewrite("routes: 7");
    until("the refusal", || {
        story_of(&admin, &arguments)
            .contains("config    a later one was refused at 2")
            .then_some(())
    });
}

#[test]
fn a_cluster_of_a_hundred_thousand_endpoints_is_explained_and_not_all_of_them_are_listed() {
    let count = 100_000;
    let scratch = Scratch::new();
    let endpoints = (0..count).map(|at: u32| {
        let [_, high, middle, low] = at.to_be_bytes();
        let locality = if at < 10 { "eu/a" } else { "eu/b" };
        format!("- {{ address: '10.{high}.{middle}.{low}:80', locality: {locality} }}\n")
    });
    scratch.write("endpoints.yaml", &endpoints.collect::<String>());
    let file = with_admin(&forward_to(([127, 0, 0, 1], 1).into())).replace(
        "endpoints: ['127.0.0.1:1']",
        "endpoints: { file: endpoints.yaml }, localities: { weights: { eu/b: 9 } }",
    );
    let file = scratch.write("strait.yaml", &file);
    let process = Strait::start(scratch, &["run", "-c", &file]);
    let story = story_of(&process.admin.to_string(), &["GET", "/"]);
    let lines: Vec<_> = story.lines().filter(|line| line.starts_with("endpoint  ")).collect();
    assert_eq!(lines.len(), 1_001, "{story}");
    assert_eq!(lines[0], "endpoint  10.0.0.0:80 (weight 1, 1.0 % of requests)");
    assert_eq!(lines[1_000], "endpoint  99000 more of service");
    assert!(story.contains("outcome   forwarded to cluster service, this time 10."), "{story}");
}

/// An endpoint that speaks HTTP/2 and goes away from each connection before it processes anything.
fn refusing() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in socket.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                stream.write_all(&settings)?;
                // The preface, SETTINGS and the request, whatever comes first.
                let (mut received, mut octets) = (Vec::new(), [0; 4096]);
                let request = [1, 5];
                while !received.windows(2).any(|it| it == request || it == [1, 4]) {
                    match stream.read(&mut octets)? {
                        0 => return Ok(()),
                        count => received.extend_from_slice(&octets[..count]),
                    }
                }
                stream.write_all(&goaway)?;
                std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
            });
        }
    });
    address
}

#[test]
fn an_endpoint_that_refuses_is_shown_with_when_it_is_connected_to_again() {
    let endpoint = refusing();
    let config =
        forward_to(endpoint).replace("name: service, ", "name: service, protocol: http2, ");
    let process = Strait::run(&config);
    let admin = process.admin.to_string();
    let line =
        format!("endpoint  {endpoint} (weight 1, 100.0 % of requests); not connected to until 2");
    // It is tried again and again, with longer and longer pauses.
    let mut client = Client::connect(process.listener);
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    until("a pause", || story_of(&admin, &["GET", "/"]).contains(&line).then_some(()));
}

#[test]
fn a_process_that_drains_says_so_also_on_a_unix_socket() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let socket = format!("unix:{}", scratch.path("admin.sock").display());
    let file = format!(
        "admin: {{ address: '{socket}', metrics: '127.0.0.1:0' }}\n{}",
        forward_to(service.address)
    );
    let file = scratch.write("strait.yaml", &file);
    let process = Strait::start(scratch, &["run", "-c", &file]);
    assert!(story_of(&socket, &["GET", "/"]).starts_with("process   ready, "));
    let mut waiting = Client::connect(process.listener);
    waiting.send("GET /gate HTTP/1.1\r\nhost: a\r\n\r\n");
    service.wait_at_gate();
    process.signal(rustix::process::Signal::TERM);
    until("the drain", || {
        let story = story_of(&socket, &["GET", "/"]);
        story.starts_with("process   draining, ").then(|| {
            assert!(story.contains(": accepts no new connections; "), "{story}");
        })
    });
    service.open_gate();
}

#[test]
fn who_is_no_process_to_ask_is_named() {
    let service = Service::start("one");
    let process = Strait::run(&forward_to(service.address));
    let unused = format!("127.0.0.1:{}", claim_port());
    let metrics = process.logged("starting", "metrics").to_string();
    for (admin, url, part) in [
        (unused, "/", "Connection refused (os error 111); is the process running"),
        (service.address.to_string(), "/", "is not the admin interface of Strait"),
        // A listener says `server: strait`, too.
        (process.listener.to_string(), "/", "is not the admin interface of Strait"),
        (metrics, "/", "the other pages are on `admin.address`"),
        (process.admin.to_string(), "ftp://a/", "only http:// and https:// are taken here"),
        ("unix:/nowhere/admin.sock".to_owned(), "/", "No such file or directory"),
        ("unix:admin.sock".to_owned(), "/", "a unix socket has an absolute path"),
        ("127.0.0.1".to_owned(), "/", "write 127.0.0.1:9901"),
    ] {
        let output = ask(&admin, &["GET", url]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{admin}: {error}");
        assert!(error.contains(part), "{part:?} in {error}");
        assert!(output.stdout.is_empty());
    }
    let admin = process.admin.to_string();
    let long = format!("a: {}", "x".repeat(40 << 10));
    let story = story_of(&admin, &["GET", "/", "-H", &long]);
    assert!(story.contains("forwarded to cluster service"), "{story}");
    let output = ask(&admin, &["GET", "/", "-H", &long, "-H", &long]);
    assert!(text(&output.stderr).contains("takes 61440 at most"), "{}", text(&output.stderr));
    let output = strait(&["explain", "GET", "/"]);
    assert!(text(&output.stderr).contains("--config <FILE>"), "{}", text(&output.stderr));
}
