//! The connections that a process still has which another has replaced, for the page of that one.
//!
//! Control asks a worker for them, and nothing here waits for that: a worker that hangs may not keep this process from seeing that the
//! other one does.

use std::collections::VecDeque;

use ::handover::{Giver, ListedConnections};
use control::{HandoverQuestion, HandoverStep, ListedRows};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::line::{Line, now};
use crate::data_path::DataPath;

/// Questions under way. The other process asks one at a time for each client of its admin interface.
const UNDER_WAY_MAX: usize = 64;

/// Between two looks for an answer of control, ns.
const LOOK_INTERVAL: u64 = 2_000_000;

/// What the other process has asked for and has not got yet.
#[derive(Debug, Default)]
pub(super) struct Listing {
    under_way: VecDeque<(u32, oneshot::Receiver<ListedRows>)>,
}

impl Listing {
    /// The other process asks for connections of a worker, from a slot on.
    pub(super) fn begin(
        &mut self,
        request: u32,
        (worker, slot): (u32, u32),
        control: &Sender<HandoverStep<DataPath>>,
    ) {
        if self.under_way.len() >= UNDER_WAY_MAX {
            return;
        }
        let (reply, listed) = oneshot::channel();
        // Control ends with the process. Where it has no time, the other process hears nothing, and says so.
        if control
            .try_send(HandoverStep::Ask(HandoverQuestion::List { worker, slot, reply }))
            .is_ok()
        {
            self.under_way.push_back((request, listed));
        }
    }

    /// Passes on what control has found, as long as the other process reads.
    pub(super) fn go_on(&mut self, giver: &mut Giver, line: &Line) {
        for _ in 0..self.under_way.len() {
            if line.is_full() {
                return;
            }
            let Some((request, mut listed)) = self.under_way.pop_front() else { return };
            match listed.try_recv() {
                Ok(ListedRows { rows, next }) => {
                    giver.list(ListedConnections::new(request, rows, next));
                }
                Err(TryRecvError::Empty) => self.under_way.push_back((request, listed)),
                // A worker did not answer.
                Err(TryRecvError::Closed) => {}
            }
        }
    }

    /// When to look again, if something is under way.
    pub(super) fn next_look(&self) -> Option<u64> {
        (!self.under_way.is_empty()).then(|| now().saturating_add(LOOK_INTERVAL))
    }
}
