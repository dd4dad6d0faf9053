//! TCP Fast Open (RFC 7413), the one socket option family that rustix does not offer.
//!
//! Invariants of the unsafe call, kept up by [`set`] alone: the descriptor is open because it is
//! borrowed; the value is a live `c_int` for as long as the call runs, and the length passed is
//! its size; the kernel only reads it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets a listener take data from SYNs, with at most `queue` such connections not yet accepted.
pub(crate) fn accept(socket: impl AsFd, queue: u32) -> io::Result<()> {
    set(socket, libc::TCP_FASTOPEN, libc::c_int::try_from(queue).unwrap_or(libc::c_int::MAX))
}

/// Lets the first bytes of a connection travel with its SYN, once the peer gave us a cookie.
pub(crate) fn connect(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::TCP_FASTOPEN_CONNECT, 1)
}

const VALUE_BYTES: libc::socklen_t = 4;
const _: () = assert!(size_of::<libc::c_int>() == 4);

fn set(socket: impl AsFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: see the module's text; all three facts are visible in this function.
    let result = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, option, (&raw const value).cast(), VALUE_BYTES)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
