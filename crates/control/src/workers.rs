//! What control needs of the data path, and what it hears from it.
//!
//! The binary implements [`Workers`] with the workers' mailboxes; tests implement it with a list.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::checks::CheckTask;
use config::memory::MemoryPressure;
#[cfg(doc)]
use config::reports::ReportBody;
use config::snapshot::{Address, ClusterId, ListenerId, Snapshot};

use crate::admin::{ExplainRequest, ExplainStep};
#[cfg(doc)]
use crate::handover::HandoverFact;
use crate::moves::Mover;

/// The workers as control sees them. No method waits: what does not fit into a mailbox is kept, in
/// its order, and handed on by [`Workers::flush`].
pub trait Workers: Send + 'static {
    /// A built filter.
    type Filter: fmt::Debug + Send + Sync + 'static;
    /// Names the exchange that waits for an answer.
    type Asker: fmt::Debug + Send + 'static;
    /// Listening sockets that are bound and not handed out.
    type Sockets: Send;
    /// Handles on the listening sockets by listener, for the process that takes this one's place.
    type Handles: IntoIterator<Item = (Arc<str>, Vec<OwnedFd>)> + Send;
    /// Moves connections from worker to worker.
    type Mover: Mover;

    /// How many there are.
    fn count(&self) -> u32;

    /// Binds what `snapshot` adds to the listeners there are, and finds out whether its clusters can
    /// be connected to as they ask.
    ///
    /// # Errors
    ///
    /// Everything that could not be had; then nothing is kept.
    fn bind(
        &mut self,
        snapshot: &Snapshot<Self::Filter>,
    ) -> Result<Bound<Self::Sockets>, Vec<BindFailure>>;

    /// Hands a snapshot and the sockets of its new listeners to all workers.
    fn publish(&mut self, snapshot: &Arc<Snapshot<Self::Filter>>, sockets: Self::Sockets);

    /// Answers what an exchange of `worker` asked.
    fn answer(&mut self, worker: u32, asker: Self::Asker, payload: Arc<[u8]>);

    /// Has `worker` find out how endpoints are; each task is answered by [`ReportBody::Checked`].
    fn check(&mut self, worker: u32, tasks: Box<[CheckTask]>);

    /// Tells all workers that clusters which waited for the first checks of their endpoints serve.
    fn warmed(&mut self, clusters: &Arc<[ClusterId]>);

    /// Tells all workers how near the process is to its bound on memory.
    fn set_memory(&mut self, memory: MemoryPressure);

    /// Asks `worker` to describe its connections from the slot `first` on; the answer is a
    /// [`ReportBody::Described`] with the number `request`. One that reads nothing is not asked.
    fn describe(&mut self, worker: u32, first: u32, request: u64);

    /// Asks `worker` for a sign of life, however much it has not read yet: the answer is a [`ReportBody::Described`] of no connection
    /// with the number `request`.
    fn ask_alive(&mut self, worker: u32, request: u64);

    /// Asks the process whose place this one took for its connections from a worker and a slot on. The answer is a
    /// [`HandoverFact::Listed`] with the number `request`, if one comes.
    fn list_former(&mut self, request: u32, worker: u32, slot: u32);

    /// Says to the process whose place this one took that this one ends as it should: that one stands by no longer, and has the service
    /// manager know this one as the main process, which [`HandoverFact::MainProcess`] says.
    fn leave_former(&mut self);

    /// What moves connections from worker to worker; none while messages wait for room in a mailbox. Until
    /// it has done so, no snapshot may be published, and no drain may begin.
    fn mover(&self) -> Option<Self::Mover>;

    /// Handles on the listening sockets that there are, or on those of these listeners alone.
    ///
    /// # Errors
    ///
    /// Out of descriptors, now or when they were bound.
    fn handles(&self, listeners: Option<&[ListenerId]>) -> io::Result<Self::Handles>;

    /// Sets the options of listening sockets, and the permissions of their files where these are this process's own: another process has
    /// set them as it is configured, or not at all.
    fn set_socket_options(&self, snapshot: &Snapshot<Self::Filter>);

    /// Binds those unix listeners anew whose file this process had made and another removed, where their path is free, and says which.
    fn bind_lost(&mut self, snapshot: &Snapshot<Self::Filter>) -> Vec<ListenerId>;

    /// Tells all to stop accepting, finish what runs, and stop.
    fn drain(&mut self);

    /// Tells all to end what runs now.
    fn end_now(&mut self);

    /// Tells all to stop now.
    fn stop(&mut self);

    /// Bytes of memory that are resident, if the system says.
    fn resident_bytes() -> Option<u64>;

    /// Bytes of memory that the control groups of this process allow it, if they bound them.
    fn memory_bytes_max() -> Option<u64>;

    /// Gives memory that is free back to the system. Takes milliseconds: control calls it on a thread
    /// that may wait.
    fn release_free_memory();

    /// Begins to note these signals, by their numbers, and which of them another process of Strait passes on. To be called before anything else
    /// takes them.
    ///
    /// # Errors
    ///
    /// The system's.
    fn note_signals(signals: &[i32]) -> io::Result<()>;

    /// Whether one of these signals has come and was not taken.
    fn has_come(signal: i32) -> bool;

    /// Takes one of these signals that has come, unless it was taken before; whether another process of Strait has passed it on, for
    /// the process that serves.
    fn take_signal(signal: i32) -> Option<bool>;

    /// Passes a signal on to the process with this id; whether that has got it.
    fn pass_on(process: u32, signal: i32) -> bool;

    /// The way that a request would take under this configuration. Takes as long as a handshake and a walk over its
    /// rules: control calls it on a thread that may wait.
    ///
    /// # Errors
    ///
    /// What is wrong with the question, and what to ask instead.
    fn explain(
        snapshot: &Arc<Snapshot<Self::Filter>>,
        request: &ExplainRequest,
    ) -> Result<Vec<ExplainStep>, String>;

    /// Hands on what a mailbox had no room for. Called now and then.
    fn flush(&mut self);
}

/// Sockets bound for a snapshot.
#[derive(Debug)]
pub struct Bound<S> {
    /// The sockets.
    pub sockets: S,
    /// Where each listener listens, with the actual ports.
    pub addresses: Vec<(ListenerId, Vec<Address>)>,
}

/// What the system does not let this process have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindFailure {
    /// A cluster's sockets cannot be made as it asks.
    #[error("cluster {cluster}: {reason}")]
    Cluster {
        /// Its name.
        cluster: Arc<str>,
        /// Why, and what to do.
        reason: String,
    },
    /// A listener that could not be bound.
    #[error("listener {listener}: cannot listen on {address}: {reason}")]
    Listener {
        /// Its name.
        listener: Arc<str>,
        /// Its address, as text.
        address: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// A report of one of the workers `W`.
pub type Report<W> = config::reports::Report<<W as Workers>::Filter, <W as Workers>::Asker>;
