//! What a run came to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::handovers::Returns;
use crate::ledger::Outcome;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// One number over everything that happened.
    pub hash: u64,
    /// How much happened on the network.
    pub happenings: u64,
    /// Turns of all workers.
    pub turns: u64,
    /// Virtual time that passed.
    pub duration: Duration,
    /// How requests ended.
    pub outcomes: BTreeMap<Outcome, usize>,
    /// Requests that were sent again.
    pub retried: usize,
    /// Requests that came with the host of their endpoint.
    pub rewritten: usize,
    /// Responses by versions of delivered listeners and route configurations.
    pub delivered: usize,
    /// Waits of delivered listeners and clusters that ended so that these served without something, and so that they were refused.
    pub waited: (usize, usize),
    /// How often a source delivered in the probation of a handover.
    pub delivered_in_probation: usize,
    /// Requests that came to an endpoint of a host name.
    pub resolved: usize,
    /// Idle connections that were closed at once when their address was no endpoint any more.
    pub closed_as_removed: usize,
    /// Connections in use that were not, then.
    pub kept_though_removed: usize,
    /// Connections to a former address of a logical name that stayed when it stood for another.
    pub kept_as_logical: usize,
    /// Connections that were moved to another worker.
    pub moved: usize,
    /// Processes that took the place of another.
    pub replaced: usize,
    /// How many workers the other one had, and how many they have.
    pub replaced_workers: BTreeSet<(usize, usize)>,
    /// Configurations that came in the probation of a handover.
    pub reloaded_in_probation: usize,
    /// How often a process was stopped during a handover.
    pub stopped: usize,
    /// Former processes that the new ones found to be silent for too long.
    pub givers_ended: usize,
    /// New processes that might not be ended when a handover failed.
    pub takers_left: usize,
    /// Former processes that accepted connections beside a new one that was silent.
    pub stood_in: usize,
    /// How often a new process was to give everything back in its probation, and how that ended.
    pub returns: Returns,
    /// Endpoints that were ejected.
    pub ejected: usize,
    /// Health checks of which something was learnt.
    pub checked: usize,
    /// Bytes that passed through from one connection to the other.
    pub spliced: u64,
    /// Connections that spoke TLS.
    pub secure: usize,
}

/// The promises that were broken.
#[derive(Clone, Debug)]
pub struct Violations {
    /// The broken promises, a text each.
    pub violations: Vec<String>,
    /// The last lines of the trace, if it was kept.
    pub trace: String,
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.trace)?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "violated: {violation}"))
    }
}
