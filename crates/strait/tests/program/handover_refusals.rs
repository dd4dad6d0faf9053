//! What a running process does not hand itself over to.

use std::fs::{self, Permissions};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::handover::{Successors, upgraded, with_handover};
use crate::kit::{Client, Scratch, Service, Strait, forward_to, get, strait, text};

fn run(service: &Service) -> Strait {
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), "probation: 0s");
    Strait::run_in(scratch, &config)
}

/// A connection to the socket for handovers.
fn connect(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: usize) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let rights = vec![std::os::fd::AsFd::as_fd(socket); descriptors];
    if descriptors > 0 {
        assert!(with.push(SendAncillaryMessage::ScmRights(&rights)));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut with, SendFlags::NOSIGNAL);
    // It may be closed already.
    let _ = sent;
}

/// Reads to the end: what the other side says, at most its reason.
fn wait_for_end(socket: &OwnedFd) {
    let mut buffer = [0; 1024];
    loop {
        let mut space: [MaybeUninit<u8>; 0] = [];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut buffer)];
        let received = rustix::net::recvmsg(socket, &mut into, &mut with, RecvFlags::empty());
        if received.map_or(0, |it| it.bytes) == 0 {
            return;
        }
    }
}

#[test]
fn what_is_no_conversation_is_closed_and_hinders_no_handover() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service);
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    let path = strait.path("handover/strait.sock");
    let another_magic = b"\0\x01strait\0X\x01\x01\x051.0.0\0\x01\x0b\x28\0";
    let too_long = vec![0; 70_000];
    for (bytes, descriptors) in [
        (&b"x"[..], 0),
        (b"\x7f\xff garbage", 0),
        (b"\0\x06", 0),
        (b"\0\x0c", 0),
        (another_magic, 0),
        (&too_long, 0),
        (b"\0\x01", 3),
    ] {
        let socket = connect(&path);
        send(&socket, bytes, descriptors);
        wait_for_end(&socket);
        assert_eq!(kept.get("/").field("connection"), None);
    }
    // One that says nothing, and one that is gone at once.
    let silent = connect(&path);
    drop(connect(&path));
    wait_for_end(&silent);
    upgraded(&strait, &mut successors);
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert_eq!(kept.get("/").status, 200);
}

#[test]
fn a_folder_that_others_may_enter_is_refused_by_both_sides() {
    let service = Service::start("one");
    let strait = run(&service);
    let folder = strait.path("handover");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let file = strait.path("strait.yaml");
    let file = file.to_str().unwrap();
    for arguments in [&["run", "--take-over", "-c", file][..], &["run", "-c", file]] {
        let output = self::strait(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("others may enter it (mode 755): chmod 700"), "{error}");
    }
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(strait.metric("strait_generation"), 0.0);
}
