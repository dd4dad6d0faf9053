//! How much the loops of workers and of control have done.

use crate::block::WorkerBlock;
use crate::histogram::HistogramTotals;

/// How much the loops of a process have done. They go on while another process takes its place, and while a page is written; so that
/// a scraper which asks that one next sees no less, this one shows no more than that one was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopTotals {
    pub(crate) workers: Vec<WorkerLoop>,
    pub(crate) control_turns: HistogramTotals,
}

/// How much a worker's loop has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerLoop {
    pub(crate) turns: u64,
    pub(crate) events: u64,
    /// ns.
    pub(crate) busy: u64,
}

impl WorkerLoop {
    pub(crate) fn of(worker: &WorkerBlock) -> Self {
        let levels = &worker.levels;
        let (turns, events) = (levels.turns.value(), levels.events.value());
        Self { turns, events, busy: levels.busy() }
    }
}
