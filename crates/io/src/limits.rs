//! Limits of the system on this process.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open descriptors as far as this process may, and returns it.
///
/// # Errors
///
/// Errors of `setrlimit`; the former limit stays.
pub fn raise_open_files() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(open_files_max())
}

/// Keeps the memory of this process out of core dumps: none is written to a file, and one that the
/// system pipes to a program (`core_pattern`), which ignores the limit, holds no memory.
///
/// # Errors
///
/// Errors of `setrlimit`, and of writing to `/proc/self/coredump_filter`; what went before them
/// stays done.
pub fn forbid_core_dumps() -> io::Result<()> {
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })?;
    fs::write("/proc/self/coredump_filter", "0")
}

/// How many descriptors this process has open, if `/proc` can be read.
#[must_use]
pub fn open_files() -> Option<u64> {
    // The size of the folder is their number since Linux 6.2. To list them takes a microsecond for each.
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size);
    }
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // The one that reads is among them.
    u64::try_from(open.saturating_sub(1)).ok()
}

/// How many descriptors this process may have open at a time.
#[must_use]
pub fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
