//! What a running process does not hand itself over to.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use handover::{Hello, Message, Purpose};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Signal;

use crate::handover::{Successors, upgrade, upgraded, with_handover};
use crate::kit::{
    Client, Scratch, Service, Strait, WITH_A_SMALL_DISK, can_mount, forward_to, get, strait, text,
    until,
};

fn run(service: &Service) -> Strait {
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), "probation: 0s");
    Strait::run_in(scratch, &config)
}

/// A connection to the socket for handovers.
pub(crate) fn connect(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], descriptors: usize) {
    send_with(socket, bytes, &vec![socket.as_fd(); descriptors]);
}

pub(crate) fn send_with(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(with.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut with, SendFlags::NOSIGNAL);
    // It may be closed already.
    let _ = sent;
}

/// Reads to the end: what the other side says, at most its reason.
pub(crate) fn wait_for_end(socket: &OwnedFd) {
    while receive(socket).is_some() {}
}

/// The next packet, or none at the end.
pub(crate) fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    // Descriptors are lost on their way.
    let mut space: [MaybeUninit<u8>; 0] = [];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut buffer)];
    let received = rustix::net::recvmsg(socket, &mut into, &mut with, RecvFlags::empty());
    let length = received.map_or(0, |it| it.bytes);
    buffer.truncate(length);
    (length > 0).then_some(buffer)
}

/// How often handovers and peers failed for this cause.
pub(crate) fn failures(strait: &Strait, cause: &str) -> u32 {
    let metrics = get(strait.admin, "/metrics").text();
    let series = format!("strait_handover_failures_total{{cause=\"{cause}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
    count.unwrap_or_else(|| panic!("{series} in {metrics}")).parse().unwrap()
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
    let mut wanted = BTreeMap::new();
    for (bytes, descriptors, cause) in [
        (&b"x"[..], 0, "garbled"),
        (b"\x7f\xff garbage", 0, "garbled"),
        (b"\0\x06", 0, "out_of_turn"),
        (b"\0\x0c", 0, "out_of_turn"),
        (another_magic, 0, "garbled"),
        (&too_long, 0, "garbled"),
        (b"\0\x01", 3, "descriptors"),
    ] {
        let socket = connect(&path);
        send(&socket, bytes, descriptors);
        wait_for_end(&socket);
        *wanted.entry(cause).or_default() += 1;
        assert_eq!(kept.get("/").field("connection"), None);
    }
    // One that says nothing, and one that is gone at once.
    let silent = connect(&path);
    drop(connect(&path));
    wait_for_end(&silent);
    wanted.extend([("silent", 1), ("closed", 1)]);
    for (cause, wanted) in wanted {
        until(cause, || (failures(&strait, cause) == wanted).then_some(()));
    }
    assert!(strait.times_logged("a handover is refused") < 9, "its lines are bounded");
    // Those that stay silent are not waited for: they are refused because another one has come.
    let silent: Vec<_> = (0..8).map(|_| connect(&path)).collect();
    upgraded(&strait, &mut successors);
    for socket in silent {
        let reason = receive(&socket).unwrap();
        let reason = String::from_utf8_lossy(&reason).into_owned();
        assert!(reason.contains("is taking over already"), "{reason}");
        wait_for_end(&socket);
    }
    assert_eq!(strait.wait_for_end().code(), Some(0));
    assert_eq!(kept.get("/").status, 200);
}

#[test]
fn another_user_is_refused_before_it_gets_anything() {
    let service = Service::start("one");
    let mut strait = run(&service);
    let path = strait.path("handover/strait.sock");
    // The folder was private when the process started. Since then others have got in.
    for (path, mode) in [(strait.path("."), 0o755), (strait.path("handover"), 0o755)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    let says = "import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
while packet := s.recv(70000): print(packet[:2].hex(), packet[3:].decode())";
    let mut other = Command::new("python3");
    other.args(["-c", says]).arg(&path).uid(65_534).current_dir("/");
    let Ok(other) = other.output() else {
        return println!("skipped: python3 cannot be run as another user");
    };
    let (said, error) = (text(&other.stdout), text(&other.stderr));
    if error.contains("PermissionError") {
        return println!("skipped: another user cannot enter the folders above {}", path.display());
    }
    // One frame, which gives the reason (GiveUp), and the end.
    assert_eq!(said, "000d user 65534 may not take over: add 65534 to handover.users\n", "{error}");
    until("the count", || (failures(&strait, "user") == 1).then_some(()));
    strait.wait_for_log("user 65534 may not take over");
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(strait.metric("strait_generation"), 0.0);
}

/// Says hello as a process that takes over, and reads what the running one is configured to do.
fn begin(path: &Path) -> OwnedFd {
    // `strait upgrade --check` would say the same.
    begin_reading(path, (0..100).collect())
}

/// The same as one that reads these forms of connections.
fn begin_reading(path: &Path, forms_read: Vec<u16>) -> OwnedFd {
    let socket = connect(path);
    let hello =
        Hello::new("test", Purpose::Take { forms_read, descriptors: 1 << 20, is_check: false });
    send(&socket, &Message::Hello(hello).encode(), 0);
    loop {
        let frame = receive(&socket).expect("what it is configured to do");
        if let Ok(Some(Message::Parts { is_last: true, .. })) = Message::decode(&frame) {
            return socket;
        }
    }
}

#[test]
fn a_process_that_does_not_keep_to_the_conversation_is_refused_and_counted() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service);
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    let path = strait.path("handover/strait.sock");
    let differences = Message::Differences { differences: Vec::new(), is_last: false }.encode();
    let gives_up = Message::GiveUp { reason: "of its own".to_owned() }.encode();
    // Once it has sent listening sockets, the running process kills one that does this: here that would be the test.
    for (frame, descriptors, cause) in [
        (Some(&Message::Serving.encode()[..]), 0, "out_of_turn"),
        (Some(b"\0\x04\xff\xff"), 0, "garbled"),
        (Some(&differences[..]), 2, "descriptors"),
        (Some(&gives_up[..]), 0, "gave_up"),
        (None, 0, "silent"),
        (None, 0, "closed"),
    ] {
        let before = failures(&strait, cause);
        let socket = begin(&path);
        // While one takes over, another is turned away.
        let other = connect(&path);
        wait_for_end(&other);
        if let Some(frame) = frame {
            send(&socket, frame, descriptors);
        }
        match cause {
            "closed" => drop(socket),
            _ => wait_for_end(&socket),
        }
        until(cause, || (failures(&strait, cause) == before + 1).then_some(()));
        assert_eq!(strait.admin_json("/handover")["last"]["result"], "rolled_back");
        assert_eq!(kept.get("/").field("connection"), None);
        assert_eq!(get(strait.listener, "/").status, 200);
    }
    assert_eq!(failures(&strait, "busy"), 6);
    upgraded(&strait, &mut successors);
    assert_eq!(kept.get("/").status, 200);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound is one line a second")]
fn a_flood_of_processes_that_say_hello_and_end_has_a_bounded_number_of_lines() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let mut strait = run(&service);
    let path = strait.path("handover/strait.sock");
    let began = std::time::Instant::now();
    let hello = Purpose::Take { forms_read: vec![1], descriptors: 1 << 20, is_check: false };
    let hello = Message::Hello(Hello::new("test", hello)).encode();
    let mut welcomed = 0;
    // It may still be busy with the one before.
    while welcomed < 60 {
        let socket = connect(&path);
        send(&socket, &hello, 0);
        let answer = receive(&socket).map(|frame| Message::decode(&frame));
        welcomed += u32::from(matches!(answer, Some(Ok(Some(Message::Welcome(_))))));
    }
    let counted = || failures(&strait, "closed");
    until("all of them counted", || (counted() == 60).then_some(()));
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    let ends = strait.times_logged("rolled back");
    assert!((1..=1 + seconds).contains(&ends), "{ends} in {seconds} s");
    let has_phases = |strait: &Strait| strait.all_logged().contains(r#""phase": String("hello")"#);
    assert!(!has_phases(&strait), "{}", strait.all_logged());
    // One that an operator asks for is in the log with all of its phases.
    upgraded(&strait, &mut successors);
    assert!(has_phases(&strait), "{}", strait.all_logged());
    assert_eq!(strait.wait_for_end().code(), Some(0));
}

#[test]
fn a_process_that_reads_no_connections_of_this_form_gets_all_else_and_they_drain() {
    let service = Service::start("one");
    let mut strait = run(&service);
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    let taker = begin_reading(&strait.path("handover/strait.sock"), vec![999]);
    let is_met = |wanted: fn(&Message) -> bool| {
        while let Ok(message) = Message::decode(&receive(&taker).expect("it goes on")) {
            if message.is_some_and(|message| wanted(&message)) {
                return;
            }
        }
    };
    send(&taker, &Message::Differences { differences: Vec::new(), is_last: true }.encode(), 0);
    is_met(|message| matches!(message, Message::Sockets { is_last: true, .. }));
    send(&taker, &Message::Serving.encode(), 0);
    is_met(|message| matches!(message, Message::Commit));
    send(&taker, &Message::Committed.encode(), 0);
    let handed_over = strait.wait_for_entry("handed over");
    // The client's connection, and that to the service.
    assert_eq!((&handed_over["groups"], &handed_over["left"]), (&0.into(), &2.into()));
    assert_eq!(kept.get("/").status, 200);
    drop(kept);
    assert_eq!(strait.wait_for_end().code(), Some(0), "{}", strait.all_logged());
}

#[test]
fn a_process_that_is_asked_to_end_amid_a_handover_ends_after_it_or_at_a_third_signal() {
    for signals in [1, 2, 3] {
        let service = Service::start("one");
        let mut strait = run(&service);
        let mut kept = Client::connect(strait.listener);
        assert_eq!(kept.get("/").status, 200);
        let taker = begin(&strait.path("handover/strait.sock"));
        strait.signal(Signal::TERM);
        strait.wait_for_log("a handover is in progress: the process ends after it");
        let response = kept.get("/");
        assert_eq!((response.status, response.field("connection")), (200, None));
        assert_eq!(get(strait.listener, "/").status, 200);
        if signals > 1 {
            strait.signal(Signal::TERM);
            strait.wait_for_log("a third signal stops this process at once");
        }
        if signals == 3 {
            strait.signal(Signal::TERM);
            strait.wait_for_log("stopping at once");
            assert_eq!(strait.wait_for_end().code(), Some(1), "{}", strait.all_logged());
            assert!(kept.is_closed());
            continue;
        }
        let response = kept.get("/");
        assert_eq!((response.status, response.field("connection")), (200, None));
        // The end of the handover is no further signal, which would cut connections off.
        send(&taker, &Message::GiveUp { reason: "of its own".to_owned() }.encode(), 0);
        strait.wait_for_log("the handover is rolled back");
        assert_eq!(strait.wait_for_end().code(), Some(0), "{}", strait.all_logged());
        assert!(kept.is_closed());
    }
}

#[test]
fn a_file_that_changes_amid_a_handover_is_read_after_it() {
    let service = Service::start("one");
    let strait = run(&service);
    let taker = begin(&strait.path("handover/strait.sock"));
    let config = fs::read_to_string(strait.path("strait.yaml")).unwrap();
    strait.write("strait.yaml", &config.replace("prefix: /", "prefix: /new"));
    strait.signal(Signal::HUP);
    for _ in 0..20 {
        assert_eq!(get(strait.listener, "/").status, 200);
        assert_eq!(strait.metric("strait_config_version"), 1.0);
    }
    send(&taker, &Message::GiveUp { reason: "of its own".to_owned() }.encode(), 0);
    until("the change", || (strait.metric("strait_config_version") == 2.0).then_some(()));
    until("its rule", || (get(strait.listener, "/").status == 404).then_some(()));
    assert_eq!(get(strait.listener, "/new").status, 200);
}

#[test]
fn a_pipe_of_the_log_that_is_gone_refuses_the_upgrade() {
    let service = Service::start("one");
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let config = forward_to(service.address);
    let config = format!("{config}access_log: {{ output: '{}' }}\n", pipe.display());
    let config = with_handover(&scratch, &config, "probation: 0s");
    let strait = Strait::run_in(scratch, &config);
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    drop(reader);
    let output = upgrade(&strait, &[]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("this pipe has no reader; start its reader first"), "{error}");
    assert_eq!(kept.get("/").field("connection"), None);
    assert_eq!(get(strait.admin, "/ready").status, 200);
}

#[test]
fn a_full_disk_of_the_log_refuses_the_upgrade() {
    let scratch = Scratch::new();
    let folder = scratch.path("log");
    fs::create_dir(&folder).unwrap();
    let variables = [("DISK", folder.to_str().unwrap())];
    if !can_mount(&folder) {
        return;
    }
    let service = Service::start("one");
    let output = folder.join("access.log");
    let config = forward_to(service.address);
    let config = format!("{config}access_log: {{ output: '{}' }}\n", output.display());
    let config = with_handover(&scratch, &config, "probation: 0s");
    let strait = Strait::run_by(WITH_A_SMALL_DISK, Stdio::null(), &variables, &config);
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    let folder = format!("/proc/{}/root{}", strait.pid(), folder.display());
    let filler = format!("{folder}/filler");
    // It writes lines as well, but to the end of a page that it has.
    let room = fs::write(&filler, vec![0; 1 << 20]).unwrap_err();
    assert_eq!(room.kind(), std::io::ErrorKind::StorageFull);
    let output = upgrade(&strait, &[]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("its file system is full; free disk space"), "{error}");
    assert_eq!(kept.get("/").status, 200);
    fs::remove_file(&filler).unwrap();
    let mut successors = Successors::default();
    upgraded(&strait, &mut successors);
    assert_eq!(kept.get("/").status, 200);
}

#[test]
fn a_process_that_would_refuse_new_clients_for_its_limit_on_open_files_does_not_take_over() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service);
    let mut kept: Vec<_> = (0..340).map(|_| Client::connect(strait.listener)).collect();
    kept.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    let file = strait.path("strait.yaml");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 512; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_strait")])
        .args(["run", "--take-over=required", "-c", file.to_str().unwrap()])
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("has 340 downstream connections"), "{error}");
    assert!(error.contains("its limit on open files is 512"), "{error}");
    assert_eq!(strait.admin_json("/handover")["last"]["result"], "rolled_back");
    kept.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    assert_eq!(get(strait.listener, "/").status, 200);
    upgraded(&strait, &mut successors);
    kept.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
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
    // Who asks for an upgrade reads what the new process found.
    let output = upgrade(&strait, &[]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("others may enter it (mode 755): chmod 700"), "{error}");
    let check = |more: &[&str]| self::strait(&[&["check", "-c", file], more].concat());
    let (checked, denied) = (check(&[]), check(&["--deny-warnings"]));
    let error = text(&checked.stderr);
    assert_eq!((checked.status.code(), denied.status.code()), (Some(0), Some(1)), "{error}");
    assert!(
        error.contains("handover.socket") && error.contains("mode is 0755: run `chmod 700"),
        "{error}"
    );
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(text(&check(&["--deny-warnings"]).stderr), "");
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(strait.metric("strait_generation"), 0.0);
}

#[test]
fn a_check_finds_what_no_process_starts_with() {
    let (service, scratch) = (Service::start("one"), Scratch::new());
    let (folder, link) = (scratch.path("folder"), scratch.path("link"));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    symlink(&folder, &link).unwrap();
    let long = format!("/run/{}/strait.sock", "x".repeat(100));
    let linked = link.join("strait.sock");
    for (socket, says) in [
        (long.as_str(), "the path of a socket has at most 107 bytes"),
        (linked.to_str().unwrap(), "the socket's folder is a symbolic link"),
    ] {
        let config = format!("handover: {{ socket: {socket} }}\n{}", forward_to(service.address));
        let file = scratch.write("strait.yaml", &config);
        let output = strait(&["check", "--deny-warnings", "-c", &file]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(says), "{error}");
        assert_eq!(strait(&["run", "-c", &file]).status.code(), Some(1));
    }
    // A file that is no socket stays.
    let file = folder.join("strait.sock");
    fs::write(&file, "precious").unwrap();
    let config =
        format!("handover: {{ socket: {} }}\n{}", file.display(), forward_to(service.address));
    let config = scratch.write("strait.yaml", &config);
    let output = strait(&["run", "-c", &config]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("it is no socket; remove it, or give this process"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}
