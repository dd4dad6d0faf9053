//! Packets with descriptors, between two ends in this process and from another.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ::io::packets::{
    Access, FolderError, PACKET_DESCRIPTORS_MAX, PacketError, PacketListener, Packets, PeerProcess,
    ProcessHandle, Received, barrier, check_private_folder, own_user, private_folder, set_access,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

/// A user without rights.
const OTHER_USER: u32 = 65_534;

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("strait-packets-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn packets_keep_their_bounds_and_bring_their_descriptors() {
    let (one, other) = Packets::pair().unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    one.send(b"first", &[writer.as_fd()], LONG).unwrap();
    one.send(b"second", &[], LONG).unwrap();
    drop(writer);
    let mut buffer = [0; 64];
    let Received::Packet(5, mut descriptors) = other.receive(&mut buffer, LONG).unwrap() else {
        panic!("the first packet");
    };
    assert_eq!(&buffer[..5], b"first");
    let mut file = File::from(descriptors.pop().unwrap());
    file.write_all(b"through").unwrap();
    drop(file);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");

    let Received::Packet(6, descriptors) = other.receive(&mut buffer, LONG).unwrap() else {
        panic!("the second packet");
    };
    assert!(descriptors.is_empty());
    assert!(matches!(other.receive(&mut buffer, SHORT).unwrap(), Received::Nothing));
    drop(one);
    assert!(matches!(other.receive(&mut buffer, LONG).unwrap(), Received::End));
}

#[test]
fn a_packet_has_as_many_descriptors_as_the_kernel_takes_and_no_more() {
    let (one, other) = Packets::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    let many = vec![null.as_fd(); PACKET_DESCRIPTORS_MAX];
    one.send(b"many", &many, LONG).unwrap();
    let Received::Packet(4, descriptors) = other.receive(&mut [0; 4], LONG).unwrap() else {
        panic!("a packet");
    };
    assert_eq!(descriptors.len(), PACKET_DESCRIPTORS_MAX);
    assert!(
        descriptors.iter().all(|fd| {
            rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC)
        })
    );
    let more = vec![null.as_fd(); PACKET_DESCRIPTORS_MAX + 1];
    assert!(one.send(b"more", &more, LONG).is_err());
}

#[test]
fn descriptors_that_the_limit_cuts_off_are_an_error() {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "packets::in_a_process_with_few_descriptors", "--ignored"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
#[ignore = "lowers the limits of its process; the test above runs it in one of its own"]
fn in_a_process_with_few_descriptors() {
    let (one, other) = Packets::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    one.send(b"many", &vec![null.as_fd(); 200], LONG).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum }).unwrap();
    let received = other.receive(&mut [0; 4], LONG);
    assert!(matches!(received, Err(PacketError::DescriptorsLost)), "{received:?}");
}

#[test]
fn more_descriptors_on_their_way_than_the_limit_are_an_error_that_names_it() {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "packets::in_a_process_with_a_low_limit", "--ignored"]);
    if own_user() == 0 {
        // To root the limit does not apply.
        child.uid(OTHER_USER).current_dir("/");
    }
    match child.output() {
        Err(error) => println!("skipped: another user cannot run this program: {error}"),
        Ok(child) => {
            let output = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success() && output.contains("1 passed"), "{output}");
        }
    }
}

#[test]
#[ignore = "lowers the limits of its process; the test above runs it in one of its own"]
fn in_a_process_with_a_low_limit() {
    let (one, other) = Packets::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum }).unwrap();
    let some = vec![null.as_fd(); 10];
    let error = (0..20).find_map(|_| one.send(b"some", &some, SHORT).err()).unwrap();
    assert!(error.to_string().contains("raise it (ulimit -n, LimitNOFILE=)"), "{error}");
    // What was sent before arrives, and makes room.
    assert!(
        matches!(other.receive(&mut [0; 4], LONG), Ok(Received::Packet(4, some)) if some.len() == 10)
    );
    one.send(b"some", &some, SHORT).unwrap();
}

#[test]
fn a_packet_that_is_too_long_is_an_error_and_a_full_socket_is_waited_for() {
    let (one, other) = Packets::pair().unwrap();
    one.send(&[7; 100], &[], LONG).unwrap();
    assert!(matches!(other.receive(&mut [0; 99], LONG), Err(PacketError::TooLong)));
    let full = (0..10_000).find_map(|_| one.send(&[7; 60_000], &[], SHORT).err()).unwrap();
    assert_eq!(full.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn each_side_knows_the_others_process_and_user() {
    let folder = Folder::new("peer");
    let path = folder.0.join("socket");
    private_folder(&path, Access::Owner).unwrap();
    let listener = PacketListener::bind(&path, Access::Owner).unwrap();
    let client = Packets::connect(&path).unwrap();
    let (end, open) = barrier().unwrap();
    let server = listener.accept(LONG, &end).unwrap().unwrap();
    for peer in [client.peer().unwrap(), server.peer().unwrap()] {
        assert_eq!((peer.pid, peer.uid), (std::process::id(), own_user()));
    }
    assert!(listener.accept(SHORT, &end).unwrap().is_none());
    drop(open);
    assert!(listener.accept(LONG, &end).unwrap().is_none(), "the end is not waited for");
    let taken = PacketListener::bind(&path, Access::Owner).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    set_access(&path, Access::Others).unwrap();
    assert_eq!(mode(), 0o666);
    drop(listener);
    // The file of one that is gone is replaced.
    drop(PacketListener::bind(&path, Access::Owner).unwrap());
}

#[test]
fn a_connection_waits_for_room_in_a_queue() {
    let folder = Folder::new("queue");
    let path = folder.0.join("socket");
    private_folder(&path, Access::Owner).unwrap();
    let listener = PacketListener::bind(&path, Access::Owner).unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    let mut waiting = Vec::new();
    // As fast as they come, and without patience.
    loop {
        let flags = SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        if connect(&socket, &address).is_err() {
            break;
        }
        waiting.push(socket);
    }
    assert!(waiting.len() > 100);
    let (end, _open) = barrier().unwrap();
    let other = thread::spawn(move || Packets::connect(&path).is_ok());
    // The first ones are gone.
    waiting.clear();
    while !other.is_finished() {
        drop(listener.accept(SHORT, &end).unwrap());
    }
    assert!(other.join().unwrap());
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let folder = Folder::new("folder");
    let path = folder.0.join("socket");
    assert!(
        matches!(check_private_folder(&path, Access::Owner, |_| true), Err(FolderError::System(_))),
        "missing"
    );
    private_folder(&path, Access::Owner).unwrap();
    check_private_folder(&path, Access::Owner, |user| user == own_user()).unwrap();
    for mode in [0o710, 0o701, 0o770, 0o755, 0o702] {
        fs::set_permissions(&folder.0, Permissions::from_mode(mode)).unwrap();
        let error = private_folder(&path, Access::Owner).unwrap_err();
        assert_eq!(error.to_string(), format!("others may enter it (mode {mode:o}): chmod 700"));
    }
    for (mode, is_private) in [(0o711, true), (0o710, true), (0o751, false), (0o713, false)] {
        fs::set_permissions(&folder.0, Permissions::from_mode(mode)).unwrap();
        let result = private_folder(&path, Access::Others);
        assert_eq!(result.is_ok(), is_private, "{mode:o}: {result:?}");
        if let Err(error) = result {
            let says = format!("others may list or change it (mode {mode:o}): chmod 711");
            assert_eq!(error.to_string(), says);
        }
    }
    fs::set_permissions(&folder.0, Permissions::from_mode(0o700)).unwrap();
    let link = Folder::new("link");
    std::os::unix::fs::symlink(&folder.0, &link.0).unwrap();
    assert!(check_private_folder(&link.0.join("socket"), Access::Owner, |_| true).is_err());
    fs::remove_file(&link.0).unwrap();
    if own_user() == 0 {
        rustix::fs::chown(&folder.0, Some(rustix::fs::Uid::from_raw(65_534)), None).unwrap();
        assert!(matches!(
            private_folder(&path, Access::Owner),
            Err(FolderError::Others { uid: 65_534, own: 0 })
        ));
    }
}

#[test]
fn a_process_that_stands_still_can_be_ended() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let handle = ProcessHandle::open(child.id()).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    assert!(!handle.wait(SHORT).unwrap());
    handle.kill().unwrap();
    assert!(handle.wait(LONG).unwrap());
    child.wait().unwrap();
    handle.kill().unwrap();
    assert!(ProcessHandle::open(0).is_err());
}

/// Its number may be another process's by then, which is not to be killed for it.
#[test]
fn a_process_that_has_ended_is_not_taken_for_who_has_its_connection_now() {
    let folder = Folder::new("ended-peer");
    private_folder(&folder.0.join("socket"), Access::Owner).unwrap();
    let listener = PacketListener::bind(&folder.0.join("socket"), Access::Owner).unwrap();
    let connect = |then: &str| {
        let script = format!(
            "import os, socket\n\
             s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
             s.connect('socket')\n\
             os.set_inheritable(s.fileno(), True)\n{then}"
        );
        let mut command = Command::new("python3");
        command.args(["-c", &script]).current_dir(&folder.0).spawn().unwrap()
    };
    let (end, _open) = barrier().unwrap();
    let accept = || listener.accept(LONG, &end).unwrap().unwrap();

    let mut child = connect("os.execvp('sleep', ['sleep', '60'])");
    let line = accept();
    let Ok(PeerProcess::Running(process)) = line.peer_process() else { panic!("it runs") };
    assert!(!line.is_closed());
    process.kill().unwrap();
    assert!(process.wait(LONG).unwrap() && line.is_closed());
    child.wait().unwrap();

    let mut child = connect("os.spawnvp(os.P_NOWAIT, 'sleep', ['sleep', '60'])\nos._exit(0)");
    let line = accept();
    child.wait().unwrap();
    assert!(matches!(line.peer_process(), Ok(PeerProcess::Ended)));
    assert!(!line.is_closed());
}
