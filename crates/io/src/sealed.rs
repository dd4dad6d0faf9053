//! Bytes in a file of memory that no process can change any more (memfd_create(2), `F_ADD_SEALS`).
//!
//! The file has no name: only a process that has its descriptor, or may look into one that has, reads it. Its
//! memory is cleared by the kernel when the last descriptor is closed.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;

/// What nothing can be done to.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Why a descriptor cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// It is something else, or could still be changed.
    #[error("it is not a sealed file in memory")]
    NotSealed,
    /// What the kernel said.
    #[error("{0}")]
    System(#[from] io::Error),
    /// It has more bytes than the caller takes.
    #[error("it has {0} bytes")]
    TooLarge(u64),
}

/// A sealed file with these bytes. `name` is what tools show of it.
///
/// # Errors
///
/// Out of descriptors or memory, or the kernel has no such files.
pub fn seal(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag.
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        result => result?,
    };
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// How many bytes a sealed file has.
///
/// # Errors
///
/// [`SealedError`].
pub fn sealed_len(file: &File, bytes_max: u64) -> Result<u64, SealedError> {
    // Of anything else the kernel says that it is no such file.
    let seals = fcntl_get_seals(file).map_err(|_| SealedError::NotSealed)?;
    if !seals.contains(SEALS) {
        return Err(SealedError::NotSealed);
    }
    let len = file.metadata()?.len();
    if len > bytes_max { Err(SealedError::TooLarge(len)) } else { Ok(len) }
}

/// Reads a sealed file from its beginning, as far as `into` has room.
///
/// # Errors
///
/// It has fewer bytes, and what the kernel refused.
pub fn read_sealed(file: &File, into: &mut [u8]) -> io::Result<()> {
    file.read_exact_at(into, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_bytes_are_read_again_and_cannot_be_changed() {
        let file = File::from(seal("test", b"bytes").unwrap());
        assert_eq!(sealed_len(&file, 5).unwrap(), 5);
        assert!(matches!(sealed_len(&file, 4), Err(SealedError::TooLarge(5))));
        let mut bytes = [0; 5];
        read_sealed(&file, &mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
        assert!(file.write_at(b"x", 0).is_err());
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(9).is_err());
        assert!(read_sealed(&file, &mut [0; 6]).is_err());
    }

    #[test]
    fn what_could_still_be_changed_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = File::from(memfd_create("open", flags).unwrap());
        assert!(matches!(sealed_len(&open, 9), Err(SealedError::NotSealed)));
        fcntl_add_seals(&open, SealFlags::WRITE).unwrap();
        assert!(matches!(sealed_len(&open, 9), Err(SealedError::NotSealed)));
        let null = File::open("/dev/null").unwrap();
        assert!(matches!(sealed_len(&null, 9), Err(SealedError::NotSealed)));
    }
}
