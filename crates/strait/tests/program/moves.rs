//! Connections move between workers on real sockets, and their clients do not notice.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use ::tls::Version;
use serde_json::Value;

use crate::kit::{Client, Response, Service, Strait, forward_to, get, until};
use crate::stopped_worker::StoppedWorker;
use crate::tls::certificates;
use crate::tls_client::{self, TlsClient};

/// The connection of a client, as the admin interface lists it.
pub(crate) fn listed(strait: &Strait, client: SocketAddr) -> Value {
    until("the connection", || {
        let page = strait.admin_json("/connections?limit=10000");
        let rows = page["connections"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["peer"] == client.to_string())
    })
}

pub(crate) fn post(strait: &Strait, path: &str) -> Response {
    Client::connect(strait.admin).request("POST", path)
}

pub(crate) fn id(row: &Value) -> String {
    row["id"].as_str().unwrap().to_owned()
}

/// Moves a client's connection to the other one of two workers; says how many moved together.
fn move_over(strait: &Strait, client: SocketAddr) -> u64 {
    let before = listed(strait, client);
    let to = 1 - before["worker"].as_u64().unwrap();
    let answer = post(strait, &format!("/connections/move?connection={}&to={to}", id(&before)));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let after = listed(strait, client);
    assert_eq!((&after["id"], &after["worker"]), (&answer["id"], &to.into()));
    for key in ["listener", "state", "requests", "streams"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    answer["moved"].as_u64().unwrap()
}

#[test]
fn a_kept_connection_is_answered_by_the_other_worker() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    let mut client = Client::connect(strait.listener);
    for _ in 0..10 {
        assert_eq!(client.get("/").status, 200);
        assert_eq!(move_over(&strait, client.address()), 1);
    }
    client.send("GET /half HTTP/1.1\r\nho");
    until("half a head", || {
        (listed(&strait, client.address())["state"] == "reading_head").then_some(())
    });
    assert_eq!(move_over(&strait, client.address()), 1);
    client.send("st: localhost\r\n\r\n");
    assert!(client.receive().text().contains("GET /half"));
    // The first of its series counts what was asked for and done.
    assert_eq!(strait.metric("strait_connection_moves_total"), 11.0);
}

#[test]
fn a_request_moves_with_its_connection_to_the_service() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    let mut client = Client::connect(strait.listener);
    client.send("GET /gate HTTP/1.1\r\nhost: localhost\r\n\r\n");
    service.wait_at_gate();
    assert_eq!(move_over(&strait, client.address()), 2);
    // By the other end of the group, too.
    let page = strait.admin_json("/connections");
    let rows = page["connections"].as_array().unwrap();
    let upstream = rows.iter().find(|row| row["side"] == "upstream").unwrap();
    let to = 1 - upstream["worker"].as_u64().unwrap();
    let path = format!("/connections/move?connection={}&to={to}", id(upstream));
    assert_eq!(post(&strait, &path).status, 200);
    service.open_gate();
    assert!(client.receive().text().contains("GET /gate"));
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn totals_are_right_for_what_began_on_one_worker_and_ended_on_another() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(strait.listener)).collect();
    for client in &mut clients {
        client.send("GET /gate HTTP/1.1\r\nhost: localhost\r\n\r\n");
    }
    service.wait_at_gate();
    for client in &clients {
        move_over(&strait, client.address());
    }
    service.open_gate();
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    let listener = || strait.admin_json("/listeners")["listeners"][0].clone();
    let cluster = || strait.admin_json("/clusters")["clusters"][0].clone();
    let is_seen = |page: Value, active: u64| {
        (page["connections"]["active"] == active && page["connections"]["total"] == 4).then_some(())
    };
    until("four open connections", || is_seen(listener(), 4));
    until("four open connections to the service", || is_seen(cluster(), 4));
    until("no exchange", || (listener()["exchanges"]["active"] == 0).then_some(()));
    drop(clients);
    until("no open connection", || is_seen(listener(), 0));
    assert_eq!(strait.metric("strait_downstream_connections_active"), 0.0);
    assert_eq!(strait.metric("strait_exchanges_finished_total"), 4.0);
}

#[test]
fn a_connection_of_http2_moves_with_its_open_streams() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    let mut client = Http2::connect(strait.listener);
    client.ask(1, "/");
    client.wait_for(1);
    client.ask(3, "/gate");
    client.ask(5, "/gate");
    service.wait_at_gate();
    until("two streams", || (listed(&strait, client.address)["streams"] == 2).then_some(()));
    assert_eq!(move_over(&strait, client.address), 3);
    client.ask(7, "/meanwhile");
    assert!(client.wait_for(7).contains("GET /meanwhile"));
    move_over(&strait, client.address);
    service.open_gate();
    assert!(client.wait_for(3).contains("GET /gate"));
    assert!(client.wait_for(5).contains("GET /gate"));
}

#[test]
fn a_group_of_many_connections_moves_over_several_turns() {
    const STREAMS: u32 = 90;
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    let mut client = Http2::connect(strait.listener);
    let streams = || (0..STREAMS).map(|n| 2 * n + 1);
    streams().for_each(|stream| client.ask(stream, "/gate"));
    until("a connection to the service for each stream", || {
        let cluster = strait.admin_json("/clusters")["clusters"][0].clone();
        (cluster["connections"]["active"] == STREAMS).then_some(())
    });
    let mut other = Client::connect(strait.listener);
    for _ in 0..4 {
        assert_eq!(move_over(&strait, client.address), u64::from(STREAMS) + 1);
        assert_eq!(other.get("/").status, 200);
    }
    service.open_gate();
    for stream in streams() {
        assert!(client.wait_for(stream).contains("GET /gate"), "{stream}");
    }
    assert_eq!(strait.metric("strait_exchanges_finished_total"), f64::from(STREAMS) + 4.0);
}

#[test]
fn a_connection_of_tls_moves_with_its_keys() {
    let service = Service::start("one");
    let plain = forward_to(service.address);
    let config = plain.replace(
        "routes: all }",
        "routes: all, tls: { certificates: [{ chain: site.pem, key: site.key }] } }",
    );
    let strait = Strait::run_in(certificates(), &config);
    for version in [Version::Tls12, Version::Tls13] {
        let mut client = TlsClient::connect(strait.listener, &tls_client::context(version));
        for _ in 0..5 {
            assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
            move_over(&strait, client.address);
        }
    }
    // A handshake ends where it began.
    let mut socket = TcpStream::connect(strait.listener).unwrap();
    socket.write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
    let row = listed(&strait, socket.local_addr().unwrap());
    let to = 1 - row["worker"].as_u64().unwrap();
    let answer = post(&strait, &format!("/connections/move?connection={}&to={to}", id(&row)));
    assert_eq!((answer.status, answer.text().contains("handshake")), (409, true));
}

#[test]
fn a_worker_that_hangs_gets_no_connection_and_holds_up_nothing_else() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    let mut clients: Vec<_> = (0..32).map(|_| Client::connect(strait.listener)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    let of_worker =
        |worker: u64, client: &Client| listed(&strait, client.address())["worker"] == worker;
    let client = clients.iter().position(|client| of_worker(0, client)).unwrap();
    let other = clients.iter().position(|client| of_worker(1, client)).unwrap();
    let row = |place: usize| id(&listed(&strait, clients[place].address()));
    let (row, row_of_other) = (row(client), row(other));
    let Some(stopped) = StoppedWorker::stop(strait.pid(), 1) else { return };
    let answer = post(&strait, &format!("/connections/move?connection={row}&to=1"));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("worker 1 does not respond: try again"), "{}", answer.text());
    assert_eq!(clients[client].get("/").status, 200, "it is where it was");
    // What is out of its tables by then comes back.
    let answer = post(&strait, &format!("/connections/move?connection={row_of_other}&to=0"));
    assert_eq!(answer.status, 503, "{}", answer.text());
    drop(stopped);
    assert_eq!(clients[other].get("/").status, 200);
    assert_eq!(move_over(&strait, clients[client].address()), 1);
    assert_eq!(clients[client].get("/").status, 200);
}

#[test]
fn what_cannot_move_stays_and_the_answer_says_why() {
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    let mut client = Client::connect(strait.listener);
    assert_eq!(client.get("/").status, 200);
    let row = listed(&strait, client.address());
    let (id, worker) = (id(&row), row["worker"].as_u64().unwrap());
    let (slot, generation) = id.split_once('.').unwrap().1.split_once('.').unwrap();
    for (connection, to, status, part) in [
        (id.clone(), worker, 409, "on worker"),
        (id.clone(), 2, 404, "there is no worker 2: the last is 1"),
        (format!("{worker}.{slot}.{}9", generation), 1 - worker, 404, "there is no connection"),
        (format!("{worker}.999999.0"), 1 - worker, 404, "there is no connection"),
        ("7.0.0".to_owned(), 0, 404, "there is no connection"),
    ] {
        let path = format!("/connections/move?connection={connection}&to={to}");
        let answer = post(&strait, &path);
        assert_eq!(
            (answer.status, answer.text().contains(part)),
            (status, true),
            "{path}: {answer:?}"
        );
    }
    assert_eq!(get(strait.admin, "/connections/move?connection=0.0.0&to=1").status, 405);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(listed(&strait, client.address())["id"], id.as_str());
}

/// A client of HTTP/2 that reads frames, and of the responses no more than their bodies.
struct Http2 {
    socket: TcpStream,
    address: SocketAddr,
    /// The bodies of streams so far, and whether they are over.
    bodies: Vec<(u32, Vec<u8>, bool)>,
}

impl Http2 {
    fn connect(to: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(to).unwrap();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        // SETTINGS, without any.
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        let address = socket.local_addr().unwrap();
        Self { socket, address, bodies: Vec::new() }
    }

    /// Asks on a stream.
    fn ask(&mut self, stream: u32, path: &str) {
        // GET, http, and literals for the authority and the path.
        let mut block = vec![0x82, 0x86, 0x41, 9];
        block.extend_from_slice(b"localhost");
        block.extend_from_slice(&[0x44, u8::try_from(path.len()).unwrap()]);
        block.extend_from_slice(path.as_bytes());
        let mut frame = vec![0, 0, u8::try_from(block.len()).unwrap(), 1, 5];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(&block);
        self.socket.write_all(&frame).unwrap();
        self.bodies.push((stream, Vec::new(), false));
    }

    /// The body of the response on a stream.
    fn wait_for(&mut self, stream: u32) -> String {
        loop {
            let ended = self.bodies.iter().find(|(it, _, is_over)| *it == stream && *is_over);
            if let Some((_, body, _)) = ended {
                return String::from_utf8_lossy(body).into_owned();
            }
            let mut head = [0; 9];
            self.socket.read_exact(&mut head).unwrap();
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            self.socket.read_exact(&mut payload).unwrap();
            let (kind, flags) = (head[3], head[4]);
            assert!(!matches!(kind, 3 | 7), "it was reset: {head:?} {payload:?}");
            let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if let Some((_, body, is_over)) = self.bodies.iter_mut().find(|(it, ..)| *it == of) {
                if kind == 0 {
                    body.extend_from_slice(&payload);
                }
                *is_over |= matches!(kind, 0 | 1) && flags & 1 != 0;
            }
        }
    }
}

#[test]
fn the_other_worker_knows_who_connected_before_a_proxy_header() {
    let strait = Strait::run(
        "workers: 2
listeners:
  - name: edge
    address: 127.0.0.1:0
    proxy_protocol: true
    chains:
      - { name: proxied, match: { protocols: [http1], direct_sources: [127.0.0.1] }, routes: all }
routes:
  - { name: all, rules: [{ match: { prefix: / }, respond: { status: 202 } }] }
",
    );
    let mut client = Client::connect(strait.listener);
    client.send("PROXY TCP4 198.51.100.7 192.0.2.1 5 80\r\n");
    // The header has been read, and the chain is not chosen yet.
    assert_eq!(move_over(&strait, "198.51.100.7:5".parse().unwrap()), 1);
    assert_eq!(client.get("/").status, 202);
}
