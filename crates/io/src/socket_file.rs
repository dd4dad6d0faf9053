//! The file of a unix listener: its permissions and its removal.
//!
//! A file outlives the process that bound it. It is stale when a connection to it is refused; only
//! then is it replaced. The owner removes its file when the last listener is dropped, but only the
//! very file it made: a successor may have put its own in the same place by then. While two processes have the
//! same listening sockets, as in a handover, the file is of one of them ([`own_socket_files`]); the other removes it if no process
//! listens there any more.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::listener::at;
use crate::socket::SOCKET_FLAGS;
use crate::{Address, BindError, ConnectOptions, Socket};

/// Whether socket files are this process's own.
static ARE_OWN: AtomicBool = AtomicBool::new(true);

/// Says whether the files of this process's unix listeners are its own, to be removed with the last listener, or
/// another process's, which has the same sockets. They are its own unless this says otherwise.
pub fn own_socket_files(are_own: bool) {
    ARE_OWN.store(are_own, Ordering::Relaxed);
}

/// A socket file that this process made, removed on drop.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Fails with [`BindError::InUse`] if a process listens at `path`.
    pub(crate) fn probe(path: &Path) -> Result<(), BindError> {
        is_stale(path).map(drop)
    }

    /// Removes the file at `path` if it is stale.
    pub(crate) fn remove_stale(path: &Path) -> Result<(), BindError> {
        if is_stale(path)? {
            at("unlink", fs::remove_file(path))?;
        }
        Ok(())
    }

    /// Takes over the file that was just bound, and sets its mode. Writing is what connecting needs.
    pub(crate) fn adopt(path: &Path, mode: u32) -> Result<Self, BindError> {
        let found = at("stat", fs::symlink_metadata(path))?;
        let file = Self { path: path.to_owned(), device: found.dev(), inode: found.ino() };
        at("chmod", fs::set_permissions(path, Permissions::from_mode(mode)))?;
        Ok(file)
    }

    /// Takes over the file of a socket that another process has bound.
    pub(crate) fn inherit(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        if !found.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is no socket"));
        }
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    fn is_in_place(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|found| found.dev() == self.device && found.ino() == self.inode)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process's file stays behind where that does not have this listener.
        let is_own = || ARE_OWN.load(Ordering::Relaxed) || !is_listened_at(&self.path);
        if self.is_in_place() && is_own() {
            // A file that stays behind is stale, and its next user replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a unix listener may be bound at `path`: nothing stands there, or a socket on which no process listens. A process that
/// listens there sees no connection by that.
#[must_use]
pub fn is_path_free(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(found) => found.file_type().is_socket() && !is_listened_at(path),
    }
}

/// Whether a process has the socket of the file at `path`. It sees no connection by that: the kernel looks at the kind of the socket
/// first, and that of this one is none that listens.
fn is_listened_at(path: &Path) -> bool {
    let probe = || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let socket = rustix::net::socket_with(family, kind, SOCKET_FLAGS, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    !matches!(probe(), Err(Errno::CONNREFUSED))
}

/// Whether there is a socket file at `path` to which connecting is refused. False if there is no
/// file.
fn is_stale(path: &Path) -> Result<bool, BindError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        result => at("stat", result)?,
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket);
    }
    match Socket::connect(Address::Unix(path), &ConnectOptions::default()) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // A full queue is an answer too.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => at("connect", Err(error)),
        Ok(_) | Err(_) => Err(BindError::InUse),
    }
}
