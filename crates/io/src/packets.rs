//! Packets with descriptors between two processes of this machine (`SOCK_SEQPACKET`, `SCM_RIGHTS`).
//!
//! A packet arrives whole or not at all, and in its order. The socket's file stands in a folder that
//! no other user may enter ([`private_folder`]), and each side can ask the kernel who the other is
//! ([`Packets::peer`]). Unlike the rest of the crate, calls wait, for as long as the caller says: no worker
//! makes them.

mod folder;
mod peer_process;
mod waiting;

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, sockopt,
};

pub use self::folder::{
    Access, FolderError, check_private_folder, own_user, private_folder, set_access,
};
use self::peer_process::of_number;
pub use self::peer_process::{PeerProcess, ProcessHandle};
pub use self::waiting::{Barrier, barrier};
use self::waiting::{wait, wait_for_any};
use crate::option;
use crate::socket::SOCKET_FLAGS;

/// Descriptors in one packet, at most (the kernel's `SCM_MAX_FD`).
pub const PACKET_DESCRIPTORS_MAX: usize = 253;

/// What `ETOOMANYREFS` means for an operator.
const TOO_MANY: &str = "more descriptors are on their way between processes of this user than the limit on open \
                        files: raise it (ulimit -n, LimitNOFILE=)";

/// Processes that wait to be accepted.
const BACKLOG: i32 = 128;

/// How long a connection waits for room in the queue of a process that listens. Others may fill it, who are not served.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where other processes connect to. Its file stays when it is closed.
#[derive(Debug)]
pub struct PacketListener {
    fd: OwnedFd,
}

/// One connection.
#[derive(Debug)]
pub struct Packets {
    fd: OwnedFd,
}

/// The other process of a connection, as of when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process; 0 where this process's PID namespace has no id for it.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// What came.
#[derive(Debug)]
pub enum Received {
    /// A packet of so many bytes, which stand in the buffer, with these descriptors.
    Packet(usize, Vec<OwnedFd>),
    /// The other side's end.
    End,
    /// Nothing, in that time.
    Nothing,
}

/// Why a packet cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The kernel had no room for all descriptors and has closed them: the limit on open files is too low.
    #[error(
        "descriptors were lost on their way: raise the limit on open files (ulimit -n, LimitNOFILE=)"
    )]
    DescriptorsLost,
    /// What the kernel said.
    #[error("{0}")]
    System(#[from] io::Error),
    /// It is longer than the buffer.
    #[error("the packet is longer than any that is expected")]
    TooLong,
}

impl PacketListener {
    /// Listens at `path`, in the place of a socket that no process listens on any more.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if a process listens there, `AlreadyExists` if something stands there that is no socket, and what the kernel
    /// refused.
    pub fn bind(path: &Path, access: Access) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        match Packets::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // The kernel says the same of any other file.
                if !fs::symlink_metadata(path)?.file_type().is_socket() {
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is no socket"));
                }
                fs::remove_file(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            Err(error) => return Err(error),
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        }
        let fd = new_socket()?;
        rustix::net::bind(&fd, &address)?;
        set_access(path, access)?;
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(Self { fd })
    }

    /// Takes over a socket that listens for packets.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn inherit(fd: OwnedFd) -> io::Result<Self> {
        let is_listening =
            sockopt::socket_type(&fd)? == SocketType::SEQPACKET && sockopt::socket_acceptconn(&fd)?;
        if is_listening { Ok(Self { fd }) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Has those who connect from now on see this process as the other one, where another began to listen.
    pub fn own(&self) {
        // The kernel takes the credentials anew. It fails only if the socket does not listen.
        let _ = rustix::net::listen(&self.fd, BACKLOG);
    }

    /// Waits for a connection, for `timeout` at most, or until `end` is over.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn accept(&self, timeout: Duration, end: &Barrier) -> io::Result<Option<Packets>> {
        if !wait_for_any(&[self.fd.as_fd(), end.fd.as_fd()], PollFlags::IN, timeout)? {
            return Ok(None);
        }
        match retry_on_intr(|| rustix::net::accept_with(&self.fd, SOCKET_FLAGS)) {
            Ok(fd) => Ok(Some(Packets { fd })),
            // It is gone again, or the other process that listens here was faster.
            Err(Errno::AGAIN | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Packets {
    /// Connects to the process that listens at `path`, and waits for a moment while its queue is full.
    ///
    /// # Errors
    ///
    /// `NotFound` and `ConnectionRefused` where there is none, `WouldBlock` if its queue stays full, and what the kernel refused.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let fd = new_socket()?;
        // The kernel has those who wait come in their turn.
        rustix::io::ioctl_fionbio(&fd, false)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(CONNECT_TIMEOUT))?;
        retry_on_intr(|| rustix::net::connect(&fd, &SocketAddrUnix::new(path)?))?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd })
    }

    /// Both ends of a connection within this process.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = rustix::net::socketpair(family, kind, SOCKET_FLAGS, None)?;
        Ok((Self { fd: one }, Self { fd: other }))
    }

    /// Both ends of a queue that outlives the process: the process that has the second end receives later what the first one has
    /// sent, also once that is closed. The first one gets an error (`ConnectionRefused`) once all handles on the second are closed.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn queue() -> io::Result<(Self, OwnedFd)> {
        // With another kind, the end of the first would be an event for the second, upon which systemd closes what it keeps.
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let (one, other) = rustix::net::socketpair(family, kind, SOCKET_FLAGS, None)?;
        Ok((Self { fd: one }, other))
    }

    /// Another handle on it.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()? })
    }

    /// Who the other process is.
    ///
    /// # Errors
    ///
    /// It is no connection.
    pub fn peer(&self) -> io::Result<Peer> {
        let (pid, uid) = option::peer_credentials(&self.fd)?;
        Ok(Peer { pid, uid })
    }

    /// The process at the other end, if it can be known.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn peer_process(&self) -> io::Result<PeerProcess> {
        let peer = self.peer()?;
        if peer.pid == 0 {
            return Ok(PeerProcess::Unknown);
        }
        let handle = match option::peer_process(&self.fd) {
            Ok(fd) => Some(ProcessHandle { fd }),
            Err(error) => match error.raw_os_error() {
                // Linux before 6.5 has its number alone.
                Some(libc::ENOPROTOOPT) => of_number(peer),
                Some(libc::ESRCH | libc::EINVAL | libc::ENODATA) => None,
                _ => return Err(error),
            },
        };
        match handle {
            Some(handle) if !handle.wait(Duration::ZERO)? => Ok(PeerProcess::Running(handle)),
            _ => Ok(PeerProcess::Ended),
        }
    }

    /// Whether every process has closed the other end. That of one that has ended is closed.
    pub fn is_closed(&self) -> bool {
        wait(self.fd.as_fd(), PollFlags::empty(), Duration::ZERO).unwrap_or(true)
    }

    /// Sends a packet, and waits for room for `timeout` at most.
    ///
    /// # Errors
    ///
    /// `TimedOut`; the other side's end; more descriptors on their way than this user may have (`ETOOMANYREFS`), with the limit to
    /// raise; and what else the kernel refused.
    pub fn send(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> io::Result<()> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
        loop {
            let mut with = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() && !with.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let sent = rustix::net::sendmsg(
                &self.fd,
                &[IoSlice::new(bytes)],
                &mut with,
                SendFlags::NOSIGNAL,
            );
            match sent {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::TOOMANYREFS) => return Err(io::Error::other(TOO_MANY)),
                Err(Errno::AGAIN) => {
                    if !wait(self.fd.as_fd(), PollFlags::OUT, timeout)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the other side has read all that was sent; not if that cannot be found out.
    pub fn is_read(&self) -> bool {
        option::unacknowledged(&self.fd).is_ok_and(|bytes| bytes == 0)
    }

    /// Says that nothing more is sent: the other side reads what was sent, and then the end.
    pub fn finish(&self) {
        // Fails if the other side is gone already.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write);
    }

    /// Waits for a packet, for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`PacketError`]; after one the connection is of no use.
    pub fn receive(&self, buffer: &mut [u8], timeout: Duration) -> Result<Received, PacketError> {
        if !wait(self.fd.as_fd(), PollFlags::IN, timeout)? {
            return Ok(Received::Nothing);
        }
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut received = rustix::net::recvmsg(&self.fd, &mut slices, &mut with, flags);
        if matches!(received, Err(Errno::CONNRESET)) {
            // The other side closed without having read everything. What it sent before, such as why, comes behind this error.
            received = rustix::net::recvmsg(&self.fd, &mut slices, &mut with, flags);
        }
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            Err(error) => return Err(PacketError::System(error.into())),
        };
        let mut descriptors = Vec::new();
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(PacketError::DescriptorsLost);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(PacketError::TooLong);
        }
        // No packet of ours is empty, so that this is the end.
        if received.bytes == 0 && descriptors.is_empty() {
            return Ok(Received::End);
        }
        Ok(Received::Packet(received.bytes, descriptors))
    }
}

/// The end of a [queue](Packets::queue) that receives.
impl From<OwnedFd> for Packets {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Closes both directions of a socket that another process may have, too: the peer sees the end at once.
pub fn shut(socket: impl AsFd) {
    // Fails if the peer is gone already.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SOCKET_FLAGS, None)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, Timespec, poll};

    use super::*;

    #[test]
    fn a_queue_outlives_the_end_that_sends_without_an_event_and_says_when_the_other_end_is_gone() {
        let (sender, queue) = Packets::queue().unwrap();
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        sender.send(b"first", &[one.as_fd()], Duration::ZERO).unwrap();
        sender.send(b"second", &[], Duration::ZERO).unwrap();
        drop((sender, one));
        // A service manager closes what has one of these events.
        let (nothing, none) = (Some(Timespec { tv_sec: 0, tv_nsec: 0 }), PollFlags::empty());
        let mut polled = [PollFd::new(&queue, none)];
        assert_eq!(poll(&mut polled, nothing.as_ref()).unwrap(), 0, "{polled:?}");
        let (queue, mut buffer) = (Packets::from(queue), [0; 8]);
        let first = queue.receive(&mut buffer, Duration::ZERO).unwrap();
        assert!(matches!(first, Received::Packet(5, sockets) if sockets.len() == 1));
        let second = queue.receive(&mut buffer, Duration::ZERO).unwrap();
        assert!(matches!(second, Received::Packet(6, sockets) if sockets.is_empty()));
        let end = queue.receive(&mut buffer, Duration::ZERO).unwrap();
        assert!(matches!(end, Received::Nothing | Received::End));
        drop(other);
        let (sender, queue) = Packets::queue().unwrap();
        drop(queue);
        let refused = sender.send(b"lost", &[], Duration::ZERO).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn what_was_sent_is_seen_to_be_read() {
        let (one, other) = Packets::pair().unwrap();
        assert!(one.is_read());
        one.send(b"first", &[], Duration::ZERO).unwrap();
        one.send(b"second", &[], Duration::ZERO).unwrap();
        let mut buffer = [0; 8];
        other.receive(&mut buffer, Duration::ZERO).unwrap();
        assert!(!one.is_read() && other.is_read());
        other.receive(&mut buffer, Duration::ZERO).unwrap();
        assert!(one.is_read());
    }

    #[test]
    fn a_queue_has_room_for_as_many_sockets_as_are_ever_stored() {
        let (sender, _queue) = Packets::queue().unwrap();
        for sent in 0..(65_536_usize.div_ceil(PACKET_DESCRIPTORS_MAX) + 4) {
            sender
                .send(b"x", &[], Duration::ZERO)
                .unwrap_or_else(|error| panic!("{sent}: {error}"));
        }
    }

    #[test]
    fn what_was_sent_before_a_close_is_read_although_the_other_side_did_not_read_everything() {
        let (one, other) = Packets::pair().unwrap();
        one.send(b"unread", &[], Duration::ZERO).unwrap();
        other.send(b"why", &[], Duration::ZERO).unwrap();
        drop(other);
        let mut buffer = [0; 8];
        let received = one.receive(&mut buffer, Duration::ZERO).unwrap();
        assert!(matches!(received, Received::Packet(3, _)) && buffer.starts_with(b"why"));
        let end = one.receive(&mut buffer, Duration::ZERO).unwrap();
        assert!(matches!(end, Received::End));
    }

    #[test]
    fn only_a_socket_that_no_process_listens_on_is_replaced() {
        let folder = std::env::temp_dir().join(format!("strait-packets-{}", std::process::id()));
        let path = folder.join("strait.sock");
        private_folder(&path, Access::Owner).unwrap();
        fs::write(&path, "precious").unwrap();
        let error = PacketListener::bind(&path, Access::Owner).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        let listener = PacketListener::bind(&path, Access::Owner).unwrap();
        assert_eq!(
            PacketListener::bind(&path, Access::Owner).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        // A child that another test starts has the socket, too, until it executes its program.
        shut(listener);
        drop(PacketListener::bind(&path, Access::Owner).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_barrier_waits_for_the_end_of_the_other_side() {
        let (waiting, done) = barrier().unwrap();
        assert!(!waiting.wait(Duration::ZERO).unwrap());
        drop(done);
        assert!(waiting.wait(Duration::ZERO).unwrap());
    }
}
