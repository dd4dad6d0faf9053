//! What was moved over a TCP connection, by the kernel's own count: whether another process that has the
//! same socket has read from it or written to it.
//!
//! Invariants of the unsafe calls: the descriptor is open because it is borrowed; the kernel writes to a live
//! value that nothing else refers to during the call, and no more than the length that is passed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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

/// How often counts are taken that change meanwhile. Nothing is read from a connection that is handed over: it settles once its buffer is
/// full.
const TRIES_MAX: u32 = 4;

impl Traffic {
    /// Of a connection, now.
    ///
    /// # Errors
    ///
    /// It is no TCP connection, or not any more: of one that was reset or refused nothing tells whether a process has
    /// noticed, and gone on elsewhere.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let fd = socket.as_fd().as_raw_fd();
        let mut counts = Counts::of(fd)?;
        let mut tries = 1..TRIES_MAX;
        loop {
            let traffic = counts.with_unread(fd, queued(fd, libc::FIONREAD)?)?;
            let after = Counts::of(fd)?;
            // What came or was acknowledged in between is in one of the two counts only.
            if after == counts || tries.next().is_none() {
                return Ok(traffic);
            }
            counts = after;
        }
    }

    /// The same of each of these, none where there is an error. Of connections that have nothing to read, as most have that are handed
    /// over, this asks the kernel half as much.
    #[must_use]
    pub fn of_each(sockets: &[BorrowedFd<'_>]) -> Vec<Option<Self>> {
        let counts = sockets.iter().map(|socket| Counts::of(socket.as_raw_fd()));
        let counts: Vec<_> = counts.collect();
        let mut polled: Vec<_> =
            sockets.iter().map(|socket| PollFd::from_borrowed_fd(*socket, PollFlags::IN)).collect();
        let has_polled = poll(&mut polled, Some(&Timespec::default())).is_ok();
        let each = sockets.iter().zip(counts).zip(polled);
        let traffic = each.map(|((socket, counts), polled)| match counts {
            // Nothing to read now, and nothing when it was counted: none was read in between.
            Ok(counts) if has_polled && polled.revents().is_empty() => {
                counts.with_unread(socket.as_raw_fd(), 0).ok()
            }
            _ => Self::of(socket).ok(),
        });
        traffic.collect()
    }
}

/// What the kernel says of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    received: u64,
    acked: u64,
    /// Whether all that was written is acknowledged. Most have nothing on its way: the kernel need not be asked once more.
    is_all_acked: bool,
}

impl Counts {
    fn of(fd: libc::c_int) -> io::Result<Self> {
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
        Ok(Self {
            received: count(BYTES_RECEIVED),
            acked: count(BYTES_ACKED),
            is_all_acked: is_zero(UNACKED) && is_zero(NOT_SENT_BYTES),
        })
    }

    /// Of the connection `fd`, with so many bytes that came and were not read.
    fn with_unread(self, fd: libc::c_int, unread: u64) -> io::Result<Traffic> {
        let unacked = if self.is_all_acked { 0 } else { queued(fd, libc::TIOCOUTQ)? };
        Ok(Traffic {
            read: self.received.saturating_sub(unread),
            written: self.acked.saturating_add(unacked),
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
        assert_eq!(Traffic::of_each(&[other.as_fd()]), [Some(before)]);

        peer.write_all(b"a request").unwrap();
        while queued(other.as_raw_fd(), libc::FIONREAD).unwrap() < 9 {
            std::thread::yield_now();
        }
        assert_eq!(Traffic::of(&other).unwrap(), before, "the peer's bytes are not ours");

        assert_eq!(Traffic::of_each(&[other.as_fd()]), [Some(before)], "nor those among several");

        socket.read_exact(&mut [0; 3]).unwrap();
        let read = Traffic::of(&other).unwrap();
        assert_eq!(Traffic::of_each(&[other.as_fd()]), [Some(read)]);
        assert_eq!((read.read, read.written), (before.read + 3, before.written));
        socket.write_all(b"x").unwrap();
        assert_eq!(Traffic::of(&other).unwrap().written, before.written + 1);
    }

    #[test]
    fn the_end_of_the_peer_counts_whether_or_not_it_was_met() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        peer.write_all(b"all").unwrap();
        socket.read_exact(&mut [0; 3]).unwrap();
        let before = Traffic::of(&socket).unwrap();
        drop(peer);
        assert_eq!(socket.peek(&mut [0; 1]).unwrap(), 0, "the end has come");
        let after = Traffic::of(&socket).unwrap();
        assert_eq!((after.read, after.written), (before.read + 1, before.written));
        assert_eq!(Traffic::of_each(&[socket.as_fd()]), [Some(after)]);
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let each = Traffic::of_each(&[one.as_fd(), peer.as_fd()]);
        assert_eq!(each, [None, Traffic::of(&peer).ok()], "each has its own");
    }
}
