//! What the process reports to the service manager (sd_notify(3), protocol of systemd).
//!
//! A message is a datagram of lines `NAME=value`, sent to the unix socket that `NOTIFY_SOCKET` names.
//! Without the variable nothing is sent. Sending never waits: what the socket does not take is kept, in
//! its order, and sent later.
//!
//! ```text
//!   started ──READY──► ready ──RELOADING──► reading ──READY──► ready ──STOPPING──► ends
//! ```
//!
//! `WATCHDOG=1` is sent where `WATCHDOG_USEC` asks for it, twice in that time, and only after every
//! worker has answered a question that its loop takes in turn: a worker that hangs lets the service
//! manager restart the process. While the process ends, workers stop one by one and are not asked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix};

/// Messages that wait for room in the socket. Beyond, the oldest is dropped: later ones say more.
const UNSENT_MAX: usize = 16;

mod stored;

pub use stored::{STORED_CONNECTIONS, SocketFileId, StoredSocket, stored_name};

/// Descriptors in one message, at most (the kernel's `SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;

/// Messages about descriptors that wait for room in the socket: each tells of another listener. Beyond, a listener is not kept.
const STORING_MAX: usize = 1 << 16;

/// The connection to the service manager, or none.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    unsent: VecDeque<String>,
    /// About descriptors, with those that go along.
    storing: VecDeque<(String, Vec<OwnedFd>)>,
    /// The status that was sent last.
    status: String,
    /// Whether the last message failed: that is logged once, not for each message.
    has_failed: bool,
    watchdog: Option<Watchdog>,
    /// Whether another process is the service: what waits is sent, and nothing else.
    is_succeeded: bool,
}

/// When to say that everything is alive, and whose answer is missing.
#[derive(Debug)]
struct Watchdog {
    /// Half of what the service manager waits, ns.
    interval: u64,
    /// Monotonic time, ns.
    next_at: u64,
    /// Questions to workers that are not answered.
    asked: BTreeSet<u64>,
}

impl ServiceManager {
    /// As the environment of the process with this id says: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and
    /// `WATCHDOG_PID`.
    ///
    /// # Errors
    ///
    /// `NOTIFY_SOCKET` names no unix socket, or the system has no descriptor left.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
        pid: u32,
    ) -> io::Result<Self> {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let address = address(&name)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_ours =
            variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(pid.into());
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0);
        let watchdog = watchdog.map(|micros| Watchdog {
            interval: micros.saturating_mul(1000) / 2,
            next_at: 0,
            asked: BTreeSet::new(),
        });
        Ok(Self { socket: Some((socket, address)), watchdog, ..Self::default() })
    }

    /// Whether there is one.
    pub(crate) const fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// The process serves.
    pub(crate) fn ready(&mut self, status: &str) {
        self.change("READY=1", status);
    }

    /// The process reads its configuration again, which began at this time of `CLOCK_MONOTONIC`, µs.
    pub(crate) fn reloading(&mut self, began: u64, status: &str) {
        self.change(&format!("RELOADING=1\nMONOTONIC_USEC={began}"), status);
    }

    /// The process ends, within `at_most`.
    pub(crate) fn stopping(&mut self, at_most: Duration, status: &str) {
        let micros = at_most.as_micros();
        self.change(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}"), status);
    }

    /// The process with this id is the service from now on, and reports for itself: this one says nothing more.
    pub(crate) fn succeeded_by(&mut self, successor: u32) {
        self.send(format!("MAINPID={successor}"));
        self.watchdog = None;
        self.is_succeeded = true;
    }

    /// Has it keep a listener's sockets for the next process, and returns the names that these have there.
    pub(crate) fn store_listener(
        &mut self,
        listener: &str,
        sockets: Vec<OwnedFd>,
    ) -> BTreeSet<String> {
        let mut by_file: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for socket in sockets {
            let file = match unix_path(&socket) {
                None => None,
                // Without its file no client finds it.
                Some(path) => match SocketFileId::at(&path) {
                    None => continue,
                    file => file,
                },
            };
            let of_file = by_file.entry(file).or_default();
            // Workers share the socket of a file.
            if file.is_none() || of_file.is_empty() {
                of_file.push(socket);
            }
        }
        let mut names = BTreeSet::new();
        for (file, sockets) in by_file {
            let Some(name) = stored_name(listener, file) else {
                tracing::warn!(
                    listener,
                    "the name is too long for the service manager to keep its sockets"
                );
                continue;
            };
            let mut sockets = sockets.into_iter().peekable();
            while sockets.peek().is_some() {
                let some = sockets.by_ref().take(DESCRIPTORS_MAX).collect();
                self.send_storing(format!("FDSTORE=1\nFDNAME={name}"), some);
            }
            names.insert(name);
        }
        names
    }

    /// Has it close what it keeps under this name.
    pub(crate) fn forget(&mut self, name: &str) {
        self.send_storing(format!("FDSTOREREMOVE=1\nFDNAME={name}"), Vec::new());
    }

    /// Has it keep the end of a queue for the next process, and close `barrier` then. Says whether there is a service manager.
    pub(crate) fn store_connections(&mut self, queue: OwnedFd, barrier: OwnedFd) -> bool {
        self.send_storing(format!("FDSTORE=1\nFDNAME={STORED_CONNECTIONS}"), vec![queue]);
        self.send_storing("BARRIER=1".to_owned(), vec![barrier]);
        self.socket.is_some()
    }

    /// Has it close what it keeps of connections.
    pub(crate) fn forget_connections(&mut self) {
        self.forget(STORED_CONNECTIONS);
    }

    fn send_storing(&mut self, message: String, descriptors: Vec<OwnedFd>) {
        let is_heard = self.socket.is_some() && !self.is_succeeded;
        if is_heard && self.storing.len() < STORING_MAX {
            self.storing.push_back((message, descriptors));
            self.flush();
        }
    }

    /// What `systemctl status` shows, if it is another text than before.
    pub(crate) fn status(&mut self, status: &str) {
        if self.status != status {
            status.clone_into(&mut self.status);
            self.send(format!("STATUS={status}"));
        }
    }

    /// Whether the workers are to be asked now whether they are alive.
    pub(crate) fn is_watchdog_due(&self, now: u64) -> bool {
        let watchdog = self.watchdog.as_ref();
        watchdog.is_some_and(|watchdog| watchdog.asked.is_empty() && watchdog.next_at <= now)
    }

    /// These questions were asked of the workers; without any, control alone is alive.
    pub(crate) fn on_asked(&mut self, requests: impl Iterator<Item = u64>, now: u64) {
        let Some(watchdog) = &mut self.watchdog else { return };
        watchdog.asked.extend(requests);
        watchdog.next_at = now.saturating_add(watchdog.interval);
        if watchdog.asked.is_empty() {
            self.send("WATCHDOG=1".to_owned());
        }
    }

    /// A worker answered. Whether this was a question of the watchdog.
    pub(crate) fn on_answer(&mut self, request: u64) -> bool {
        let Some(watchdog) = &mut self.watchdog else { return false };
        let was_asked = watchdog.asked.remove(&request);
        if was_asked && watchdog.asked.is_empty() {
            self.send("WATCHDOG=1".to_owned());
        }
        was_asked
    }

    /// Workers are not asked any more: the process ends.
    pub(crate) fn forget_workers(&mut self) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.asked.clear();
        }
    }

    /// Sends what has waited. Called now and then.
    pub(crate) fn flush(&mut self) {
        let Some((socket, address)) = &self.socket else { return self.unsent.clear() };
        while let Some((message, descriptors)) = self.storing.pop_front() {
            match send_with(socket, address, &message, &descriptors) {
                Err(Errno::AGAIN) => {
                    self.storing.push_front((message, descriptors));
                    // Others keep their order behind it.
                    return;
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        let message = message.escape_default();
                        tracing::warn!("NOTIFY_SOCKET: {error}; not sent: {message}");
                    }
                }
                Ok(()) => self.has_failed = false,
            }
        }
        while let Some(message) = self.unsent.pop_front() {
            match socket.send_to_addr(message.as_bytes(), address) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.push_front(message);
                    break;
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        let message = message.escape_default();
                        tracing::warn!("NOTIFY_SOCKET: {error}; not sent: {message}");
                    }
                }
                Ok(_) => self.has_failed = false,
            }
        }
    }

    fn change(&mut self, state: &str, status: &str) {
        status.clone_into(&mut self.status);
        self.send(format!("{state}\nSTATUS={status}"));
    }

    fn send(&mut self, message: String) {
        if self.is_succeeded {
            return;
        }
        if self.unsent.len() == UNSENT_MAX {
            self.unsent.pop_front();
        }
        self.unsent.push_back(message);
        self.flush();
    }
}

fn send_with(
    socket: &UnixDatagram,
    address: &SocketAddr,
    message: &str,
    descriptors: &[OwnedFd],
) -> rustix::io::Result<()> {
    let address = match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => SocketAddrUnix::new(path)?,
        (None, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
        (None, None) => return Err(Errno::INVAL),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    if !descriptors.is_empty() && !with.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::INVAL);
    }
    let text = [io::IoSlice::new(message.as_bytes())];
    rustix::net::sendmsg_addr(socket, &address, &text, &mut with, SendFlags::NOSIGNAL).map(drop)
}

/// Where a unix socket listens; none for TCP.
fn unix_path(socket: &OwnedFd) -> Option<PathBuf> {
    let name = rustix::net::getsockname(socket).ok()?;
    let name = SocketAddrUnix::try_from(name).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(name.path_bytes().unwrap_or_default())))
}

/// `/run/x` is a path, `@x` a name in the abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor @ and a name")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A service manager on a socket of its own, and what reaches it.
    fn manager(name: &str, more: &[(&str, &str)]) -> (ServiceManager, UnixDatagram) {
        let name = format!("strait-notify-{}-{name}", std::process::id());
        let bound = SocketAddr::from_abstract_name(&name).unwrap();
        let receiver = UnixDatagram::bind_addr(&bound).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let variable = |wanted: &str| {
            let more = more.iter().find(|(name, _)| *name == wanted);
            let socket = (wanted == "NOTIFY_SOCKET").then(|| format!("@{name}").into());
            socket.or_else(|| more.map(|(_, value)| OsString::from(value)))
        };
        (ServiceManager::from_environment(variable, 7).unwrap(), receiver)
    }

    fn received(receiver: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 1024];
        std::iter::from_fn(|| receiver.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec()))
            .map(|message| String::from_utf8(message).unwrap())
            .collect()
    }

    #[test]
    fn each_state_is_a_datagram_with_a_status() {
        let (mut manager, receiver) = manager("states", &[]);
        manager.ready("a");
        manager.status("a");
        manager.status("b");
        manager.reloading(12, "c");
        manager.stopping(Duration::from_millis(3), "d");
        let expected = [
            "READY=1\nSTATUS=a",
            "STATUS=b",
            "RELOADING=1\nMONOTONIC_USEC=12\nSTATUS=c",
            "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000\nSTATUS=d",
        ];
        assert_eq!(received(&receiver), expected);
        assert!(!manager.is_watchdog_due(u64::MAX), "not asked for");
    }

    #[test]
    fn a_process_that_was_succeeded_names_the_other_and_says_nothing_more() {
        let (mut manager, receiver) = manager("succeeded", &[("WATCHDOG_USEC", "2000")]);
        manager.succeeded_by(4711);
        manager.stopping(Duration::from_millis(3), "d");
        assert_eq!(received(&receiver), ["MAINPID=4711"]);
        assert!(!manager.is_watchdog_due(u64::MAX));
    }

    #[test]
    fn the_name_of_the_other_process_waits_for_room_and_nothing_follows_it() {
        let (mut manager, receiver) = manager("succeeded-full", &[]);
        let mut sent = 0;
        while manager.unsent.is_empty() {
            manager.status(&sent.to_string());
            sent += 1;
        }
        manager.succeeded_by(4711);
        manager.status("another");
        assert!(!received(&receiver).contains(&"MAINPID=4711".to_owned()));
        manager.flush();
        assert_eq!(received(&receiver).last().map(String::as_str), Some("MAINPID=4711"));
    }

    #[test]
    fn sockets_are_kept_by_their_listener_s_name_and_file() {
        let (mut manager, receiver) = manager("store", &[]);
        let tcp = |count: usize| {
            let bind = |_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
            (0..count).map(bind).collect::<Vec<OwnedFd>>()
        };
        let edge = manager.store_listener("a b", tcp(2));
        assert_eq!(edge, ["strait.listener.a%20b".to_owned()].into());
        manager.store_listener("many", tcp(254));
        let path = std::env::temp_dir().join(format!("strait-stored-{}", std::process::id()));
        let unix = OwnedFd::from(UnixListener::bind(&path).unwrap());
        let file = SocketFileId::at(&path).unwrap();
        let both = vec![unix.try_clone().unwrap(), unix.try_clone().unwrap()];
        let names = manager.store_listener("file", both.into_iter().chain(tcp(1)).collect());
        let of_file = stored_name("file", Some(file)).unwrap();
        assert_eq!(names, ["strait.listener.file".to_owned(), of_file.clone()].into());
        std::fs::remove_file(&path).unwrap();
        assert!(manager.store_listener("file", vec![unix]).is_empty(), "no client finds it");
        manager.forget("strait.listener.a%20b");
        assert!(manager.store_listener(&"x".repeat(300), tcp(1)).is_empty());
        let expected = [
            "FDSTORE=1\nFDNAME=strait.listener.a%20b",
            "FDSTORE=1\nFDNAME=strait.listener.many",
            "FDSTORE=1\nFDNAME=strait.listener.many",
            "FDSTORE=1\nFDNAME=strait.listener.file",
            &format!("FDSTORE=1\nFDNAME={of_file}"),
            "FDSTOREREMOVE=1\nFDNAME=strait.listener.a%20b",
        ];
        assert_eq!(received(&receiver), expected);
    }

    #[test]
    fn the_watchdog_waits_for_every_worker() {
        let asked = [("WATCHDOG_USEC", "2000"), ("WATCHDOG_PID", "7")];
        let (mut manager, receiver) = manager("watchdog", &asked);
        assert!(manager.is_watchdog_due(0));
        manager.on_asked([3, 4].into_iter(), 0);
        assert!(manager.on_answer(3));
        assert!(!manager.on_answer(9), "another question");
        assert_eq!(received(&receiver), [""; 0]);
        assert!(!manager.is_watchdog_due(5_000_000), "one has not answered");
        assert!(manager.on_answer(4));
        assert_eq!(received(&receiver), ["WATCHDOG=1"]);
        assert!(!manager.is_watchdog_due(999_999));
        assert!(manager.is_watchdog_due(1_000_000));
        manager.on_asked([5].into_iter(), 1_000_000);
        manager.forget_workers();
        manager.on_asked(std::iter::empty(), 2_000_000);
        assert_eq!(received(&receiver), ["WATCHDOG=1"], "control alone");
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let (manager, _receiver) =
            manager("other", &[("WATCHDOG_USEC", "2000"), ("WATCHDOG_PID", "8")]);
        assert!(!manager.is_watchdog_due(u64::MAX));
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_later_in_its_order() {
        let (mut manager, receiver) = manager("full", &[]);
        let mut sent = 0;
        while manager.unsent.len() < 2 {
            manager.status(&sent.to_string());
            sent += 1;
        }
        let mut all = received(&receiver);
        manager.flush();
        all.extend(received(&receiver));
        let expected: Vec<_> = (0..sent).map(|n| format!("STATUS={n}")).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn without_the_variable_nothing_is_sent_and_a_wrong_one_is_an_error() {
        let mut none = ServiceManager::from_environment(|_| None, 7).unwrap();
        none.ready("a");
        assert!(none.unsent.is_empty());
        let wrong =
            |name: &str| Some(name).filter(|name| *name == "NOTIFY_SOCKET").map(|_| "x".into());
        assert!(ServiceManager::from_environment(wrong, 7).is_err());
    }
}
