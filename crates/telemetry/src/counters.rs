//! What is counted, from events, by the worker that they happen on; and what the collector reads of it.
//!
//! A file for each kind of event. `metrics` has the families that are made of these counters; nothing here knows
//! a name that is exported.

pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod exchange;
pub(crate) mod grpc;
pub(crate) mod status;
pub(crate) mod tls;
pub(crate) mod upstream;
pub(crate) mod worker;

use crate::cause::Cause;
use crate::cell::{CauseCounters, CauseSet};

/// A counter for every cause.
#[derive(Debug, Default)]
pub(crate) struct CauseTotals(pub(crate) CauseCounters<ALL_CAUSES>);

const ALL_CAUSES: usize = Cause::ALL.len() + 1;
static CAUSES: CauseSet<ALL_CAUSES> = CauseSet::new(Cause::ALL);

impl CauseTotals {
    pub(crate) fn increment(&self, cause: Cause) {
        self.0.increment(&CAUSES, cause);
    }
}
