//! Which processors a thread may run on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that the calling thread may run on, in rising order. A container's limit shows
/// here, where the machine's number of processors would mislead.
///
/// # Errors
///
/// Errors of `sched_getaffinity`: more processors than a set holds (1,024).
pub fn cpus() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// Keeps the calling thread on one processor.
///
/// # Errors
///
/// `InvalidInput` if there is no such processor or it is not allowed here.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}
