//! Connections that a process leaves with the service manager for the next one.

use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use ::tls::Version;
use io::packets::ProcessHandle;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, over_tls, process, upgraded, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, claim_port, get, until};
use crate::stored::{Manager, Started};
use crate::tls::certificates;
use crate::tls_client::{TlsClient, context};

const STORED: &str = "strait.connections";

/// A process with two listeners, the first of which ends TLS, and the service manager that it stores connections with.
struct Stage {
    service: Service,
    manager: Manager,
    strait: Strait,
    plain: SocketAddr,
    admin: SocketAddr,
    _certificates: Scratch,
}

impl Stage {
    fn new(descriptors_max: usize) -> Self {
        Self::with_probation(descriptors_max, "0s")
    }

    fn with_probation(descriptors_max: usize, probation: &str) -> Self {
        let (service, manager) = (Service::start("one"), Manager::with_room(descriptors_max));
        let scratch = certificates();
        let [plain, admin] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], claim_port())));
        let listener = format!("  - {{ name: plain, address: '{plain}', routes: all }}\nroutes:\n");
        let config = over_tls(&scratch, &service).replace("routes:\n", &listener);
        let options = format!("probation: {probation}, fd_store: connections");
        let config = with_handover(&scratch, &config, &options);
        let variables = [("NOTIFY_SOCKET", &*manager.path)];
        let strait = Strait::run_by(r#"exec "$0" "$@""#, Stdio::null(), &variables, &config);
        let file = fs::read_to_string(strait.path("strait.yaml")).unwrap();
        // What the next process is to be found by.
        let at = format!("admin: {{ address: '{admin}' }}");
        strait.write("next.yaml", &file.replace(file.lines().next().unwrap(), &at));
        Self { service, manager, strait, plain, admin, _certificates: scratch }
    }

    fn wait_for_listeners(&self) {
        self.manager.wait_for(&[("strait.listener.edge", 2), ("strait.listener.plain", 2)]);
    }

    fn wait_for_connections(&self) {
        self.manager.wait_for(&[
            (STORED, 1),
            ("strait.listener.edge", 2),
            ("strait.listener.plain", 2),
        ]);
    }

    /// Has the process end, and waits for that.
    fn end(&mut self) {
        self.strait.signal(Signal::TERM);
        assert_eq!(self.strait.wait_for_end().code(), Some(0), "{}", self.strait.all_logged());
    }

    /// The next process, if the test can start one.
    fn start(&self) -> Option<Started> {
        let started = self.manager.start(self.strait.path("next.yaml").to_str().unwrap());
        if started.is_none() {
            println!("skipped: python3 is missing");
        }
        started
    }

    fn metric(&self, name: &str) -> f64 {
        metric(self.admin, name)
    }

    fn kept(&self, count: usize) -> Vec<Client> {
        let mut kept: Vec<_> = (0..count).map(|_| Client::connect(self.plain)).collect();
        kept.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
        kept
    }
}

/// The sum of a metric's samples.
fn metric(admin: SocketAddr, name: &str) -> f64 {
    let page = get(admin, "/metrics").text();
    let is_of =
        |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    let values = page.lines().filter(is_of);
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[test]
fn a_restart_closes_no_connection() {
    let mut stage = Stage::new(1024);
    stage.wait_for_listeners();
    let mut kept = stage.kept(20);
    let mut busy = Client::connect(stage.plain);
    busy.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    stage.service.wait_at_gate();
    let mut amid_head = Client::connect(stage.plain);
    amid_head.send("GET /slow HTTP/1.1\r\nho");
    let contexts = [Version::Tls12, Version::Tls13].map(context);
    let mut over_tls =
        contexts.each_ref().map(|context| TlsClient::connect(stage.strait.listener, context));
    for client in &mut over_tls {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    stage.end();
    stage.wait_for_connections();

    // No process is there; the peers go on.
    stage.service.open_gate();
    amid_head.send("st: test\r\n\r\n");
    kept[0].send("GET /gap HTTP/1.1\r\nhost: test\r\n\r\n");
    let mut new = Client::connect(stage.plain);
    new.send("GET /new HTTP/1.1\r\nhost: test\r\n\r\n");
    let Some(started) = stage.start() else { return };

    for client in [&mut busy, &mut amid_head, &mut kept[0], &mut new] {
        let response = client.receive();
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
    for client in kept.iter_mut().chain([&mut busy, &mut amid_head]) {
        let response = client.get("/again");
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
    for (client, context) in over_tls.iter_mut().zip(&contexts) {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
        let mut other = TlsClient::connect(stage.strait.listener, context);
        assert!(other.get("/").starts_with("HTTP/1.1 200 OK"));
        assert!(other.is_resumed, "tickets go on");
    }
    stage.wait_for_listeners();
    // 22 before, 4 that were under way or waited, 22 again, 4 over TLS.
    until("all that was counted", || {
        (stage.metric("strait_exchanges_finished_total") == 52.0).then_some(())
    });
    assert_eq!(stage.metric("strait_generation"), 1.0);
    drop((kept, busy, amid_head, over_tls, new));
    until("the end of all", || {
        (stage.metric("strait_downstream_connections_active") == 0.0).then_some(())
    });
    let page = get(stage.admin, "/handover").text();
    for part in ["\"result\": \"restored\"", "\"role\": \"taker\"", "\"pid\": null"] {
        assert!(page.contains(part), "{page}");
    }
    assert!(started.log().contains("continuing stored connections"), "{}", started.log());
}

#[test]
fn connections_wait_for_the_next_process_where_one_cannot_start() {
    let mut stage = Stage::new(1024);
    stage.wait_for_listeners();
    let mut kept = stage.kept(3);
    stage.end();
    stage.wait_for_connections();
    // The admin interface's address is another program's.
    let taken = TcpListener::bind(stage.admin).unwrap();
    let Some(mut failed) = stage.start() else { return };
    assert_eq!(failed.wait_for_end(), Some(1), "{}", failed.log());
    drop(taken);
    let Some(started) = stage.start() else { return };
    for client in &mut kept {
        assert_eq!(client.get("/").status, 200, "{}", started.log());
    }
}

#[test]
fn a_restart_in_the_probation_of_an_upgrade_closes_no_connection() {
    // The service manager asks all processes of the service to end; and one may be asked alone.
    for are_both_asked in [true, false] {
        let mut stage = Stage::with_probation(1024, "1m");
        stage.wait_for_listeners();
        let (mut kept, mut successors) = (stage.kept(10), Successors::default());
        upgraded(&stage.strait, &mut successors);
        let new = ProcessHandle::open(successors.0[0]).unwrap();
        if are_both_asked {
            // The new one is the first that learns of it.
            stage.strait.signal(Signal::STOP);
        }
        kill_process(process(successors.0[0]), Signal::TERM).unwrap();
        stage.strait.wait_for_log("the service manager does not know this process yet");
        if are_both_asked {
            kept.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
            stage.strait.signal(Signal::TERM);
            stage.strait.signal(Signal::CONT);
        }
        assert_eq!(stage.strait.wait_for_end().code(), Some(0), "{}", stage.strait.all_logged());
        assert!(new.wait(Duration::from_secs(20)).unwrap());
        stage.wait_for_connections();
        let Some(_started) = stage.start() else { return };
        for client in &mut kept {
            let response = client.get("/");
            assert_eq!((response.status, response.field("connection")), (200, None));
        }
        assert_eq!(stage.metric("strait_generation"), 2.0);
    }
}

#[test]
fn connections_drain_where_the_old_process_never_names_the_new_one() {
    let mut stage = Stage::with_probation(1024, "1m");
    stage.wait_for_listeners();
    let (mut kept, mut successors) = (stage.kept(5), Successors::default());
    upgraded(&stage.strait, &mut successors);
    let new = ProcessHandle::open(successors.0[0]).unwrap();
    stage.strait.signal(Signal::STOP);
    kill_process(process(successors.0[0]), Signal::TERM).unwrap();
    stage.strait.wait_for_log("the old process does not say that the service manager knows this");
    assert!(kept.iter_mut().all(Client::is_closed));
    assert!(new.wait(Duration::from_secs(20)).unwrap());
}

#[test]
fn connections_go_through_several_restarts_and_the_last_process_drains_at_another_signal() {
    let mut stage = Stage::new(1024);
    stage.wait_for_listeners();
    let mut kept = stage.kept(5);
    assert_eq!(get(stage.plain, "/before").status, 200);
    stage.end();
    for restarts in 1..=3 {
        let Some(mut started) = stage.start() else { return };
        for client in &mut kept {
            let response = client.get("/");
            assert_eq!((response.status, response.field("connection")), (200, None));
        }
        stage.wait_for_listeners();
        assert_eq!(stage.metric("strait_generation"), f64::from(restarts));
        until("the slow requests of former processes", || {
            get(stage.admin, "/slow").text().contains(r#""target":"/before""#).then_some(())
        });
        let is_last = restarts == 3;
        let signal = if is_last { Signal::QUIT } else { Signal::TERM };
        kill_process(process(started.pid()), signal).unwrap();
        assert_eq!(started.wait_for_end(), Some(0), "{}", started.log());
        if is_last {
            stage.wait_for_listeners();
            assert!(kept.iter_mut().all(Client::is_closed), "they were drained");
        } else {
            stage.wait_for_connections();
        }
    }
}

#[test]
fn connections_that_the_service_manager_does_not_keep_drain() {
    // Room for the listening sockets alone.
    let mut stage = Stage::new(4);
    stage.wait_for_listeners();
    let mut kept = stage.kept(5);
    let mut busy = Client::connect(stage.plain);
    busy.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    stage.service.wait_at_gate();
    stage.strait.signal(Signal::TERM);
    stage.strait.wait_for_log("raise FileDescriptorStoreMax= of the unit");
    // The drain begins a moment after the line.
    assert!(kept.iter_mut().all(Client::is_closed));
    stage.service.open_gate();
    let response = busy.receive();
    assert_eq!((response.status, response.field("connection")), (200, Some("close")));
    assert_eq!(stage.strait.wait_for_end().code(), Some(0));
    stage.wait_for_listeners();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is about how long something takes")]
fn a_client_that_never_ends_its_handshake_holds_nothing_up() {
    let mut stage = Stage::new(1024);
    stage.wait_for_listeners();
    let mut kept = stage.kept(5);
    let mut silent = Client::connect(stage.strait.listener);
    let mut slow = Client::connect(stage.strait.listener);
    // The beginning of a ClientHello.
    slow.send("\u{16}\u{3}\u{1}\u{1}\u{0}");
    let active = "strait_downstream_connections_active";
    until("both", || (metric(stage.strait.admin, active) == 7.0).then_some(()));
    let began = std::time::Instant::now();
    stage.end();
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    stage.wait_for_connections();
    assert!(silent.try_get("/").is_none() && slow.try_get("/").is_none());
    let Some(_started) = stage.start() else { return };
    for client in &mut kept {
        let response = client.get("/");
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
}

#[test]
fn what_stays_drains_and_does_not_hold_the_others() {
    let mut stage = Stage::new(1024);
    stage.wait_for_listeners();
    let mut kept = stage.kept(5);
    // Of a listener that a reload removes.
    let port = claim_port();
    let file = fs::read_to_string(stage.strait.path("strait.yaml")).unwrap();
    let gone = format!("  - {{ name: gone, address: '127.0.0.1:{port}', routes: all }}\nroutes:\n");
    stage.strait.write("strait.yaml", &file.replace("routes:\n", &gone));
    let mut stays = until("the listener", || {
        TcpStream::connect(("127.0.0.1", port)).ok().map(|stream| {
            drop(stream);
            Client::connect(SocketAddr::from(([127, 0, 0, 1], port)))
        })
    });
    stays.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    stage.service.wait_at_gate();
    stage.strait.write("strait.yaml", &file);
    until("its end", || TcpStream::connect(("127.0.0.1", port)).err());
    stage.strait.signal(Signal::TERM);
    stage.wait_for_connections();
    stage.strait.wait_for_log("draining");
    // The rest is cut off, as by TimeoutStopSec=.
    stage.strait.signal(Signal::KILL);
    stage.strait.wait_for_end();
    let Some(_started) = stage.start() else { return };
    for client in &mut kept {
        let response = client.get("/");
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
    assert!(stays.try_get("/").is_none());
}

/// One packet of the queue, with its descriptors.
type Packet = (Vec<u8>, Vec<OwnedFd>);

fn take_packets(queue: &OwnedFd) -> Vec<Packet> {
    let mut packets = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let Ok(received) = rustix::net::recvmsg(queue, &mut into, &mut with, flags) else {
            return packets;
        };
        let mut descriptors = Vec::new();
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        packets.push((bytes[..received.bytes].to_vec(), descriptors));
    }
}

/// A queue with these packets.
fn queue_of(packets: &[Packet]) -> OwnedFd {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let (sender, queue) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    for (bytes, descriptors) in packets {
        let descriptors: Vec<_> = descriptors.iter().map(|it| it.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(with.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        let bytes = [IoSlice::new(bytes)];
        rustix::net::sendmsg(&sender, &bytes, &mut with, SendFlags::empty()).unwrap();
    }
    queue
}

/// A file in memory like this one, changed, and sealed or not.
fn changed(file: &OwnedFd, is_sealed: bool, change: impl Fn(&mut Vec<u8>)) -> OwnedFd {
    let mut bytes = Vec::new();
    let mut original = File::from(file.try_clone().unwrap());
    original.rewind().unwrap();
    original.read_to_end(&mut bytes).unwrap();
    change(&mut bytes);
    let mut copy = File::from(memfd_create("copy", MemfdFlags::ALLOW_SEALING).unwrap());
    copy.write_all(&bytes).unwrap();
    if is_sealed {
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&copy, seals).unwrap();
    }
    copy.into()
}

#[test]
fn what_is_damaged_or_foreign_is_refused_as_a_whole_and_its_connections_are_closed() {
    type Change = fn(&mut Vec<Packet>);
    let rows: [(&str, Change); 8] = [
        ("it is damaged", |packets| {
            packets[1].1[0] =
                changed(&packets[1].1[0], true, |bytes| *bytes.last_mut().unwrap() ^= 1);
        }),
        ("another program stored it", |packets| {
            packets[1].1[0] = changed(&packets[1].1[0], true, |bytes| bytes[0] = b'x');
        }),
        ("it has version 7", |packets| {
            packets[1].1[0] = changed(&packets[1].1[0], true, |bytes| bytes[9] = 7);
        }),
        ("it is not a sealed file in memory", |packets| {
            packets[1].1[0] = changed(&packets[1].1[0], false, |_| {});
        }),
        ("it is not complete", |packets| packets.truncate(packets.len() - 2)),
        ("belong to it", |packets| {
            packets[2].1.pop();
        }),
        ("another program stored it", |packets| packets[0].0 = b"GET / HTTP/1.1".to_vec()),
        ("it is not complete", |packets| packets.clear()),
    ];
    let Some(python) = Stage::new(1024).start() else { return };
    drop(python);
    for (expected, change) in rows {
        let mut stage = Stage::new(1024);
        stage.wait_for_listeners();
        let mut kept = stage.kept(5);
        stage.end();
        stage.wait_for_connections();
        let queue = stage.manager.store.lock().unwrap().remove(STORED).unwrap().remove(0);
        let mut packets = take_packets(&queue);
        // Opened, Connections, Sockets, Whole, and State for both ends.
        let shape: Vec<_> = packets.iter().map(|(_, descriptors)| descriptors.len()).collect();
        assert!(matches!(shape[..], [0, 1, _, 0, 1, 1]), "{shape:?}");
        packets.pop();
        change(&mut packets);
        let queue = queue_of(&packets);
        drop(packets);
        stage.manager.store.lock().unwrap().insert(STORED.to_owned(), vec![queue]);
        let started = stage.start().unwrap();
        started.wait_for_log("refused and closed");
        assert!(started.log().contains(expected), "{expected}: {}", started.log());
        assert!(kept.iter_mut().all(|client| client.try_get("/").is_none()), "{expected}");
        assert_eq!(get(stage.plain, "/").status, 200, "{expected}");
        stage.wait_for_listeners();
    }
}
