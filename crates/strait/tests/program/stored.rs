//! Listening sockets that a service manager keeps, by a manager of the test's own, which does with the messages what systemd
//! does (`service_notify_message`): it keeps descriptors by name up to a bound, and closes others once it has read a message. It listens
//! to the main process alone (`NotifyAccess=main`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt::set_socket_passcred,
};
use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, process, upgraded, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, claim_port, forward_to, get, text, until};

/// Gives the program the descriptors that come with their names over standard input, from 3 on.
const WITH_DESCRIPTORS: &str = "
import os, socket, sys
names, came, _, _ = socket.recv_fds(socket.socket(fileno=os.dup(0)), 65536, 64)
high = [os.dup2(fd, 200 + place, inheritable=False) for place, fd in enumerate(came)]
os.closerange(3, 200)
for place, fd in enumerate(high):
    os.dup2(fd, 3 + place)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)), LISTEN_FDNAMES=names.decode())
os.execv(sys.argv[1], sys.argv[1:])
";

/// A service manager with a store of descriptors.
pub(crate) struct Manager {
    pub(crate) path: String,
    pub(crate) store: Arc<Mutex<BTreeMap<String, Vec<OwnedFd>>>>,
    /// The names of descriptors for which it has no room, and which it has closed.
    closed: Arc<Mutex<BTreeSet<String>>>,
    /// The main process: the one that it has started, or the first that it hears, until that names another.
    main: Arc<Mutex<Option<u32>>>,
    _scratch: Scratch,
}

impl Manager {
    fn new() -> Self {
        Self::with_room(1024)
    }

    /// One that keeps so many descriptors (`FileDescriptorStoreMax`).
    pub(crate) fn with_room(descriptors_max: usize) -> Self {
        let scratch = Scratch::new();
        let path = scratch.path("notify").to_str().unwrap().to_owned();
        let socket = UnixDatagram::bind(&path).unwrap();
        let store = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let main = Arc::<Mutex<Option<u32>>>::default();
        let closed = Arc::<Mutex<BTreeSet<_>>>::default();
        let (into, heard) = (Arc::clone(&store), Arc::clone(&main));
        let no_more = Arc::clone(&closed);
        set_socket_passcred(&socket, true).unwrap();
        thread::spawn(move || keep(&socket, &heard, &into, &no_more, descriptors_max));
        Self { path, store, closed, main, _scratch: scratch }
    }

    /// The names of what it keeps, and how many descriptors each has.
    fn kept(&self) -> Vec<(String, usize)> {
        let store = self.store.lock().unwrap();
        store.iter().map(|(name, sockets)| (name.clone(), sockets.len())).collect()
    }

    pub(crate) fn wait_for(&self, kept: &[(&str, usize)]) {
        until("what is kept", || {
            let now = self.kept();
            let is_so = now.iter().map(|(name, count)| (&**name, *count)).eq(kept.iter().copied());
            is_so.then_some(())
        });
    }

    /// Waits until it has read the descriptors of this name, and had no room for them. They are open until then, with the messages that
    /// they came with.
    fn wait_for_no_room(&self, name: &str) {
        until("what is not kept", || self.closed.lock().unwrap().contains(name).then_some(()));
    }

    /// Starts the program as after a crash, with what is kept.
    pub(crate) fn start(&self, config: &str) -> Option<Started> {
        let store = self.store.lock().unwrap();
        let all = store.iter().flat_map(|(name, sockets)| sockets.iter().map(move |it| (name, it)));
        let (names, sockets): (Vec<_>, Vec<_>) =
            all.map(|(name, socket)| (&**name, socket.as_fd())).unzip();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = Command::new("python3")
            .args(["-c", WITH_DESCRIPTORS, env!("CARGO_BIN_EXE_strait"), "run", "-c", config])
            .env("NOTIFY_SOCKET", &self.path)
            .stdin(OwnedFd::from(theirs))
            .stderr(Stdio::piped())
            .spawn();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        assert!(with.push(SendAncillaryMessage::ScmRights(&sockets)));
        let (names, flags) = (names.join(":"), SendFlags::empty());
        rustix::net::sendmsg(&ours, &[IoSlice::new(names.as_bytes())], &mut with, flags).unwrap();
        let mut child = child.ok()?;
        *self.main.lock().unwrap() = Some(child.id());
        let (log, mut lines) = (Arc::<Mutex<String>>::default(), child.stderr.take().unwrap());
        let into = Arc::clone(&log);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = lines.read(&mut buffer) {
                into.lock().unwrap().push_str(&text(&buffer[..n]));
            }
        });
        Some(Started { child, log })
    }
}

fn keep(
    socket: &UnixDatagram,
    main: &Mutex<Option<u32>>,
    store: &Mutex<BTreeMap<String, Vec<OwnedFd>>>,
    closed: &Mutex<BTreeSet<String>>,
    descriptors_max: usize,
) {
    let mut text = [0; 4096];
    loop {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253), ScmCredentials(1))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut text)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let Ok(received) = rustix::net::recvmsg(socket, &mut into, &mut with, flags) else {
            return;
        };
        let (mut descriptors, mut sender) = (Vec::new(), None);
        for message in with.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(rights) => descriptors.extend(rights),
                RecvAncillaryMessage::ScmCredentials(its) => sender = Some(its.pid),
                _ => {}
            }
        }
        let sender = sender.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        let mut main = main.lock().unwrap();
        if main.is_some() && *main != sender {
            continue;
        }
        *main = sender;
        let message = self::text(&text[..received.bytes]);
        if let Some(successor) = message.strip_prefix("MAINPID=") {
            *main = Some(successor.parse().unwrap());
        }
        drop(main);
        let name = message.lines().find_map(|line| line.strip_prefix("FDNAME="));
        let Some(name) = name.map(str::to_owned) else { continue };
        let mut store = store.lock().unwrap();
        if message.starts_with("FDSTORE=1\n") {
            let room = descriptors_max.saturating_sub(store.values().map(Vec::len).sum());
            let kept: &mut Vec<OwnedFd> = store.entry(name.clone()).or_default();
            let cookie = |socket: &OwnedFd| rustix::net::sockopt::socket_cookie(socket).unwrap();
            // As systemd does: what it has already is not kept twice.
            descriptors.retain(|it| !kept.iter().any(|known| cookie(known) == cookie(it)));
            let beyond = descriptors.split_off(room.min(descriptors.len()));
            kept.extend(descriptors);
            store.retain(|_, kept| !kept.is_empty());
            if !beyond.is_empty() {
                drop(beyond);
                closed.lock().unwrap().insert(name);
            }
        } else if message.starts_with("FDSTOREREMOVE=1\n") {
            store.remove(&name);
        }
    }
}

pub(crate) struct Started {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Started {
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn wait_for_log(&self, part: &str) {
        until(part, || self.log().contains(part).then_some(()));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait_for_end(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(manager: &Manager, scratch: &Scratch, config: &str) -> Strait {
    let config = with_handover(scratch, config, "probation: 0s, fd_store: listeners");
    let variables = [("NOTIFY_SOCKET", &*manager.path)];
    Strait::run_by(r#"exec "$0" "$@""#, Stdio::null(), &variables, &config)
}

/// With a second listener, which has this port.
fn with_second(config: &str, port: u16) -> String {
    let second = format!("  - {{ name: second, address: '127.0.0.1:{port}', routes: all }}\n");
    config.replace("routes:\n", &format!("{second}routes:\n"))
}

#[test]
fn clients_that_come_between_two_processes_are_served_by_the_second() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let (port, gone) = (claim_port(), claim_port());
    let config = with_second(&forward_to(service.address), port);
    let config = config.replace(
        "routes:\n",
        &format!("  - {{ name: gone, address: '127.0.0.1:{gone}', routes: all }}\nroutes:\n"),
    );
    let mut strait = run(&manager, &scratch, &config);
    manager.wait_for(&[
        ("strait.listener.edge", 2),
        ("strait.listener.gone", 2),
        ("strait.listener.second", 2),
    ]);
    kill_process(process(strait.pid()), Signal::KILL).unwrap();
    strait.wait_for_end();
    // No process has the sockets, and each has clients that wait.
    let second = SocketAddr::from(([127, 0, 0, 1], port));
    let mut waiting: Vec<_> =
        (0..8).flat_map(|_| [strait.listener, second]).map(Client::connect).collect();
    for client in &mut waiting {
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    }
    let mut lost = TcpStream::connect(("127.0.0.1", gone)).unwrap();
    let config = std::fs::read_to_string(strait.path("strait.yaml")).unwrap();
    // More workers than sockets, and one listener less.
    let config = config.replace("workers: 2", "workers: 3");
    let config: String = config
        .lines()
        .filter(|it| !it.contains("name: gone"))
        .map(|line| format!("{line}\n"))
        .collect();
    strait.write("strait.yaml", &config);
    let Some(_started) = manager.start(strait.path("strait.yaml").to_str().unwrap()) else {
        println!("skipped: python3 is missing");
        return;
    };
    for client in &mut waiting {
        assert_eq!(client.receive().status, 200);
    }
    assert_eq!(get(strait.listener, "/").status, 200);
    manager.wait_for(&[("strait.listener.edge", 2), ("strait.listener.second", 2)]);
    lost.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = lost.write_all(b"x");
    assert!(!matches!(lost.read(&mut [0; 1]), Ok(1..)), "nothing listens there any more");
    until("the end of its queue", || TcpStream::connect(("127.0.0.1", gone)).err().map(drop));
}

#[test]
fn what_is_kept_and_cannot_be_listened_on_is_left_out_and_its_listener_binds_anew() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let port = claim_port();
    let config = with_second(&forward_to(service.address), port);
    let config = with_handover(&scratch, &config, "fd_store: listeners");
    let datagrams = UnixDatagram::unbound().unwrap();
    let name = "strait.listener.second".to_owned();
    manager.store.lock().unwrap().insert(name, vec![datagrams.into()]);
    let file = scratch.write("strait.yaml", &config);
    let Some(started) = manager.start(&file) else { return };
    started.wait_for_log("a socket that the service manager has kept is not used");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    until("the listener", || TcpStream::connect(address).ok());
    assert_eq!(get(address, "/").status, 200);
}

/// The configuration with a listener at a path.
fn with_file(config: &str, path: &Path, mode: &str) -> String {
    let path = path.display();
    let local = format!("  - {{ name: local, address: 'unix:{path}', {mode}routes: all }}\n");
    config.replace("routes:\n", &format!("{local}routes:\n"))
}

/// The name of the socket whose file is at `path`, in the manager's store.
fn name_of(listener: &str, path: &Path) -> String {
    let found = std::fs::symlink_metadata(path).unwrap();
    format!("strait.listener.{listener}@{:x}.{:x}", found.dev(), found.ino())
}

/// A client that has asked, and waits.
fn ask(path: &Path) -> UnixStream {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
    client
}

fn assert_served(mut client: UnixStream) {
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[test]
fn the_socket_of_a_file_and_its_file_outlive_the_process() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let (path, plain) = (scratch.path("local.sock"), forward_to(service.address));
    let mut strait = run(&manager, &scratch, &with_file(&plain, &path, ""));
    let name = name_of("local", &path);
    let (edge, local) = (("strait.listener.edge", 2), (&*name, 1));
    manager.wait_for(&[edge, local]);
    kill_process(process(strait.pid()), Signal::KILL).unwrap();
    strait.wait_for_end();
    let waiting = ask(&path);
    let config = std::fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let other_mode = config.replace("local.sock', ", "local.sock', mode: '0666', ");
    let file = strait.path("strait.yaml");
    let file = file.to_str().unwrap();
    strait.write("strait.yaml", &other_mode);
    let Some(mut second) = manager.start(file) else {
        println!("skipped: python3 is missing");
        return;
    };
    assert_served(waiting);
    second.wait_for_log("ready");
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!((name_of("local", &path), mode & 0o777), (name.clone(), 0o666));
    // One that ends leaves the file, as clients find the socket by it.
    kill_process(process(second.pid()), Signal::TERM).unwrap();
    assert_eq!(second.wait_for_end(), Some(0));
    let waiting = ask(&path);
    let third = manager.start(file).unwrap();
    assert_served(waiting);
    manager.wait_for(&[edge, local]);
    // It is the process's own, and goes with its listener.
    let without = config.lines().filter(|line| !line.contains("name: local"));
    strait.write("strait.yaml", &without.map(|line| format!("{line}\n")).collect::<String>());
    manager.wait_for(&[edge]);
    until("the end of the file", || (!path.exists()).then_some(()));
    drop(third);
}

#[test]
fn a_file_goes_with_a_process_whose_sockets_are_not_kept() {
    let service = Service::start("one");
    let (manager, scratch) = (Manager::with_room(0), Scratch::new());
    let path = scratch.path("local.sock");
    let mut strait = run(&manager, &scratch, &with_file(&forward_to(service.address), &path, ""));
    assert!(path.exists());
    manager.wait_for_no_room(&name_of("local", &path));
    strait.signal(Signal::TERM);
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_kept_socket_without_its_file_is_closed_and_its_listener_binds_anew() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let (path, plain) = (scratch.path("local.sock"), forward_to(service.address));
    let mut strait = run(&manager, &scratch, &with_file(&plain, &path, ""));
    let edge = ("strait.listener.edge", 2);
    let former = name_of("local", &path);
    manager.wait_for(&[edge, (&former, 1)]);
    kill_process(process(strait.pid()), Signal::KILL).unwrap();
    strait.wait_for_end();
    // Another program has been there meanwhile.
    std::fs::remove_file(&path).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    let config = strait.path("strait.yaml");
    let Some(started) = manager.start(config.to_str().unwrap()) else { return };
    started.wait_for_log("its path leads to no file any more, or to another");
    started.wait_for_log("ready");
    assert_served(ask(&path));
    let name = name_of("local", &path);
    assert_ne!(name, former);
    manager.wait_for(&[edge, (&name, 1)]);
}

#[test]
fn a_kept_socket_of_a_file_moves_with_a_handover_and_is_kept_for_the_one_after_it() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let (path, plain) = (scratch.path("local.sock"), forward_to(service.address));
    let mut strait = run(&manager, &scratch, &with_file(&plain, &path, ""));
    let name = name_of("local", &path);
    let kept = [("strait.listener.edge", 2), (&*name, 1)];
    manager.wait_for(&kept);
    let mut successors = Successors::default();
    upgraded(&strait, &mut successors);
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert_served(ask(&path));
    manager.wait_for(&kept);
    drop(successors);
    let mut waiting = ask(&path);
    // It has no such listener.
    let config = std::fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let without = config.lines().filter(|line| !line.contains("name: local"));
    strait.write("strait.yaml", &without.map(|line| format!("{line}\n")).collect::<String>());
    let file = strait.path("strait.yaml");
    let Some(_started) = manager.start(file.to_str().unwrap()) else { return };
    manager.wait_for(&kept[..1]);
    assert!(!path.exists());
    assert!(!matches!(waiting.read(&mut [0; 1]), Ok(1..)), "no process has its queue");
}

#[test]
fn what_is_kept_follows_reloads_and_handovers() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let (port, other) = (claim_port(), claim_port());
    let plain = forward_to(service.address);
    let config =
        |config: &str| with_handover(&scratch, config, "probation: 0s, fd_store: listeners");
    let mut strait = run(&manager, &scratch, &plain);
    let edge = ("strait.listener.edge", 2);
    manager.wait_for(&[edge]);
    strait.rewrite(&config(&with_second(&plain, port)));
    manager.wait_for(&[edge, ("strait.listener.second", 2)]);
    // Another address is another socket.
    strait.rewrite(&config(&with_second(&plain, other)));
    until("the other address", || TcpStream::connect(("127.0.0.1", other)).ok());
    manager.wait_for(&[edge, ("strait.listener.second", 2)]);
    until("the end of the former", || TcpListener::bind(("127.0.0.1", port)).ok());
    // The process that takes over has no such listener.
    let file = std::fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let mut successors = Successors::default();
    let without = file.lines().filter(|line| !line.contains("name: second"));
    strait.write("next.yaml", &without.map(|line| format!("{line}\n")).collect::<String>());
    let next = strait.path("next.yaml");
    let output = crate::kit::strait(&["upgrade", "-c", next.to_str().unwrap()]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let pid = out.lines().find_map(|line| line.strip_prefix("process ")?.split(' ').next());
    successors.0.push(pid.unwrap().parse().unwrap());
    assert_eq!(strait.wait_for_end().code(), Some(0));
    manager.wait_for(&[edge]);
    until("the end of its queue", || TcpStream::connect(("127.0.0.1", other)).err().map(drop));
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn sockets_of_an_address_that_a_listener_left_between_two_processes_are_closed() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let (port, other) = (claim_port(), claim_port());
    let mut strait = run(&manager, &scratch, &with_second(&forward_to(service.address), port));
    let kept = [("strait.listener.edge", 2), ("strait.listener.second", 2)];
    manager.wait_for(&kept);
    strait.signal(Signal::TERM);
    assert_eq!(strait.wait_for_end().code(), Some(0));
    let config = std::fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait.write("strait.yaml", &config.replace(&format!(":{port}'"), &format!(":{other}'")));
    let Some(_started) = manager.start(strait.path("strait.yaml").to_str().unwrap()) else {
        println!("skipped: python3 is missing");
        return;
    };
    until("the other address", || TcpStream::connect(("127.0.0.1", other)).ok());
    assert_eq!(get(SocketAddr::from(([127, 0, 0, 1], other)), "/").status, 200);
    until("the end of the former", || TcpListener::bind(("127.0.0.1", port)).ok());
    manager.wait_for(&kept);
}

/// The former process still has a connection, which may take long; the new one is the main process meanwhile.
#[test]
fn a_listener_that_is_new_with_a_handover_is_kept_at_the_end_of_probation() {
    let (service, manager, scratch) = (Service::start("one"), Manager::new(), Scratch::new());
    let (first, second) = (claim_port(), claim_port());
    let plain = forward_to(service.address);
    let mut strait = run(&manager, &scratch, &with_second(&plain, first));
    manager.wait_for(&[("strait.listener.edge", 2), ("strait.listener.second", 2)]);
    let mut waits = Client::connect(SocketAddr::from(([127, 0, 0, 1], first)));
    waits.send("GET /gate HTTP/1.1\r\nhost: test\r\n\r\n");
    service.wait_at_gate();
    // Its listener is gone in the new process, which has another.
    let file = std::fs::read_to_string(strait.path("strait.yaml")).unwrap();
    let file = file.replace(&format!(":{first}'"), &format!(":{second}'"));
    strait.write("strait.yaml", &file.replace("name: second", "name: third"));
    let mut successors = Successors::default();
    upgraded(&strait, &mut successors);
    manager.wait_for(&[("strait.listener.edge", 2), ("strait.listener.third", 2)]);
    service.open_gate();
    assert_eq!(waits.receive().status, 200);
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn a_listener_that_a_reload_takes_away_after_a_handover_is_closed() {
    let (service, scratch) = (Service::start("one"), Scratch::new());
    let port = claim_port();
    let plain = forward_to(service.address);
    let config = |config: &str| with_handover(&scratch, config, "probation: 0s");
    let mut strait = Strait::run(&config(&with_second(&plain, port)));
    let mut successors = Successors::default();
    upgraded(&strait, &mut successors);
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert_eq!(get(SocketAddr::from(([127, 0, 0, 1], port)), "/").status, 200);
    strait.rewrite(&config(&plain));
    strait.wait_for_version(2);
    until("the end of its queue", || TcpStream::connect(("127.0.0.1", port)).err().map(drop));
}
