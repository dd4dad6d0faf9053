//! Configurations taken up or refused, and other things that the control thread reports.

use std::sync::Arc;
use std::time::Duration;

/// A configuration was accepted and handed to the workers.
#[derive(Clone, Copy, Debug)]
pub struct ConfigAccepted {
    /// Version of the snapshot, counted from 1.
    pub version: u64,
    /// Wall-clock time, ns since the Unix epoch.
    pub at: u64,
    /// From reading the text to the snapshot that was built of it, ns.
    pub duration: u64,
}

/// All workers serve by a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConfigTakenUp {
    /// From the snapshot that was built to the report of the last worker, ns.
    pub taking_up: u64,
}

/// The control loop has done one thing.
#[derive(Clone, Copy, Debug)]
pub struct ControlTurned {
    /// How long that took, ns.
    pub taken: u64,
}

/// How the memory of the process compares with its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBounded {
    /// Bytes that may be resident, if they are bounded.
    pub max: Option<u64>,
    /// How near that is: 0 to 3.
    pub level: u8,
}

/// How many resources of a kind are in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigResources {
    /// `listener`, `route`, `cluster`, `assignment` or `secret`.
    pub kind: &'static str,
    /// A word of a closed set.
    pub state: &'static str,
    /// How many.
    pub count: u64,
}

/// A configuration was refused; the one before it stays in use.
#[derive(Clone, Copy, Debug)]
pub struct ConfigRejected {
    /// Errors found in it.
    pub errors: u32,
    /// Wall-clock time, ns since the Unix epoch.
    pub at: u64,
}

/// Where resources come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// The configuration file, and files of endpoints.
    File,
    /// DNS.
    Dns,
    /// A source of clusters, by its name.
    Named(&'static str),
}

impl SourceKind {
    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Dns => "dns",
            Self::Named(name) => name,
        }
    }
}

/// A source has said something, be it nothing new.
#[derive(Clone, Copy, Debug)]
pub struct SourceHeard {
    /// Which one.
    pub source: SourceKind,
    /// Wall-clock time, ns since the Unix epoch; 0 for a source that has yet to say something.
    pub at: u64,
}

/// A source gave what was asked of it, or did not.
#[derive(Clone, Copy, Debug)]
pub struct SourceAnswered {
    /// What delivered it.
    pub source: SourceKind,
    /// The kind of resource that it is about: `assignment` for files of endpoints and DNS.
    pub kind: &'static str,
    /// How many of these.
    pub count: u64,
    /// Why not, by a word of a closed set; none if it did, also with nothing new.
    pub failure: Option<&'static str>,
    /// Wall-clock time, ns since the Unix epoch; 0 if it turned out later, and the source said nothing then.
    pub at: u64,
}

/// Requests that needed a cluster on demand need it no longer.
#[derive(Clone, Copy, Debug)]
pub struct DemandsEnded {
    /// What came of it.
    pub outcome: DemandOutcome,
    /// How many.
    pub count: u64,
}

/// What came of requests that needed a cluster on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandOutcome {
    /// It came, or was there.
    Found,
    /// No source has it, or it is refused.
    Missing,
    /// They waited for too long, or ended meanwhile.
    Expired,
    /// Too many waited.
    Overflow,
}

impl DemandOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Found, Self::Missing, Self::Expired, Self::Overflow];

    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Missing => "missing",
            Self::Expired => "expired",
            Self::Overflow => "overflow",
        }
    }
}

/// How many of a source's files or names are in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceResources {
    /// Which source.
    pub source: SourceKind,
    /// A word of a closed set.
    pub state: &'static str,
    /// How many.
    pub count: u64,
}

/// What came of writing what sources gave last to the folder `state`, and of reading it, since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateWrites {
    /// Files that were written.
    pub written: u64,
    /// Files that could not be written.
    pub failed: u64,
    /// Bytes of the last file that was written.
    pub bytes: u64,
    /// When that was; wall-clock time, ns since the Unix epoch, 0 for never.
    pub at: u64,
    /// Files of former processes that could not be used.
    pub unusable: u64,
}

/// A certificate is in use from a configuration on that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateInUse {
    /// The listener that shows it to clients; empty if a cluster shows it to its endpoints.
    pub listener: Arc<str>,
    /// The cluster that shows it to its endpoints; empty if a listener shows it to clients.
    pub cluster: Arc<str>,
    /// The file that it stands in, as the configuration names it.
    pub file: Arc<str>,
    /// Its last second, since the Unix epoch.
    pub expires_at: u64,
}

/// Access log lines that were formatted could not be written to their output.
#[derive(Clone, Copy, Debug)]
pub struct AccessLogWriteFailed {
    /// Lines that are lost.
    pub lines: u64,
}

/// A connection was to move to another worker, with all that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionMoved {
    /// Whether `rebalance` chose it, or the admin interface was asked.
    pub is_rebalanced: bool,
    /// Whether it did move.
    pub is_moved: bool,
}

/// A handover between this process and another ended, and this one goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverEnded {
    /// How, by one of [`HANDOVER_RESULTS`].
    pub result: &'static str,
    /// Groups of connections that moved.
    pub groups: u64,
}

/// A process that connected to the socket for handovers was refused, or a handover failed before COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverFailed {
    /// Why, by one of [`HANDOVER_FAILURES`].
    pub cause: &'static str,
}

/// Why handovers fail.
pub const HANDOVER_FAILURES: [&str; 13] = [
    "busy",
    "closed",
    "descriptors",
    "garbled",
    "gave_up",
    "out_of_turn",
    "over_bound",
    "own",
    "silent",
    "start",
    "timeout",
    "user",
    "version",
];

/// How handovers end.
pub const HANDOVER_RESULTS: [&str; 6] =
    ["completed", "rolled_back", "stood_in", "taken_back", "checked", "restored"];

/// The options for which an endpoint is ejected.
pub const EJECTION_REASONS: [&str; 5] =
    ["errors_5xx", "errors_gateway", "errors_local", "success_rate", "failure_percentage"];

/// An endpoint was ejected, or was not since as many are as may be.
#[derive(Clone, Debug)]
pub struct EjectionCounted {
    /// The name of its cluster.
    pub cluster: Arc<str>,
    /// One of [`EJECTION_REASONS`].
    pub kind: &'static str,
    /// Whether it was not.
    pub is_denied: bool,
}

/// A health check of an endpoint ended.
#[derive(Clone, Debug)]
pub struct CheckCounted {
    /// The name of its cluster.
    pub cluster: Arc<str>,
    /// Whether the endpoint passed it; none where nothing was learnt of it.
    pub has_passed: Option<bool>,
}

/// What is left now of a cluster's bounds for requests of one priority.
#[derive(Clone, Debug)]
pub struct BreakersOfCluster {
    /// Its name.
    pub cluster: Arc<str>,
    /// The priority's name.
    pub priority: &'static str,
    /// Connections that may be opened.
    pub connections: u64,
    /// Exchanges that may begin to wait.
    pub pending: u64,
    /// Requests that may begin, if they are bounded.
    pub requests: Option<u64>,
    /// Retries that may begin.
    pub retries: u64,
    /// The limit that follows how long responses take, if there is one.
    pub concurrency: Option<ConcurrencyOfCluster>,
}

/// The limit of a cluster's requests that follows how long responses take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyOfCluster {
    /// Requests that may be under way.
    pub limit: u64,
    /// How long a response takes at least, once that is known.
    pub min_rtt: Option<Duration>,
}

/// A cluster that checks or ejects endpoints, as it is now.
#[derive(Clone, Debug)]
pub struct HealthOfCluster {
    /// Its name.
    pub cluster: Arc<str>,
    /// Endpoints whose checks fail, or have not passed yet.
    pub unhealthy: u64,
    /// Endpoints that are degraded.
    pub degraded: u64,
    /// Endpoints that are ejected.
    pub ejected: u64,
    /// Whether all of them get requests, since too few are left.
    pub is_panicking: bool,
    /// Whether it waits for the first checks of its endpoints.
    pub is_warming: bool,
}
