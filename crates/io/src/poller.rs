//! epoll: which sockets can make progress.
//!
//! A connection is registered once, edge-triggered for both directions, and its interest never
//! changes: that is one system call in the life of a connection. Only one that came from another worker or process is registered
//! for reading first ([`Poller::add_reads`]): it could be written to before, and an event would say nothing new.
//! An edge is lost if the caller
//! stops before `WouldBlock` (or a short read, see [`Readiness::is_open`]); the caller has to
//! remember that a socket was left readable.
//!
//! An event may arrive for a socket that was closed earlier in the same batch. Tokens therefore
//! have to carry a generation.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::{Listener, Waker};

/// Events taken per [`Poller::wait`]; more of them wait in the kernel for the next call.
///
/// 256 keeps the work between two looks at the clock near two milliseconds at the measured cost
/// of a request, and the list (3 KiB) in the first-level cache.
pub const EVENTS_MAX: usize = 256;

/// Edges of a connection's reading side.
const READS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// An epoll instance.
///
/// Clones are the same instance: another thread stops watching what it closes through one.
#[derive(Clone, Debug)]
pub struct Poller {
    epoll: Arc<OwnedFd>,
}

impl Poller {
    /// Makes an instance that watches nothing yet.
    ///
    /// # Errors
    ///
    /// Errors of `epoll_create1`: out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: Arc::new(epoll::create(CreateFlags::CLOEXEC)?) })
    }

    /// Watches a connection in both directions, edge-triggered, until it is closed.
    ///
    /// A first event comes at once if the socket is ready already. A socket that was not asked to
    /// connect yet reports itself closed, so connect first. One that is watched already is watched anew, with this token.
    ///
    /// # Errors
    ///
    /// Errors of `epoll_ctl`: out of memory or watches.
    pub fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        self.watch_anew(socket.as_fd(), token, READS | EventFlags::OUT)
    }

    /// Watches a connection for what can be read, its end and errors, edge-triggered, until it is closed or
    /// [`Poller::add_writes`] is called. A first event comes at once if there is something.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn add_reads(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        self.watch_anew(socket.as_fd(), token, READS)
    }

    /// Watches a connection that is watched for reading in both directions from now on. An event comes at once if the socket is
    /// ready, for reading or writing.
    ///
    /// # Errors
    ///
    /// Errors of `epoll_ctl`: not watched here.
    pub fn add_writes(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let both = READS | EventFlags::OUT;
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(token), both)?)
    }

    /// Watches a listener, level-triggered: it is reported for as long as its queue holds a
    /// connection, to one of the pollers that watch it.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn add_listener(&self, listener: &Listener, token: u64) -> io::Result<()> {
        self.watch(listener.as_fd(), token, EventFlags::IN | EventFlags::EXCLUSIVE)
    }

    /// Stops watching a listener, to back off or before it is dropped. [`Self::add_listener`]
    /// resumes; connections queued in between are reported then.
    ///
    /// Dropping is not enough where [`Listener::try_clone`] was used: the kernel reports a
    /// registration until the last descriptor of the socket is closed.
    ///
    /// # Errors
    ///
    /// Errors of `epoll_ctl`: not watched here.
    pub fn remove_listener(&self, listener: &Listener) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, listener)?)
    }

    /// Watches a waker, level-triggered: it is reported until [`Waker::drain`].
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn add_waker(&self, waker: &Waker, token: u64) -> io::Result<()> {
        self.watch(waker.as_fd(), token, EventFlags::IN)
    }

    /// Stops watching a connection that stays open, to hand it elsewhere.
    ///
    /// # Errors
    ///
    /// Errors of `epoll_ctl`: not watched here.
    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, socket)?)
    }

    /// Replaces `events` by up to [`EVENTS_MAX`] new ones, waiting for the first for at most
    /// `timeout` (for ever if none; rounded up to milliseconds). A signal ends the wait early,
    /// without events.
    ///
    /// # Errors
    ///
    /// None in practice: `epoll_wait` fails on arguments that cannot be passed here.
    pub fn wait(&self, timeout: Option<Duration>, events: &mut Events) -> io::Result<()> {
        // A time span the kernel cannot represent is as good as no bound.
        let timeout = timeout.and_then(|span| Timespec::try_from(span).ok());
        events.ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events.ready), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn watch_anew(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> io::Result<()> {
        match epoll::add(&self.epoll, fd, EventData::new_u64(token), flags) {
            Err(Errno::EXIST) => {
                Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)?)
            }
            result => Ok(result?),
        }
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Room for the events of one [`Poller::wait`], allocated once.
pub struct Events {
    ready: Vec<epoll::Event>,
}

impl Events {
    /// Makes room for [`EVENTS_MAX`] events.
    #[must_use]
    pub fn new() -> Self {
        Self { ready: Vec::with_capacity(EVENTS_MAX) }
    }

    /// The events of the last wait, in the kernel's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> {
        self.ready.iter().map(Event::from_kernel)
    }

    /// The event at `index` of the last wait, for a caller that cannot hold a borrow.
    #[must_use]
    pub fn nth(&self, index: usize) -> Option<Event> {
        self.ready.get(index).map(Event::from_kernel)
    }

    /// How many events the last wait brought.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether the last wait brought none: its time was over, or a signal came.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One event of a registered socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// As given when the socket was added.
    pub token: u64,
    /// The operations that are possible now.
    pub readiness: Readiness,
}

impl Event {
    fn from_kernel(event: &epoll::Event) -> Self {
        // Copied out first: the kernel's structure is packed, so its fields have no references.
        let (data, flags) = (event.data, event.flags);
        Self { token: data.u64(), readiness: Readiness(flags) }
    }
}

/// The operations that are possible on a socket, as of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness(EventFlags);

impl Readiness {
    /// A read will bring bytes, the end, or an error.
    #[must_use]
    pub fn is_readable(self) -> bool {
        self.0.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }

    /// A write will take bytes or bring an error; a connection attempt has ended.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.0.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// The peer sends no more; what it sent may still wait to be read.
    #[must_use]
    pub fn is_read_closed(self) -> bool {
        self.0.intersects(EventFlags::RDHUP | EventFlags::HUP)
    }

    /// Both directions are over, or the socket failed ([`crate::Socket::take_error`] says why).
    #[must_use]
    pub fn is_closed(self) -> bool {
        self.0.intersects(EventFlags::HUP | EventFlags::ERR)
    }

    /// Nothing but bytes is queued, so that a short read took the last of them. Otherwise the
    /// caller must read until 0 or an error: the end has no edge of its own.
    #[must_use]
    pub fn is_open(self) -> bool {
        !self.0.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }
}
