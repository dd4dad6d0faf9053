//! What a handover asks of control, on either side. The conversation itself is the binary's.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::snapshot::Snapshot;
use telemetry::{FormerTotals, Readings};
use tokio::sync::oneshot;

use crate::admin::OldProcess;
use crate::handover_report::HandoverNews;
use crate::last_good::DeliveredResources;
use crate::workers::Workers;

/// A step of a handover, for control.
#[derive(Debug)]
pub enum HandoverStep<W: Workers> {
    /// Something is asked of this process.
    Ask(HandoverQuestion<W>),
    /// This process is something else from now on.
    Became(HandoverChange),
    /// Something became known.
    Heard(HandoverFact),
}

/// What the thread of handovers asks.
pub enum HandoverQuestion<W: Workers> {
    /// Another process would take this one's place: until the next change no file is read.
    Begin(oneshot::Sender<Result<Begun<W>, String>>),
    /// What this process has counted, for one that takes its place. The thread that asks writes it down, which takes a while.
    Count(oneshot::Sender<Readings>),
    /// The same for the process whose place this one takes, should this one end.
    CountOwn(oneshot::Sender<Readings>),
    /// What this process knows of endpoints: [`FormerState::health`].
    SaveHealth(oneshot::Sender<Vec<u8>>),
    /// The slow requests of this process. Nothing comes within a moment if the access log's output blocks.
    SaveSlow(oneshot::Sender<Vec<u8>>),
    /// This process, which has given its place away, is to take it back: the configuration in effect, which stays so until
    /// then.
    BeginReturn(oneshot::Sender<Arc<Snapshot<W::Filter>>>),
    /// Some connections of this process are to be listed for the one that took its place: of that worker, from the slot on.
    List {
        /// The worker.
        worker: u32,
        /// The slot.
        slot: u32,
        /// Where they go; nothing does if the worker does not answer.
        reply: oneshot::Sender<ListedRows>,
    },
}

impl<W: Workers> fmt::Debug for HandoverQuestion<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandoverQuestion").finish_non_exhaustive()
    }
}

/// What this process is from now on.
#[derive(Debug)]
pub enum HandoverChange {
    /// Nothing came of it: this process goes on as before.
    RolledBack {
        /// What the other process had counted until it ended, as far as it said so.
        totals: FormerTotals,
        /// Hears whether this process ends, because it was asked to meanwhile.
        reply: oneshot::Sender<bool>,
    },
    /// Another process has taken this one's place.
    Committed {
        /// That process.
        successor: u32,
        /// Whether it has its place back: it was this one's former process.
        is_return: bool,
        /// Where this one goes on to answer.
        kept_admin: KeptAdmin,
        /// Hears when it answers nowhere else any more.
        reply: oneshot::Sender<()>,
    },
    /// That process has ended early: this one accepts again.
    AcceptAgain {
        /// What that had counted by itself, as far as it said so.
        totals: FormerTotals,
    },
    /// That process does not run, and cannot be ended: this one accepts beside it, and answers on the admin interface.
    StandIn {
        /// What that has counted by itself, as far as it said so.
        totals: FormerTotals,
    },
    /// That process runs again, and is the one that serves.
    StandBack,
    /// This process does not take its place back: the other one stays.
    NotReturned,
    /// This process has taken the place of another.
    TakenOver {
        /// What it has counted, and knew.
        state: FormerState,
        /// How many handovers led to this process.
        generation: u64,
        /// Whether that had taken the place of this one, which has it back.
        is_return: bool,
        /// Hears when it is done, and whether this process was asked to end meanwhile, and gives everything back for that.
        reply: oneshot::Sender<bool>,
    },
    /// This process continues connections that another left with the service manager.
    Restored {
        /// What that had counted, and knew.
        state: FormerState,
        /// How many handovers led to this process.
        generation: u64,
    },
    /// This process ends, once what it still has is over. Its receiver hears when the service manager knows the other one as the
    /// main process.
    Finish(oneshot::Sender<()>),
    /// That is to be over now: two newer processes exist.
    EndRemaining,
    /// This process is to end, as by SIGTERM, unless it is ending or does not serve any more.
    End,
    /// This process cannot take the other's place, and ends.
    Stop(String),
}

/// What became known.
#[derive(Debug)]
pub enum HandoverFact {
    /// How the handover goes.
    News(HandoverNews),
    /// What the process knows of endpoints whose place this one takes, before this one accepts.
    Learned {
        /// As [`FormerState::health`].
        health: Vec<u8>,
        /// Hears when workers have it.
        reply: oneshot::Sender<()>,
    },
    /// What the former process has counted by now.
    Update {
        /// Its counters and histograms.
        totals: FormerTotals,
        /// If it gave this process's place back: by which handover.
        returned: Option<u64>,
    },
    /// The service manager knows this process as the main one of its service, and listens to it.
    MainProcess,
    /// The process that took this one's place hears it no longer: it has ended, or its connection to this one.
    SuccessorEnded,
    /// The process whose place this one took still has connections, as long as it lives.
    FormerStays(OldProcess),
    /// A process whose place this one took has ended.
    FormerEnded {
        /// Its id.
        pid: u32,
        /// As in [`HandoverFact::Update`].
        returned: Option<u64>,
    },
    /// The former process has listed some of its connections.
    Listed {
        /// The number of the request, as [`Workers::list_former`] sent it.
        request: u32,
        /// A line of JSON for each connection.
        rows: Vec<String>,
        /// The worker and the slot to go on with, if there are more.
        next: Option<(u32, u32)>,
    },
}

/// The sockets of the admin interface that a process keeps which has given its place away: the other one does not use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptAdmin {
    /// The one for all pages.
    pub all: bool,
    /// The one for what scrapers and probes ask for.
    pub metrics: bool,
}

/// What a process has counted and knows, for the one that takes its place.
#[derive(Debug)]
pub struct OwnState {
    /// Its counters and histograms.
    pub readings: Readings,
    /// Which endpoints are ejected, unhealthy or drained.
    pub health: Vec<u8>,
    /// Its slow requests.
    pub slow: Vec<u8>,
}

/// What another process had counted and knew whose place this one takes. Empty where it did not say.
#[derive(Debug, Default)]
pub struct FormerState {
    /// Its counters and histograms.
    pub totals: FormerTotals,
    /// Which endpoints are ejected, unhealthy or drained.
    pub health: Vec<u8>,
    /// Its slow requests, where they were asked for ([`HandoverQuestion::SaveSlow`]).
    pub slow: Vec<u8>,
}

/// Some connections of a worker, for another process.
#[derive(Debug, Default)]
pub struct ListedRows {
    /// Each with its worker and slot, as an object in JSON.
    pub rows: Vec<((u32, u32), String)>,
    /// The worker and the slot to go on with, if there are more.
    pub next: Option<(u32, u32)>,
}

/// A socket of the admin interface, for the other process.
#[derive(Debug)]
pub struct GivenAdmin {
    /// Another handle on it.
    pub socket: OwnedFd,
    /// Whether it has a file that this process removes when it ends: not one of a socket unit of systemd.
    pub owns_file: bool,
}

/// What the other process gets of control.
pub struct Begun<W: Workers> {
    /// The configuration in effect, which stays so until the handover is over.
    pub snapshot: Arc<Snapshot<W::Filter>>,
    /// Handles on the listening sockets.
    pub handles: W::Handles,
    /// The admin socket.
    pub admin: Option<GivenAdmin>,
    /// The one for what scrapers and probes ask for.
    pub metrics: Option<GivenAdmin>,
    /// What sources have delivered, and what host names stand for.
    pub delivered: DeliveredResources,
    /// Downstream connections that are open.
    pub downstream_connections: u64,
}

impl<W: Workers> fmt::Debug for Begun<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").finish_non_exhaustive()
    }
}
