//! A connected (or connecting) stream socket.
//!
//! A `Socket` is a descriptor and nothing else: 4 bytes, with a niche. All calls are non-blocking;
//! `WouldBlock` is an error like any other, interruption by a signal never shows.
//!
//! Bytes move by `sendto` and `recvfrom`, the cheapest calls that there are: against 5.6 µs for a
//! head and 1 KiB through loopback, `write` adds 0.04, `read` 0.08, `sendmsg` of two slices 0.14 µs,
//! while copying both into one buffer for `sendto` adds 0.01. Small pieces are better gathered by
//! the caller (`cargo run --release -p io --example costs`).

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};

use crate::{Address, option};

const _: () = assert!(size_of::<Option<Socket>>() == 4);

/// Flags of every socket made here.
pub(crate) const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A connected (or connecting) stream socket, closed on drop.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Begins to connect. While the answer is [`ConnectState::Connecting`], the next writable
    /// event says that the attempt has ended, and [`Self::take_error`] how.
    ///
    /// With `fast_open` the answer may be `Connected` before any packet was sent: the first send
    /// carries the SYN, and a failure to connect shows there or in a later event.
    ///
    /// # Errors
    ///
    /// Errors of `socket` and `connect` that are known at once: out of descriptors or ports, no
    /// route, refused (local peers). `WouldBlock` means that a unix listener's queue is full; it
    /// is an end of the attempt, not a state to wait in.
    pub fn connect(
        address: Address<'_>,
        options: &ConnectOptions,
    ) -> io::Result<(Self, ConnectState)> {
        let target = address.to_kernel()?;
        let fd =
            rustix::net::socket_with(address.family(), SocketType::STREAM, SOCKET_FLAGS, None)?;
        if matches!(address, Address::Tcp(_)) {
            sockopt::set_tcp_nodelay(&fd, true)?;
            if let Some(keepalive) = &options.keepalive {
                keepalive.apply(&fd)?;
            }
            if options.fast_open {
                option::connect_fast_open(&fd)?;
            }
            if let Some(mark) = options.mark {
                option::mark(&fd, mark.get())?;
            }
        }
        let state = match rustix::net::connect(&fd, &target) {
            Ok(()) => ConnectState::Connected,
            // An interrupted attempt goes on in the background, as one in progress does.
            Err(Errno::INPROGRESS | Errno::INTR) => ConnectState::Connecting,
            Err(error) => return Err(error.into()),
        };
        Ok((Self { fd }, state))
    }

    /// The error that is pending on the socket, which this clears.
    ///
    /// # Errors
    ///
    /// The pending error, if there is one.
    pub fn take_error(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    /// Reads into `buffer`. 0 is the peer's end (or an empty `buffer`).
    ///
    /// # Errors
    ///
    /// `WouldBlock` when nothing is queued; a reset or a timeout of the connection.
    #[inline]
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (length, _) =
            retry_on_intr(|| rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::empty()))?;
        Ok(length)
    }

    /// Writes the `slices` in order, as far as the kernel takes them; never raises `SIGPIPE`.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the kernel takes nothing; a reset, a timeout, or a write after
    /// [`Self::shutdown_write`].
    #[inline]
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [slice] = slices {
            return self.send_slice(slice);
        }
        let mut none = SendAncillaryBuffer::new(&mut [] as &mut [MaybeUninit<u8>]);
        Ok(retry_on_intr(|| {
            rustix::net::sendmsg(&self.fd, slices, &mut none, SendFlags::NOSIGNAL)
        })?)
    }

    /// [`Self::send`] for one slice, by the cheaper system call.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    #[inline]
    pub fn send_slice(&self, slice: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::net::send(&self.fd, slice, SendFlags::NOSIGNAL))?)
    }

    /// Bytes that were sent and that the peer has not acknowledged, or, on a unix socket, not read. Of TCP,
    /// our end counts as one.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        option::unacknowledged(&self.fd)
    }

    /// Ends our direction: the peer reads the end after what was sent.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the peer is gone already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Resets the connection although other handles on it stay open. A unix socket, which knows no reset, is shut down.
    pub fn abort(&self) {
        if rustix::net::connect_unspec(&self.fd).is_err() {
            // Fails if the peer is gone already.
            let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
        }
    }

    /// Closes with a reset instead of a FIN; what was sent and not acknowledged is lost.
    pub fn reset(self) {
        // Fails for no reason that a caller could act on; the socket is closed either way.
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Our address, or none for a unix socket.
    ///
    /// # Errors
    ///
    /// Errors of `getsockname`.
    pub fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        Ok(ip_address(rustix::net::getsockname(&self.fd)?))
    }

    /// Where the peer connected to before a rule of this machine (REDIRECT, DNAT) changed that; its
    /// own address if none did. None for a unix socket, and where the kernel does not track
    /// connections.
    ///
    /// # Errors
    ///
    /// Errors of `getsockname` and `getsockopt`.
    pub fn original_destination(&self) -> io::Result<Option<SocketAddr>> {
        let found = match self.local_address()? {
            Some(SocketAddr::V4(_)) => sockopt::ip_original_dst(&self.fd).map(SocketAddr::V4),
            Some(SocketAddr::V6(_)) => sockopt::ipv6_original_dst(&self.fd).map(SocketAddr::V6),
            None => return Ok(None),
        };
        match found {
            Ok(address) => Ok(Some(address)),
            Err(Errno::NOENT | Errno::NOPROTOOPT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this process may put marks on its sockets, which takes `CAP_NET_ADMIN`.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if not; out of descriptors.
    pub fn probe_mark() -> io::Result<()> {
        let family = rustix::net::AddressFamily::INET;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, SOCKET_FLAGS, None)?;
        option::mark(&fd, 1)
    }

    /// The peer's address, or none for a unix socket.
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is no peer (yet, or any more).
    pub fn peer_address(&self) -> io::Result<Option<SocketAddr>> {
        Ok(rustix::net::getpeername(&self.fd)?.and_then(ip_address))
    }

    /// Whether small segments are sent at once.
    ///
    /// # Errors
    ///
    /// Not a TCP socket.
    pub fn is_nodelay(&self) -> io::Result<bool> {
        Ok(sockopt::tcp_nodelay(&self.fd)?)
    }

    /// The keepalive probes in force, or none.
    ///
    /// # Errors
    ///
    /// Not a TCP socket.
    pub fn keepalive(&self) -> io::Result<Option<Keepalive>> {
        if !sockopt::socket_keepalive(&self.fd)? {
            return Ok(None);
        }
        Ok(Some(Keepalive {
            idle: sockopt::tcp_keepidle(&self.fd)?,
            interval: sockopt::tcp_keepintvl(&self.fd)?,
            probes: sockopt::tcp_keepcnt(&self.fd)?,
        }))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes over a descriptor, which must be a non-blocking stream socket; calls on any other fail or
/// block.
impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}

/// How far a connection attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectState {
    /// Bytes can be sent.
    Connected,
    /// A writable event will say that the attempt has ended.
    Connecting,
}

/// Options of an outgoing connection. TCP only; a unix socket has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Whether the first bytes may travel with the SYN.
    pub fast_open: bool,
    /// Keepalive probes, or none.
    pub keepalive: Option<Keepalive>,
    /// The mark on this connection's packets (`SO_MARK`), or none. Needs `CAP_NET_ADMIN`.
    pub mark: Option<NonZeroU32>,
}

/// TCP keepalive probes. The kernel counts whole seconds, up to 32,767; other values are rounded
/// up or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes that end the connection, up to 127.
    pub probes: u32,
}

impl Keepalive {
    /// `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL` of Linux.
    const SECONDS_MAX: u64 = 32_767;
    /// `MAX_TCP_KEEPCNT` of Linux.
    const PROBES_MAX: u32 = 127;

    pub(crate) fn apply(&self, fd: &OwnedFd) -> io::Result<()> {
        sockopt::set_socket_keepalive(fd, true)?;
        sockopt::set_tcp_keepidle(fd, Self::whole_seconds(self.idle))?;
        sockopt::set_tcp_keepintvl(fd, Self::whole_seconds(self.interval))?;
        Ok(sockopt::set_tcp_keepcnt(fd, self.probes.clamp(1, Self::PROBES_MAX))?)
    }

    fn whole_seconds(span: Duration) -> Duration {
        let rounded_up = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
        Duration::from_secs(rounded_up.clamp(1, Self::SECONDS_MAX))
    }
}

/// The IP address in what the kernel reported, or none for a unix socket.
pub(crate) fn ip_address(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

/// The path in what the kernel reported, or none for another kind of address, or none at all.
pub(crate) fn unix_path(address: SocketAddrAny) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(address).ok()?;
    address.path_bytes().map(|path| OsStr::from_bytes(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aborted_connection_is_reset_though_another_handle_is_open() {
        use std::io::{ErrorKind, Read as _};
        use std::net::{TcpListener, TcpStream};
        use std::os::unix::net::UnixStream;

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let other = accepted.try_clone().unwrap();
        Socket::from(OwnedFd::from(accepted)).abort();
        assert_eq!(peer.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(other);
        let (unix, mut peer) = UnixStream::pair().unwrap();
        let other = unix.try_clone().unwrap();
        Socket::from(OwnedFd::from(unix)).abort();
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
        drop(other);
    }
}
