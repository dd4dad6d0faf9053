//! Listening sockets that the process was started with (sd_listen_fds(3)): descriptors from 3 on.
//!
//! The unsafe calls take the numbers for descriptors. Their invariant: a number is taken once in a
//! process, which [`take`] checks, and its descriptor belongs to no value of this process, since the
//! service manager opened it before the process began and named it by `LISTEN_FDS`. Callers take them
//! before they open anything, so that no number is one of their own.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{SocketType, sockopt};

use crate::Address;
use crate::socket::{ip_address, unix_path};

/// The first descriptor behind standard input, output and error.
const FIRST: RawFd = 3;

/// A socket that listens already. It stays open as long as this value, and so does its queue of
/// connections, also while no listener accepts from it.
#[derive(Debug)]
pub struct Inherited {
    fd: OwnedFd,
    bound: Bound,
    owns_file: bool,
}

#[derive(Debug)]
enum Bound {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Why a descriptor is not taken.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// There is no such descriptor.
    #[error("descriptor: {0}")]
    NotOpen(io::Error),
    /// A system call failed.
    #[error("{step}: {source}")]
    System {
        /// The system call or socket option.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The descriptor is not a listening stream socket.
    #[error("not a stream socket that listens")]
    NotListening,
    /// It listens on something other than TCP or a path.
    #[error("neither TCP nor the path of a unix socket")]
    UnknownFamily,
    /// It takes IPv4 connections beside those of IPv6, whose addresses then look like IPv6.
    #[error("an IPv6 socket that takes IPv4, too")]
    DualStack,
}

/// Takes `count` descriptors, each with its number. A second call gets none.
#[must_use]
pub fn take(count: u32) -> Vec<(RawFd, Result<OwnedFd, InheritError>)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let count = RawFd::try_from(count).unwrap_or(RawFd::MAX - FIRST);
    let end = FIRST.saturating_add(count);
    (FIRST..end).map(|number| (number, own(number))).collect()
}

/// The descriptor with this number, if it is open.
fn own(number: RawFd) -> Result<OwnedFd, InheritError> {
    // SAFETY: the call reads flags of a descriptor, and fails if there is none with this number.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(InheritError::NotOpen(io::Error::last_os_error()));
    }
    // SAFETY: it is open, and of no other value: see the module's text.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

impl Inherited {
    /// Takes a socket that another process handed over. If it has a file, that is another's, such as a socket unit's of systemd.
    ///
    /// # Errors
    ///
    /// It does not listen, or where no [`Address`] can be.
    pub fn new(fd: OwnedFd) -> Result<Self, InheritError> {
        let is_stream = at("SO_TYPE", sockopt::socket_type(&fd))? == SocketType::STREAM;
        if !is_stream || !at("SO_ACCEPTCONN", sockopt::socket_acceptconn(&fd))? {
            return Err(InheritError::NotListening);
        }
        let name = at("getsockname", rustix::net::getsockname(&fd))?;
        let bound = match ip_address(name.clone()) {
            Some(SocketAddr::V6(_)) if !at("IPV6_V6ONLY", sockopt::ipv6_v6only(&fd))? => {
                return Err(InheritError::DualStack);
            }
            Some(address) => Bound::Tcp(address),
            None => Bound::Unix(unix_path(name).ok_or(InheritError::UnknownFamily)?),
        };
        at("FD_CLOEXEC", rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC))?;
        at("O_NONBLOCK", rustix::io::ioctl_fionbio(&fd, true))?;
        Ok(Self { fd, bound, owns_file: false })
    }

    /// The same socket, made by a process of this program: if it has a file, that is this process's own once it has taken the socket over.
    #[must_use]
    pub const fn with_own_file(mut self) -> Self {
        self.owns_file = true;
        self
    }

    /// Whether the file that it may have is this process's own.
    #[must_use]
    pub const fn owns_file(&self) -> bool {
        self.owns_file
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> Address<'_> {
        match &self.bound {
            Bound::Tcp(address) => Address::Tcp(*address),
            Bound::Unix(path) => Address::Unix(path),
        }
    }

    /// Another handle on the same queue.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

impl From<Inherited> for OwnedFd {
    fn from(inherited: Inherited) -> Self {
        inherited.fd
    }
}

impl AsFd for Inherited {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn at<T>(step: &'static str, result: rustix::io::Result<T>) -> Result<T, InheritError> {
    result.map_err(|error| InheritError::System { step, source: error.into() })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_listening_socket_is_taken_and_others_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let inherited = Inherited::new(listener.into()).unwrap();
        assert_eq!(inherited.address(), Address::Tcp(address));

        let refused = |fd: OwnedFd| Inherited::new(fd).unwrap_err().to_string();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(refused(udp.into()), "not a stream socket that listens");
        let dual = TcpListener::bind("[::]:0").unwrap();
        assert_eq!(refused(dual.into()), "an IPv6 socket that takes IPv4, too");
        let (reader, _writer) = io::pipe().unwrap();
        assert!(refused(reader.into()).starts_with("SO_TYPE: "));
    }

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        assert!(matches!(own(1 << 20), Err(InheritError::NotOpen(_))));
    }
}
