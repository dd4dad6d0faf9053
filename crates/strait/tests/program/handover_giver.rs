//! What a new process does not take from a running one that does not keep to the conversation: the test is that one.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use handover::{Message, Packed, Refused, SocketKey, Welcome};
use proxy::save::VERSION as FORM;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Signal, kill_process};

use crate::handover::{process, with_handover};
use crate::handover_refusals::{receive, send_with, wait_for_end};
use crate::kit::{Scratch, Service, claim_port, forward_to, get, text, until};

/// A running process, as far as the new one can see.
struct Giver {
    scratch: Scratch,
    socket: OwnedFd,
    edge: TcpListener,
    _service: Service,
}

/// The new process, which ends with this, and the connection to it.
struct Taking {
    child: Child,
    line: OwnedFd,
}

impl Drop for Taking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Giver {
    fn new() -> Self {
        let (service, scratch) = (Service::start("one"), Scratch::new());
        let folder = scratch.path("handover");
        DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let at = SocketAddrUnix::new(folder.join("strait.sock")).unwrap();
        rustix::net::bind(&socket, &at).unwrap();
        rustix::net::listen(&socket, 8).unwrap();
        let edge = TcpListener::bind(("127.0.0.1", claim_port())).unwrap();
        let config = forward_to(service.address)
            .replace("127.0.0.1:0", &edge.local_addr().unwrap().to_string());
        let config = with_handover(&scratch, &config, "probation: 0s");
        fs::write(scratch.path("strait.yaml"), config).unwrap();
        Self { scratch, socket, edge, _service: service }
    }

    fn address(&self) -> SocketAddr {
        self.edge.local_addr().unwrap()
    }

    /// A process that takes over from this one, once it has said hello.
    fn start(&self) -> Taking {
        let child = Command::new(env!("CARGO_BIN_EXE_strait"))
            .args(["run", "--take-over=required", "-c"])
            .arg(self.scratch.path("strait.yaml"))
            .stdout(Stdio::null())
            .stderr(File::create(self.scratch.path("taker.log")).unwrap())
            .spawn()
            .unwrap();
        let line = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC).unwrap();
        let hello = receive(&line).expect("hello");
        assert!(matches!(Message::decode(&hello), Ok(Some(Message::Hello(_)))));
        Taking { child, line }
    }

    /// The same, once both have compared what they are configured to do.
    fn compared(&self) -> Taking {
        let taking = self.start();
        taking.say(&Message::Welcome(Self::welcome()), &[]);
        taking.say(&Message::Parts { parts: Vec::new(), is_last: true }, &[]);
        let differences = receive(&taking.line).expect("differences");
        assert!(matches!(Message::decode(&differences), Ok(Some(Message::Differences { .. }))));
        taking
    }

    fn welcome() -> Welcome {
        Welcome {
            version: handover::VERSION,
            program: "test".to_owned(),
            form: FORM,
            descriptors: 10,
            generation: 0,
            probation_ms: 0,
            lists_connections: false,
        }
    }

    /// Gives `taking` the listening sockets, and waits until it serves.
    fn hand_listeners(&self, taking: &Taking) {
        let keys = vec![SocketKey::Listener("edge".to_owned(), 0), SocketKey::Handover];
        let sockets = [self.edge.as_fd(), self.socket.as_fd()];
        taking.say(&Message::Sockets { keys, is_last: true }, &sockets);
        while !matches!(taking.hear(), Message::Serving) {}
    }

    fn log(&self) -> String {
        text(&fs::read(self.scratch.path("taker.log")).unwrap())
    }
}

impl Taking {
    fn say(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) {
        send_with(&self.line, &message.encode(), descriptors);
    }

    /// What it says next, but for what it says in its own time: that it runs, has much to do, or what it has counted.
    fn hear(&self) -> Message {
        loop {
            let frame = receive(&self.line).expect("it goes on");
            match Message::decode(&frame).unwrap() {
                None | Some(Message::Alive | Message::Busy | Message::TakerState(_)) => {}
                Some(message) => return message,
            }
        }
    }

    /// Waits for its end, and says its status.
    fn ended(&mut self) -> Option<i32> {
        wait_for_end(&self.line);
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_new_process_takes_no_descriptors_that_are_missing_too_many_or_no_listening_sockets() {
    let giver = Giver::new();
    let null = File::open("/dev/null").unwrap();
    let (connected, _other) = UnixStream::pair().unwrap();
    let edge = || SocketKey::Listener("edge".to_owned(), 0);
    let (listening, null, connected) = (giver.edge.as_fd(), null.as_fd(), connected.as_fd());
    for (keys, descriptors, reason) in [
        (vec![edge()], vec![], "0 descriptors came where 1 were named"),
        (
            vec![edge(), SocketKey::Handover],
            vec![listening],
            "1 descriptors came where 2 were named",
        ),
        (vec![edge()], vec![listening, listening], "2 descriptors came where 1 were named"),
        (vec![edge()], vec![null], "a socket of listener edge: "),
        (vec![edge()], vec![connected], "a socket of listener edge: "),
        (
            vec![edge(), SocketKey::Admin],
            vec![listening, null],
            "a socket of the admin interface: ",
        ),
        (vec![edge(), SocketKey::Metrics], vec![listening, connected], "a socket of the admin "),
        // No socket, one of another kind, and one that does not listen.
        (vec![edge(), SocketKey::Handover], vec![listening, null], "the socket of handovers: "),
        (
            vec![edge(), SocketKey::Handover],
            vec![listening, listening],
            "the socket of handovers: ",
        ),
        (
            vec![edge(), SocketKey::Handover],
            vec![listening, connected],
            "the socket of handovers: ",
        ),
    ] {
        let mut taking = giver.compared();
        taking.say(&Message::Sockets { keys: keys.clone(), is_last: true }, &descriptors);
        assert_eq!(taking.ended(), Some(1), "{keys:?}");
        assert!(giver.log().contains(reason), "{keys:?}: {}", giver.log());
    }
}

#[test]
fn a_new_process_ends_where_the_running_one_says_something_else_or_nothing() {
    let giver = Giver::new();
    let other_version = Message::Welcome(Welcome { version: 9_999, ..Giver::welcome() });
    let forged = "of its own\n2026-03-01T10:00:00Z ERROR \u{1b}[2J";
    let many = Message::Welcome(Welcome { descriptors: u64::MAX, ..Giver::welcome() });
    for (frame, reason) in [
        (Some(b"x".to_vec()), "cannot take over"),
        (Some(b"\x7f\xff garbage".to_vec()), "cannot take over"),
        (Some(vec![0; 70_000]), "the packet is longer than any that is expected"),
        (Some(Message::Commit.encode().to_vec()), "Commit"),
        (Some(other_version.encode().to_vec()), "9999"),
        (Some(many.encode().to_vec()), "raise the limit on open files"),
        (
            Some(Message::GiveUp { reason: forged.to_owned() }.encode().to_vec()),
            "of its own\n  2026-03-01T10:00:00Z ERROR \\u{1b}[2J",
        ),
        (None, "cannot take over"),
    ] {
        let mut taking = giver.start();
        if let Some(frame) = &frame {
            send_with(&taking.line, frame, &[]);
        }
        assert_eq!(taking.ended(), Some(1), "{frame:?}");
        assert!(giver.log().contains(reason), "{reason}: {}", giver.log());
    }
}

#[test]
fn groups_that_cannot_be_read_stay_untouched_and_the_new_process_serves() {
    let giver = Giver::new();
    let mut taking = giver.compared();
    giver.hand_listeners(&taking);
    let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
    // In front of a group stands how many connections it has, and which have a socket.
    let one = |group: &[u8]| [&[0, 0, 0, 1, 1][..], group].concat();
    let version = FORM.to_be_bytes();
    let groups = [
        (vec![255, 255, 255, 255, 1], "the group is damaged"),
        (one(&[0xff, 0xff, 1]), "form 65535"),
        (one(&[&version[..], &[0x7f; 40]].concat()), "the saved connection is damaged"),
        (one(&version), "the saved connection is damaged"),
    ];
    let packed = (7..).zip(&groups);
    let packed =
        packed.map(|(group, (bytes, _))| Packed { group, sockets: 1, bytes: bytes.clone().into() });
    let sockets: Vec<_> = pairs.iter().map(|(socket, _)| socket.as_fd()).collect();
    taking.say(&Message::Pack { batch: 0, groups: packed.collect() }, &sockets);
    taking.say(&Message::BatchEnd { batch: 0, groups: 4 }, &[]);
    let mut refused = match taking.hear() {
        Message::Taken { batch: 0, refused } => refused,
        other => panic!("{other:?}"),
    };
    refused.sort_by_key(|refused| refused.group);
    assert_eq!(refused.iter().map(|it| it.group).collect::<Vec<_>>(), [7, 8, 9, 10]);
    for (Refused { reason, .. }, (_, expected)) in refused.iter().zip(&groups) {
        assert!(reason.contains(expected), "{reason}: {expected}");
    }
    for (_, peer) in &pairs {
        peer.set_nonblocking(true).unwrap();
        let untouched = (&*peer).read(&mut [0; 8]).unwrap_err();
        assert_eq!(untouched.kind(), ErrorKind::WouldBlock, "the peer sees nothing of it");
    }
    assert_eq!(get(giver.address(), "/").status, 200);
    // It has all that it needs, and would go on alone where this process ended: this one does not.
    let other = pairs[0].0.as_fd().try_clone_to_owned().unwrap();
    drop(std::mem::replace(&mut taking.line, other));
    let ended = until("its end", || taking.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(1));
    let reason = "the old process has closed its connection to this one, and runs on";
    assert!(giver.log().contains(reason), "{}", giver.log());
}

#[test]
fn a_new_process_that_is_asked_to_end_before_it_has_taken_over_leaves_everything_to_the_running_one()
 {
    let giver = Giver::new();
    let mut taking = giver.compared();
    giver.hand_listeners(&taking);
    assert_eq!(get(giver.address(), "/").status, 200);
    kill_process(process(taking.child.id()), Signal::TERM).unwrap();
    assert_eq!(taking.ended(), Some(1), "{}", giver.log());
    assert!(giver.log().contains("asked to end before it had taken over"), "{}", giver.log());
    // The socket listens on, with what is in its queue.
    let client = TcpStream::connect(giver.address()).unwrap();
    let (_, peer) = giver.edge.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
}

#[test]
fn a_new_process_removes_the_files_of_which_the_running_one_says_that_they_are_its_own_and_no_others()
 {
    for says_so in [false, true] {
        let giver = Giver::new();
        let path = giver.scratch.path("local.sock");
        let local = UnixListener::bind(&path).unwrap();
        let file = giver.scratch.path("strait.yaml");
        let at = format!("  - {{ name: local, address: 'unix:{}', routes: all }}", path.display());
        let config = fs::read_to_string(&file).unwrap();
        fs::write(&file, config.replace("routes:\n", &format!("{at}\nroutes:\n"))).unwrap();
        let mut taking = giver.compared();
        let keys = ["edge", "local"].map(|name| SocketKey::Listener(name.to_owned(), 0));
        if says_so {
            taking.say(&Message::OwnFiles { keys: keys[1..].to_vec() }, &[]);
        }
        let sockets = [giver.edge.as_fd(), local.as_fd(), giver.socket.as_fd()];
        let keys = keys.into_iter().chain([SocketKey::Handover]).collect();
        taking.say(&Message::Sockets { keys, is_last: true }, &sockets);
        while !matches!(taking.hear(), Message::Serving) {}
        taking.say(&Message::Commit, &[]);
        while !matches!(taking.hear(), Message::Committed) {}
        kill_process(process(taking.child.id()), Signal::TERM).unwrap();
        assert_eq!(taking.ended(), Some(0), "{}", giver.log());
        assert_eq!(path.exists(), !says_so);
    }
}
