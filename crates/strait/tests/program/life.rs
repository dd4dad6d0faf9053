//! Start, signals and end.

use rustix::process::Signal;

use crate::kit::{Client, Service, Strait, forward_to, get, strait, text, until};

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

#[test]
fn a_second_process_on_the_same_address_is_refused_clearly() {
    let service = Service::start("one");
    let first = Strait::run(&forward_to(service.address));
    let config = forward_to(service.address).replace("127.0.0.1:0", &first.listener.to_string());
    let scratch = crate::kit::Scratch::new();
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
    let scratch = crate::kit::Scratch::new();
    let config =
        format!("admin: {{ address: '{}' }}\n{}", service.address, forward_to(service.address));
    let output = strait(&["run", "-c", &scratch.write("strait.yaml", &config)]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("the admin interface cannot listen on"), "{error}");
}

#[test]
fn a_drain_finishes_what_runs_and_says_close() {
    for signal in [Signal::TERM, Signal::INT] {
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
fn a_second_signal_stops_at_once() {
    let service = Service::start("one");
    let mut strait = Strait::run(&forward_to(service.address));
    let mut client = Client::connect(strait.listener);
    client.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    strait.signal(Signal::TERM);
    strait.wait_for_log("draining");
    strait.signal(Signal::TERM);
    assert_eq!(strait.wait_for_end().code(), Some(1));
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
