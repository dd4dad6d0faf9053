//! Early data across handovers: sessions go along, and no hello is taken twice.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use rustls::version::TLS13;

use crate::handover::{Successors, over_tls, process, upgraded, with_handover};
use crate::kit::{Service, Strait, until};
use crate::rustls_client::{Context, RustlsClient};
use crate::tls::certificates;

const EARLY: &str = "GET /early HTTP/1.1\r\nhost: shop.example.com\r\n\r\n";

fn run(service: &Service, options: &str) -> Strait {
    let scratch = certificates();
    let config = over_tls(&scratch, service).replace("tls: {", "tls: { early_data: true,");
    let config = with_handover(&scratch, &config, options);
    Strait::run_in(scratch, &config)
}

/// Gets a session for a later hello.
fn visit(strait: &Strait, context: &Context) -> RustlsClient {
    let mut client = RustlsClient::connect(strait.listener, context);
    assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    client
}

/// A hello with early data, and the client that said it.
fn recorded(context: &Context) -> (Vec<u8>, RustlsClient) {
    let mut client = RustlsClient::begin(context, EARLY);
    (client.first_flight(), client)
}

fn is_taken(strait: &Strait, client: &mut RustlsClient, hello: &[u8]) -> bool {
    client.connect_to(strait.listener);
    client.send_raw(hello);
    client.finish_handshake();
    if !client.is_early_data_accepted() {
        return false;
    }
    let response = client.receive();
    assert!(response.contains("early-data: 1"), "{response}");
    true
}

/// Sends a recorded hello again, as one who has nothing but that, and waits for the answer to it.
fn send_again(to: SocketAddr, hello: &[u8]) {
    let mut socket = TcpStream::connect(to).unwrap();
    std::io::Write::write_all(&mut socket, hello).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(socket.read(&mut [0; 1024]).unwrap() > 0, "it is answered");
}

fn finished(strait: &Strait) -> f64 {
    strait.metric("strait_exchanges_finished_total")
}

#[test]
fn a_recorded_hello_is_taken_once_by_whichever_process() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 0s");
    let [before, across, at_first] = [(); 3].map(|()| Context::new(&TLS13));
    let mut kept = [&before, &across, &at_first].map(|context| visit(&strait, context));
    let (taken_before, mut client) = recorded(&before);
    assert!(is_taken(&strait, &mut client, &taken_before));
    let (taken_after, mut later) = recorded(&across);
    upgraded(&strait, &mut successors);
    send_again(strait.listener, &taken_before);
    assert!(is_taken(&strait, &mut later, &taken_after), "its session went along");
    let counted = until("the exchange", || Some(finished(&strait)).filter(|count| *count == 5.0));
    for _ in 0..2 {
        upgraded(&strait, &mut successors);
        for hello in [&taken_before, &taken_after] {
            send_again(strait.listener, hello);
        }
    }
    // Resumed with early data after three handovers, and the ticket of a connection that began so is as good.
    for _ in 0..2 {
        let (hello, mut client) = recorded(&at_first);
        assert!(is_taken(&strait, &mut client, &hello) && client.is_resumed());
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
        send_again(strait.listener, &hello);
    }
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    let expected = counted + 4.0 + 3.0;
    until("the exchanges", || (finished(&strait) == expected).then_some(()));
}

#[test]
fn what_was_given_is_not_taken_again_after_the_new_process_was_killed() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service, "probation: 1m");
    let context = Context::new(&TLS13);
    drop(visit(&strait, &context));
    let (hello, mut client) = recorded(&context);
    drop(visit(&strait, &context));
    let (unused, mut other) = recorded(&context);
    upgraded(&strait, &mut successors);
    assert!(is_taken(&strait, &mut client, &hello));
    kill_process(process(successors.0[0]), Signal::KILL).unwrap();
    strait.wait_for_log("accepts connections again");
    let before = finished(&strait);
    send_again(strait.listener, &hello);
    assert!(
        !is_taken(&strait, &mut other, &unused),
        "it may have been taken by the process that is gone"
    );
    assert!(other.get("/").starts_with("HTTP/1.1 200 OK"));
    // It begins anew, with sessions of its own.
    drop(visit(&strait, &context));
    let (hello, mut client) = recorded(&context);
    assert!(is_taken(&strait, &mut client, &hello));
    until("the exchanges", || (finished(&strait) == before + 3.0).then_some(()));
}
