//! What this process counts by itself, for the one whose place it takes: that one goes on with it should this one end.

use ::handover::{Phase, STATE_BYTES_MAX, Taker};
use control::{HandoverQuestion, HandoverStep};
use telemetry::Readings;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use wiped::Wiped;

use crate::data_path::DataPath;
use crate::handover::leaving::Updates;
use crate::handover::line::{Line, now};
use crate::handover::topics::Topic;
use crate::handover::totals::Totals;

/// Bytes of a report before COMMIT, at most: frames that have to come through may not wait for room behind it.
const EARLY_BYTES_MAX: usize = 32 << 10;

/// Between two looks for an answer of control, ns.
const LOOK_INTERVAL: u64 = 2_000_000;

/// Reports as long as the other process stands by. Nothing here waits: that process ends one that is silent.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    updates: Updates,
    asked: Option<oneshot::Receiver<Readings>>,
    /// What the other process knows.
    reported: Wiped,
}

impl Reporting {
    /// Reports what control has counted, if it has answered, or asks for it, if that is due.
    pub(super) fn go_on(
        &mut self,
        taker: &Taker,
        line: &mut Line,
        control: &Sender<HandoverStep<DataPath>>,
    ) {
        let at = now();
        let is_early = taker.phase() < Phase::Probation;
        let bytes_max = if is_early { EARLY_BYTES_MAX } else { STATE_BYTES_MAX as usize };
        match self.asked.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Ok(readings)) => {
                self.asked = None;
                let write = || Totals::bounded_by(readings.write_own_totals(), bytes_max).bytes;
                // Most processes that have just begun are idle.
                let totals = self.updates.next(at, write).filter(|it| *it != self.reported);
                let Some(totals) = totals else { return };
                taker.frames_of(Topic::Totals.name(), &totals).for_each(|frame| line.queue(frame));
                self.reported = totals;
            }
            // Control ends with the process.
            Some(Err(TryRecvError::Closed)) => self.asked = None,
            Some(Err(TryRecvError::Empty)) => {}
            // One that is stopped has one report to read.
            None if self.updates.is_due(at) && line.is_read() => {
                let (reply, readings) = oneshot::channel();
                let question = HandoverStep::Ask(HandoverQuestion::CountOwn(reply));
                self.asked = control.try_send(question).is_ok().then_some(readings);
            }
            None => {}
        }
    }

    /// When to look again, at the earliest.
    pub(super) fn next_look(&self) -> u64 {
        let soon = now().saturating_add(LOOK_INTERVAL);
        if self.asked.is_some() { soon } else { self.updates.next_at.max(soon) }
    }
}
