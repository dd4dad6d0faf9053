//! Waiting for a descriptor, for a time.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::clock;

/// A pipe: the process that has its second end closes it to show that it is done.
///
/// # Errors
///
/// Out of descriptors.
pub fn barrier() -> io::Result<(Barrier, OwnedFd)> {
    let (fd, other) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((Barrier { fd }, other))
}

/// Waits for the end of all handles on the other end.
#[derive(Debug)]
pub struct Barrier {
    pub(super) fd: OwnedFd,
}

impl Barrier {
    /// Whether all have ended in this time.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        // The end of a pipe is HUP, which is reported in any case; nothing is written to it.
        wait(self.fd.as_fd(), PollFlags::IN, timeout)
    }
}

/// Waits until `fd` is ready, and says whether it is.
pub(super) fn wait(fd: BorrowedFd<'_>, flags: PollFlags, timeout: Duration) -> io::Result<bool> {
    wait_for_any(&[fd], flags, timeout)
}

/// Waits until one of these is ready, and says whether one is.
pub(super) fn wait_for_any<const N: usize>(
    fds: &[BorrowedFd<'_>; N],
    flags: PollFlags,
    timeout: Duration,
) -> io::Result<bool> {
    let mut fds = fds.each_ref().map(|fd| PollFd::new(fd, flags));
    let began = clock::monotonic_ns();
    loop {
        let passed = clock::monotonic_ns().saturating_sub(began);
        let left = timeout.saturating_sub(Duration::from_nanos(passed));
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            // It is no end of the time: whether another process has ended depends on that.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
