//! The first command of a newcomer.

use std::time::Duration;

use rustix::process::Signal;

use crate::kit::{Client, Response, Scratch, Service, Strait, strait, text};

const ANYWHERE: [&str; 5] = ["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// Gets as curl would, with the host that curl would name.
fn fetch(strait: &Strait, path: &str) -> Response {
    ask(strait, "GET", path)
}

fn ask(strait: &Strait, method: &str, path: &str) -> Response {
    let mut client = Client::connect(strait.listener);
    let host = strait.listener;
    client.send(&format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n"));
    client.receive()
}

#[test]
fn the_guide_is_right() {
    let mut strait = Strait::start(Scratch::new(), &ANYWHERE);
    let guide = strait.wait_for_output("Ctrl-C");
    assert!(guide.contains(&format!("curl http://{}/", strait.listener)), "{guide}");
    assert!(guide.contains(&format!("http://{}/slow", strait.admin)), "{guide}");

    let versions: Vec<_> = (0..8).map(|_| fetch(&strait, "/").text()).collect();
    let second = versions.iter().filter(|text| *text == "shop, version 2\n").count();
    assert_eq!(second, 2, "{versions:?}");
    let echo: serde_json::Value =
        serde_json::from_slice(&fetch(&strait, "/echo/a/%2e%2e/b?x=1").body).unwrap();
    assert_eq!(echo["target"], "/echo/b?x=1");
    assert_eq!(echo["headers"]["x-edge"], "strait");
    assert!(echo["headers"]["x-forwarded-for"].is_string());
    let flaky = |method| ask(&strait, method, "/flaky").status;
    let gets: Vec<_> = (0..4).map(|_| flaky("GET")).collect();
    assert_eq!(gets, [200, 200, 500, 200], "the fourth was asked again");
    let posts: Vec<_> = (0..3).map(|_| flaky("POST")).collect();
    assert_eq!(posts, [500, 200, 502]);
    assert_eq!(fetch(&strait, "/healthz").text(), "ok\n");
    let moved = fetch(&strait, "/old/page?a=b");
    assert_eq!((moved.status, moved.field("location")), (308, Some("/page?a=b")));
    let down = fetch(&strait, "/down");
    assert_eq!((down.status, down.text().as_str()), (503, "Service Unavailable: connect_failed\n"));
    let late = fetch(&strait, "/slow?ms=20000");
    assert_eq!((late.status, late.text().as_str()), (504, "Gateway Timeout: request_timeout\n"));
    let mut stranger = Client::connect(strait.listener);
    stranger.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!(stranger.receive().status, 404, "no route table has the host `test`");
    strait.wait_for_output("\"GET /old/page?a=b HTTP/1.1\" 308");

    strait.signal(Signal::INT);
    assert!(strait.wait_for_end().success());
}

#[test]
fn its_tunnel_echoes() {
    let strait = Strait::start(Scratch::new(), &ANYWHERE);
    let mut client = Client::connect(strait.listener);
    client.send(
        "GET /tunnel HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    );
    assert_eq!(client.receive().status, 101);
    client.send("HTTP/1.1 299 echo\r\n\r\n");
    assert_eq!(client.receive().status, 299);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a promise about time is measured")]
fn it_ends_within_a_second_also_with_open_connections() {
    let mut strait = Strait::start(Scratch::new(), &ANYWHERE);
    let mut kept = Client::connect(strait.listener);
    kept.get("/healthz");
    let mut running = Client::connect(strait.listener);
    running.send("GET /slow?ms=1900 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let began = std::time::Instant::now();
    strait.signal(Signal::INT);
    assert!(strait.wait_for_end().success());
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_taken_port_is_named_with_the_option_that_changes_it() {
    let taken = Service::start("one").address.to_string();
    for (listen, admin, option) in
        [(taken.as_str(), "127.0.0.1:0", "--listen"), ("127.0.0.1:0", taken.as_str(), "--admin")]
    {
        let output = strait(&["demo", "--listen", listen, "--admin", admin]);
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(error.contains(&taken) && error.contains(option), "{error}");
    }
}
