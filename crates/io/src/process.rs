//! Resources that this process uses. Reads files below `/proc`: for the control path only.

use std::fs;
use std::io;

/// Bytes of memory that are resident.
///
/// # Errors
///
/// `/proc` cannot be read, or not understood.
pub fn rss_bytes() -> io::Result<u64> {
    let page_bytes = u64::try_from(rustix::param::page_size()).map_err(invalid)?;
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages.parse::<u64>().map_err(invalid)?.saturating_mul(page_bytes))
}

/// Descriptors that are open.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn open_descriptors() -> io::Result<usize> {
    // One of those counted is the descriptor that reads the directory.
    Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1))
}

fn invalid<E: std::error::Error + Send + Sync + 'static>(error: E) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
