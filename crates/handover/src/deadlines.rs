//! How far a handover is, and how long each step may take.

use std::fmt;
use std::time::Duration;

/// How far a handover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Versions and forms.
    Hello,
    /// What each is configured to do.
    Config,
    /// Listening sockets.
    Listeners,
    /// A few idle connections.
    Probe,
    /// All other connections.
    Connections,
    /// What could not move before, such as a TLS handshake that had not ended.
    Remaining,
    /// What the process itself knows.
    Commit,
    /// The taker is the process; the giver keeps the listening sockets for a while.
    Probation,
    /// Over.
    Done,
}

impl Phase {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::Hello,
        Self::Config,
        Self::Listeners,
        Self::Probe,
        Self::Connections,
        Self::Remaining,
        Self::Commit,
        Self::Probation,
        Self::Done,
    ];

    /// The word for it in logs and on pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Config => "config",
            Self::Listeners => "listeners",
            Self::Probe => "probe",
            Self::Connections => "connections",
            Self::Remaining => "remaining",
            Self::Commit => "commit",
            Self::Probation => "probation",
            Self::Done => "done",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How long each step may take. Times are nanoseconds of a monotonic clock that each side has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From the connection to the taker's hello.
    pub hello: Duration,
    /// From the welcome to the taker's differences.
    pub config: Duration,
    /// From the first listening socket to the taker's word that it serves.
    pub listeners: Duration,
    /// From a batch to its acknowledgement.
    pub batch: Duration,
    /// How long the giver waits for connections that cannot move yet.
    pub remaining: Duration,
    /// From COMMIT to the taker's answer.
    pub commit: Duration,
    /// How long the giver keeps the listening sockets afterwards.
    pub probation: Duration,
    /// From the connection to COMMIT, altogether.
    pub total: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(2),
            config: Duration::from_secs(5),
            listeners: Duration::from_secs(5),
            batch: Duration::from_secs(2),
            remaining: Duration::from_secs(10),
            commit: Duration::from_secs(5),
            probation: Duration::from_secs(30),
            total: Duration::from_secs(60),
        }
    }
}

/// The time that is `after` from `now`.
pub(crate) fn later(now: u64, after: Duration) -> u64 {
    now.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
}

/// So many bytes need no more time than none.
const BYTES_IN_TIME: u64 = 1 << 20;

/// How much longer more bytes may take: a second for each 4 MiB. Where other work has two processors twice over, these take a quarter of
/// that.
pub(crate) const fn extra_time(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_sub(BYTES_IN_TIME) / 4)
}
