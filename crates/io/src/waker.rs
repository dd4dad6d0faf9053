//! A way for other threads to end a [`crate::Poller::wait`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;

/// A handle that makes one poller return. Clones wake the same poller.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Arc<OwnedFd>,
}

impl Waker {
    /// Makes a waker, to be registered with [`crate::Poller::add_waker`].
    ///
    /// # Errors
    ///
    /// Out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self { eventfd: Arc::new(rustix::event::eventfd(0, flags)?) })
    }

    /// Makes the poller report this waker. Wakes before the next [`Self::drain`] are one.
    pub fn wake(&self) {
        // Fails only when the count is at its top, and then the poller is being woken anyway.
        let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.eventfd, &1u64.to_ne_bytes()));
    }

    /// Takes all wakes so far. What they announced has to be looked at after this, not before, or
    /// a wake in between is lost.
    pub fn drain(&self) {
        let mut count = [0; 8];
        // Fails only when there is nothing to take.
        let _ = rustix::io::retry_on_intr(|| rustix::io::read(&self.eventfd, &mut count));
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
