//! The process at the other end of a connection.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Peer;
use super::waiting::wait;

/// What is known of the process at the other end of a connection.
#[derive(Debug)]
pub enum PeerProcess {
    /// It runs.
    Running(ProcessHandle),
    /// It has ended since. If its end of the connection is still open, another process has that: which one, the kernel does not say.
    Ended,
    /// This process's PID namespace has no number for it.
    Unknown,
}

/// The process that has the number of this peer, unless it is another user's: the number may be another process's by now.
pub(super) fn of_number(peer: Peer) -> Option<ProcessHandle> {
    let handle = ProcessHandle::open(peer.pid).ok()?;
    let status = fs::read_to_string(format!("/proc/{}/status", peer.pid)).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let user: u32 = users.split_whitespace().nth(1)?.parse().ok()?;
    (user == peer.uid).then_some(handle)
}

/// A process, by a handle that names no other one when it has ended.
#[derive(Debug)]
pub struct ProcessHandle {
    pub(super) fd: OwnedFd,
}

impl ProcessHandle {
    /// The process with this id, now.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Another handle on the same process.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()? })
    }

    /// Ends it at once, whatever it does.
    ///
    /// # Errors
    ///
    /// This process may not.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.fd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for its end, for `timeout` at most, and says whether it came.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        wait(self.fd.as_fd(), PollFlags::IN, timeout)
    }
}
