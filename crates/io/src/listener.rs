//! A listening socket.
//!
//! TCP listeners of several workers share an address by `SO_REUSEPORT`, by which a second process
//! of the same user can join unnoticed: a starting process checks with [`Listener::probe`] first.
//! Unix listeners cannot share that way; workers share one queue by [`Listener::try_clone`].
//!
//! Accepted sockets inherit `TCP_NODELAY` and the keepalive options from the listener on Linux (a
//! test holds the kernel to it), so that accepting costs one system call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SocketType, sockopt};

use crate::inherited::Inherited;
use crate::socket::{SOCKET_FLAGS, ip_address, unix_path};
use crate::socket_file::SocketFile;
use crate::{Address, Keepalive, Socket, option};

/// A listening socket, closed on drop. The file of a unix socket goes with its last listener, if a process of this program made it.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    /// Shared among clones; none for TCP, or if it is another's. Dropped after `fd`, as declared.
    file: Option<Arc<SocketFile>>,
}

impl Listener {
    /// Binds and listens.
    ///
    /// An IPv6 address takes IPv6 connections only, whatever the machine's default, so that
    /// `[::]:80` and `0.0.0.0:80` are two addresses. A stale unix socket file (connecting to it is
    /// refused) is replaced; the new one has the permissions of `options`. Two processes that
    /// replace the same stale file at the same moment may both believe that they own it.
    ///
    /// # Errors
    ///
    /// [`BindError`] says whether the address is taken or what the kernel refused.
    pub fn bind(address: Address<'_>, options: &ListenOptions) -> Result<Self, BindError> {
        match address {
            Address::Tcp(_) => Self::bind_tcp(address, options),
            Address::Unix(path) => Self::bind_unix(path, options),
        }
    }

    /// Accepts from a socket that listens already. Its address, its file and whether it shares a port
    /// are as the process that made it has them; the other options are set.
    ///
    /// # Errors
    ///
    /// [`BindError`] says what the kernel refused.
    pub fn inherit(inherited: &Inherited, options: &ListenOptions) -> Result<Self, BindError> {
        let fd = at("dup", inherited.try_clone())?;
        tune(&fd, inherited.address(), options)?;
        listen(&fd, options)?;
        Ok(Self { fd, file: None })
    }

    /// As [`Self::inherit`], for a socket that a former process of this program listened on: the file of a unix socket that is
    /// [its own](Inherited::with_own_file) goes with its last listener, as if this process had made it. Its other options stay as they are
    /// until [`Self::set_options`], but for `transparent`, which this process may not be allowed to set.
    ///
    /// # Errors
    ///
    /// [`BindError`] says what the kernel refused.
    pub fn take_over(inherited: &Inherited, options: &ListenOptions) -> Result<Self, BindError> {
        let fd = at("dup", inherited.try_clone())?;
        let file = match inherited.address() {
            Address::Tcp(address) => {
                make_transparent(&fd, address, options)?;
                None
            }
            // Where it was removed meanwhile, there is none to remove.
            Address::Unix(path) if inherited.owns_file() => {
                SocketFile::inherit(path).ok().map(Arc::new)
            }
            Address::Unix(_) => None,
        };
        Ok(Self { fd, file })
    }

    /// Sets the options of a listening socket, those that are not asked for included.
    ///
    /// # Errors
    ///
    /// [`BindError`] says what the kernel refused.
    pub fn set_options(fd: &OwnedFd, options: &ListenOptions) -> Result<(), BindError> {
        let bound = ip_address(at("getsockname", rustix::net::getsockname(fd))?);
        if let Some(address) = bound {
            if options.keepalive.is_none() {
                at("SO_KEEPALIVE", sockopt::set_socket_keepalive(fd, false))?;
            }
            if options.fast_open.is_none() {
                at("TCP_FASTOPEN", option::accept_fast_open(fd, 0))?;
            }
            tune(fd, Address::Tcp(address), options)?;
        }
        listen(fd, options)
    }

    /// Fails if another process listens on `address`, which `SO_REUSEPORT` would hide.
    ///
    /// The answer is as of now: another process may come between it and [`Self::bind`]. Not for
    /// an address that this process listens on itself.
    ///
    /// # Errors
    ///
    /// [`BindError::InUse`] if another process listens; other errors are those of binding.
    pub fn probe(address: Address<'_>) -> Result<(), BindError> {
        match address {
            Address::Tcp(_) => {
                let alone = ListenOptions { reuse_port: false, ..ListenOptions::default() };
                Self::bind_tcp(address, &alone).map(drop)
            }
            Address::Unix(path) => SocketFile::probe(path),
        }
    }

    /// Takes one connection from the queue, with its peer's address (none for a unix socket), or
    /// none when the queue is empty.
    ///
    /// # Errors
    ///
    /// [`AcceptError`] says what to do next.
    pub fn accept(&self) -> Result<Option<(Socket, Option<SocketAddr>)>, AcceptError> {
        match retry_on_intr(|| rustix::net::acceptfrom_with(&self.fd, SOCKET_FLAGS)) {
            Ok((fd, peer)) => Ok(Some((Socket::from(fd), peer.and_then(ip_address)))),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(AcceptError::from_kernel(error)),
        }
    }

    /// A second handle on the same queue, for another worker.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, file: self.file.clone() })
    }

    /// Whether it has a file that goes with its last listener.
    #[must_use]
    pub const fn owns_file(&self) -> bool {
        self.file.is_some()
    }

    /// The bound address with its actual port, or none for a unix socket.
    ///
    /// # Errors
    ///
    /// Errors of `getsockname`.
    pub fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        Ok(ip_address(rustix::net::getsockname(&self.fd)?))
    }

    /// The path of a unix socket, or none for TCP.
    ///
    /// # Errors
    ///
    /// Errors of `getsockname`.
    pub fn path(&self) -> io::Result<Option<PathBuf>> {
        Ok(unix_path(rustix::net::getsockname(&self.fd)?))
    }

    fn bind_tcp(address: Address<'_>, options: &ListenOptions) -> Result<Self, BindError> {
        let fd = new_socket(address)?;
        // Connections of a former process may linger in TIME_WAIT; they do not hold the port.
        at("SO_REUSEADDR", sockopt::set_socket_reuseaddr(&fd, true))?;
        if options.reuse_port {
            at("SO_REUSEPORT", sockopt::set_socket_reuseport(&fd, true))?;
        }
        if matches!(address, Address::Tcp(SocketAddr::V6(_))) {
            at("IPV6_V6ONLY", sockopt::set_ipv6_v6only(&fd, true))?;
        }
        tune(&fd, address, options)?;
        bind_socket(&fd, address)?;
        listen(&fd, options)?;
        Ok(Self { fd, file: None })
    }

    fn bind_unix(path: &Path, options: &ListenOptions) -> Result<Self, BindError> {
        let fd = new_socket(Address::Unix(path))?;
        SocketFile::remove_stale(path)?;
        bind_socket(&fd, Address::Unix(path))?;
        // Between bind and listen connections are refused, so none is accepted under a wider mode.
        let file = SocketFile::adopt(path, options.mode)?;
        listen(&fd, options)?;
        Ok(Self { fd, file: Some(Arc::new(file)) })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Options of a listening socket. All but `backlog` and `mode` are for TCP only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
    pub backlog: u32,
    /// Connections with data in their SYN that wait to be accepted, or none to leave TCP Fast
    /// Open off.
    pub fast_open: Option<u32>,
    /// Keepalive probes of accepted connections, or none.
    pub keepalive: Option<Keepalive>,
    /// Whether other sockets of this user may listen on the same address, sharing the load.
    pub reuse_port: bool,
    /// Whether connections to other machines' addresses are taken, which rules (TPROXY) bring here.
    /// Needs `CAP_NET_ADMIN`.
    pub transparent: bool,
    /// Permission bits of the file of a unix socket.
    pub mode: u32,
}

impl Default for ListenOptions {
    /// The kernel's own backlog, shared among workers; a unix socket for owner and group.
    fn default() -> Self {
        Self {
            backlog: 4096,
            fast_open: None,
            keepalive: None,
            reuse_port: true,
            transparent: false,
            mode: 0o660,
        }
    }
}

/// Why an address could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on the address.
    #[error("the address is in use: another process listens on it")]
    InUse,
    /// The path of a unix socket names something else, which is left alone.
    #[error("the path exists and is not a socket")]
    NotASocket,
    /// This process may not take connections to other machines' addresses.
    #[error("IP_TRANSPARENT: the process lacks CAP_NET_ADMIN")]
    NotTransparent,
    /// The kernel refused a step.
    #[error("{step}: {source}")]
    System {
        /// The system call or socket option.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Why no connection was accepted, by what to do next. A queue without connections is no error.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The socket does not listen (any more): accepting again will fail again.
    #[error("the socket cannot accept: {0}")]
    Fatal(io::Error),
    /// Descriptors or kernel memory ran out. The connection stays queued, so a level-triggered
    /// listener reports it again at once: stop watching, free something, resume later.
    #[error("no descriptor or memory for another connection: {0}")]
    OutOfDescriptors(io::Error),
    /// That one connection failed before it was accepted; the next may be well.
    #[error("a connection failed before it was accepted: {0}")]
    Transient(io::Error),
}

impl AcceptError {
    fn from_kernel(error: Errno) -> Self {
        let kind = match error {
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Self::OutOfDescriptors,
            Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP => {
                Self::Fatal
            }
            // ECONNABORTED, EPERM (a firewall), and the network errors of the new connection that
            // accept(2) says to treat like a retry.
            _ => Self::Transient,
        };
        kind(error.into())
    }
}

fn new_socket(address: Address<'_>) -> Result<OwnedFd, BindError> {
    let made = rustix::net::socket_with(address.family(), SocketType::STREAM, SOCKET_FLAGS, None);
    at("socket", made)
}

/// Sets the options of a socket that do not say where it listens.
fn tune(fd: &OwnedFd, address: Address<'_>, options: &ListenOptions) -> Result<(), BindError> {
    let Address::Tcp(address) = address else { return Ok(()) };
    at("TCP_NODELAY", sockopt::set_tcp_nodelay(fd, true))?;
    if let Some(keepalive) = &options.keepalive {
        at("SO_KEEPALIVE", keepalive.apply(fd))?;
    }
    if let Some(queue) = options.fast_open {
        at("TCP_FASTOPEN", option::accept_fast_open(fd, queue))?;
    }
    make_transparent(fd, address, options)
}

fn make_transparent(
    fd: &OwnedFd,
    address: SocketAddr,
    options: &ListenOptions,
) -> Result<(), BindError> {
    if !options.transparent {
        return Ok(());
    }
    option::transparent(fd, address).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => BindError::NotTransparent,
        _ => BindError::System { step: "IP_TRANSPARENT", source: error },
    })
}

fn bind_socket(fd: &OwnedFd, address: Address<'_>) -> Result<(), BindError> {
    let target = at("address", address.to_kernel())?;
    in_use_or("bind", rustix::net::bind(fd, &target))
}

fn listen(fd: &OwnedFd, options: &ListenOptions) -> Result<(), BindError> {
    let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
    in_use_or("listen", rustix::net::listen(fd, backlog))
}

fn in_use_or<T>(step: &'static str, result: rustix::io::Result<T>) -> Result<T, BindError> {
    if matches!(result, Err(Errno::ADDRINUSE)) { Err(BindError::InUse) } else { at(step, result) }
}

pub(crate) fn at<T, E: Into<io::Error>>(
    step: &'static str,
    result: Result<T, E>,
) -> Result<T, BindError> {
    result.map_err(|error| BindError::System { step, source: error.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_errors_say_what_to_do_next() {
        for error in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            let class = AcceptError::from_kernel(error);
            assert!(matches!(class, AcceptError::OutOfDescriptors(_)), "{error}");
        }
        for error in [Errno::CONNABORTED, Errno::PERM, Errno::PROTO, Errno::HOSTUNREACH] {
            assert!(
                matches!(AcceptError::from_kernel(error), AcceptError::Transient(_)),
                "{error}"
            );
        }
        for error in [Errno::BADF, Errno::INVAL, Errno::NOTSOCK] {
            assert!(matches!(AcceptError::from_kernel(error), AcceptError::Fatal(_)), "{error}");
        }
    }
}
