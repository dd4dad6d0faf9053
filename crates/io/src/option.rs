//! The socket options that rustix does not offer: TCP Fast Open (RFC 7413), marks, sockets that are
//! transparent, and how much of what was sent is not acknowledged.
//!
//! Invariants of the unsafe call that sets them, kept up by [`set`] alone: the descriptor is open because it is
//! borrowed; the value is a live `c_int` for as long as the call runs, and the length passed is
//! its size; the kernel only reads it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

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

/// Bytes in a connection's send queue that the peer has not acknowledged (`SIOCOUTQ`).
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
