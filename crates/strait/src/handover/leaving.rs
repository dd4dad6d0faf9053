//! A process that has given its place away and ends what it still has: it goes on saying what it counts, and hears how many
//! others have come since.

use ::handover::{Giver, GiverAction, Message};
use control::{HandoverChange, HandoverFact, HandoverQuestion, HandoverStep};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

use super::line::{Incoming, Line, now};
use super::listing::Listing;
use super::topics::Topic;
use super::totals::totals;
use crate::data_path::{Contacts, DataPath};

/// Between two reports of counters to the other process, ns.
const UPDATE_INTERVAL: u64 = 100_000_000;

/// Reports of counters take a tenth of the time at most: with ten thousand clusters under load, one has megabytes.
const UPDATE_SHARE: u64 = 10;

/// When counters are reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Updates {
    /// When the next report is due.
    pub(super) next_at: u64,
}

impl Updates {
    /// Whether there is something to report.
    pub(super) const fn is_due(&self, at: u64) -> bool {
        at >= self.next_at
    }

    /// What to report by now, if anything is: the counters that `read` gives, which is also timed.
    pub(super) fn next<T>(&mut self, at: u64, read: impl FnOnce() -> T) -> Option<T> {
        if !self.is_due(at) {
            return None;
        }
        let report = read();
        let taken = now().saturating_sub(at);
        let interval = UPDATE_INTERVAL.max(taken.saturating_mul(UPDATE_SHARE));
        self.next_at = at.saturating_add(interval);
        Some(report)
    }
}

/// What is left of a handover, to the end of one of both processes.
pub(super) struct Leaving {
    /// To the process that took this one's place.
    pub(super) line: Line,
    pub(super) giver: Giver,
    /// Whether that was the process before, and needs only what this one counted by itself.
    pub(super) is_return: bool,
    /// What that one asked for and has not got yet.
    pub(super) listing: Listing,
}

impl Leaving {
    pub(super) fn run(mut self, contacts: &Contacts, control: &Sender<HandoverStep<DataPath>>) {
        let mut updates = Updates::default();
        while !self.giver.is_over() {
            while let Some(action) = self.giver.poll() {
                // Control ends with the process: the same below.
                match action {
                    GiverAction::Send(frame) => self.line.queue(frame),
                    GiverAction::EndRemaining => {
                        drop(
                            control
                                .blocking_send(HandoverStep::Became(HandoverChange::EndRemaining)),
                        );
                    }
                    GiverAction::List { request, worker, slot } => {
                        self.listing.begin(request, (worker, slot), control);
                    }
                    GiverAction::EndFormer => drop(contacts.former().send(&Message::EndRemaining)),
                    _ => {}
                }
            }
            let at = now();
            if !self.line.is_full()
                && let Some(totals) = updates.next(at, || totals(control, self.is_return))
            {
                let Some(totals) = totals else { return };
                self.giver.update(&[(Topic::Totals.name().to_owned(), totals.bytes)]);
            }
            self.listing.go_on(&mut self.giver, &self.line);
            match self.line.receive(self.listing.next_look()) {
                Ok(Incoming::Frame(frame, count)) => {
                    self.line.descriptors.clear();
                    self.giver.on_frame(&frame, count, now());
                }
                Ok(Incoming::Nothing) => {}
                Ok(Incoming::End) | Err(_) => {
                    let ended = HandoverStep::Heard(HandoverFact::SuccessorEnded);
                    drop(control.blocking_send(ended));
                    return;
                }
            }
        }
    }
}

/// The slow requests of the process; none if its access log's output blocks.
pub(super) fn slow(control: &Sender<HandoverStep<DataPath>>) -> Vec<u8> {
    let (reply, slow) = oneshot::channel();
    // Control ends with the process.
    let _ = control.blocking_send(HandoverStep::Ask(HandoverQuestion::SaveSlow(reply)));
    slow.blocking_recv().unwrap_or_default()
}
