//! What was moved over a TCP connection, by the kernel's own count: whether another process that has the
//! same socket has read from it or written to it.
//!
//! Invariants of the unsafe calls: the descriptor is open because it is borrowed; the kernel writes to a live
//! value that nothing else refers to during the call, and no more than the length that is passed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that processes have read from a connection and written to it, since it began. An end counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Read from it.
    pub read: u64,
    /// Written to it.
    pub written: u64,
}

/// The places of some counts in `struct tcp_info` of `linux/tcp.h`, which only grows at its end.
const UNACKED: usize = 24;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const NOT_SENT_BYTES: usize = 144;
const INFO_BYTES: usize = 148;

/// The first octet of it is the connection's state; this one is over.
const TCP_CLOSE: u8 = 7;

impl Traffic {
    /// Of a connection, now.
    ///
    /// # Errors
    ///
    /// It is no TCP connection, or not any more: of one that was reset or refused nothing tells whether a process has
    /// noticed, and gone on elsewhere.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let fd = socket.as_fd().as_raw_fd();
        let mut info = [0u8; INFO_BYTES];
        let mut length = libc::socklen_t::try_from(INFO_BYTES).unwrap_or(0);
        // SAFETY: see the module's text; `length` is the size of `info`.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if (length as usize) < INFO_BYTES {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if info.first() == Some(&TCP_CLOSE) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let count = |place: usize| {
            let bytes = info.get(place..place + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let is_zero = |place: usize| info.get(place..place + 4) == Some(&[0; 4]);
        let (acked, received) = (count(BYTES_ACKED), count(BYTES_RECEIVED));
        // Most have nothing on its way: the kernel need not be asked once more.
        let is_all_acked = is_zero(UNACKED) && is_zero(NOT_SENT_BYTES);
        let unacked = if is_all_acked { 0 } else { queued(fd, libc::TIOCOUTQ)? };
        Ok(Self {
            read: received.saturating_sub(queued(fd, libc::FIONREAD)?),
            written: acked.saturating_add(unacked),
        })
    }
}

/// What the kernel has of one direction.
fn queued(fd: libc::c_int, direction: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: see the module's text; the kernel writes one `c_int`.
    let result = unsafe { libc::ioctl(fd, direction, &raw mut bytes) };
    if result == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_another_handle_reads_and_writes_is_seen_and_what_the_peer_sends_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let other = socket.try_clone().unwrap();
        socket.write_all(b"before").unwrap();
        peer.read_exact(&mut [0; 6]).unwrap();
        let before = Traffic::of(&other).unwrap();

        peer.write_all(b"a request").unwrap();
        while queued(other.as_raw_fd(), libc::FIONREAD).unwrap() < 9 {
            std::thread::yield_now();
        }
        assert_eq!(Traffic::of(&other).unwrap(), before, "the peer's bytes are not ours");

        socket.read_exact(&mut [0; 3]).unwrap();
        let read = Traffic::of(&other).unwrap();
        assert_eq!((read.read, read.written), (before.read + 3, before.written));
        socket.write_all(b"x").unwrap();
        assert_eq!(Traffic::of(&other).unwrap().written, before.written + 1);
    }

    #[test]
    fn a_connection_that_was_reset_has_no_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"unread").unwrap();
        assert!(Traffic::of(&socket).is_ok());
        // With bytes that it has not read, its end is a reset.
        let other = socket.try_clone().unwrap();
        while peer.peek(&mut [0; 6]).unwrap() < 6 {}
        drop(peer);
        while socket.read(&mut [0; 1]).is_ok_and(|n| n > 0) {}
        assert_eq!(Traffic::of(&other).unwrap_err().kind(), io::ErrorKind::NotConnected);
    }

    #[test]
    fn a_unix_socket_has_no_count() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Traffic::of(&one).is_err());
    }
}
