//! Where the admin interface listens.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use config::file_mode::FileMode;
use config::snapshot::Address;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::service_manager::SocketFileId;

/// Whether the files of the admin interface's unix sockets are this process's own.
static ARE_OWN: AtomicBool = AtomicBool::new(true);

/// Says whether the files of the admin interface's unix sockets are this process's own, to be removed with the
/// sockets, or another process's, which has the same sockets.
pub fn own_admin_files(are_own: bool) {
    ARE_OWN.store(are_own, Ordering::Relaxed);
}

/// A bound socket for the admin interface.
#[derive(Debug)]
pub struct AdminSocket(Bound);

#[derive(Debug)]
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(StdUnixListener, Option<SocketFile>),
}

impl AdminSocket {
    /// Binds `address`. Without `SO_REUSEPORT`: a second process is refused. The file of a unix socket has these permissions, or
    /// what the umask leaves.
    ///
    /// # Errors
    ///
    /// Another process listens there, or what the kernel refused.
    pub fn bind(address: &Address, mode: Option<FileMode>) -> io::Result<Self> {
        Ok(Self(match address {
            Address::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Bound::Tcp(listener)
            }
            Address::Unix(path) => {
                remove_stale(path)?;
                let listener = bind_unix(path, mode)?;
                listener.set_nonblocking(true)?;
                Bound::Unix(listener, SocketFile::at(path))
            }
        }))
    }

    /// Accepts from a non-blocking socket that listens already, on an address of this kind. The file of
    /// a unix socket stays when the process ends.
    #[must_use]
    pub fn inherit(socket: OwnedFd, address: &Address) -> Self {
        Self::with_file(socket, address, None)
    }

    /// As [`Self::inherit`], for a socket whose file, if it is a unix socket, was a former process's own of this program, and is
    /// this process's from now on.
    #[must_use]
    pub fn take_over(socket: OwnedFd, address: &Address) -> Self {
        let file = match address {
            Address::Tcp(_) => None,
            // Where it was removed meanwhile, there is none to remove.
            Address::Unix(path) => SocketFileId::at(path),
        };
        Self::with_file(socket, address, file)
    }

    /// As [`Self::inherit`]; this file of a unix socket is this process's own.
    pub(crate) fn with_file(
        socket: OwnedFd,
        address: &Address,
        own_file: Option<SocketFileId>,
    ) -> Self {
        Self(match address {
            Address::Tcp(_) => Bound::Tcp(socket.into()),
            Address::Unix(path) => {
                let file = own_file.map(|id| SocketFile { path: Arc::clone(path), id });
                Bound::Unix(socket.into(), file)
            }
        })
    }

    /// The file of a unix socket that goes with it.
    pub(crate) fn own_file(&self) -> Option<SocketFileId> {
        match &self.0 {
            Bound::Tcp(_) | Bound::Unix(_, None) => None,
            Bound::Unix(_, Some(file)) => Some(file.id),
        }
    }

    /// Another handle on it.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        match &self.0 {
            Bound::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Bound::Unix(listener, _) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// The bound address with its actual port; none for a unix socket.
    ///
    /// # Errors
    ///
    /// Those of `getsockname`.
    pub fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        match &self.0 {
            Bound::Tcp(listener) => listener.local_addr().map(Some),
            Bound::Unix(..) => Ok(None),
        }
    }

    /// The path of a unix socket.
    #[must_use]
    pub fn path(&self) -> Option<Arc<Path>> {
        let Bound::Unix(listener, _) = &self.0 else { return None };
        listener.local_addr().ok()?.as_pathname().map(Arc::from)
    }

    /// The socket on the runtime that calls this.
    pub(super) fn into_acceptor(self) -> io::Result<Acceptor> {
        Ok(match self.0 {
            Bound::Tcp(listener) => Acceptor::Tcp(TcpListener::from_std(listener)?),
            Bound::Unix(listener, file) => Acceptor::Unix(UnixListener::from_std(listener)?, file),
        })
    }
}

/// Bytes of an answer that the kernel keeps for a client. It says that there is room again once a third of them is read: of the
/// megabytes that it keeps otherwise, a slow client does not read as much in [`WRITE_TIMEOUT`](super::patience::WRITE_TIMEOUT).
const SEND_BYTES: usize = 128 << 10;

/// Connections that wait to be accepted: as many as the kernel allows, as for sockets of the standard library.
const BACKLOG: i32 = -1;

/// Accepts the admin's connections.
#[derive(Debug)]
pub(super) enum Acceptor {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "removes the file when dropped")] Option<SocketFile>,
    ),
}

/// A connection of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Acceptor {
    /// Whether requests come from this machine, by the file system's permission.
    pub(super) const fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(..))
    }

    pub(super) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // At worst, the kernel keeps as much as it likes.
                let _ = set_socket_send_buffer_size(&stream, SEND_BYTES);
                Box::new(stream)
            }
            Self::Unix(listener, _) => Box::new(listener.accept().await?.0),
        })
    }
}

/// The file of a unix socket that this process made, or took over as its own, removed on drop. Only that very file: another process
/// may have put its own in the same place by then.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: Arc<Path>,
    id: SocketFileId,
}

impl SocketFile {
    /// That of a socket that listens at `path`; none where it was removed meanwhile.
    fn at(path: &Arc<Path>) -> Option<Self> {
        Some(Self { path: Arc::clone(path), id: SocketFileId::at(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process's file stays, but not where that does not have this socket.
        let is_own = || ARE_OWN.load(Ordering::Relaxed) || !is_listened_at(&self.path);
        if SocketFileId::at(&self.path) == Some(self.id) && is_own() {
            // A file that stays behind is stale, and its next user replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a process has the socket of the file at `path`. It sees no connection by that: the kernel looks at the kind of the socket
/// first, and that of this one is another.
fn is_listened_at(path: &Path) -> bool {
    let probe = || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    !matches!(probe(), Err(Errno::CONNREFUSED))
}

/// Sets the permissions of a socket's file, if `path` still leads to that: what another program has put in its place stays as it is.
///
/// # Errors
///
/// What the system says.
pub fn set_socket_mode(path: &Path, file: SocketFileId, mode: FileMode) -> io::Result<()> {
    if SocketFileId::at(path) != Some(file) {
        return Ok(());
    }
    set_mode(path, mode)
}

fn set_mode(path: &Path, mode: FileMode) -> io::Result<()> {
    if fs::symlink_metadata(path)?.permissions().mode() & 0o777 == mode.bits() {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode.bits()))
}

/// Removes a socket file without a process that answers.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Binding will say what is wrong.
        _ => Ok(()),
    }
}

/// Binds and listens. Without the umask, which other threads may need meanwhile: the permissions are there before the socket listens.
fn bind_unix(path: &Path, mode: Option<FileMode>) -> io::Result<StdUnixListener> {
    let Some(mode) = mode else { return StdUnixListener::bind(path) };
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let listens = set_mode(path, mode).and_then(|()| Ok(rustix::net::listen(&socket, BACKLOG)?));
    if let Err(error) = listens {
        // A file that stays behind is stale, and its next user replaces it.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(socket.into())
}
