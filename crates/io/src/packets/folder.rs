//! Who may reach a socket through the file system: its folder, and its own permissions.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::users::may_be_unmapped;

/// Whom the file system lets connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The user that owns the socket's folder.
    Owner,
    /// Other users, too: they may enter the folder, but neither list nor change it. The process asks the kernel who connects, and
    /// decides itself.
    Others,
}

impl Access {
    /// Permissions of a folder that are others' and too many.
    const fn excess(self) -> u32 {
        match self {
            Self::Owner => 0o077,
            Self::Others => 0o066,
        }
    }

    /// Permissions of the folder that is made.
    const fn folder_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Others => 0o711,
        }
    }

    /// Permissions of the socket's file. Writing is what connecting needs.
    const fn socket_mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Others => 0o666,
        }
    }
}

/// Sets who may connect to the socket at `path`, unless its permissions say that already: another user's file cannot be set.
///
/// # Errors
///
/// What the system refused.
pub fn set_access(path: &Path, access: Access) -> io::Result<()> {
    let mode = access.socket_mode();
    if fs::metadata(path)?.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Why a folder is not private.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Others may enter it, or list or change it.
    #[error("others may {} it (mode {mode:03o}): chmod {:o}", match access { Access::Owner => "enter", Access::Others => "list or change" }, access.folder_mode())]
    Open {
        /// Its permissions.
        mode: u32,
        /// Those for whom it is meant.
        access: Access,
    },
    /// Another user owns it.
    #[error("user {uid} owns it, and this process runs as user {own}")]
    Others {
        /// The owner.
        uid: u32,
        /// The user of this process.
        own: u32,
    },
    /// A user owns it that may have no number in this user namespace, like others.
    #[error(
        "user {uid} owns it, which is any user without a number in this user namespace: give it to a user of this namespace (chown)"
    )]
    Unmapped {
        /// The owner, as the kernel reports it.
        uid: u32,
    },
    /// It is something else, or it cannot be made or looked at.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Makes the folder of `path` if it is missing, and finds out whether it is this user's own, and no other user has more access than that.
///
/// # Errors
///
/// [`FolderError`]: a socket there could be put or replaced by others.
pub fn private_folder(path: &Path, access: Access) -> Result<(), FolderError> {
    let folder = folder_of(path)?;
    match DirBuilder::new().mode(access.folder_mode()).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let own = own_user();
    check_private_folder(path, access, |user| user == own)
}

/// Finds out whether the folder of `path` belongs to a user of whom this says so, and no other user has more access than that. An owner
/// without a number in this user namespace is not asked about.
///
/// # Errors
///
/// As [`private_folder`], and `NotFound` if it is missing.
pub fn check_private_folder(
    path: &Path,
    access: Access,
    is_allowed: impl Fn(u32) -> bool,
) -> Result<(), FolderError> {
    let folder = folder_of(path)?;
    let found = fs::symlink_metadata(folder)?;
    let own = own_user();
    if !found.is_dir() {
        return Err(FolderError::System(io::ErrorKind::NotADirectory.into()));
    }
    if !is_allowed(found.uid()) {
        return Err(FolderError::Others { uid: found.uid(), own });
    }
    if may_be_unmapped(found.uid()) && !may_set_mode(folder)? {
        return Err(FolderError::Unmapped { uid: found.uid() });
    }
    let mode = found.mode() & 0o777;
    if mode & access.excess() != 0 {
        return Err(FolderError::Open { mode, access });
    }
    Ok(())
}

/// Whether this process may set the permissions of a folder. The kernel lets only its owner do that, and who has the rights of root over
/// a user of this namespace. They stay as they are.
fn may_set_mode(folder: &Path) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let set = rustix::fs::open(folder, flags, Mode::empty()).and_then(|folder| {
        let mode = rustix::fs::fstat(&folder)?.st_mode;
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode & 0o7777))
    });
    match set {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn folder_of(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The user that this process acts as.
#[must_use]
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
