//! The socket options that rustix does not offer: TCP Fast Open (RFC 7413), marks, sockets that are
//! transparent, how much of what was sent is not acknowledged, and who is at the other end of a unix socket.
//!
//! Invariants of the unsafe call that sets them, kept up by [`set`] alone: the descriptor is open because it is
//! borrowed; the value is a live `c_int` for as long as the call runs, and the length passed is
//! its size; the kernel only reads it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd};

/// Lets a listener take data from SYNs, with at most `queue` such connections not yet accepted.
pub(crate) fn accept_fast_open(socket: impl AsFd, queue: u32) -> io::Result<()> {
    let queue = libc::c_int::try_from(queue).unwrap_or(libc::c_int::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue)
}

/// Lets the first bytes of a connection travel with its SYN, once the peer gave us a cookie.
pub(crate) fn connect_fast_open(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)
}

/// Puts `mark` on every packet of a socket, which firewall and routing rules can match. Needs
/// `CAP_NET_ADMIN`.
pub(crate) fn mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    // The kernel reads the same bits as an unsigned number.
    set(socket, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// Lets a listener on an address of this kind take connections to addresses that are not of this
/// machine. Needs `CAP_NET_ADMIN`.
pub(crate) fn transparent(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1),
        SocketAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1),
    }
}

/// Bytes in a connection's send queue that the peer has not acknowledged, or, on a unix socket, not read, with what the kernel keeps
/// for them (`SIOCOUTQ`).
pub(crate) fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open because it is borrowed; the kernel writes one `c_int`, to a live
    // one that nothing else refers to during the call.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 {
        Ok(usize::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The process and the user at the other end of a unix socket, as of when it connected or began to listen. The process is 0 where
/// this one's PID namespace has no id for it, which the type of rustix cannot hold.
pub(crate) fn peer_credentials(socket: impl AsFd) -> io::Result<(u32, u32)> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = CREDENTIALS_BYTES;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open because it is borrowed; the kernel writes no more than `len` bytes, which are those of
    // the live structure behind the pointer, and the length itself.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok((u32::try_from(found.pid).unwrap_or(0), found.uid))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A handle on the process that [`peer_credentials`] names, also where another one has its number by now.
pub(crate) fn peer_process(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut handle: libc::c_int = -1;
    let mut len = VALUE_BYTES;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open because it is borrowed; the kernel writes no more than `len` bytes, which are those of
    // the live number behind the pointer, and the length itself.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut handle).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has made this descriptor for this call, and nothing else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(handle) })
}

const CREDENTIALS_BYTES: libc::socklen_t = 12;
const _: () = assert!(size_of::<libc::ucred>() == 12);

const VALUE_BYTES: libc::socklen_t = 4;
const _: () = assert!(size_of::<libc::c_int>() == 4);

fn set(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: see the module's text; all three facts are visible in this function.
    let result =
        unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), VALUE_BYTES) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
